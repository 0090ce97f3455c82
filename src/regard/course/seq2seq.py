"""Chapter 1: one vector for a sentence, and what it holds: length, width, position, distractors, the
order of the source, gradients, teacher forcing; and word-by-word translation as a baseline."""

from __future__ import annotations

import gzip
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, groupby, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from regard.api import Run, compare, evaluate, explain, predict
from regard.config import Tree
from regard.course.lab import (
    BAHDANAU_MODEL,
    ONE_VECTOR_MODEL,
    SENTENCE_SIZES,
    Findings,
    Lab,
    last_loss,
    pair_batch,
    phrases_recipe,
    reverse_recipe,
    shipped_on,
    source_tokens,
)
from regard.course.seeds import Claim
from regard.data.corpora import SYMBOLS, generate
from regard.recipes.shipped import shipped_text
from regard.views.compare import training_length
from regard.views.diagrams import diagram
from regard.views.report import Curves, HeatMap, HeatMaps, Series, Table

READER_MODEL: Tree = {"kind": "rnn", "cell": "gru", "embedding": 32, "hidden": 96}
GREETING_MODEL: Tree = {
    "kind": "rnn",
    "cell": "gru",
    "embedding": 32,
    "hidden": 64,
    "context": "every_step",
    "dropout": 0.0,
}
RECURRENT_CELLS: dict[str, Callable[..., nn.RNNBase]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
GRADIENT_DISTANCES = (1, 5, 10, 20, 40)
RECURRENT_GAINS = (0.8, 1.0, 1.25)
"""What the recurrent weights of a plain RNN multiply a small state by."""
TRAINED_DISTANCES = (1, 3, 6, 9)
"""Steps before the end of a sequence of ten letters, for the gradients of trained cells."""
COMPARED_WIDTHS = (24, 48, 96)
LONG_STEPS = 1000
"""Steps after which the loss of one vector hardly falls any more."""
TEACHER_FORCING_RATES = (1.0, 0.5, 0.0)
TESTED_DISTRACTORS = (0, 5, 10, 20, 40)
"""Numbers of distractors in the tests; in training, up to MAX_TRAINED_DISTRACTORS."""
MAX_TRAINED_DISTRACTORS = 20
REVERSING_MODELS: dict[str, tuple[Tree, int, float]] = {
    "one vector": (ONE_VECTOR_MODEL, 450, 6e-3),
    "attention": (BAHDANAU_MODEL, 300, 8e-3),
}
"""Model, steps and learning rate."""


CLAIMS = {
    "holds_short": Claim(
        "One vector holds short sequences.",
        lambda n: n["plain_short"] > 0.85,
    ),
    "loses_long": Claim(
        "It loses long ones, which attention holds.",
        lambda n: n["plain_long"] < n["attention_long"] - 0.25,
    ),
    "width": Claim(
        "A wider vector holds longer sequences.",
        lambda n: n["narrow_long"] < n["wide_long"] - 0.1,
    ),
    "converged": Claim(
        "Trained for longer, one vector is better, and long sequences still suffer.",
        lambda n: n["longer_long"] > n["wide_long"] and n["longer_long"] < n["longer_short"] - 0.1,
    ),
    "last_letters": Claim(
        "The letters that are written last suffer most.",
        lambda n: n["last_letter"] < n["first_letter"] - 0.05,
    ),
    "read_last": Claim(
        "The vector holds best what was read last.",
        lambda n: n["probe_last"] > n["probe_first"],
    ),
    "distractors": Claim(
        "Distractors beyond those of the training hurt one vector more than attention.",
        lambda n: n["beyond"] < n["attention_beyond"] - 0.1,
    ),
    "copy_backwards": Claim(
        "Reading the source backwards helps when letters are copied.",
        lambda n: n["copy_backwards_loss"] < n["copy_forwards_loss"],
    ),
    "reverse_backwards": Claim(
        "It hurts when letters are reversed.",
        lambda n: n["reverse_forwards_loss"] < n["reverse_backwards_loss"],
    ),
    "vanish": Claim(
        "In an untrained plain RNN gradients vanish; attention has a direct path.",
        lambda n: n["rnn_gradient"] < 1e-6 < n["attention_gradient"],
    ),
    "explode": Claim(
        "With large recurrent weights they explode.",
        lambda n: n["exploded"] > 100,
    ),
    "trained_gru": Claim(
        "A trained GRU keeps more of the gradient than a trained plain RNN.",
        lambda n: n["trained_gru"] > n["trained_rnn"],
    ),
    "trained_lstm": Claim(
        "So does a trained LSTM.",
        lambda n: n["trained_lstm"] > n["trained_rnn"],
    ),
    "beats_dictionary": Claim(
        "Attention has a higher BLEU than a dictionary, in French and Korean.",
        lambda n: (
            n["fr_attention"] > n["fr_word_by_word"] and n["ko_attention"] > n["ko_word_by_word"]
        ),
    ),
    "learns_faster": Claim(
        "Teacher forcing learns faster.",
        lambda n: n["rate_1_half"] < n["rate_0_half"],
    ),
    "exposed": Claim(
        "Own letters cost a model with teacher forcing more than one without.",
        lambda n: n["rate_1_right"] - n["rate_1_own"] > n["rate_0_right"] - n["rate_0_own"],
    ),
    "misled": Claim(
        "After a mistake it is misled more.",
        lambda n: n["rate_1_after_own"] < min(n["rate_0_after_own"], n["rate_1_after_right"]) - 0.1,
    ),
    "writes_better": Claim(
        "It writes better all the same.",
        lambda n: n["rate_1_exact"] > n["rate_0_exact"] + 0.2,
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def experiment(lab: Lab) -> Findings:
    names = {"one vector": "reverse-late", "attention": "reverse-additive-both-ways"}
    runs = {
        name: lab.train(names[name], reverse_recipe(*recipe))
        for name, recipe in REVERSING_MODELS.items()
    }
    found = (
        _quality_by_length(lab, runs)
        | _capacity(lab, runs)
        | _probed_vector(lab, runs["one vector"])
        | _distractors(lab)
        | _source_order(lab)
        | _greeting(lab)
    )
    found |= _gradients(lab) | _gains() | _trained_gradients(lab)
    found |= _teacher(lab) | _word_by_word(lab)
    return found | (_caption_quality(lab) if lab.full else {})


def _greeting(lab: Lab) -> Findings:
    """Draw the model with one short sentence in it; chapter 2 draws the same with attention."""
    recipe = yaml.safe_load(shipped_text("how-are-you")) | {"model": GREETING_MODEL}
    looked = explain(lab.train("how-are-you-one-vector", recipe), "How are you?")
    return lab.examples(drawn=diagram(looked)) | {"greeting": looked.output}


def _quality_by_length(lab: Lab, runs: dict[str, Run]) -> Findings:
    """Compare models with and without attention on the same letters: right answers by length, and
    right letters by position."""
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
    places = {
        name: np.mean([row for row in answers if len(row) == long], axis=0)
        for name, answers in right.items()
    }
    lines = [
        Series(name, [float(length) for length in lengths], y) for name, y in by_length.items()
    ]
    plain = by_length["one vector"]
    looked = by_length["attention"]
    place = places["one vector"]
    return {
        "by_length": Curves(lines, "letters", "exact match", from_zero=True),
        "by_position": Curves(
            [Series(name, [*range(1, long + 1)], y.tolist()) for name, y in places.items()],
            "position in the output",
            "share of right letters",
            from_zero=True,
        ),
        "length_table": Table(
            ["letters", *by_length],
            [*zip(lengths, *by_length.values(), strict=True)],
            formats=[".2f"],
        ),
        "plain_short": plain[0],
        "plain_long": float(np.mean(plain[-2:])),
        "attention_long": float(np.mean(looked[-2:])),
        "first_letter": float(place[0]),
        "last_letter": float(place[-1]),
        "longest": long,
    }


def _capacity(lab: Lab, runs: dict[str, Run]) -> Findings:
    """Vary the width of the one vector, then train it for longer: sequences without a mistake by
    length, beside attention."""
    pairs = list(generate("reverse", lab.few(600), 7, "test"))
    lengths = np.array([len(source.split()) for source, _ in pairs])
    _, steps, rate = REVERSING_MODELS["one vector"]
    systems = {
        f"width {width}": runs["one vector"]
        if width == ONE_VECTOR_MODEL["hidden"]
        else lab.train(
            f"reverse-width-{width}",
            reverse_recipe(ONE_VECTOR_MODEL | {"hidden": width}, steps, rate),
        )
        for width in COMPARED_WIDTHS
    }
    widest = ONE_VECTOR_MODEL["hidden"]
    systems[f"width {widest}, {LONG_STEPS:,} steps"] = lab.train(
        "reverse-longer", reverse_recipe(ONE_VECTOR_MODEL, LONG_STEPS, rate)
    )
    systems["attention"] = runs["attention"]
    places = sorted({*lengths.tolist()})
    is_long = lengths >= places[-2]
    lines = []
    rows = []
    for name, run in systems.items():
        exact = np.array([all(letters) for letters in _right(run, pairs)], dtype=float)
        by_length = [float(exact[lengths == length].mean()) for length in places]
        lines.append(Series(name, [float(length) for length in places], by_length))
        log = [line["loss"] for line in run.events() if line["event"] == "validation"]
        rows.append([name, float(exact.mean()), float(exact[is_long].mean()), float(log[-1])])
    columns = ["model", "exact match", "the two longest lengths", "validation loss"]
    narrow, widest_long, longer, looked = (rows[place][2] for place in (0, -3, -2, -1))
    return {
        "capacity": Curves(lines, "letters", "exact match", from_zero=True),
        "capacity_table": Table(columns, rows, formats=["", ".2f", ".2f", ".3f"]),
        "narrow_long": narrow,
        "wide_long": widest_long,
        "longer_long": longer,
        "longer_short": lines[-2].y[0],
        "looked_long": looked,
    }


def _right(run: Run, pairs: Sequence[tuple[str, ...]]) -> list[list[bool]]:
    """For each pair, which letters of the reference are written in their places."""
    outputs = predict(run, [source for source, _ in pairs], beam=1)
    found = []
    for prediction, (_, target) in zip(outputs, pairs, strict=True):
        written = prediction.to_json()["output"].split()
        found.append(
            [
                place < len(written) and written[place] == letter
                for place, letter in enumerate(target.split())
            ]
        )
    return found


def _probed_vector(lab: Lab, run: Run) -> Findings:
    """Show the encoder's state while it reads, and the letters that a linear probe still finds in
    the last one.

    The probe is least squares from c to each letter of the source, tested on sequences that it has
    not seen.
    """
    random = Random(1)
    length = 12
    rows = [[random.choice(SYMBOLS) for _ in range(length)] for _ in range(lab.few(4000))]
    model: Any = run.load_model()
    trained = len(rows) * 3 // 4
    letters = SYMBOLS[:8]
    with torch.inference_mode():
        c_ND = model.encode(source_tokens(run, [" ".join(row) for row in rows]))[1]
        read = [
            model.encode(source_tokens(run, [" ".join(letters[:end])]))[1][0]
            for end in range(1, len(letters) + 1)
        ]
    inputs_ND = torch.cat([c_ND, torch.ones(len(rows), 1)], 1).double()
    places_NL = torch.tensor([[SYMBOLS.index(letter) for letter in row] for row in rows])
    wanted_NL = nn.functional.one_hot(places_NL, len(SYMBOLS)).double().flatten(1)
    probe = torch.linalg.lstsq(inputs_ND[:trained], wanted_NL[:trained], driver="gelsd").solution
    guessed_NL = (inputs_ND[trained:] @ probe).view(-1, length, len(SYMBOLS)).argmax(-1)
    found = (guessed_NL == places_NL[trained:]).double().mean(0).tolist()
    states = HeatMap(
        letters,
        [str(n) if n % 16 == 0 else "" for n in range(c_ND.shape[1])],
        torch.stack(read).numpy(),
    )
    line = Series("linear probe", [*range(1, length + 1)], found)
    curves = Curves([line], "position in the source", "share of right letters", from_zero=True)
    return {
        "states": HeatMaps([states]),
        "probe": curves,
        "probe_first": found[0],
        "probe_last": found[-1],
    }


def _distractors(lab: Lab) -> Findings:
    """Write five letters backwards among letters that mean nothing: how many of those can each
    model stand?"""
    random = Random(1)

    def pair(count: int) -> tuple[str, str]:
        read = [random.choice("xyz") for _ in range(count)]
        letters = [random.choice(SYMBOLS) for _ in range(5)]
        for letter, place in zip(
            letters, sorted(random.choices(range(count + 1), k=5), reverse=True), strict=True
        ):
            read.insert(place, letter)  # from the end, so that the first of `letters` is read last
        return " ".join(read), " ".join(letters)

    data = {
        part: lab.pairs(
            f"distractors-{part}",
            [pair(random.randrange(MAX_TRAINED_DISTRACTORS + 1)) for _ in range(size)],
        )
        for part, size in (("train", 8000), ("validation", 100))
    }
    tests = {count: [pair(count) for _ in range(lab.few(200))] for count in TESTED_DISTRACTORS}
    shares: dict[str, list[float]] = {}
    for name, recipe in REVERSING_MODELS.items():
        run = lab.train(
            f"distractors-{name.replace(' ', '-')}", reverse_recipe(*recipe) | {"data": data}
        )
        shares[name] = [
            float(np.mean([all(row) for row in _right(run, pairs)])) for pairs in tests.values()
        ]
    lines = [Series(name, TESTED_DISTRACTORS, values) for name, values in shares.items()]
    curves = Curves(lines, "distractors", "exact match", from_zero=True)
    return {
        "distractors": curves,
        "most": MAX_TRAINED_DISTRACTORS,
        "distracted": min(shares["one vector"][:-1]),
        "beyond": shares["one vector"][-1],
        "attention_beyond": shares["attention"][-1],
        "beyond_count": TESTED_DISTRACTORS[-1],
    }


def _source_order(lab: Lab) -> Findings:
    """Try Sutskever's trick: in the task `copy` a reversed source brings the first letters of both
    sides together."""
    rows = []
    numbers = Findings()
    for corpus, order in product(("copy", "reverse"), ("forwards", "backwards")):
        model = READER_MODEL | {"reverse_source": order == "backwards"}
        run = lab.train(f"{corpus}-{order}", reverse_recipe(model, 300, 6e-3, corpus=corpus))
        exact = float(evaluate(run)["exact_match"])
        loss = last_loss(run, "validation")
        rows.append([corpus, order, exact, loss])
        numbers |= {f"{corpus}_{order}": exact, f"{corpus}_{order}_loss": loss}
    columns = ["task", "source is read", "exact match", "validation loss"]
    return {"source_order": Table(columns, rows, formats=[".2f"]), **numbers}


def _gradients(lab: Lab) -> Findings:
    """Measure how much the last state depends on an input k steps before: the norm of d h_T / d
    x_{T-k}, untrained cells; mean over sequences.

    The last state may also look at all states, as Luong's `dot`: then it is the norm of d c / d
    x_{T-k}.
    """
    torch.manual_seed(lab.seed)
    norms: dict[str, list[float]] = {}

    def keep(name: str, out_BD: Tensor, x_BTD: Tensor) -> None:
        [gradient_BTD] = torch.autograd.grad(out_BD.sum(), x_BTD, retain_graph=True)
        sizes_T = gradient_BTD.norm(dim=-1).mean(0)
        norms[name] = [
            float(sizes_T[-1 - distance] / sizes_T[-1]) for distance in GRADIENT_DISTANCES
        ]

    for name, cell in RECURRENT_CELLS.items():
        network = cell(64, 64, batch_first=True)
        x_BTD = torch.randn(32, max(GRADIENT_DISTANCES) + 1, 64, requires_grad=True)
        h_BTD, _ = network(x_BTD)
        keep(name, h_BTD[:, -1], x_BTD)
        alpha_BT = torch.einsum("btd,bd->bt", h_BTD, h_BTD[:, -1]).softmax(1)
        keep(f"{name} + attention", torch.einsum("bt,btd->bd", alpha_BT, h_BTD), x_BTD)
    x = [float(distance) for distance in GRADIENT_DISTANCES]
    lines = [
        Series(name, x, [math.log10(max(y, 1e-30)) for y in values])
        for name, values in norms.items()
    ]
    rows = [*zip(GRADIENT_DISTANCES, *norms.values(), strict=True)]
    return {
        "gradients": Curves(lines, "steps before the end", "log10 of the gradient"),
        "gradient_table": Table(["steps before the end", *norms], rows, formats=[".1e"]),
        "rnn_gradient": norms["rnn"][-1],
        "lstm_gradient": norms["lstm"][-1],
        "furthest": GRADIENT_DISTANCES[-1],
        "attention_gradient": norms["rnn + attention"][-1],
    }


def _gains() -> Findings:
    """Multiply a small state again and again by orthogonal weights times a gain: the gradient is gain
    ** k. Above 1 it explodes, below 1 it vanishes; tanh alone would make it smaller still."""
    torch.manual_seed(1)
    orthogonal_DD = nn.init.orthogonal_(torch.empty(64, 64))
    lines = []
    rows = list[list[Any]]([k] for k in GRADIENT_DISTANCES)
    for gain in RECURRENT_GAINS:
        network = nn.RNN(64, 64, bias=False, batch_first=True)
        network.weight_hh_l0.data = gain * orthogonal_DD
        x_1TD = (1e-9 * torch.randn(1, GRADIENT_DISTANCES[-1] + 1, 64)).requires_grad_()
        [h_TD], _ = network(x_1TD)
        [gradient_1TD] = torch.autograd.grad(h_TD[-1].sum(), x_1TD)
        norms_T = gradient_1TD[0].norm(dim=-1)
        found = [float(norms_T[-1 - k] / norms_T[-1]) for k in GRADIENT_DISTANCES]
        lines.append(
            Series(f"gain {gain:g}", [*map(float, GRADIENT_DISTANCES)], [*map(math.log10, found)])
        )
        for row, value in zip(rows, found, strict=True):
            row.append(value)
    columns = ["steps before the end", *(f"gain {gain:g}" for gain in RECURRENT_GAINS)]
    return {
        "gains": Curves(lines, "steps before the end", "log10 of the gradient"),
        "gains_table": Table(columns, rows, formats=["", ".1e"]),
        "exploded": rows[-1][-1],
        "largest_gain": RECURRENT_GAINS[-1],
    }


def _trained_gradients(lab: Lab) -> Findings:
    """The same in cells that have learned to write letters backwards: the gradient of the vector c at
    letters further and further back, in test sequences of ten letters; mean, and the share of
    sequences in which it grows on its way back."""
    random = Random(2)
    texts = [" ".join(random.choice(SYMBOLS) for _ in range(10)) for _ in range(lab.few(50))]
    rows = []
    lines = []
    numbers = Findings()
    for cell in RECURRENT_CELLS:
        settings = READER_MODEL | {"cell": cell, "reverse_source": False}
        recipe = reverse_recipe(settings, 300, 6e-3)
        name = "reverse-forwards" if cell == READER_MODEL["cell"] else f"reverse-cell-{cell}"
        run = lab.train(name, recipe)
        model: Any = run.load_model()
        source = source_tokens(run, texts)
        x_BSD = model.source_embedding(source.ids_BL).detach().requires_grad_()
        h_BSD, _ = model.encoder(x_BSD, source)
        end = h_BSD.shape[1] - 2  # the last letter; the end of the text comes after it
        [gradient_BSD] = torch.autograd.grad(h_BSD[:, end].sum(), x_BSD)
        norms_BS = gradient_BSD.norm(dim=-1).numpy()
        ratios = [norms_BS[:, end - k] / norms_BS[:, end] for k in TRAINED_DISTANCES]
        exact = float(evaluate(run)["exact_match"])
        means = [float(np.exp(np.log(ratio).mean())) for ratio in ratios]
        grown = float(np.mean([ratio > 1 for ratio in ratios]))
        rows.append([cell, exact, *means, grown])
        lines.append(Series(cell, [*map(float, TRAINED_DISTANCES)], [*map(math.log10, means)]))
        numbers |= {f"trained_{cell}": means[-1], f"trained_{cell}_grown": grown}
    columns = ["cell", "exact match", *(f"{k} before" for k in TRAINED_DISTANCES), "grows"]
    return {
        "trained_gradients": Curves(lines, "steps before the end", "log10 of the gradient"),
        "trained_table": Table(
            columns, rows, formats=["", ".2f", ".2g", ".2g", ".2g", ".2g", ".2f"]
        ),
        "trained_distance": TRAINED_DISTANCES[-1],
        **numbers,
    }


def _teacher(lab: Lab) -> Findings:
    """Vary how often the decoder reads the right letter instead of its own, for equal steps."""
    pairs = sorted(generate("reverse", lab.few(600), 7, "test"), key=lambda pair: len(pair[0]))
    rows = []
    exposure = []
    lines = []
    numbers = Findings()
    for rate in TEACHER_FORCING_RATES:
        steps, losses, measured = _taught(lab, rate, pairs)
        name = f"rate {rate:g}"
        key = f"rate_{rate:g}".replace(".", "_")
        lines.append(Series(name, steps, losses))
        numbers |= {f"{key}_{word}": value for word, value in measured.items()}
        rows.append([name, *(measured[word] for word in ("half", "last", "exact", "seconds"))])
        exposure.append(
            [name, *(measured[word] for word in ("right", "own", "after_right", "after_own"))]
        )
    learned = ["loss after 150 steps", "after 300", "exact match", "seconds"]
    exposed = [
        "right letters before",
        "own letters before",
        "right, after a mistake",
        "own, after a mistake",
    ]
    table = Table(["teacher forcing", *learned], rows, formats=["", ".2f", ".2f", ".2f", ".1f"])
    return numbers | {
        "teacher": Curves(lines, "step", "validation loss", from_zero=True),
        "teacher_table": table,
        "exposure": Table(["teacher forcing", *exposed], exposure, formats=[".2f"]),
    }


def _taught(
    lab: Lab, rate: float, pairs: Sequence[tuple[str, ...]]
) -> tuple[list[int], list[float], dict[str, float]]:
    """The steps and losses of a run, and what it writes: with its own letters before, and with the
    right ones."""
    recipe = reverse_recipe(ONE_VECTOR_MODEL, 300, 6e-3)
    run = lab.train(f"teacher-{rate:g}", recipe, teacher_forcing=rate, validate_every=50)
    log = [*run.events()]
    steps, losses = zip(
        *((line["step"], line["loss"]) for line in log if line["event"] == "validation"),
        strict=True,
    )
    own = _right(run, pairs)
    right = list[list[bool]]()
    model: Any = run.load_model()
    for _, group in groupby(pairs, key=lambda pair: len(pair[0])):
        batch = pair_batch(run, *zip(*group, strict=True))
        with torch.inference_mode():
            best_BT = model.readout(model(batch).hidden_BTD).argmax(-1)
        right += (best_BT == batch.target.ids_BL[:, 1:])[:, :-1].tolist()
    first = [
        row.index(False) + 1 if False in row else len(row) for row in own
    ]  # the place after the first mistake
    shares = {"right": right, "own": own}
    later = {
        name: [row[place:] for row, place in zip(rows, first, strict=True)]
        for name, rows in shares.items()
    }
    every = shares | {f"after_{name}": rows for name, rows in later.items()}
    return (
        [*steps],
        [*losses],
        {
            "half": losses[(len(losses) - 1) // 2],
            "last": losses[-1],
            "exact": float(np.mean([all(row) for row in own])),
            "seconds": training_length(log)[1],
            **{name: float(np.mean([*chain(*rows)] or [True])) for name, rows in every.items()},
        },
    )


def _word_by_word(lab: Lab) -> Findings:
    """Compare the models with a dictionary learned from the same pairs, for two languages of
    different word order."""
    rows = []
    numbers = Findings()
    for language in ("fr", "ko"):
        corpus = f"phrases-en-{language}"
        runs = {
            "one vector": lab.train(
                f"{corpus}-plain", phrases_recipe(language, ONE_VECTOR_MODEL | SENTENCE_SIZES)
            ),
            "attention": lab.train(
                corpus, phrases_recipe(language, BAHDANAU_MODEL | SENTENCE_SIZES)
            ),
        }
        pairs = list(generate(corpus, lab.few(1500), 1, "train", range(3, 8)))
        tests = list(generate(corpus, lab.few(100), 1, "test", range(3, 8)))
        written = word_by_word(pairs, [source for source, _ in tests])
        metrics_of = runs["attention"].task.views.compared_texts
        found = {"word by word": metrics_of.text_scores(written, [[target] for _, target in tests])}
        for name, metrics in (found | {name: evaluate(run) for name, run in runs.items()}).items():
            rows.append([f"en-{language}", name, metrics["bleu"], metrics["chrf"]])
            key = f"{language}_{name.replace(' ', '_')}"
            numbers |= {key: metrics["bleu"], f"{key}_chrf": metrics["chrf"]}
        example = {"source": tests[0][0], "words": written[0], "right": tests[0][1]}
        numbers |= {f"{language}_{name}": text for name, text in example.items()}
    return {
        "word_by_word": Table(["languages", "model", "BLEU", "chrF"], rows, formats=[".1f"]),
        **numbers,
    }


def word_by_word(
    pairs: Sequence[tuple[str, ...]], sources: Sequence[str], rounds: int = 8
) -> list[str]:
    """Each word replaced by its most probable translation, in the order of the source.

    IBM model 1, Brown et al. 1993, section 4.1, by expectation maximisation:
        t(f|e) ~ sum over pairs of  t(f|e) / sum_e' t(f|e')
    """

    def words(text: str) -> list[str]:
        return re.findall(r"\w+|[^\w\s]", text)

    split = [(words(source.lower()), words(target)) for source, target in pairs]
    t: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(lambda: 1.0))
    for _ in range(rounds):
        counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for source, target in split:
            for f in target:
                total = sum(t[e][f] for e in source)
                for e in source:
                    counts[e][f] += t[e][f] / total
        sums = {e: sum(of_e.values()) for e, of_e in counts.items()}
        t = {e: {f: count / sums[e] for f, count in of_e.items()} for e, of_e in counts.items()}
    best = {e: max(of_e, key=lambda f: of_e[f]) for e, of_e in t.items()}
    return [" ".join(best.get(word, word) for word in words(source.lower())) for source in sources]


def _caption_quality(lab: Lab) -> Findings:
    """Translate Multi30k: BLEU by length, word by word, with one vector in both orders of the
    source, and with attention."""
    assert lab.full is not None
    models: dict[str, Tree] = {
        "one vector": {"bidirectional": False},
        "one vector, backwards": {"bidirectional": False, "reverse_source": True},
        "attention": {},
    }
    runs = {}
    for name, changes in models.items():
        recipe = shipped_on("multi30k-rnn" if changes else "multi30k-bahdanau", lab.full)
        recipe["model"] |= changes
        folder = f"multi30k-{name.replace(', ', '-').replace(' ', '-')}"
        runs[name] = lab.train(folder, recipe, steps=600, validate_every=600)
    train, test = (
        [
            gzip.decompress(Path(recipe["data"][part][side]).read_bytes()).decode().splitlines()
            for side in ("source", "target")
        ]
        for part in ("train", "test")
    )
    file = lab.runs / "multi30k-word-by-word.txt"
    written = word_by_word([*zip(*train, strict=True)][: lab.few(8000)], test[0], rounds=5)
    file.write_text("\n".join(written) + "\n", encoding="utf-8")
    compared = compare([*runs.values()], beam=1, hypotheses={"word by word": file})
    names = {run.folder.name: name for name, run in runs.items()} | {"word by word": "word by word"}
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in compared.tables["lengths"]:
        lines[names[str(row["system"])]].append((row["mean_length"], row["bleu"]))
    curves = [Series(name, *zip(*points, strict=True)) for name, points in lines.items()]
    scores = {names[str(row["system"])]: float(row["bleu"]) for row in compared.tables["systems"]}
    table = Table(["model", "BLEU"], [*scores.items()], formats=[".1f"])
    return {"full_by_length": Curves(curves, "words", "BLEU", from_zero=True), "full_bleu": table}
