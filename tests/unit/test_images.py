"""Images as people have them: every kind of file, several captions each, features instead; and what
cannot be read."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command_line import fail, refusal, succeed, write
from regard.data.config import Data
from regard.data.images import ImagesConfig, Picture, Reading, images_of, read_image, read_picture
from regard.data.prepare import prepare_texts
from regard.errors import DataError
from regard.language import korean
from regard.recipes.loading import load_recipe
from regard.tasks.captioning import BLEU_1_TO_4, Captioned, Captioning
from regard.tasks.translation import EvaluationConfig, translation_scores

CONFIG = ImagesConfig(size=8)
READING = Reading(CONFIG, 2, 2)
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
COLOURS = {"red": RED, "green": GREEN, "blue": BLUE}


def filled(mode: str, colour: Any, size: tuple[int, int] = (20, 10)) -> Image.Image:
    return Image.new(mode, size, colour)


def pixel(path: Path) -> list[int]:
    """The colour of an image of one colour; lossy formats are off by a little."""
    pixels = read_image(path, CONFIG, "x").astype(int)
    assert pixels.shape == (8, 8, 3)
    assert np.ptp(pixels, axis=(0, 1)).max() <= 6
    return pixels.mean((0, 1)).round().astype(int).tolist()


# What is converted


@pytest.mark.parametrize(
    ("name", "image", "expected"),
    [
        ("a.png", filled("RGB", RED), RED),
        ("a.jpg", filled("RGB", GREEN), GREEN),
        ("a.bmp", filled("RGB", BLUE), BLUE),
        ("a.webp", filled("RGB", BLUE), BLUE),
        ("cmyk.jpg", filled("CMYK", (0, 255, 255, 0)), RED),
        ("grey.png", filled("L", 100), (100, 100, 100)),
        ("bits.png", filled("1", 1), (255, 255, 255)),
        ("palette.gif", filled("RGB", GREEN).convert("P"), GREEN),
        ("clear.png", filled("RGBA", (255, 0, 0, 0)), (255, 255, 255)),
        ("half.png", filled("RGBA", (0, 0, 0, 51)), (204, 204, 204)),
        ("grey-clear.png", filled("LA", (0, 0)), (255, 255, 255)),
        (
            "sixteen.png",
            Image.fromarray(np.full((10, 20), 257 * 100, dtype=np.uint16)),
            (100, 100, 100),
        ),
        (
            "sixteen.tif",
            Image.fromarray(np.full((10, 20), 257 * 200, dtype=np.uint16)),
            (200, 200, 200),
        ),
    ],
)
def test_every_kind_becomes_rgb(
    tmp_path: Path, name: str, image: Image.Image, expected: tuple[int, int, int]
) -> None:
    image.save(tmp_path / name)
    assert np.abs(np.subtract(pixel(tmp_path / name), expected)).max() <= 3


def test_an_animation_is_its_first_frame(tmp_path: Path) -> None:
    filled("RGB", RED).save(tmp_path / "a.gif", save_all=True, append_images=[filled("RGB", BLUE)])
    assert pixel(tmp_path / "a.gif") == list(RED)


def test_a_photograph_is_turned_upright_and_all_of_it_is_seen(tmp_path: Path) -> None:
    """Red above blue, stored on its side with the tag of a camera that was turned."""
    upright = Image.new("RGB", (10, 30), RED)
    upright.paste(BLUE, (0, 15, 10, 30))
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.rotate(90, expand=True).save(tmp_path / "a.png", exif=exif)
    pixels = read_image(tmp_path / "a.png", CONFIG, "x")
    assert pixels[0, 4].tolist() == list(RED)
    assert pixels[-1, 4].tolist() == list(BLUE)


# What is refused


def png_header(width: int, height: int) -> bytes:
    """The beginning of a PNG file that claims to be so large; nothing of that size is ever
    stored."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def icon(embedded: bytes) -> bytes:
    """An .ico file that claims 16 x 16 pixels and holds another image."""
    return struct.pack("<3H4B2H2I", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(embedded), 22) + embedded


def noise(path: Path, size: int) -> None:
    """An image of which only the first bytes are there."""
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(
        path
    )
    write(path, path.read_bytes()[:size])


ALLOWED = "save it as PNG, JPEG, GIF, BMP, WEBP, TIFF or PPM"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated.jpg": (lambda path: noise(path, 900), "truncated.jpg cannot be read as an image"),
    "truncated.png": (lambda path: noise(path, 400), "truncated.png cannot be read as an image"),
    "text.png": (
        lambda path: write(path, "not an image"),
        "text.png cannot be read as an image: its format is unknown",
    ),
    "empty.jpg": (
        lambda path: write(path, b""),
        "empty.jpg cannot be read as an image: its format is unknown",
    ),
    "one.png": (
        lambda path: filled("RGB", RED, (1, 1)).save(path),
        "one.png has 1 x 1 pixels: there is nothing to see (at least 2 x 2)",
    ),
    "line.png": (
        lambda path: filled("RGB", RED, (300, 1)).save(path),
        "line.png has 300 x 1 pixels",
    ),
    "huge.png": (
        lambda path: write(path, png_header(10_000, 10_000)),
        "huge.png cannot be read as an image: Image size (100000000 pixels) exceeds limit of "
        "89478485 pixels",
    ),
    "bomb.ico": (lambda path: write(path, icon(png_header(100_000, 100_000))), ALLOWED),
    "small.ico": (lambda path: filled("RGB", RED, (16, 16)).save(path), ALLOWED),
    "small.eps": (lambda path: filled("RGB", RED).save(path), ALLOWED),
    "eps.png": (lambda path: filled("RGB", RED).save(path, format="EPS"), ALLOWED),
    "float.tif": (
        lambda path: Image.fromarray(np.zeros((5, 5), dtype=np.float32)).save(path),
        "float.tif has floating-point pixels",
    ),
    "missing.png": (lambda path: None, "does not exist"),
    "folder.png": (lambda path: path.mkdir(), "is a folder"),
    "features.npy": (
        lambda path: np.save(path, np.zeros((4, 3))),
        "features.npy is an array of features, and the model reads images",
    ),
}


def recipe(folder: Path, **model: Any) -> Path:
    tree = {
        "task": "captioning",
        "data": {
            "train": {"file": "captions.tsv", "image": 0, "caption": 1},
            "validation": {"split": 0.3},
        },
        "tokenizer": {"kind": "word"},
        "model": {
            "kind": "captioner",
            "preset": "tiny",
            "channels": [4, 8],
            "width": 8,
            "attention": 8,
            "images": {"size": 8},
            "dropout": 0.0,
            **model,
        },
        "training": {
            "steps": 4,
            "batch_tokens": 64,
            "device": "cpu",
            "decode": 4,
            "validate_every": 2,
            "samples": 1,
        },
    }
    return write(folder / "recipe.yaml", json.dumps(tree))


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Ten images in a folder of their own, two captions each, in a file beside it."""
    (tmp_path / "images").mkdir()
    lines = []
    for number in range(10):
        name = list(COLOURS)[number % 3]
        filled("RGB", COLOURS[name], (10 + number, 12)).save(tmp_path / "images" / f"{number}.png")
        lines += [f"images/{number}.png\ta {name} field", f"images/{number}.png\tall is {name}"]
    write(tmp_path / "captions.tsv", "\n".join(lines) + "\n")
    recipe(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", REFUSED)
def test_an_image_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    make, message = REFUSED[name]
    make(tmp_path / name)
    with pytest.raises(DataError) as raised:
        read_picture(name, tmp_path, READING, "captions.tsv:21")
    assert raised.value.problems[0].where == "captions.tsv:21"
    assert message in str(raised.value)


def test_the_verbs_on_a_finished_run(album: Path) -> None:
    succeed("train", album / "recipe.yaml", "--out", album / "run")
    [message] = fail(
        "predict", album / "run", album / "images" / "1.png", "--set", "model.images.size=16"
    )
    allowed = "search, evaluation, data.encoding, data.source_language, data.target_language"
    assert message.endswith(f"(allowed: {allowed})")
    write(album / "broken.png", "broken")
    broken, missing = fail("predict", album / "run", album / "broken.png", album / "nowhere.png")
    assert broken.startswith("input 1: broken.png cannot be read as an image: its format is un")
    assert missing.startswith("input 2: the image ")
    found = succeed("evaluate", album / "run", "--split", "validation", "--json").json
    assert (found["images"], found["sentences"]) == (3, 6), (
        "all captions of an image fall on one side"
    )
    assert set(found) >= {
        "bleu1",
        "bleu2",
        "bleu3",
        "bleu",
        "chrf",
        "exact_match",
        "loss",
        "perplexity",
    }


def shown(examples: Any, row: int) -> Any:
    """The image of an example as a model reads it."""
    return examples.encoding.sources.of(examples, row).shown


def test_broken_images_are_dropped_and_counted_where_the_recipe_says_so(album: Path) -> None:
    loaded, base = load_recipe(album / "recipe.yaml", ["data.bad_lines=drop"])
    whole = Captioning.prepare(loaded, base).train
    lost = sorted({whole.texts["source"][row] for row in range(len(whole))})[:2]
    write(album / lost[0], "broken")
    (album / lost[1]).unlink()
    told = succeed(
        "train", album / "recipe.yaml", "data.bad_lines=drop", "--out", album / "run"
    ).err
    assert (
        "dropped 4 of 20 training pairs: 4 with an image that cannot be read (first: captions.tsv:"
        in told
    )
    counted = succeed("check", album / "recipe.yaml", "data.bad_lines=drop", "--json").json["data"][
        "splits"
    ]["train"]
    again = Captioning.prepare(loaded, base).train
    lengths = [len(again.encoding.pieces(again, row)["target"]) for row in range(len(again))]
    assert counted["columns"]["target"]["tokens"] == sum(lengths) == 30
    assert counted["columns"]["target"]["unknown"] == 0
    histogram = counted["columns"]["target"]["lengths"]
    assert (sum(histogram["counts"]), histogram["mean"], histogram["longest"]) == (10, 3.0, 3)
    kept = [row for row in range(len(whole)) if whole.texts["source"][row] not in lost]
    assert len(again) == len(kept) == 10
    for row, before in enumerate(kept):
        assert again.where(row) == whole.where(before)
        assert again.encoding.pieces(again, row) == whole.encoding.pieces(whole, before)
        assert np.array_equal(shown(again, row), shown(whole, before))
    for path in (album / "images").glob("*.png"):
        write(path, "broken")
    assert (
        len(fail("train", album / "recipe.yaml", "data.bad_lines=drop", "--out", album / "none"))
        > 1
    )


def test_all_that_is_wrong_with_images_is_named_once_the_captions_are_right(album: Path) -> None:
    """A missing, a broken and a huge image, which fall into any part; but first a row without a
    caption."""
    lines = (album / "captions.tsv").read_text(encoding="utf-8").splitlines()
    rows = [f"images/{name}.png\tit is {name}" for name in ("nowhere", "broken", "huge")]
    write(album / "images" / "broken.png", "broken")
    write(album / "images" / "huge.png", png_header(10_000, 10_000))
    write(album / "captions.tsv", "\n".join([*lines, *rows, "images/1.png\t"]))
    message, _ = fail("check", album / "recipe.yaml", "data.test={split: 0.2}")
    assert message.startswith(
        f"captions.tsv:{len(lines) + 4}: the caption (column 1) is empty (fill it"
    )
    write(album / "captions.tsv", "\n".join([*lines, *rows]))
    messages = fail("check", album / "recipe.yaml", "data.test={split: 0.2}")
    found = {
        int(message.split(":")[1]) - len(lines): message.partition(": ")[2] for message in messages
    }
    assert sorted(found) == [1, 2, 3]
    assert "nowhere.png does not exist" in found[1]
    assert found[2].startswith("broken.png cannot be read as an image")
    assert found[3].startswith("huge.png cannot be read as an image: Image size (100000000 pixels)")


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ({"corpus": "dates"}, "has no images: shapes and shapes-ko have"),
        (
            {"file": "captions.tsv", "image": 0, "caption": 1, "prefix": "<2en> "},
            "images are no texts",
        ),
        ({"file": "captions.tsv", "image": 0}, "name the caption"),
    ],
)
def test_a_corpus_that_is_none_of_images(album: Path, corpus: dict[str, Any], words: str) -> None:
    assert words in refusal(
        "train", album / "recipe.yaml", f"data.train={json.dumps(corpus)}", "--out", album / "run"
    )


def test_images_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for folder in ("a", "b", "v"):
        (tmp_path / folder).mkdir()
        write(
            tmp_path / folder / "c.tsv",
            "".join(f"{number}.png\tthe same words\n" for number in range(20)),
        )
    write(tmp_path / "again.tsv", "a/../a/0.png\tthe same words\n")
    files = ("a/c.tsv", "b/c.tsv", "again.tsv")
    train, [validation] = (
        [Captioned(file=name, image=0, caption=1) for name in names]
        for names in (files, ["v/c.tsv"])
    )
    data = Data[Captioned](train=train, validation=[validation])
    found = prepare_texts(data, base=tmp_path, seed=1, progress=lambda step, done: None).report
    assert (found["train"].kept, found["train"].dropped["duplicate"].places) == (
        40,
        ("again.tsv:1",),
    )
    assert found["validation"].leaks.count == 0


# Several captions an image


@pytest.mark.parametrize("key", ["caption", "captions"])
def test_a_list_of_captions_is_as_many_lines(album: Path, key: str) -> None:
    rows = [
        tuple(line.split("\t"))
        for line in (album / "captions.tsv").read_text(encoding="utf-8").splitlines()
    ]
    both = zip(rows[::2], rows[1::2], strict=True)
    objects = [{"image": image, key: [first, second]} for (image, first), (_, second) in both]
    objects[0] |= {key: objects[0][key][0]}
    write(album / "captions.jsonl", "".join(f"{json.dumps(one)}\n" for one in objects))
    corpus = json.dumps({"file": "captions.jsonl", "image": "image", "caption": key})
    loaded, base = load_recipe(album / "recipe.yaml", [f"data.train={corpus}"])
    prepared = Captioning.prepare(loaded, base)
    parts = [part.texts for part in (prepared.train, prepared.validation)]
    found = [pair for texts in parts for pair in zip(texts["source"], texts["target"], strict=True)]
    assert sorted(found) == sorted({*rows} - {rows[1]})
    places = {f"captions.jsonl:{line}" for line in range(1, 11)}
    assert {prepared.train.where(row) for row in range(len(prepared.train))} <= places


def test_lists_without_captions_are_named(album: Path) -> None:
    captions = ["[]", '["one", " "]', '["빨강", 3]', '{"ko": "빨강"}']
    rows = [
        f'{{"image": "images/{row}.png", "caption": {one}}}\n' for row, one in enumerate(captions)
    ]
    write(album / "captions.jsonl", "".join(rows))
    corpus = json.dumps({"file": "captions.jsonl", "image": "image", "caption": "caption"})
    messages = sorted(fail("check", album / "recipe.yaml", f"data.train={corpus}"))
    assert [message.partition(" (")[0] for message in messages] == [
        "captions.jsonl:1: the caption is empty",
        "captions.jsonl:2: the caption is empty",
        "captions.jsonl:3: the column 'caption' holds 3, not a string",
        'captions.jsonl:4: the column \'caption\' holds {"ko": "빨강"}, not a string',
        "data.bad_lines: 4 of 5 pairs cannot be used",
    ]
    assert messages[3].endswith("(expected is a text, or a list of texts)")


def test_metrics_take_the_best_of_several_references() -> None:
    outputs = ["a red circle", "all is blue"]
    found = translation_scores(
        outputs,
        [["the red circle", "a red circle"], ["all is blue"]],
        EvaluationConfig(),
        BLEU_1_TO_4,
    )
    assert found["exact_match"] == 1.0
    assert found["bleu1"] == pytest.approx(100)
    single = translation_scores(
        outputs, [["the red circle"], ["all is green"]], EvaluationConfig(), BLEU_1_TO_4
    )
    assert single["exact_match"] == 0.0
    assert single["bleu1"] == pytest.approx(100 * 4 / 6)
    assert single["bleu2"] == pytest.approx(100 * (4 / 6 * 2 / 4) ** 0.5)


def test_an_image_is_read_once_and_again_when_it_has_changed(
    album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, base = load_recipe(album / "recipe.yaml")
    data = Captioning.prepare(loaded, base)
    before = {
        data.train.texts["source"][row]: shown(data.train, row).copy()
        for row in range(len(data.train))
    }
    assert len(data.train.pictures) == len(before) == 7
    assert isinstance(data.train.pictures.shown.values.base, np.memmap)
    changed = next(iter(before))
    filled("RGB", (9, 8, 7), (33, 44)).save(album / changed)
    again = Captioning.prepare(loaded, base).train
    for row in range(len(again)):
        name = again.texts["source"][row]
        expected = np.full((8, 8, 3), (9, 8, 7)) if name == changed else before[name]
        assert np.array_equal(shown(again, row), expected)


def test_an_image_that_was_replaced_is_noticed(album: Path) -> None:
    succeed("train", album / "recipe.yaml", "--out", album / "run")
    filled("RGB", (9, 8, 7), (33, 44)).save(album / "images" / "1.png")
    [message] = fail("train", album / "recipe.yaml", "--out", album / "run", "--resume")
    changed = "the image data has changed since the run began"
    assert changed in message
    assert korean(changed) == "실행을 시작한 뒤 이미지 데이터가 바뀌었습니다"
    [message] = fail("evaluate", album / "run", "--split", "validation")
    assert message.startswith("data.validation: images have changed since the run was trained")


# Features of another network


def test_features_by_grid_and_by_list(tmp_path: Path) -> None:
    reading = Reading(CONFIG, 0, 0, feature_width=3)
    grid = np.arange(18, dtype=np.float64).reshape(2, 3, 3)
    np.save(tmp_path / "grid.npy", grid)
    np.save(tmp_path / "list.npy", grid.reshape(6, 3)[:4].astype(np.float16))
    first, second = (
        read_picture(name, tmp_path, reading, "x") for name in ("grid.npy", "list.npy")
    )
    assert (first.regions, first.columns) == (6, 3)
    assert (second.regions, second.columns) == (4, 1)
    batch = images_of([first, second])
    assert batch.shown.shape == (2, 6, 3)
    assert batch.lengths_B.tolist() == [6, 4]
    assert np.array_equal(batch.shown[0].numpy(), grid.reshape(6, 3))
    assert not batch.shown[1, 4:].any()
    assert first.names() == ["1,1", "1,2", "1,3", "2,1", "2,2", "2,3"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.zeros((4, 5)), "is 5 wide, model.feature_width says 3"),
        (np.zeros(3), r"holds \(3,\)"),
        (np.zeros((0, 3)), r"holds \(0, 3\)"),
        (np.full((2, 3), np.nan), "not finite"),
        (np.full((2, 3), 1e300), "not finite as 32-bit numbers"),
        (np.array([["a", "b", "c"]]), "allowed: numbers"),
        (np.array([{"a": 1}], dtype=object), "a.npy is not a .npy file of numbers"),
        (b"nothing of the kind", "a.npy is not a .npy file of numbers"),
    ],
)
def test_features_that_cannot_be_used(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "a.npy"
    if isinstance(content, bytes):
        write(path, content)
    else:
        np.save(path, content)
    with pytest.raises(DataError, match=words):
        read_picture("a.npy", tmp_path, Reading(CONFIG, 0, 0, feature_width=3), "captions.tsv:3")


def test_features_train_and_predict_through_the_command_line(tmp_path: Path) -> None:
    """Features that tell the colour outright: all is learned in a moment."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(60):
        colour = number % 3
        features = random.normal(0, 0.1, (2 + number % 3, 2, 5)).astype(np.float32)
        features[0, 1, colour] = 3.0
        np.save(tmp_path / f"{number}.npy", features)
        rows.append({"image": f"{number}.npy", "caption": f"it is {list(COLOURS)[colour]}"})
    write(tmp_path / "captions.jsonl", "\n".join(map(json.dumps, rows)))
    recipe(tmp_path, encoder="features", feature_width=5)
    corpus = {"file": "captions.jsonl", "image": "image", "caption": "caption"}
    succeed(
        "train",
        tmp_path / "recipe.yaml",
        f"data.train={json.dumps(corpus)}",
        "training.steps=60",
        "training.learning_rate=0.02",
        "training.schedule=constant",
        "training.batch_tokens=128",
        "training.validate_every=60",
        "--out",
        tmp_path / "run",
    )
    found = succeed("evaluate", tmp_path / "run", "--split", "validation", "--json").json
    assert found["exact_match"] == 1.0
    [line] = succeed("predict", tmp_path / "run", tmp_path / "1.npy").out.splitlines()
    assert line == "it is green"
    assert (
        "the model reads images"
        not in succeed("score", tmp_path / "run", tmp_path / "2.npy", "it is blue").out
    )
    filled("RGB", RED).save(tmp_path / "3.png")
    assert fail("predict", tmp_path / "run", tmp_path / "3.png") == [
        "input 1: 3.png is not a .npy file of numbers, and the model reads features of images "
        "(one array an image, as numpy.save writes it)"
    ]
    svg = tmp_path / "x.svg"
    succeed("explain", tmp_path / "run", tmp_path / "2.npy", "--out", svg)
    assert svg.read_text(encoding="utf-8").count("<image") == 1 + 4


def test_samples_know_images_apart() -> None:
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    other = pixels.copy()
    other[7, 7, 2] = 1
    images = images_of([Picture(pixels, 4, 2), Picture(other, 4, 2), Picture(pixels.copy(), 4, 2)])
    first, second, third = images.contents()
    assert len(first) == 4 * images.checksums_B.element_size()  # one number per region
    assert first == third != second
