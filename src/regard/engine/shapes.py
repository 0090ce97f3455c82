"""Batches in shapes that repeat, so that a GPU can compile a training step, or capture it as a CUDA
graph.

Models that compute on packed sentences get rows of a fixed size (`pack`). Recurrent models get a
little more padding, so that there are few shapes (`with_rounded_shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import (
    NO_TAG,
    AnyBatch,
    Batch,
    LabelledBatch,
    MaskedBatch,
    Padded,
    TextBatch,
)
from regard.data.epochs import RowSizes, rounded_up
from regard.data.tiles import TILE
from regard.engine.packing import PackedRow

SIZES_PER_DOUBLING = 8
"""Rounded batches have so many sizes between a power of two and the next: they have at most 12 %
more rows and 12 % more positions."""
LABELLED_SIZES_PER_DOUBLING = 4
"""`SIZES_PER_DOUBLING` for batches under a head. They are small, so that a GPU computes the filler
while it would wait for the next launch."""


# Packed batches


@dataclass(frozen=True)
class PackedBatch(AnyBatch):
    """`Batch` in two rows."""

    source: PackedRow
    target: PackedRow


@dataclass(frozen=True)
class PackedTextBatch(AnyBatch):
    """`TextBatch` in one row."""

    text: PackedRow


@dataclass(frozen=True)
class PackedMaskedBatch(AnyBatch):
    """`MaskedBatch` in one row."""

    text: PackedRow
    segments_1P: Tensor
    places_P: Tensor
    """The places of the masked tokens in the row; filler at the end."""
    labels_P: Tensor
    """The tokens before masking; NO_TAG in the filler."""
    follows_B: Tensor | None
    """`MaskedBatch.follows_B`, with NO_TAG for sentences of filler."""

    def first_tokens(self, hidden_1PD: Tensor) -> Tensor:
        """The hidden states of the first token of each text, [B, 1, D]."""
        starts_B = self.text.bounds[:-1].clamp(max=hidden_1PD.shape[1] - 1)
        return hidden_1PD[0].index_select(0, starts_B)[:, None]


def pack(batch: AnyBatch, sizes: RowSizes) -> AnyBatch:
    """A batch in rows of fixed size, its sentences in the order of the batch."""
    return PACKERS[type(batch)](batch, sizes)


def packed_pairs(batch: Batch, sizes: RowSizes) -> PackedBatch:
    return PackedBatch(
        packed_row(batch.source, sizes.first, sizes),
        packed_row(batch.target, sizes.second, sizes, without=1),
        **counts_of(batch),
    )


def packed_texts(batch: TextBatch, sizes: RowSizes) -> PackedTextBatch:
    return PackedTextBatch(
        packed_row(batch.text, sizes.first, sizes, without=1), **counts_of(batch)
    )


def packed_masked(batch: MaskedBatch, sizes: RowSizes) -> PackedMaskedBatch:
    width = batch.segments_BL.shape[1]
    row = packed_row(batch.text, sizes.first, sizes)
    masked = max(sizes.masked, rounded_up(len(batch.places_P), TILE))
    follows_B = batch.follows_B
    if follows_B is not None:
        follows_B = with_filler(follows_B, len(row.bounds) - 1, NO_TAG)
    places_P = row.bounds[batch.places_P // width] + batch.places_P % width
    return PackedMaskedBatch(
        text=row,
        segments_1P=with_filler(batch.text.real(batch.segments_BL), row.ids_1P.shape[1], 0)[None],
        places_P=with_filler(places_P, masked, 0),
        labels_P=with_filler(batch.labels_P, masked, NO_TAG),
        follows_B=follows_B,
        **counts_of(batch),
    )


PACKERS: dict[type[AnyBatch], Callable[[Any, RowSizes], AnyBatch]] = {
    Batch: packed_pairs,
    TextBatch: packed_texts,
    MaskedBatch: packed_masked,
}


def counts_of(batch: AnyBatch) -> dict[str, Any]:
    return {"examples": batch.examples, "tokens": batch.tokens}


def packed_row(text: Padded, size: int, sizes: RowSizes, without: int = 0) -> PackedRow:
    """Sentences packed into a row of `size`, or of more if they need it, `without` their last
    tokens."""
    lengths_B = text.host_lengths_B - without
    total = int(lengths_B.sum())
    size = max(size, rounded_up(total, TILE))
    # Filler sentences of a tile each; the last one ends with the row
    filler = torch.tensor([TILE]).repeat((size - total) // TILE + 1)
    ends = torch.cat([lengths_B, filler]).cumsum(0).clamp(max=size)
    starts = F.pad(ends, (1, 0))
    sentences_P = torch.repeat_interleave(torch.diff(starts))
    places_P = (torch.arange(size) - starts[sentences_P])[:total]
    ids = text.ids_BL.flatten()
    from_P = sentences_P[:total] * text.ids_BL.shape[1] + places_P
    most_sentences = max(sizes.sentences, rounded_up(len(text), TILE))
    most_filler = max(sizes.first, sizes.second) // TILE
    is_equal = total == size and int(lengths_B.min()) == int(lengths_B.max())
    return PackedRow(
        ids_1P=with_filler(ids[from_P], size, 0)[None],
        sentences_P=sentences_P,
        places_P=with_filler(places_P, size, 0),
        bounds=with_filler(starts, most_sentences + most_filler + 2, size).int(),
        longest=max(sizes.longest, TILE, int(lengths_B.max())),
        next_P=with_filler(ids[from_P + without], size, NO_TAG),
        equal=len(text) if is_equal else 0,
    )


def with_filler(values: Tensor, size: int, filler: int) -> Tensor:
    """The values, followed by filler up to `size` values."""
    return F.pad(values, (0, size - len(values)), value=filler)


# Rounded shapes


@dataclass(frozen=True)
class Rounded(Padded):
    """Sentences with a little more padding, which is computed like words. The kernels then depend
    only on the shape, so a CUDA graph can replay them."""

    keeps_shape: ClassVar[bool] = True

    @property
    def inputs(self) -> Rounded:
        return Rounded(self.lengths_B - 1, self.host_lengths_B - 1, self.ids_BL[:, :-1])

    @property
    def loop_lengths_B(self) -> Tensor:
        return torch.full_like(self.host_lengths_B, self.ids_BL.shape[1])

    def predicted(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states of all positions; the token is NO_TAG on padding."""
        place_T = torch.arange(1, self.ids_BL.shape[1], device=self.ids_BL.device)
        next_BT = self.ids_BL[:, 1:].masked_fill(place_T >= self.lengths_B[:, None], NO_TAG)
        return hidden.flatten(0, 1), next_BT.flatten()


def with_rounded_shapes(batch: AnyBatch, longest: int | None = None) -> AnyBatch:
    """A batch in one of few shapes, for a model whose steps are captured and which reads at most
    `longest` positions.

    A batch under a head does not change if its examples have different numbers of rows, or if words
    are spelled.
    """
    if isinstance(batch, Batch):
        sizes = [few_sizes(text.ids_BL.shape) for text in (batch.source, batch.target)]
        source, target = map(resized, (batch.source, batch.target), sizes)
        return replace(batch, source=source, target=target)
    if not isinstance(batch, LabelledBatch) or batch.text.spelling is not None:
        return batch
    has_equal_examples = len(batch.text) % len(batch.labels) == 0
    return rounded_labels(batch, longest) if has_equal_examples else batch


def rounded_labels(batch: LabelledBatch, longest: int | None) -> LabelledBatch:
    """A batch with added examples whose label is ignored; numbers have no such label, so none are
    added to them."""
    text = batch.text
    examples = len(batch.labels)
    rows_per_example = len(text) // examples
    more, width = few_sizes([examples, text.ids_BL.shape[1]], LABELLED_SIZES_PER_DOUBLING)
    if longest is not None:
        width = max(text.ids_BL.shape[1], min(width, longest))
    added = 0 if batch.labels.is_floating_point() else more - examples
    added_width = width - text.ids_BL.shape[1]
    labels = batch.labels
    if labels.shape == text.ids_BL.shape:
        labels = F.pad(labels, (0, added_width), value=NO_TAG)
    owners = torch.arange(examples, examples + added).repeat_interleave(rows_per_example)
    after = [0] * (2 * labels.dim() - 1)
    return replace(
        batch,
        text=resized(text, [len(text) + added * rows_per_example, width]),
        segments_BL=F.pad(batch.segments_BL, (0, added_width, 0, added * rows_per_example)),
        owners_B=torch.cat([batch.owners_B, owners]),
        labels=F.pad(labels, (*after, added), value=NO_TAG),
    )


def few_sizes(sizes: Sequence[int], per_doubling: int = SIZES_PER_DOUBLING) -> list[int]:
    """The sizes rounded up so that there are few different ones."""
    return [
        rounded_up(size, max(1, 2 ** (size.bit_length() - 1) // per_doubling)) for size in sizes
    ]


def resized(text: Padded, shape: Sequence[int]) -> Rounded:
    """A text with padding up to this shape; added sentences have one token."""
    rows, width = shape
    added_rows = rows - len(text)
    return Rounded(
        lengths_B=F.pad(text.lengths_B, (0, added_rows), value=1),
        host_lengths_B=F.pad(text.host_lengths_B, (0, added_rows), value=1),
        ids_BL=F.pad(text.ids_BL, (0, width - text.ids_BL.shape[1], 0, added_rows)),
        spelling=text.spelling,
    )
