"""The site builds without a warning, shows every flag and name, and asks no other server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.main import get_command

import longtail
from longtail.cli import app
from tests.documents.blocks import ROOT

SOURCES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
ELSEWHERE = re.compile(r"^(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    home = str(Path(longtail.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": home, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    return folder


class Fetched(HTMLParser):
    """What a browser fetches for a page, and what it runs or draws inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(SOURCES.get(tag, ""))
        if address is not None:
            self.addresses.append(address)


def fetched(page: str) -> list[str]:
    parser = Fetched()
    parser.feed(page)
    return parser.addresses


def test_no_page_asks_another_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for address in fetched(page.read_text("utf-8")):
            assert not ELSEWHERE.match(address), f"{page.relative_to(site)}: {address}"
            if page.name != "404.html" and not address.startswith("data:"):
                assert (page.parent / address.partition("?")[0]).exists(), f"{page}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", style.read_text("utf-8"))


def test_what_is_fetched_is_seen() -> None:
    page = '<script src="//cdn.example/x.js"></script><link href="https://fonts.example/a.css">'
    assert all(ELSEWHERE.match(address) for address in fetched(page)) and len(fetched(page)) == 2


def test_every_verb_has_a_page_with_all_its_flags(site: Path) -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        page = (site / "commands" / f"{name}.html").read_text("utf-8")
        for verb in [command, *getattr(command, "commands", {}).values()]:
            for parameter in verb.params:
                flag = next((each for each in parameter.opts if each.startswith("--")), "")
                assert flag in ("--help-all", "--help") or flag in page, f"{name}: {flag}"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(page.read_text("utf-8") for page in (site / "api").glob("*.html"))
    for name in longtail.__all__:
        if name.isupper():  # LOSSES, whose page is losses.md
            continue
        assert re.search(rf'id="longtail\.[\w.]*{name}"', pages), name
    for field in ("char_ngrams", "max_length", "class_weight", "head_learning_rate"):
        assert f"<code>{field}</code>" in pages, field
