"""Tagged words -> rows of tokens with a tag to find for each word."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import LabelledBatch
from regard.data.conll import TaggedReader, TaggingData
from regard.data.dataset import Examples
from regard.data.framing import Framed, Framing, padded_rows, windows
from regard.data.prepare import Prepared
from regard.data.readers import without_faults
from regard.data.report import ColumnReport, Histogram, Report
from regard.data.schemes import OUTSIDE, Scheme, entities_in, is_chunk_tag, labels_of, tags_of
from regard.data.store import Integers, TokenColumn
from regard.data.texts import Progress, Texts, prepare_texts
from regard.errors import NAMED, DataError, Faults, Problem
from regard.text.spelling import encode_spelled
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers, train_tokenizers

NO_TAG = -100
"""Stands in `labels` where a token carries no tag."""
TRAINED = "the training sentences"


class Marked(NamedTuple):
    """A row of tokens: the places in it that carry the tags of words, and which words of the sentence these are."""

    row: Framed
    places: list[int]
    words: list[int]


@dataclass(frozen=True)
class Marking:
    """How the words of a sentence become rows."""

    framing: Framing
    spaced: bool
    """Whether words are separated by a token for the space, in vocabularies that have one."""
    last: bool
    """Which token carries the tag of a word: the last one, for a model that has read only so far; else the first."""

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The tokens of each word, as they would be in a text with a space between any two words; at least one."""
        tokenizer = self.framing.tokenizer
        before = " " if self.spaced and separates(tokenizer) else ""
        spelt = [[word if number == 0 else before + word for number, word in enumerate(words)] for words in sentences]
        distinct = list(dict.fromkeys(word for words in spelt for word in words))
        encoded = encode_spelled(tokenizer, distinct, self.framing.letters)
        known = {word: ids or [tokenizer.unk] for word, ids in zip(distinct, encoded, strict=True)}
        return [[known[word] for word in words] for words in spelt]

    def rows(self, words: Sequence[Sequence[int]]) -> list[Marked]:
        """One row; several where the sentence is too long: each word is tagged where most stands around it."""
        sizes = np.array([len(ids) for ids in words])
        carriers = np.cumsum(sizes) - (1 if self.last else sizes)
        ids = [token for word in words for token in word]
        parts = windows(len(ids), self.framing.longest - 2, self.framing.stride)
        around_NW = np.array([np.minimum(carriers - start, stop - 1 - carriers) for start, stop in parts])
        chosen_W = around_NW.argmax(axis=0)
        return [
            Marked(
                self.framing.frame(ids[start:stop]),
                (1 + carriers[chosen_W == number] - start).tolist(),
                np.flatnonzero(chosen_W == number).tolist(),
            )
            for number, (start, stop) in enumerate(parts)
        ]


def separates(tokenizer: Tokenizer) -> bool:
    """Whether a space between two words is a token, or part of one: as in vocabularies of bytes and characters."""
    return tokenizer.encode("a a") != tokenizer.encode("a") * 2


@dataclass(frozen=True, eq=False)
class TaggedExamples(Examples):
    """Sentences of tagged words."""

    tokens: Sequence[str]
    """The words of each, a JSON list."""
    tags: Sequence[str]
    """Their tags as they are learned, likewise."""
    marking: Marking
    names: tuple[str, ...]
    """All tags that there are, in the order of their numbers."""
    labels: TokenColumn
    """The numbers of the tags."""
    ids: TokenColumn
    """The tokens of all words of a sentence."""
    sizes: TokenColumn
    """How many of them each word has."""
    corpora: Integers
    weights: tuple[float, ...]
    place: Callable[[int], str]

    @property
    def finds_entities(self) -> bool:
        """Whether tags mark entities."""
        return all(map(is_chunk_tag, self.names))

    def where(self, example: int) -> str:
        return self.place(example)

    def words(self, example: int) -> list[list[int]]:
        """The tokens of each word."""
        framing = self.marking.framing
        if framing.letters is not None and framing.tokenizer.unk in self.ids[example]:
            return self.marking.encode([json.loads(self.tokens[example])])[0]
        ends = np.cumsum(self.sizes[example])[:-1]
        return [part.tolist() for part in np.split(self.ids[example], ends)]

    def expected(self, example: int) -> list[str]:
        """The tags of the words."""
        tags: list[str] = json.loads(self.tags[example])
        return tags

    def rows(self, example: int) -> list[Marked]:
        return self.marking.rows(self.words(example))

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """All rows of a sentence together."""
        framing = self.marking.framing
        known: dict[int, int] = {}
        for length in set(self.ids.lengths.tolist()):
            parts = windows(length, framing.longest - 2, framing.stride)
            known[length] = sum(stop - start + 2 for start, stop in parts)
        return np.array([known[length] for length in self.ids.lengths.tolist()], dtype=np.int32)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> LabelledBatch:
        """Nothing is drawn."""
        rows = [self.rows(int(example)) for example in examples]
        labels = [self.labels[int(example)] for example in examples]
        return tagged_batch(rows, labels, self.marking.framing.tokenizer.pad, tuple(examples.tolist()))

    def frequencies(self) -> NDArray[np.int64]:
        """How often each tag is to be found."""
        return self.labels.counts(len(self.names))

    def label_counts(self) -> dict[str, int]:
        return dict(zip(self.names, self.frequencies().tolist(), strict=True))

    def pieces(self, example: int) -> dict[str, list[str]]:
        tokenizer = self.marking.framing.tokenizer
        return {"tokens": tokenizer.pieces(self.ids[example].tolist()), "tags": self.expected(example)}

    def fingerprint(self) -> int:
        labels = np.concatenate([self.labels[row] for row in range(len(self))])
        return zlib.crc32(labels.tobytes(), zlib.crc32(self.lengths.tobytes()))


def tagged_batch(
    rows: Sequence[Sequence[Marked]], labels: Sequence[Integers], pad: int, examples: tuple[int, ...] = ()
) -> LabelledBatch:
    """The rows of some sentences as tensors, with the label of each word where it is carried."""
    flat = [(marked, own) for sentence, own in zip(rows, labels, strict=True) for marked in sentence]
    text, segments_BL = padded_rows([marked.row for marked, _ in flat], pad)
    labels_BL = torch.full_like(text.ids_BL, NO_TAG)
    for row, (marked, own) in enumerate(flat):
        labels_BL[row, marked.places] = torch.from_numpy(own[marked.words].astype(np.int64))
    owners_B = torch.repeat_interleave(torch.tensor([len(sentence) for sentence in rows]))
    return LabelledBatch(text, segments_BL, owners_B, labels_BL, examples, sum(map(len, labels)))


def tagged_examples(
    tokens: Sequence[str],
    tags: Sequence[Sequence[str]],
    names: Sequence[str],
    marking: Marking,
    *,
    corpora: Integers,
    weights: tuple[float, ...],
    place: Callable[[int], str],
) -> TaggedExamples:
    """Sentences that are ready for batches; `names` has every tag."""
    numbers = {name: number for number, name in enumerate(names)}
    words = marking.encode([json.loads(text) for text in tokens])
    return TaggedExamples(
        tokens,
        [json.dumps(row, ensure_ascii=False) for row in tags],
        marking,
        tuple(names),
        TokenColumn.of([[numbers[tag] for tag in row] for row in tags]),
        TokenColumn.of([[token for word in row for token in word] for row in words]),
        TokenColumn.of([[len(word) for word in row] for row in words]),
        corpora,
        weights,
        place,
    )


def prepare_tagged(
    data: TaggingData,
    config: TokenizerConfig,
    marking: Callable[[Tokenizer], Marking],
    names: Sequence[str] | None,
    *,
    base: Path,
    seed: int,
    tokenizers: Tokenizers | None = None,
    progress: Progress | None = None,
) -> Prepared[TaggedExamples]:
    """Read, check and split the sentences; `names` are their tags, those of the training sentences if not given."""
    found = prepare_texts(data, base=base, seed=seed, progress=progress or (lambda step, done: None))
    if tokenizers is None:
        lines = [" ".join(json.loads(text)) for text in found.splits["train"].columns["tokens"]]
        tokenizers = train_tokenizers(config, {"text": lines}, base)
    tags = {
        name: [_learned(text, data.plain, data.learned) for text in split.columns["tags"]]
        for name, split in found.splits.items()
    }
    names = names or label_names(tags["train"], data)
    splits = {
        name: _examples(
            split, tags[name], names, marking(tokenizers["text"]), "head.labels" if name == "train" else TRAINED
        )
        for name, split in found.splits.items()
    }
    reports = {name: replace(found.report[name], columns=_columns(splits[name])) for name in found.splits}
    report = Report(reports, {"over_long_line": data.max_characters}, data.UNIT)
    return Prepared(splits["train"], splits["validation"], splits.get("test"), tokenizers, report)


def read_tagged(
    readers: Sequence[TaggedReader], data: TaggingData, names: Sequence[str], marking: Marking
) -> TaggedExamples:
    """Corpora as they are, to measure a run on."""
    rows, found = without_faults(readers)
    faults = Faults()
    faults.add(*found)
    if faults.count and (data.bad_lines == "error" or not rows):
        raise DataError(problems=faults.problems)
    plain = data.plain or not all(map(is_chunk_tag, names))
    tags = [_learned(row.values[1], plain, data.learned) for _, row in rows]
    _refuse_unknown(tags, names, TRAINED, lambda row, word: rows[row][0].where_word(rows[row][1].line, word))
    return tagged_examples(
        [row.values[0] for _, row in rows],
        tags,
        names,
        marking,
        corpora=np.zeros(len(rows), dtype=np.int16),
        weights=(1.0,),
        place=lambda row: rows[row][0].where(rows[row][1].line),
    )


def _examples(
    texts: Texts, tags: list[list[str]], names: Sequence[str], marking: Marking, origin: str
) -> TaggedExamples:
    """`origin` says where the names are from."""

    def where(row: int, word: int) -> str:
        number = texts.rows[row]
        reader = texts.readers[int(texts.corpora[number])]
        assert isinstance(reader, TaggedReader)
        return reader.where_word(int(texts.lines[number]), word)

    _refuse_unknown(tags, names, origin, where)
    return tagged_examples(
        list(texts.columns["tokens"]),
        tags,
        names,
        marking,
        corpora=texts.corpora[texts.rows],
        weights=tuple(reader.corpus.weight for reader in texts.readers),
        place=texts.where,
    )


def _learned(text: str, plain: bool, scheme: Scheme) -> list[str]:
    """Tags in the scheme that is learned."""
    tags: list[str] = json.loads(text)
    return tags if plain else tags_of(entities_in(tags), len(tags), scheme)


def label_names(tags: Sequence[Sequence[str]], data: TaggingData) -> list[str]:
    """All tags that the training sentences allow: those of their types in the scheme, or those that stand there."""
    there = {tag for row in tags for tag in row}
    if len(there) == 1:
        hint = "two tags at the least: is it the right column? data.train.tags names it"
        raise DataError(f"every tag is {next(iter(there))!r}", where="data.train", hint=hint)
    return sorted(there) if data.plain else labels_of({tag[2:] for tag in there if tag != OUTSIDE}, data.learned)


def _refuse_unknown(
    tags: Sequence[Sequence[str]], names: Sequence[str], origin: str, where: Callable[[int, int], str]
) -> None:
    """Every tag that is not one of the names, where it first stands."""
    places = ((tag, row, word) for row, sentence in enumerate(tags) for word, tag in enumerate(sentence))
    known, first = set(names), dict[str, tuple[int, int]]()
    for tag, row, word in (one for one in places if one[0] not in known):
        first.setdefault(tag, (row, word))
    chunks = all(map(is_chunk_tag, names))
    types = sorted({name[2:] for name in names if name != OUTSIDE} if chunks else known)
    hint = f"there are {', '.join(types)[:200]}"
    if first:
        unknown = list(first.items())[:NAMED]
        raise DataError(
            problems=[Problem(where(*one), f"the tag {tag!r} does not stand in {origin}", hint) for tag, one in unknown]
        )


def _columns(examples: TaggedExamples) -> dict[str, ColumnReport]:
    lengths, tokenizer = examples.ids.lengths, examples.marking.framing.tokenizer
    tokens = int(lengths.sum())
    unknown = int(examples.ids.counts(tokenizer.size)[tokenizer.unk]) / max(tokens, 1)
    return {"tokens": ColumnReport(tokens, unknown, Histogram.of(lengths))}
