"""`regard show`: numbers against plain arithmetic, and every picture in every format."""

import math
from pathlib import Path

import numpy as np
import pytest

from command_line import fail, succeed
from plain import position
from regard.views.render import write_result
from regard.views.report import HeatMaps, Table
from regard.views.show import EQUATIONS, show


@pytest.mark.parametrize("name", EQUATIONS)
def test_every_picture_in_every_format(name: str, tmp_path: Path) -> None:
    shown = show(name)
    for suffix in ("svg", "html", "json"):
        write_result(shown, tmp_path / f"picture.{suffix}")
    assert shown.title in (tmp_path / "picture.html").read_text(encoding="utf-8")


def test_positions_are_the_papers_and_depend_on_the_distance_alone() -> None:
    numbers = show("positions", ["length=6", "width=4"]).to_json()
    np.testing.assert_allclose(
        numbers["positions"], [position(place, 4) for place in range(6)], atol=1e-4
    )
    assert numbers["largest difference between equal distances"] < 1e-6


def test_positions_of_odd_width_are_divided_by_their_own_lengths() -> None:
    slow = 10_000 ** (2 / 3)
    waves = [[math.sin(p), math.cos(p), math.sin(p / slow)] for p in range(6)]
    [table] = [
        part
        for part in show("positions", ["length=6", "width=3"]).report().sections[0].parts
        if isinstance(part, Table)
    ]
    for shift, *cosines in table.rows:
        for start, cosine in zip((0, 1, 3), cosines, strict=True):
            one, other = waves[start], waves[start + shift]
            assert cosine == pytest.approx(
                np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other)
            )
    assert "depends a little on where they are" in repr(show("positions", ["width=3"]))


def test_masks_hide_padding_and_the_future() -> None:
    numbers = show("masks", ["source=2", "target=3", "padding=1"]).to_json()
    assert numbers["encoder: padding is hidden"] == [[1, 1, 0]] * 3
    assert numbers["decoder in a batch: both are hidden"] == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 0],
    ]


def test_masks_name_the_end_token_that_cannot_see_itself() -> None:
    [maps] = [
        part.maps[0]
        for part in show("masks", ["target=2", "padding=2"]).report().figures
        if isinstance(part, HeatMaps) and "both" in part.title
    ]
    assert maps.rows == maps.columns == ["<s>", "1", "</s>", "<pad>"]
    assert maps.values[2].tolist() == [1, 1, 0, 0]
    assert "Why </s> cannot see itself" in repr(show("masks"))
    assert "Why </s>" not in repr(show("masks", ["padding=0"]))


def test_softmax_at_a_temperature() -> None:
    total = math.exp(4) + math.exp(2)
    assert show("softmax", ["scores=2,1"]).to_json()["0.5"] == pytest.approx(
        [math.exp(4) / total, math.exp(2) / total]
    )


def test_the_variance_of_dot_products_is_their_width() -> None:
    numbers = show("dot-products").to_json()
    np.testing.assert_allclose(numbers["variance of q . k"], numbers["d_k"], rtol=0.1)
    np.testing.assert_allclose(numbers["variance of q . k / sqrt(d_k)"], np.ones(5), atol=0.1)
    assert numbers["entropy"][-1] < 0.15 < 1.8 < numbers["entropy, scaled"][-1]


def test_label_smoothing_is_least_at_its_target() -> None:
    """The smoothed loss is least where p of the right class is 1 - epsilon + epsilon / K, a gap of
    log(91)."""
    numbers = show("label-smoothing", ["epsilon=0.1", "classes=10"]).to_json()
    assert numbers["target"] == pytest.approx([0.91] + [0.01] * 9)
    plain, smoothed = numbers["losses"]
    assert plain == sorted(plain, reverse=True)
    assert abs(numbers["gaps"][int(np.argmin(smoothed))] - math.log(91)) <= 0.25
    assert numbers["best gap"] == pytest.approx(math.log(91))


def test_label_smoothing_finds_its_least_loss_inside_the_curve() -> None:
    small = show("label-smoothing", ["epsilon=0.000001"]).to_json()
    least = small["gaps"][int(np.argmin(small["losses"][1]))]
    assert least < small["gaps"][-1]
    assert least == pytest.approx(small["best gap"], abs=0.25)
    none = show("label-smoothing", ["epsilon=0"])
    assert none.to_json()["best gap"] is None
    assert "no gap is the best" in repr(none)


def test_schedules_rise_and_fall() -> None:
    numbers = show("schedules", ["steps=100", "warmup=10"]).to_json()
    at = {step: place for place, step in enumerate(numbers["steps"])}
    assert [numbers[name][at[10]] for name in ("inverse_sqrt", "linear", "cosine", "constant")] == [
        1,
        1,
        1,
        1,
    ]
    assert numbers["inverse_sqrt"][at[40]] == pytest.approx(0.5)
    assert numbers["linear"][at[100]] < 0.02


def test_the_command_lists_shows_and_refuses(tmp_path: Path) -> None:
    assert [line.split()[0] for line in succeed("show").out.splitlines()] == [*EQUATIONS]
    assert "0.644" in succeed("show", "softmax").out
    assert (
        succeed("show", "softmax", "--out", tmp_path / "x.svg").out
        == f"written: {tmp_path / 'x.svg'}\n"
    )
    assert succeed("show", "masks", "padding=0", "--json").json["title"] == "Masks"
    assert fail("show", "mask") == ["NAME: there is no picture 'mask' (did you mean 'masks'?)"]
    assert "did you mean 'length'" in fail("show", "positions", "lenght=5")[0]
    for scores in ("2,inf", "nan", "1,,2"):
        assert "are not finite numbers" in fail("show", "softmax", f"scores={scores}")[0]
    assert "a wave has two dimensions" in fail("show", "positions", "width=1")[0]
    assert fail("show", "positions", "length=-1") == [
        "length=-1: not a number that can be shown (as in length=50)"
    ]
