"""The data pipeline: files -> texts -> tokenizers -> encoded columns, each step cached under a key
of its content."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import TypeAdapter

from regard.data.config import TOLERATED, Corpus, Recipe, Splits
from regard.data.corpora import Part
from regard.data.dataset import (
    NAMED,
    SPLITS,
    Dataset,
    Encoding,
    Finding,
    Preparation,
    Report,
    SplitReport,
)
from regard.data.epochs import Examples
from regard.data.formats import Row
from regard.data.label_notes import contradictory_labels, rare_labels
from regard.data.parallel import in_order, processors
from regard.data.readers import Reader, open_corpus
from regard.data.splitting import (
    SplitIndex,
    combined_hashes,
    hashes_of,
    hashes_of_examples,
    held_out_shares,
    split_examples,
    split_report,
    weight_ranks,
)
from regard.data.store import (
    ColumnWriter,
    Integers,
    TokenColumn,
    in_chunks,
    parts,
    rebuilding,
    stored,
    token_type,
)
from regard.data.texts import Readers, Texts
from regard.errors import DataError, Faults, Problem
from regard.text.access import is_inside, outside
from regard.text.checksums import key_of
from regard.text.clean import Signs
from regard.text.tokenizers import Tokenizers

# counts up when stored texts or tokens change their form, so that no old cache is read as a new one
PREPARED_VERSION = 8
NANS = ("nan", "NaN", "NAN")  # what programs write for a number that is missing
ROWS_FOR_PROCESSES = (
    100_000  # rows from which `data.workers: auto` starts processes, which takes seconds
)

Place = tuple[int, int, int]  # of a row: the numbers of its corpus, its line and its example
Booleans = NDArray[np.bool_]
_Encoded = tuple[Booleans, Mapping[str, Booleans], dict[str, tuple[NDArray[Any], list[int]]]]
# called with what is being done and the number of examples so far
Progress = Callable[[str, int], None]
E = TypeVar("E", bound=Examples)


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """All that training and evaluation need of the data."""

    recipe: Any
    """The task's recipe, with what only the training data can tell (`Preparation.settle`)."""
    encoding: Encoding
    train: E
    validation: E
    test: E | None
    report: Report

    @property
    def tokenizers(self) -> Tokenizers:
        return self.encoding.tokenizers

    @cached_property
    def fingerprints(self) -> dict[str, int]:
        return self.encoding.fingerprints(self.train, self.validation)

    def with_notes(self, notes: Sequence[str]) -> Prepared[E]:
        return replace(self, report=replace(self.report, notes=(*self.report.notes, *notes)))


@rebuilding
def prepare(
    kind: Preparation,
    recipe: Recipe,
    base: Path,
    tokenizers: Tokenizers | None,
    progress: Progress | None,
) -> Prepared[Dataset]:
    """Read, check, split and encode the data, or open what an earlier call prepared from the same
    content.

    File names are relative to `base`. `tokenizers` are used as they are; without them they are
    trained on the training texts.
    """
    progress = progress or (lambda step, examples: None)
    seed = recipe.training.seed if recipe.data.split_seed is None else recipe.data.split_seed
    within = recipe.readable_folder(base)
    texts = prepare_texts(recipe.data, base=base, seed=seed, progress=progress, within=within)
    train = texts.splits["train"]
    tokenizers = tokenizers or _trained_tokenizers(kind, recipe, texts, base, progress)
    recipe = kind.settle(recipe, train.columns, train.where)
    encoding = kind.make_encoding(recipe, tokenizers)
    key = key_of(
        [PREPARED_VERSION, texts.key, kind.name, tokenizers.fingerprint, encoding.settings()]
    )
    folder = stored(
        f"encoded-{key}", lambda folder: _encode(folder, encoding, recipe.data, texts, progress)
    )
    report = TypeAdapter(Report).validate_json((folder / "report.json").read_bytes())
    splits = {
        split: _open_encoded(folder, split, texts.splits[split], encoding) for split in texts.splits
    }
    notes = [*texts.notes]
    for reader in chain.from_iterable(split.readers for split in texts.splits.values()):
        notes += reader.corpus.findings(reader.files)  # they name files: not cached
    notes += uneven_shares(report, held_out_shares(recipe.data))
    notes += rare_labels(
        encoding,
        splits["train"],
        [splits[split] for split in held_out_shares(recipe.data) if recipe.data.by_label],
    )
    examples = {part: encoding.examples(rows, part) for part, rows in splits.items()}
    prepared = Prepared(
        recipe, encoding, examples["train"], examples["validation"], examples.get("test"), report
    )
    return prepared.with_notes([*dict.fromkeys(notes)])


def uneven_shares(report: Report, shares: Mapping[Part, float]) -> Iterator[str]:
    """Notes on shares of the examples that have far more than that share of the text, as one of a
    few books may."""
    tokens = {
        name: sum(column.tokens for column in split.columns.values())
        for name, split in report.splits.items()
    }
    for split, share in shares.items():
        part = tokens[split] / max(1, sum(tokens[name] for name in ("train", *shares)))
        if part > max(2 * share, 0.2):
            count = (
                f"{split} is {report.splits[split].kept:,} of "
                f"{report.splits['train'].read:,} {report.unit}"
            )
            remedy = "name files in data.validation and data.test, or give more and shorter ones"
            yield f"{count}, but {100 * part:.0f} % of the tokens: {remedy}"


def read_corpora(
    encoding: Encoding, recipe: Recipe, corpora: Sequence[Corpus], part: Part, base: Path
) -> Dataset:
    """Corpora as they are, encoded in memory, to measure a run on; bad lines are dropped where the
    recipe says so."""
    within = recipe.readable_folder(base)
    readers = [open_corpus(corpus, base, part, recipe.data.encoding, within) for corpus in corpora]
    checks = _Checks(recipe.data, "drop the row")
    rows = [*checks.good_rows(readers)]
    if checks.errors:
        raise DataError(problems=checks.errors)
    if checks.faults.count and (checks.too_many or not rows):
        raise DataError(problems=checks.problems)
    texts: dict[str, Sequence[str]] = {
        name: [values[column] for _, values in rows]
        for column, name in enumerate(readers[0].columns)
    }
    if readers[0].corpus.IN_PIECES:
        texts["part"] = parts(np.array([example for (_, _, example), _ in rows], dtype=np.int64))

    def where(row: int) -> str:
        corpus, line, _ = rows[row][0]
        return readers[corpus].where(line)

    numbers = np.array([corpus for (corpus, _, _), _ in rows], dtype=np.int16)
    dataset = replace(
        Dataset.of(encoding, texts, where), corpora=numbers, weights=(1.0,) * len(readers)
    )
    if not (count := sum(finding.count for finding in checks.dropped.values())):
        return dataset
    were = "was" if count == 1 else "were"
    place = checks.faults.problems[0].where
    return replace(
        dataset, left_out=f"{count:,} of {checks.read:,} rows {were} left out, the first at {place}"
    )


# ----------------------------------------------------------------------------------------------- files -> texts


@dataclass(frozen=True)
class PreparedTexts:
    """The checked texts of every split, what was found in them, and the key that they are stored
    under."""

    key: str
    splits: dict[Part, Texts]
    report: dict[Part, SplitReport]
    notes: list[str]


def prepare_texts(
    data: Splits[Any], *, base: Path, seed: int, progress: Progress, within: Path | None = None
) -> PreparedTexts:
    """The texts of every split: bad lines found, duplicates dropped, validation and test set
    apart."""
    named = {
        split: corpora for split in SPLITS if isinstance(corpora := getattr(data, split), list)
    }
    readers: Readers = {split: [] for split in named}
    problems: list[Problem] = []
    for split, corpora in named.items():
        for corpus in corpora:
            try:
                readers[split].append(open_corpus(corpus, base, split, data.encoding, within))
            except DataError as error:
                problems += error.problems
    if problems:
        raise DataError(problems=problems)
    files = {  # names of files belong to the key because the report names places
        split: [
            [reader.fingerprint(), *(reader.where(0, column) for column in reader.columns)]
            for reader in opened
        ]
        for split, opened in readers.items()
    }
    kept = data.deduplicate and weight_ranks(readers["train"]).tolist()
    shares = held_out_shares(data)
    checks = [data.max_characters, data.bad_lines, kept]
    if data.cleaned is not None:
        checks.append(data.cleaned)
    drawn = ([seed, "label"] if data.by_label else [seed]) if shares else [None]
    key = key_of([PREPARED_VERSION, files, shares, *drawn, checks])
    folder = stored(
        f"texts-{key}", lambda folder: _write_texts(folder, data, readers, seed, progress)
    )
    report = TypeAdapter(dict[Part, SplitReport]).validate_json(
        (folder / "report.json").read_bytes()
    )
    notes = json.loads((folder / "notes.json").read_bytes())
    return PreparedTexts(
        key, {split: Texts.open(folder, split, readers) for split in report}, report, notes
    )


def _write_texts(
    folder: Path, data: Splits[Any], readers: Readers, seed: int, progress: Progress
) -> None:
    checks = _Checks(data, f"data.bad_lines=drop drops such {data.UNIT}")
    indexes = {
        split: _write_columns(folder, split, opened, checks, progress)
        for split, opened in readers.items()
    }
    if checks.too_many:
        raise DataError(problems=[*checks.problems, *checks.limits])
    if checks.errors:
        raise DataError(problems=checks.errors)
    chosen = split_examples(indexes["train"], data, seed)
    chosen |= {
        split: np.arange(len(indexes[split].examples)) for split in readers if split != "train"
    }
    report = dict[Part, SplitReport]()
    notes = list[str]()
    for split in SPLITS:
        if split not in chosen:
            continue
        index = indexes.get(split, indexes["train"])
        report[split] = split_report(split, indexes, chosen)
        notes += contradictory_labels(split, index, chosen[split])
        np.save(folder / f"{split}.rows.npy", index.rows_of(chosen[split]))
    try:
        Report(report, {"over_long_line": data.max_characters}, data.UNIT).refuse_empty(data.MORE)
    except DataError as error:  # that rows cannot be read does not tell why
        unread = any(
            split.dropped["cells"].count for split in report.values() if "cells" in split.dropped
        )
        raise DataError(problems=[*error.problems, *checks.faults.problems[:unread]]) from None
    files = [file for opened in readers.values() for reader in opened for file in reader.files]
    notes += [note for file in files for note in file.notes]
    notes += [note for column, signs in checks.signs.items() for note in signs.notes(column)]
    (folder / "notes.json").write_text(json.dumps(notes), encoding="utf-8")
    tree = {split: asdict(split_report) for split, split_report in report.items()}
    (folder / "report.json").write_text(json.dumps(tree), encoding="utf-8")


@dataclass
class _Checks:
    """Finds lines that are empty, too long or without the columns, in all files."""

    data: Splits[Any]
    remedy: str
    faults: Faults = field(default_factory=Faults)
    errors: list[Problem] = field(default_factory=list)  # what ended the reading of a corpus
    # how many bad ones a split has, if they are too many for `auto`
    limits: list[Problem] = field(default_factory=list)
    read: int = 0  # examples that were read so far of the corpora of a split, bad ones included
    dropped: dict[str, Finding] = field(default_factory=dict)
    too_many: bool = False  # whether a split has more bad examples than are dropped
    signs: dict[str, Signs] = field(default_factory=dict)
    """What the texts of each column show of the program that prepared them, after
    `Splits.cleaning`."""

    @property
    def problems(self) -> list[Problem]:
        return [*self.errors, *self.faults.problems]

    def good_rows(self, readers: Sequence[Reader]) -> Iterator[tuple[Place, tuple[str, ...]]]:
        """The places and texts of the rows that can be kept, as far as the corpora can be read."""
        self.read = 0
        self.dropped = {"empty": Finding(), "over_long_line": Finding(), "cells": Finding()}
        for number, reader in enumerate(readers):
            try:
                for row in self._cleaned(reader):
                    self.read += not row.continues
                    if problems := self._problems_in(reader, row):
                        self.faults.add(*(problem for _, problem in problems))
                        # `empty` comes before `over_long_line`
                        reason, first = min(problems, key=itemgetter(0))
                        finding = self.dropped[reason]
                        self.dropped[reason] = Finding(
                            finding.count + 1, (*finding.places, first.where)[:NAMED]
                        )
                    else:
                        # the garbage collector skips plain tuples
                        yield (number, row.line, self.read), row.values
            except DataError as error:
                self.errors += error.problems
        bad = sum(finding.count for finding in self.dropped.values())
        if self.data.drops(bad, self.read):
            return
        self.too_many = True
        if self.data.bad_lines == "auto":
            what = f"{bad:,} of {self.read:,} {self.data.UNIT} cannot be used"
            hint = f"auto drops up to {TOLERATED:.0%} of them, data.bad_lines=drop any number"
            self.limits.append(Problem("data.bad_lines", what, hint))

    def _cleaned(self, reader: Reader) -> Iterator[Row]:
        """The rows of a corpus with clean texts."""
        if self.data.cleaned is None:
            yield from reader.rows()
            return
        cleanings = [self.data.cleaning(column) for column in reader.columns]
        signs = [self.signs.setdefault(column, Signs()) for column in reader.columns]
        for row in reader.rows():
            if row.fault is None:
                values = tuple(
                    clean(text) for clean, text in zip(cleanings, row.values, strict=True)
                )
                for found, text in zip(signs, values, strict=True):
                    found.add(text)
                row = row._replace(values=values)
            yield row

    def _problems_in(self, reader: Reader, row: Row) -> list[tuple[str, Problem]]:
        """Why a row cannot be kept: the reason's name in the report, and what and where it is."""
        if row.fault is not None:
            return [("cells", row.fault)]
        problems: list[tuple[str, Problem]] = []
        for column, text in enumerate(row.values):
            if "\0" in text:
                where = reader.where(row.line, reader.columns[column])
                what = f"the {reader.columns[column]} contains a zero byte (NUL)"
                hint = (
                    "take it out; if every second byte is zero, the file is UTF-16: "
                    "data.encoding=utf-16-le"
                )
                problems.append(("cells", Problem(where, what, hint)))
                continue
            missing = text in NANS and reader.columns[column] in reader.corpus.NUMBERS
            if (missing or not text.strip()) and not reader.corpus.may_be_empty:
                where = reader.where(row.line, reader.columns[column])
                what = (
                    f"the {reader.columns[column]} is missing: {text}"
                    if missing
                    else reader.empty(row, column)
                )
                problems.append(("empty", Problem(where, what, f"fill it, or {self.remedy}")))
            elif len(text) > self.data.max_characters < (size := len(text.rstrip("\n"))):
                where = reader.where(row.line, reader.columns[column])
                what = (
                    f"the line has {size:,} characters, data.max_characters allows "
                    f"{self.data.max_characters:,}"
                )
                hint = f"split it, raise the limit, or {self.remedy}"
                problems.append(("over_long_line", Problem(where, what, hint)))
        return problems


def _write_columns(
    folder: Path, split: Part, readers: list[Reader], checks: _Checks, progress: Progress
) -> SplitIndex:
    """Stream the files of a split into columns, and index the examples."""
    columns = readers[0].columns
    places = [np.empty((3, 0), np.int64)]
    hashes = [[np.empty(0, np.uint64)] for _ in ("source", *columns)]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(closing(ColumnWriter(folder, f"{split}.{name}", np.uint8)))
            for name in columns
        ]
        for chunk in in_chunks(checks.good_rows(readers), lambda row: sum(map(len, row[1]))):
            chunk_places, rows = zip(*chunk, strict=True)
            places.append(np.array(chunk_places).T)
            texts = [*zip(*rows, strict=True)]
            for writer, column in zip(writers, texts, strict=True):
                writer.extend_texts(column)
            owners = (readers[number] for number, _, _ in chunk_places)
            sources = [
                reader.corpus.identity(row[0], reader.base)
                for reader, row in zip(owners, rows, strict=True)
            ]
            chunk_hashes = [
                hashes_of(texts[0], as_written=True),
                *map(hashes_of, (sources, *texts[1:])),
            ]
            for all_hashes, some in zip(hashes, chunk_hashes, strict=True):
                all_hashes.append(some)
            progress(f"reading {split}", checks.read)
    np.save(folder / f"{split}.places.npy", np.concatenate(places, axis=1))
    copied = Texts.open(
        folder, split, {split: readers}, np.arange(sum(chunk.shape[1] for chunk in places))
    )
    firsts = (
        np.flatnonzero(np.diff(copied.owners, prepend=-1, append=-1))
        if len(copied)
        else np.zeros(1, np.int64)
    )
    written, *by_column = (hashes_of_examples(np.concatenate(chunks), firsts) for chunks in hashes)
    _, first, same = np.unique(by_column[0], return_index=True, return_inverse=True)
    by_inputs = combined_hashes(by_column[: readers[0].corpus.inputs])
    by_all = combined_hashes(
        [hashed for name, hashed in zip(columns, by_column, strict=True) if name != "id"]
    )
    labels = by_column[columns.index("label")] if "label" in columns else None
    return SplitIndex(
        copied, checks.read, checks.dropped, firsts, written[first][same], by_inputs, by_all, labels
    )


# ------------------------------------------------------------------------------- texts -> tokenizers, encoded columns


def _trained_tokenizers(
    kind: Preparation, recipe: Recipe, texts: PreparedTexts, base: Path, progress: Progress
) -> Tokenizers:
    """The tokenizers of the training texts, from the cache where nothing has changed."""
    train = texts.splits["train"]
    if recipe.tokenizer.file is not None:
        _expect_readable_tokenizers(recipe, base)
        return kind.learn_tokenizers(recipe, train.columns, base)

    def build(folder: Path) -> None:
        progress("training the tokenizer", 0)
        kind.learn_tokenizers(recipe, train.columns, base).save(folder)

    key = key_of([PREPARED_VERSION, kind.name, texts.key, recipe.tokenizer.model_dump(mode="json")])
    return Tokenizers.load(stored(f"tokenizers-{key}", build), kind.vocabularies)


def _expect_readable_tokenizers(recipe: Recipe, base: Path) -> None:
    """Refuse files outside the folder that may be read, except those of the run that the training
    begins with."""
    within = recipe.readable_folder(base)
    file = recipe.tokenizer.file
    if within is None:
        return
    folders = [within, *([(base / recipe.training.init).resolve()] if recipe.training.init else [])]
    for name in file.values() if isinstance(file, dict) else [str(file)]:
        path = base / name
        if not (any(is_inside(path, folder) for folder in folders) and os.path.isfile(path)):
            raise DataError(problems=[outside(name)])


def _encode(
    folder: Path, encoding: Encoding, data: Splits[Any], texts: PreparedTexts, progress: Progress
) -> None:
    splits: dict[Part, SplitReport] = {}
    for split, split_texts in texts.splits.items():
        dropped = _encode_split(folder, split, split_texts, encoding, progress)
        report = texts.report[split]
        columns = encoding.column_reports(_open_encoded(folder, split, split_texts, encoding))
        kept = report.kept - sum(finding.count for finding in dropped.values())
        splits[split] = replace(
            report, kept=kept, dropped=report.dropped | dropped, columns=columns
        )
    whole = Report(splits, data.limits, data.UNIT)
    whole.refuse_empty()
    (folder / "report.json").write_text(json.dumps(whole.to_json()), encoding="utf-8")


@dataclass(frozen=True)
class _Encoding:
    """Encodes chunks, maybe in a process of its own."""

    encoding: Encoding
    training: bool  # whether examples may be left out

    def start(self, number: int, workers: int) -> None:
        if workers > 1:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every core has a process

    def __call__(self, piece: dict[str, list[str]]) -> _Encoded | None:
        """Which rows of a chunk are kept, which are not and why, and the values and lengths of
        those kept, column by column. None where there is an error; only the first process can say
        where."""
        try:
            columns = self.encoding.encode(piece, str)
        except DataError:
            return None
        broken = self.encoding.dropped(columns) if self.training else {}
        kept = ~np.logical_or.reduce(
            [*broken.values(), np.zeros(len(next(iter(piece.values()))), dtype=bool)]
        )
        encoded = {}
        for name, rows in columns.items():
            left = [rows[row] for row in np.flatnonzero(kept).tolist()]
            values = np.fromiter(chain.from_iterable(left), dtype=_column_type(self.encoding, name))
            encoded[name] = values, [len(row) for row in left]
        return kept, broken, encoded


def _encode_split(
    folder: Path, split: Part, texts: Texts, encoding: Encoding, progress: Progress
) -> dict[str, Finding]:
    """Encode a split into columns, without the training examples that the encoding leaves out: what
    these are."""
    dropped = dict[str, Finding]()
    kept_rows = list[Integers]()
    writers: dict[str, ColumnWriter] = {}
    read = texts.columns
    waiting = deque[tuple[int, dict[str, list[str]]]]()
    sizes: Integers = np.sum([column.sizes for column in read.values()], axis=0, dtype=np.int64)

    def chunks() -> Iterator[dict[str, list[str]]]:
        for chunk in in_chunks(range(len(texts)), sizes.__getitem__):
            waiting.append(
                (
                    chunk[0],
                    {name: list(column[chunk[0] : chunk[-1] + 1]) for name, column in read.items()},
                )
            )
            yield waiting[-1][1]

    workers = encoding.recipe.data.workers
    if workers == "auto":
        workers = processors() if len(texts) >= ROWS_FOR_PROCESSES else 1
    work = _Encoding(encoding, split == "train")
    with ExitStack() as stack:
        for encoded in (
            map(work, chunks())
            if workers <= 1
            else in_order(work, chunks(), int(workers), option="data.workers")
        ):
            start, rows = waiting.popleft()
            if encoded is None:
                _raise_the_fault(encoding, rows, texts, start)
            kept, broken, columns = encoded
            for reason, left_out in broken.items():
                dropped[reason] = dropped.get(reason, Finding()).more(
                    start + np.flatnonzero(left_out), texts.where
                )
            for name, (values, lengths) in columns.items():
                if name not in writers:
                    column_writer = ColumnWriter(
                        folder, f"{split}.{name}", _column_type(encoding, name)
                    )
                    writers[name] = stack.enter_context(closing(column_writer))
                writers[name].extend(values, lengths)
            kept_rows.append(texts.rows[start + np.flatnonzero(kept)])
            progress(f"tokenising {split}", start + len(kept))
    np.save(folder / f"{split}.rows.npy", np.concatenate(kept_rows))
    (folder / f"{split}.columns.json").write_text(json.dumps(list(writers)), encoding="utf-8")
    return dropped


def _raise_the_fault(
    encoding: Encoding, rows: dict[str, list[str]], texts: Texts, start: int
) -> NoReturn:
    """Encode rows again that could not be encoded, to say where the fault is."""
    encoding.encode(rows, lambda row: texts.where(start + row))
    raise AssertionError  # the same rows cannot be encoded at one time and not at another


def _column_type(encoding: Encoding, name: str) -> DTypeLike:
    tokenizer = encoding.tokenizer_of(name)
    return np.int32 if tokenizer is None else token_type(tokenizer.size)


def _open_encoded(folder: Path, split: Part, texts: Texts, encoding: Encoding) -> Dataset:
    names = json.loads((folder / f"{split}.columns.json").read_text(encoding="utf-8"))
    columns = {
        name: TokenColumn.open(folder, f"{split}.{name}", _column_type(encoding, name))
        for name in names
    }
    texts = replace(texts, rows=np.load(folder / f"{split}.rows.npy", mmap_mode="r"))
    weights = tuple(reader.corpus.weight for reader in texts.readers)
    return Dataset(
        encoding, columns, texts.columns, texts.corpora[texts.rows], weights, texts.where
    )
