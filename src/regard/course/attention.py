"""Chapter 2: the attentions of Bahdanau and Luong in numbers, their scores compared, and alignments
of word order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from regard.api import Run, evaluate, explain
from regard.config import Tree
from regard.course.lab import (
    BAHDANAU_MODEL,
    SENTENCE_SIZES,
    Findings,
    Lab,
    flat,
    phrases_recipe,
    reverse_recipe,
)
from regard.course.seeds import SEED_CHOOSER, Claim
from regard.data.corpora import generate
from regard.layers import scores
from regard.recipes.shipped import shipped_text
from regard.views.diagrams import diagram
from regard.views.explanation import Explanation, ViewOptions
from regard.views.report import Curves, HeatMap, HeatMaps, Series, Table

LUONG_MODEL = {
    "kind": "luong",
    "cell": "gru",
    "embedding": 32,
    "hidden": 64,
    "attention": 64,
    "input_feeding": False,
}
MODELS_BY_SCORE: dict[str, dict[str, Any]] = {
    "additive": BAHDANAU_MODEL,
    "concat": BAHDANAU_MODEL | {"score": "concat"},
    "fully connected": BAHDANAU_MODEL | {"score": "fully_connected"},
    "dot": LUONG_MODEL | {"score": "dot"},
    "scaled dot": LUONG_MODEL | {"score": "scaled_dot"},
    "general": LUONG_MODEL | {"score": "general"},
}
"""The model for each score: Bahdanau's decoder for the first three, Luong's for the others."""
EQUAL_WIDTHS = ("dot", "scaled dot")
"""Scores that need an encoder that reads in one direction."""
BIDIRECTIONAL_BY_NAME = {"left to right": False, "both ways": True}
"""How the encoder reads, and whether it is bidirectional."""
ATTENTION_LAYERS: dict[str, Callable[[int], scores.ScoredAttention]] = {
    "additive": lambda width: scores.AdditiveAttention(width, width, width),
    "concat": lambda width: scores.ConcatAttention(width, width, width),
    "fully connected": lambda width: scores.FullyConnectedAttention(width, width, width),
    "dot": lambda width: scores.DotAttention(),
    "scaled dot": lambda width: scores.DotAttention(scaled=True),
    "general": lambda width: scores.GeneralAttention(width, width),
}
TIMED_WIDTHS = (64, 128, 256, 512)
MIRRORED_LETTERS = "a b c d e f g h"
SENTENCE_PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "subject": (
        *(("Minsu", "민수는"), ("Jina", "지나는"), ("Anna", "안나는")),
        *(("the cook", "요리사는"), ("the child", "아이는"), ("the farmer", "농부는")),
    ),
    "verb": (
        *(("sees", "봐요"), ("finds", "찾아요"), ("draws", "그려요"), ("buys", "사요")),
        *(("hides", "숨겨요"), ("washes", "씻어요"), ("likes", "좋아해요")),
    ),
    "object": (
        *(("the apple", "사과를"), ("the clock", "시계를"), ("the chair", "의자를")),
        *(("the hat", "모자를"), ("the bag", "가방을"), ("the horse", "말을"), ("the car", "차를")),
    ),
    "place": (
        *(("in the kitchen", "부엌에서"), ("at school", "학교에서"), ("in the park", "공원에서")),
        *(("at home", "집에서"), ("in the garden", "정원에서"), ("at the station", "역에서")),
    ),
}
"""Parts of a sentence in English and Korean. Each Korean word is decided by one English word."""
PATTERN_EXAMPLE = "Minsu draws the horse in the park"
PATTERN_SIZES = {"train": 800, "validation": 100, "test": 100}
PATTERN_MODEL = {
    "kind": "bahdanau",
    "cell": "rnn",
    "bidirectional": False,
    "embedding": 64,
    "hidden": 32,
    "attention": 64,
    "dropout": 0.5,
}
"""The model of the recipe how-are-you, reading in one direction."""
EXAMPLE_PAIRS = {
    "ko": ("Minsu raises this horse in the kitchen.", "민수는 부엌에서 이 말을 길러요."),
    "fr": ("The clocks are so red.", "Les horloges sont tellement rouges."),
}


CLAIMS = {
    "translates": Claim(
        "Both recipes translate their sentence.",
        lambda n: (n["korean"], n["english"]) == ("잘 지내?", "I am a student"),
    ),
    "aligned": Claim(
        "Each word looks mostly at the word that it translates.",
        lambda n: min(n["how_share"], n["you_share"], n["je_share"], n["student_share"]) > 0.5,
    ),
    "all_learn": Claim(
        "Every score but scaled dot learns to reverse in 300 steps.",
        lambda n: min(n["left_to_right_mean"], n["both_ways_exact"], n["dot_exact"]) > 0.9,
    ),
    "both_on_letter": Claim(
        "With an encoder that reads both ways, attention is on the letter.",
        lambda n: n["both_ways_right"] > n["both_ways_most_after"],
    ),
    "one_after_letter": Claim(
        "With one that reads left to right, it is on the position after it.",
        lambda n: n["left_to_right_after"] > n["left_to_right_most_right"],
    ),
    "dot_is_fast": Claim(
        "Dot takes less than half the time of additive attention.",
        lambda n: min(n["additive_times"], n["additive_times_narrow"]) > 2,
    ),
    "both_ways": Claim(
        "Reading both ways is better than left to right.",
        lambda n: n["both_ways_mean"] > n["left_to_right_mean"] + 0.01,
    ),
    "scaled_dot": Claim(
        "Dividing the dot score by the root of the width helps here.",
        lambda n: n["scaled_dot_exact"] > n["dot_exact"] + 0.02,
    ),
    "verb_end": Claim(
        "In sentences of one pattern the Korean verb, written last, looks at the English verb.",
        lambda n: n["verb_found"] > 0.95,
    ),
    "verb": Claim(
        "The Korean verb, which comes last, looks back to the middle of the English sentence.",
        lambda n: n["ko_last"] < n["fr_last"] - 0.2,
    ),
    "korean_order": Claim(
        "Korean changes the order of words, French hardly.",
        lambda n: n["ko_order"] < n["fr_order"] - 0.15,
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def experiment(lab: Lab) -> Findings:
    return _greetings(lab) | _score_comparison(lab) | _verb_at_the_end(lab) | _word_orders(lab)


def _greetings(lab: Lab) -> Findings:
    """Run the two recipes that ship, and show one step of each kind of attention in numbers."""
    english, french = (
        yaml.safe_load(shipped_text(name)) for name in ("how-are-you", "je-suis-etudiant")
    )
    runs = lab.train("how-are-you", english), lab.train("je-suis-etudiant", french)
    looked = explain(runs[0], "How are you?")
    student = explain(runs[1], "je suis étudiant")
    unseen = [float(evaluate(run)["exact_match"]) for run in runs]
    luong = english | {"model": LUONG_MODEL | {"score": "dot", "dropout": 0.0}}
    dotted = explain(lab.train("how-are-you-luong", luong), "How are you?")
    first = looked.worked()
    e_K = first.scores_K.double()
    alpha_K = first.weights_K.double()
    shares = (
        _share(looked, 0, 0),
        _share(looked, 1, 2),
        _share(student, 0, 0),
        _share(student, 3, 2),
    )
    shown = lab.examples(
        how_are_you=HeatMaps(looked.heat_maps()),
        how_drawn=diagram(looked),
        je_suis=HeatMaps(student.heat_maps()),
        bahdanau_step=flat(first.report()),
        luong_step=flat(dotted.worked().report()),
    )
    return shown | {
        "korean": looked.output,
        "english": student.output,
        "scores": ", ".join(f"{e:.2f}" for e in e_K.tolist()),
        **dict(zip(("how_share", "you_share", "je_share", "student_share"), shares, strict=True)),
        "korean_unseen": unseen[0],
        "english_unseen": unseen[1],
        "softmax_error": float((e_K.softmax(0) - alpha_K).abs().max()),
    }


def _share(explained: Explanation, written: int, read: int) -> float:
    """The share of the attention of a written word on a word that is read; 0 if the output is too
    short, as in a quick run."""
    weights = explained.weights
    return float(weights[written, read]) if len(weights) > written + 1 else 0.0


def _score_comparison(lab: Lab) -> Findings:
    """Each score learns to reverse, with the same encoders; the right alignment is known, so the
    share of attention on it can be measured. Dot needs states of equal width, so its encoder reads
    in one direction."""
    rows = []
    maps = []
    numbers = Findings()
    pairs = list(generate("reverse", lab.few(40), 7, "test"))
    for (encoder, both), (name, model) in product(
        BIDIRECTIONAL_BY_NAME.items(), MODELS_BY_SCORE.items()
    ):
        if both and name in EQUAL_WIDTHS:
            continue
        key = f"{name}-{encoder}".replace(" ", "-")
        run = lab.train(
            f"reverse-{key}", reverse_recipe(model | {"bidirectional": both}, 300, 8e-3)
        )
        exact = float(evaluate(run)["exact_match"])
        [heat_map] = explain(run, MIRRORED_LETTERS, target=MIRRORED_LETTERS[::-1]).heat_maps()
        maps.append(
            HeatMap(heat_map.rows, heat_map.columns, heat_map.values, name, (encoder, name))
        )
        right, after = np.mean([_on_the_mirror(run, *pair) for pair in pairs], axis=0).tolist()
        decoder = "Bahdanau" if model["kind"] == "bahdanau" else "Luong"
        rows.append([encoder, name, decoder, exact, right, after])
    for encoder in BIDIRECTIONAL_BY_NAME:
        exacts, rights, afters = zip(*(row[3:] for row in rows if row[0] == encoder), strict=True)
        own = {
            "exact": min(exacts),
            "right": min(rights),
            "most_right": max(rights),
            "after": min(afters),
            "most_after": max(afters),
            "mean": float(
                np.mean(
                    [row[3] for row in rows if row[0] == encoder and row[1] not in EQUAL_WIDTHS]
                )
            ),
        }
        numbers |= {f"{encoder.replace(' ', '_')}_{name}": value for name, value in own.items()}
    numbers |= {
        f"{name.replace(' ', '_')}_exact": row[3]
        for row in rows
        for name in EQUAL_WIDTHS
        if row[1] == name
    }
    columns = [
        "encoder",
        "score",
        "decoder",
        "exact match",
        "attention on the letter",
        "on the position after it",
    ]
    table = Table(columns, rows, formats=[".2f"])
    return {"scores_table": table, "same_sentence": HeatMaps(maps, ["encoder", "score"]), **numbers}


def _on_the_mirror(run: Run, source: str, target: str) -> tuple[float, float]:
    """The share of attention on the letter to be written, and on the position after it, as the
    reference is written."""
    weights = explain(run, source, target=target).weights
    last = len(source.split()) - 1
    right, after = (
        [weights[step, last - step + shift] for step in range(last + 1)] for shift in (0, 1)
    )
    return float(np.mean(right)), float(np.mean(after))


def experiment_alone(lab: Lab) -> Findings:
    """Measure the CPU time of one decoder step over 30 source words for 32 sentences, keys prepared
    once, as ratios to dot."""
    batch = 32
    words = 30
    steps = 100
    repeats = 3 if lab.quick else 7
    torch.manual_seed(0)
    ratios: dict[str, list[float]] = {name: [] for name in ATTENTION_LAYERS}
    with torch.inference_mode():
        for width in TIMED_WIDTHS[:2] if lab.quick else TIMED_WIDTHS:
            h_BSD = torch.randn(batch, words, width)
            s_B1D = torch.randn(batch, 1, width)
            lengths_B = torch.full((batch,), words)
            seconds = {name: [] for name in ATTENTION_LAYERS}  # type: dict[str, list[float]]
            attends = {name: layer(width) for name, layer in ATTENTION_LAYERS.items()}
            looks = {
                name: layer.attend_to(layer.memory(h_BSD, lengths_B))
                for name, layer in attends.items()
            }
            for _ in range(repeats):  # in turn, so that a busy machine disturbs all alike
                for name, look in looks.items():
                    seconds[name].append(_cpu_seconds(look, s_B1D, steps))
            for name, taken in seconds.items():
                ratios[name].append(
                    min(taken) / min(seconds["dot"])
                )  # the least is what no other program disturbed
    widths = TIMED_WIDTHS[: len(ratios["dot"])]
    x = [math.log2(width) for width in widths]
    ticks = [(math.log2(width), str(width)) for width in widths]
    curves = Curves(
        [Series(name, x, values) for name, values in ratios.items()],
        "width",
        "time, dot = 1",
        from_zero=True,
        x_ticks=ticks,
    )
    rows = [[name, *values] for name, values in ratios.items()]
    return {
        "speed": curves,
        "speed_table": Table(["score / width", *map(str, widths)], rows, formats=[".1f"]),
        "additive_times": ratios["additive"][-1],
        "additive_times_narrow": ratios["additive"][0],
        "general_times": ratios["general"][-1],
        "widest": widths[-1],
    }


def _cpu_seconds(look: Callable[[Tensor], Tensor], s_B1D: Tensor, steps: int) -> float:
    """CPU seconds, which other programs on the machine hardly change."""
    look(s_B1D)
    started = time.process_time()
    for _ in range(steps):
        look(s_B1D)
    return time.process_time() - started


def _verb_at_the_end(lab: Lab) -> Findings:
    """Translate sentences of one pattern, subject verb object place, into Korean, where the verb comes
    last; and measure how much of its attention is on the English verb, in unseen sentences."""
    rows = []
    verb_places = dict[str, int]()
    for subject, verb, thing, place in product(*SENTENCE_PARTS.values()):
        source = " ".join((subject[0], verb[0], thing[0], place[0]))
        rows.append((source, " ".join((subject[1], place[1], thing[1], verb[1]))))
        verb_places[source] = len(subject[0].split())
    [example] = [row for row in rows if row[0] == PATTERN_EXAMPLE]
    rows.remove(example)
    Random(1).shuffle(rows)
    data = Tree()
    for part, size in PATTERN_SIZES.items():
        data[part] = lab.pairs(f"pattern-{part}", rows[:size])
        test, rows = rows[:size], rows[size:]
    recipe = reverse_recipe(PATTERN_MODEL, 400, 1e-2, warmup=20) | {
        "data": data,
        "tokenizer": {"kind": "word", "joint": False},
    }
    run = lab.train("word-order", recipe, batch_tokens=512)
    looked = explain(run, example[0]).select(ViewOptions(words=True))
    [drawn] = looked.heat_maps()
    shares = []
    found = []
    for source, target in test[: lab.few(60)]:
        weights = explain(run, source, target=target).select(ViewOptions(words=True)).weights
        shares.append(weights[-2, verb_places[source]])  # the last row is the end of the text
        found.append(weights[-2].argmax() == verb_places[source])
    return {
        "verb_end": HeatMaps([replace(drawn, choice=(str(lab.seed),))], [SEED_CHOOSER]),
        "pattern_output": looked.output,
        "pattern_exact": float(evaluate(run)["exact_match"]),
        "verb_share": float(np.mean(shares)),
        "verb_found": float(np.mean(found)),
        "verb_sentences": len(found),
    }


def _word_orders(lab: Lab) -> Findings:
    """Translate English to Korean, where the verb moves to the end, and to French, where the order
    stays."""
    rows = []
    found = Findings()
    for language, example in EXAMPLE_PAIRS.items():
        corpus = f"phrases-en-{language}"
        run = lab.train(corpus, phrases_recipe(language, BAHDANAU_MODEL | SENTENCE_SIZES))
        looked = explain(run, example[0], target=example[1]).select(ViewOptions(words=True))
        [drawn] = looked.heat_maps()
        pairs = list(generate(corpus, lab.few(60), 1, "test", range(3, 8)))
        looks = np.array([_word_order(run, *pair) for pair in pairs])
        order, last = looks.mean(0).tolist()
        chrf = evaluate(run)["chrf"]
        rows.append([corpus, order, last, chrf])
        noun, verb = (
            drawn.columns[best] for best in drawn.values.argmax(1)[[-3, -2]]
        )  # before the end
        own = {
            "alignment": HeatMaps([drawn]),
            "order": order,
            "last": last,
            "chrf": chrf,
            "noun": noun,
            "verb": verb,
        }
        found |= {f"{language}_{name}": value for name, value in own.items()}
    return {
        "orders": Table(
            ["corpus", "same order", "place of the last word", "chrF"],
            rows,
            formats=["", ".2f", ".2f", ".1f"],
        ),
        **found,
    }


def _word_order(run: Run, source: str, target: str) -> tuple[float, float]:
    """The share of pairs of target words that look at source words in the same order, where 0.5 would
    be chance; and where the last target word looks, from 0, the first source word, to 1, the last."""
    weights = explain(run, source, target=target).select(ViewOptions(words=True)).weights[:-1]
    words = weights.shape[1] - 1  # without the end of the text
    places = weights @ np.arange(words + 1)  # the mean position that each word looks at
    pairs = [
        (first, last) for first in range(len(places)) for last in range(first + 1, len(places))
    ]
    same = float(np.mean([places[first] < places[last] for first, last in pairs])) if pairs else 1.0
    return same, float(weights[-1, :words].argmax()) / (words - 1)
