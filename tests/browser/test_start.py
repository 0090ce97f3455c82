"""The start page with the examples of the package, the tour, and what a watched training shows."""

import json
from typing import Any

import pytest

from regard.runs.packaged import packaged_runs

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect


def open_page(browser: Any, address: str, **options: Any) -> Any:
    page = browser.new_context(**{"locale": "en-US", **options}).new_page()
    page.set_default_timeout(20_000)
    page.faults = list[str]()
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on(
        "console",
        lambda one: page.faults.append(one.text) if one.type in ("error", "warning") else None,
    )
    page.goto(address)
    page.wait_for_selector("main[aria-busy=false]")
    return page


def test_one_sentence_goes_through_three_examples(browser: Any, examples: str) -> None:
    page = open_page(browser, examples)
    expect(page.locator(".same article")).to_have_count(3)
    expect(page.locator(".same .written").last).to_have_text(
        "This truck did not cross the river because it was really wide."
    )
    expect(page.locator(".same svg.threads")).to_have_count(3)
    expect(page.locator(".same .thread").first).to_be_attached()
    assert page.locator(".cards .card").count() == len(packaged_runs())
    page.locator(".same article").last.locator(".word.asks").first.hover()
    expect(page.locator("svg.threads.picked").first).to_be_attached()
    page.get_by_label("Input").fill("그 고양이는 자요.")
    page.keyboard.press("Enter")
    expect(page.locator(".same .asked")).to_have_text("그 고양이는 자요.")
    expect(page.locator(".same .written").last).to_have_text("That cat sleeps.")
    assert page.faults == []


def test_the_tour_has_five_steps_by_keyboard(browser: Any, examples: str) -> None:
    page = open_page(browser, examples)
    page.get_by_role("button", name="Take the tour").click()
    tour = page.get_by_role("dialog", name="Tour")
    for number, view in enumerate(["try", "look", "steps", "compare", "runs"], 1):
        expect(tour).to_contain_text(f"{number} of 5")
        page.wait_for_selector(f"nav a[aria-current=page][data-view={view}]")
        page.wait_for_selector("main[aria-busy=false]")
        expect(tour.get_by_role("button", name="Done" if number == 5 else "Next")).to_be_focused()
        page.wait_for_selector(".toured")
        if number == 2:
            page.reload()  # the tour goes on
            expect(tour).to_contain_text("2 of 5")
            tour.get_by_role("button", name="Next").focus()
        page.keyboard.press("Enter")
    expect(tour).to_have_count(0)
    page.goto(f"{examples}/#/start")
    page.get_by_role("button", name="Take the tour").click()
    page.get_by_role("radio", name="한국어").click()
    expect(page.get_by_role("dialog", name="둘러보기")).to_contain_text("5단계 중 1")
    page.keyboard.press("Escape")
    expect(page.locator(".tour")).to_have_count(0)
    assert page.faults == []


def test_a_watched_training_is_moved_through(browser: Any, examples: str) -> None:
    name = "translate-transformer"
    stored = json.loads((packaged_runs()[name] / "watch.json").read_text(encoding="utf-8"))
    first, last = stored["entries"][0], stored["entries"][-1]
    page = open_page(browser, f"{examples}/#/runs?run={name}&runs=translate-rnn")
    panel = page.locator(".watched")
    expect(panel.locator(".written")).to_have_text(last["output"])
    slider = panel.get_by_role("slider")
    assert slider.get_attribute("max") == str(len(stored["entries"]) - 1)
    slider.focus()
    page.keyboard.press("Home")
    expect(panel.locator(".written")).to_have_text(first["output"])
    page.keyboard.press("ArrowRight")
    second = stored["entries"][1]
    expect(panel.locator(".watched-step")).to_have_text(f"step {second['step']}")
    expect(page.locator(".legend li")).to_have_count(4)  # both runs, training and validation
    page.get_by_role("radio", name="chrf").click()
    expect(page.locator(".legend li")).to_have_count(2)
    assert "metric=chrf" in page.url
    assert page.get_by_role("button", name="Resume").count() == 0, "an example is only read"
    assert page.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_views_of_the_examples_are_accessible(
    browser: Any, examples: str, scheme: str, accessibility: Any
) -> None:
    views = [
        "start",
        "runs",
        "runs?run=translate-bahdanau",
        "runs?new=1",
        "runs?new=1&from=data",
        "compare?run=translate-bahdanau&runs=translate-rnn",
        "compare?run=reviews",
    ]
    for view in views:
        page = open_page(browser, f"{examples}/#/{view}", color_scheme=scheme)
        page.wait_for_load_state("networkidle")
        assert accessibility(page) == [], view
        page.context.close()


def test_nothing_is_clipped_on_a_phone_in_korean(browser: Any, examples: str) -> None:
    for view in ("start", "runs", "runs?run=reviews", "runs?new=1", "compare", "errors"):
        page = open_page(
            browser,
            f"{examples}/#/{view}",
            locale="ko-KR",
            viewport={"width": 360, "height": 640},
        )
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        page.context.close()


def test_errors_are_marked_word_by_word(browser: Any, examples: str) -> None:
    page = open_page(browser, f"{examples}/#/errors?run=translate-rnn&limit=20")
    page.get_by_role("button", name="Diagnose").click()
    row = page.locator(".every tbody tr").first
    row.locator("ins").first.wait_for()
    output, reference = (row.locator("td").nth(n) for n in (1, 2))
    plain = """one => [...one.firstChild.childNodes].filter(node => node.nodeType === 3)
        .flatMap(node => node.textContent.split(/\s+/)).filter(Boolean)"""
    assert output.evaluate(plain) == reference.evaluate(plain), "what is not marked is the same"
    assert page.locator(".every").bounding_box()["y"] < 200, "examples come first"
    assert page.faults == []


def test_a_file_is_previewed_with_what_its_columns_are(browser: Any, examples: str) -> None:
    page = open_page(browser, f"{examples}/#/runs?new=1&from=data")
    rows = "".join(
        f'"the {noun} {n}, was {word}",{label}\n'
        for n in range(20)
        for noun in ("plot", "cast")
        for word, label in (("good", "pos"), ("bad", "neg"))
    )
    file = {"name": "r.csv", "mimeType": "text/csv", "buffer": rows.encode()}
    page.get_by_label("Data file").set_input_files([file])
    train = page.get_by_role("button", name="Train", exact=True)
    expect(train).to_be_disabled()
    expect(page.locator(".plan")).to_contain_text("64 examples", timeout=60_000)
    heads = page.locator(".previewed thead th")
    expect(heads).to_have_text(["column 0text", "column 1label"])
    expect(page.locator(".previewed tbody tr").first.locator("td")).to_have_text(
        ["the plot 0, was good", "pos"]
    )
    expect(train).to_be_enabled()
    assert page.faults == []


def test_length_is_moved_and_its_sentences_are_tried(browser: Any, examples: str) -> None:
    page = open_page(browser, f"{examples}/#/compare?run=translate-transformer&runs=translate-rnn")
    page.get_by_role("button", name="Compare on a split").click()
    rows = page.locator(".length-row")
    expect(rows).to_have_count(2, timeout=120_000)
    transformer, rnn = (float(one.locator("b").inner_text()) for one in rows.all())
    assert transformer > rnn + 20, "long sentences need attention"
    before = page.locator(".film output").inner_text()
    page.get_by_role("slider", name="Length of the input").focus()
    page.keyboard.press("Home")
    expect(page.locator(".film output")).not_to_have_text(before)
    assert page.locator("details").first.get_attribute("open") is None, "the report is folded"
    page.keyboard.press("End")
    sentence = page.locator(".by-length .example").first.inner_text()
    page.locator(".by-length .example").first.click()
    expect(page.get_by_role("textbox", name="Input")).to_have_value(sentence)
    expect(page.locator("p.asked")).to_have_text(sentence)
    assert page.faults == []


def test_words_that_a_run_does_not_know_are_marked(browser: Any, examples: str) -> None:
    """Wherever a sentence goes in; a gap is a word that a run which fills gaps knows."""
    for view in ("start?", "try?", "compare?run=translate-transformer&"):
        page = open_page(browser, f"{examples}/#/{view}text=I like cats.")
        page.locator(".unknown", has_text="I like cats.").wait_for()
        page.close()
    page = open_page(browser, f"{examples}/#/try?run=fill-masks&text=The boy did [MASK] write.")
    page.locator(".answer").filter(has_text="write").wait_for()
    expect(page.locator(".answer mark")).to_have_count(1)
    page.wait_for_load_state("networkidle")
    expect(page.locator(".unknown")).to_have_count(0)
    page.close()
