"""Sheet of beam search: four steps with small probabilities, by the search that models use."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.batches import Padded
from regard.errors import RegardError
from regard.models.base import Generator
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.observers import Recorder
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.views.report import Cell, Section, Table, muted
from regard.views.search_record import search_tree
from regard.views.sheets.sheet import Sheet

NEXT_WORDS = {
    "<s>": {"the": 0.6, "a": 0.4},
    "the": {"cat": 0.4, "dog": 0.35, "bird": 0.25},
    "a": {"dog": 0.9, "cat": 0.1},
    "dog": {"barks": 0.8, "sleeps": 0.2},
    "cat": {"sleeps": 0.6, "runs": 0.4},
    "bird": {"sings": 1.0},
    "barks": {"</s>": 0.7, "loudly": 0.3},
    "sleeps": {"</s>": 0.9, "well": 0.1},
    "runs": {"</s>": 1.0},
    "sings": {"</s>": 1.0},
    "loudly": {"</s>": 1.0},
    "well": {"</s>": 1.0},
}
"""P(next word | word)."""
LARGEST_BEAM = 4


class Bigrams(Generator):
    """A language model that needs no weights: the word before decides alone."""

    alignment: ClassVar[str] = ""

    def __init__(self, log_p_VV: Tensor) -> None:
        super().__init__()
        self.log_p_VV = log_p_VV

    def begin(self, source: Any, rows: int, max_length: int) -> NoState:
        return NoState()

    def step(self, tokens_R: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        return self.log_p_VV[tokens_R], state


class NoState:
    """The state of a model that remembers nothing."""

    def select(self, rows_BW: Tensor) -> NoState:
        return self


def small_model() -> tuple[Bigrams, Tokenizer]:
    """The model with the probabilities above, and its vocabulary."""
    words = [word for word in NEXT_WORDS if word != "<s>"]
    tokenizer = Tokenizer.train(TokenizerConfig(kind="word", vocabulary=100), [" ".join(words)])
    ids = {word: tokenizer.encode(word)[0] for word in words}
    ids |= {"<s>": tokenizer.begin, "</s>": tokenizer.end}
    p_VV = torch.zeros(tokenizer.size, tokenizer.size)
    for word, following in NEXT_WORDS.items():
        for next_word, p in following.items():
            p_VV[ids[word], ids[next_word]] = p
    return Bigrams(p_VV.log()).eval(), tokenizer


def search_record(size: int) -> dict[str, Any]:
    """The whole search with a beam of this size."""
    model, tokenizer = small_model()
    source = Padded.of(torch.tensor([[tokenizer.end]]), torch.tensor([1]))
    config = SearchConfig(beam=size, normalisation="none", max_length=6)
    recorder = Recorder(source, config, tokenizer, tokenizer.end)
    search(model, source, config, observer=recorder)
    return recorder.records()[0]


def beam(size: int = 2) -> Sheet:
    """Beam search in four steps with small probabilities: candidates, products, and what is
    kept."""
    if size > LARGEST_BEAM:
        raise RegardError(f"the example is for beams of 1 to {LARGEST_BEAM}", where="size")
    record = search_record(size)
    outputs = {0: "<s>"}
    steps = []
    numbers = []
    for step in record["steps"]:
        rows = []
        guessed = step["step"] > 2  # before that, nothing was dropped yet
        for candidate in sorted(step["candidates"], key=lambda one: one["parent"]):
            before = outputs[candidate["parent"]]
            word = candidate["token"].lstrip("▁")
            is_kept = candidate["fate"] in ("kept", "finished")
            if candidate["id"] is not None:
                outputs[candidate["id"]] = f"{before} {word}"
            p = math.exp(candidate["log_p"])
            total = math.exp(candidate["total"])
            numbers.append([step["step"], before, word, round(p, 4), round(total, 4), is_kept])
            rows.append(
                [
                    Cell(before, asked=guessed),
                    Cell(word, asked=guessed),
                    Cell(p, ".2f", asked=guessed),
                    Cell(total, ".3f", asked=True),
                    Cell(
                        candidate["fate"],
                        tone="good" if is_kept else "muted",
                        ours=True,
                        asked=True,
                    ),
                ]
            )
        steps.append(
            Section(
                f"Step {step['step']}: {step['open']} best candidates stay",
                [
                    Table(
                        ["so far", "next word", "P(next word)", "P of all words", "fate"],
                        rows,
                        in_picture=True,
                    )
                ],
            )
        )
    winner = record["ranking"][0]
    greedy = search_record(1)["ranking"][0]
    compared = [
        (name, Cell(best["output"], asked=True), Cell(math.exp(best["score"]), ".3f", asked=True))
        for name, best in ((f"beam {size}", winner), ("greedy, beam 1", greedy))
    ]
    steps.append(
        Section(
            "The result",
            [
                Table(
                    ["search", "output", "P of all words"],
                    [[Cell(name, ours=True), *cells] for name, *cells in compared],
                    in_picture=True,
                ),
                search_tree(record),
                muted(
                    "Greedy search takes the best word of each step. A beam keeps a word that looks "
                    "second best now and leads to a better sentence."
                ),
            ],
        )
    )
    given = [
        [word, ", ".join(f"{next_word} {p:g}" for next_word, p in following.items())]
        for word, following in NEXT_WORDS.items()
    ]
    steps.insert(
        0,
        Section(
            "Given: the probabilities of the next word",
            [Table(["after", "next word"], given, in_picture=True)],
        ),
    )
    values = {
        "candidates": numbers,
        "output": winner["output"],
        "probability": math.exp(winner["score"]),
        "greedy": greedy["output"],
        "greedy probability": math.exp(greedy["score"]),
    }
    opening = "A beam keeps the best few beginnings at each step. P of all words is a product."
    return Sheet("Beam search by hand", opening, steps, values)
