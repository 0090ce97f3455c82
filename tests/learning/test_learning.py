"""Each model learns, through the command line, and is measured on sequences it has never seen.

The task is to write a sequence of letters backwards. Bahdanau's point shows in it: a model that has
to carry the whole sentence in one vector gets worse with its length, one that can look back does
not (arXiv:1409.0473, figure 2). Each score, reach and cell besides learns short sequences; with the
window of local_m, which walks forwards, to copy them (Luong et al. 2015, arXiv:1508.04025, section
3.2: "monotonic alignment").
"""

from collections.abc import Callable, Sequence
from itertools import islice, pairwise, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import regard
from command_line import succeed, write
from regard.config import write_yaml
from regard.data.corpora import Part, generate
from regard.models import MODELS as KINDS

THREE_STEPS = {
    "kind": "self_attention",
    "width": 48,
    "heads": 2,
    "decoder_layers": 2,
    "feed_forward": 96,
    "norm": "post",
}
SIZES = {"embedding": 32, "hidden": 64}
MODELS: dict[str, tuple[dict[str, Any], int, float, int]] = {
    "rnn": (
        {"kind": "rnn", "cell": "gru", "embedding": 32, "hidden": 96, "context": "every_step"},
        220,
        1e-2,
        100,
    ),
    "bahdanau": ({"kind": "bahdanau", **SIZES, "attention": 64}, 150, 1e-2, 30),
    "luong": ({"kind": "luong", **SIZES, "input_feeding": False}, 200, 1e-2, 30),
    "luong-local-p": ({"kind": "luong", **SIZES, "reach": "local_p", "window": 5}, 200, 1e-2, 30),
    "self-attention-plain": (THREE_STEPS | {"encoder": "plain"}, 250, 5e-3, 20),
    "self-attention-projected": (THREE_STEPS | {"encoder": "projected"}, 250, 8e-3, 40),
    "self-attention-multi-head": (THREE_STEPS | {"encoder": "multi_head"}, 250, 8e-3, 40),
    "transformer": (
        {
            "kind": "transformer",
            "width": 48,
            "heads": 2,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "feed_forward": 96,
            "norm": "post",
        },
        260,
        1e-2,
        40,
    ),
}
"""Model, steps, learning rate and warm-up that take a few seconds on one core."""
LONG = ("rnn", "bahdanau")
"""What is trained on sequences of up to 12 letters; the others see up to 6."""

Learn = Callable[[str], Path]


def recipe(model: dict[str, Any], data: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "task": "translation",
        "data": data,
        "tokenizer": {"kind": "word"},
        "model": {"dropout": 0.0, **model},
        "training": {
            "device": "cpu",
            "schedule": "linear",
            "label_smoothing": 0.0,
            "decode": 0,
            **training,
        },
        "search": {"beam": 2},
    }


def unseen(size: int, lengths: range, part: Part = "test") -> list[tuple[str, ...]]:
    """The first sequences of these lengths."""
    pairs = generate("reverse", 20_000, 7, part)
    return list(islice((pair for pair in pairs if len(pair[0].split()) in lengths), size))


def files(folder: Path, parts: dict[str, Sequence[tuple[str, ...]]]) -> dict[str, Any]:
    """Pairs of texts as files, and what a recipe says of them."""
    found: dict[str, Any] = {}
    for part, pairs in parts.items():
        file = write(
            folder / f"{part}.tsv",
            "".join(f"{source}\t{target}\n" for source, target in [("source", "target"), *pairs]),
        )
        found[part] = {"file": str(file), "source": "source", "target": "target"}
    return found


@pytest.fixture(scope="module")
def learn(tmp_path_factory: pytest.TempPathFactory) -> Learn:
    """Trains a model once, whichever test asks for it first."""
    folder = tmp_path_factory.mktemp("learning")
    sizes: dict[Part, int] = {"train": 5000, "validation": 100, "test": 200}
    long = {part: {"corpus": "reverse", "size": size} for part, size in sizes.items()}
    short = files(folder, {part: unseen(size, range(3, 7), part) for part, size in sizes.items()})

    def train(name: str) -> Path:
        if not (folder / name).exists():
            model, steps, rate, warmup = MODELS[name]
            data, batch_tokens = (long, 768) if name in LONG else (short, 384)
            training = {
                "steps": steps,
                "learning_rate": rate,
                "warmup": warmup,
                "validate_every": steps,
            }
            tree = recipe(model, data, batch_tokens=batch_tokens, **training)
            succeed(
                "train",
                write(folder / f"{name}.yaml", write_yaml(tree)),
                "--out",
                folder / name,
                "--json",
            )
        return folder / name

    return train


def exact_match(run: Path, folder: Path, lengths: range) -> float:
    """The share of unseen sequences of these lengths that are written backwards without a
    mistake."""
    file = files(folder, {"test": unseen(100, lengths)})["test"]["file"]
    found = succeed("evaluate", run, "--file", file, "--json").json
    assert found["sentences"] == 100
    return float(found["exact_match"])


def test_no_model_of_the_line_is_left_out() -> None:
    assert {model["kind"] for model, *_ in MODELS.values()} == {
        kind for kind, model in KINDS.items() if model.config.reads == "source"
    }


@pytest.mark.parametrize("name", [name for name in MODELS if name != "rnn"])
def test_a_model_with_attention_learns_to_reverse(learn: Learn, name: str) -> None:
    found = succeed("evaluate", learn(name), "--json").json
    assert found["sentences"] == 200
    assert found["exact_match"] >= 0.95
    assert found["bleu"] >= 98
    assert found["perplexity"] < 1.1


def test_the_plain_rnn_learns_short_sequences_but_not_long_ones(
    learn: Learn, tmp_path: Path
) -> None:
    short, long = range(3, 5), range(10, 13)
    rnn, bahdanau = learn("rnn"), learn("bahdanau")
    assert exact_match(rnn, tmp_path, short) >= 0.85
    assert exact_match(bahdanau, tmp_path, short) >= 0.95
    attending = exact_match(bahdanau, tmp_path, long)
    assert attending >= 0.9
    assert exact_match(rnn, tmp_path, long) <= attending - 0.5


@pytest.mark.parametrize("name", ["bahdanau", "luong-local-p"])
def test_attention_looks_where_it_should(learn: Learn, name: str) -> None:
    """To write the i-th letter from the end, look at the i-th from the end: the alignment runs
    backwards."""
    source = "a b c d e f" if name not in LONG else "a b c d e f g h"
    found = succeed("explain", learn(name), source, "--json").json
    assert found["target"][:-1] == [f"▁{letter}" for letter in reversed(source.split())]
    looks = [max(range(len(row)), key=row.__getitem__) for row in found["weights"][:-1]]
    steps = [before - after for before, after in pairwise(looks)]
    assert steps.count(1) >= len(steps) - 1


BAHDANAU = {"kind": "bahdanau", "embedding": 16, "hidden": 32, "attention": 32}
LUONG = {"kind": "luong", "embedding": 16, "hidden": 32, "input_feeding": False}
VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "bahdanau-fully-connected": (BAHDANAU | {"score": "fully_connected"}, 100),
    "bahdanau-plain-cell": (BAHDANAU | {"cell": "rnn"}, 100),
    "luong-dot": (LUONG | {"score": "dot"}, 200),
    "luong-scaled-dot": (LUONG | {"score": "scaled_dot"}, 250),
    "luong-concat": (LUONG | {"score": "concat"}, 240),
    "luong-local-m": (LUONG | {"reach": "local_m", "window": 1}, 200),
}
"""The model, and the steps that it takes; Bahdanau's concat is his additive score
(test_scores.py)."""


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_learns_short_sequences(name: str, tmp_path: Path) -> None:
    model, steps = VARIANTS[name]
    texts = [" ".join(letters) for size in (2, 3, 4) for letters in product("abcde", repeat=size)]
    Random(1).shuffle(texts)
    direction = 1 if model.get("reach") == "local_m" else -1
    pairs = [(text, text[::direction]) for text in texts]
    data = files(tmp_path, {"train": pairs[100:], "test": pairs[:100]})
    training = {
        "steps": steps,
        "batch_tokens": 512,
        "learning_rate": 0.02,
        "warmup": 20,
        "validate_every": steps,
    }
    tree = recipe(model, data | {"validation": {"split": 0.05}}, **training) | {
        "search": {"beam": 1}
    }
    found = regard.evaluate(regard.train(tree, out=tmp_path / "run", quiet=True))
    assert found["sentences"] == 100
    assert found["exact_match"] >= 0.9
    assert found["perplexity"] < 1.2
