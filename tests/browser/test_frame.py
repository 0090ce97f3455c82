"""The frame of the studio: every view opens, in both languages and colours, by keyboard and on a
phone."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import regard.studio
from page_checks import CLIPPED, OVERLAPPING
from regard.models import MODELS
from regard.tasks import TASKS

pytestmark = pytest.mark.browser
PAGE = Path(regard.studio.__file__).parent / "page"
VIEWS = ["start", "runs", "model", "try", "look", "steps", "beam", "errors", "compare", "course"]


def test_the_views_use_the_texts_of_the_catalogue() -> None:
    """A text without Korean is shown in English (scripts/untranslated lists it); one that is
    translated has the same values."""
    catalogue = (PAGE / "text.js").read_text(encoding="utf-8")
    entry = re.compile(r'^  (\w+): \{ en: "(.+?)"(?:, ko: "(.+)")? \},$', re.MULTILINE)
    entries = entry.findall(catalogue)
    lines = catalogue.partition("export const TEXTS = {\n")[2].partition("\n};")[0].splitlines()
    assert len(entries) == len(lines) == len({key for key, _, _ in entries})
    for key, english, korean in entries:
        if korean:
            assert {*re.findall(r"\{\w+\}", english)} == {*re.findall(r"\{\w+\}", korean)}, key
    keys = {key for key, _, _ in entries}
    used, begun = set[str](), set[str]()
    for file in PAGE.rglob("*.js"):
        text = file.read_text(encoding="utf-8")
        used |= set(re.findall(r'\bt\("(\w+)"', text))
        begun |= set(re.findall(r"\bt\(`(\w+)\$\{", text))
        assert ".innerHTML" not in text
    assert used <= keys
    assert {f"task_{task}" for task in TASKS} <= keys, "every task has its name in both languages"
    assert {f"start_task_{task}" for task in TASKS} <= keys
    assert {f"model_{model}" for model in MODELS} <= keys
    assert not {key for key in keys - used if not key.startswith(tuple(begun))}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_and_is_accessible(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for view in VIEWS:
        page.open(f"#/{view}")
        assert page.get_by_role("heading", level=1).count() == 1
        assert page.locator("nav [aria-current=page]").count() == 1
        assert page.violations() == [], view


@pytest.mark.parametrize("run", ["phrases", "reviews", "stories", "shapes"])
def test_texts_are_whole_and_apart(page: Any, run: str) -> None:
    for view in ("try", "look", "steps", "beam"):
        page.open(f"#/{view}?run={run}&stage=6&lang=ko")
        for width, height in ((1280, 800), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate("() => new Promise(requestAnimationFrame)")
            assert page.evaluate(CLIPPED) == [], (view, width)
            assert page.evaluate(OVERLAPPING) == [], (view, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (view, width)


@pytest.mark.skipif("REGARD_SLOW" not in os.environ, reason="takes three minutes")
@pytest.mark.parametrize(
    "run", ["tiny", "phrases", "reviews", "names", "portraits", "stories", "shapes"]
)
def test_every_view_of_every_kind_of_run(page: Any, run: str) -> None:
    """Whole, apart and accessible, on a wide window in English and on a phone in Korean; the fixture
    looks at the console and at requests."""
    wide = {"width": 1440, "height": 900}, "light", "en"
    phone = {"width": 390, "height": 844}, "dark", "ko"
    for view in VIEWS:
        for size, scheme, language in (wide, phone):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            page.open(f"#/{view}?run={run}&lang={language}")
            page.wait_for_load_state("networkidle")
            assert page.evaluate(CLIPPED) == [], (view, language)
            assert page.evaluate(OVERLAPPING) == [], (view, language)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], view
            assert page.violations() == [], (view, language)


@pytest.mark.options(locale="ko-KR", viewport={"width": 360, "height": 640})
def test_korean_on_a_phone_and_the_switches(page: Any) -> None:
    page.open("#/runs")
    assert page.get_by_role("heading", level=1).inner_text() == "실행 목록"
    for view in VIEWS:
        page.open(
            f"#/{view}?run=portraits"
        )  # whose examples are long, and whose inputs have two parts
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    page.get_by_role("button", name="언어, 화면 색, 비교").click()  # folded on a phone
    page.get_by_role("radio", name="한국어").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("html[lang=en]")
    page.wait_for_selector("main[aria-busy=false]")  # the bar is drawn again, and keeps the focus
    assert page.get_by_role("radio", name="English").evaluate(
        "one => one === document.activeElement"
    )
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("radio", name="Dark").click()
    assert page.evaluate(ground) != light
    page.reload()
    page.wait_for_selector("main[aria-busy=false]")
    assert page.evaluate(ground) != light
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_run_that_is_damaged_or_not_there_is_named(page: Any, root: Path) -> None:
    """It hides no other, and no other takes its place."""
    broken = shutil.copytree(root / "tiny", root / "broken")
    weights = next(broken.glob("checkpoints/*/model.safetensors"))
    lost = shutil.copytree(root / "tiny", root / "lost")
    for tokenizer in lost.glob("tokenizer*.json"):
        tokenizer.unlink()
    weights.write_bytes(weights.read_bytes()[:1000])
    try:
        reasons = {
            "broken": "model.safetensors: cannot be read",
            "nothing": "there is no run of this name",
        }
        for run, reason in reasons.items():
            page.open(f"#/look?run={run}&text=a b")
            page.get_by_role("heading", name=f"The run {run} cannot be used").wait_for()
            page.get_by_role("link", name="See why").click()
            page.get_by_role("alert").filter(has_text=reason).wait_for()
        page.open("#/try?run=lost")
        page.get_by_role("alert").filter(has_text="there is no such tokenizer file").wait_for()
        page.get_by_role("combobox", name="Run").select_option("tiny")
        page.get_by_role("button", name="Answer").wait_for()
        page.open("#/compare?runs=tiny,phrases")
        page.get_by_role("checkbox", name="tiny (Bahdanau attention)").wait_for()
        assert page.get_by_role("checkbox", name="lost").count() == 0
    finally:
        shutil.rmtree(broken)
        shutil.rmtree(lost)
    page.faults.clear()  # the browser reports the 4xx


def test_a_token_is_asked_for_and_every_view_has_an_empty_state(
    browser: Any, empty_studio: str
) -> None:
    page = browser.new_context(locale="en-US").new_page()
    page.goto(empty_studio)
    page.get_by_label("Token").fill("열쇠" * 8)
    page.keyboard.press("Enter")
    for view in VIEWS:
        page.goto(f"{empty_studio}/#/{view}")
        page.locator(f"nav a[aria-current=page][data-view={view}]").wait_for()
        if view != "course":  # which needs no run
            page.locator(f".view-{view} .empty h2").wait_for(timeout=10_000)
    page.goto(f"{empty_studio}/?again#/try?token=wrong")
    page.get_by_label("Token").wait_for()
    assert "wrong" not in page.url
