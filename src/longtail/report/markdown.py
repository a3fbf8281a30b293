"""Untrusted Markdown, such as an edited model card, as HTML that runs and loads nothing."""

from __future__ import annotations

from markupsafe import Markup

from longtail.errors import MissingExtraError


def to_safe_html(text: str) -> Markup:
    """Render CommonMark with tables; HTML, images and unsafe links are shown as text."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingExtraError("the page of a model", "markdown-it-py", "serve") from error
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    return Markup(parser.render(text))
