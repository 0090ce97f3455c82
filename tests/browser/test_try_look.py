"""Try and Look on small runs of each kind of task: typing, streaming, highlights; pointing at
words, saving figures."""

import base64
import io
import json
import re
from typing import Any
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect


def ask(page: Any, run: str, **fields: str) -> Any:
    page.open(f"#/try?run={run}")
    for label, text in fields.items():
        page.get_by_role("textbox", name=label).fill(text)
    page.get_by_role("button", name="Answer").click()
    link = page.get_by_role("link", name=re.compile("See its attention|See how it came"))
    expect(link).to_be_visible()
    return page.locator("section[aria-live]")


def test_an_answer_with_its_best_outputs(page: Any) -> None:
    page.open("#/try?run=phrases")
    page.get_by_role("textbox", name="Input").fill("Thé <b>cup</b> 컵")
    page.get_by_text("Search", exact=True).click()
    page.get_by_label("Outputs").fill("3")
    with page.expect_request(re.compile("/predict$")) as asked:
        page.get_by_role("button", name="Answer").click()
    assert json.loads(asked.value.post_data) == {
        "inputs": ["Thé <b>cup</b> 컵"],
        "stream": True,
        "nbest": 3,
    }
    expect(page.locator("tbody tr")).to_have_count(3)
    assert page.locator("section b").count() == 0
    assert "nbest=3" in page.url
    page.reload()  # the address has it all
    expect(page.locator("tbody tr")).to_have_count(3)
    assert page.violations() == []


def test_the_languages_of_a_model_of_many(page: Any, many: str) -> None:
    ask(page, many, Input="The cat")
    page.get_by_role("combobox", name="To", exact=True).select_option("fr")
    with page.expect_request(re.compile("/predict$")) as asked:
        page.get_by_role("button", name="Answer").click()
    assert json.loads(asked.value.post_data)["target_language"] == "fr"
    expect(page.get_by_text("__fr__").first).to_be_visible()
    with page.expect_request(re.compile("/attention$")) as looked:
        page.get_by_role("link", name="See its attention").click()
    assert json.loads(looked.value.post_data)["target_language"] == "fr"
    assert "target_language=fr" in page.url
    assert page.violations() == []


def test_what_is_drawn_follows_the_answer(page: Any) -> None:
    tags = ask(page, "names", Text="Anna lives in Paris.")
    assert tags.locator(".answer").inner_text().replace("\n", "").startswith("Anna")
    classes = ask(page, "reviews", Text="재미있는 영화였다.")
    assert classes.locator("figure .option").count() == 2
    assert classes.locator(".answer").inner_text() in ("긍정", "부정")
    answer = ask(page, "portraits", Question="Where does Ben live?", Text="Ben lives in New York.")
    assert answer.locator(".answer").count() == 1
    story = ask(page, "stories", Story="Mary went to the kitchen.", Question="Where is Mary?")
    assert story.locator("figure .option").count() >= 2
    page.open("#/try?run=portraits")
    page.locator("button.example").first.click()
    link = page.get_by_role("link", name=re.compile("See its attention|See how it came"))
    expect(link).to_be_visible()
    expect(page.get_by_role("textbox", name="Question")).to_have_value(re.compile(r".+\?"))
    page.open("#/try?run=shapes")
    page.get_by_role("button", name="Example 2").click()
    expect(page.locator("img.given")).to_be_visible()
    ask(page, "stories", Story="Mary went to the kitchen.", Question="Where is Mary?")
    page.get_by_role("link", name="See its attention").click()
    expect(
        page.get_by_role("img", name="Queries: words that look: hop 1 hop 2 hop 3")
    ).to_be_visible()


def test_an_image_is_sent(page: Any) -> None:
    from PIL import Image

    Image.new("RGB", (20, 20), "red").save(red := io.BytesIO(), "PNG")
    page.open("#/look?run=shapes")
    page.locator("input[type=file]").set_input_files(
        [{"name": "r.png", "mimeType": "image/png", "buffer": red.getvalue()}]
    )
    expect(page.locator("img.given")).to_be_visible()
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_label("Show")).to_contain_text("regions of the image")
    expect(page.locator("canvas[aria-label=Image]")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^r.png → "))).to_be_visible()
    page.get_by_text("named by its row and column").wait_for()
    image = page.locator("canvas[aria-label=Image]")
    box = image.bounding_box()
    image.hover(position={"x": 0.3 * box["width"], "y": 0.55 * box["height"]})  # of 4 x 4 regions
    expect(page.locator(".told")).to_contain_text("3,2")


def test_a_token_is_replaced_and_the_run_writes_on(page: Any) -> None:
    """Each output is a row under the token that it replaces; the address has them."""
    page.open("#/try?run=tiny&text=a b c")
    rows = page.locator(".output-row")
    expect(rows).to_have_count(1)
    tokens = rows.first.locator(".token")
    shares = [
        float(one.evaluate("one => one.style.getPropertyValue('--share')")) for one in tokens.all()
    ]
    assert all(0 < share <= 1 for share in shares)
    tokens.nth(1).hover()
    likely = page.get_by_role("group", name=re.compile("Likeliest in place of"))
    expect(likely.locator(".option")).to_have_count(5)
    first = likely.locator("h3").inner_text()
    tokens.nth(1).focus()
    page.keyboard.press("ArrowLeft")
    expect(likely.locator("h3")).not_to_have_text(first)
    other = likely.locator("button.option").last
    name = other.locator(".name").inner_text()
    other.focus()
    page.keyboard.press("Enter")
    expect(rows).to_have_count(2)
    assert rows.nth(1).locator(".token span").first.inner_text() == name
    assert page.violations() == []
    page.reload()
    expect(rows).to_have_count(2)
    rows.nth(1).get_by_role("link", name="Find it in the beam tree").click()
    page.wait_for_selector("svg .branch.marked")


def test_words_that_are_not_in_the_vocabulary_are_marked(page: Any) -> None:
    page.open("#/try?run=names&text=Anna qwxyz lives 고양이")
    expect(page.locator(".unknown s").first).to_be_visible()
    assert {"qwxyz", "고양이"} <= {*page.locator(".unknown s").all_inner_texts()}
    page.open("#/try?run=phrases&text=The cup")
    expect(page.locator(".output-row")).to_have_count(1)
    expect(page.locator(".unknown")).to_have_count(0)


def test_a_run_has_only_the_controls_that_apply(chat: str, page: Any) -> None:
    page.open("#/try?run=phrases")
    expect(page.locator("nav a[data-view=beam]")).to_be_visible()
    assert page.get_by_role("radio", name="Chat").count() == 0, "a translation is no conversation"
    page.open("#/try?run=reviews")
    expect(page.locator("nav a[data-view=beam]")).to_have_count(0)
    assert page.get_by_text("Search", exact=True).count() == 0
    page.open(f"#/try?run={chat}")
    expect(page.get_by_role("radio", name="Chat")).to_be_visible()


@pytest.mark.options(locale="ko-KR")
def test_a_chat_has_a_history(chat: str, page: Any) -> None:
    page.open(f"#/try?run={chat}&mode=chat")
    for text in ("안녕", "배고파"):
        page.get_by_role("textbox", name="입력").fill(text)
        page.keyboard.press("Enter")
        expect(page.locator("li.you").last).to_contain_text(text)
        expect(page.get_by_role("textbox", name="입력")).to_be_focused()
    assert page.locator("li.run").count() == 2
    page.get_by_role("button", name="대화 지우기").click()
    assert page.locator("li.you").count() == 0


def test_a_mistake_is_the_servers_sentence(page: Any) -> None:
    page.open("#/try?run=phrases")
    page.get_by_role("combobox", name="Run").focus()
    page.get_by_role("combobox", name="Run").select_option("tiny")
    page.wait_for_url("**run=tiny&**")
    page.wait_for_selector("main[aria-busy=false]")
    expect(page.get_by_role("combobox", name="Run")).to_be_focused()
    page.get_by_role("textbox", name="Input").fill("")
    page.get_by_role("textbox", name="Input").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the text is empty")
    page.open("#/look?run=tiny&text=a%20b&layer=9")
    expect(page.get_by_role("alert")).to_have_text(
        "layer: there is no layer 9 (allowed: 1, mean, all)"
    )
    page.faults.clear()  # the browser reports the 422


def test_attention_by_pointer_keyboard_and_address(page: Any) -> None:
    page.open(
        f"#/look?run=phrases&text={quote('He repaired my cups.')}&view=encoder&layer=2&head=1"
    )
    told = page.locator("output.told")
    first = told.inner_text()
    assert re.fullmatch(r"_?\S+ looked at (\S+ \d\.\d+( · )?){4}", first)
    page.get_by_label("Query").focus()
    page.keyboard.press("ArrowRight")
    expect(told).not_to_have_text(first)
    second = told.inner_text()
    page.locator(".words canvas").nth(1).hover(position={"x": 10, "y": 10})
    expect(told).to_have_text(first)
    page.locator(".map .cells").hover(position={"x": 5, "y": 5})
    page.get_by_role("button", name="layer 1, head 2").click()
    expect(page.get_by_role("button", name="layer 1, head 2")).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(page.get_by_role("button", name="layer 1, head 2")).to_be_focused()
    assert {"layer=1", "head=2"} <= set(page.url.split("&"))
    assert second != told.inner_text()
    page.get_by_role("radio", name="Words").click()
    expect(
        page.get_by_role("img", name="Queries: words that look: He repaired my cups.")
    ).to_be_visible()
    page.get_by_role("radio", name="Lines").click()
    expect(page.locator(".lines canvas")).to_be_visible()
    assert page.violations() == []
    page.get_by_label("Show").select_option("positions")
    expect(page.get_by_text("From -1.00 in orange to 1.00 in blue.")).to_be_visible()
    page.get_by_label("Show").select_option("masks")
    expect(page.locator(".map .cells")).to_have_count(
        3
    )  # that of the decoder hides what comes later
    assert page.get_by_role(
        "heading", name="self-attention of the decoder: what it may see"
    ).is_visible()


def test_lines_are_those_of_all_words_until_one_is_pointed_at(page: Any) -> None:
    page.open(f"#/look?run=phrases&text={quote('He repaired my cups.')}&units=words&draw=lines")
    told, canvas = page.locator("output.told"), page.locator(".lines canvas")
    expect(told).to_have_text("")
    canvas.hover(position={"x": canvas.bounding_box()["width"] - 20, "y": 10})
    expect(told).to_have_text(re.compile("^He was looked at by "))
    page.locator("h1").hover()
    expect(told).to_have_text("")
    page.get_by_label("Query").focus()
    page.keyboard.press("ArrowRight")
    expect(told).to_have_text(re.compile(" looked at "))
    page.get_by_role("combobox", name="Head").select_option("1")  # the word stays chosen
    expect(told).to_have_text(re.compile(" looked at "))
    assert "word=1" in page.url


def test_the_labels_of_a_long_map_stay_in_view(page: Any) -> None:
    """Zoomed, the map scrolls under them; the strip of sums has what all rows read of a word."""
    text = " ".join(["He repaired my cups."] * 8)
    page.open(f"#/look?run=phrases&text={quote(text)}&view=encoder&units=words")
    page.get_by_role("radio", name="4×").click()
    assert "zoom=4" in page.url
    box = page.locator(".map")
    box.evaluate("map => map.scrollTo(400, 300)")
    assert box.evaluate("map => [map.scrollLeft, map.scrollTop]") == [400, 300]
    corner, frame = page.locator(".axis.corner").bounding_box(), box.bounding_box()
    assert (corner["x"], corner["y"]) == pytest.approx((frame["x"], frame["y"]), abs=2)
    sums = page.locator(".sums")
    bottom = sums.bounding_box()["y"] + sums.bounding_box()["height"]
    assert bottom <= frame["y"] + frame["height"] + 1
    sums.hover(position={"x": 600, "y": 8})
    expect(page.locator("#tip")).to_have_text(re.compile(r"was read \d\.\d\d in all"))
    assert page.violations() == []


def test_empty_memories_are_drawn(page: Any) -> None:
    """A hop that read less than 1 of the sentences read the rest of nothing."""
    with page.expect_response(re.compile("/attention$")) as answered:
        page.open("#/look?run=stories")
    answer = answered.value.json()["map"]
    import numpy as np

    values = np.frombuffer(base64.b64decode(answer["values"]), "<f4").reshape(
        len(answer["rows"]), -1
    )
    np.testing.assert_allclose(values.sum(1), 1, atol=1e-5)
    assert answer["columns"][-1] == "(empty memories)"


def test_figures_are_saved(page: Any) -> None:
    """The SVG has each word once as text; the PNG is its picture."""
    for way, shape in (("map", "rect"), ("lines", "line")):
        page.open(f"#/look?run=phrases&text={quote('He repaired my cups.')}&units=words&draw={way}")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as SVG").click()
        assert saved.value.suggested_filename == "phrases-alignment.svg"
        figure = saved.value.path().read_text(encoding="utf-8")
        assert [figure.count(f">{word}</text>") for word in ("He", "repaired", "my", "cups.")] == [
            1,
            1,
            1,
            1,
        ]
        assert figure.count(f"<{shape} ") > 4
        assert "var(" not in figure
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


def test_the_weights_on_the_page_are_those_of_the_server(page: Any) -> None:
    """Rows sum to 1, and what is said of a word is its row."""
    with page.expect_response(re.compile("/attention$")) as answered:
        page.open("#/look?run=tiny&text=a%20b%20c")
    answer = answered.value.json()["map"]
    import numpy as np

    values = np.frombuffer(base64.b64decode(answer["values"]), "<f4").reshape(
        len(answer["rows"]), -1
    )
    np.testing.assert_allclose(values.sum(1), 1, atol=1e-5)
    best = answer["columns"][int(values[0].argmax())]
    assert f"looked at {best} {values[0].max():.2f}" in page.locator("output.told").inner_text()


def test_a_story_stands_below_its_answer(page: Any) -> None:
    """The bar has room for one line of it."""
    page.open("#/try?run=stories")
    story = page.locator(".story")
    story.get_by_role("heading", name=re.compile("^Where|^Who|^What")).wait_for()
    assert story.locator("li").count() >= 2
    page.locator(".example").nth(1).click()
    page.wait_for_selector("main[aria-busy=false]")
    assert (
        page.locator(".example")
        .nth(1)
        .get_attribute("data-tip")
        .startswith(story.locator("li").first.inner_text())
    )
