"""Plots: ticks at round numbers, points where the numbers are, series that a grey print can tell apart."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.views.plot import PALETTE, Series, bars, line_plot, ticks, written

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def texts(picture: str) -> list[str]:
    return ["".join(element.itertext()) for element in parsed(picture).iter(f"{SVG}text")]


def points(picture: str, name: str) -> dict[tuple[float, float], tuple[float, float]]:
    """(x, y) as the tooltips of a series say -> where its markers stand."""
    found = {}
    for group in parsed(picture).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and str(title.text).startswith(f"{name}: "):
            x, y = map(float, str(title.text).removeprefix(f"{name}: ").split(", "))
            place = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", group.find(f"{SVG}path").attrib["transform"])  # type: ignore[union-attr]
            assert place is not None
            found[x, y] = (float(place[1]), float(place[2]))
    return found


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (3, 58, [0, 10, 20, 30, 40, 50, 60]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.3, 0.2, [-0.3, -0.2, -0.1, 0, 0.1, 0.2]),
        (5, 5, [2, 3, 4, 5, 6, 7, 8]),
        (0, 0, [-0.6, -0.4, -0.2, 0, 0.2, 0.4, 0.6]),
        (1200, 4800, [1000, 2000, 3000, 4000, 5000]),
    ],
)
def test_ticks_by_hand(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_hold_the_values_at_even_round_steps(low: float, size: float) -> None:
    high = low + size
    marks = ticks(low, high)
    step = marks[1] - marks[0]
    assert 2 <= len(marks) <= 7
    assert marks[0] <= low + 1e-6 * size
    assert marks[-1] >= high - 1e-6 * size
    assert marks[1] > low - 1e-6 * size  # no empty step at either end
    assert marks[-2] < high + 1e-6 * size
    assert all(math.isclose(b - a, step, rel_tol=1e-6) for a, b in pairwise(marks))
    leading = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert any(math.isclose(leading, digit, rel_tol=1e-5) for digit in (1, 2, 5))


def test_ticks_are_written_with_the_decimals_they_need() -> None:
    assert written([0, 0.2, 0.4]) == ["0.0", "0.2", "0.4"]
    assert written([0, 0.05]) == ["0.00", "0.05"]
    assert written([0, 20000]) == ["0", "20,000"]


def test_points_stand_where_their_numbers_are() -> None:
    picture = line_plot([Series("one", [0, 10, 20], [0, 50, 100])], x_label="steps", y_label="chrF", y_range=(0, 100))
    (x0, y0), (x1, y1), (x2, y2) = points(picture, "one").values()
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2)
    assert x0 < x1
    assert y0 > y1  # upwards is smaller in SVG
    ends = [element for element in parsed(picture).iter(f"{SVG}text") if element.attrib.get("text-anchor") == "end"]
    marks = {element.text: element for element in ends}
    assert float(marks["0"].attrib["y"]) == pytest.approx(y0, abs=0.2)
    assert float(marks["100"].attrib["y"]) == pytest.approx(y2, abs=0.2)
    assert {"steps", "chrF", "one"} <= set(texts(picture))


def test_nothing_lies_below_the_end_of_an_axis() -> None:
    """A share that is 0 throughout has an axis from 0 on."""
    picture = line_plot([Series("one", [0, 1], [0.0, 0.0])], x_label="", y_label="exact match", y_range=(0, None))
    ends = [element for element in parsed(picture).iter(f"{SVG}text") if element.attrib.get("text-anchor") == "end"]
    assert [element.text for element in ends] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


def test_a_value_that_is_no_number_leaves_a_gap() -> None:
    picture = line_plot([Series("one", [0, 1, 2, 3], [1, 2, math.nan, 4])], x_label="", y_label="")
    [line] = [path.attrib["d"] for path in parsed(picture).iter(f"{SVG}path")
              if path.attrib.get("class") == "line0" and path.attrib["d"] != "M2 0H28"]  # fmt: skip
    assert re.sub(r"[-\d. ]", "", line) == "MLM"
    assert len(points(picture, "one")) == 3


def test_a_band_runs_along_the_highest_and_back_along_the_lowest() -> None:
    series = Series("one", [0, 1], [5, 6], low=[4, 6], high=[8, 10])
    picture = line_plot([series], x_label="", y_label="", y_range=(0, 10))
    [band] = [path.attrib["d"] for path in parsed(picture).iter(f"{SVG}path") if "fill-opacity" in path.attrib]
    corners = [tuple(map(float, corner.split())) for corner in band.strip("MZ").split("L")]
    places = points(picture, "one")
    unit = places[0, 5][1] - places[1, 6][1]  # pixels for 1, upwards
    heights = [places[0, 5][1] - y for _, y in corners]
    assert [round(height / unit + 5, 1) for height in heights] == [8, 10, 6, 4]
    assert [x for x, _ in corners] == [places[0, 5][0], places[1, 6][0], places[1, 6][0], places[0, 5][0]]


def test_eight_series_differ_in_colour_and_in_shape() -> None:
    series = [Series(f"s{n}", [0, 1], [n, n + 1]) for n in range(8)]
    root = parsed(line_plot(series, x_label="", y_label=""))
    markers = {
        (path.attrib["fill"], path.attrib["d"]) for path in root.iter(f"{SVG}path") if "transform" in path.attrib
    }
    assert len(markers) == len({colour for colour, _ in markers}) == len({shape for _, shape in markers}) == 8
    lines = [path for path in root.iter(f"{SVG}path") if path.attrib.get("class", "").startswith("line")]
    assert {path.attrib["stroke"] for path in lines} == set(PALETTE)
    assert len({path.attrib.get("stroke-dasharray") for path in lines}) == 4


def test_stacked_bars_stand_on_each_other() -> None:
    picture = bars(["가", "나"], {"search": [10, 0], "model": [30, 20]}, x_label="", y_label="", stacked=True)
    boxes = {
        str(title.text): {key: float(box.attrib[key]) for key in ("x", "y", "width", "height")}
        for box in parsed(picture).iter(f"{SVG}rect")
        if (title := box.find(f"{SVG}title")) is not None
    }
    lower, upper = boxes["search, 가: 10"], boxes["model, 가: 30"]
    assert upper["height"] == pytest.approx(3 * lower["height"], abs=0.3)
    assert upper["y"] + upper["height"] == pytest.approx(lower["y"], abs=0.2)
    assert upper["x"] == lower["x"]
    assert boxes["search, 나: 0"]["height"] == 0


def test_grouped_bars_stand_beside_each_other_on_the_ground() -> None:
    picture = bars(["a"], {"one": [10], "two": [5], "none": [math.nan]}, x_label="", y_label="")
    boxes = [{key: float(box.attrib[key]) for key in ("x", "y", "width", "height")}
             for box in parsed(picture).iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]  # fmt: skip
    first, second = boxes
    assert first["height"] == pytest.approx(2 * second["height"], abs=0.2)
    assert first["y"] + first["height"] == pytest.approx(second["y"] + second["height"], abs=0.2)
    assert first["x"] + first["width"] <= second["x"]


def test_names_are_escaped_and_long_legends_go_on_in_the_next_row() -> None:
    names = [f"모델 <{n}> & 'co'" for n in range(6)]
    picture = line_plot([Series(name, [0], [n]) for n, name in enumerate(names)], x_label="<x>", y_label="&")
    assert set(names) <= set(texts(picture))
    places = [(float(text.attrib["x"]), float(text.attrib["y"])) for text in parsed(picture).iter(f"{SVG}text")
              if "".join(text.itertext()) in names]  # fmt: skip
    assert len({y for _, y in places}) > 1
    assert max(x for x, _ in places) < 540 - 100


def test_a_plot_has_its_own_ground_and_a_dark_side() -> None:
    picture = line_plot([], x_label="", y_label="")
    assert parsed(picture).find(f"{SVG}rect").attrib["fill"] == "#ffffff"  # type: ignore[union-attr]
    assert "prefers-color-scheme:dark" in picture
    assert not re.search(r"(href|src)=|@import", picture)


def test_labels_that_would_overlap_are_left_out() -> None:
    near = [(float(n), "a long name") for n in range(30)]
    picture = line_plot([Series("one", [0, 29], [0, 1])], x_label="", y_label="", x_ticks=near)
    assert 2 <= texts(picture).count("a long name") <= 6
