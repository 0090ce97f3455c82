"""Two texts that are read apart and compared by their vectors: the equations, and what a user sees
of it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import refusal, succeed, write
from exchange_cases import answers, printed_by_the_card
from regard.config import write_yaml
from regard.data.batches import Padded
from regard.models.headed import ApartHead
from regard.runs import Run
from regard.tasks import TASKS

SIMILAR = "\n".join(
    f"{one} {two},{two} {one},5\n{one} {two},{three},1"
    for one in "abcd"
    for two in "abcd"
    for three in "abcd"
    if three not in (one, two)
)
"""Texts with the same words have 5, others 1."""


def recipe(folder: Path, rows: str, **training: Any) -> Path:
    write(folder / "train.csv", f"one,two,score\n{rows}\n")
    pairs = {"file": "train.csv", "first": "one", "second": "two", "label": "score"}
    defaults = {
        "steps": 2,
        "batch_tokens": 256,
        "device": "cpu",
        "schedule": "constant",
        "warmup": 0,
    }
    tree = {
        "task": "regression",
        "data": {"train": pairs, "validation": pairs},
        "tokenizer": {"kind": "word"},
        "model": {
            "kind": "bert",
            "layers": 1,
            "width": 16,
            "heads": 2,
            "feed_forward": 32,
            "max_positions": 32,
        },
        "head": {"apart": True, "dropout": 0.0},
        "training": {**defaults, **training},
    }
    return write(folder / "recipe.yaml", write_yaml(tree))


def outputs(run: Path, *texts: str) -> list[float]:
    return [answer["output"] for answer in answers(Run.open(run), *texts)]


class Rows:
    """The part of a batch that a head reads: four texts of two, one, three and two tokens."""

    text = Padded.of(torch.ones(4, 3, dtype=torch.long), torch.tensor([2, 1, 3, 2]))


@pytest.mark.parametrize("number", [True, False])
def test_the_equations(number: bool) -> None:
    """A number is the scaled cosine of the two means; classes are read from u, v and |u - v|."""
    head = ApartHead(5, 1 if number else 2, pooling="mean", dropout=0.5, number=number).eval()
    if number:
        head.linear.weight.data.fill_(4.0)
        head.linear.bias.data.fill_(1.0)
    h_BLD = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1))
    means = [
        [sum(h_BLD[row, place, d].item() for place in range(length)) / length for d in range(5)]
        for row, length in enumerate([2, 1, 3, 2])
    ]
    expected = []
    for u, v in (means[:2], means[2:]):
        dot, lengths = (
            sum(a * b for a, b in zip(u, v, strict=True)),
            sum(a * a for a in u) * sum(b * b for b in v),
        )
        both = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        classes = [
            sum(w * x for w, x in zip(row, both, strict=False))
            for row in head.linear.weight.tolist()
        ]
        expected += [1 + 4 * dot / math.sqrt(lengths)] if number else classes
    assert head(h_BLD, Rows()).flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_similar_texts_get_high_numbers(tmp_path: Path) -> None:
    run = regard.train(
        recipe(tmp_path, SIMILAR, steps=150, validate_every=150, learning_rate=3e-3),
        out=tmp_path / "run",
        quiet=True,
    )
    similar, different, swapped = outputs(tmp_path / "run", "a b\tb a", "a b\td", "d\ta b")
    assert similar > 4
    assert different < 2
    assert swapped == pytest.approx(different, abs=1e-5)  # there is no first and second
    assert regard.evaluate(run, split="validation")["pearson"] > 0.9
    assert run.recipe.head.pooling == "mean"  # type: ignore[attr-defined]


def test_it_begins_between_the_lowest_and_the_highest(tmp_path: Path) -> None:
    regard.train(
        recipe(tmp_path, "a b,a b,30\nc,a,10\nb,b a,20", learning_rate=1e-9),
        out=tmp_path / "run",
        quiet=True,
    )
    assert outputs(tmp_path / "run", "c\tc") == pytest.approx([30], abs=0.1)


def test_a_batch_stays_within_its_budget_with_its_padding(tmp_path: Path) -> None:
    rows = "\n".join(f"{'a ' * one},{'b ' * two},1" for one in range(1, 14) for two in range(1, 14))
    run: Run = regard.train(recipe(tmp_path, rows), out=tmp_path / "run", quiet=True)
    examples = (
        TASKS["regression"].prepare(run.recipe, tmp_path, progress=lambda what, done: None).train
    )
    shapes = [
        tuple(examples.batch(rows).text.ids_BL.shape) for rows in examples.plan(60, seed=1, epoch=0)
    ]
    assert max(rows * length for rows, length in shapes) <= 60
    assert sum(rows * length for rows, length in shapes) < 1.1 * examples.lengths.sum()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            ["head.both_orders=true"],
            "head.both_orders: two texts that are read apart have no order",
        ),
        (["data.long=windows"], "data.long: a text that is compared has one vector"),
        (
            [
                f"data.{part}={{file: train.csv, text: one, label: score}}"
                for part in ("train", "validation")
            ],
            "head.apart: there is only one text",
        ),
    ],
)
def test_what_cannot_be_read_apart(changes: list[str], words: str, tmp_path: Path) -> None:
    assert words in refusal("check", recipe(tmp_path, "a b,c,1.5\nc,a,0.5\nb,b a,0.25"), *changes)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_the_exported_folder_gives_the_same_vectors(pooling: Any, tmp_path: Path) -> None:
    """sentence-transformers reads it as it is, also texts that are cut, unknown, or have more than
    one space."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    file = recipe(tmp_path, "a b,a b,30\nc,a,10\nb,b a,20", learning_rate=0.1)
    changes = [
        f"head.pooling={pooling}",
        "data.max_length=10",
        "tokenizer.kind=bpe",
        "tokenizer.vocabulary=20",
    ]
    regard.train(file, out=tmp_path / "run", quiet=True, overrides=changes)
    told = succeed("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "out").out
    assert "for sentence-transformers; the head that compares them stays in the run" in told
    texts = ["a b", "b  a c", "c " * 30, "\u2603", "a"]
    ours = regard.features(tmp_path / "run", texts, pooling=pooling).vectors
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert model.max_seq_length == 10
    assert abs(model.encode(texts) - ours).max() < 1e-5
    similarity = float(model.similarity(ours[:1], ours[1:2]))
    head = Run.open(tmp_path / "run").load_model().head.linear
    expected = head.weight.item() * similarity + head.bias.item()
    assert outputs(tmp_path / "run", "\t".join(texts[:2])) == pytest.approx([expected], abs=1e-4)
    assert -1 <= float(printed_by_the_card(tmp_path / "out")) <= 1
    back = regard.import_run(tmp_path / "out", out=tmp_path / "back")
    assert abs(regard.features(back, texts[:2], pooling=pooling).vectors - ours[:2]).max() < 1e-5
