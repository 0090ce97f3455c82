"""The view of runs: what it lists, and a training that is started, watched, stopped and resumed in
it."""

import re
from typing import Any

import pytest
import yaml

from tiny import TINY

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser


def test_every_run_is_listed_with_its_curve(page: Any) -> None:
    page.open("#/runs")
    rows = page.locator("table.runs tbody tr")
    assert rows.count() >= 7
    tiny = rows.filter(has=page.get_by_role("link", name="tiny", exact=True))
    assert "translation" in tiny.inner_text()
    assert "10,575" in tiny.inner_text()
    assert (
        tiny.get_by_role("img").get_attribute("aria-label").startswith("Loss over 20 steps, from ")
    )
    page.get_by_role("link", name="tiny", exact=True).click()
    page.get_by_role("heading", name="tiny").wait_for()
    expect(page.locator("svg.learning path.curve")).to_have_count(2)


def test_a_training_is_started_stopped_and_resumed(page: Any, root: Any) -> None:
    """From data that is sent. The run folder is what the page shows."""
    page.open("#/runs?new=1&from=data")
    recipe = {
        **TINY,
        "data": {
            "train": {"file": "쌍.tsv", "source": 0, "target": 1},
            "validation": {"split": 0.1},
        },
    }
    pairs = "".join(
        f"{a}{b}{c}\t{c}{b}{a}\n" for a in "가나다라마" for b in "바사아자차" for c in "카타파하"
    )
    data = {"name": "쌍.tsv", "mimeType": "text/plain", "buffer": pairs.encode()}
    page.get_by_label("Data file").set_input_files([data])
    train = page.get_by_role("button", name="Train", exact=True)
    expect(train).to_be_disabled()  # while the file is read
    expect(page.get_by_label("The whole recipe")).to_have_value(
        re.compile("task: translation"), timeout=60_000
    )
    page.get_by_label("The whole recipe").fill(yaml.safe_dump(recipe, allow_unicode=True))
    page.get_by_label("The whole recipe").press("Tab")
    expect(page.get_by_label("training.steps")).to_have_value("20")
    page.get_by_label("training.steps").fill("100000")
    page.get_by_label("Name of the run").fill("쌍-1")
    train.click()
    page.get_by_text("of 100,000").wait_for(timeout=60_000)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Resume").wait_for(timeout=60_000)
    assert (root / "쌍-1" / "last").exists()
    page.get_by_role("link", name="Try").last.click()
    page.get_by_label("Input").fill("가바카")
    page.get_by_role("button", name="Answer").click()
    page.get_by_text("log P").first.wait_for()
    page.open("#/runs?run=쌍-1")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Resume").wait_for(timeout=60_000)


def names(page: Any) -> list[str]:
    """Those in Latin letters: where another script is sorted depends on the language."""
    listed = page.locator("table.runs tbody tr:not(.group) th a").all_inner_texts()
    return [name for name in listed if name.isascii()]


def test_runs_are_found_by_word_task_and_model(page: Any) -> None:
    """The address has what was chosen, and an empty result says how to see all runs again."""
    page.open("#/runs")
    every = names(page)
    page.keyboard.press("/")
    found = page.get_by_label("Find a run")
    expect(found).to_be_focused()
    found.press_sequentially("PHRASES trans")
    expect(page.get_by_role("link", name="stories", exact=True)).to_have_count(0)
    assert names(page) == ["phrases"]
    count = page.evaluate(
        "fetch('/trainings').then(answer => answer.json()).then(runs => runs.length)"
    )
    assert f"1 of {count} runs" in page.locator(".runs-list [role=status]").inner_text()
    page.reload()
    page.wait_for_selector("main[aria-busy=false]")
    assert names(page) == ["phrases"]
    assert found.input_value() == "PHRASES trans"
    page.get_by_role("combobox", name="Task", exact=True).select_option("captioning")
    page.get_by_role("heading", name="No run matches").wait_for()
    assert page.violations() == []
    page.get_by_role("button", name="Show all runs").click()
    assert names(page) == every
    page.get_by_role("combobox", name="Model", exact=True).select_option("bert")
    assert {*names(page)} == {"reviews", "portraits"}
    found.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name=names(page)[1], exact=True)).to_be_focused()
    page.keyboard.press("Escape")


@pytest.mark.options(locale="ko-KR", color_scheme="dark")
def test_runs_are_grouped_and_sorted(page: Any) -> None:
    page.open("#/runs?sort=-name")
    falling = names(page)
    assert falling == sorted(falling, reverse=True)
    page.get_by_role("button", name="이름").click()  # back to the latest first
    page.get_by_role("button", name="이름").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    assert names(page) == sorted(falling)
    page.get_by_role("combobox", name="묶기", exact=True).select_option("data")
    group = page.locator("tbody", has=page.locator("tr.group", has_text="reviews-ko"))
    assert group.locator("tr:not(.group) th a").all_inner_texts() == ["reviews"]
    assert page.violations() == []
    page.get_by_role("checkbox", name="phrases-en-ko 고르기", exact=True).check()
    expect(page.locator("svg.learning path.curve")).to_have_count(2)
    page.get_by_role("button", name="▾ reviews-ko").click()
    expect(page.get_by_role("link", name="reviews", exact=True)).to_have_count(0)
    assert "group=data" in page.url
