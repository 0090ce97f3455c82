"""Labelled texts, tagged words or questions of a user's -> the lines of a recipe for them, each with its comment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf

from regard.data.recognise_labels import RecognisedLabels
from regard.recipes.propose_pace import Sizes, suiting

LENGTHS = (32, 64, 128, 256, 512)
TASKS = {
    "classification": "a text, or two, in; one of a few labels out",
    "regression": "a text, or two, in; a number out",
    "multiple_choice": "a text and a few choices in, the right one out",
    "tagging": "a tag for every word; entities with their places out",
    "question_answering": "a question and a text in; the stretch of the text that answers it out",
}
UNITS = {"tagging": "sentences", "question_answering": "questions"}
BEST = {"classification": "accuracy", "regression": "pearson", "multiple_choice": "accuracy"}


@dataclass(frozen=True)
class LabelSizes(Sizes):
    """What suits a number of examples, from scratch."""

    batch_tokens: int


STEPS = 200
"""The fewest to plan, from scratch."""
FEW = 500
"""Examples, below which fine-tuning takes more than three passes over them."""
SIZES = (
    LabelSizes(1_000, "tiny", 2_000, 60, 0, 10, 256),
    LabelSizes(5_000, "tiny", 2_000, 20, 0, 5, 512),
    LabelSizes(50_000, "tiny", 8_000, 10, 0, 3, 1_024),
    LabelSizes(inf, "small", 16_000, 5, 0, 2, 4_096),
)


def labelled_lines(found: RecognisedLabels, corpus: str) -> Iterator[tuple[str, str]]:
    """The recipe line by line; `corpus` is where the examples come from, as YAML."""
    sizes = suiting(SIZES, found.examples)
    unit = UNITS.get(found.task, "examples")
    yield "", f"Proposed by `regard check` for {found.file}: {found.examples:,} {unit}."
    yield f"task: {found.task}", TASKS[found.task]
    yield "data:", "paths are relative to this file"
    yield f"  train: {corpus}", found.about
    yield "  validation: {split: 0.1}", "set aside to choose the best checkpoint with; or a file of its own, as above"
    yield "  test: {split: 0.1}", "likewise, for `regard evaluate`"
    if found.characters:
        yield (
            f"  max_length: {_length(found)}",
            f"tokens; 99 of 100 inputs have at most {found.characters:,} characters",
        )
    if found.words is not None:
        yield f"  words: {found.words}", "how a text that is typed becomes words, as in the data"
    yield "  bad_lines: drop", "drop empty and endless lines, and count them; `error` stops and names them"
    yield from _learned(found, sizes)


def _learned(found: RecognisedLabels, sizes: LabelSizes) -> Iterator[tuple[str, str]]:
    vocabulary = f"tokenizer: {{kind: bpe, vocabulary: {sizes.vocabulary}}}"
    yield vocabulary, "trained on your text; leave it out with `init` below, whose tokenizer is then used"
    yield f"model: {{kind: bilstm, preset: {sizes.preset}}}", "from scratch; leave it out with `init` below"
    if found.head:
        yield f"head: {{labels: [{', '.join(map(str, found.head['labels']))}]}}", "what the label calls the choices"
    batch_tokens = max(sizes.batch_tokens, 4 * _room(found))
    size = found.examples * max(1, found.characters / 12)  # the longest have that many characters, most have fewer
    plan = sizes.pace(size, batch_tokens, steps=STEPS)
    tuned = max(3, ceil(3 * FEW / max(1, found.examples)))
    yield "training:", "Ctrl-C saves, `--resume` goes on"
    yield "", "init: runs/bert    fine-tune what `regard import` or `regard train bert` made: better with few examples;"
    yield "", f"                   then learning_rate: 5.0e-5 and epochs: {tuned} instead of steps and validate_every"
    yield from plan.lines()
    yield f"  batch_tokens: {batch_tokens}", "rows times the longest"
    yield "  learning_rate: 2.0e-3", "the highest"
    yield "  schedule: linear", "down to zero"
    best = "f1_macro" if found.uneven else BEST.get(found.task, "f1")
    if found.columns.get("scheme") == "plain":
        best = "accuracy"
    yield f"  best: {best}", "the metric that chooses" + (": every label counts the same" if found.uneven else "")


def _length(found: RecognisedLabels) -> int:
    """Tokens that nearly all inputs have at the most."""
    return next((length for length in LENGTHS if found.characters <= 2 * length), LENGTHS[-1])


def _room(found: RecognisedLabels) -> int:
    """Tokens that the longest example may have: all choices count."""
    if found.task == "question_answering":
        return 384
    return (_length(found) if found.characters else 128) * len(found.columns.get("choices", "x"))
