"""Files -> texts -> tokenizers -> tokens, each step kept in the cache under a key of all that decides its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.config import Data, Splits
from regard.data.corpora import Part
from regard.data.dataset import Dataset, Examples
from regard.data.report import NAMED, ColumnReport, Found, Histogram, Report, SplitReport
from regard.data.store import ArrayWriter, ColumnWriter, Integers, TokenColumn, open_array, stored, token_type
from regard.data.texts import CHUNK, FORMAT, PreparedTexts, Progress, Texts, key_of, prepare_texts
from regard.text.tokenizers import TokenizerConfig, Tokenizers, train_tokenizers

E = TypeVar("E", bound=Examples)


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """All that training and evaluation need of the data."""

    train: E
    validation: E
    test: E | None
    tokenizers: Tokenizers
    report: Report


def prepare(
    data: Splits[Any],
    tokenizer: TokenizerConfig,
    *,
    base: Path,
    seed: int,
    tokenizers: Tokenizers | None = None,
    progress: Callable[[str, int], None] | None = None,
    columns: Sequence[str] | None = None,
) -> Prepared[Dataset]:
    """Read, check, split and tokenise the data, or open what an earlier call prepared from the same content.

    File names are relative to `base`. `tokenizers` are used as they are; without them they are trained on the training
    texts. `progress` hears what is being done, and of how many examples so far. `columns` become tokens, all if not
    given; the others stay texts. Only pairs (`Data`) have limits that training examples are dropped by.
    """
    progress = progress or (lambda step, examples: None)
    texts = prepare_texts(data, base=base, seed=seed, progress=progress)
    if tokenizers is None:
        tokenizers = _tokenizers(tokenizer, texts, base, progress, columns)
    limits = _Limits(data.max_length, data.max_ratio) if isinstance(data, Data) else None
    folder = _tokens_folder(data, limits, texts, tokenizers, progress)
    report = Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    splits = {split: _open(folder, split, texts.splits[split], tokenizers) for split in texts.splits}
    return Prepared(splits["train"], splits["validation"], splits.get("test"), tokenizers, report)


def _tokenizers(
    config: TokenizerConfig, texts: PreparedTexts, base: Path, progress: Progress, names: Sequence[str] | None
) -> Tokenizers:
    columns = {name: column for name, column in texts.splits["train"].columns.items() if names is None or name in names}
    if config.file is not None:
        return train_tokenizers(config, columns, base)

    def build(folder: Path) -> None:
        progress("training the tokenizer", 0)
        train_tokenizers(config, columns, base).save(folder)

    key = key_of([texts.key, config.model_dump(mode="json"), *([] if names is None else [list(names)])])
    folder = stored(f"tokenizers-{key}", build)
    return Tokenizers.load(folder, tuple(columns))


def _tokens_folder(
    data: Splits[Any], limits: _Limits | None, texts: PreparedTexts, tokenizers: Tokenizers, progress: Progress
) -> Path:
    def build(folder: Path) -> None:
        splits: dict[Part, SplitReport] = {}
        for split, split_texts in texts.splits.items():
            found = _write(folder, split, split_texts, tokenizers, limits if split == "train" else None, progress)
            splits[split] = _extended(texts.report[split], found, folder, split, tokenizers)
        limit = {"over_long_line": data.max_characters, "max_length": max_length, "max_ratio": max_ratio}
        report = Report(splits, {reason: value for reason, value in limit.items() if value is not None}, data.UNIT)
        report.refuse_empty()
        (folder / "report.json").write_text(json.dumps(report.to_json()), encoding="utf-8")

    max_length, max_ratio = (None, None) if limits is None else (limits.max_length, limits.max_ratio)
    return stored(f"tokens-{key_of([FORMAT, texts.key, tokenizers.fingerprint, max_length, max_ratio])}", build)


@dataclass(frozen=True)
class _Limits:
    """Which training examples are too long or too unequal."""

    max_length: int
    max_ratio: float | None

    def broken(self, lengths: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.bool_]]:
        """By reason, which examples break it; none breaks two."""
        columns = np.stack(list(lengths.values()))
        longest, shortest = columns.max(axis=0), columns.min(axis=0)
        too_long = longest > self.max_length
        too_unequal = np.zeros_like(too_long)
        if self.max_ratio is not None:
            too_unequal = ~too_long & (longest > self.max_ratio * np.maximum(shortest, 1))
        return {"max_length": too_long, "max_ratio": too_unequal}


@dataclass
class _Tally:
    """What is counted while tokens are written."""

    dropped: dict[str, Found]
    unknown: dict[str, int]

    def drop(self, reason: str, rows: Integers, texts: Texts) -> None:
        before = self.dropped.get(reason, Found())
        places = [texts.where(int(row)) for row in rows[: max(0, NAMED - before.count)]]
        self.dropped[reason] = Found(before.count + len(rows), (*before.places, *places))


def _write(
    folder: Path, split: str, texts: Texts, tokenizers: Tokenizers, limits: _Limits | None, progress: Progress
) -> _Tally:
    """Tokenise a split into columns, without the examples that break the limits."""
    columns = {name: column for name, column in texts.columns.items() if name in tokenizers}
    tally = _Tally({}, dict.fromkeys(columns, 0))
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(
                closing(ColumnWriter(folder, f"{split}.{name}", token_type(tokenizers[name].size)))
            )
            for name in columns
        }
        numbers = stack.enter_context(closing(ArrayWriter(folder / f"{split}.rows", np.int64)))
        for start in range(0, len(texts), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(texts)))
            tokens = {
                name: tokenizers[name].encode_batch(list(column[start : start + CHUNK]))
                for name, column in columns.items()
            }
            kept = _kept(rows, tokens, limits, tally, texts)
            for name, writer in writers.items():
                chosen = [tokens[name][row - start] for row in kept.tolist()]
                writer.extend_tokens(chosen)
                tally.unknown[name] += sum(row.count(tokenizers[name].unk) for row in chosen)
            numbers.extend(texts.rows[kept])
            progress(f"tokenising {split}", int(rows[-1]) + 1)
    return tally


def _kept(
    rows: Integers, tokens: Mapping[str, list[list[int]]], limits: _Limits | None, tally: _Tally, texts: Texts
) -> Integers:
    if limits is None:
        return rows
    lengths = {name: np.fromiter(map(len, encoded), dtype=np.int64) for name, encoded in tokens.items()}
    kept = np.ones(len(rows), dtype=bool)
    for reason, broken in limits.broken(lengths).items():
        tally.drop(reason, rows[broken], texts)
        kept &= ~broken
    return rows[kept]


def _extended(report: SplitReport, tally: _Tally, folder: Path, split: str, tokenizers: Tokenizers) -> SplitReport:
    """The report of the texts with what was found in the tokens."""
    columns = {}
    for name, unknown in tally.unknown.items():
        lengths = TokenColumn.open(folder, f"{split}.{name}", token_type(tokenizers[name].size)).lengths
        tokens = int(lengths.sum(dtype=np.int64))
        columns[name] = ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(lengths))
    kept = report.kept - sum(found.count for found in tally.dropped.values())
    return replace(report, kept=kept, dropped=report.dropped | tally.dropped, columns=columns)


def _open(folder: Path, split: str, texts: Texts, tokenizers: Tokenizers) -> Dataset:
    columns = {
        name: TokenColumn.open(folder, f"{split}.{name}", token_type(tokenizers[name].size)) for name in tokenizers
    }
    texts = replace(texts, rows=open_array(folder / f"{split}.rows", np.int64))
    weights = tuple(reader.corpus.weight for reader in texts.readers)
    return Dataset(columns, texts.columns, tokenizers, texts.corpora[texts.rows], weights, texts.where)
