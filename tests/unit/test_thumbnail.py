"""The small drawings of `show`, by which a reader finds a sheet."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from command_line import fail, succeed
from regard.language import request_language
from regard.views.report import (
    Curves,
    HeatMap,
    HeatMaps,
    Report,
    Section,
    Series,
    Table,
    in_language,
)
from regard.views.show import EQUATIONS, show
from regard.views.thumbnail import HEIGHT, WIDTH, shortened, telling_parts, thumbnail

SVG = "{http://www.w3.org/2000/svg}"
QUICK = [name for name in EQUATIONS if name not in ("tokenizers", "dot-products")]
"""Those that are computed in a moment."""


def elements(drawing: str, kind: str) -> list[ElementTree.Element]:
    return [*ElementTree.fromstring(drawing).iter(SVG + kind)]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_drawing_stays_in_its_frame(name: str, language: str) -> None:
    token = request_language.set(language)
    try:
        drawing = thumbnail(in_language(show(name).report()))
    finally:
        request_language.reset(token)
    for kind in ("rect", "text"):
        for one in elements(drawing, kind):
            x, y = float(one.attrib["x"]), float(one.attrib["y"])
            width, height = (float(one.attrib.get(side, 0)) for side in ("width", "height"))
            assert 0 <= x <= x + width <= WIDTH + 1
            assert 0 <= y <= y + height <= HEIGHT
    numbers = [
        float(one)
        for path in elements(drawing, "path")
        for one in re.findall(r"-?[\d.]+", path.attrib["d"])
    ]
    assert all(-1 <= number <= WIDTH + 1 for number in numbers)
    assert len(drawing) < 30_000


def test_sheets_can_be_told_apart() -> None:
    assert len({thumbnail(show(name).report()) for name in QUICK}) == len(QUICK)


def test_a_heat_map_has_a_square_per_value() -> None:
    """0 is blank, 1 is full, -0.5 has half of the other colour."""
    values = np.array([[0.0, 1.0], [-0.5, 0.0]])
    part = HeatMaps([HeatMap(["a", "b"], ["c", "d"], values)])
    drawn = elements(thumbnail(Report("", [Section("", [part])])), "rect")
    assert [(one.attrib["class"], one.get("fill-opacity")) for one in drawn] == [
        ("frame", None),
        ("cell", None),
        ("below", "0.50"),
    ]
    first, second = drawn[1:]
    side = float(first.attrib["width"])
    assert float(first.attrib["x"]) - float(second.attrib["x"]) == pytest.approx(side, abs=0.2)
    assert float(second.attrib["y"]) - float(first.attrib["y"]) == pytest.approx(side, abs=0.2)


def test_a_gap_in_a_curve_is_left_out() -> None:
    curves = Curves([Series("one", [0, 1, 2], [0.0, float("nan"), 1.0])], "x", "y")
    _, line = elements(thumbnail(Report("", [Section("", [curves])])), "path")
    assert line.attrib["d"].count("L") == 1


def test_a_single_map_has_the_largest_table_beside_it() -> None:
    small, large = Table(["a"], [["1"]]), Table(["a", "b"], [["1", "2"], ["3", "4"]])
    maps = HeatMaps([HeatMap(["a"], ["b"], np.ones((1, 1)))])
    assert telling_parts(Report("", [Section("", [small, large, maps])])) == [large, maps]


def test_wide_letters_need_more_room() -> None:
    assert shortened("attention", 4) == "atte"
    assert shortened("어텐션 마스크", 4) == "어텐"


def test_the_list_is_a_page_with_a_drawing_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "regard.views.show.EQUATIONS", {name: EQUATIONS[name] for name in QUICK[:3]}
    )
    monkeypatch.setenv("REGARD_LANG", "ko")
    page = tmp_path / "sheets.html"
    succeed("show", "--out", str(page))
    html = page.read_text(encoding="utf-8")
    assert html.count('<svg xmlns="http://www.w3.org/2000/svg" class="thumbnail"') == 3
    assert "<h1>학습 없이 손으로 계산하기</h1>" in html
    assert f"<code>regard show {QUICK[0]}</code>" in html
    assert "이미 있습니다" in fail("show", "--out", str(page))[0]
