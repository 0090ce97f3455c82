"""Explanations as files: SVG, PNG, page and JSON; whole, small enough, and readable without a network."""

from __future__ import annotations

import base64
import copy
import io
import json
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import TINY

import regard as api
from command_line import fail, succeed
from regard.errors import RegardError
from regard.views.draw import write_explanation
from regard.views.explain_page import to_page
from regard.views.explanation import Explanation
from regard.views.heatmap import Heatmap, colour, png_of_cells
from regard.views.svg import to_svg
from regard.views.wishes import Wish

SVG = "{http://www.w3.org/2000/svg}"
LONG = "abcdefghij" * 51 + "a"
"""511 characters, with `</s>` 512 tokens."""


def trained(model: dict[str, Any], folder: Path) -> api.Run:
    recipe = copy.deepcopy(TINY) | {"model": model}
    recipe["training"] |= {"steps": 1, "validate_every": 1, "decode": 0}
    return api.train(recipe, out=folder, quiet=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> api.Run:
    """The preset `tiny` of the Transformer: four layers of four heads on each side."""
    return trained({"kind": "transformer", "preset": "tiny"}, tmp_path_factory.mktemp("files") / "run")


@pytest.fixture(scope="module")
def found(run: api.Run) -> Explanation:
    return api.explain(run, "a b c", target="c b")


@pytest.fixture(scope="module")
def long(run: api.Run) -> Explanation:
    return api.explain(run, LONG, target=LONG)


def data_of(page: str) -> Any:
    """What the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(packed: dict[str, Any], rows: int, columns: int) -> np.ndarray[Any, Any]:
    """The weights that the page shows, decoded as its script does."""
    codes = np.frombuffer(base64.b64decode(packed["cells"]), dtype=np.uint8).reshape(rows, -1)
    weights = (codes / 255.0) ** 2
    if "places" not in packed:
        return weights
    places = np.frombuffer(base64.b64decode(packed["places"]), dtype="<u2").reshape(rows, -1)
    whole = np.zeros((rows, columns))
    np.put_along_axis(whole, places.astype(int), weights, axis=1)
    return whole


# --------------------------------------------------------------------------------------------------------------- page


def test_the_page_holds_every_head_to_two_digits(found: Explanation) -> None:
    data = data_of(to_page(found, Wish()))
    for attention in found.attentions.values():
        for h, weights in enumerate(attention.weights, 1):
            shown = unpacked(data["matrices"][f"{attention.kind}/{attention.layer}/{h}"], *weights.shape)
            assert np.abs(shown - weights).max() < 0.004
            assert np.abs(shown - weights)[weights < 0.01].max(initial=0) < 0.0004, "small weights are finer"
    assert unpacked(data["matrices"]["alignment/mean/mean"], *found.weights.shape) == pytest.approx(
        found.weights, abs=0.004
    )
    rolled = found.rollout().encoder[-1]
    assert unpacked(data["matrices"]["encoder/4/rollout"], *rolled.shape) == pytest.approx(rolled, abs=0.004)
    assert data["kinds"]["decoder"]["rows"] == ["<s>", "c", "␣", "b"]


@pytest.mark.parametrize(
    ("wish", "opening"),
    [
        (Wish(), ("alignment", "mean", "mean")),
        (Wish("encoder", layer=3, head=2), ("encoder", "3", "2")),
        (Wish("decoder", head=2), ("decoder", "mean", "2")),
        (Wish("encoder", layer="all", head="all"), ("encoder", "1", "1")),
        (Wish(rollout=True), ("alignment", "4", "rollout")),
        (Wish("encoder", layer=2, rollout=True), ("encoder", "2", "rollout")),
    ],
    ids=str,
)
@pytest.mark.parametrize("words", [False, True])
def test_the_page_opens_with_what_was_asked_for(
    found: Explanation, wish: Wish, opening: tuple[str, str, str], words: bool
) -> None:
    shown = found.words() if words else found
    data, asked = data_of(to_page(shown, wish)), wish.pictures(shown)[0].values
    assert (data["first"], data["layer"], data["head"]) == opening
    assert unpacked(data["matrices"]["/".join(opening)], *asked.shape) == pytest.approx(asked, abs=0.004)


def test_the_page_opens_with_the_step_that_was_asked_for(found: Explanation) -> None:
    data = data_of(to_page(found, Wish("heads", step=2)))
    [picture] = found.pictures("heads", step=2)
    assert picture.title != found.pictures("heads")[0].title
    assert data["first"] == picture.title
    assert data["heatmaps"][picture.title]["rows"] == list(picture.rows)


def test_the_page_holds_masks_and_positions(run: api.Run) -> None:
    found = api.explain(run, "a b", target="b a", padding=2)
    heatmaps = data_of(to_page(found, Wish()))["heatmaps"]
    for picture in [*found.pictures("masks"), *found.pictures("positions")]:
        packed, size = heatmaps[picture.title], picture.values.size
        if "bits" in packed:
            bits = np.unpackbits(np.frombuffer(base64.b64decode(packed["bits"]), dtype=np.uint8))[:size]
            assert bits.tolist() == picture.values.flatten().tolist()
        else:
            cells = np.frombuffer(base64.b64decode(packed["cells"]), dtype=np.uint8).astype(float)
            assert 2 * cells / 255 - 1 == pytest.approx(picture.values.flatten(), abs=0.005)


def test_the_page_shows_the_likeliest_tokens_and_needs_nothing_beside_it(found: Explanation) -> None:
    page = to_page(found, Wish())
    for step in found.steps:
        assert all(f"{one.probability:.3f}" in page for one in step.candidates)
    assert re.findall(r"https?://[^\"' ]*", page) == []
    assert re.findall(r"<(?:link|img|iframe)\b|\b(?:src|fetch|import)\s*[=(]", page) == []
    assert "prefers-color-scheme: dark" in page


def test_no_text_ends_the_script_that_holds_it(found: Explanation) -> None:
    name, attention = next(iter(found.attentions.items()))
    evil = ("</script><script>alert(1)</script>", *attention.keys[1:])
    changed = type(attention)(**{**vars(attention), "keys": evil, "queries": evil})
    others = {**found.attentions, name: changed}
    page = to_page(
        type(found)(**{**{k: v for k, v in vars(found).items() if k != "alignment"}, "attentions": others}), Wish()
    )
    assert page.count("</script>") == 2
    assert data_of(page)["kinds"]["encoder"]["columns"][0] == evil[0]


def test_512_tokens_make_a_page_below_3_megabytes_that_says_what_it_keeps(long: Explanation) -> None:
    assert len(long.source) == len(long.target) == 512
    page = to_page(long, Wish())
    assert len(page.encode()) < 3_000_000
    data = data_of(page)
    weights = long.of_kind("alignment")[3].weights[2]
    packed = data["matrices"]["alignment/4/3"]
    shown = unpacked(packed, 512, 512)
    assert (np.count_nonzero(shown, axis=1) <= data["kept"]).all()
    largest = -np.sort(-weights, axis=1)[:, : data["kept"]]
    assert packed["share"] == pytest.approx(largest.sum() / weights.sum(), abs=1e-3)
    kept = shown > 0
    assert np.abs(shown - weights)[kept].max() < 0.004
    assert weights[~kept].max() <= largest[:, -1].max() + 1e-6
    first = unpacked(data["matrices"]["alignment/mean/mean"], 512, 512)
    assert first == pytest.approx(long.weights, abs=0.004), "what is shown first is whole"
    assert np.count_nonzero(first) == 512 * 512
    other = data_of(to_page(long, Wish("encoder")))["matrices"]
    assert "places" not in other["encoder/mean/mean"], "whatever is shown first"
    assert "places" in other["alignment/mean/mean"]


# ---------------------------------------------------------------------------------------------------------------- SVG


def test_512_tokens_make_an_svg_of_one_image(long: Explanation) -> None:
    picture = to_svg(*long.pictures("encoder", layer=1, head=1))
    assert len(picture) < 1_000_000
    [image] = ElementTree.fromstring(picture).iter(f"{SVG}image")
    content = base64.b64decode(image.attrib["href"].removeprefix("data:image/png;base64,"))
    assert struct.unpack(">II", content[16:24]) == (512, 512)


def test_the_pixels_of_the_image_are_the_colours_of_the_cells() -> None:
    heatmap = Heatmap(("a", "b"), ("x", "y", "z"), np.array([[-1.0, 0.0, 1.0], [0.5, 0.25, -0.5]]))
    content = png_of_cells(heatmap)
    start = content.index(b"IDAT")
    [size] = struct.unpack(">I", content[start - 4 : start])
    lines = zlib.decompress(content[start + 4 : start + 4 + size])
    pixels = [lines[r * 10 + 1 + 3 * c : r * 10 + 4 + 3 * c].hex() for r in range(2) for c in range(3)]
    assert pixels == [colour(share, signed=True)[1:] for share in (0, 0.5, 1, 0.75, 0.625, 0.25)]
    assert pixels[1] == "ffffff"


def test_several_pictures_stand_side_by_side(found: Explanation) -> None:
    heads = found.pictures("alignment", layer=2, head="all")
    root = ElementTree.fromstring(to_svg(*heads))
    panels = root.findall(f"{SVG}g")
    places = [tuple(map(float, re.findall(r"[\d.]+", panel.attrib["transform"]))) for panel in panels]
    assert len(set(places)) == len(heads) == 4
    for panel, place in zip(panels, places, strict=True):
        [inner] = panel.findall(f"{SVG}svg")
        assert place[0] + float(inner.attrib["width"]) <= float(root.attrib["width"])
        assert place[1] + float(inner.attrib["height"]) <= float(root.attrib["height"])


# -------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", [".svg", ".html", ".json"])
def test_a_file_is_replaced_whole(run: api.Run, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"나무{suffix}"
    path.write_text("old")
    assert succeed("explain", run.folder, "a b", "--out", path).out.endswith(f"drawn: {path}\n")
    assert "▁" in path.read_text(encoding="utf-8") or "␣" in path.read_text(encoding="utf-8")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_disk_that_is_full_leaves_what_was_there(
    found: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for suffix in (".html", ".json"):
        path = tmp_path / f"x{suffix}"
        path.write_text("old")
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(RegardError, match="cannot be written: No space left"):
            write_explanation(found, path, Wish())
        assert path.read_text() == "old"


def test_a_png_without_matplotlib_is_one_sentence_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what Python takes for "cannot be imported"
    message = "x.png: drawing it needs the library 'matplotlib' (pip install 'regard[plots]')"
    assert fail("explain", tmp_path / "no run", "a", "--out", "x.png") == [message]


def test_a_png_shows_korean_with_a_font_that_has_it(found: Explanation, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from regard.views.png import fonts_for, to_png

    try:
        families = fonts_for("한국어 abc", "x.png")
    except RegardError as error:
        assert "install one" in str(error)  # noqa: PT017
        return
    assert len(families) >= 1
    korean = Heatmap(("나무",), ("학교", "$x$"), np.array([[0.25, 0.75]]), title="나무 → 학교")
    content = to_png(korean, korean, where="x.png")
    assert content.startswith(b"\x89PNG")
    assert min(struct.unpack(">II", content[16:24])) > 200


LONG_TITLES = {
    "English": "The committee that the previous government had appointed resigned yesterday → Das Komitee trat zurück",
    "Korean": "지난 정부가 임명한 위원회는 내년 예산에 관한 긴 토론 끝에 어제 모두 물러났다 → The committee resigned",
    "one word": "Donaudampfschifffahrtsgesellschaft" * 5,
}


@pytest.mark.parametrize("size", [(2, 2), (3, 30)])
@pytest.mark.parametrize("title", LONG_TITLES.values(), ids=LONG_TITLES)
def test_a_long_title_ends_inside_its_png(title: str, size: tuple[int, int]) -> None:
    images = pytest.importorskip("matplotlib.image")
    from regard.views.png import to_png

    rows, columns = (tuple(f"{name}{n}" for n in range(count)) for name, count in zip("rc", size, strict=True))
    one = Heatmap(rows, columns, np.zeros(size), title=title)
    wide = Heatmap(rows, columns, np.zeros(size), title=title, label_width=60)
    for heatmaps in ([one], [one] * 3, [wide]):
        try:
            content = to_png(*heatmaps, where="x.png")
        except RegardError as error:
            assert "install one" in str(error)  # noqa: PT017
            return
        pixels = images.imread(io.BytesIO(content))[..., :3]
        for edge in (pixels[:, :3], pixels[:, -3:], pixels[:2]):
            assert edge.min() == 1, "something runs over the edge"


def test_letters_that_no_font_has_are_named() -> None:
    pytest.importorskip("matplotlib")
    from regard.views.png import fonts_for

    with pytest.raises(RegardError, match=r"x\.png: no installed font has \U000e0fff"):
        fonts_for("\U000e0fff", "x.png")
