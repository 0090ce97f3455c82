"""Chapter 6: hops of attention over a story."""

from __future__ import annotations

import numpy as np

from regard.api import Run, evaluate, explain
from regard.config.load import Tree
from regard.course.lab import Findings, Lab, Number, flat
from regard.data.corpora import Cells, generate
from regard.views.report import Cell, Table, Value

HOPS = (1, 3)
KINDS = ("where", "things")
"""Questions that one sentence answers, and that need two."""


def _recipe(lab: Lab, hops: int) -> Tree:
    def corpora(size: int) -> list[Tree]:
        return [{"corpus": "stories-en", "about": kind, "size": 100 if lab.quick else size} for kind in KINDS]

    return {
        "task": "story_answering",
        "data": {"train": corpora(1000), "validation": {"split": 0.1}, "test": corpora(200)},
        "model": {"kind": "memory_network", "width": 32, "hops": hops, "linear_start": 4, "restarts": 4},
        "training": {"epochs": 15, "best": "error"},
    }


def experiment(lab: Lab) -> Findings:
    """One hop against three: errors by kind of question, and which sentences each hop reads."""
    runs = {hops: lab.train(f"stories-{hops}-hops", _recipe(lab, hops)) for hops in HOPS}
    errors = {hops: evaluate(run)["tasks"] for hops, run in runs.items()}
    rows: list[list[Value]] = [
        [hops, *(Cell(1 - of_kind[f"stories-en:{kind}"], ".2f") for kind in KINDS)] for hops, of_kind in errors.items()
    ]
    questions = list(generate("stories-en", lab.few(60), 1, "test", about="things"))
    read = {hops: np.mean([_read(run, row) for row in questions], axis=0) for hops, run in runs.items()}
    looked: list[list[Value]] = [
        [f"{hops} hop{'s' * (hops > 1)}", hop, *(Cell(float(share), ".2f") for share in shares)]
        for hops, by_hop in read.items()
        for hop, shares in enumerate(by_hop, 1)
    ]
    row = _telling(runs, questions)
    told = [explain(run, f"{row[1]}\n{row[2]}") for run in runs.values()]
    tables = [flat(one.report())[0] for one in told]
    numbers: dict[str, Number] = {
        f"{kind}_{hops}": 1 - float(errors[hops][f"stories-en:{kind}"]) for kind in KINDS for hops in HOPS
    }
    numbers |= {"question": row[2], "answer": row[3], "said_1": told[0].output, "said_3": told[1].output,
                "first_hop": float(read[3][0][1]), "last_hop": float(read[3][-1][0])}  # fmt: skip
    parts = {
        "hops": Table(["hops", *KINDS], rows),
        "read": Table(["model", "hop", "sentence with the place", "sentence with the thing"], looked),
        "one_hop": tables[0], "three_hops": tables[1],
    }  # fmt: skip
    return Findings(parts, numbers)


def _read(run: Run, row: Cells) -> list[list[float]]:
    """For each hop, whether it reads most the sentence that names the place, and the one that names the thing.

    Of a question "Where is the milk?" the two supporting facts are who took it and where that person went.
    """
    thing = row[2].rstrip("?").split()[-1]
    sentences, facts = row[1].split("\n"), [int(number) for number in row[4].split()]
    named = [fact for fact in facts if thing in sentences[fact]]
    places = [fact for fact in facts if fact not in named]
    story = explain(run, f"{row[1]}\n{row[2]}").story
    assert story is not None
    return [[float(most in places), float(most in named)] for most in story.weights_NS.argmax(1).tolist()]


def _telling(runs: dict[int, Run], questions: list[Cells]) -> Cells:
    """The first question that three hops answer and one does not, or just the first."""
    one, three = ([explain(runs[hops], f"{row[1]}\n{row[2]}").output for row in questions] for hops in HOPS)
    answered = [row for row, said, right in zip(questions, one, three, strict=True) if right == row[3] != said]
    return (answered or questions)[0]
