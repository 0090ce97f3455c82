"""Two texts that are read apart and compared by their vectors: the equations, and what a user sees of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import fail, succeed, write
from regard.data.batches import Tokens
from regard.models.headed import ApartHead
from regard.runs import Run
from regard.tasks import TASKS
from test_classification import Project

BERT = {"kind": "bert", "layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "max_positions": 32}
PAIR = {"file": "train.csv", "first": "one", "second": "two", "label": "score"}


class Rows:
    """The part of a batch that a head reads: four texts of two, one, three and two tokens."""

    text = Tokens.of(torch.ones(4, 3, dtype=torch.long), torch.tensor([2, 1, 3, 2]))


def states() -> tuple[torch.Tensor, list[list[float]]]:
    h_BLD = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1))
    vectors = [
        [sum(h_BLD[row, place, d].item() for place in range(length)) / length for d in range(5)]
        for row, length in enumerate([2, 1, 3, 2])
    ]
    return h_BLD, vectors


def test_a_number_is_the_stretched_cosine() -> None:
    head = ApartHead(5, 1, pooling="mean", dropout=0.5, number=True)
    head.linear.weight.data.fill_(4.0)
    head.linear.bias.data.fill_(1.0)
    h_BLD, vectors = states()

    def cosine(u: list[float], v: list[float]) -> float:
        dot = sum(a * b for a, b in zip(u, v, strict=True))
        return dot / math.sqrt(sum(a * a for a in u) * sum(b * b for b in v))

    wanted = [1 + 4 * cosine(vectors[0], vectors[1]), 1 + 4 * cosine(vectors[2], vectors[3])]
    assert head(h_BLD, Rows())[:, 0].tolist() == pytest.approx(wanted, abs=1e-5)


def test_classes_are_told_by_both_vectors_and_their_difference() -> None:
    head = ApartHead(5, 2, pooling="mean", dropout=0.5, number=False).eval()
    h_BLD, vectors = states()
    wanted = []
    for u, v in [(vectors[0], vectors[1]), (vectors[2], vectors[3])]:
        read = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        weights = head.linear.weight.tolist()
        wanted += [sum(w * x for w, x in zip(row, read, strict=True)) for row in weights]
    assert head(h_BLD, Rows()).flatten().tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """Words that are the same have 5, others 1."""
    folder, words = tmp_path_factory.mktemp("apart"), "abcd"
    rows = [f"{one} {two},{two} {one},5\n{one} {two},{three},1" for one in words for two in words for three in words
            if three not in (one, two)]  # fmt: skip
    write(folder / "train.csv", "\n".join(["one,two,score", *rows]) + "\n")
    project = Project(folder, "regression", PAIR, model=BERT, head={"apart": True, "dropout": 0.0})
    return project.train("training.steps=150", "training.validate_every=150", "training.learning_rate=3e-3")


def test_alike_and_unlike_are_told(compared: Path) -> None:
    recipe: Any = Run.open(compared).recipe
    assert recipe.head.pooling == "mean"
    outputs = [one["output"] for one in succeed("predict", compared, "a b\tb a", "a b\td", "d\ta b", "--json").jsons]
    alike, unlike, turned = outputs
    assert alike > 4
    assert unlike < 2
    assert turned == pytest.approx(unlike, abs=1e-5)  # there is no first and second
    assert succeed("evaluate", compared, "--split", "validation", "--json").json["pearson"] > 0.9


def test_it_begins_between_the_lowest_and_the_highest(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "one,two,score\na b,a b,30\nc,a,10\nb,b a,20\n")
    project = Project(tmp_path, "regression", PAIR, model=BERT, head={"apart": True})
    run = project.train("training.learning_rate=1e-9")
    assert succeed("predict", run, "c\tc", "--json").json["output"] == pytest.approx(30, abs=0.1)


def test_a_batch_keeps_to_its_budget_with_its_padding(tmp_path: Path) -> None:
    pairs = [("a " * one, "b " * two) for one in range(1, 14) for two in range(1, 14)]
    write(tmp_path / "train.csv", "\n".join(["one,two,score", *(f"{one},{two},1" for one, two in pairs)]) + "\n")
    project = Project(tmp_path, "regression", PAIR, model=BERT, head={"apart": True})
    recipe: Any = Run.open(project.train()).recipe
    examples = TASKS["regression"].prepare(recipe, tmp_path, progress=lambda what, done: None).train
    shapes = [tuple(examples.batch(rows).text.ids_BL.shape) for rows in examples.plan(60, seed=1, epoch=0)]
    assert max(rows * length for rows, length in shapes) <= 60
    assert sum(rows * length for rows, length in shapes) < 1.1 * examples.lengths.sum()


def test_it_has_no_likeness_in_transformers(compared: Path, tmp_path: Path) -> None:
    [message] = fail("export", compared, "--to", "huggingface", "--out", tmp_path / "out")
    assert "transformers has no counterpart of head.apart: true" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["head.both_orders=true"], "head.both_orders: two texts that are read apart have no order"),
        (["data.long=windows"], "data.long: a text that is compared has one vector"),
        (
            [f"data.{part}={{file: train.csv, text: one, label: score}}" for part in ("train", "validation")],
            "head.apart: there is only one text",
        ),
    ],
)
def test_what_cannot_be_read_apart(changes: list[str], words: str, tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "one,two,score\na b,c,1.5\nc,a,0.5\nb,b a,0.25\n")
    recipe = Project(tmp_path, "regression", PAIR, model=BERT, head={"apart": True}).recipe
    [message] = fail("check", recipe, *changes)
    assert words in message
