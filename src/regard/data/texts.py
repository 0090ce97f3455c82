"""Files -> checked texts: bad lines found, duplicates dropped, validation and test set apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from regard.data.config import Split, Splits
from regard.data.corpora import Part
from regard.data.formats import Row
from regard.data.readers import Reader, open_corpus
from regard.data.report import NAMED, Found, Report, SplitReport
from regard.data.store import ArrayWriter, ColumnWriter, Integers, TextColumn, open_array, stored
from regard.errors import DataError, Faults, Problem
from regard.text.normalise import nfc

FORMAT = 3
"""Counts up when stored texts or tokens change their form, so that no old cache is read as a new one."""

END, GOES_ON = ".", "+"
"""The column `part` of rows that may be pieces of an example: whether it ends with this row or goes on in the next."""
CHUNK = 4096
"""Rows that are read at once,"""
CHARACTERS = 1 << 22
"""and characters, about: documents may be long."""

Readers = dict[Part, list[Reader]]
Progress = Callable[[str, int], None]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of one split: some rows of all that was read from its files. Everything is mapped, nothing is held."""

    read: dict[str, TextColumn]
    corpora: Integers
    lines: Integers
    readers: list[Reader]
    rows: Integers
    owners: Integers
    """The number of the example that each row read belongs to: a long document is several rows."""

    @cached_property
    def firsts(self) -> Integers:
        """Of each example the number of its first row among `rows`, and how many these are."""
        return first_rows(self.owners[self.rows])

    @property
    def columns(self) -> dict[str, TextColumn]:
        columns = {name: column.select(self.rows) for name, column in self.read.items()}
        return {**columns, "part": parts(self.owners[self.rows])} if self.readers[0].corpus.IN_PIECES else columns

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, number: int) -> str:
        row = self.rows[number]
        return self.readers[int(self.corpora[row])].where(int(self.lines[row]))


@dataclass(frozen=True)
class PreparedTexts:
    """The texts of all splits, what was found on the way, and the key that stands for all of it."""

    key: str
    splits: dict[Part, Texts]
    report: dict[Part, SplitReport]


def prepare_texts(data: Splits[Any], *, base: Path, seed: int, progress: Progress) -> PreparedTexts:
    """The texts of every split, from the cache where nothing has changed."""
    readers = _open_readers(data, base)
    key = _key_of(data, readers, seed)
    folder = stored(f"texts-{key}", lambda aside: _write(aside, data, readers, seed, progress))
    report = TypeAdapter(dict[Part, SplitReport]).validate_json((folder / "report.json").read_bytes())
    return PreparedTexts(key, {split: _open(folder, split, readers) for split in report}, report)


def key_of(settings: Any) -> str:
    """A short name for a tree of plain values."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def _held_out(data: Splits[Any]) -> dict[Part, Split | list[Any]]:
    parts: dict[Part, Split | list[Any]] = {"validation": data.validation}
    return parts if data.test is None else {**parts, "test": data.test}


def _open_readers(data: Splits[Any], base: Path) -> Readers:
    """A reader for each corpus that is named, or all that is wrong with their names."""
    named: dict[Part, list[Any]] = {"train": data.train}
    named |= {split: part for split, part in _held_out(data).items() if not isinstance(part, Split)}
    readers: Readers = {split: [] for split in named}
    problems: list[Problem] = []
    for split, corpora in named.items():
        for corpus in corpora:
            try:
                readers[split].append(open_corpus(corpus, base, split))
            except DataError as error:
                problems += error.problems
    if problems:
        raise DataError(problems=problems)
    return readers


def _key_of(data: Splits[Any], readers: Readers, seed: int) -> str:
    """The names of the files belong to it because the report names places."""
    shares = {name: part.split for name, part in _held_out(data).items() if isinstance(part, Split)}
    files = {
        split: [[reader.fingerprint(), *(reader.where(0, column) for column in reader.columns)] for reader in opened]
        for split, opened in readers.items()
    }
    checks = [data.max_characters, data.bad_lines, data.deduplicate]
    return key_of([FORMAT, files, shares, seed if shares else None, checks])


def _open(folder: Path, split: Part, readers: Readers) -> Texts:
    origin: Part = split if split in readers else "train"
    read = {name: TextColumn.open(folder, f"{origin}.{name}") for name in readers[origin][0].columns}
    corpora = open_array(folder / f"{origin}.corpora", np.int16)
    lines = open_array(folder / f"{origin}.lines", np.int64)
    rows, owners = (open_array(folder / name, np.int64) for name in (f"{split}.rows", f"{origin}.owners"))
    return Texts(read, corpora, lines, readers[origin], rows, owners)


def _write(folder: Path, data: Splits[Any], readers: Readers, seed: int, progress: Progress) -> None:
    checks = _Checks(data.max_characters, data.UNIT, stop=data.bad_lines == "error")
    copies = {split: _copy(folder, split, opened, checks, progress) for split, opened in readers.items()}
    checks.raise_problems()
    rows = _choose(data, copies, seed)
    for split, chosen in rows.items():
        with closing(ArrayWriter(folder / f"{split}.rows", np.int64)) as writer:
            writer.extend(copies[split if split in copies else "train"].rows_of(chosen))
    report = {split: _report(split, copies, rows, readers, folder) for split in rows}
    Report(report, {"over_long_line": data.max_characters}, data.UNIT).refuse_empty(data.MORE)
    tree = {split: asdict(found) for split, found in report.items()}
    (folder / "report.json").write_text(json.dumps(tree), encoding="utf-8")


@dataclass
class _Checks:
    """Finds lines that are empty, too long or without the columns, in all files."""

    max_characters: int
    unit: str
    stop: bool
    faults: Faults = field(default_factory=Faults)
    unreadable: list[Problem] = field(default_factory=list)
    """What ended the reading of a corpus."""

    def reason(self, reader: Reader, row: Row) -> tuple[str, str] | None:
        """Why the row cannot be kept, if so, and where that is to be seen."""
        if row.fault is not None:
            if self.stop:
                self.faults.add(row.fault)
            return "cells", row.fault.where
        reasons = [self._reason(text, reader.corpus.may_be_empty) for text in row.values]
        if not any(reasons):
            return None
        if self.stop:
            for number, (column, text, reason) in enumerate(zip(reader.columns, row.values, reasons, strict=True)):
                if reason:
                    what = reader.empty(row, number) if reason == "empty" else self._over_long(text)
                    self._note(what, reader.where(row.line, column))
        first = "empty" if "empty" in reasons else "over_long_line"
        return first, reader.where(row.line, reader.columns[reasons.index(first)])

    def _reason(self, text: str, may_be_empty: bool) -> str | None:
        if not (may_be_empty or text.strip()):
            return "empty"
        return "over_long_line" if len(text.rstrip("\n")) > self.max_characters else None

    def _over_long(self, text: str) -> str:
        size = len(text.rstrip("\n"))
        return f"the line has {size:,} characters, data.max_characters allows {self.max_characters:,}"

    def _note(self, what: str, where: str) -> None:
        way = "fill it" if what.endswith("empty") else "split it, raise the limit"
        self.faults.add(Problem(where, what, f"{way}, or data.bad_lines=drop drops such {self.unit}"))

    def raise_problems(self) -> None:
        if problems := [*self.unreadable, *self.faults.problems]:
            raise DataError(problems=problems)


def problems_in(reader: Reader, row: Row, max_characters: int) -> list[Problem]:
    """Why a row cannot be read; an empty line of a table is one problem, not one a column."""
    if row.fault is not None:
        return [row.fault]
    problems = []
    for number, (name, value) in enumerate(zip(reader.columns, row.values, strict=True)):
        if not (reader.corpus.may_be_empty or value.strip()):
            what = reader.empty(row, number)
            problems.append(Problem(reader.where(row.line, name), what, "fill it, or drop the row"))
        elif len(value) > max_characters:
            what = f"the line has {len(value):,} characters, data.max_characters allows {max_characters:,}"
            problems.append(Problem(reader.where(row.line, name), what, "split it, or drop the row"))
    return [*dict.fromkeys(problems)]


@dataclass(frozen=True, eq=False)
class _Copy:
    """What is remembered of the files of a split: a few numbers an example, and what was dropped."""

    read: int
    dropped: dict[str, Found]
    sources: Hashes
    """A hash of the first column, which a split goes by."""
    inputs: Hashes
    """A hash of all columns that a model reads, which leaks are found by."""
    pairs: Hashes
    """A hash of all columns."""
    firsts: Integers
    """The first row of each example, and the number of rows."""

    def rows_of(self, examples: Integers) -> Integers:
        """All rows of these examples, in order."""
        sizes = np.diff(self.firsts)[examples]
        shifts = self.firsts[examples] - (np.cumsum(sizes) - sizes)
        return np.repeat(shifts, sizes) + np.arange(int(sizes.sum()))


def _copy(folder: Path, split: Part, readers: Sequence[Reader], checks: _Checks, progress: Progress) -> _Copy:
    """Stream the files of a split into columns."""
    read, dropped = 0, {"empty": Found(), "over_long_line": Found(), "cells": Found()}
    sources, inputs, pairs = ([np.empty(0, np.uint64)] for _ in range(3))
    with ExitStack() as stack:
        columns = [
            stack.enter_context(closing(ColumnWriter(folder, f"{split}.{name}", np.uint8)))
            for name in readers[0].columns
        ]
        corpora = stack.enter_context(closing(ArrayWriter(folder / f"{split}.corpora", np.int16)))
        lines = stack.enter_context(closing(ArrayWriter(folder / f"{split}.lines", np.int64)))
        owners = stack.enter_context(closing(ArrayWriter(folder / f"{split}.owners", np.int64)))
        for number, reader in enumerate(readers):
            for rows in _chunks(reader, checks):
                accepted = np.array([_accepted(reader, row, checks, dropped) for row in rows])
                kept = [row for row, good in zip(rows, accepted, strict=True) if good]
                begun = read + np.cumsum([not row.continues for row in rows])
                owners.extend(begun[accepted])
                texts = [[row.values[column] for row in kept] for column in range(len(columns))]
                for writer, column in zip(columns, texts, strict=True):
                    writer.extend_bytes([text.encode("utf-8") for text in column])
                corpora.extend(np.full(len(kept), number))
                lines.extend([row.line for row in kept])
                hashes = [hashes_of(column) for column in texts]
                sources.append(hashes[0])
                inputs.append(combined(hashes[: reader.corpus.inputs]))
                pairs.append(combined(hashes))
                read = int(begun[-1])
                progress(f"reading {split}", read)
    firsts = first_rows(open_array(folder / f"{split}.owners", np.int64))
    by_source, by_inputs, by_all = (of_examples(np.concatenate(rows), firsts) for rows in (sources, inputs, pairs))
    return _Copy(read, dropped, by_source, by_inputs, by_all, firsts)


def parts(owners: Integers) -> TextColumn:
    """For each row END, or GOES_ON where the next row belongs to the same example."""
    ends = np.diff(owners, append=-1) != 0
    return TextColumn(np.where(ends, ord(END), ord(GOES_ON)).astype(np.uint8), np.arange(len(owners) + 1))


def first_rows(owners: Integers) -> Integers:
    """Where each of the examples that own some rows begins among them, and how many rows there are."""
    changes = np.flatnonzero(np.diff(owners, prepend=-1, append=-1))
    return changes if len(owners) else np.zeros(1, dtype=np.int64)


def _chunks(reader: Reader, checks: _Checks) -> Iterator[list[Row]]:
    """The rows of a corpus, as far as it can be read."""
    try:
        yield from in_chunks(reader.rows(), lambda row: sum(map(len, row.values)))
    except DataError as error:
        checks.unreadable += error.problems


def in_chunks(items: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
    """Some at a time, so that neither many nor long ones fill the memory."""
    chunk: list[T] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += characters(item)
        if len(chunk) == CHUNK or size >= CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _accepted(reader: Reader, row: Row, checks: _Checks, dropped: dict[str, Found]) -> bool:
    found = checks.reason(reader, row)
    if found is None:
        return True
    reason, place = found
    before = dropped[reason]
    places = before.places if before.count >= NAMED else (*before.places, place)
    dropped[reason] = Found(before.count + 1, places)
    return False


def _choose(data: Splits[Any], copies: Mapping[Part, _Copy], seed: int) -> dict[Part, Integers]:
    """The examples of each split: of its own files, or of the training files where it is a share of them."""
    train = copies["train"]
    rows = np.sort(np.unique(train.pairs, return_index=True)[1]) if data.deduplicate else np.arange(len(train.pairs))
    chosen: dict[Part, Integers] = {}
    shuffled = mixed(train.sources[rows] ^ mixed(np.array([seed % 2**64], dtype=np.uint64)))
    distinct = np.unique(shuffled)
    taken = 0
    for split, part in _held_out(data).items():
        if not isinstance(part, Split):
            chosen[split] = np.arange(len(copies[split].pairs))
            continue
        drawn = distinct[taken : taken + ceil(part.split * len(distinct))]
        taken += len(drawn)
        chosen[split] = rows[np.isin(shuffled, drawn)]
    return {"train": rows[np.isin(shuffled, distinct[taken:])] if taken else rows, **chosen}


def _report(
    split: Part, copies: Mapping[Part, _Copy], rows: Mapping[Part, Integers], readers: Readers, folder: Path
) -> SplitReport:
    kept = len(rows[split])
    if split not in copies:
        return SplitReport(read=kept, kept=kept)
    copy = copies[split]
    if split == "train":
        seen_before = np.ones(len(copy.pairs), dtype=bool)
        for name in rows.keys() - (copies.keys() - {"train"}):
            seen_before[rows[name]] = False
        duplicates = np.flatnonzero(seen_before)
        dropped = copy.dropped | {"duplicate": _found(folder, split, readers, copy.firsts[duplicates])}
        set_aside = len(copy.pairs) - len(duplicates) - kept
        return SplitReport(copy.read, kept, set_aside, dropped)
    seen = np.isin(copy.inputs, copies["train"].inputs[rows["train"]]) & (copy.sources != hashes_of([""])[0])
    leaks = np.flatnonzero(seen)
    return SplitReport(copy.read, kept, dropped=copy.dropped, leaks=_found(folder, split, readers, copy.firsts[leaks]))


def _found(folder: Path, split: Part, readers: Readers, rows: Integers) -> Found:
    corpora = open_array(folder / f"{split}.corpora", np.int16)
    lines = open_array(folder / f"{split}.lines", np.int64)
    places = [readers[split][int(corpora[row])].where(int(lines[row])) for row in rows[:NAMED]]
    return Found(len(rows), tuple(places))


Hashes = NDArray[np.uint64]


def hashes_of(texts: Sequence[str]) -> Hashes:
    """The same for letters that are composed and those that are not: tokenizers read them as one (NFC)."""
    digests = [hashlib.blake2b(nfc(text).encode("utf-8"), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def mixed(values: Hashes) -> Hashes:
    """A bijection of the 64-bit numbers that spreads them evenly: the finisher of SplitMix64 (Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def combined(columns: Sequence[Hashes]) -> Hashes:
    """One hash of several in their order."""
    result = np.zeros_like(columns[0])
    for column in columns:
        result = mixed(result ^ column)
    return result


def of_examples(hashes: Hashes, firsts: Integers) -> Hashes:
    """The hash of each example from those of its rows; that of its only row, where it is one."""
    found = hashes[firsts[:-1]]
    for example in np.flatnonzero(np.diff(firsts) > 1):
        rows = hashes[firsts[example] : firsts[example + 1]]
        found[example] = combined([*rows[:, None]])[0]
    return found
