"""All output for people: one Table with four renderers, all figures, the page, the templates."""

from longtail.analysis.runs import Run
from longtail.report.evaluation_tables import document_table, group_table, label_table
from longtail.report.figures.corpus import plot_documents, plot_labels
from longtail.report.jinja import to_html
from longtail.report.latex import to_latex
from longtail.report.page import FORMATS, build_page, format_of, render, summarize
from longtail.report.paper import paper_rows
from longtail.report.stats_tables import stats_tables
from longtail.report.table import Table, to_markdown, to_terminal

__all__ = [
    "FORMATS",
    "Run",
    "Table",
    "build_page",
    "document_table",
    "format_of",
    "group_table",
    "label_table",
    "paper_rows",
    "plot_documents",
    "plot_labels",
    "render",
    "stats_tables",
    "summarize",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_terminal",
]
