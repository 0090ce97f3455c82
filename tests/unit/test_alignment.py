"""Alignment pictures: plain data in, a terminal picture or an SVG out."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from regard.errors import RegardError
from regard.views.alignment import Alignment, to_svg, to_terminal, write_svg
from regard.views.heatmap import colour
from regard.views.labels import clean, label, text_width, wrap
from regard.views.old_terminal import SHADES

SVG = "{http://www.w3.org/2000/svg}"

DATE = Alignment(
    source=(*"3월 5일", "</s>"),
    target=(*"03-05", "</s>"),
    weights=np.array(
        [
            [0.25, 0.75, 0.00, 0.00, 0.00, 0.00],
            [1.00, 0.00, 0.00, 0.00, 0.00, 0.00],
            [0.00, 0.42, 0.58, 0.00, 0.00, 0.00],
            [0.00, 0.00, 0.11, 0.89, 0.00, 0.00],
            [0.00, 0.00, 0.00, 1.00, 0.00, 0.00],
            [0.00, 0.00, 0.00, 0.00, 0.01, 0.99],
        ]
    ),
    title="3월 5일 → 03-05",
)


def display_width(text: str) -> int:
    """Columns of a terminal, from the Unicode tables of Python (the pictures count with those of rich)."""
    wide = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(c) else wide.get(unicodedata.east_asian_width(c), 1) for c in text)


def grid_rows(picture: str) -> list[tuple[str, str]]:
    """(label, cells) of each row of blocks."""
    return re.findall(r"^(.*?)│(.*)│$", picture, flags=re.MULTILINE)


def random_alignment(source: list[str], target: list[str], seed: int = 0, title: str = "") -> Alignment:
    weights = np.random.default_rng(seed).dirichlet(np.full(len(source), 0.3), size=len(target))
    return Alignment(tuple(source), tuple(target), weights, title)


def drawn_cells(picture: str) -> list[tuple[float, float, str, str]]:
    """(x, y, fill, tooltip) of each cell in an SVG."""
    group = ElementTree.fromstring(picture).find(f"{SVG}g[@class='cells']")
    assert group is not None
    return [
        (float(cell.attrib["x"]), float(cell.attrib["y"]), cell.attrib["fill"], cell.findtext(f"{SVG}title") or "")
        for cell in group
    ]


def texts(picture: str, group: str) -> list[str]:
    found = ElementTree.fromstring(picture).find(f"{SVG}g[@class='{group}']")
    assert found is not None
    return ["".join(text.itertext()) for text in found.iter(f"{SVG}text")]


def lightness(fill: str) -> float:
    """CIE 1976 L* of an sRGB colour."""
    encoded = [int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in encoded)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


# -------------------------------------------------------------------------------------------------------- the data


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, 0.5]], r"\(1, 2\) for 2 target, 2 source"),
        ([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], r"\(2, 3\) for 2 target, 2 source"),
        ([0.5, 0.5], r"\(2,\) for"),
        ([[0.5, 0.5], [0.9, 0.15]], r"but 1 \('b'\) to 1\.05"),
        ([[0.5, 0.5], [1.2, -0.2]], "0 or more"),
        ([[0.5, 0.5], [float("nan"), 1.0]], "0 or more"),
        ([[0.5, 0.5], [float("inf"), 0.0]], r"but 1 \('b'\) to inf"),
    ],
)
def test_weights_that_are_no_alignment_are_refused(weights: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Alignment(("x", "y"), ("a", "b"), np.array(weights))


def test_an_alignment_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Alignment((), ("a",), np.zeros((1, 0)))
    with pytest.raises(ValueError, match="at least one"):
        Alignment(("x",), (), np.zeros((0, 1)))


def test_rows_may_exceed_1_by_what_half_precision_misses_it() -> None:
    assert Alignment(("x", "y"), ("a",), np.array([[0.5, 0.5009]])).peak == 0.5009
    with pytest.raises(ValueError, match="at most 1"):
        Alignment(("x", "y"), ("a",), np.array([[0.5, 0.502]]))


def test_rows_may_sum_to_less_than_1_as_those_of_a_predicted_window_do() -> None:
    damped = Alignment(("x", "y"), ("a", "b"), np.array([[0.4, 0.1], [0.2, 0.1]]))
    assert damped.weights.sum(axis=1) == pytest.approx([0.5, 0.3])
    assert damped.peak == 0.4


def test_an_alignment_keeps_its_own_weights() -> None:
    weights = np.array([[0.25, 0.75]], dtype=np.float32)
    alignment = Alignment(("x", "y"), ("a",), weights)
    weights[:] = 0
    assert alignment.weights.tolist() == [[0.25, 0.75]]
    with pytest.raises(ValueError, match="read-only"):
        alignment.weights[0, 0] = 1


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
def test_a_piece_is_shown_visibly_and_harmlessly(piece: str, shown: str) -> None:
    assert label(piece) == shown


# -------------------------------------------------------------------------------------------------------- terminal


def test_the_terminal_picture_by_hand() -> None:
    assert to_terminal(DATE, width=80).split("\n") == [
        "3월 5일 → 03-05",
        "  3 월␣ 5 일⏎  ",
        "0│··▓▓        │",
        "3│██          │",
        "-│  ░░▒▒      │",
        "0│    ··▓▓    │",
        "5│      ██    │",
        "⏎│          ██│",
        "",
        "0  ·░▒▓█ 1.00",
        "",
    ]


def test_long_labels_run_downwards_and_end_at_the_grid() -> None:
    alignment = Alignment(("▁ab", "각\u0301나", "c"), ("▁x",), np.array([[0.0, 1.0, 0.0]]))
    assert to_terminal(alignment, width=80).split("\n")[:4] == [
        "   ▁      ",
        "   a 각\u0301   ",
        "   b 나c  ",
        "▁x│  ██  │",
    ]


def test_a_piece_too_long_for_a_label_is_shortened() -> None:
    alignment = Alignment(("Donaudampfschifffahrt",), ("Donaudampfschifffahrt",), np.ones((1, 1)))
    lines = to_terminal(alignment, width=40).splitlines()
    assert "".join(line.strip() for line in lines[:12]) == "Donaudampfs…"
    assert lines[12] == "Donaudampfsc…│██│"


def test_shades_are_of_the_largest_weight() -> None:
    flat = Alignment(tuple("abcd"), ("x", "y"), np.array([[0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]]))
    picture = to_terminal(flat, width=80)
    assert grid_rows(picture) == [("x", "██▓▓░░··"), ("y", "▒▒▒▒▒▒▒▒")]
    assert picture.endswith("0.40\n")


PIECES = st.lists(
    st.text(alphabet="aZ▁.<&가힣漢字é\u0301\u0323", max_size=16)
    | st.sampled_from(["</s>", "<unk>", " ", "▁", "▁화요일"]),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(source=PIECES, target=PIECES, width=st.integers(6, 120), seed=st.integers(0, 9))
def test_every_line_of_a_panel_is_as_wide_as_the_others_and_fits(
    source: list[str], target: list[str], width: int, seed: int
) -> None:
    picture = to_terminal(random_alignment(source, target, seed, title="제목: the title"), width)
    panels = picture.split("\n", 1)[1].split("\n\n")[:-1]
    for panel in panels:
        assert len({display_width(line) for line in panel.split("\n")}) == 1
    assert max(display_width(line) for line in picture.split("\n")) <= width


@settings(max_examples=60)
@given(source=PIECES, target=PIECES, width=st.integers(6, 120), seed=st.integers(0, 9))
def test_panels_together_show_every_cell_and_fuller_blocks_for_larger_weights(
    source: list[str], target: list[str], width: int, seed: int
) -> None:
    alignment = random_alignment(source, target, seed)
    rows = grid_rows(to_terminal(alignment, width))
    assert len(rows) % len(target) == 0
    joined = ["".join(cells for _, cells in rows[t :: len(target)]) for t in range(len(target))]
    fullness = np.array([[SHADES.index(block) for block in row] for row in joined])
    assert fullness.shape == (len(target), 2 * len(source))
    assert (fullness[:, ::2] == fullness[:, 1::2]).all()
    order = np.argsort(alignment.weights, axis=None)
    assert (np.diff(fullness[:, ::2].flatten()[order]) >= 0).all()
    assert fullness[:, ::2].flatten()[order[-1]] == len(SHADES) - 1


def test_a_narrow_terminal_gets_panels_of_even_size() -> None:
    alignment = random_alignment(list("abcdefghij"), ["x"])
    assert [len(cells) // 2 for _, cells in grid_rows(to_terminal(alignment, width=80))] == [10]
    assert [len(cells) // 2 for _, cells in grid_rows(to_terminal(alignment, width=21))] == [5, 5]
    headers = to_terminal(alignment, width=21).split("\n")[::3]
    assert headers[:2] == ["  a b c d e  ", "  f g h i j  "]


def test_the_terminal_picture_takes_the_terminals_width(monkeypatch: pytest.MonkeyPatch) -> None:
    alignment = random_alignment(list("abcdefghij"), ["x"])
    monkeypatch.setenv("COLUMNS", "21")
    assert to_terminal(alignment) == to_terminal(alignment, width=21)


def test_a_piece_cannot_steer_the_terminal() -> None:
    alignment = Alignment(("\x1b[2J", "b"), ("\r", "\x07"), np.full((2, 2), 0.5), title="\x1b]0;title\x07")
    assert not {c for c in to_terminal(alignment, 80) if unicodedata.category(c) == "Cc"} - {"\n"}


# ------------------------------------------------------------------------------------------------------------- SVG


def test_svg_has_a_cell_for_each_weight_that_can_be_seen() -> None:
    cells = drawn_cells(to_svg(DATE))
    assert len(cells) == int((DATE.weights >= 0.005).sum()) == 10
    full = random_alignment(list("abcdefg"), list("uvwxyz"))
    even = Alignment(full.source, full.target, np.full((6, 7), 1 / 7))
    assert len(drawn_cells(to_svg(even))) == 6 * 7


def test_the_flattest_attention_does_not_vanish() -> None:
    flat = Alignment(("a",) * 400, ("x",), np.full((1, 400), 1 / 400))
    assert {(fill, tooltip) for *_, fill, tooltip in drawn_cells(to_svg(flat))} == {(colour(1), "a -> x: 0.003")}
    assert len(drawn_cells(to_svg(flat))) == 400
    assert {cells for _, cells in grid_rows(to_terminal(flat, width=803))} == {"█" * 800}


def test_svg_cells_stand_in_their_row_and_column() -> None:
    cells = drawn_cells(to_svg(DATE))
    left, top = min(x for x, *_ in cells), min(y for _, y, *_ in cells)
    size = 30
    places = [((y - top) / size, (x - left) / size) for x, y, *_ in cells]
    assert places == [tuple(place) for place in np.argwhere(DATE.weights >= 0.005).tolist()]


def test_svg_tooltips_say_source_target_and_weight() -> None:
    tooltips = [tooltip for *_, tooltip in drawn_cells(to_svg(DATE))]
    assert tooltips[:5] == ["3 -> 0: 0.25", "월 -> 0: 0.75", "3 -> 3: 1.00", "월 -> -: 0.42", "␣ -> -: 0.58"]
    assert tooltips[-2:] == ["일 -> ⏎: 0.01", "⏎ -> ⏎: 0.99"]


def test_svg_is_darkest_where_the_weight_is_largest() -> None:
    alignment = random_alignment(list("abcdefgh"), list("xyz"), seed=3)
    shades = [lightness(fill) for _, _, fill, _ in drawn_cells(to_svg(alignment))]
    weights = alignment.weights[alignment.weights >= 0.005 * alignment.peak]
    darkest_last = np.array(shades)[np.argsort(weights)]
    assert (np.diff(darkest_last) <= 0).all()
    assert darkest_last[-1] == lightness(colour(1.0)) < 20 < 90 < darkest_last[0]


def test_the_scale_goes_from_white_to_dark_in_even_steps_of_lightness() -> None:
    assert colour(0) == "#ffffff"
    steps = -np.diff([lightness(colour(share)) for share in np.linspace(0, 1, 33)])
    assert steps.sum() > 80
    assert steps == pytest.approx(np.full(32, steps.mean()), abs=0.4)


def test_svg_shows_every_label_as_text() -> None:
    picture = to_svg(DATE)
    assert texts(picture, "columns") == ["3", "월", "␣", "5", "일", "⏎"]
    assert texts(picture, "rows") == ["0", "3", "-", "0", "5", "⏎"]
    assert texts(picture, "legend") == ["0", "1.00"]
    assert "3월 5일 → 03-05" in [text.text for text in ElementTree.fromstring(picture).findall(f"{SVG}text")]
    assert texts(to_svg(Alignment(("▁Haus",), ("▁_a",), np.ones((1, 1)))), "rows") == ["__a"]


def test_svg_labels_are_turned_only_where_they_do_not_fit() -> None:
    assert "rotate" not in to_svg(DATE)
    assert to_svg(Alignment(("Haus", "x"), ("a",), np.array([[0.5, 0.5]]))).count("rotate(-60)") == 2


def test_svg_escapes_what_xml_would_read() -> None:
    pieces = ("<unk>", "&amp;", "\"'", "]]>", "\x00")
    alignment = Alignment(pieces, pieces, np.eye(5), title="a \"b\" & 'c' <d>\x01")
    picture = to_svg(alignment)
    root = ElementTree.fromstring(picture)
    assert root.attrib["aria-label"] == "a \"b\" & 'c' <d>�"
    assert texts(picture, "columns") == texts(picture, "rows") == ["<unk>", "&amp;", "\"'", "]]>", "�"]
    assert [tooltip for *_, tooltip in drawn_cells(picture)][:2] == ["<unk> -> <unk>: 1.00", "&amp; -> &amp;: 1.00"]


@settings(max_examples=40)
@given(source=st.lists(st.text(max_size=12), min_size=1, max_size=6), title=st.text(max_size=200))
def test_svg_of_any_text_is_xml_with_a_label_for_each_piece(source: list[str], title: str) -> None:
    picture = to_svg(random_alignment(source, source, title=title))
    assert len(texts(picture, "columns")) == len(source)
    picture.encode("utf-8")


@pytest.mark.parametrize("size", [1, 5, 25, 60])
def test_svg_keeps_to_its_page_and_needs_nothing_beside_it(size: int) -> None:
    picture = to_svg(random_alignment(["▁Wörter", "화요일", "x"] * size, ["한국어"] * size, title="long title " * 40))
    root = ElementTree.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {width:g} {height:g}"
    for rectangle in root.iter(f"{SVG}rect"):
        assert float(rectangle.get("x", 0)) + float(rectangle.attrib["width"]) <= width
        assert float(rectangle.get("y", 0)) + float(rectangle.attrib["height"]) <= height
    background = root.find(f"{SVG}rect")
    assert background is not None
    assert background.attrib == {"width": f"{width:g}", "height": f"{height:g}", "fill": "#ffffff"}
    assert re.findall(r"https?://[^\"]*|href=(?!.data:)|url\(", picture) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("size", [1, 4, 20])
def test_svg_titles_break_into_lines_that_fit(size: int) -> None:
    title = "지난 정부가 임명한 위원회는 어제 물러났다 → The committee that they had appointed resigned yesterday"
    root = ElementTree.fromstring(to_svg(random_alignment(["한"] * size, ["a"] * size, title=title)))
    lines = [text for text in root.findall(f"{SVG}text") if text.get("font-weight") == "bold"]
    width, ys = float(root.attrib["width"]), [float(text.attrib["y"]) for text in lines]
    assert all(float(text.attrib["x"]) + text_width(text.text or "", 17) <= width for text in lines)
    assert ys == sorted(set(ys))
    cells = min(
        float(y) for _, y, *_ in drawn_cells(to_svg(random_alignment(["한"] * size, ["a"] * size, title=title)))
    )
    assert ys[-1] < cells
    shown = " ".join(text.text or "" for text in lines)
    assert title.startswith(shown.removesuffix("…").strip())
    assert len(shown) > 60, "a narrow picture, too, says what it is about"


def test_lines_break_at_blanks() -> None:
    assert wrap("one two three four", 9, 3) == ["one two", "three", "four"]
    assert wrap("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrap("가나 다라마 바사", 9, 9) == ["가나", "다라마", "바사"]
    assert wrap("abcdefghij klm", 5, 9) == ["abcde", "fghij", "klm"]
    assert wrap("short", 9, 2) == ["short"]


@given(text=st.text("ab 가é\u0301", max_size=60), width=st.integers(2, 20), lines=st.integers(1, 5))
def test_lines_hold_the_text_from_its_beginning(text: str, width: int, lines: int) -> None:
    text = clean(text)
    found = wrap(text, width, lines)
    assert len(found) <= lines
    assert all(cell_len(line) <= width for line in found)
    letters = "".join("".join(found).removesuffix("…").split())
    assert "".join(text.split()).startswith(letters)
    assert "…" in found[-1] or letters == "".join(text.split())


# ------------------------------------------------------------------------------------------------------------ files


def test_write_svg_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "attention.svg"
    path.write_text("old")
    write_svg(DATE, str(path))
    assert path.read_bytes().decode("utf-8") == to_svg(DATE)
    assert os.listdir(tmp_path) == ["attention.svg"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "attention.svg"
    path.write_text("old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(RegardError, match=r"attention\.svg: the picture cannot be written: No space left"):
        write_svg(DATE, path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["attention.svg"]


def test_the_file_is_whole_at_the_moment_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace, seen = tmp_path / "attention.svg", os.replace, []

    def watched(aside: Path, destination: Path) -> None:
        seen.append((path.exists(), aside.read_text(encoding="utf-8")))
        replace(aside, destination)

    monkeypatch.setattr(os, "replace", watched)
    write_svg(DATE, path)
    assert seen == [(False, to_svg(DATE))]


@pytest.mark.parametrize("place", ["missing/attention.svg", "file/attention.svg", "folder"])
def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RegardError, match="the picture cannot be written"):
        write_svg(DATE, tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
