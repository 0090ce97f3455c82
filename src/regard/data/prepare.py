"""The data pipeline: files -> texts -> tokenizers -> encoded columns, each step cached under a key of its content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from regard.data.config import Corpus, Recipe
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset, Encoder, Examples
from regard.data.readers import open_corpus
from regard.data.report import NAMED, ColumnReport, Found, Histogram, Report, SplitReport
from regard.data.store import ArrayWriter, ColumnWriter, Integers, TokenColumn, open_array, stored, token_type
from regard.data.texts import (
    CHARACTERS,
    CHUNK,
    FORMAT,
    PreparedTexts,
    Progress,
    Texts,
    key_of,
    parts,
    prepare_texts,
    problems_in,
)  # fmt: skip
from regard.errors import DataError, Faults
from regard.text.tokenizers import Tokenizer, Tokenizers

E = TypeVar("E", bound=Examples)
T = TypeVar("T", bound="Preparable")


class Preparable(Encoder, Protocol):
    """A class of tasks, as `prepare` uses it."""

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None: ...
    @classmethod
    def learn_tokenizers(cls, recipe: Recipe, train: Texts, base: Path) -> Tokenizers:
        """The tokenizers of a run, trained on its training texts or read from files."""
        ...


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """All that training and evaluation need of the data."""

    task: Encoder
    train: E
    validation: E
    test: E | None
    report: Report

    @property
    def tokenizers(self) -> Tokenizers:
        return self.task.tokenizers

    def with_notes(self, notes: Sequence[str]) -> Prepared[E]:
        """The same with more to say in the report."""
        return replace(self, report=replace(self.report, notes=(*self.report.notes, *notes)))


def prepare(
    kind: type[T], recipe: Recipe, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
) -> Prepared[Dataset]:
    """Read, check, split and encode the data, or open what an earlier call prepared from the same content.

    File names are relative to `base`. `tokenizers` are used as they are; without them they are trained on the training
    texts. `progress` is called with what is being done and the number of examples so far.
    """
    progress = progress or (lambda step, examples: None)
    texts = prepare_texts(recipe.data, base=base, seed=recipe.training.seed, progress=progress)
    tokenizers = tokenizers or trained_tokenizers(kind, recipe, texts, base, progress)
    train = texts.splits["train"]
    task = kind(recipe, tokenizers).settled(train.columns, train.where)
    folder = _encoded_folder(task, recipe, texts, progress)
    report = Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    splits = {split: _open(folder, split, texts.splits[split], task) for split in texts.splits}
    readers = [reader for split in texts.splits.values() for reader in split.readers]
    notes = tuple(dict.fromkeys(note for reader in readers for note in reader.findings()))  # file names are not cached
    return Prepared(task, splits["train"], splits["validation"], splits.get("test"), report).with_notes(notes)


def trained_tokenizers(
    kind: type[Preparable], recipe: Recipe, texts: PreparedTexts, base: Path, progress: Progress
) -> Tokenizers:
    """The tokenizers of the training texts, from the cache where nothing has changed."""
    train = texts.splits["train"]
    if recipe.tokenizer.file is not None:
        return kind.learn_tokenizers(recipe, train, base)

    def build(folder: Path) -> None:
        progress("training the tokenizer", 0)
        tokenizers = kind.learn_tokenizers(recipe, train, base)
        tokenizers.save(folder)
        (folder / "columns.json").write_text(json.dumps(list(tokenizers)), encoding="utf-8")

    key = key_of([FORMAT, kind.__name__, texts.key, recipe.tokenizer.model_dump(mode="json")])
    folder = stored(f"tokenizers-{key}", build)
    columns = json.loads((folder / "columns.json").read_text(encoding="utf-8"))
    return Tokenizers.load(folder, tuple(columns))


def _encoded_folder(task: Encoder, recipe: Recipe, texts: PreparedTexts, progress: Progress) -> Path:
    """The encoded columns of every split on disk, and the report."""

    def build(folder: Path) -> None:
        splits: dict[Part, SplitReport] = {}
        for split, split_texts in texts.splits.items():
            dropped = _write(folder, split, split_texts, task, progress)
            report, columns = texts.report[split], task.column_reports(_open(folder, split, split_texts, task))
            kept = report.kept - sum(found.count for found in dropped.values())
            splits[split] = replace(report, kept=kept, dropped=report.dropped | dropped, columns=columns)
        whole = Report(splits, recipe.data.limits, recipe.data.UNIT)
        whole.refuse_empty()
        (folder / "report.json").write_text(json.dumps(whole.to_json()), encoding="utf-8")

    key = key_of([FORMAT, texts.key, type(task).__name__, task.tokenizers.fingerprint, task.encoding()])
    return stored(f"encoded-{key}", build)


def _write(folder: Path, split: Part, texts: Texts, task: Encoder, progress: Progress) -> dict[str, Found]:
    """Encode a split into columns, without the training examples that the task leaves out: what these are."""
    dropped: dict[str, Found] = {}
    writers: dict[str, ColumnWriter] = {}
    read = texts.columns
    with ExitStack() as stack:
        numbers = stack.enter_context(closing(ArrayWriter(folder / f"{split}.rows", np.int64)))
        for start, stop in _chunks(texts):
            rows = np.arange(start, stop)
            chunk = {name: list(column[start:stop]) for name, column in read.items()}
            columns = task.encode(chunk, lambda row, start=start: texts.where(start + row))  # type: ignore[misc]
            if not writers:
                writers = {
                    name: stack.enter_context(
                        closing(ColumnWriter(folder, f"{split}.{name}", _column_type(task, name)))
                    )
                    for name in columns
                }
            kept = _kept(rows, columns, task, dropped, texts) if split == "train" else rows
            for name, writer in writers.items():
                writer.extend_tokens([columns[name][row - start] for row in kept.tolist()])
            numbers.extend(texts.rows[kept])
            progress(f"tokenising {split}", start + len(rows))
    (folder / f"{split}.columns.json").write_text(json.dumps(list(writers)), encoding="utf-8")
    return dropped


def _chunks(texts: Texts) -> Iterator[tuple[int, int]]:
    """Rows to encode at once: at most CHUNK of them, and about CHARACTERS bytes of text."""
    sizes: Integers = np.sum([column.sizes for column in texts.columns.values()], axis=0, dtype=np.int64)
    start, total = 0, 0
    for row, size in enumerate(sizes.tolist()):
        if row > start and (row - start == CHUNK or total + size > CHARACTERS):
            yield start, row
            start, total = row, 0
        total += size
    yield start, len(texts)


def _column_type(task: Encoder, name: str) -> DTypeLike:
    tokenizer = task.tokenizer_of(name)
    return np.int32 if tokenizer is None else token_type(tokenizer.size)


def _kept(rows: Integers, columns: Columns, task: Encoder, dropped: dict[str, Found], texts: Texts) -> Integers:
    kept = np.ones(len(rows), dtype=bool)
    for reason, broken in task.dropped(columns).items():
        before = dropped.get(reason, Found())
        places = [texts.where(int(row)) for row in rows[broken][: max(0, NAMED - before.count)]]
        dropped[reason] = Found(before.count + int(broken.sum()), (*before.places, *places))
        kept &= ~broken
    return rows[kept]


def _open(folder: Path, split: Part, texts: Texts, task: Encoder) -> Dataset:
    names = json.loads((folder / f"{split}.columns.json").read_text(encoding="utf-8"))
    columns = {name: TokenColumn.open(folder, f"{split}.{name}", _column_type(task, name)) for name in names}
    texts = replace(texts, rows=open_array(folder / f"{split}.rows", np.int64))
    weights = tuple(reader.corpus.weight for reader in texts.readers)
    return Dataset(task, columns, texts.columns, texts.corpora[texts.rows], weights, texts.where)


def read(task: Encoder, recipe: Recipe, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
    """Corpora as they are, encoded in memory, to measure a run on; bad lines are dropped where the recipe says so."""
    readers = [open_corpus(corpus, base, part) for corpus in corpora]
    texts: dict[str, list[str]] = {}
    places: list[str] = []
    numbers, owners = list[int](), list[int]()
    begun, faults = 0, Faults()
    for number, reader in enumerate(readers):
        columns = [texts.setdefault(name, []) for name in reader.columns]
        for row in reader.rows():
            begun += not row.continues
            if bad := problems_in(reader, row, recipe.data.max_characters):
                faults.add(*bad)
                continue
            for column, value in zip(columns, row.values, strict=True):
                column.append(value)
            places.append(reader.where(row.line))
            numbers.append(number)
            owners.append(begun)
    if faults.count and (recipe.data.bad_lines == "error" or not places):
        raise DataError(problems=faults.problems)
    in_pieces = {"part": parts(np.array(owners, dtype=np.int64))} if readers[0].corpus.IN_PIECES else {}
    dataset = Dataset.of(task, {**texts, **in_pieces}, places.__getitem__)
    return replace(dataset, corpora=np.array(numbers, dtype=np.int16), weights=(1.0,) * len(readers))


def token_report(column: TokenColumn, tokenizer: Tokenizer) -> ColumnReport:
    """The tokens of a column: how many, the share that is unknown, and their lengths."""
    tokens = int(column.lengths.sum(dtype=np.int64))
    unknown = int(column.counts(tokenizer.size)[tokenizer.unk])
    return ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(column.lengths))
