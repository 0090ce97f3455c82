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
