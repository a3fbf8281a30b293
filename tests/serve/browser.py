"""A service with tiny real models on the loopback, and browser pages that record every fault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longtail import LongTailClassifier
from longtail.serve.app import create_app
from longtail.serve.settings import Service

from .conftest import real_server

EVIL = """<script>alert("label")</script> "quoted' & <img src=x onerror=alert(1)>"""
EXAMPLE = "Copper rose in London."
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def train(folder: Path, **settings: Any) -> None:
    """Save a model of four labels, one of them hostile."""
    texts, labels = [], []
    for k in range(12):
        verb = ("rose", "fell")[k % 2]
        texts += [f"copper {verb} {k}", f"wheat {verb} {k}", f"copper and wheat {verb} {k}"]
        labels += [["copper"], ["wheat"], ["copper", "wheat"]]
        if k < 4:
            texts += [f"tin {verb} {k}", f"gossip {verb} {k}"]
            labels += [["tin"], [EVIL]]
    LongTailClassifier(**settings).fit(texts, labels).save_pretrained(folder)


@contextmanager
def running(service: Service) -> Iterator[str]:
    """The address of a service."""
    with real_server(create_app(service)) as (_, port):
        yield f"http://127.0.0.1:{port}/"


def find_browser() -> str | None:
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


class Watched:
    """A page that records faults: errors, logs, dialogs, policy violations, foreign requests."""

    def __init__(self, browser: Any, address: str, refused: int = 0, **settings: Any) -> None:
        self.faults: list[str] = []
        self.refused: list[str] = []
        self.expected = refused
        self.page = page = browser.new_page(reduced_motion="reduce", **settings)
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(dialog.message) or dialog.dismiss())
        page.on("console", self._note)
        page.on("request", lambda request: self._check(request.url, address))
        page.add_init_script(
            "globalThis.violations = [];"
            "document.addEventListener('securitypolicyviolation', (event) =>"
            " violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"
        )
        page.goto(address)
        page.wait_for_selector("#model:enabled, #key-dialog[open]")

    def close(self) -> None:
        """Close the page; raises if it had faults."""
        if not self.page.is_closed():
            self.faults += self.page.evaluate("violations")
            self.page.close()
        assert self.faults == [], self.faults
        assert len(self.refused) == self.expected, self.refused

    def _note(self, message: Any) -> None:
        # The browser logs every response with status 400 or above.
        refused = message.text.startswith("Failed to load resource")
        (self.refused if refused else self.faults).append(message.text)

    def _check(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:")):
            self.faults.append(f"asked for {url}")
