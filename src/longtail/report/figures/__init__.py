"""All figures: corpora, results of recipes, and those of the report's page."""

from longtail.report.figures.corpus import plot_documents, plot_labels
from longtail.report.figures.evaluation import draw_figures
from longtail.report.figures.results import plot_results

__all__ = ["draw_figures", "plot_documents", "plot_labels", "plot_results"]
