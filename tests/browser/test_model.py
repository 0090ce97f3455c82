"""The view Model: the drawing of every kind of run, its film and its panel."""

from typing import Any

import pytest

pytestmark = pytest.mark.browser
RUNS = {
    "tiny": "a b c",
    "phrases": "How are you?",
    "reviews": "재미있는 영화",
    "names": "Mary met John .",
    "stories": "",
    "shapes": "",
}
CLIPPED = """() => [...document.querySelectorAll('.moments button, .diagram-panel :is(h2, h3, p, dt)')]
  .filter(one => getComputedStyle(one).textOverflow !== 'ellipsis' && getComputedStyle(one).overflowX !== 'auto'
    && one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"""
OUTSIDE = """() => {
  const view = document.querySelector('svg.diagram').getAttribute('viewBox');
  const [x, y, width, height] = view.split(' ').map(Number);
  const isOut = box => box.x < x - 1 || box.y < y - 1 || box.x + box.width > width + 1
    || box.y + box.height > height + 1;
  const texts = [...document.querySelectorAll('svg.diagram text')];
  return texts.filter(one => one.getBBox().width && isOut(one.getBBox())).map(one => one.textContent);
}"""


def opened(page: Any, run: str, view: str = "") -> None:
    text = RUNS[run]
    page.open(f"#/model?run={run}{f'&text={text}' if text else ''}{view}")
    page.locator("svg.diagram").wait_for()


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "ko")])
def test_every_kind_of_run_is_drawn(page: Any, scheme: str, language: str) -> None:
    """No text is cut off or outside the drawing, and axe finds nothing, at both ends of the film."""
    page.emulate_media(color_scheme=scheme)
    for run in RUNS:
        opened(page, run, f"&lang={language}")
        assert page.evaluate(CLIPPED) == [], run
        assert page.evaluate(OUTSIDE) == [], run
        assert page.violations() == [], run
    page.locator(".moment").first.click()
    assert page.violations() == []


def test_the_film_writes_word_by_word(page: Any) -> None:
    """What is not computed yet is an empty outline, and the words to be written are not told."""
    opened(page, "tiny", "&moment=0")
    words = page.locator(".moment.target")
    boxes = page.locator("svg.diagram .box.target")
    count = words.count()
    assert count > 0
    assert page.locator(".moment.target .unwritten").count() == count
    assert page.locator("svg.diagram .box.target.later").count() == boxes.count()
    assert page.locator("svg.diagram .look.drawn").count() == 0
    film = page.get_by_role("group", name="Moments of the film")
    film.focus()
    for _ in range(page.locator(".moment").count() - 1):
        page.keyboard.press("ArrowRight")
    assert page.locator(".moment.target .unwritten").count() == 0
    assert page.locator("svg.diagram .later").count() == 0
    assert page.locator("svg.diagram .look.drawn").count() > 0
    assert "moment" not in page.url
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**moment=**")
    page.reload()
    page.locator("svg.diagram .later").first.wait_for(state="attached")


def test_a_box_opens_its_equation_its_numbers_and_its_code(page: Any) -> None:
    opened(page, "tiny")
    page.locator("svg.diagram .box[data-key=annotations-1]").click()
    panel = page.locator(".diagram-panel")
    panel.get_by_role("heading", name="The annotations: the states of the encoder").wait_for()
    assert panel.locator("math").count() == 1
    assert "16 numbers" in panel.inner_text() or "32 numbers" in panel.inner_text()
    assert "layers/recurrence.py" in panel.locator("details").inner_text()
    context = page.locator("svg.diagram .box[data-key=c-0]")
    context.focus()
    page.keyboard.press("Enter")
    symbol = panel.locator("[data-symbol=alpha]").first
    symbol.hover()
    assert panel.locator(".code-line.lit").count() > 0
    panel.locator("[data-symbol=c]").first.hover()
    chosen = page.locator("svg.diagram .box.chosen")
    assert {one.get_attribute("data-symbol") for one in chosen.all()} == {"c"}
    opened(page, "phrases")
    page.locator("svg.diagram .box[data-key=in-encoder-self_attention]").click()
    assert panel.locator("mfrac, msqrt").count() >= 2
    assert "layers/attention.py" in panel.locator("details").inner_text()


def test_pointing_at_a_state_draws_its_attention(page: Any) -> None:
    opened(page, "phrases")
    box = page.locator("svg.diagram .box[data-key=encoder-2-1]")
    box.hover()
    drawn = page.locator("svg.diagram .look.drawn")
    assert {one.get_attribute("data-query") for one in drawn.all()} == {"encoder-2-1"}


@pytest.mark.options(locale="ko-KR", viewport={"width": 360, "height": 640})
def test_on_a_phone_the_drawing_scrolls_inside(page: Any) -> None:
    for run in RUNS:
        opened(page, run)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, run
