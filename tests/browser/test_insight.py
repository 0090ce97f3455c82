"""The views Step by step, Beam, Errors and Compare: their numbers are the server's, and what a
reader does counts."""

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.views.show import EQUATIONS

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect

INPUTS = {
    "tiny": "a b c",
    "phrases": "The cat sleeps.",
    "reviews": "정말 좋은 영화",
    "stories": "Mary went to the garden. John walked to the kitchen. Where is Mary?",
}
SAME_EQUATIONS = """async ([run, input]) => {
  const { softmax, factors, weightedSum } = await import("/page/equations.js");
  const ask = scores => fetch(`/runs/${run}/steps`, { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ input, scores }) }).then(answer => answer.json());
  const found = await ask(null), changed = [null, ...found.scores.slice(1)];
  if (changed.length > 2) changed[1] = 1.5;
  const then = await ask(changed), values = Object.values(found.vectors).at(-1);
  const factor = factors(found.scores, found.weights);
  const weights = softmax(changed).map((weight, n) => weight * factor[n]);
  const own = [softmax(found.scores), weightedSum(found.weights, values), weights, weightedSum(weights, values)];
  return own.map((list, n) => [list, [found.weights, found.context, then.weights, then.context][n]]);
}"""


@pytest.fixture(scope="module", autouse=True)
def _another(root: Path) -> Iterator[None]:
    """A second run of the same data, to compare with."""
    folder = shutil.copytree(root / "tiny", root / "tiny-again")
    yield
    shutil.rmtree(folder)


@pytest.mark.parametrize("run", list(INPUTS))
def test_the_page_computes_as_the_server_does(page: Any, run: str) -> None:
    """Softmax and weighted sum, as they are and with a score changed and a word hidden."""
    page.open("#/runs")
    for own, servers in page.evaluate(SAME_EQUATIONS, [run, INPUTS[run]]):
        assert own == pytest.approx(servers, abs=1e-5)


def test_a_score_is_changed_and_a_word_hidden(page: Any) -> None:
    page.open("#/steps?run=tiny&text=a b c&stage=6")
    rows = page.locator(".keys tbody tr")
    assert rows.count() == 6
    scores = [float(rows.nth(n).locator("input[type=number]").input_value()) for n in range(6)]
    rows.nth(1).get_by_role("checkbox").uncheck()
    rows.nth(0).locator("input[type=number]").fill("2")
    e = [math.exp(2), 0, *map(math.exp, scores[2:])]
    weights = [float(rows.nth(n).locator(".number").last.inner_text()) for n in range(6)]
    assert weights == pytest.approx([one / sum(e) for one in e], abs=2e-4)
    page.wait_for_selector("text=With your changes")
    assert "changes=1%3A-%2C0%3A2" in page.url
    page.reload()
    page.wait_for_selector("text=With your changes")
    assert not rows.nth(1).get_by_role("checkbox").is_checked()
    for n in (0, 2, 3, 4, 5):  # quicker than the server answers
        rows.nth(n).get_by_role("checkbox").uncheck()
    page.wait_for_timeout(400)
    expect(page.get_by_role("alert")).to_have_text("Every word is hidden: leave one to look at.")
    page.get_by_role("button", name="Undo all changes").click()
    page.wait_for_selector("text=With your changes", state="detached")
    page.get_by_text("The code that computes this").click()
    assert "self.W_a(s_BQD)" in page.locator("pre").first.inner_text()


def test_a_score_is_dragged_and_the_prediction_follows(page: Any) -> None:
    """The picture, the table and the address have the same score; what it makes untrue is grey."""
    page.open("#/steps?run=tiny&text=a b c&stage=6")
    slider = page.get_by_role("slider").nth(2)
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 2, steps=3)
    page.mouse.up()
    dragged = float(slider.get_attribute("aria-valuenow"))
    assert dragged > 1.9
    table = page.locator(".keys tbody tr").nth(2).locator("input[type=number]")
    assert float(table.input_value()) == pytest.approx(dragged, abs=0.01)
    expect(page.locator(".predicted .before").first).to_be_visible()
    expect(page.locator(".predicted.stale")).to_have_count(0)
    expect(page.locator("p.stale")).to_have_count(1)  # the output that was written before
    slider.focus()
    page.keyboard.press("ArrowDown")
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(dragged - 0.25, abs=0.01)
    page.get_by_role("button", name="Hide").nth(1).click()
    expect(page.locator(".keys tbody tr").nth(1).get_by_role("checkbox")).not_to_be_checked()
    assert page.violations() == []
    page.get_by_role("button", name="Undo all changes").click()
    expect(page.locator(".predicted .before")).to_have_count(0)
    expect(page.locator(".stale")).to_have_count(0)


def test_a_model_without_attention_says_so(page: Any) -> None:
    page.open("#/steps?run=names&text=Anna lives in Paris.")
    page.get_by_role("heading", name="This run has no attention").wait_for()
    page.open("#/look?run=names")
    page.get_by_role("textbox", name="Text").fill("")
    page.get_by_role("button", name="Look").click()
    page.get_by_text("This run has no attention. Give an input above").wait_for()
    page.open("#/errors?run=names")
    page.get_by_role("button", name="Evaluate").click()
    page.wait_for_selector("text=Every example")
    page.get_by_label("Show").select_option("all")
    assert {*page.locator("tbody .links").all_inner_texts()} == {"Look"}


def test_a_picture_needs_no_run(page: Any) -> None:
    page.open("#/steps?run=tiny&text=a b c")
    pictures = page.get_by_role("group", name="Picture").locator("button")
    assert [one.get_attribute("data-picture") for one in pictures.all()] == [*EQUATIONS]
    pictures.first.scroll_into_view_if_needed()
    pictures.first.locator("svg.thumbnail rect.cell").first.wait_for()

    def choose(name: str) -> None:
        page.locator(f"[data-picture={name}]").click()

    choose("dot-products")
    page.get_by_role("cell", name="1,024").wait_for()
    assert "picture=dot-products" in page.url
    choose("masks")
    page.get_by_text("a filled cell means allowed").wait_for()
    assert page.get_by_text("the strongest shade").count() == 0, "a mask is yes or no"
    choose("beam")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as an exercise").click()
    assert saved.value.suggested_filename == "beam-en.html"
    expect(page.locator(".opened-picture")).to_be_in_viewport()
    choose("dot-products")
    page.reload()
    page.get_by_role("cell", name="1,024").wait_for()


def test_the_stages_are_played_by_keyboard(page: Any) -> None:
    page.open("#/steps?run=phrases&text=The cat sleeps.")
    page.get_by_role("group", name="Stages of the computation").focus()
    first = ".film-row[data-stage='{}'] > :nth-child(2), .worked [data-stage='{}']"
    film = page.locator(".filmstrip").bounding_box()
    assert page.locator(first.format(1, 1)).first.is_visible()
    assert not page.locator(first.format(2, 2)).first.is_visible()
    for stage in (2, 3, 4, 5, 6):
        page.keyboard.press("ArrowRight")
        assert page.locator(first.format(stage, stage)).first.is_visible()
        assert page.locator(".filmstrip").bounding_box() == film, "nothing jumps"
    page.get_by_label("Show").select_option("encoder")
    page.wait_for_selector(".results[aria-busy=false]")
    assert "view=encoder" in page.url
    page.get_by_role("radio", name="2").click()
    page.wait_for_url("**head=2**")


def test_a_symbol_lights_its_row_and_its_code(page: Any) -> None:
    page.open("#/steps?run=tiny&text=a b c&stage=6")
    page.locator(".worked summary").click()
    page.locator(".worked [data-symbol=alpha]").first.hover()
    assert page.locator(".film-row.lit").get_attribute("data-symbols") == "alpha ij"
    assert "alpha" in page.locator(".code-line.lit").first.inner_text()
    page.get_by_role("heading", level=1).hover()
    expect(page.locator(".film-row.lit")).to_have_count(0)


def test_a_search_is_played(page: Any) -> None:
    page.open("#/beam?run=tiny&text=a b&beam=2&reference=e d")
    page.wait_for_selector("svg .branch")
    assert "The reference left the beam at step" in page.locator(".results").inner_text()
    assert page.locator(".branch.marked").count() >= 1
    seen = "[...document.querySelectorAll('.branch')].map(one => Number(one.dataset.depth))"
    assert set(page.evaluate(seen)) == {1}, "it begins at the first step"
    expect(page.get_by_text("No output has ended yet")).to_be_visible()
    page.get_by_role("group", name="The search as a tree").focus()
    page.keyboard.press("ArrowRight")
    assert set(page.evaluate(seen)) == {1, 2}
    assert "step=2" in page.url
    expect(page.locator(".branch.good")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".node .option")).to_have_count(5)
    page.keyboard.press("End")
    assert page.locator(".branch.good").count() >= 2, (
        "the search has ended: the best output is told"
    )
    box = page.locator(".tree .map").bounding_box()
    lowest = max(one.bounding_box()["y"] for one in page.locator(".branch.good text").all())
    assert box["y"] <= lowest <= box["y"] + box["height"], "the tree fits"
    page.get_by_role("button", name="First").click()
    expect(page.locator(".branch.good")).to_have_count(0)
    page.get_by_role("button", name="Last").click()
    narrow = page.locator(".branch").count()
    page.get_by_label("Beam").fill("5")
    page.get_by_label("Beam").blur()
    page.locator(".branch").nth(narrow).wait_for(state="attached")
    before, after = page.locator(".columns table").all()
    assert (
        before.locator("tbody tr").count() == after.locator("tbody tr").count() == 6
    )  # five, and the reference
    for table in (before, after):
        values = [
            float(cell.inner_text()) for cell in table.locator("tbody tr td:last-child").all()
        ]
        assert values == sorted(values, reverse=True)
    page.get_by_role("combobox", name="Length normalisation").select_option("none")
    expect(page.get_by_label("Length penalty")).to_be_disabled()
    expect(after).to_have_text(
        before.inner_text().replace("log P", "Objective"), use_inner_text=True
    )
    page.open("#/beam?run=reviews")
    assert "does not search" in page.locator("main").inner_text()


def test_errors_of_texts_are_sorted_filtered_and_opened(page: Any) -> None:
    page.open("#/errors?run=tiny&split=validation&limit=6")
    page.get_by_role("button", name="Diagnose").click()
    page.wait_for_selector("text=Every sentence")
    rows = page.locator(".every table tbody tr")
    total = rows.count()
    page.get_by_role("button", name="chrF").click()
    rising = [float(row.locator("td").nth(3).inner_text()) for row in rows.all()]
    page.get_by_role("button", name="chrF").click()
    falling = [float(row.locator("td").nth(3).inner_text()) for row in rows.all()]
    assert rising == sorted(rising) == falling[::-1]
    source = rows.first.locator("td").first.inner_text()
    page.get_by_label("Containing").fill(source)
    assert 1 <= rows.count() <= total
    assert rows.first.locator("td").first.inner_text() == source
    page.reload()  # the job is in the address
    page.wait_for_selector("text=Every sentence")
    rows.first.get_by_role("link", name="Beam").click()
    page.wait_for_selector("svg .branch")
    assert page.get_by_label("Input").input_value() == source
    expect(page.locator(".results")).to_contain_text("The reference")


def test_every_question_about_a_story_is_listed(page: Any) -> None:
    page.open("#/errors?run=stories&kind=all")
    page.get_by_role("button", name="Evaluate").click()
    rows = page.locator(".every table tbody tr")
    expect(rows).to_have_count(12)
    story = rows.first.locator("td").first.inner_text()
    rows.first.get_by_role("link", name="Look").click()
    expect(page.get_by_role("textbox", name="Question")).to_have_value(story.rpartition(" · ")[2])


@pytest.mark.options(locale="ko-KR", viewport={"width": 360, "height": 640}, color_scheme="dark")
def test_the_cells_of_a_confusion_matrix_in_korean_on_a_phone(page: Any) -> None:
    page.open("#/errors?run=reviews")
    page.get_by_role("button", name="시작하기").click()
    page.wait_for_selector(".confusion")
    cells = {one: int(one.inner_text()) for one in page.locator(".confusion button").all()}
    assert sum(cells.values()) == 12
    cell, count = max(cells.items(), key=lambda item: item[1])
    cell.click()
    assert page.locator(".every table tbody tr").count() == count
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.violations() == []
    page.locator(".every table").get_by_role("link", name="단계별 계산").first.click()
    page.wait_for_selector(".worked")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.violations() == []


def test_runs_are_compared(page: Any) -> None:
    page.open("#/compare?runs=tiny,tiny-again&text=a <img src=x onerror=alert(1)>")
    page.wait_for_selector(".panel canvas")
    panels = [re.sub(r"^.*\n", "", panel.inner_text()) for panel in page.locator(".panel").all()]
    assert len(panels) == 2
    assert panels[0] == panels[1]
    assert page.locator("main img").count() == 0
    page.get_by_role("button", name="Compare on a split").click()
    page.wait_for_selector("text=Quality")
    assert "the same as tiny" in page.locator(".results").inner_text()
    assert page.violations() == []
    page.emulate_media(color_scheme="dark")
    page.open("#/beam?run=tiny&text=a b")
    page.wait_for_selector("svg .branch")
    assert page.violations() == []
