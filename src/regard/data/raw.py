"""Raw text: files and folders -> documents, streamed; as tokens, the documents of a split end to
end."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from regard.data.batches import Padded, Spelling, TextBatch
from regard.data.config import TABLES, Corpus, Splits
from regard.data.corpora import Part
from regard.data.dataset import NAMED, Columns, Dataset
from regard.data.epochs import Examples, Rows, fixed_batches
from regard.data.example import Example
from regard.data.formats import Row, table_rows
from regard.data.inputs import Inputs, is_table, only_file
from regard.data.store import DOCUMENT_ENDS, Array, Integers, in_chunks, offsets_of
from regard.errors import ColumnError, DataError, Problem
from regard.text.access import is_inside
from regard.text.files import BINARY_HINT, TextFile, files_below, matching
from regard.text.normalise import Sentences, fold_white_space, split_sentences
from regard.text.spelling import CharacterIds, ids_of, letters_of, unknown_in
from regard.text.tokenizers import Tokenizer

RawCorpus = Literal[
    "tales-en",
    "tales-ko",
    "errands",
    "diaries-ko",
    "facts-en",
    "facts-ko",
    "meanings-en",
    "meanings-ko",
    "reviews-en",
    "reviews-ko",
    "names-en",
    "portraits-en",
    "portraits-ko",
]
"""The built-in corpora of raw text."""
PIECE_CHARACTERS = 1 << 16
"""Characters after which the rest of a document comes in a row of its own, so that an endless one
need not be held."""


class RawText(Corpus):
    """Documents: text files, tables with a column of text, or a corpus of the package."""

    IN_PIECES: ClassVar[bool] = True
    NOT_COLUMNS: ClassVar[frozenset[str]] = frozenset({"documents"})

    text: str | int | None = None
    """A text file; a folder: all files below it by their names; or a pattern: folder/**/*.txt.
    Beside `file` or `dataset` the column that holds a document in each row; default there, and in
    the tables of a folder: text."""
    documents: Literal["blank_lines", "lines", "all_lines"] = "blank_lines"
    """What ends a document in a text file. `blank_lines`: a blank line; `lines`: every line, empty
    ones do not count; `all_lines`: every line, and an empty one is a document of nothing but its
    end, as published counts of tokens and perplexities of tokenised corpora have it (set
    `deduplicate: false`, too)."""
    corpus: RawCorpus | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """A corpus of the package: short tales in English or Korean; two sentences of which the second
    depends on the first; diaries in Korean; facts for word vectors; sentences with homonyms and
    pronouns; or the texts alone of the reviews, names and portraits, without labels, tags and
    questions."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {"text": self.text}

    @property
    def may_be_empty(self) -> bool:
        return self.documents == "all_lines"

    def files(self, base: Path, within: Path | None = None) -> tuple[TextFile, ...]:
        if self.corpus is not None or self.dataset is not None:
            return ()
        name = str(self.text if self.file is None else self.file)
        root = TextFile(name, base / name, within=within)
        if (
            self.file is None
            and glob.has_magic(name)
            and not (is_inside(root.path, within) and os.path.exists(root.path))
        ):
            found = matching(name, base, within)
            files = tuple(
                file for file in found if file.path.is_file() and file.path.stat().st_size
            )
            if not files:
                what = "no file has such a name" + (", or only empty ones" if found else "")
                raise DataError(what, where=name, hint="* stands for any name, ** for any folders")
            return files
        return files_below(root) if root.is_folder else (root,)

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        return ((text,) for text, *_ in super().built_in(part))

    def format(self, file: TextFile) -> str:
        if self.file is not None:
            return super().format(file)
        return "table of texts" if file.suffixes[0] in TABLES else "text"

    def findings(self, files: Sequence[TextFile]) -> list[str]:
        """Which files of a folder are read: one that was not meant would go into the training
        unnoticed."""
        if len(files) < 2:
            return []
        kinds: dict[str, list[str]] = {}
        for file in files:
            kinds.setdefault("".join(file.suffixes), []).append(Path(file.name).name)
        first, *others = sorted(
            kinds, key=lambda kind: (-len(kinds[kind]), not kind.startswith(".txt"))
        )
        counts = [f"{len(kinds[first]):,} {first or 'without a suffix'}"]
        for kind in others:
            names = [*kinds[kind][:NAMED], *["..."] * (len(kinds[kind]) > NAMED)]
            counts.append(f"{len(kinds[kind]):,} {kind or 'without a suffix'} ({', '.join(names)})")
        choose = (
            f"; {self.text}/**/*{first} names the {first} files alone" if first and others else ""
        )
        return [f"{self.text}: {len(files):,} files are read: {', '.join(counts)}{choose}"]

    @model_validator(mode="before")
    @classmethod
    def _column_of_a_table(cls, tree: Any) -> Any:
        if (
            isinstance(tree, dict)
            and (tree.get("file") or tree.get("dataset"))
            and tree.get("text") is None
        ):
            return {**tree, "text": "text"}
        return tree


class RawData(Splits[RawText]):
    """The raw text of a run."""

    UNIT: ClassVar[str] = "documents"
    MORE: ClassVar[str] = (
        "documents end with a blank line, or with documents: lines at every line; give more of "
        "them, or files of their "
        "own to data.validation and data.test"
    )

    max_characters: int = Field(1 << 20, ge=1)
    """A line longer than this is taken for a broken file."""
    max_length: int = Field(128, ge=8)
    """Most tokens of an example, special ones included; longer documents are cut into several."""


def text_table_rows(file: TextFile, corpus: RawText) -> Iterator[Row]:
    """A table that stands for a text file, or in a folder of them: its column is `text`."""
    try:
        yield from table_rows(file, corpus.model_copy(update={"text": "text"}))
    except ColumnError as error:
        hint = f"rename one to text, or name it in the recipe: {{file: {file.name}, text: COLUMN}}"
        problems = [replace(problem, hint=f"{problem.hint}; {hint}") for problem in error.problems]
        raise DataError(problems=problems) from None


def document_rows(file: TextFile, corpus: RawText) -> Iterator[Row]:
    """The documents of a text file, each with its first line; a long one in pieces, which end with
    a line."""
    separated = corpus.documents
    lines: list[str] = []
    first = size = filled = documents = 0
    continues = False
    for number, line in enumerate(file.lines(), 1):
        if "\0" in line:
            what = "this is a binary file, not a text: the line holds a zero byte"
            raise DataError(what, where=file.where(number), hint=BINARY_HINT)
        text = line.strip()
        if lines and (not text or separated != "blank_lines"):
            yield Row(first, ("\n".join(lines),), continues=continues)
            lines = []
            size = 0
            continues = False
        elif size > PIECE_CHARACTERS:
            yield Row(first, ("\n".join([*lines, ""]),), continues=continues)
            lines = []
            size = 0
            continues = True
        if text or separated == "all_lines":
            first = number if not lines else first
            lines.append(text)
            size += len(text)
            filled += 1
            documents += len(lines) == 1 and not continues
    if lines:
        yield Row(first, ("\n".join(lines),), continues=continues)
    # files of a folder may be a document each
    is_alone = corpus.file is None and file.name == str(corpus.text)
    if separated == "blank_lines" and is_alone and documents < 5 and filled >= 20:
        file.notes.append(
            f"{file.name}: only a blank line ends a document, so {filled:,} lines are "
            f"{documents:,} of them; "
            "if each line is a text of its own, write documents: lines beside the file"
        )


@dataclass(frozen=True)
class RawInputs(Inputs):
    """A text; or two, of a task that asks whether one follows the other."""

    TABS = 1

    def of_line(self, text: str, place: str) -> Example:
        """A single text may have tabs."""
        return super().of_line(text, place) if self.takes_tuples else self.of_texts([text], place)

    def of_cells(self, cells: Sequence[str], place: str, fault: Problem | None = None) -> Example:
        return self.of_texts([*map(fold_white_space, cells)], place, fault)

    def wrong_number(self, given: Example) -> Problem | None:
        texts = given.texts
        if len(texts) <= len(self.names):
            return None
        return Problem(given.place, f"two texts are expected, not {len(texts)}")

    def corpus_of(self, files: Sequence[str]) -> Any:
        """The corpus that `--file` names: a text file, a folder or a table."""
        name = only_file(files, hint="give one, or a folder of them")
        file = TextFile(name, Path(name), encoding=self.encoding)
        if is_table(file):
            return self.table(file)
        files_of_text = (corpus for corpus in self.corpora if corpus.corpus is None)
        like = next(files_of_text, RawText(text=name))
        return RawText(text=name, documents=like.documents)


# Documents as tokens


def encode_documents(
    texts: Sequence[str],
    parts: Sequence[str],
    tokenizer: Tokenizer,
    sentences: Sentences | None,
    letters: int | None,
) -> Columns:
    """Pieces of documents as tokens; `parts` says which of them end their document and so get
    `</s>`.

    `sentences` says how these are found; None: a piece is one sentence. The columns: `text` has the
    tokens of a piece, `sentences` the number of tokens of each sentence; with `letters`, `unknown`
    has the positions of unknown tokens in the piece and `words` the bytes of their words, one a
    line.
    """

    def split(text: str, part: str) -> list[str]:
        if sentences is None:
            read = tokenizer.fold(text)
            return [
                read if part == DOCUMENT_ENDS or read.endswith("\n") else read + tokenizer.between
            ]
        if sentences == "lines":
            return [fold_white_space(line) for line in text.split("\n") if line.strip()] or [""]
        return split_sentences(fold_white_space(text)) or [""]

    pieces = [split(*piece) for piece in zip(texts, parts, strict=True)]
    encoded = iter(
        tokenizer.encode_spelled([sentence for piece in pieces for sentence in piece], letters)
    )
    rows = [[next(encoded) for _ in piece] for piece in pieces]
    for piece, part in zip(rows, parts, strict=True):
        if part == DOCUMENT_ENDS:
            piece[-1].append(tokenizer.end)
    tokens = [[token for sentence in piece for token in sentence] for piece in rows]
    columns: dict[str, list[list[int]]] = {
        "text": [*map(ids_of, tokens)],
        "sentences": [[len(sentence) for sentence in piece] for piece in rows],
    }
    if letters is not None:
        unknown = [list(unknown_in(piece)) for piece in tokens]
        columns["unknown"] = [[place for place, _ in words] for words in unknown]
        columns["words"] = [
            list("\n".join(token.word for _, token in words).encode()) for words in unknown
        ]
    return columns


class RawTokens:
    """The documents of a split end to end: the tokens of each, then `</s>`; a view of a dataset of
    their pieces."""

    def __init__(self, pieces: Dataset, tokenizer: Tokenizer, letters: int | None = None) -> None:
        self.pieces = pieces
        self.tokenizer = tokenizer
        self.letters = letters
        self.values: Array = pieces.columns["text"].values
        self.sentences: Integers = offsets_of(pieces.columns["sentences"].values)
        """Where each sentence begins in `values`, and where the last one ends; `</s>` belongs to
        the sentence before it."""
        ends = np.fromiter(
            (part == DOCUMENT_ENDS for part in pieces.texts["part"]), dtype=bool, count=len(pieces)
        )
        self.firsts: Integers = np.concatenate([[0], np.flatnonzero(ends) + 1])
        """The number of each document's first piece, and the number of pieces."""
        counts = offsets_of(pieces.columns["sentences"].lengths)
        self.documents: Integers = counts[self.firsts]
        """The number of each document's first sentence, and the number of sentences."""
        self.corpora: Integers = pieces.corpora[self.firsts[:-1]]
        """The number of the corpus that each document came from."""
        self.weights = pieces.weights

    def __len__(self) -> int:
        return len(self.documents) - 1

    def place(self, document: int) -> str:
        return self.pieces.where(int(self.firsts[document]))

    def texts(self) -> Iterator[str]:
        pieces = self.pieces.texts["text"]
        return ("".join(pieces[first:after]) for first, after in pairwise(self.firsts.tolist()))

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
    def spelt_out(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The number of unknown tokens of each document, and what it costs to spell them out, in
        nats.

        A model pays for predicting `<unk>`, but not for the word behind it, so a tiny vocabulary
        would have the best score. To compare vocabularies, each unknown token is also charged under
        a uniform model over the 256 bytes and an end symbol; a word of n bytes of UTF-8 costs
            (n + 1) log 257
        """
        if not self.frequencies()[self.tokenizer.unk]:
            return np.zeros(len(self), dtype=np.int64), np.zeros(len(self))
        chunks = (
            [self.tokenizer.fold(text) for text in texts] for texts in in_chunks(self.texts(), len)
        )
        documents = [words for texts in chunks for words in self.tokenizer.unknown_words(texts)]
        symbols = [sum(len(word.strip().encode()) + 1 for _, word in words) for words in documents]
        return np.array([*map(len, documents)], dtype=np.int64), np.array(symbols) * math.log(257)

    @property
    def unknown_share(self) -> float:
        """How often each token occurs, without the ends of documents."""
        return float(self.spelt_out[0].sum() / max(1, len(self.values) - len(self)))

    def document_at(self, places: Integers) -> Integers:
        """The document that each place in `values` belongs to."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def spelling(self, places_BL: Array, unknown_BL: Array) -> Spelling | None:
        """The letters of the unknown words at the places where `unknown_BL` is true, for a model
        that reads them."""
        if self.letters is None:
            return None
        columns = self.pieces.columns
        starts = self.pieces.columns["text"].offsets
        places = list[tuple[int, int]]()
        words = list[CharacterIds]()
        for row, column in zip(*np.nonzero(unknown_BL), strict=True):
            place = int(places_BL[row, column])
            piece = int(np.searchsorted(starts, place, side="right")) - 1
            unknown = np.flatnonzero(columns["unknown"][piece] == place - starts[piece])
            if len(unknown):  # a text may itself contain <unk>
                word = bytes(columns["words"][piece].tolist()).decode().split("\n")[int(unknown[0])]
                places.append((int(row), int(column)))
                words.append(letters_of(word, self.letters))
        return Spelling.of(places, words, places_BL.shape)


# streams that a text is measured in; each begins without memory, so more would cost quality
EVALUATED_STREAMS = 10


class Pieces(Examples):
    """Pieces of the text, each of which is predicted token by token from the token before it on.

    A document begins where the one before ended: the first piece is predicted from its `</s>`, so
    that one and the same token ends a text and begins the next. A piece within a document is
    predicted from the last token before it.
    """

    def __init__(
        self, text: RawTokens, starts: Integers, stops: Integers, corpora: Integers
    ) -> None:
        self.text = text
        self.starts = starts
        self.stops = stops
        self.corpora = corpora
        self.weights = text.weights
        self.left_out = text.pieces.left_out

    @property
    def lengths(self) -> NDArray[np.int32]:
        return (self.stops - self.starts).astype(np.int32)

    def where(self, example: int) -> str:
        return self.text.place(int(self.text.document_at(self.starts[example])))

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> TextBatch:
        starts = self.starts[examples] - 1
        lengths = self.lengths[examples].astype(np.int64) + 1
        places_BL = starts[:, None] + np.arange(int(lengths.max()))
        real_BL = places_BL < (starts + lengths)[:, None]
        # place -1: the last </s>
        ids_BL = self.text.values[np.where(real_BL, places_BL, 0)].astype(np.int64)
        ids_BL[~real_BL] = self.text.tokenizer.pad
        spelling = self.text.spelling(places_BL, ids_BL == self.text.tokenizer.unk)
        tokens = Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths), spelling)
        return TextBatch(
            tokens, examples=tuple(examples.tolist()), tokens=int(lengths.sum()) - len(examples)
        )

    def frequencies(self) -> NDArray[np.int64]:
        return self.text.frequencies()

    def pieces(self, example: int) -> dict[str, list[str]]:
        ids = self.text.values[self.starts[example] : self.stops[example]]
        return {"text": self.text.tokenizer.pieces(ids.tolist())}

    def measured(self, batch_tokens: int) -> list[Rows]:
        """Batches that hold everything once, to measure a model with."""
        return fixed_batches(self, batch_tokens)


def document_pieces(text: RawTokens, max_length: int) -> Pieces:
    """Each document by itself, cut where a row of it would have more than `max_length` tokens."""
    starts, stops, documents = cut(text.bounds[:-1], text.bounds[1:], max_length - 1)
    return Pieces(text, starts, stops, text.corpora[documents])


def contiguous_pieces(text: RawTokens, max_length: int) -> Pieces:
    """The whole text, document after document, cut at every `max_length` tokens, whichever document
    they belong to."""
    starts, stops, _ = cut(np.array([0]), np.array([len(text.values)]), max_length - 1)
    return Pieces(text, starts, stops, text.corpora[text.document_at(starts)])


def cut(begins: Integers, ends: Integers, room: int) -> tuple[Integers, Integers, Integers]:
    """Spans of tokens cut into pieces of at most `room`: where each begins and ends, and the number
    of its span."""
    counts = -(-(ends - begins) // room)
    spans = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(spans)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = begins[spans] + room * number
    return starts, np.minimum(starts + room, ends[spans]), spans


class Streams(Pieces):
    """The whole text, document after document, read by a batch's rows side by side as so many
    streams.

    The streams have about the same size, and each batch continues all of them where the batch
    before ended, so that a recurrent state can be carried over: truncated back-propagation through
    time. The last stream may be the first to end; from then on a batch has a row less. The plan is
    the same in every epoch, so a position says which batch comes next, and a checkpoint only has to
    hold the carried state beside it.
    """

    def __init__(self, text: RawTokens, max_length: int) -> None:
        pieces = contiguous_pieces(text, max_length)
        super().__init__(text, pieces.starts, pieces.stops, np.zeros(len(pieces), dtype=np.int16))
        self.weights = (1.0,)
        self.room = max_length - 1

    def plan(self, batch_tokens: int, seed: int, epoch: int, *, fill: bool = False) -> list[Rows]:
        return self._side_by_side(max(1, batch_tokens // self.room))

    def _side_by_side(self, streams: int) -> list[Rows]:
        steps = math.ceil(len(self) / streams)
        firsts = np.arange(0, len(self), steps)
        return [firsts[firsts + step < len(self)] + step for step in range(steps)]

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> TextBatch:
        return replace(super().batch(examples), carries=int(examples[0]) > 0)

    def measured(self, batch_tokens: int) -> list[Rows]:
        return self._side_by_side(EVALUATED_STREAMS)
