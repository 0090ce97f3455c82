"""Raw text as tokens: the documents of a split end to end, and where sentences and documents begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.dataset import Columns, Dataset
from regard.data.store import Array, Integers, TextColumn, TokenColumn
from regard.data.texts import END, in_chunks
from regard.text.normalise import fold_white_space
from regard.text.sentences import Sentences, split_sentences
from regard.text.spelling import Spelling, SpeltOut, encode_spelled, letters_of, unknown_in
from regard.text.tokenizers import Tokenizer


def encode_documents(
    texts: Sequence[str],
    parts: Sequence[str],
    tokenizer: Tokenizer,
    sentences: Sentences | None = None,
    letters: int | None = None,
) -> Columns:
    """Pieces of documents as tokens; `parts` says which of them end their document and so get `</s>`.

    `sentences` says how these are found; None: a piece is one sentence. The columns: `text` has the tokens of a piece,
    `sentences` the number of tokens of each sentence; with `letters`, `unknown` has the positions of unknown tokens in
    the piece and `words` the bytes of their words, one a line.
    """
    pieces = [_sentences(*piece, tokenizer, sentences) for piece in zip(texts, parts, strict=True)]
    encoded = iter(encode_spelled(tokenizer, [sentence for piece in pieces for sentence in piece], letters))
    rows = [[next(encoded) for _ in piece] for piece in pieces]
    for piece, part in zip(rows, parts, strict=True):
        if part == END:
            piece[-1].append(tokenizer.end)
    columns: dict[str, list[list[int]]] = {
        "text": [[token for sentence in piece for token in sentence] for piece in rows],
        "sentences": [[len(sentence) for sentence in piece] for piece in rows],
    }
    if letters is not None:
        unknown = [list(unknown_in(tokens)) for tokens in columns["text"]]
        columns["unknown"] = [[place for place, _ in words] for words in unknown]
        columns["words"] = [list("\n".join(token.word for _, token in words).encode()) for words in unknown]
        columns["text"] = [[int(token) for token in tokens] for tokens in columns["text"]]
    return columns


def _sentences(text: str, part: str, tokenizer: Tokenizer, sentences: Sentences | None) -> list[str]:
    match sentences:
        case None:
            read = tokenizer.fold(text)
            return [read if part == END or read.endswith("\n") else read + tokenizer.between]
        case "lines":
            return [fold_white_space(line) for line in text.split("\n") if line.strip()] or [""]
    return split_sentences(fold_white_space(text)) or [""]


class RawTokens:
    """The documents of a split end to end: the tokens of each, then `</s>`; a view of a dataset of their pieces."""

    def __init__(self, pieces: Dataset, tokenizer: Tokenizer, letters: int | None = None) -> None:
        self.pieces, self.tokenizer, self.letters = pieces, tokenizer, letters
        self.values: Array = pieces.columns["text"].values
        self.sentences: Integers = _starts(pieces.columns["sentences"].values)
        """Where each sentence begins in `values`, and where the last one ends; `</s>` belongs to the sentence before
        it."""
        ends = np.fromiter((part == END for part in pieces.texts["part"]), dtype=bool, count=len(pieces))
        self.firsts: Integers = np.concatenate([[0], np.flatnonzero(ends) + 1])
        """The number of each document's first piece, and the number of pieces."""
        counts = _starts(pieces.columns["sentences"].lengths)
        self.documents: Integers = counts[self.firsts]
        """The number of each document's first sentence, and the number of sentences."""
        self.corpora: Integers = pieces.corpora[self.firsts[:-1]]
        """The number of the corpus that each document came from."""
        self.weights = pieces.weights

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        place: Callable[[int], str],
        *,
        sentences: Sentences | None = None,
        letters: int | None = None,
    ) -> RawTokens:
        """Whole documents, encoded in memory; `place` names where one stands."""
        parts = [END] * len(texts)
        columns = encode_documents(texts, parts, tokenizer, sentences, letters)
        in_memory = {"text": TextColumn.of(texts), "part": TextColumn.of(parts)}
        rows: Mapping[str, TokenColumn] = {name: TokenColumn.of(rows) for name, rows in columns.items()}
        corpora = np.zeros(len(texts), dtype=np.int16)
        return cls(Dataset(None, rows, in_memory, corpora, (1.0,), place), tokenizer, letters)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.documents) - 1

    def place(self, document: int) -> str:
        """Where a document stands in the user's files."""
        return self.pieces.where(int(self.firsts[document]))

    @property
    def texts(self) -> Sequence[str]:
        """The text of each document."""
        written = self.pieces.texts["text"]
        return written if len(written) == len(self) else _Joined(written, self.firsts)

    @cached_property
    def bounds(self) -> Integers:
        """Where each document begins in `values`, and where the last one ends."""
        bounds: Integers = self.sentences[self.documents]
        return bounds

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each document, without `</s>`."""
        return (np.diff(self.bounds) - 1).astype(np.int32)

    def frequencies(self) -> NDArray[np.int64]:
        """How often each token occurs, `</s>` once a document."""
        return self.pieces.columns["text"].counts(self.tokenizer.size)

    @cached_property
    def spelt_out(self) -> SpeltOut:
        """What the unknown tokens of each document stand for, and what it costs to spell them out."""
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

    def spelling(self, places_BL: Array, unknown_BL: Array) -> Spelling | None:
        """The letters of the unknown words at the places where `unknown_BL` is true, for a model that reads them."""
        if self.letters is None:
            return None
        columns, starts = self.pieces.columns, self.pieces.columns["text"].offsets
        places, words = list[tuple[int, int]](), list[Any]()
        for row, column in zip(*np.nonzero(unknown_BL), strict=True):
            place = int(places_BL[row, column])
            piece = int(np.searchsorted(starts, place, side="right")) - 1
            found = np.flatnonzero(columns["unknown"][piece] == place - starts[piece])
            if len(found):  # a text may itself contain <unk>
                word = bytes(columns["words"][piece].tolist()).decode().split("\n")[int(found[0])]
                places.append((int(row), int(column)))
                words.append(letters_of(word, self.letters))
        return Spelling.of(places, words, places_BL.shape)


def _starts(sizes: Array) -> Integers:
    """Where things of these sizes begin that stand end to end, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])


class _Joined(Sequence[str]):
    """Documents whose text is stored in pieces, each as a whole."""

    def __init__(self, pieces: Sequence[str], firsts: Integers) -> None:
        self._pieces, self._firsts = pieces, firsts

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def __getitem__(self, row: Any) -> Any:
        number = range(len(self))[row]
        return "".join(self._pieces[int(self._firsts[number]) : int(self._firsts[number + 1])])
