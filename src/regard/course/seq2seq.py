"""Chapter 1: one vector for a sentence: length, position, the order of the source, gradients and teacher forcing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from regard.api import Run, evaluate, predict
from regard.config.load import Tree
from regard.course.attention import BAHDANAU
from regard.course.lab import Findings, Found, Lab, Number, last_loss, reverse_recipe
from regard.course.search import MODEL as PLAIN
from regard.data.corpora import generate
from regard.runs.run import read_metrics
from regard.views.report import Cell, Curves, Part, Series, Table, Value

READER: Tree = {"kind": "rnn", "cell": "gru", "embedding": 32, "hidden": 96}
CELLS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
DISTANCES = (1, 5, 10, 20, 40)
RATES = (1.0, 0.5, 0.0)


def experiment(lab: Lab) -> Findings:
    parts, numbers = _lengths(lab)
    for more in (_source_order(lab), _gradients(), _teacher(lab)):
        parts |= more[0]
        numbers |= more[1]
    return Findings(parts, numbers)


def _lengths(lab: Lab) -> Found:
    """The same letters with and without attention: right answers by length, and right letters by position."""
    runs = {
        "one vector": lab.train("reverse-late", reverse_recipe(PLAIN, 450, 6e-3)),
        "attention": lab.train("reverse-additive", reverse_recipe(BAHDANAU, 300, 8e-3)),
    }
    pairs = list(generate("reverse", lab.few(600), 7, "test"))
    right = {name: _right(run, pairs) for name, run in runs.items()}
    lengths = sorted({len(source.split()) for source, _ in pairs})
    by_length: dict[str, list[float]] = {}
    for name, answers in right.items():
        shares = defaultdict(list)
        for letters in answers:
            shares[len(letters)].append(all(letters))
        by_length[name] = [float(np.mean(shares[length])) for length in lengths]
    long = max(lengths)
    places = {name: np.mean([row for row in answers if len(row) == long], axis=0) for name, answers in right.items()}
    x = [float(length) for length in lengths]
    parts: dict[str, Part | list[Part]] = {
        "by_length": Curves([Series(name, x, y) for name, y in by_length.items()], "letters", "exact match",
                            from_zero=True),
        "by_position": Curves([Series(name, [*range(1, long + 1)], y.tolist()) for name, y in places.items()],
                              "position in the output", "share of right letters", from_zero=True),
        "length_table": Table(["letters", *by_length], [[length, *(Cell(y[n], ".2f") for y in by_length.values())]
                                                        for n, length in enumerate(lengths)]),
    }  # fmt: skip
    plain, looked, place = by_length["one vector"], by_length["attention"], places["one vector"]
    return parts, {
        "plain_short": plain[0], "plain_long": float(np.mean(plain[-2:])),
        "attention_long": float(np.mean(looked[-2:])),
        "first_letter": float(place[0]), "last_letter": float(place[-1]), "longest": long,
    }  # fmt: skip


def _right(run: Run, pairs: list[tuple[str, ...]]) -> list[list[bool]]:
    """For each pair, which letters of the reference are written in their places."""
    outputs = predict(run, [source for source, _ in pairs], beam=1)
    found = []
    for prediction, (_, target) in zip(outputs, pairs, strict=True):
        written = prediction.to_json()["output"].split()
        found.append([place < len(written) and written[place] == letter for place, letter in enumerate(target.split())])
    return found


def _source_order(lab: Lab) -> Found:
    """Sutskever's trick: on the task `copy` a reversed source brings the first letters of both sides together."""
    rows, numbers = list[list[Value]](), dict[str, Number]()
    for corpus in ("copy", "reverse"):
        for reverse in (False, True):
            model = READER | {"reverse_source": reverse}
            name = f"{corpus}-{'backwards' if reverse else 'forwards'}"
            run = lab.train(name, reverse_recipe(model, 300, 6e-3, corpus=corpus))
            exact, loss = float(evaluate(run)["exact_match"]), last_loss(run, "validation")
            rows.append([corpus, "backwards" if reverse else "forwards", Cell(exact, ".2f"), Cell(loss, ".2f")])
            numbers |= {f"{name.replace('-', '_')}": exact, f"{name.replace('-', '_')}_loss": loss}
    return {"source_order": Table(["task", "source is read", "exact match", "validation loss"], rows)}, numbers


def _gradients() -> Found:
    """How much the last state depends on an input k steps before: the norm of d h_T / d x_{T-k}, untrained cells."""
    torch.manual_seed(1)
    norms: dict[str, list[float]] = {}
    for name, cell in CELLS.items():
        network, x_1TD = cell(64, 64, batch_first=True), torch.randn(1, max(DISTANCES) + 1, 64, requires_grad=True)
        out_1TD, _ = network(x_1TD)
        [gradient_1TD] = torch.autograd.grad(out_1TD[0, -1].sum(), x_1TD)
        sizes_T = gradient_1TD[0].norm(dim=-1)
        norms[name] = [float(sizes_T[-1 - distance] / sizes_T[-1]) for distance in DISTANCES]
    x = [float(distance) for distance in DISTANCES]
    curves = Curves([Series(name, x, [math.log10(max(y, 1e-30)) for y in values]) for name, values in norms.items()],
                    "steps before the end", "log10 of the gradient, the last input = 0")  # fmt: skip
    rows: list[list[Value]] = [
        [distance, *(Cell(values[n], ".1e") for values in norms.values())] for n, distance in enumerate(DISTANCES)
    ]
    return {"gradients": curves, "gradient_table": Table(["steps before the end", *norms], rows)}, {
        "rnn_gradient": norms["rnn"][-1], "lstm_gradient": norms["lstm"][-1], "furthest": DISTANCES[-1],
    }  # fmt: skip


def _teacher(lab: Lab) -> Found:
    """How often the decoder reads the right word instead of its own, at equal steps."""
    rows, numbers, lines = list[list[Value]](), dict[str, Number](), list[Series]()
    for rate in RATES:
        run = lab.train(
            f"teacher-{rate:g}", reverse_recipe(BAHDANAU, 240, 8e-3), teacher_forcing=rate, validate_every=40
        )
        log = list(read_metrics(run.folder / "metrics.jsonl"))
        steps, losses = zip(
            *((line["step"], line["loss"]) for line in log if line["event"] == "validation"), strict=True
        )
        exact, half = float(evaluate(run)["exact_match"]), float(losses[(len(losses) - 1) // 2])
        key = f"rate_{rate:g}".replace(".", "_")
        numbers |= {f"{key}_exact": exact, f"{key}_half": half, f"{key}_last": float(losses[-1])}
        lines.append(Series(f"rate {rate:g}", steps, losses))
        cells = [Cell(float(value), ".2f") for value in (half, losses[-1], exact)]
        rows.append([f"rate {rate:g}", *cells])
    columns = ["teacher forcing", "loss after 120 steps", "after 240", "exact match"]
    curves = Curves(lines, "step", "validation loss", from_zero=True)
    return {"teacher": curves, "teacher_table": Table(columns, rows)}, numbers
