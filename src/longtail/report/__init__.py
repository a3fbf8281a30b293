"""Evaluations for people and programs: tables as Markdown and LaTeX, JSON, one HTML page."""

from longtail.report.document import FORMATS, format_of, render
from longtail.report.markdown import to_markdown
from longtail.report.page import build_page
from longtail.report.paper import check_corpus, paper_rows
from longtail.report.runs import Run, check_different
from longtail.report.tables import Table, document_table, label_table, table_rows

__all__ = [
    "FORMATS",
    "Run",
    "Table",
    "build_page",
    "check_corpus",
    "check_different",
    "document_table",
    "format_of",
    "label_table",
    "paper_rows",
    "render",
    "table_rows",
    "to_markdown",
]
