"""Write docs/images/service.png: the page of `longtail serve` with the pointer on a label.

    python docs/make_service_image.py [--address URL] [--out FILE] [--width 1280] [--dark]

Without an address it trains a model on the synthetic newswire and serves it. Needs the extra `dev`
and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from longtail import LongTailClassifier, load_corpus

TARGET = Path(__file__).with_name("images") / "service.png"
PORT = 8765
EXAMPLES = (
    "The statistics office expects tariff talks with Keldim to end by May.",
    "Sable Partners sold its copper smelter at Port Lorne.",
)
# A story about sorghum and wheat that mentions rye.
TEXT = """\
MARLOW AND PIKE EXPECTS SORGHUM STOCKS TO STAY FIRM
Marlow and Pike said milo exports declined 9.5 pct in August. Silos at Caldera are 26.9 pct full. \
Rye was little changed. The growers' union reported wheat harvest above last year's level. It had \
sold its oats business in an earlier year."""
SHOWN, STRICTNESS = "sorghum", "-0.4"


@contextmanager
def service() -> Iterator[str]:
    """The address of a service with a model of the newswire."""
    with tempfile.TemporaryDirectory() as folder:
        run, examples = Path(folder, "newswire"), Path(folder, "examples.txt")
        classifier = LongTailClassifier("bag").fit(load_corpus("newswire")["train"])
        classifier.save_pretrained(run)
        examples.write_text("\n".join(EXAMPLES), "utf-8")
        command = [sys.executable, "-m", "longtail", "serve", str(run), "--port", str(PORT)]
        process = subprocess.Popen([*command, "--examples", str(examples)])
        address = f"http://127.0.0.1:{PORT}/"
        try:
            while not answers(address) and process.poll() is None:
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait()


def answers(address: str) -> bool:
    try:
        with urlopen(address):
            return True
    except URLError:
        return False


def draw(address: str, out: Path, width: int, dark: bool) -> None:
    """Photograph the page."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": width, "height": 830},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        page.goto(address)
        page.fill("#text", TEXT)
        page.wait_for_selector("#labels .row")
        page.fill("#strictness", STRICTNESS)
        page.locator("#strictness").blur()
        page.get_by_role("button", name=SHOWN, exact=True).hover()
        page.wait_for_selector("#reasons mark")
        page.screenshot(path=out)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="of a service that runs")
    parser.add_argument("--out", type=Path, default=TARGET)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    if args.address:
        draw(args.address, args.out, args.width, args.dark)
    else:
        with service() as address:
            draw(address, args.out, args.width, args.dark)


if __name__ == "__main__":
    main()
