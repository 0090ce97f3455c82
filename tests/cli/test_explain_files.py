"""Explanations as files: what a page offers, what it opens with, and how large long texts make it."""

import base64
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import regard as api
from command_line import succeed
from regard.views.attention import NAMES
from regard.views.explanation import Explanation, Options
from regard.views.render import draw, page
from regard.views.report import HeatMaps, Table
from tiny import TINY

SVG = "{http://www.w3.org/2000/svg}"
SOURCE, ENCODER, DECODER = NAMES["alignment"], NAMES["encoder"], NAMES["decoder"]
MEAN = ("mean of all layers", "mean of all heads")
LONG = "abcdefghij" * 51 + "a"
"""511 characters, with `</s>` 512 tokens."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> api.Run:
    """The preset `tiny` of the Transformer: four layers of four heads on each side."""
    training = TINY["training"] | {"steps": 1, "validate_every": 1, "decode": 0}
    recipe = TINY | {"model": {"kind": "transformer", "preset": "tiny"}, "training": training}
    return api.train(recipe, out=tmp_path_factory.mktemp("files") / "run", quiet=True)


@pytest.fixture(scope="module")
def found(run: api.Run) -> Explanation:
    return api.explain(run, "a b c", target="c b")


@pytest.fixture(scope="module")
def long(run: api.Run) -> Explanation:
    return api.explain(run, LONG, target=LONG)


def maps_of(explanation: Explanation, **options: Any) -> HeatMaps:
    parts = [part for section in explanation.select(Options(**options)).report().sections for part in section.parts]
    [maps] = [part for part in parts if isinstance(part, HeatMaps)]
    return maps


def test_the_page_holds_every_head_every_layer_and_every_rollout(found: Explanation) -> None:
    offered = {one.choice: one for one in maps_of(found).maps}
    for attention in found.attentions.values():
        name, layer = NAMES[attention.kind], f"layer {attention.layer}"
        for head, weights in enumerate(attention.weights, 1):
            assert np.array_equal(offered[name, layer, f"head {head}"].values, weights)
        mean = attention.weights.mean(0, dtype=np.float64)
        assert offered[name, layer, "mean of all heads"].values == pytest.approx(mean)
        rolled = found.rollouts[attention.kind][attention.layer - 1].weights[0]
        assert np.array_equal(offered[name, layer, "rolled out up to this layer"].values, rolled)
    assert np.array_equal(offered[SOURCE, *MEAN].values, found.weights)
    assert offered[DECODER, *MEAN].rows == ["<s>", "c", "␣", "b"]
    others = [choice[0] for choice in offered if choice[1:] == ("", "")]
    masks = [f"{name}: what it may see" for name in (ENCODER, DECODER, SOURCE)]
    assert others == ["c by head", *masks, "positions 0 to 49, 128 dimensions"]
    assert offered[others[-1], "", ""].values[3, :2] == pytest.approx([np.sin(3), np.cos(3)])


@pytest.mark.parametrize(("options", "opening"), [
    ({}, (SOURCE, *MEAN)),
    ({"view": "encoder", "layer": 3, "head": 2}, (ENCODER, "layer 3", "head 2")),
    ({"view": "decoder", "head": 2}, (DECODER, "mean of all layers", "head 2")),
    ({"view": "encoder", "layer": "all", "head": "all"}, (ENCODER, "layer 1", "head 1")),
    ({"rollout": True}, (SOURCE, "layer 4", "rolled out up to this layer")),
    ({"view": "encoder", "layer": 2, "rollout": True}, (ENCODER, "layer 2", "rolled out up to this layer")),
    ({"view": "heads", "step": 2}, ("␣ by head", "", "")),
    ({"view": "heads", "step": 2, "words": True}, ("b by head", "", "")),
    ({"view": "decoder", "words": True}, (DECODER, *MEAN)),
], ids=str)  # fmt: skip
def test_what_the_page_opens_with(found: Explanation, options: dict[str, Any], opening: tuple[str, str, str]) -> None:
    drawn, asked = maps_of(found, **options).drawn, found.select(Options(**options)).heat_maps()
    assert drawn[0].choice == opening
    assert all(np.array_equal(one.values, other.values) for one, other in zip(drawn, asked, strict=True))


def test_the_page_shows_the_likeliest_tokens(found: Explanation) -> None:
    [table] = [part for section in found.report().sections for part in section.parts if isinstance(part, Table)]
    for step, row in zip(found.steps, table.cells, strict=True):
        assert all(f"{p:.3f}" in row[-1].text for _, p in step.candidates)


def test_512_tokens_make_a_page_below_3_megabytes_that_says_what_it_keeps(long: Explanation) -> None:
    assert len(long.source.texts) == len(long.target.texts) == 512
    assert len(page(long.report()).encode()) < 3_000_000
    data = maps_of(long).to_json()
    packed = {tuple(one["choice"]): one for one in data["maps"]}
    thinned, weights = packed[SOURCE, "layer 4", "head 3"], long.of_kind("alignment")[3].weights[2]
    largest = -np.sort(-weights, axis=1)[:, : data["kept"]]
    assert thinned["share"] == pytest.approx(largest.sum() / weights.sum(), abs=1e-3)
    assert "places" not in packed[SOURCE, *MEAN], "what is shown first is whole"
    other = {tuple(one["choice"]): one for one in maps_of(long, view="encoder").to_json()["maps"]}
    assert ("places" in other[ENCODER, *MEAN], "places" in other[SOURCE, *MEAN]) == (False, True)


def test_512_tokens_make_an_svg_with_one_image_of_the_cells(long: Explanation) -> None:
    pytest.importorskip("matplotlib")
    content = draw([maps_of(long, view="encoder", layer=1, head=1)], Path("x.svg"))
    assert len(content) < 1_000_000
    images = [*ElementTree.fromstring(content).iter(f"{SVG}image")]
    png = base64.b64decode(images[0].attrib["{http://www.w3.org/1999/xlink}href"].partition(",")[2])
    assert png[1:4] == b"PNG"
    assert min(struct.unpack(">II", png[16:24])) >= 512


def test_a_file_is_replaced_whole(run: api.Run, tmp_path: Path) -> None:
    path = tmp_path / "나무.svg"
    path.write_text("old")
    arguments = ("explain", run.folder, "a b", "--layer", 2, "--head", "all", "--out", path)
    assert succeed(*arguments, "--overwrite").out.endswith(f"drawn: {path}\n")
    content = path.read_text(encoding="utf-8")
    assert all(content.count(f"layer 2 · head {head}") == 1 for head in range(1, 5))  # one beside the other
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
