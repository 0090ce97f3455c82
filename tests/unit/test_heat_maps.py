"""Heat maps of attention: labels of tokens, maps in the terminal, the scale of colours, pictures of any text."""

import io
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.views.labels import label
from regard.views.render import BLUES, ORANGES, SHADES, draw, heat_map_lines
from regard.views.report import HeatMap, HeatMaps

SVG = "{http://www.w3.org/2000/svg}"


def heat_map(source: list[str], target: list[str], weights: object = None, title: str = "", seed: int = 0) -> HeatMap:
    """Attention of `target` to `source`; random unless given."""
    if weights is None:
        weights = np.random.default_rng(seed).dirichlet(np.full(len(source), 0.3), size=len(target))
    return HeatMap([*map(label, target)], [*map(label, source)], np.asarray(weights), title)


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
    """Columns of a terminal, from the Unicode tables of Python (the renderer uses those of rich)."""
    wide = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(c) else wide.get(unicodedata.east_asian_width(c), 1) for c in text)


def grid_rows(lines: list[str]) -> list[tuple[str, str]]:
    """(label, cells) of each row of blocks."""
    return [row for line in lines for row in re.findall(r"^(.*?)│(.*)│$", line)]


@pytest.mark.parametrize(("piece", "shown"), [
    (" ", "␣"), ("▁", "␣"), ("\u3000", "␣"), ("\n", "␣"), ("", "␣"), ("</s>", "⏎"), ("<unk>", "<unk>"),
    ("▁Haus", "▁Haus"), ("화", "화"), ("\u1112\u116a", "화"),  # the same syllable in letters
    ("a\x1b[31m", "a�[31m"), ("\x00", "�"), ("\ud800", "�"), ("\u0301", "◌\u0301"), ("👩\u200d🚀", "👩🚀"),
    ("\u202eabc", "abc"), ("\u200d", "◌"),
])  # fmt: skip
def test_a_token_is_shown_visibly_and_harmlessly(piece: str, shown: str) -> None:
    assert label(piece) == shown


def test_the_terminal_map_by_hand() -> None:
    assert heat_map_lines(DATE, width=80) == [
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
    ]


def test_long_labels_run_downwards_and_are_shortened() -> None:
    lines = heat_map_lines(heat_map(["▁ab", "각\u0301나", "c"], ["▁x"], [[0.0, 1.0, 0.0]]), width=80)
    assert lines[:4] == ["   ▁      ", "   a 각\u0301   ", "   b 나c  ", "▁x│  ██  │"]
    lines = heat_map_lines(heat_map(["Donaudampfschifffahrt"], ["Donaudampfschifffahrt"], [[1.0]]), width=40)
    assert "".join(line.strip() for line in lines[:12]) == "Donaudampfs…"
    assert lines[12] == "Donaudampfsc…│██│"


TOKENS = st.lists(
    st.text(alphabet="aZ▁.<&가힣漢字é\u0301\u0323\x1b\r", max_size=16)
    | st.sampled_from(["</s>", "<unk>", " ", "▁", "▁화요일"]),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(source=TOKENS, target=TOKENS, width=st.integers(6, 120), seed=st.integers(0, 9))
def test_panels_fit_and_show_every_cell(source: list[str], target: list[str], width: int, seed: int) -> None:
    drawn = heat_map(source, target, title="제목: \x1b]0;title\x07", seed=seed)
    lines = heat_map_lines(drawn, width)
    assert max(map(display_width, lines)) <= width
    assert not {c for c in "".join(lines) if unicodedata.category(c) == "Cc"}, "no token steers the terminal"
    for panel in "\n".join(lines[1:]).split("\n\n")[:-1]:
        assert len({display_width(line) for line in panel.split("\n")}) == 1
    rows = grid_rows(lines)
    joined = ["".join(cells for _, cells in rows[t :: len(target)]) for t in range(len(target))]
    fullness = np.array([[SHADES.index(block) for block in row] for row in joined])
    assert fullness.shape == (len(target), 2 * len(source))
    assert (fullness[:, ::2] == fullness[:, 1::2]).all()
    order = np.argsort(drawn.values, axis=None)
    assert (np.diff(fullness[:, ::2].flatten()[order]) >= 0).all()
    assert fullness[:, ::2].flatten()[order[-1]] == len(SHADES) - 1


def test_a_narrow_terminal_gets_panels_of_even_size() -> None:
    drawn = heat_map(list("abcdefghij"), ["x"])
    assert [len(cells) // 2 for _, cells in grid_rows(heat_map_lines(drawn, width=80))] == [10]
    assert [len(cells) // 2 for _, cells in grid_rows(heat_map_lines(drawn, width=21))] == [5, 5]


@pytest.mark.parametrize(("names", "tolerance"), [(BLUES, 0.4), (ORANGES, 1.1)])
def test_the_scale_goes_from_white_to_dark_in_even_steps_of_lightness(names: tuple[str, ...], tolerance: float) -> None:
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
    assert sum(texts.count(text) for text in {label(piece) for piece in source}) >= 2 * len(source)


@pytest.mark.parametrize("size", [(2, 2), (3, 30)])
@pytest.mark.parametrize("title", [
    "지난 정부가 임명한 위원회는 내년 예산에 관한 긴 토론 끝에 어제 모두 물러났다 → The committee resigned",
    "Donaudampfschifffahrtsgesellschaft" * 5,
    "WWW MMM " * 40,
], ids=["words", "one word", "capitals"])  # fmt: skip
def test_a_long_title_ends_inside_its_png(title: str, size: tuple[int, int]) -> None:
    images = pytest.importorskip("matplotlib.image")
    rows, columns = ([f"{name}{n}" for n in range(count)] for name, count in zip("rc", size, strict=True))
    one, wide = (HeatMap(rows, columns, np.zeros(size), title, label_width=width) for width in (18, 60))
    for maps in ([one] * 3, [wide]):
        try:
            content = draw([HeatMaps(maps, shown=range(len(maps)))], Path("x.png"))
        except RegardError as error:
            assert "install one" in str(error)  # noqa: PT017
            return
        pixels = images.imread(io.BytesIO(content))[..., :3]
        for edge in (pixels[:, :3], pixels[:, -3:], pixels[:2]):
            assert edge.min() == 1, "something runs over the edge"
