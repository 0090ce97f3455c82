"""Raw text of a user's -> the lines of a recipe for a GPT, each with its comment, and the commands for other models."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from regard.data.columns import CROWDED
from regard.data.recognise_text import RecognisedText
from regard.recipes.propose_pace import Pace, Sizes, suiting

LENGTHS = (64, 128, 256, 512)
OTHERS = ("bert", "elmo", "lstm-lm")
"""The recipes that ship for other models of raw text."""


@dataclass(frozen=True)
class TextSizes(Sizes):
    """What suits a number of characters."""

    dropout: float
    batch_tokens: str


STEPS_OF = {"gpt": 400, "bert": 1_000, "elmo": 400, "lstm-lm": 400}
"""The fewest to plan; masked words are a seventh of a text, so that BERT takes longer."""
CHARACTERS = 3
"""Of a token, at the most."""
LITTLE = 2e4
"""Characters, below which the validation is best before any sentence is learned: it neither chooses nor ends there."""
LONG = 5e7
"""Characters, from which on the recipes that ship say themselves what suits."""
SIZES = (
    TextSizes(LITTLE, "tiny", 1_000, 60, 40, None, 0.2, "256"),
    TextSizes(2e5, "tiny", 1_000, 60, 40, 3, 0.2, "1024"),
    TextSizes(2e6, "tiny", 2_000, 40, 100, 3, 0.2, "2048"),
    TextSizes(5e7, "small", 8_000, 20, 1_000, 3, 0.1, "8192"),
    TextSizes(inf, "small", 16_000, 10, 2_000, 3, 0.1, "auto"),
)


def text_lines(found: RecognisedText, corpus: str, typed: str) -> Iterator[tuple[str, str]]:
    """The recipe line by line; `corpus` is where the text comes from, as YAML, and `typed` on the command line."""
    sizes = suiting(SIZES, found.characters)
    yield "", f"Proposed by `regard check` for {found.name}: {found.count:,} documents of raw text."
    yield "", "This is for GPT. Other models of raw text have recipes that ship; what to type for them:"
    for name in OTHERS:
        yield "", _command(name, found, typed, sizes)
    if found.column is None and Path(found.name).is_file():
        yield "", f"If another text is parallel to it, line by line: regard check {shlex.quote(found.name)} OTHER"
    if found.characters < LITTLE:
        yield (
            "",
            "So little text can only be learned by heart: the last checkpoint is the one, whatever it makes of others.",
        )
        yield "", "For more than that, begin with a model of others: `regard import` and training.init."
    yield "task: language_modeling", "raw text: what comes next?"
    yield "data:", "paths are relative to this file"
    yield f"  train: {corpus}", _ending(found)
    yield from _data(found)
    yield f"tokenizer: {{kind: bpe, vocabulary: {_vocabulary(found, sizes)}}}", "pieces of words, trained on your text"
    yield "model:", "a causal Transformer"
    yield "  kind: gpt", "Radford et al. 2018"
    yield f"  preset: {sizes.preset}", "tiny below two million characters; base is the paper's size"
    yield "  norm: pre", "steadier than the paper's post-norm, and can be exported"
    yield f"  dropout: {sizes.dropout}", "more for less text"
    yield from _training(found, sizes)


def _command(name: str, found: RecognisedText, typed: str, sizes: TextSizes) -> str:
    aside = [f"data.{split}={{split: {_share(found)}}}" for split in ("validation", "test")]
    changes = [f"data.train={typed}", *aside, f"model.preset={sizes.preset}"]
    # a negative comes from another document of two sentences, in each split; four, since they are drawn by chance
    if name == "bert" and (found.documents == "lines" or found.count * found.several * _share(found) < 4):
        changes.append("model.next_sentence=false")
    if name == "bert" or found.script in ("Hangul", *CROWDED):  # whole words of Korean are too many
        changes += [f"tokenizer.{key}={value}" for key, value in _pieces(name, found, sizes).items()]
    changes += [f"training.{key}={value}" for key, value in _shorter(name, found, sizes).items()]
    return shlex.join(["regard", "train", name, *changes, "--out", f"runs/{name}"])


def _pieces(name: str, found: RecognisedText, sizes: TextSizes) -> dict[str, str | int]:
    kind: dict[str, str | int] = {} if name == "bert" else {"kind": "bpe"}
    return kind | {"vocabulary": _vocabulary(found, sizes)}


def _shorter(name: str, found: RecognisedText, sizes: TextSizes) -> dict[str, object]:
    """What of the section `training` of a recipe that ships is for more text, as it suits this one."""
    if found.characters >= LONG:
        return {}
    plan = _pace(found, sizes, STEPS_OF[name])
    length = {"epochs": plan.epochs or "null", "steps": "null" if plan.epochs else plan.steps}
    if plan.epochs is None or name == "bert":
        length["validate_every"] = max(plan.validate_every, plan.steps // 20)
    waits = {"patience": plan.patience or "null"} if name == "lstm-lm" else {}
    return {**length, **waits, "warmup": plan.warmup, "batch_tokens": sizes.batch_tokens}


def _pace(found: RecognisedText, sizes: TextSizes, steps: int) -> Pace:
    batch = int(sizes.batch_tokens) if sizes.batch_tokens.isdecimal() else 4_096
    return sizes.pace(found.characters / CHARACTERS, batch, steps=steps)


def _vocabulary(found: RecognisedText, sizes: TextSizes) -> int:
    return max(sizes.vocabulary, 16_000) if found.script in CROWDED else sizes.vocabulary


def _share(found: RecognisedText) -> float:
    """Of the documents, to be set aside."""
    return round(min(0.1, max(0.005, 1000 / max(found.count, 1))), 3)


def _ending(found: RecognisedText) -> str:
    if found.column is not None:
        return f"every row is a document; {found.script} script"
    ended = "every line is a document; blank_lines: a blank line ends one"
    return f"{ended if found.documents == 'lines' else 'a blank line ends a document'}; {found.script} script"


def _data(found: RecognisedText) -> Iterator[tuple[str, str]]:
    share, mean = _share(found), found.characters / max(found.count, 1)
    length = next((length for length in LENGTHS if mean <= 2 * length), LENGTHS[-1])
    yield f"  validation: {{split: {share}}}", "documents set aside to choose the best checkpoint with"
    yield f"  test: {{split: {share}}}", "set aside for `regard evaluate`"
    yield f"  max_length: {length}", f"tokens; documents have {mean:,.0f} characters on average, longer ones are cut"
    yield "  bad_lines: drop", "drop empty and endless lines, and count them; `error` stops and names them"


def _training(found: RecognisedText, sizes: TextSizes) -> Iterator[tuple[str, str]]:
    plan = _pace(found, sizes, STEPS_OF["gpt"])
    yield "training:", "Ctrl-C saves, `--resume` goes on"
    yield from plan.lines()
    yield f"  batch_tokens: {sizes.batch_tokens}", "rows times their length; `auto` finds what fits"
    yield "  optimizer: adamw", "Adam with decoupled weight decay"
    yield "  weight_decay: 0.01", "against learning by heart"
    yield "  learning_rate: 1.0e-3", "the highest"
    yield "  schedule: cosine", "down to zero"
    yield f"  warmup: {plan.warmup}", "steps of rise: at most a tenth of all"
    yield "search: {beam: 1, sample: true, top_p: 0.9, max_length: 100}", "how `regard predict` goes on with a text"
