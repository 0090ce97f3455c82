"""The pictures of shapes show what their captions say, and a captioner learns to say it through the
command line."""

from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import fail, succeed
from regard.data.corpora import CLEAR, generate, part_of, scenes
from regard.data.shapes import (
    COLOURS,
    KOREAN,
    OUTLINES,
    RADIUS,
    Scene,
    Thing,
    draw,
    in_order,
    parse,
)
from regard.errors import DataError

SCENE = Scene(Thing("small", "red", "circle", 20, 32), Thing("large", "blue", "square", 68, 40))
CODE = "shapes: small red circle 20 32, large blue square 68 40"
SEEDS = st.integers(0, 2**32)


def test_captions_by_hand() -> None:
    assert SCENE.code == CODE
    assert parse(CODE, "") == SCENE
    assert SCENE.caption("english") == "a small red circle left of a large blue square"
    assert SCENE.caption("korean") == "큰 파란 사각형 왼쪽에 작은 빨간 원이 있다"
    below = Scene(
        Thing("small", "black", "cross", 50, 80), Thing("large", "yellow", "star", 45, 30)
    )
    assert below.caption("english") == "a small black cross below a large yellow star"
    assert below.caption("korean") == "큰 노란 별 아래에 작은 검은 십자가가 있다"
    particles = {
        "circle": "이",
        "square": "이",
        "triangle": "이",
        "star": "이",
        "cross": "가",
        "diamond": "가",
    }
    for shape, particle in particles.items():
        scene = SCENE._replace(first=SCENE.first._replace(shape=shape))
        assert f"{KOREAN[shape]}{particle} 있다" in scene.caption("korean")


@given(SEEDS)
@settings(max_examples=50)
def test_a_scene_has_one_caption_that_is_true(seed: int) -> None:
    scene = next(scenes(Random(seed)))
    first, second = scene
    assert in_order(Scene(second, first)) == scene, (
        "the order in which things are drawn says nothing"
    )
    assert parse(scene.code, "") == scene
    left, top, right, bottom = first.box
    other = second.box
    apart = {
        "left": right < other[0],
        "right": left > other[2],
        "above": bottom < other[1],
        "below": top > other[3],
    }
    assert apart[scene.relation]
    assert first.kind != second.kind
    assert (first.size, second.size) != ("large", "small")
    distances = sorted((abs(first.x - second.x), abs(first.y - second.y)))
    assert distances[1] >= CLEAR * distances[0]
    assert all(0 <= edge <= 1 for box in (first.box, other) for edge in box)


@given(SEEDS)
@settings(max_examples=20)
def test_what_is_drawn_lies_in_its_box_and_has_its_colour(seed: int) -> None:
    scene = next(scenes(Random(seed)))
    pixels = draw(scene, 100).astype(int)
    ground = np.median(pixels, axis=(0, 1))
    inked = np.abs(pixels - ground).max(-1) > 60
    inside = np.zeros_like(inked)
    for thing in scene:
        left, top, right, bottom = (round(100 * edge) for edge in thing.box)
        inside[top : bottom + 1, left : right + 1] = True
        own = inked[top:bottom, left:right]
        assert 0.2 < own.mean() < 0.95, "a shape fills a good part of its box"
        colour = np.median(pixels[top:bottom, left:right][own], axis=0)
        assert np.abs(colour - COLOURS[thing.colour]).max() < 25
    assert not (inked & ~inside).any()
    assert np.array_equal(draw(scene, 100), draw(scene, 100))


def test_no_two_shapes_look_alike() -> None:
    points = np.linspace(-1, 1, 60)
    masks = {name: inside(points[None], points[:, None]) for name, inside in OUTLINES.items()}
    for one, other in permutations(masks, 2):
        shared = (masks[one] & masks[other]).sum() / (masks[one] | masks[other]).sum()
        assert shared < 0.85, (one, other)


def test_test_pictures_show_pairs_that_training_never_showed_in_words_that_it_did() -> None:
    parts = [list(generate("shapes", 4000, 1, "train")), list(generate("shapes", 400, 1, "test"))]
    train_kinds, test_kinds = ({parse(code, "").kinds for code, _ in rows} for rows in parts)
    assert not train_kinds & test_kinds
    assert len(test_kinds) >= 20
    assert all(part_of(kinds) == "test" for kinds in test_kinds)
    train_words, test_words = (
        {word for _, caption in rows for word in caption.split()} for rows in parts
    )
    assert test_words <= train_words
    assert train_words == {
        "a",
        "of",
        "left",
        "right",
        "above",
        "below",
        *RADIUS,
        *COLOURS,
        *OUTLINES,
    }
    for code, caption in generate("shapes-ko", 200, 1, "train"):
        assert caption == parse(code, "").caption("korean")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("shapes: small red circle 20 32", "not a picture of two shapes"),
        ("shapes: small red circle 20 32, blue square 68 40", "not a picture of two shapes"),
        ("shapes: small red circel 20 32, large blue square 68 40", "did you mean 'circle'"),
        ("shapes: tiny red circle 20 32, large blue square 68 40", "there is no 'tiny'"),
        ("shapes: small red circle 20 320, large blue square 68 40", "outside"),
    ],
)
def test_a_scene_that_cannot_be_drawn(code: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        parse(code, "input 1")


def test_the_recipe_trains_and_a_scene_can_be_typed(tmp_path: Path) -> None:
    """In Korean, a few steps: the wording is learned before the pictures are."""
    small = [
        "data.train={corpus: shapes-ko, size: 300}",
        "data.validation={corpus: shapes-ko, size: 20}",
        "data.test={corpus: shapes-ko, size: 20}",
        "model.images.size=16",
        "model.channels=[4]",
        "model.width=16",
        "training.epochs=null",
        "training.steps=60",
        "training.learning_rate=0.01",
        "training.warmup=0",
        "training.batch_tokens=1024",
    ]
    succeed("train", "shapes", *small, "--out", tmp_path / "run")
    [written] = succeed("predict", tmp_path / "run", CODE).out.splitlines()
    assert written.endswith("있다")
    assert set(written.split()[:3]) <= set(KOREAN.values())
    [message] = fail(
        "predict", tmp_path / "run", "shapes: small red circel 20 32, large blue square 68 40"
    )
    assert message == "input 1: there is no 'circel' to draw (did you mean 'circle'?)"
