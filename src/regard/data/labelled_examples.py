"""Labelled texts as rows of tokens with a number to find for each, ready for batches."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import LabelledBatch
from regard.data.dataset import Dataset, Examples
from regard.data.framing import Framed, Framing, padded_rows
from regard.data.store import Integers

Arrangement = Literal["single", "pair", "both_orders", "apart", "choices"]
"""What makes a row: a text; two of them; two of them, and once more the other way round; each of two by itself; a text
and one of its choices."""
Labels = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LabelledExamples(Examples):
    """Texts as rows of tokens, and the number that each example's label stands for."""

    dataset: Dataset
    """The tokens of the texts, column by column, and all columns as text."""
    framing: Framing
    arrangement: Arrangement
    labels: Labels
    """The number of the class, or the number itself."""
    names: tuple[str, ...] = ()
    """What the classes are called, in the order of their numbers."""

    @property
    def corpora(self) -> Integers:  # type: ignore[override]
        return self.dataset.corpora

    @property
    def weights(self) -> tuple[float, ...]:  # type: ignore[override]
        return self.dataset.weights

    def where(self, example: int) -> str:
        return self.dataset.where(example)

    def label(self, example: int) -> str:
        """As it is written in the data."""
        return self.dataset.texts["label"][example]

    def text(self, example: int) -> str:
        """The text, or the texts with tabs between them."""
        return "\t".join(self.dataset.texts[name][example] for name in self.dataset.columns)

    def rows(self, example: int) -> list[Framed]:
        """What a model reads of an example."""
        columns, typed = self.dataset.columns.items(), self.dataset.texts
        texts = [self.framing.spelled(column[example].tolist(), typed[name], example) for name, column in columns]
        return arranged(texts, self.framing, self.arrangement)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """All rows of an example together, each as long as its longest: so they are padded."""
        columns = (column.lengths.tolist() for column in self.dataset.columns.values())
        known: dict[tuple[int, ...], int] = {}
        lengths = [_positions(sizes, self.framing, self.arrangement, known) for sizes in zip(*columns, strict=True)]
        return np.array(lengths, dtype=np.int32)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> LabelledBatch:
        """Nothing is drawn."""
        rows = [self.rows(int(example)) for example in examples]
        labels = torch.from_numpy(self.labels[examples])
        return labelled_batch(rows, labels, self.framing.tokenizer.pad, tuple(examples.tolist()))

    def frequencies(self) -> NDArray[np.int64]:
        return np.unique(self.labels, return_counts=True)[1]

    def label_counts(self) -> dict[str, int]:
        counts = np.bincount(self.labels, minlength=len(self.names)).tolist() if self.names else []
        return dict(zip(self.names, counts, strict=True))

    def pieces(self, example: int) -> dict[str, list[str]]:
        texts = {f"row {number}": row.ids for number, row in enumerate(self.rows(example), 1)}
        named = {"text": next(iter(texts.values()))} if len(texts) == 1 else texts
        spelt = {name: self.framing.tokenizer.pieces(ids) for name, ids in named.items()}
        return {**spelt, "label": [self.label(example)]}

    def fingerprint(self) -> int:
        return zlib.crc32(self.labels.tobytes(), zlib.crc32(self.lengths.tobytes()))


def arranged(texts: Sequence[Sequence[int]], framing: Framing, arrangement: Arrangement) -> list[Framed]:
    """The rows of an example, from the tokens of its texts in the order of the columns."""
    first, *others = texts
    match arrangement:
        case "single":
            return framing.rows(first)
        case "pair":
            return framing.rows(first, others[0])
        case "both_orders":
            return [*framing.rows(first, others[0]), *framing.rows(others[0], first)]
        case "apart":
            return [framing.rows(text)[0] for text in texts]
        case "choices":
            return [framing.rows(first, choice)[0] for choice in others]


def labelled_batch(
    rows: Sequence[Sequence[Framed]], labels: torch.Tensor, pad: int, examples: tuple[int, ...] = ()
) -> LabelledBatch:
    """The rows of some examples as tensors."""
    text, segments_BL = padded_rows([row for one in rows for row in one], pad)
    owners_B = torch.repeat_interleave(torch.tensor([len(one) for one in rows]))
    return LabelledBatch(text, segments_BL, owners_B, labels, examples, len(rows))


def _positions(
    sizes: tuple[int, ...], framing: Framing, arrangement: Arrangement, known: dict[tuple[int, ...], int]
) -> int:
    if sizes not in known:
        rows = arranged([range(size) for size in sizes], framing, arrangement)
        known[sizes] = len(rows) * max(len(row.ids) for row in rows)
    return known[sizes]
