"""The bar at the top of every view: runs, sentence, language and colours survive every change of
the others, a reload and the browser's buttons."""

import io
import os
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

import regard.studio

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect
PAGE = Path(regard.studio.__file__).parent / "page"
VIEWS = ["runs", "try", "look", "steps", "beam", "errors", "compare"]
TYPED = "The <b>cat</b> 고양이 sleeps."


def in_view(page: Any, view: str) -> None:
    page.locator(f"nav a[aria-current=page][data-view={view}]").wait_for()
    page.wait_for_selector("main[aria-busy=false]")


def to_view(page: Any, view: str) -> None:
    page.locator(f"nav a[data-view={view}]").click()
    in_view(page, view)


def has_bar(page: Any, run: str, text: str) -> None:
    expect(page.get_by_role("combobox", name="Run")).to_have_value(run)
    expect(page.get_by_role("textbox", name="Input")).to_have_value(text)


EVERY_PAIR = pytest.param(
    [*combinations(VIEWS, 2)],
    id="all",
    marks=pytest.mark.skipif("REGARD_EVERY_PAIR" not in os.environ, reason="takes a minute"),
)


@pytest.mark.parametrize("pairs", [pytest.param([*pairwise(VIEWS)], id="neighbours"), EVERY_PAIR])
def test_the_sentence_survives_pairs_of_views(page: Any, pairs: list[tuple[str, str]]) -> None:
    """Typed, not sent; and the browser's button goes back with it."""
    page.open("#/try?run=tiny")
    page.get_by_role("textbox", name="Input").fill(TYPED)
    for one, other in pairs:
        for view in (one, other, one):
            to_view(page, view)
            has_bar(page, "tiny", TYPED)
    page.go_back()
    in_view(page, other)
    has_bar(page, "tiny", TYPED)
    page.reload()
    in_view(page, other)
    has_bar(page, "tiny", TYPED)


@pytest.mark.parametrize("view", VIEWS)
def test_the_sentence_survives_runs_languages_and_colours(page: Any, view: str) -> None:
    page.open(f"#/{view}?run=phrases&text=a b c")
    page.get_by_role("combobox", name="Run").select_option("tiny")
    page.wait_for_url("**run=tiny**")
    page.wait_for_selector("main[aria-busy=false]")
    has_bar(page, "tiny", "a b c")
    page.get_by_role("textbox", name="Input").fill("b c")
    for theme in ("Dark", "Light", "System"):
        page.get_by_role("radio", name=theme).click()
        page.wait_for_selector("main[aria-busy=false]")
        has_bar(page, "tiny", "b c")
    page.get_by_role("radio", name="한국어").click()
    page.wait_for_selector("html[lang=ko]")
    expect(page.get_by_role("textbox", name="입력")).to_have_value("b c")
    assert "lang=ko" in page.url
    page.reload()
    in_view(page, view)
    assert page.locator("html").get_attribute("lang") == "ko"
    expect(page.get_by_role("combobox", name="실행")).to_have_value("tiny")
    page.go_back()
    page.wait_for_selector("html[lang=en]")


def test_a_run_of_another_task_keeps_the_sentence_until_it_is_changed(page: Any) -> None:
    asked = "Where is Ben?", "Ben is in Rome. He likes cats."
    page.open("#/try?run=portraits")
    page.get_by_role("textbox", name="Question").fill(asked[0])
    page.get_by_role("textbox", name="Text that has the answer").fill(asked[1])
    for run in ("phrases", "shapes", "stories", "portraits"):
        page.get_by_role("combobox", name="Run").select_option(run)
        page.wait_for_url(f"**run={run}&**")
        page.wait_for_selector("main[aria-busy=false]")
    fields = page.locator(".sentence textarea")
    assert [one.input_value() for one in fields.all()] == list(asked)
    page.faults.clear()  # the sentence is no input of every run: the browser reports the 422


def test_runs_that_are_compared_stay_in_the_bar(page: Any, root: Path) -> None:
    page.open("#/look?run=tiny&text=a b")
    page.get_by_role("combobox", name="Add to the comparison").select_option("phrases")
    page.get_by_role("button", name="Compare without phrases").wait_for()
    to_view(page, "compare")
    expect(page.locator(".panel h3")).to_have_text(["tiny", "phrases"])
    page.locator(".chip a").click()
    page.wait_for_url("**run=phrases**")
    expect(page.locator(".panel h3")).to_have_text(["phrases", "tiny"])
    page.get_by_role("button", name="Compare without tiny").click()
    expect(page.locator(".chip")).to_have_count(0)


def test_an_image_is_in_the_address_by_its_key(page: Any) -> None:
    from PIL import Image

    Image.new("RGB", (20, 20), "red").save(red := io.BytesIO(), "PNG")
    page.open("#/look?run=shapes")
    page.locator("input[type=file]").set_input_files(
        [{"name": "r.png", "mimeType": "image/png", "buffer": red.getvalue()}]
    )
    page.wait_for_url(re.compile(r"image=\w{16}"))
    to_view(page, "try")
    page.reload()
    in_view(page, "try")
    expect(page.get_by_role("img", name="r.png")).to_be_visible()
    page.get_by_role("combobox", name="Run").select_option("tiny")
    page.wait_for_url("**run=tiny**")
    page.get_by_role("combobox", name="Run").select_option("shapes")
    expect(page.get_by_role("img", name="r.png")).to_be_visible()


def test_the_form_of_a_training_keeps_what_was_typed(page: Any) -> None:
    page.open("#/runs?new=1")
    page.get_by_label("Name of the run").fill("mine")
    page.get_by_text("More settings").click()
    page.get_by_label("training.seed").fill("77")
    page.get_by_role("radio", name="Dark").click()
    page.wait_for_selector("main[aria-busy=false]")
    page.get_by_role("radio", name="한국어").click()
    page.wait_for_selector("html[lang=ko]")
    to_view(page, "try")
    page.go_back()
    in_view(page, "runs")
    expect(page.get_by_label("실행 이름")).to_have_value("mine")
    expect(page.get_by_label("training.seed")).to_have_value("77")


def test_presenting_shows_the_figure_alone(page: Any) -> None:
    page.open("#/look?run=tiny&text=a b c")
    told = page.locator("output.told").inner_text()
    page.get_by_role("button", name="Present").click()
    expect(page.locator("header")).to_be_hidden()
    expect(page.locator(".rail")).to_be_hidden()
    assert page.locator(".stage").bounding_box()["width"] == page.evaluate("innerWidth")
    page.keyboard.press("ArrowRight")
    expect(page.locator("output.told")).not_to_have_text(told)
    page.keyboard.press("Escape")
    expect(page.locator("header")).to_be_visible()


def test_a_tip_goes_with_its_view(page: Any) -> None:
    page.open("#/look?run=tiny&text=a b c")
    canvas = page.locator(".map canvas").first
    canvas.hover(position={"x": canvas.bounding_box()["width"] - 20, "y": 60})
    expect(page.locator("#tip")).to_be_visible()
    page.evaluate("location.hash = '#/runs?all=1'")
    in_view(page, "runs")
    expect(page.locator("#tip")).to_be_hidden()


def test_the_colours_of_texts_have_contrast_in_both_themes() -> None:
    """4.5:1 on each ground (WCAG 2), and the four that mean something differ for readers who do not
    see red or green (Viénot 1999)."""
    themes = re.findall(r":root \{(.*?)\}", (PAGE / "design.css").read_text("utf-8"), re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        colours = {
            name: tuple(int(code[n : n + 2], 16) for n in (0, 2, 4))
            for name, code in re.findall(r"--(\w+): #(\w{6})", theme)
        }
        grounds = [colours[name] for name in ("ground", "panel", "raised")]
        meanings = ["source", "target", "context", "accent"]
        for name in ["text", "muted", "good", "bad", *meanings]:
            assert min(contrast(colours[name], ground) for ground in grounds) >= 4.5, name
        for name, share in (("accent", 0.55), ("context", 0.38)):  # the strongest shades of tokens
            shade = mixed(colours["ground"], colours[name], share)
            assert contrast(colours["text"], shade) >= 4.5, name
        for one, other in combinations(meanings, 2):
            assert distance(colours[one], colours[other]) > 20, (one, other)


def mixed(ground: tuple[int, ...], colour: tuple[int, ...], share: float) -> tuple[int, ...]:
    return tuple(round(g + share * (c - g)) for g, c in zip(ground, colour, strict=True))


def linear(colour: tuple[int, ...]) -> list[float]:
    shares = [value / 255 for value in colour]
    return [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    weights = (0.2126, 0.7152, 0.0722)
    low, high = sorted(
        sum(w * c for w, c in zip(weights, linear(colour), strict=True)) + 0.05
        for colour in (one, other)
    )
    return high / low


def distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """How far apart two colours are for a reader without red cones, of 255 in each channel."""

    def seen(colour: tuple[int, ...]) -> list[float]:
        red, green, blue = linear(colour)
        yellow = 0.1124 * red + 0.8876 * green
        rest = 0.0040 * red - 0.0040 * green + blue
        return [255 * max(0.0, value) ** (1 / 2.2) for value in (yellow, yellow, rest)]

    return max(abs(a - b) for a, b in zip(seen(one), seen(other), strict=True))
