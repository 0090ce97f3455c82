"""Chapter 6: hops of attention over a story, and where a captioner looks."""

from __future__ import annotations

import math

import numpy as np

from regard.api import Run, evaluate, explain
from regard.config import Tree
from regard.course.lab import Findings, Lab, built_in, flat, training_of
from regard.course.seeds import Claim
from regard.data.corpora import Cells, generate
from regard.data.shapes import Scene, parse
from regard.views.explanation import ViewOptions
from regard.views.report import ImageMap, Table

COMPARED_HOPS = (1, 3)
QUESTION_KINDS = ("where", "things")
"""Questions that one sentence answers, and questions that need two."""
CAPTIONER_STEPS = 800
"""Training steps of a captioner."""


CLAIMS = {
    "one_hop": Claim(
        "Where one sentence answers, one hop suffices.",
        lambda n: n["where_1"] > 0.85,
    ),
    "several_hops": Claim(
        "Where two are needed, three hops are better.",
        lambda n: n["things_3"] > n["things_1"] + 0.15,
    ),
    "last_hop": Claim(
        "The last hop reads the sentence with the place.",
        lambda n: n["last_hop"] > 0.4,
    ),
    "own_thing": Claim(
        "A captioner looks at the thing that it names.",
        lambda n: n["own_thing"] > 2 * n["other_thing"],
    ),
    "regions": Claim(
        "Looking at regions is better than one vector.",
        lambda n: n["attention_captions"] > n["plain_captions"] + 0.05,
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def _recipe(lab: Lab, hops: int) -> Tree:
    def corpora(size: int) -> list[Tree]:
        return [
            {"corpus": "stories-en", "about": kind, "size": 100 if lab.quick else size}
            for kind in QUESTION_KINDS
        ]

    return {
        "task": "story_answering",
        "data": {"train": corpora(1000), "validation": {"split": 0.1}, "test": corpora(200)},
        "model": {
            "kind": "memory_network",
            "width": 32,
            "hops": hops,
            "linear_start": 4,
            "restarts": 4,
        },
        "training": {"epochs": 15, "best": "error"},
    }


def experiment(lab: Lab) -> Findings:
    return _hops(lab) | _captions(lab)


def _hops(lab: Lab) -> Findings:
    """Compare one hop with three: errors by kind of question, and the sentences that each hop
    reads."""
    runs = {hops: lab.train(f"stories-{hops}-hops", _recipe(lab, hops)) for hops in COMPARED_HOPS}
    rights = {hops: evaluate(run)["tasks"] for hops, run in runs.items()}
    errors = {
        hops: {kind: 1 - float(right[f"stories-en:{kind}"]) for kind in QUESTION_KINDS}
        for hops, right in rights.items()
    }
    questions = list(generate("stories-en", lab.few(60), 1, "test", about="things"))
    read = {
        hops: np.mean([_read(run, row) for row in questions], axis=0) for hops, run in runs.items()
    }
    looked = [
        [f"{hops} hop{'s' * (hops > 1)}", hop, *shares.tolist()]
        for hops, by_hop in read.items()
        for hop, shares in enumerate(by_hop, 1)
    ]
    row = _telling(runs, questions)
    one, three = (explain(run, f"{row[1]}\n{row[2]}") for run in runs.values())
    columns = ["model", "hop", "sentence with the place", "sentence with the thing"]
    shown = lab.examples(
        one_hop=flat(one.report())[0],
        three_hops=flat(three.report())[0],
        question=row[2],
        answer=row[3],
        said_1=one.output,
        said_3=three.output,
    )
    return shown | {
        "hops": Table(
            ["hops", *QUESTION_KINDS],
            [[hops, *own.values()] for hops, own in errors.items()],
            formats=[".2f"],
        ),
        "read": Table(columns, looked, formats=[".2f"]),
        **{
            f"{kind}_{hops}": errors[hops][kind]
            for kind in QUESTION_KINDS
            for hops in COMPARED_HOPS
        },
        "first_hop": float(read[3][0][1]),
        "last_hop": float(read[3][-1][0]),
    }


def _read(run: Run, row: Cells) -> list[list[float]]:
    """For each hop, whether it reads most the sentence that names the place, or the one that names
    the thing.

    For the question "Where is the milk?" the two supporting facts are who took it and where that
    person went.
    """
    thing = row[2].rstrip("?").split()[-1]
    sentences = row[1].split("\n")
    facts = [int(number) for number in row[4].split()]
    named = [fact for fact in facts if thing in sentences[fact]]
    places = [fact for fact in facts if fact not in named]
    story = explain(run, f"{row[1]}\n{row[2]}").story
    assert story is not None
    return [
        [float(most in places), float(most in named)]
        for most in story.weights_NS.argmax(1).tolist()
    ]


def _telling(runs: dict[int, Run], questions: list[Cells]) -> Cells:
    """The first question that three hops answer and one does not, or just the first."""
    one, three = (
        [explain(runs[hops], f"{row[1]}\n{row[2]}").output for row in questions]
        for hops in COMPARED_HOPS
    )
    answered = [
        row
        for row, said, right in zip(questions, one, three, strict=True)
        if right == row[3] != said
    ]
    return (answered or questions)[0]


def _captions(lab: Lab) -> Findings:
    """Compare a captioner that looks at regions with one that has a single vector, and show where
    it looks for each word."""
    runs = {}
    for decoder in ("plain", "attention"):
        recipe: Tree = {
            "task": "captioning",
            "data": built_in("shapes", 3000, test=300),
            "tokenizer": {"kind": "word"},
            "model": {
                "kind": "captioner",
                "preset": "tiny",
                "images": {"size": 64},
                "decoder": decoder,
                "dropout": 0.0,
            }
            | ({"doubly_stochastic": 0.0} if decoder == "attention" else {}),
            "training": training_of(
                CAPTIONER_STEPS, 3e-3, warmup=100, batch_tokens=2048, label_smoothing=0.0, decode=0
            ),
            "search": {"beam": 1},
        }
        runs[decoder] = lab.train(f"captions-{decoder}", recipe)
    metrics = {decoder: evaluate(run) for decoder, run in runs.items()}
    scenes = list(generate("shapes", lab.few(60), 7, "test"))
    shares = np.mean(
        [_on_the_things(runs["attention"], parse(code, "")) for code, _ in scenes], axis=0
    )
    names = [
        f"{what} of the {place}"
        for place in ("first", "second")
        for what in ("size", "colour", "shape")
    ]
    rows = [[name, *own] for name, own in zip(names, shares.tolist(), strict=True)]
    explained = explain(runs["attention"], scenes[0][0])
    picture = next(
        part
        for section in explained.report().sections
        for part in section.parts
        if isinstance(part, ImageMap)
    )
    columns = ["word", "attention on the first thing", "on the second", "elsewhere"]
    plain = metrics["plain"]
    attention = metrics["attention"]
    compared = [
        [name, own["exact_match"], own["bleu"]]
        for name, own in (("one vector", plain), ("attention", attention))
    ]
    return {
        "picture": picture,
        "things": Table(columns, rows, formats=[".2f"]),
        "captioners": Table(
            ["captioner", "exact match", "BLEU"], compared, formats=["", ".2f", ".1f"]
        ),
        "caption": explained.output,
        "caption_right": scenes[0][1],
        "caption_steps": CAPTIONER_STEPS,
        "plain_captions": plain["exact_match"],
        "attention_captions": attention["exact_match"],
        "own_thing": float((shares[:3, 0].mean() + shares[3:, 1].mean()) / 2),
        "other_thing": float((shares[:3, 1].mean() + shares[3:, 0].mean()) / 2),
    }


def _on_the_things(run: Run, scene: Scene) -> list[list[float]]:
    """For size, colour and shape of each thing: attention on regions of the first, of the second
    and of neither."""
    caption = scene.caption("english")
    words = caption.split()
    weights = explain(run, scene.code, target=caption).select(ViewOptions(words=True)).weights
    side = math.isqrt(weights.shape[1])
    low = np.arange(side) / side
    high = (np.arange(side) + 1) / side
    covered = []
    for left, top, right, bottom in (thing.box for thing in scene):
        covered.append(
            np.outer((high > top) & (low < bottom), (high > left) & (low < right)).flatten()
        )
    areas = [*covered, ~(covered[0] | covered[1])]
    return [
        [float(weights[row % len(words), area].sum()) for area in areas]
        for row in (1, 2, 3, -3, -2, -1)
    ]
