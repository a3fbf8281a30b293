"""All figures: corpora, results of recipes, and those of the report's page."""
