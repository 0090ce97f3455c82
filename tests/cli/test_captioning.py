"""A captioner learns to see, through the command line, and every verb works on its run."""

import json
import re
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

import regard as api
from command_line import fail, refusal, succeed, write
from regard.views.report import ImageMap

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (40, 70, 220),
    "yellow": (230, 200, 40),
}
PLACES = {"top left": (0, 0), "top right": (8, 0), "bottom left": (0, 8), "bottom right": (8, 8)}
UNSEEN = {("red", "bottom right"), ("green", "top left"), ("yellow", "bottom left")}
MODEL = {
    "kind": "captioner",
    "preset": "tiny",
    "channels": [8, 16],
    "width": 16,
    "attention": 16,
    "images": {"size": 16},
    "decoder": "attention",
    "doubly_stochastic": 0.01,
    "dropout": 0.0,
    "layers": 1,
    "heads": 2,
    "feed_forward": 32,
}


def album(folder: Path) -> None:
    """Squares of four colours in four corners of a grey field; the caption files of training and
    test share no pair."""
    random = Random(1)
    lines: dict[bool, list[str]] = {True: [], False: []}
    for number, (colour, place) in enumerate(list(product(COLOURS, PLACES)) * 12):
        pixels = np.full((16, 16, 3), 128, dtype=np.uint8)
        x, y = (edge + random.randrange(4) for edge in PLACES[place])
        pixels[y : y + 5, x : x + 5] = COLOURS[colour]
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines[(colour, place) in UNSEEN].append(f"{number}.png\ta {colour} square {place}")
    write(folder / "train.tsv", "\n".join(lines[False]))
    write(folder / "test.tsv", "\n".join(lines[True]))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("album")
    album(folder)
    columns = {"image": 0, "caption": 1}
    tree = {
        "task": "captioning",
        "data": {
            "train": {"file": "train.tsv", **columns},
            "test": {"file": "test.tsv", **columns},
            "validation": {"split": 0.1},
        },
        "tokenizer": {"kind": "word"},
        "model": MODEL,
        "training": {
            "steps": 220,
            "batch_tokens": 512,
            "device": "cpu",
            "learning_rate": 0.01,
            "schedule": "linear",
            "warmup": 10,
            "validate_every": 110,
            "label_smoothing": 0.0,
            "samples": 1,
        },
        "search": {"beam": 2},
    }
    write(folder / "recipe.yaml", json.dumps(tree))
    return folder


@pytest.fixture(scope="module")
def run(home: Path) -> Path:
    succeed("train", home / "recipe.yaml", "--out", home / "run")
    return home / "run"


def unseen(home: Path) -> list[tuple[Path, str]]:
    rows = (line.split("\t") for line in (home / "test.tsv").read_text().splitlines())
    return [(home / name, caption) for name, caption in rows]


@pytest.fixture(scope="module")
def transformer(home: Path) -> Path:
    changes = [
        "model.decoder=transformer",
        "model.width=32",
        "training.learning_rate=0.004",
        "training.steps=200",
    ]
    succeed("train", home / "recipe.yaml", *changes, "--out", home / "transformer")
    return home / "transformer"


def test_they_name_pairs_of_colour_and_place_that_they_never_saw(
    run: Path, transformer: Path
) -> None:
    found = succeed("evaluate", run, "--json").json
    assert found["images"] == 36
    assert found["exact_match"] >= 0.9, found
    assert succeed("evaluate", transformer, "--json").json["exact_match"] >= 0.8


def test_the_word_for_the_colour_looks_at_the_square(run: Path, home: Path) -> None:
    """Regions of 4 x 4 pixels; the square takes up 5 x 5."""
    inside = 0
    for path, caption in unseen(home)[:12]:
        found = succeed("explain", run, path, "--target", caption, "--json").json
        weights = np.array(found["weights"][1]).reshape(4, found["columns"])
        pixels = np.asarray(Image.open(path)).astype(int)
        square = np.abs(pixels - 128).max(-1).reshape(4, 4, 4, 4).max((1, 3)) > 20
        inside += bool(square.flat[int(weights.argmax())])
    assert inside >= 10


def test_predict_keeps_the_order_and_score_agrees(run: Path, home: Path) -> None:
    paths = [path for path, _ in unseen(home)[:3]]
    found = succeed("predict", run, *paths, "--json", "--nbest", "2").jsons
    assert [one["input"] for one in found] == list(map(str, paths))
    for one in found:
        assert one["score"] == one["nbest"][0]["score"] >= one["nbest"][1]["score"]
        scored = succeed(
            "score", run, one["input"], json.dumps(one["tokens"]), "--tokens", "--json"
        ).json
        assert scored["score"] == pytest.approx(one["score"], abs=1e-4)
    write(home / "list.txt", "\n".join(map(str, paths)))
    lines = succeed(
        "predict", run, "--file", home / "list.txt", "--record", home / "record.json"
    ).out.splitlines()
    assert lines == [one["output"] for one in found]
    search, *_ = json.loads((home / "record.json").read_text(encoding="utf-8"))["inputs"]
    assert search["source"][:5] == ["1,1", "1,2", "1,3", "1,4", "2,1"]
    assert len(search["source"]) == 16


def test_a_table_of_images_with_captions_or_without(
    run: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names are relative to the table, wherever the command runs, and a row has an output of
    its own."""
    paths = [path for path, _ in unseen(home)[:3]]
    outputs = succeed("predict", run, *paths).out.splitlines()
    names = [path.name for path in paths]
    tables = {
        "plain.tsv": "".join(f"{name}\tany caption\n" for name in names),
        "images.csv": "".join(f"{name}\n" for name in names),
        "images.jsonl": "".join(f"{json.dumps({'image': name})}\n" for name in names),
        "captions.jsonl": "".join(
            f"{json.dumps({'caption': ['one', 'two'], 'image': name})}\n" for name in names
        ),
        "list.txt": "".join(f"{name}\n" for name in names),
    }
    for folder in (home.parent, home):
        monkeypatch.chdir(folder)
        for name, text in tables.items():
            write(home / name, text)
            found = succeed(
                "predict", run, "--file", (home / name).relative_to(folder), "--json"
            ).jsons
            assert [one["output"] for one in found] == outputs, name
            assert [Path(one["input"]).resolve() for one in found] == [
                path.resolve() for path in paths
            ]
    monkeypatch.chdir(home.parent)
    (home.parent / "lists").mkdir(exist_ok=True)
    typed = write(
        home.parent / "lists" / "typed.txt", "".join(f"{home.name}/{name}\n" for name in names)
    )
    assert succeed("predict", run, "--file", typed).out.splitlines() == outputs


def test_rows_of_a_table_without_an_image_are_named_or_skipped(run: Path, home: Path) -> None:
    bad = write(
        home / "bad.jsonl",
        '{"image": "0.png"}\n{"image": "nope.png"}\n{"image": " "}\n{"image": 7}\n',
    )
    messages = fail("predict", run, "--file", bad)
    assert messages[0].startswith(
        f"{bad}:2: the image {home / 'nope.png'} does not exist (paths are relative to the f"
    )
    assert messages[1].startswith(f"{bad}:3: the name of the image is empty")
    assert messages[2].startswith(f"{bad}:4: the column 'image' holds 7, not a string")
    skipping = succeed("predict", run, "--file", bad, "--skip-bad").out.split("\n")
    assert [bool(line) for line in skipping[:4]] == [True, False, False, False]


def test_explain_draws_one_panel_a_word(run: Path, home: Path) -> None:
    path, caption = unseen(home)[0]
    drawn = {suffix: home / f"x{suffix}" for suffix in (".svg", ".png", ".html", ".json")}
    for file in drawn.values():
        succeed("explain", run, path, "--target", caption, "--out", file)
    printed = succeed("explain", run, path, "--target", caption).out
    words = [*caption.split(), "⏎"]
    rows = [line.split() for line in printed.splitlines()]
    assert [row[0] for row in rows if len(row) == 3 and re.fullmatch(r"\d,\d", row[1])] == words
    svg = drawn[".svg"].read_text(encoding="utf-8")
    assert svg.count("<image") == 1 + len(words)
    assert all(f">{word}</text>" in svg for word in words)
    figures = api.explain(run, str(path), target=caption).report().figures
    [image] = [part for part in figures if isinstance(part, ImageMap)]
    assert (list(image.words), image.grid, image.pixels.shape) == (words, (4, 4), (16, 16, 3))
    assert '<figure data-kind="image_map">' in drawn[".html"].read_text(encoding="utf-8")
    with Image.open(drawn[".png"]) as picture:
        assert picture.width > 400
    found = json.loads(drawn[".json"].read_text(encoding="utf-8"))
    assert found["columns"] == 4
    assert np.array(found["weights"]).shape == (len(words), 16)


def test_a_transformer_over_regions_rolls_out(transformer: Path, home: Path) -> None:
    path, caption = unseen(home)[0]
    given = ("explain", transformer, path, "--target", caption, "--rollout")
    assert (
        "rolled out to layer 1 · self-attention of the decoder"
        in succeed(*given, "--view", "decoder").out
    )
    succeed(*given, "--out", home / "rollout.svg")
    assert "rolled out to layer 1" in (home / "rollout.svg").read_text(encoding="utf-8")
    rollouts = api.explain(transformer, str(path), target=caption).rollouts
    of_source, of_target = (rollouts[kind][-1].weights[0] for kind in ("alignment", "decoder"))
    np.testing.assert_allclose(of_source.sum(1) + of_target.sum(1), 1, rtol=1e-5)
    assert fail("explain", home / "run", path, "--rollout")[0].startswith(
        "--rollout: the model 'captioner' has no"
    )


def test_a_plain_decoder_has_probabilities_to_show(home: Path) -> None:
    folder = home / "plain"
    succeed(
        "train", home / "recipe.yaml", "model.decoder=plain", "training.steps=2", "--out", folder
    )
    path = unseen(home)[0][0]
    assert (
        "has no attention to draw" in succeed("explain", folder, path, "--out", home / "y.svg").out
    )
    assert "likeliest" in (home / "y.svg").read_text(encoding="utf-8")
    assert "has no view 'alignment'" in refusal("explain", folder, path, "--view", "alignment")


def test_numbers_of_one_look(run: Path, home: Path) -> None:
    path, caption = unseen(home)[0]
    worked = succeed(
        "explain", run, path, "--target", caption, "--numbers", "--step", "2", "--json"
    ).json
    drawn = succeed("explain", run, path, "--target", caption, "--json").json
    assert worked["weights"] == pytest.approx(drawn["weights"][1], abs=1e-4)
    gated = np.array(worked["after"]["z_t = beta_t c_t, what the gate lets through"]) / np.array(
        worked["context"]
    )
    assert gated == pytest.approx(gated[0], abs=1e-3), "the gate is one number"
    assert 0 < gated[0] < 1


def test_every_verb_judges_an_output_by_all_captions_of_its_image(
    run: Path, home: Path, tmp_path: Path
) -> None:
    """The right captions of a model that is nearly always right, each with a second one that it
    would never write."""
    images = unseen(home)[:12]
    pairs = [
        (path.name, said) for path, right in images for said in ("nobody says this here", right)
    ]
    file = write(home / "pairs.tsv", "".join(f"{name}\t{said}\n" for name, said in pairs))
    evaluated = succeed("evaluate", run, "--file", file, "--json").json
    assert (evaluated["images"], evaluated["sentences"]) == (12, 24)
    diagnosed = succeed("diagnose", run, "--file", file, "--no-sweep", "--json").json
    assert diagnosed["sentences"] == 12
    assert (
        diagnosed["not_exact"]
        == diagnosed["errors"]
        == round(12 * (1 - evaluated["exact_match"]))
        <= 2
    )
    other = write(tmp_path / "other.txt", "".join(f"{right}\n" for _, right in images))
    compared = succeed(
        "compare", run, "--hypotheses", f"perfect={other}", "--file", file, "--json"
    ).json
    assert compared["sentences"] == 12
    for metric in ("bleu1", "bleu", "chrf", "exact_match"):
        [tested] = [
            row
            for row in compared["significance"]
            if (row["system"], row["metric"]) == ("run", metric)
        ]
        numbers = (
            evaluated[metric],
            diagnosed[metric],
            compared["systems"][0][metric],
            tested["score"],
        )
        assert numbers == pytest.approx([evaluated[metric]] * 4), metric
    assert compared["systems"][1]["exact_match"] == 1.0
    assert compared["errors"][0]["errors"] == diagnosed["errors"]
    assert compared["examples"][0]["reference"].startswith("nobody says this here / a ")
    short = write(tmp_path / "short.txt", "a\n" * 24)
    message = refusal("compare", run, "--hypotheses", f"x={short}", "--file", file)
    assert "24 lines for 12 inputs" in message
    assert "several references is one input" in message


def test_the_best_reference_is_what_the_output_is_held_against(
    run: Path, home: Path, tmp_path: Path
) -> None:
    """Of captions that differ by how likely they are, the verdict takes the likeliest, wherever it
    stands."""
    path, right = unseen(home)[0]
    said = [f"{right} {right}", f"{right} square", "square a a"]
    file = write(tmp_path / "pairs.tsv", "".join(f"{path}\t{one}\n" for one in said))
    scores = [succeed("score", run, path, one, "--json").json["score"] for one in said]
    found = succeed(
        "diagnose",
        run,
        "--file",
        file,
        "--no-sweep",
        "--json",
        "--set",
        "search.normalisation=none",
    ).json
    [example] = [*found["examples"]["search_errors"], *found["examples"]["model_errors"]]
    assert example["reference"] == said[scores.index(max(scores))]
    assert example["reference_log_p"] == pytest.approx(max(scores), abs=1e-3)
    assert example["references"] == said
    assert example["verdict"] == ("search" if max(scores) > example["output_log_p"] else "model")


def test_what_an_image_has_not(
    run: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / "words.vec", "1 32\nred " + " ".join(["0.1"] * 32))
    vectors = fail(
        "train",
        home / "recipe.yaml",
        "model.vectors={source: words.vec}",
        "--out",
        home / "vectors",
    )
    assert vectors == ["model: vectors of the source: this task has only target"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    write(tmp_path / "below" / "pairs.tsv", "nope.png\ta red square\n")
    message = refusal("evaluate", run, "--file", "below/pairs.tsv")
    assert message.endswith(
        "nope.png does not exist (paths are relative to the file that names them)"
    )
