"""The view Course: chapters, guesses, topics, and figures that open in the studio. The chapter that is
computed here is written by hand, since experiments take minutes."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2 import meta

from regard.course import chapters, find_chapter
from regard.course import findings as files
from regard.course.findings import packaged, store
from regard.course.lab import FIGURE_PLACE, template_environment
from regard.course.search import CLAIMS
from regard.course.unfilled import unfilled, without_results
from regard.studio import shown_chapters as shown
from regard.views.report import Table

pytestmark = pytest.mark.browser
NUMBERS_OF_CLAIMS = {
    name
    for one in CLAIMS.values()
    for name in one.holds.__code__.co_consts
    if isinstance(name, str)
}
TEXTS = {
    "en": {
        "first": "Guess first.",
        "guess": "That is my guess",
        "skip": "Show me",
        "guessed": "You guessed {}; it is {}.",
        "told": "It is {}.",
        "rest": "What follows is shown when you have guessed.",
    },
    "ko": {
        "first": "먼저 짐작해 보십시오.",
        "guess": "이렇게 짐작합니다",
        "skip": "바로 보기",
        "guessed": "짐작은 {}, 실제는 {}입니다.",
        "told": "{}입니다.",
        "rest": "뒤의 내용은 짐작한 다음에 보입니다.",
    },
}


def report(language: str) -> dict[str, Any]:
    figure = {
        "kind": "bars",
        "categories": ["short", "long"],
        "series": {"right": [0.9, 0.3]},
        "value_label": "",
        "title": "By length",
        "span": 1.0,
        "longest": 1.0,
        "whole": False,
        "opens": "states",
    }
    guess = {
        "kind": "guess",
        "question": "How many of 100?",
        "answer": 30,
        "low": 0,
        "high": 100,
        "unit": "",
        "title": "",
        "texts": TEXTS[language],
    }
    prose = {"kind": "prose", "title": "", "html": "<p>The model has <b>one</b> vector.</p>"}
    folded = {"kind": "prose", "title": "Why?", "html": "<p>Because.</p>"}
    return {
        "title": "One vector",
        "opening": "What one vector holds.",
        "conclusions": ["30 % of the long ones are right."],
        "sections": [
            {"heading": "Lengths", "parts": [prose, guess, figure, folded]},
            {"heading": "Widths", "parts": [{**prose, "html": "<p>It was 30.</p>"}]},
        ],
    }


@pytest.fixture
def computed(root: Path) -> Iterator[Path]:
    """Chapter 1 as if it had been computed, with one run."""
    folder = root.parent / "course"
    run = folder / "runs" / "reverse-late-1-0123abcd"
    shutil.copytree(root / "tiny", run)
    told = {"quick": False, **{language: report(language) for language in TEXTS}}
    (folder / "1.json").write_text(json.dumps(told))
    (folder / "1.en.html").write_text("<h1>One vector</h1>")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "ko")])
def test_the_course_is_accessible(page: Any, computed: Path, scheme: str, language: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for view in ("", "&chapter=1", "&chapter=2"):
        page.open(f"#/course?lang={language}{view}")
        assert page.violations() == [], view
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def test_a_guess_comes_before_what_it_asks_for(page: Any, computed: Path) -> None:
    """The figure and the findings are hidden until the reader has guessed; then both numbers are
    told."""
    page.open("#/course?chapter=1")
    figure = page.locator("figure", has_text="By length")
    findings = page.locator(".findings")
    page.get_by_text("The model has one vector.").wait_for()
    assert not figure.is_visible()
    assert not findings.is_visible()
    assert page.get_by_role("heading", name="Widths").is_visible(), "there is more to come"
    assert not page.get_by_text("It was 30.").is_visible()
    page.get_by_role("slider").fill("70")
    page.get_by_role("button", name="That is my guess").click()
    page.get_by_text("You guessed 70; it is 30.").wait_for()
    assert figure.is_visible()
    assert findings.is_visible()
    assert page.get_by_text("It was 30.").is_visible()
    page.reload()
    page.get_by_role("button", name="Show me").click()
    page.get_by_text("It is 30.").wait_for()


def test_a_figure_opens_with_its_run_and_sentence(page: Any, computed: Path) -> None:
    page.open("#/course?chapter=1")
    page.get_by_role("button", name="Show me").click()
    page.get_by_role("button", name="Open in the studio").click()
    page.wait_for_url("**#/model**")
    page.locator("svg.diagram").wait_for()
    assert "run=reverse-late-1-0123abcd" in page.url
    assert "a+b+c+d+e+f+g+h" in page.url


def test_chapters_follow_each_other_and_are_marked_as_read(
    page: Any, computed: Path, without_findings: Path
) -> None:
    page.open("#/course")
    page.locator(".card", has_text="Sequence to sequence").click()
    page.get_by_role("heading", name="Sequence to sequence: one vector for a sentence").wait_for()
    page.get_by_role("link", name="Next: Attention").click()
    page.get_by_role("button", name="Compute this chapter").wait_for()
    page.locator(".chapters li", has_text="✓ read").wait_for()
    assert page.locator(".chapters .good").count() == 1
    page.get_by_role("radio", name="한국어").click()
    page.get_by_role("button", name="이 장 계산하기").wait_for()
    assert "chapter=2" in page.url


@pytest.fixture
def without_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of packaged findings, empty."""
    monkeypatch.setattr("regard.course.findings.PACKAGED", tmp_path)
    forget_findings()
    yield tmp_path
    forget_findings()


def forget_findings() -> None:
    for kept in (packaged, shown.packaged_chapter, shown.packaged_page, shown._packaged_lesson):
        kept.cache_clear()


@pytest.fixture
def with_findings(without_findings: Path) -> None:
    """Findings of chapter 3 alone: made up, one name for each that its text asks for."""
    chapter = find_chapter("search", "en")
    names = meta.find_undeclared_variables(template_environment().parse(chapter.text))
    numbers = dict.fromkeys(names - {"verdict", "full"}, 7.25)
    figures = {
        name: Table(["width", "BLEU"], [["3", 42.5]])
        for _, name in FIGURE_PLACE.findall(chapter.text)
        if ":" not in name and not name.startswith("full_")
    }
    claims = dict.fromkeys(NUMBERS_OF_CLAIMS, 1.0)
    store(without_findings, chapter, [claims | numbers | figures] * 3, [1, 2, 3], 480)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_packaged_findings_are_shown_at_once(page: Any, with_findings: None, language: str) -> None:
    page.open(f"#/course?chapter=3&lang={language}")
    origin = page.locator(".origin")
    assert "1, 2, 3" in origin.text_content()
    assert re.search(r"8 min|8분", origin.text_content())
    origin.get_by_role("button", name=re.compile("Run it here|직접 실행하기")).wait_for()
    assert page.locator(".pending").count() == 0
    assert page.locator("table").count() > 1
    assert page.get_by_text(
        re.compile("once you have run the chapter|여기서 실행하면 열 수")
    ).count()
    assert page.violations() == []
    page.open(f"#/course?lang={language}")
    card = page.locator(".card").nth(3)
    assert not re.search("not computed|아직 계산하지", card.text_content())
    with page.expect_download() as saved:
        page.open(f"#/course?chapter=3&lang={language}")
        page.get_by_role("button", name=re.compile("Save as a page|페이지로 저장")).click()
    assert "<code>regard course 3</code>" in Path(saved.value.path()).read_text(encoding="utf-8")


def test_what_the_command_has_found_is_shown(page: Any, with_findings: None, root: Path) -> None:
    """`regard course 3` in the terminal leaves its findings beside its runs."""
    [packaged_file] = files.PACKAGED.iterdir()
    own = root.parent / "course" / "runs" / "findings"
    own.mkdir(parents=True)
    try:
        shutil.copy(packaged_file, own)
        page.open("#/course?chapter=3")
        page.get_by_role("button", name="Save as a page").wait_for()
        assert page.locator(".origin").count() == 0, "found here"
        assert page.locator(".pending").count() == 0
    finally:
        shutil.rmtree(root.parent / "course")


def test_a_chapter_is_read_before_it_is_computed(page: Any, without_findings: Path) -> None:
    """Its text and code are there; a number is a gap, and a figure an empty frame."""
    page.open("#/course?chapter=2")
    page.get_by_text("Check one by hand: the scores are …").wait_for()
    assert page.locator(".pending", has_text="How are you? -> 잘 지내?").count() == 1
    assert page.locator(
        "details summary", has_text="regard.layers.scores.AdditiveAttention"
    ).count()


@pytest.mark.parametrize("language", ["en", "ko"])
def test_no_chapter_shows_its_template(language: str) -> None:
    for chapter in chapters(language):
        texts = [part.get("html", "") for one in unfilled(chapter) for part in one["parts"]]
        prose = [text for text in texts if not text.startswith("<pre")]
        assert prose
        assert not [text for text in prose if "{{" in text or "{%" in text], chapter.number


def test_what_stands_under_a_condition_is_left_out() -> None:
    text = "A{% if x %} b {% if y %}c{% else %}d{% endif %} e{% endif %}. It is {{ n|percent }}."
    assert without_results(text) == "A. It is …."


def test_a_topic_is_found_in_both_languages(page: Any) -> None:
    page.open("#/course")
    field = page.get_by_label("Find a topic")
    field.fill("빔 서치")
    page.locator(".topics dt", has_text="beam search").first.wait_for()
    field.fill("teacher forcing")
    page.locator(".topics dt", has_text="teacher forcing").wait_for()
    page.locator(".topics a", has_text="Chapter 1").first.click()
    page.get_by_role("heading", name="Sequence to sequence: one vector for a sentence").wait_for()
    page.faults.clear()  # a word half typed finds nothing


@pytest.mark.options(locale="ko-KR", viewport={"width": 360, "height": 640})
def test_the_course_on_a_phone(page: Any, computed: Path) -> None:
    for view in ("", "?chapter=1", "?chapter=2"):
        page.open(f"#/course{view}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
