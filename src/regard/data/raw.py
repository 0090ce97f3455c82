"""Documents -> tokens: one long row of them on disk, and where sentences and documents begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.documents import DocumentReader, RawData
from regard.data.report import ColumnReport, Histogram, Report, SplitReport
from regard.data.store import Array, ArrayWriter, ColumnWriter, Integers, TextColumn, open_array, stored, token_type
from regard.data.texts import FORMAT, PreparedTexts, Progress, Texts, in_chunks, key_of, prepare_texts
from regard.errors import DataError
from regard.text.normalise import fold_white_space
from regard.text.sentences import Sentences, split_sentences
from regard.text.spelling import Spelling, SpeltOut, encode_spelled, letters_of, unknown_in
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers, train_tokenizers
from regard.text.vocabularies import SPECIAL


@dataclass(frozen=True, eq=False)
class UnknownWords:
    """The unknown words among the tokens of a split, in order."""

    places: Integers
    """The position of each among the tokens."""
    words: Sequence[str]
    letters: int

    @classmethod
    def open(cls, folder: Path, split: str, letters: int) -> UnknownWords:
        places = open_array(folder / f"{split}.unknown.places", np.int64)
        return cls(places, TextColumn.open(folder, f"{split}.unknown"), letters)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], letters: int) -> UnknownWords:
        """The unknown words of rows of tokens, in memory."""
        words = [*unknown_in([token for row in rows for token in row])]
        return cls(np.array([place for place, _ in words], dtype=np.int64), [token.word for _, token in words], letters)

    def spelling(self, places_BL: Array, wanted_BL: Array) -> Spelling | None:
        """The letters of the words at the places where `wanted_BL` is true."""
        rows, columns = np.nonzero(wanted_BL)
        places = places_BL[rows, columns]
        numbers = np.searchsorted(self.places, places)
        there = np.searchsorted(self.places, places, side="right") > numbers  # a text may itself contain <unk>
        words = [letters_of(self.words[number], self.letters) for number in numbers[there].tolist()]
        return Spelling.of([*zip(rows[there].tolist(), columns[there].tolist(), strict=True)], words, places_BL.shape)


class UnknownWriter:
    """Writes the unknown words of a split, rows at a time."""

    def __init__(self, folder: Path, split: str) -> None:
        self._words = ColumnWriter(folder, f"{split}.unknown", np.uint8)
        self._places = ArrayWriter(folder / f"{split}.unknown.places", np.int64)
        self._end = 0

    def extend(self, rows: Sequence[Sequence[int]]) -> None:
        for row in rows:
            words = [*unknown_in(row)]
            self._places.extend([self._end + place for place, _ in words])
            self._words.extend_bytes([token.word.encode() for _, token in words])
            self._end += len(row)

    def close(self) -> None:
        self._places.close()
        self._words.close()


@dataclass(frozen=True, eq=False)
class RawTokens:
    """The documents of a split, one after the other: the tokens of each, then `</s>`. Everything is mapped."""

    values: Array
    sentences: Integers
    """Where each sentence begins in `values`, and where the last one ends; `</s>` belongs to the sentence before it.
    Where sentences were not looked for, a document is one, or each piece of a long one."""
    documents: Integers
    """The number of each document's first sentence, and the number of sentences."""
    written: Sequence[str]
    """The text of the documents; a long one is written in several pieces."""
    tokenizer: Tokenizer
    corpora: Integers
    """The number of the corpus that each document came from."""
    weights: tuple[float, ...]
    place: Callable[[int], str]
    unknown: UnknownWords | None = None
    """The words outside the vocabulary, where they are read letter by letter."""
    firsts: Integers | None = None
    """The number of each document's first piece, and the number of pieces, where some have several."""

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        place: Callable[[int], str],
        *,
        sentences: Sentences | None = None,
        letters: int | None = None,
        firsts: Integers | None = None,
    ) -> RawTokens:
        """Documents that were not prepared, encoded in memory; `place` names where one stands.

        `firsts` is the number of each document's first text, and of all texts, where some documents have several.
        """
        rows: list[list[int]] = []
        counts = [0]
        firsts = np.arange(len(texts) + 1) if firsts is None else firsts
        pieces = [*_pieces(texts, firsts)]
        for piece, encoded in zip(pieces, Encoder(tokenizer, sentences, letters)(pieces), strict=True):
            rows += encoded
            counts += [len(rows)] * piece.ends
        values = np.fromiter((token for row in rows for token in row), dtype=np.int32)
        limits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        corpora = np.zeros(len(counts) - 1, dtype=np.int16)
        unknown = None if letters is None else UnknownWords.of(rows, letters)
        return cls(
            values, limits, np.asarray(counts), TextColumn.of(texts), tokenizer, corpora, (1.0,), place, unknown, firsts
        )

    def __len__(self) -> int:
        return len(self.documents) - 1

    @property
    def texts(self) -> Sequence[str]:
        """The text of each document."""
        if self.firsts is None or len(self.written) == len(self):
            return self.written
        return _Joined(self.written, self.firsts)

    @cached_property
    def bounds(self) -> Integers:
        """Where each document begins in `values`, and where the last one ends."""
        bounds: Integers = self.sentences[self.documents]
        return bounds

    def frequencies(self) -> NDArray[np.int64]:
        """How often each token stands in the text, `</s>` once a document; read a piece at a time."""
        total = np.zeros(self.tokenizer.size, dtype=np.int64)
        for start in range(0, len(self.values), 2**20):
            total += np.bincount(self.values[start : start + 2**20], minlength=self.tokenizer.size)
        return total

    @cached_property
    def spelt_out(self) -> SpeltOut:
        """What the unknown tokens of each document stand for, and what it costs to say so."""
        if not self.frequencies()[self.tokenizer.unk]:
            return SpeltOut.nothing(len(self))
        chunks = ([self.tokenizer.fold(text) for text in texts] for texts in in_chunks(self.texts, len))
        return SpeltOut.of(self.tokenizer, chunks)

    @property
    def unknown_share(self) -> float:
        """Of all tokens but the documents' ends."""
        return float(self.spelt_out.tokens.sum() / max(1, len(self.values) - len(self)))

    def document_at(self, places: Integers) -> Integers:
        """The document that each place in `values` belongs to."""
        return np.searchsorted(self.bounds, places, side="right") - 1


class _Joined(Sequence[str]):
    """Documents whose text is written in pieces, each as a whole."""

    def __init__(self, pieces: Sequence[str], firsts: Integers) -> None:
        self._pieces, self._firsts = pieces, firsts

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def __getitem__(self, row: Any) -> Any:
        number = range(len(self))[row]
        return "".join(self._pieces[int(self._firsts[number]) : int(self._firsts[number + 1])])


class Piece(NamedTuple):
    """A document, or as much of a long one as is read at once."""

    text: str
    ends: bool
    """Whether nothing more of its document comes."""


def _pieces(texts: Iterable[str], firsts: Integers) -> Iterator[Piece]:
    ends = np.zeros(int(firsts[-1]), dtype=bool)
    ends[firsts[1:] - 1] = True
    return map(Piece, texts, map(bool, ends))


@dataclass(frozen=True)
class Encoder:
    """Documents -> tokens."""

    tokenizer: Tokenizer
    sentences: Sentences | None = None
    """How sentences are found; None where they are not looked for."""
    letters: int | None = None
    """How many of an unknown word its token remembers; None where it remembers none."""

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[list[list[int]]]:
        """For each piece the tokens of its sentences, or of the whole; a document's last one with `</s>`."""
        sentences = [self._sentences(piece) for piece in pieces]
        flat = [sentence for found in sentences for sentence in found]
        rows = iter(encode_spelled(self.tokenizer, flat, self.letters))
        for piece, found in zip(pieces, sentences, strict=True):
            ids = [next(rows) for _ in found]
            if piece.ends:
                ids[-1].append(self.tokenizer.end)
            yield ids

    def _sentences(self, piece: Piece) -> list[str]:
        text = piece.text
        match self.sentences:
            case None:
                read = self.tokenizer.fold(text)
                return [read if piece.ends or read.endswith("\n") else read + self.tokenizer.between]
            case "lines":
                return [fold_white_space(line) for line in text.split("\n") if line.strip()] or [""]
        return split_sentences(fold_white_space(text)) or [""]


@dataclass(frozen=True)
class PreparedRaw:
    """The raw text of all splits as tokens, and what was found on the way."""

    splits: dict[str, RawTokens]
    tokenizers: Tokenizers
    report: Report


def prepare_raw(
    data: RawData,
    config: TokenizerConfig,
    *,
    base: Path,
    seed: int,
    tokenizers: Tokenizers | None = None,
    progress: Progress | None = None,
    sentences: Sentences | None = None,
    special: Sequence[str] = SPECIAL,
    letters: int | None = None,
) -> PreparedRaw:
    """Read, check, split and tokenise the text, or open what an earlier call prepared from the same content.

    `sentences` says how they are found, for a model that needs them;
    `letters` is how many of a word outside the vocabulary are read, by a model that reads letters.
    """
    progress = progress or (lambda step, documents: None)
    texts = prepare_texts(data, base=base, seed=seed, progress=progress)
    tokenizers = tokenizers or _tokenizers(config, texts, base, special, progress)
    tokenizer = tokenizers["text"]
    if "[MASK]" in special and tokenizer.mask is None:
        hint = "add one to the file, or leave tokenizer.file out to train a vocabulary that has it"
        raise DataError("the vocabulary has no [MASK] token", where=f"{config.file or 'tokenizer'}", hint=hint)
    folder = _tokens_folder(data, texts, Encoder(tokenizer, sentences, letters), progress)
    report = Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    splits = {str(name): _open(folder, name, split, tokenizer, letters) for name, split in texts.splits.items()}
    return PreparedRaw(splits, tokenizers, replace(report, notes=_files_read(texts)))


def _files_read(texts: PreparedTexts) -> tuple[str, ...]:
    """What is read of the folders that are named; not cached, since only the content of files decides the rest."""
    readers = [reader for split in texts.splits.values() for reader in split.readers]
    found = [note for reader in readers if isinstance(reader, DocumentReader) for note in reader.findings()]
    return tuple(dict.fromkeys(found))


class _Lines:
    """Documents to train a tokenizer on, each as one line."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> str:
        return fold_white_space(self._texts[index])


def _tokenizers(
    config: TokenizerConfig, texts: PreparedTexts, base: Path, special: Sequence[str], progress: Progress
) -> Tokenizers:
    lines = {"text": _Lines(texts.splits["train"].columns["text"])}
    if config.file is not None:
        return train_tokenizers(config, lines, base)

    def build(folder: Path) -> None:
        progress("training the tokenizer", 0)
        train_tokenizers(config, lines, base, special).save(folder)

    key = key_of(["raw", texts.key, config.model_dump(mode="json"), list(special)])
    return Tokenizers.load(stored(f"tokenizers-{key}", build), ("text",))


def _tokens_folder(data: RawData, texts: PreparedTexts, encode: Encoder, progress: Progress) -> Path:
    def build(folder: Path) -> None:
        splits: dict[str, SplitReport] = {}
        for split, split_texts in texts.splits.items():
            column = _write(folder, split, split_texts, encode, progress)
            splits[split] = replace(texts.report[split], columns={"text": column})
        report = Report(splits, {"over_long_line": data.max_characters}, data.UNIT)  # type: ignore[arg-type]
        (folder / "report.json").write_text(json.dumps(report.to_json()), encoding="utf-8")

    spelt = [] if encode.letters is None else ["unknown words"]  # whole, however many letters of them are read
    key = key_of([FORMAT, texts.key, encode.tokenizer.fingerprint, encode.sentences, *spelt])
    return stored(f"raw-{key}", build)


def _write(folder: Path, split: str, texts: Texts, encode: Encoder, progress: Progress) -> ColumnReport:
    """Tokenise a split; no more than a few documents, or pieces of long ones, are held."""
    lengths, length, unknown, sentences, tokenizer = [], -1, 0, 0, encode.tokenizer
    with (
        closing(ColumnWriter(folder, f"{split}.text", token_type(tokenizer.size))) as column,
        closing(ArrayWriter(folder / f"{split}.documents", np.int64)) as documents,
        nullcontext() if encode.letters is None else closing(UnknownWriter(folder, split)) as words,
    ):
        documents.extend([0])
        for some in in_chunks(_pieces(texts.columns["text"], texts.firsts), lambda piece: len(piece.text)):
            for piece, rows in zip(some, encode(some), strict=True):
                column.extend_tokens(rows)
                if words is not None:
                    words.extend(rows)
                unknown += sum(row.count(tokenizer.unk) for row in rows)
                sentences, length = sentences + len(rows), length + sum(map(len, rows))
                if piece.ends:
                    documents.extend([sentences])
                    lengths.append(length)
                    length = -1  # </s> does not count
            progress(f"tokenising {split}", len(lengths))
    tokens = sum(lengths)
    return ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(np.asarray(lengths, dtype=np.int32)))


def _open(folder: Path, split: str, texts: Texts, tokenizer: Tokenizer, letters: int | None) -> RawTokens:
    return RawTokens(
        open_array(folder / f"{split}.text.values", token_type(tokenizer.size)),
        open_array(folder / f"{split}.text.offsets", np.int64),
        open_array(folder / f"{split}.documents", np.int64),
        texts.columns["text"],
        tokenizer,
        texts.corpora[texts.rows[texts.firsts[:-1]]],
        tuple(reader.corpus.weight for reader in texts.readers),
        lambda document: texts.where(int(texts.firsts[document])),
        None if letters is None else UnknownWords.open(folder, split, letters),
        texts.firsts,
    )
