"""Raw text of a user's -> the lines of a recipe for a GPT, each with its comment, and the commands for other models."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from regard.data.columns import CROWDED
from regard.data.recognise_text import RecognisedText

LENGTHS = (64, 128, 256, 512)
OTHERS = ("bert", "elmo", "lstm-lm")
"""The recipes that ship for other models of raw text."""


@dataclass(frozen=True)
class Sizes:
    """What suits a number of characters."""

    below: float
    preset: str
    vocabulary: int
    dropout: float
    batch_tokens: str
    epochs: int
    warmup: int


SIZES = (
    Sizes(2e5, "tiny", 1_000, 0.2, "1024", 60, 20),
    Sizes(2e6, "tiny", 2_000, 0.2, "2048", 40, 100),
    Sizes(5e7, "small", 8_000, 0.1, "8192", 20, 1_000),
    Sizes(inf, "small", 16_000, 0.1, "auto", 10, 2_000),
)


def text_lines(found: RecognisedText, corpus: str, typed: str) -> Iterator[tuple[str, str]]:
    """The recipe line by line; `corpus` is where the text comes from, as YAML, and `typed` on the command line."""
    sizes = next(sizes for sizes in SIZES if found.characters < sizes.below)
    yield "", f"Proposed by `regard check` for {found.name}: {found.count:,} documents of raw text."
    yield "", "This is for GPT. Other models of raw text have recipes that ship; what to type for them:"
    for name in OTHERS:
        yield "", _command(name, found, typed, sizes.preset)
    if found.column is None and Path(found.name).is_file():
        yield "", f"If another text is parallel to it, line by line: regard check {shlex.quote(found.name)} OTHER"
    yield "task: language_modeling", "raw text: what comes next?"
    yield "data:", "paths are relative to this file"
    yield f"  train: {corpus}", _ending(found)
    yield from _data(found)
    vocabulary = max(sizes.vocabulary, 16_000) if found.script in CROWDED else sizes.vocabulary
    yield f"tokenizer: {{kind: bpe, vocabulary: {vocabulary}}}", "pieces of words, trained on your text"
    yield "model:", "a causal Transformer"
    yield "  kind: gpt", "Radford et al. 2018"
    yield f"  preset: {sizes.preset}", "tiny below two million characters; base is the paper's size"
    yield "  norm: pre", "steadier than the paper's post-norm, and can be exported"
    yield f"  dropout: {sizes.dropout}", "more for less text"
    yield from _training(sizes)


def _command(name: str, found: RecognisedText, typed: str, preset: str) -> str:
    aside = [f"data.{split}={{split: {_share(found)}}}" for split in ("validation", "test")]
    changes = [f"data.train={typed}", *aside, f"model.preset={preset}"]
    if name == "bert" and found.documents == "lines":  # mostly of one sentence: what follows it cannot be asked
        changes.append("model.next_sentence=false")
    return shlex.join(["regard", "train", name, *changes, "--out", f"runs/{name}"])


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


def _training(sizes: Sizes) -> Iterator[tuple[str, str]]:
    yield "training:", "Ctrl-C saves, `--resume` goes on"
    yield f"  epochs: {sizes.epochs}", "passes over the text, at the most"
    yield "  patience: 3", "stop after so many validations without a better one"
    yield f"  batch_tokens: {sizes.batch_tokens}", "rows times their length; `auto` finds what fits"
    yield "  optimizer: adamw", "Adam with decoupled weight decay"
    yield "  weight_decay: 0.01", "against learning by heart"
    yield "  learning_rate: 1.0e-3", "the highest"
    yield "  schedule: cosine", "down to zero"
    yield f"  warmup: {sizes.warmup}", "steps of rise"
    yield "search: {beam: 1, sample: true, top_p: 0.9, max_length: 100}", "how `regard predict` goes on with a text"
