"""A report of hand-made sections through its four renderers: terminal, page, figures and JSON; heat
maps in detail."""

import base64
import html
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from regard.course.lab import flat  # which imports all results
from regard.errors import RegardError
from regard.views.labels import Metrics, metric_tables, token_label
from regard.views.page import page
from regard.views.picture import BLUES, ORANGES, draw, fonts_for
from regard.views.render import check_output, write_file, write_result
from regard.views.report import (
    MAX_HEAT_MAP_BYTES,
    Bars,
    Cell,
    Curves,
    Figure,
    HeatMap,
    HeatMaps,
    ImageMap,
    Prose,
    Report,
    Result,
    Section,
    Series,
    Table,
    Text,
    json_parts,
)
from regard.views.show import show as show_equation
from regard.views.terminal import SHADES, heat_map_lines, print_report

EVIL = '안녕 <b>세상</b> & "모두" </script><!--'
MAPS = [
    HeatMap(
        ("나는", "간다"),
        ("I", "go", "⏎"),
        np.array([[0.9, 0.1, 0.0], [0.0, 0.5, 0.5]]),
        choice=("source", layer),
    )
    for layer in ("layer 1", "layer 2")
]
FIGURES: dict[str, Figure] = {
    "curves": Curves(
        [
            Series("하나", [0, 1, 2], [1, math.nan, 3], [0, 0, 2], [2, 3, 4]),
            Series("two", [0, 2], [2, 2]),
        ],
        "step",
        "chrF",
        x_ticks=[(0, "1–5"), (2, "6–9")],
    ),
    "bars": Bars(["짧다", "long"], {"search": [1.0, 0.0], "model": [2.0, 1.0]}, "errors"),
    "heat_maps": HeatMaps(MAPS, ["Show", "Layer"], shown=(1,), tokens=["source"]),
    "image_map": ImageMap(
        np.full((4, 4, 3), 200, np.uint8),
        (2, 2),
        ["개", "dog"],
        np.eye(2, 4),
        ["1,1", "1,2", "2,1"],
    ),
}
TABLE = Table(
    ["name", "count", "mean", "p", "mixed"],
    [
        ["가", 1234, "0.5 ± 0.1", "< 0.001", "a1"],
        ["나", None, "7", "1.0e-5", Cell("2", tone="good")],
    ],
)


def report_of(*parts: Any, **options: Any) -> Report:
    return Report("제목", [Section("하나", parts, **options)])


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(3), "3"),
        (Cell(12345), "12,345"),
        (Cell(0.0), "0.00"),
        (Cell(0.12345), "0.123"),
        (Cell(-0.5), "-0.5"),
        (Cell(1234.567), "1,234.57"),
        (Cell(1e-5), "1e-05"),
        (Cell(None), "–"),
        (Cell("as it is"), "as it is"),
        (Cell(0.25, ".1%"), "25.0%"),
        (Cell(2.0, "+.2f"), "+2.00"),
    ],
)
def test_how_a_cell_is_written(cell: Cell, text: str) -> None:
    assert cell.text == text


def unpacked(part: dict[str, Any], number: int) -> Any:
    """A heat map's values as report.js unpacks them."""
    packed = part["maps"][number]
    rows, columns = (len(part["labels"][packed[side]]) for side in ("rows", "columns"))
    if "bits" in packed:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(packed["bits"]), np.uint8))
        return bits[: rows * columns].reshape(rows, columns)
    codes = (
        np.frombuffer(base64.b64decode(packed["cells"]), np.uint8).reshape(rows, -1).astype(float)
    )
    values = packed["peak"] * ((codes - 128) / 127 if packed["signed"] else (codes / 255) ** 2)
    if "places" not in packed:
        return values
    whole = np.zeros((rows, columns))
    places = np.frombuffer(base64.b64decode(packed["places"]), "<u2").reshape(rows, -1)
    np.put_along_axis(whole, places, values, axis=1)
    return whole


def test_packed_heat_maps_keep_values_to_a_255th_of_the_peak() -> None:
    """Masks are packed as bits, and labels are stored once."""
    mask, draw_values = np.tril(np.ones((5, 5))), np.random.default_rng(1).uniform
    maps = [mask, mask / 2, draw_values(0.0, 3.0, (5, 5)), draw_values(-2.0, 3.0, (5, 5))]
    part = HeatMaps([HeatMap("abcde", "abcde", values) for values in maps]).to_json()
    for number, values in enumerate(maps):
        assert np.abs(unpacked(part, number) - values).max() <= 3.0 / 127
    assert [one["signed"] for one in part["maps"]] == [False, False, False, True]
    assert len(base64.b64decode(part["maps"][0]["bits"])) == 4
    assert part["labels"] == [[*"abcde"]]


def test_large_heat_maps_keep_the_largest_values_of_each_row_but_those_shown_are_whole() -> None:
    size, count = 400, 20
    values = np.random.default_rng(2).dirichlet(np.full(size, 0.05), (count, size))
    labels = [str(n) for n in range(size)]
    part = HeatMaps([HeatMap(labels, labels, one) for one in values], shown=(3,)).to_json()
    assert 1 <= part["kept"] < size
    assert (
        sum(len(one["cells"]) + len(one.get("places", "")) for one in part["maps"])
        <= MAX_HEAT_MAP_BYTES * 4 / 3 + 100
    )
    assert "places" not in part["maps"][3]
    found, kept = unpacked(part, 0), part["kept"]
    assert ((found > 0).sum(1) <= kept).all()
    assert (found.argmax(1) == values[0].argmax(1)).mean() > 0.99
    assert part["maps"][0]["share"] == pytest.approx(
        np.sort(values[0], 1)[:, -kept:].sum() / size, abs=1e-3
    )


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order; collects the texts outside scripts and the
    JSON inside."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open and self.open[-1] == "script" else self.texts).append(data)


def test_texts_from_outside_survive_the_page_as_they_are() -> None:
    parts = [
        Text([EVIL, EVIL]),
        Table([EVIL], [[EVIL]], title=EVIL, notes=[EVIL]),
        HeatMaps([HeatMap([EVIL], [EVIL], np.ones((1, 1)))], title=EVIL),
    ]
    found = Balanced(page(Report(EVIL, [Section(EVIL, parts)], opening=EVIL, conclusions=[EVIL])))
    assert (
        "".join(found.texts).count(EVIL) == 12
    )  # two titles, opening, conclusion, heading, and seven in the parts
    assert json.loads(found.scripts[0])["labels"] == [[EVIL]]


def test_a_notebook_shows_the_page_in_a_frame_as_it_is() -> None:
    for result in (
        Report(EVIL, [Section("", [Text([EVIL])])]),
        show_equation("masks"),
        Metrics({EVIL: 1, "n": EVIL}),
    ):
        report = result if isinstance(result, Report) else result.report()
        [framed] = re.findall(r'srcdoc="([^"]*)"', result._repr_html_())
        assert html.unescape(framed) == page(report)
    assert "".join(Balanced(html.unescape(framed)).texts).count(EVIL) == 2


def test_every_result_displays_itself() -> None:
    others = {
        kind.__name__ for kind in Result.__subclasses__() if kind.__repr__ is not Result.__repr__
    }
    assert others == {"Metrics"}  # a dict
    assert repr(report_of(TABLE, Text(["a"]))).splitlines()[-1] == "a"
    metrics = {"f1": 0.5, "confusion": {"a": {"a": 3}, "나": {"a": 0}}, "by": {"x": 1, "y": 0}}
    table, confusion, other = metric_tables(metrics)
    assert table.rows == [("f1", Cell("0.5000"))]
    assert (confusion.columns, confusion.rows) == (["confusion", "a"], [["a", "3"], ["나", "0"]])
    assert (other.columns, other.rows) == (["by", "value"], [["x", "1"], ["y", "0"]])


def test_tables_of_a_page() -> None:
    """Columns of numbers, or of texts made of numbers, stand to the right; a folded table opens by
    its title."""
    content = page(report_of(TABLE, Table(["a"], [[1]], title="The numbers", folded=True)))
    assert re.findall(r'<th class="number">(\w+)</th>', content) == ["count", "mean", "p", "a"]
    assert '<td class="number ">1,234</td>' in content
    assert '<td class="good">2</td>' in content
    assert "<details><summary>The numbers</summary>" in content
    assert "<h3>" not in content


def test_tokens_and_options_are_not_broken_over_lines() -> None:
    parts = [
        Table([""], [["▁잘 ▁<b>"]]),
        Prose("`--length-penalty` 1, [a](b--c)"),
        Text(["try (--beam)를 - -- ok"]),
    ]
    content = page(Report("", [Section("", parts)], conclusions=["a lower --beam"]))
    found = re.findall(r'<span class="nowrap">(.*?)</span>', content)
    assert found == ["--beam", "▁잘", "▁&lt;b&gt;", "--length-penalty", "--beam)를"]
    assert '<a href="b--c">' in content


def test_a_page_needs_nothing_beside_it_and_can_be_dark_or_printed() -> None:
    content = page(report_of(*FIGURES.values()))
    assert not re.search(
        r"https?:|<link|@import|url\(| src=", content.replace("http://www.w3.org/2000/svg", "")
    )
    for wanted in (
        "prefers-color-scheme: dark",
        "@media print",
        '<meta charset="utf-8">',
        "Noto Sans CJK KR",
    ):
        assert wanted in content
    drawn = [json.loads(text) for text in Balanced(content).scripts[:-1]]
    assert [part["kind"] for part in drawn] == list(FIGURES)
    assert drawn[0]["series"][0]["y"] == [1, None, 3]


def test_three_sections_get_a_table_of_contents_after_the_opening() -> None:
    sections = [
        Section(heading, [Text(["x"])]) for heading in ("Quality by length", "속도", "It's: odd!")
    ]
    content = page(Report("title", sections, opening="opening"))
    anchors = re.findall(r'<a href="#([^"]+)">', content)
    assert anchors == ["quality-by-length", "속도", "it-s-odd"]
    assert all(f'<section id="{anchor}">' in content for anchor in anchors)
    assert content.index("opening") < content.index("<nav>") < content.index("<section")
    assert "<nav>" not in page(Report("title", sections[:2]))


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_a_browser_draws_every_figure(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(report_of(*FIGURES.values())), encoding="utf-8")
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-sync",
        "--disable-background-networking",
        "--disable-component-update",
        "--dump-dom",
        f"file://{tmp_path / 'page.html'}",
    ]
    content = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout
    for pattern, count in (
        (r'<path class="curve"', 5),  # a line in two pieces, another, and two in the legend
        (r'<path class="band"', 1),
        (r'data-tip="하나: 6–9, 3 \(2 – 4\)"', 1),
        (r'data-tip="search, 짧다: 1"', 1),
        (r"<select>", 2),
        (r'<label hidden="">Show<select><option value="source">', 1),
        (r'<button type="button" aria-pressed="true">나는</button>', 1),
        (r'<span [^>]*data-tip="0.90"[^>]*>I</span>', 1),
        (r"<canvas", 1 + 3),
    ):
        assert len(re.findall(pattern, content)) >= count, pattern


def shown(report: Report, width: int) -> list[str]:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=width, highlight=False, soft_wrap=True))
    return stream.getvalue().splitlines()


def test_the_terminal_leaves_out_columns_of_numbers_that_do_not_fit_and_names_them() -> None:
    table = Table(
        ["system", *(f"metric {n}" for n in range(5))], [["긴 이름의 모델", *[123.456] * 5]]
    )
    wide, narrow = shown(report_of(table), 200), shown(report_of(table), 40)
    assert sum(line.count("123.46") for line in wide) == 5
    assert not any("too wide" in line for line in wide)
    assert 1 <= sum(line.count("123.46") for line in narrow) < 5
    assert "too wide for this terminal: metric" in narrow[-1]
    assert all(cell_len(line) <= 40 for line in narrow[:-1])


@pytest.mark.parametrize("width", [40, 60, 80])
def test_long_texts_and_names_are_folded_not_cut(width: int) -> None:
    name = "a-system-with-a-very-long-name-of-its-own"
    tables = Table(["system", "BLEU"], [[name, 12.5]]), Table(["", ""], [["", "가나다라 " * 30]])
    lines = shown(report_of(*tables), width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).count("가나다라") == 30
    assert name in "".join(
        line.split()[0] for line in lines if line[:2] == "  " and line[2:3].strip()
    )
    assert any("12.50" in line for line in lines)


def test_the_terminal_shows_some_parts_and_ends_with_the_conclusions() -> None:
    section = Section("heading", [Text(["one"]), Text(["two"])], in_terminal=1)
    report = Report(
        "title", [section, Section("none", [Text(["three"])], in_terminal=0)], "first", ["last [b]"]
    )
    assert shown(report, 80) == ["first", "heading", "one", "  last [b]"]


def test_texts_of_a_section_stand_under_its_heading_in_a_chapter() -> None:
    sections = [
        Section("1. The query", [Table(["q"], [[1]])]),
        Section("2. The keys", [Text(["e"]), Table(["k"], [[2]])]),
    ]
    parts = flat(Report("title", sections))
    assert [getattr(part, "title", "e") for part in parts] == ["1. The query", "2. The keys", "e"]


def test_bars_and_regions_in_the_terminal() -> None:
    lines = shown(report_of(Bars(["a", "나"], {"falls": [0.5, -0.25]})), 50)
    assert [(line.count("█"), line.count("▒")) for line in lines[1:]] == [(38, 0), (0, 19)]
    lines = shown(report_of(Bars(["T = 1"], {"score 2": [0.75], "score 1": [0.25]})), 55)
    assert lines[1:] == ["█ score 2  ▒ score 1", f"T = 1 {'█' * 30}{'▒' * 10}"]
    assert "1,2" in "\n".join(shown(report_of(FIGURES["image_map"]), 80))


@pytest.mark.parametrize(
    ("kind", "text"), zip(FIGURES, ("하나", "짧다", "나는", "개"), strict=True)
)
def test_every_figure_becomes_a_picture(kind: str, text: str, tmp_path: Path) -> None:
    svg, again = (draw([FIGURES[kind]], tmp_path / "picture.svg") for _ in range(2))
    assert text in "".join(ElementTree.fromstring(svg).itertext())
    assert svg == again  # no date, no random names
    assert draw([FIGURES[kind]], tmp_path / "picture.png").startswith(b"\x89PNG")


def test_the_axis_of_curves_does_not_magnify_rounding(tmp_path: Path) -> None:
    """matplotlib alone would draw 0.9999998 to 1 over the whole height, under the axis 1e-7+1."""
    svg = draw(
        [Curves([Series("cosine", [0, 1, 2], [1.0, 0.9999999, 0.9999998])], "", "")],
        tmp_path / "x.svg",
    )
    assert {"0.996", "1.004"} <= {text.strip() for text in ElementTree.fromstring(svg).itertext()}


def test_korean_is_drawn_on_a_machine_without_fonts(tmp_path: Path) -> None:
    """With the fonts of matplotlib and regard alone. Missing letters would all be drawn as the same
    box."""
    program = """
import sys
from pathlib import Path
from regard.views.picture import draw, fonts_for
from regard.views.report import Bars
for number, text in enumerate(("가", "됬", "힣", "ㄱ", "。")):
    file = Path(sys.argv[1], f"{number}.png")
    file.write_bytes(draw([Bars([text], {"": [1.0]}, "")], file))
endings = [n for n in range(28) if n not in {3, 5, 6, 9, 10, 11, 12, 13, 14, 15, 18}]  # no two different consonants
syllables = "값닭많" + "".join(chr(code) for code in range(0xAC00, 0xD7A4) if (code - 0xAC00) % 28 in endings)
print(*fonts_for("a \u1100 " + syllables, file), sep=", ")
"""
    (tmp_path / "fonts.conf").write_text('<?xml version="1.0"?><fontconfig></fontconfig>')
    bare = {
        "FONTCONFIG_FILE": str(tmp_path / "fonts.conf"),
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=os.environ | bare,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "DejaVu Sans, Regard Sans KR\n"
    assert done.stderr == ""
    assert len({file.read_bytes() for file in tmp_path.glob("*.png")}) == 5


def test_a_svg_names_fonts_that_readers_have(tmp_path: Path) -> None:
    svg = draw([Curves([Series("", [0, 1], [0, 1])], "스텝", "y")], tmp_path / "x.svg").decode()
    assert "'DejaVu Sans', 'Noto Sans CJK KR', 'Noto Sans KR'" in svg
    assert "'NanumGothic', sans-serif" in svg
    assert "Regard Sans KR" not in svg
    ElementTree.fromstring(svg)


def test_a_letter_that_no_font_has_is_refused_only_where_it_would_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="no installed font has \U000e0fff"):
        fonts_for("a\U000e0fff", tmp_path / "x.png")
    assert fonts_for("a\U000e0fff", tmp_path / "x.svg", strict=False)[0] == "DejaVu Sans"


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        (".html", "<!DOCTYPE html>"),
        (".HTM", "<!DOCTYPE html>"),
        (".svg", "<?xml"),
        (".json", '{"말": 1}\n'),
    ],
)
def test_a_result_is_written_in_the_format_of_the_suffix(
    tmp_path: Path, suffix: str, start: str
) -> None:
    result: Any = SimpleNamespace(
        to_json=lambda: {"말": 1}, report=lambda: report_of(FIGURES["bars"])
    )
    for _ in range(2):  # what is there is replaced
        write_result(result, tmp_path / f"out{suffix}")
    assert [path.read_text(encoding="utf-8")[: len(start)] for path in tmp_path.iterdir()] == [
        start
    ]
    (tmp_path / "taken").mkdir()
    with pytest.raises(RegardError, match=r"taken: cannot be written: .*give another --csv"):
        write_file(tmp_path / "taken", [b"x"], option="--csv")


def test_a_missing_matplotlib_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        RegardError, match=r"needs the library 'matplotlib' \(pip install 'regard\[plots\]'\)"
    ):
        check_output(tmp_path / "x.svg", [".svg"])


def test_json_in_parts_has_four_digits_and_a_row_a_part() -> None:
    a, b = np.array([[1 / 3, 2e-9], [12345.6, 0]]), [1, 0.123456, None, "한"]
    parts = [*json_parts({"a": a, "b": b, "c": {}, "d": (), "e": np.eye(1) > 0})]
    assert "[0.3333, 2e-09]" in parts
    assert json.loads("".join(parts)) == {
        "a": [[0.3333, 2e-9], [12350.0, 0]],
        "b": [1, 0.1235, None, "한"],
        "c": {},
        "d": [],
        "e": [[1]],
    }


# Heat maps of attention: labels of tokens, maps in the terminal, the scale of colours, pictures of
# any text

SVG = "{http://www.w3.org/2000/svg}"


def heat_map(
    source: list[str], target: list[str], weights: object = None, title: str = "", seed: int = 0
) -> HeatMap:
    """Attention of `target` to `source`; random unless given."""
    if weights is None:
        weights = np.random.default_rng(seed).dirichlet(np.full(len(source), 0.3), size=len(target))
    return HeatMap(
        [*map(token_label, target)], [*map(token_label, source)], np.asarray(weights), title
    )


DATE = heat_map(
    [*"3월 5일", "</s>"],
    [*"03-05", "</s>"],
    [
        [0.25, 0.75, 0.00, 0.00, 0.00, 0.00],
        [1.00, 0.00, 0.00, 0.00, 0.00, 0.00],
        [0.00, 0.42, 0.58, 0.00, 0.00, 0.00],
        [0.00, 0.00, 0.11, 0.89, 0.00, 0.00],
        [0.00, 0.00, 0.00, 1.00, 0.00, 0.00],
        [0.00, 0.00, 0.00, 0.00, 0.01, 0.99],
    ],
    title="3월 5일 → 03-05",
)


def display_width(text: str) -> int:
    """Columns of a terminal, from the Unicode tables of Python (the renderer uses those of
    rich)."""
    wide = {"W": 2, "F": 2}
    return sum(
        0 if unicodedata.combining(c) else wide.get(unicodedata.east_asian_width(c), 1)
        for c in text
    )


def grid_rows(lines: list[str]) -> list[tuple[str, str]]:
    """(label, cells) of each row of blocks."""
    return [row for line in lines for row in re.findall(r"^(.*?)│(.*)│$", line)]


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" ", "␣"),
        ("▁", "␣"),
        ("\u3000", "␣"),
        ("\n", "␣"),
        ("", "␣"),
        ("</s>", "⏎"),
        ("<unk>", "<unk>"),
        ("▁Haus", "▁Haus"),
        ("화", "화"),
        ("\u1112\u116a", "화"),  # the same syllable in letters
        ("a\x1b[31m", "a�[31m"),
        ("\x00", "�"),
        ("\ud800", "�"),
        ("\u0301", "◌\u0301"),
        ("👩\u200d🚀", "👩🚀"),
        ("\u202eabc", "abc"),
        ("\u200d", "◌"),
    ],
)
def test_a_token_is_shown_visibly_and_harmlessly(piece: str, shown: str) -> None:
    assert token_label(piece) == shown


def test_the_terminal_map_by_hand() -> None:
    assert heat_map_lines(DATE, width=80) == [
        "3월 5일 → 03-05",
        "  3  월 ␣  5  일 ⏎   ",
        "0│···▓▓▓            │",
        "3│███               │",
        "-│   ░░░▒▒▒         │",
        "0│      ···▓▓▓      │",
        "5│         ███      │",
        "⏎│               ███│",
        "",
        "0  ·░▒▓█ 1.00",
    ]


def test_long_labels_run_downwards_and_are_shortened() -> None:
    lines = heat_map_lines(
        heat_map(["▁ab", "각\u0301나", "c"], ["▁x"], [[0.0, 1.0, 0.0]]), width=80
    )
    assert lines[:4] == ["   ▁         ", "   a  각\u0301     ", "   b  나 c   ", "▁x│   ███   │"]
    lines = heat_map_lines(
        heat_map(["Donaudampfschifffahrt"], ["Donaudampfschifffahrt"], [[1.0]]), width=40
    )
    assert "".join(line.strip() for line in lines[:12]) == "Donaudampfs…"
    assert lines[12] == "Donaudampfsc…│██│"


TOKEN = st.text(alphabet="aZ▁.<&가힣漢字é\u0301\u0323\x1b\r", max_size=16)
TOKENS = st.lists(
    TOKEN | st.sampled_from(["</s>", "<unk>", " ", "▁", "▁화요일"]), min_size=1, max_size=40
)


@settings(max_examples=60)
@given(source=TOKENS, target=TOKENS, width=st.integers(6, 120), seed=st.integers(0, 9))
def test_panels_fit_and_show_every_cell(
    source: list[str], target: list[str], width: int, seed: int
) -> None:
    drawn = heat_map(source, target, title="제목: \x1b]0;title\x07", seed=seed)
    lines = heat_map_lines(drawn, width)
    assert max(map(display_width, lines)) <= width
    assert not {c for c in "".join(lines) if unicodedata.category(c) == "Cc"}, (
        "no token steers the terminal"
    )
    for panel in "\n".join(lines[1:]).split("\n\n")[:-1]:
        assert len({display_width(line) for line in panel.split("\n")}) == 1
    rows = grid_rows(lines)
    joined = ["".join(cells for _, cells in rows[t :: len(target)]) for t in range(len(target))]
    fullness = np.array([[SHADES.index(block) for block in row] for row in joined])
    cell, rest = divmod(fullness.shape[1], len(source))
    assert (fullness.shape[0], cell in (2, 3), rest) == (len(target), True, 0)
    fullness = fullness.reshape(len(target), len(source), cell)
    assert (fullness == fullness[..., :1]).all()
    order = np.argsort(drawn.values, axis=None)
    assert (np.diff(fullness[..., 0].flatten()[order]) >= 0).all()
    assert fullness[..., 0].flatten()[order[-1]] == len(SHADES) - 1


@pytest.mark.parametrize(("width", "panels"), [(80, [10]), (21, [5, 5])])
def test_a_narrow_terminal_gets_panels_of_even_size(width: int, panels: list[int]) -> None:
    lines = heat_map_lines(heat_map([*"abcdefghij"], ["x"]), width)
    assert [len(cells) // 2 for _, cells in grid_rows(lines)] == panels


@pytest.mark.parametrize(("names", "tolerance"), [(BLUES, 0.4), (ORANGES, 1.1)])
def test_the_scale_goes_from_white_to_dark_in_even_steps_of_lightness(
    names: tuple[str, ...], tolerance: float
) -> None:
    """CIE 1976 L* of sRGB colours."""
    encoded = np.array([list(bytes.fromhex(name)) for name in names]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = np.where(luminance > 0.008856, 116 * luminance ** (1 / 3) - 16, 903.3 * luminance)
    assert lightness[0] == pytest.approx(100, abs=0.01)
    assert np.diff(lightness) == pytest.approx(np.full(8, -10.25), abs=tolerance)


@settings(max_examples=10)
@given(source=st.lists(st.text(max_size=12), min_size=1, max_size=6), title=st.text(max_size=200))
def test_svg_of_any_text_is_xml_with_every_label_as_text(source: list[str], title: str) -> None:
    pytest.importorskip("matplotlib")
    drawn = heat_map(source, source, title=title)
    root = ElementTree.fromstring(draw([HeatMaps([drawn])], Path("x.svg")))
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert sum(texts.count(text) for text in {token_label(piece) for piece in source}) >= 2 * len(
        source
    )


@pytest.mark.parametrize("size", [(2, 2), (3, 30)])
@pytest.mark.parametrize(
    "title",
    [
        "지난 정부가 임명한 위원회는 내년 예산에 관한 긴 토론 끝에 어제 모두 물러났다 → The "
        "committee "
        "resigned",
        "Donaudampfschifffahrtsgesellschaft" * 5,
        "WWW MMM " * 40,
    ],
    ids=["words", "one word", "capitals"],
)
def test_a_long_title_ends_inside_its_png(title: str, size: tuple[int, int]) -> None:
    images = pytest.importorskip("matplotlib.image")
    rows, columns = (
        [f"{name}{n}" for n in range(count)] for name, count in zip("rc", size, strict=True)
    )
    one, wide = (
        HeatMap(rows, columns, np.zeros(size), title, label_width=width) for width in (18, 60)
    )
    for maps in ([one] * 3, [wide]):
        content = draw([HeatMaps(maps, shown=range(len(maps)))], Path("x.png"))
        pixels = images.imread(io.BytesIO(content))[..., :3]
        for edge in (pixels[:, :3], pixels[:, -3:], pixels[:2]):
            assert edge.min() == 1, "something runs over the edge"


def test_an_equation_among_paragraphs_is_mathematics_for_the_studio() -> None:
    told = Text(["The score:", "e_ij = v_a . tanh(W_a s_i)"]).to_json()
    assert [*told["equations"]] == ["1"]
    assert told["equations"]["1"].startswith("<math")
