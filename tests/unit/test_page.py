"""The shell of a page: what is escaped, how tables stand, that it needs nothing beside it, and how it is written."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.views.old_page import (
    Html,
    bullets,
    can_write_page,
    columns,
    details,
    element,
    figure,
    page,
    paragraph,
    section,
    shown,
    table,
    write_page,
)

VOID = {"meta", "br", "img", "link"}


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def texts_of(content: str) -> str:
    parser = Balanced()
    parser.feed(content)
    assert parser.open == []
    return "".join(parser.texts)


def test_texts_are_escaped_and_markup_is_not() -> None:
    assert paragraph("a < b & 'c'") == "<p>a &lt; b &amp; &#x27;c&#x27;</p>"
    assert paragraph("x", Html("<b>y</b>")) == "<p>x<b>y</b></p>"
    assert element("a", "here", kind="k", href='x"y') == '<a class="k" href="x&quot;y">here</a>'
    assert bullets(["<one>"]) == "<ul><li>&lt;one&gt;</li></ul>"
    assert "<script>" not in page("<script>", section("<script>", "<script>", table(["<script>"], [["<script>"]])))


def test_a_text_from_outside_survives_the_page_as_it_is() -> None:
    said = '안녕 <b>세상</b> & "모두"'
    content = page(said, paragraph(said), section("둘", details(said, columns(said, figure("<svg></svg>", said)))))
    assert texts_of(content).count(said) == 6  # title, heading, and four in the body


def test_columns_of_numbers_stand_to_the_right() -> None:
    rows = [["가", 1234, "0.5 ± 0.1", "< 0.001", "a1"], ["나", None, "7", "1.0e-5", "2"]]
    content = table(["name", "count", "mean", "p", "mixed"], rows)
    heads = re.findall(r"<th( class=\"number\")?>(\w+)</th>", content)
    assert [name for kind, name in heads if kind] == ["count", "mean", "p"]
    assert '<td class="number">1,234</td>' in content
    assert '<td class="number">–</td>' in content
    assert "<td>a1</td>" in content


def test_numbers_as_they_are_shown() -> None:
    cells = [3, 12345, 0.0, 0.12345, -0.5, 1.0, 1234.567, 1e-5, None, "as it is"]
    assert [shown(cell) for cell in cells] == [
        "3", "12,345", "0.00", "0.123", "-0.5", "1.00", "1,234.57", "1e-05", "–", "as it is",
    ]  # fmt: skip


def test_a_page_needs_nothing_beside_it_and_has_a_dark_side() -> None:
    content = page("title", section("one", "x"))
    assert not re.search(r"https?:|<script|<link|@import|url\(", content)
    assert "prefers-color-scheme: dark" in content
    assert "@media print" in content
    assert '<meta charset="utf-8">' in content
    assert "Noto Sans CJK KR" in content


def test_three_sections_get_a_table_of_contents_after_the_opening() -> None:
    sections = [section("Quality by length", "x"), section("속도", "y"), section("It's: odd!", "z")]
    content = page("title", paragraph("opening"), *sections)
    anchors = re.findall(r'<a href="#([^"]+)">', content)
    assert anchors == ["quality-by-length", "속도", "it-s-odd"]
    assert all(f'<section id="{anchor}">' in content for anchor in anchors)
    assert content.index("opening") < content.index("<nav>") < content.index("<section")
    assert "<nav>" not in page("title", *sections[:2])


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(path, "처음")
    write_page(path, "다시")
    assert path.read_text(encoding="utf-8") == "다시"
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "taken").mkdir()
    with pytest.raises(RegardError, match=r"taken: cannot be written: .*give another --out"):
        write_page(tmp_path / "taken", "x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.pdf", r"report.pdf: cannot write a .pdf \(allowed: .html\)"),
        ("report", r"cannot write a file without suffix"),
        ("folder.html", r"folder.html: this is a folder \(give another --out\)"),
        ("none/report.html", r"there is no folder .*none"),
    ],
)
def test_a_place_that_cannot_hold_a_page_is_refused_before_any_work(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.html").mkdir()
    can_write_page(tmp_path / "report.html")
    with pytest.raises(RegardError, match=message):
        can_write_page(tmp_path / name)
