"""Figures of corpora and of the report's page."""
