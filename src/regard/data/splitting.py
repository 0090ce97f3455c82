"""Which examples are trained on, held out or dropped: duplicates, shares and leaks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.config import Split, Splits
from regard.data.corpora import Part
from regard.data.dataset import (
    SPLITS,
    Finding,
    SplitReport,
)
from regard.data.readers import Reader
from regard.data.store import Integers
from regard.data.texts import Texts
from regard.text.normalise import nfc

Hashes = NDArray[np.uint64]


def held_out_shares(data: Splits[Any]) -> dict[Part, float]:
    """The splits that are drawn from the training examples."""
    return {
        split: part.split for split in SPLITS if isinstance(part := getattr(data, split), Split)
    }


@dataclass(frozen=True, eq=False)
class SplitIndex:
    """An index of the examples in the files of a split: a few numbers an example, and what was
    dropped."""

    texts: Texts
    read: int
    dropped: dict[str, Finding]
    firsts: Integers  # the first row of each example, and the number of rows
    # a hash of the first column, which a split goes by: as the first of those alike is written
    sources: Hashes
    inputs: Hashes  # a hash of all columns that a model reads, which leaks are found by
    # a hash of all columns but the ids of questions, which duplicates are found by
    examples: Hashes
    labels: Hashes | None  # a hash of the label, if there is one

    def rows_of(self, examples: Integers) -> Integers:
        sizes = np.diff(self.firsts)[examples]
        shifts = self.firsts[examples] - (np.cumsum(sizes) - sizes)
        return np.repeat(shifts, sizes) + np.arange(int(sizes.sum()))

    def finding(self, examples: Integers) -> Finding:
        return Finding().more(self.firsts[examples], self.texts.where)


def weight_ranks(readers: Sequence[Reader]) -> Integers:
    """The rank of each corpus by weight, 0 for the highest."""
    return np.argsort(np.argsort([-reader.corpus.weight for reader in readers], kind="stable"))


def split_examples(train: SplitIndex, data: Splits[Any], seed: int) -> dict[Part, Integers]:
    """The training examples, without duplicates, and the shares of them that are held out, drawn by
    source.

    Of equal examples the first one of the corpus with the highest weight is kept. Where examples
    have labels, every label has its share in each part, and one source of it stays in training.
    """
    examples = np.arange(len(train.examples))
    if data.deduplicate:
        preferred = np.argsort(
            weight_ranks(train.texts.readers)[train.texts.corpora[train.firsts[:-1]]], kind="stable"
        )
        examples = np.sort(preferred[np.unique(train.examples[preferred], return_index=True)[1]])
    shuffled = _mixed(train.sources[examples] ^ _mixed(np.array([seed % 2**64], dtype=np.uint64)))
    distinct, source = np.unique(shuffled, return_inverse=True)
    order: Integers = np.arange(len(distinct))
    last = len(order)
    if data.by_label and train.labels is not None and len(order):
        order, last = _stratified_order(source, train.labels[examples])
    part = np.zeros(len(distinct), np.int8)
    shares = held_out_shares(data)
    taken = 0
    for number, share in enumerate(shares.values(), 1):
        drawn = order[taken : min(last, taken + ceil(round(share * len(distinct), 6)))]
        taken += len(drawn)
        part[drawn] = number
    return {
        split: examples[part[source] == number] for number, split in enumerate(["train", *shares])
    }


def _stratified_order(source: Integers, labels: Hashes) -> tuple[Integers, int]:
    """The sources in an order in which any segment has all labels in their proportion; and how many
    may be held out.

    The others, the last ones, are one source of every label. A source with several labels counts
    for the rarest.
    """
    names, label = np.unique(labels, return_inverse=True)
    size = int(source.max()) + 1
    owners, members = np.divmod(np.unique(label * size + source), size)
    by_label = np.split(members, np.searchsorted(owners, np.arange(1, len(names))))
    place = np.full(size, np.nan)
    kept = np.zeros(size, bool)
    for sources in sorted(by_label, key=len):
        kept[sources[-1]] |= not kept[sources].any()
        own = sources[np.isnan(place[sources])]
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return np.lexsort((place, kept)), size - int(kept.sum())


def split_report(
    split: Part, indexes: Mapping[Part, SplitIndex], chosen: Mapping[Part, Integers]
) -> SplitReport:
    kept = len(chosen[split])
    if split not in indexes:
        return SplitReport(read=kept, kept=kept)
    index = indexes[split]
    train = indexes["train"]
    if split != "train":
        others: list[Part] = ["train", "validation"] if split == "test" else ["train"]
        seen = np.concatenate([indexes.get(other, train).inputs[chosen[other]] for other in others])
        leaks = np.isin(index.inputs, seen) & (index.sources != hashes_of([""])[0])
        return SplitReport(
            index.read, kept, dropped=index.dropped, leaks=index.finding(np.flatnonzero(leaks))
        )
    duplicate = np.ones(len(train.examples), dtype=bool)
    for name in chosen.keys() - (indexes.keys() - {"train"}):
        duplicate[chosen[name]] = False
    dropped = train.dropped | {"duplicate": train.finding(np.flatnonzero(duplicate))}
    set_aside = len(train.examples) - int(duplicate.sum()) - kept
    return SplitReport(train.read, kept, set_aside, dropped)


def hashes_of(texts: Sequence[str], *, as_written: bool = False) -> Hashes:
    """One form of texts that models read alike: whose letters are composed or not (NFC), or white
    space differs."""
    folded = (nfc(text if as_written else " ".join(text.split())) for text in texts)
    digests = [hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest() for text in folded]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """A bijection of the 64-bit numbers that spreads them evenly: the finisher of SplitMix64
    (Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def combined_hashes(columns: Sequence[Hashes]) -> Hashes:
    result = np.zeros_like(columns[0])
    for column in columns:
        result = _mixed(result ^ column)
    return result


def hashes_of_examples(hashes: Hashes, firsts: Integers) -> Hashes:
    """The hash of each example from those of its rows; that of its only row, where it is one."""
    by_example = hashes[firsts[:-1]]
    for example in np.flatnonzero(np.diff(firsts) > 1):
        rows = hashes[firsts[example] : firsts[example + 1]]
        by_example[example] = combined_hashes([*rows[:, None]])[0]
    return by_example
