"""The page of `explain --out x.html`: the map as lines, its words, and every head at once."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.views.page import page as page_of

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect


def test_a_page_of_explain_has_lines_words_and_the_grid_of_heads(
    browser: Any, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "x.html"
    explained = regard.explain(root / "phrases", "The cat sleeps.")
    file.write_text(page_of(explained.report()), encoding="utf-8")
    page = browser.new_page(locale="en-US")
    page.goto(f"file://{file}")
    page.get_by_text("All layers and heads").click()
    heads = page.locator(".all-heads button")
    layers, each = 1, 2  # of the decoder of this run, which has two heads
    assert heads.count() >= layers * each
    page.get_by_role("button", name="layer 1, head 2").click()
    expect(page.get_by_role("combobox", name="Heads")).to_have_value("head 2")
    expect(page.get_by_role("button", name="layer 1, head 2")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.get_by_role("button", name="Lines").click()
    words = page.locator(".tokens").nth(0).locator("button")
    rows = words.count()
    assert page.locator(".thread").count() > rows, "up to three of each row"
    words.nth(1).hover()
    columns = page.locator(".tokens").nth(1).locator("span").count()
    assert 1 <= page.locator(".thread").count() <= columns, "those of one row"
    expect(page.locator("svg .row.asks text")).to_have_text(words.nth(1).inner_text())
    page.get_by_role("button", name="Heat map").click()
    expect(page.locator(".map canvas").first).to_be_visible()
    page.close()
