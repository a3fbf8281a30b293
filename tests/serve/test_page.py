"""The page of the service in a browser: its features, and hostile texts and labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="no browser: pip install 'longtail[dev]'")

from playwright.sync_api import expect, sync_playwright

from longtail.serve.settings import Limits, Service

from .browser import EVIL, EXAMPLE, Watched, find_browser, running, train

TEXT = "🐎 Copper rose, 🌾 wheat fell."
KEY = "a-key"

MINUS = "\N{MINUS SIGN}"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = find_browser()
    if path is None:
        pytest.skip("no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Path:
    """Runs: `news` with probabilities, `margins` without."""
    folder = tmp_path_factory.mktemp("page")
    train(folder / "news", model="bag")
    train(folder / "margins", model="svm", thresholds="grid")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    runs = {"news": folder / "news", "margins": folder / "margins"}
    limits = Limits(max_text_length=500)
    service = Service(runs, limits, examples=(EXAMPLE, EVIL))
    with running(service) as address:
        yield address


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Open]:
    """Opens pages; a fault of any of them fails the test."""
    opened: list[Watched] = []

    def start(at: str = address, refused: int = 0, **settings: Any) -> Any:
        opened.append(Watched(browser, at, refused, **settings))
        return opened[-1].page

    yield start
    for watched in opened:
        watched.close()


def row(page: Any, label: str) -> Any:
    return page.locator("#labels .row").filter(
        has=page.get_by_role("button", name=label, exact=True)
    )


def predicted(page: Any) -> set[str]:
    """The labels that are ticked."""
    return set(page.locator("#labels .row.ticked .name").all_text_contents())


def write(page: Any, text: str) -> None:
    """Type a text, and wait for its labels."""
    with page.expect_response("**/predict"):
        page.fill("#text", text)
    page.wait_for_selector("#labels .row")


def marked(page: Any, kind: str) -> list[str]:
    return page.locator(f"#marks mark.{kind}").all_text_contents()


def test_labels_follow_the_typing(open_page: Open) -> None:
    page = open_page()
    with page.expect_response("**/predict"):
        page.locator("#text").press_sequentially(TEXT)
    page.wait_for_selector("#labels .row.ticked")
    assert predicted(page) == {"copper", "wheat"}
    assert page.locator("#labels-count").text_content() == "2 predicted"
    assert row(page, "copper").locator(".badge").text_content() == "medium"
    bar = row(page, "copper").locator(".bar")
    assert "threshold" in bar.get_attribute("aria-label")
    widths = bar.evaluate(
        "bar => [bar.querySelector('.threshold').offsetLeft,"
        " bar.querySelector('.fill').offsetWidth, bar.offsetWidth]"
    )
    assert 0 < widths[0] < widths[1] <= widths[2]


def test_predicting_by_button(open_page: Open) -> None:
    page = open_page()
    page.uncheck("#live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.fill("#text", TEXT)
    page.wait_for_timeout(500)
    assert asked == []
    page.click("#predict")
    page.wait_for_selector("#labels .row.ticked")
    page.fill("#text", "wheat")
    assert "stale" in page.locator("#labels").get_attribute("class")
    page.click("#save")
    assert "text has changed" in page.locator("#save-message").text_content()
    page.press("#text", "Control+Enter")
    page.wait_for_selector("#labels:not(.stale)")
    assert predicted(page) == {"wheat"}


def test_pointing_at_a_label_marks_its_words(open_page: Open) -> None:
    page = open_page()
    write(page, TEXT)
    row(page, "copper").hover()
    page.wait_for_selector("#marks mark")
    # An emoji is one code point but two UTF-16 units: a mix-up would shift the marks.
    assert "Copper" in marked(page, "for")
    assert "wheat" in marked(page, "against")
    assert page.locator("#marks").text_content() == TEXT + "\n"
    lines = page.locator("#reasons .reasons-line").all_text_contents()
    assert lines[0].startswith("forCopper +") and f"wheat {MINUS}" in lines[1]
    # Distinguished by underlines, not by colour alone.
    styles = page.locator("#marks mark").evaluate_all(
        "marks => marks.map(m => [m.className, getComputedStyle(m).textDecorationStyle])"
    )
    assert {tuple(style) for style in styles} == {("for", "solid"), ("against", "wavy")}
    row(page, "wheat").hover()
    expect(page.locator("#marks mark.for")).to_have_text("wheat")
    page.hover("h1")
    assert marked(page, "for") == []


@pytest.mark.parametrize("width", [360, 880, 1280])
def test_rows_stay_under_the_pointer(open_page: Open, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 740})
    write(page, TEXT)
    for label in ("copper", "wheat"):
        one = row(page, label)
        page.hover("h1")
        one.evaluate("row => row.scrollIntoView({ block: 'center' })")
        before = one.bounding_box()
        # Near its top: a row that moves up would leave the pointer.
        one.hover(position={"x": 5, "y": 3})
        page.wait_for_selector("#reasons .reasons-line")
        expect(page.locator("#reasons strong")).to_have_text(label)
        assert one.bounding_box() == before
    # At the bottom of the screen, where the words appear.
    page.hover("h1")
    one.evaluate("row => row.scrollIntoView({ block: 'end' })")
    box = one.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] / 2)
    page.wait_for_selector("#reasons .reasons-line")
    for _ in range(10):
        page.wait_for_timeout(50)
        assert page.locator("#labels .active").count() == 1


def test_a_model_without_reasons_gets_one_request_per_label(open_page: Open) -> None:
    page = open_page(refused=2)
    write(page, TEXT)
    asked: list[Any] = []

    def refuse(route: Any) -> None:
        asked.append(route)
        route.fulfill(status=422, json={"error": "none of this model."})

    page.route("**/predict", refuse)
    for label in ("copper", "wheat", "copper"):
        row(page, label).hover()
        expect(page.locator("#reasons strong")).to_have_text(label)
        expect(page.locator("#reasons p").last).to_have_text("None of this model.")
    assert len(asked) == 2 and page.locator("#reasons .error").count() == 0


def test_the_marks_lie_on_the_words(open_page: Open) -> None:
    page = open_page()
    text = f"Gossip\n\n{'a long line of the market ' * 9}\n\tCopper"
    write(page, text)
    row(page, "copper").hover()
    page.wait_for_selector("#marks mark")
    boxes = page.evaluate(
        "['text', 'marks'].map(id => document.getElementById(id).getBoundingClientRect().toJSON())"
    )
    assert boxes[0] == boxes[1]
    scrolled = page.evaluate("[text.scrollHeight, text.clientHeight]")
    assert scrolled[0] == scrolled[1]


def test_strictness_moves_the_thresholds(open_page: Open) -> None:
    page = open_page()
    write(page, TEXT)
    slider = page.locator("#strictness")
    slider.fill("5")
    assert "vanish" in page.locator("#strictness-effect").text_content()
    assert predicted(page) == set()
    assert row(page, "copper").locator(".change").text_content() == f"{MINUS} vanishes"
    slider.fill("-5")
    effect = page.locator("#strictness-effect").text_content()
    assert "appear" in effect and "vanish" not in effect
    assert EVIL[:29] + "…" in effect and EVIL not in effect
    assert {"copper", "wheat"} < predicted(page)
    page.click("#strictness-reset")
    assert predicted(page) == {"copper", "wheat"}
    page.fill("#top-k", "1")
    page.press("#top-k", "Tab")
    # The best label, and the other predicted one.
    assert page.locator("#labels .row").count() == 2


def test_a_correction_is_saved(open_page: Open, folder: Path) -> None:
    page = open_page()
    write(page, TEXT)
    row(page, "wheat").get_by_role("checkbox").uncheck()
    assert row(page, "wheat").locator(".change").text_content() == f"{MINUS} removed by you"
    page.locator("#search").press_sequentially("TI")
    page.wait_for_selector("#matches [role=option]")
    options = page.locator("#matches [role=option]").all_text_contents()
    assert options[0].startswith("tin tail") and "4 training documents" in options[0]
    assert "precision" in options[0] or "no held-out scores" in options[0]
    page.keyboard.press("Enter")
    page.locator("#search").press_sequentially("silver & <gold>")
    page.wait_for_selector("#matches .new")
    page.keyboard.press("Enter")
    assert page.locator("#save-message").text_content() == "silver & <gold> is added."
    page.click("#save")
    expect(page.locator("#save-message")).to_contain_text("Stored")
    message = page.locator("#save-message").text_content()
    assert message.startswith("Stored with 3 labels. New to this model: silver & <gold>.")
    page.dblclick("#save")
    expect(page.locator("#save-message")).to_have_text("This correction is stored already.")
    (line,) = (folder / "corrections-news.jsonl").read_text("utf-8").splitlines()
    stored = json.loads(line)
    assert stored["text"] == TEXT
    assert set(stored["labels"]) == {"copper", "tin", "silver & <gold>"}
    assert set(stored["predicted"]) == {"copper", "wheat"}
    # Ticks stay when the text is predicted again, and are cleared when it changes.
    with page.expect_response("**/predict"):
        page.click("#predict")
    assert predicted(page) == {"copper", "tin", "silver & <gold>"}
    write(page, TEXT + " ")
    page.wait_for_selector("#labels:not(.stale)")
    assert predicted(page) == {"copper", "wheat"}


def test_hostile_texts_and_labels_are_only_text(open_page: Open, folder: Path) -> None:
    page = open_page()
    text = f"gossip {EVIL} gossip"
    write(page, text)
    assert EVIL in predicted(page)
    row(page, EVIL).hover()
    page.wait_for_selector("#marks mark")
    assert page.locator("#marks").text_content() == text + "\n"
    page.locator("#search").press_sequentially("<script>")
    page.wait_for_selector("#matches [role=option]")
    page.keyboard.press("Escape")
    assert page.locator("#matches").is_hidden()
    page.locator("#example-list button").nth(1).click()
    assert page.locator("#text").input_value() == EVIL
    page.click("#card summary")
    assert page.locator("#card-body").inner_text()
    assert page.locator("main script, main img, main iframe").count() == 0


def test_a_hostile_card_keeps_only_its_text(browser: Any, address: str) -> None:
    page = browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    page.goto(address)
    page.wait_for_selector("#held-out > *")  # the card of the model is shown by now
    page.evaluate(
        "import('/static/card.js').then(({ showCard }) => showCard({ held_out: {}, card_html:"
        ' \'<p onclick="alert(1)">safe<script>alert(2)</script>'
        '<img src=x onerror=alert(3)><a href="javascript:alert(4)">x</a></p>\' }))'
    )
    card = page.locator("#card-body")
    assert card.inner_html() == "<p>safe<a>x</a></p>"
    card.locator("p").dispatch_event("click")
    card.locator("a").dispatch_event("click")
    assert dialogs == []
    page.close()


def test_keyboard_only(open_page: Open, folder: Path) -> None:
    page = open_page()

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                ring = "({ outlineStyle, outlineWidth }) => [outlineStyle, outlineWidth]"
                element = "document.activeElement.closest('.editor') ?? document.activeElement"
                style = page.evaluate(f"({ring})(getComputedStyle({element}))")
                assert style == ["solid", "2px"], (selector, style)
                return
        raise AssertionError(f"no Tab leads to {selector}")

    tab_to(".skip")
    page.keyboard.press("Enter")
    tab_to("#text")
    with page.expect_response("**/predict"):
        page.keyboard.type("copper rose")
    page.wait_for_selector("#labels .row.ticked")
    tab_to("#strictness")
    page.keyboard.press("ArrowRight")
    assert page.locator("#strictness-value").text_content() == "stricter by 0.1"
    page.keyboard.press("ArrowLeft")
    tab_to("#labels input")
    page.wait_for_selector("#marks mark.for")
    assert marked(page, "for")[0] == "copper"
    page.keyboard.press("Space")
    assert predicted(page) == set()
    tab_to("#search")
    page.keyboard.type("w")
    page.wait_for_selector("#matches [role=option]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.locator("#matches [aria-selected=true]").count() == 1
    page.keyboard.press("Enter")
    assert predicted(page) == {"wheat"}
    tab_to("#save")
    page.keyboard.press("Enter")
    expect(page.locator("#save-message")).to_contain_text("Stored")


def test_errors_are_shown_where_they_occur(open_page: Open) -> None:
    page = open_page(refused=2)
    write(page, TEXT)
    page.fill("#text", "copper " * 100)
    expect(page.locator("#predict-message.error")).to_contain_text("has 700 characters")
    page.fill("#text", "copper " * 60)
    page.press("#text", "End")
    with page.expect_response("**/predict"):
        page.keyboard.insert_text("copper " * 60)
    expect(page.locator("#predict-message.error")).to_contain_text("Expected texts of at most 500")
    assert page.locator("#labels .row").count() == 0

    page.route("**/predict", lambda route: route.fulfill(status=503, json={"error": "Busy."}))
    page.fill("#text", "copper")
    expect(page.locator("#predict-message")).to_contain_text("Busy.")
    page.unroute("**/predict")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#labels .row.ticked")
    assert page.locator("#predict-message").text_content() == ""


def test_a_file_is_read_or_refused(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    (tmp_path / "story.txt").write_text("\ufeffwheat fell\r\nbefore the harvest", "utf-8")
    (tmp_path / "latin.txt").write_bytes("blé".encode("latin-1"))
    page.set_input_files("#file", tmp_path / "story.txt")
    page.wait_for_selector("#labels .row.ticked")
    assert page.locator("#text").input_value() == "wheat fell\nbefore the harvest"
    page.set_input_files("#file", tmp_path / "latin.txt")
    page.wait_for_selector("#predict-message.error")
    assert (
        "latin.txt is not a text file in UTF-8" in page.locator("#predict-message").text_content()
    )
    assert page.locator("#text").input_value() == "wheat fell\nbefore the harvest"
    drop = """name => { const data = new DataTransfer();
        data.items.add(new File(['copper'], name));
        document.body.dispatchEvent(new DragEvent(
            'drop', {dataTransfer: data, bubbles: true})); }"""
    page.evaluate(drop, "dropped.txt")
    expect(page.locator("#text")).to_have_value("copper")


def test_margins_show_scores(open_page: Open) -> None:
    page = open_page()
    page.select_option("#model", "margins")
    expect(page.locator("#strictness")).to_have_attribute("max", "2")
    write(page, TEXT)
    values = page.locator("#labels .value").all_text_contents()
    assert values and not any("%" in value for value in values)
    assert "%" not in row(page, "copper").locator(".bar").get_attribute("aria-label")
    page.fill("#strictness", "2")
    assert predicted(page) == set()


def test_the_page_asks_for_a_key(open_page: Open, folder: Path) -> None:
    service = Service({"news": folder / "news"}, api_key=KEY)
    with running(service) as address:
        page = open_page(address, refused=3)
        page.wait_for_selector("#key-dialog[open]")
        page.keyboard.press("Escape")
        expect(page.locator("#model-message")).to_contain_text("needs a key")
        page.get_by_role("button", name="Try again").click()
        page.wait_for_selector("#key-dialog[open]")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-message.error")
        page.keyboard.type(KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#model:enabled")
        write(page, TEXT)
        assert predicted(page) == {"copper", "wheat"}
        kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
        assert kept == [0, 0, ""]
        page.close()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")], ids=str
)
def test_accessibility(open_page: Open, width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(viewport={"width": width, "height": 740}, color_scheme=scheme)
    grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == grounds[scheme]
    write(page, f"{TEXT} {'gossip' * 30}")
    page.fill("#strictness", "-5")
    row(page, "copper").get_by_role("button").focus()
    page.wait_for_selector("#reasons mark")
    page.click("#card summary")
    page.locator("#search").press_sequentially("co")
    page.wait_for_selector("#matches [role=option]")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    results = Axe().run(page, options={"resultTypes": ["violations"]})
    assert results.violations_count == 0, results.generate_report()
    page.keyboard.press("Escape")
    row(page, "copper").get_by_role("button").focus()
    page.wait_for_selector("#reasons mark")
    results = Axe().run(page, context="#reasons")
    assert results.violations_count == 0, results.generate_report()
