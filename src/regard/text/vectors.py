"""Static vectors of words in text format (word2vec, GloVe, fastText) for the tokens of a vocabulary, streamed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from regard.config import Config
from regard.errors import DataError, Faults
from regard.text.files import TextFile
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK


class VectorsConfig(Config):
    """Files of word vectors that the embeddings begin with. Tokens that a file lacks begin at random."""

    source: str | None = None
    """Vectors of the source's words: .vec, GloVe or word2vec's text format, plain or compressed. With `tie: all`, where
    both sides have one embedding, those of both."""
    target: str | None = None
    """Vectors of the target's words. With `tie: target` or `all` the readout begins with them, too."""
    text: str | None = None
    """Vectors of the words of a text, for models of one text."""
    freeze: bool = False
    """Keep these embeddings as they begin, tokens without a vector and a tied readout included."""

    @property
    def files(self) -> dict[str, str]:
        """The file of each side that has one."""
        named = {"source": self.source, "target": self.target, "text": self.text}
        return {side: file for side, file in named.items() if file is not None}

    @model_validator(mode="after")
    def _names_a_file(self) -> VectorsConfig:
        if not self.files:
            raise ValueError("name a file of vectors for the source, the target, or both")
        return self


@dataclass(frozen=True)
class Vectors:
    """The vectors that a file has for a vocabulary."""

    tokens: NDArray[np.int64]
    """The ids of the tokens that were found."""
    values: NDArray[np.float32]
    """Row by row their vectors."""


def read_vectors(file: TextFile, tokenizer: Tokenizer, width: int, setting: str = "the width") -> Vectors:
    """The vectors of a vocabulary's tokens, which must have this width; all other lines are passed over.

    `setting` is what messages call the width.
    A token is looked up as the vocabulary spells it (`▁Paris`), then without the mark (`Paris`), then in lower case.
    """
    taken = _Taken(_spellings(tokenizer), width)
    line = promised = 0
    try:
        for line, text in enumerate(_text_lines(file), 1):
            if line == 1 and _is_header_of(text, width, file, setting):
                promised = int(text.split(" ")[0])
            else:
                taken.line(text, file.where(line))
        if promised and line - 1 < promised:
            what = f"the header promises {promised:,} vectors, here they end after {line - 1:,}"
            raise DataError(what, where=file.where(line), hint="is it cut off? Copy or download it again")
    except DataError as error:  # which ends the reading
        taken.faults.add(*error.problems)
    if taken.faults.count:
        raise DataError(problems=taken.faults.problems)
    rows = taken.rows
    if not rows.keys() - {tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end}:
        hint = f"its words should be spelt like {', '.join(_examples(tokenizer))}; are they of the same language?"
        raise DataError("none of its vectors is of a token in the vocabulary", where=file.name, hint=hint)
    tokens = np.array(sorted(rows), dtype=np.int64)
    return Vectors(tokens, np.stack([rows[token] for token in tokens.tolist()]))


@dataclass
class _Taken:
    """What was taken from the lines so far: vectors, and what is wrong with some."""

    wanted: dict[str, list[tuple[int, int]]]
    width: int
    ranks: dict[int, int] = field(default_factory=dict)
    rows: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)

    def line(self, text: str, where: str) -> None:
        """Take the vector of a line for the tokens that have none of a better spelling."""
        try:
            word = _word_of(text, self.width, where)
            named = self.wanted.get(nfc(word), ())
            better = [(token, rank) for token, rank in named if rank < self.ranks.get(token, math.inf)]
            if better:
                vector = _numbers(text, self.width, where)
                self.ranks.update(better)
                self.rows.update((token, vector) for token, _ in better)
        except DataError as error:
            self.faults.add(*error.problems)


def _spellings(tokenizer: Tokenizer) -> dict[str, list[tuple[int, int]]]:
    """Word in the file -> the tokens that it may stand for, each with a rank: the lower, the better a match."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    for token in range(tokenizer.size):
        [own], [shown] = tokenizer.tokens([token]), tokenizer.pieces([token])
        bare = shown.lstrip(MARK)
        for rank, word in enumerate(dict.fromkeys((own, bare, bare.lower()))):
            if word:
                wanted.setdefault(word, []).append((token, rank))
    return wanted


def _examples(tokenizer: Tokenizer) -> list[str]:
    """The first words of the vocabulary, to show what was looked for."""
    shown = (piece.lstrip(MARK) for token in range(tokenizer.size) for piece in tokenizer.pieces([token]))
    return [word for word in shown if word.isalpha()][:3]


def _text_lines(file: TextFile) -> Iterator[str]:
    """The lines without the space that word2vec and fastText leave at their end."""
    if file.suffixes[0] == ".bin":
        hint = "export them as text: .vec, or word2vec with -binary 0"
        raise DataError("binary vectors are not read", where=file.name, hint=hint)
    return (line.rstrip(" \t") for line in file.lines())


def _is_header(first: str) -> bool:
    """`count width`, which word2vec and fastText write above the vectors and GloVe does not."""
    fields = first.split(" ")
    return len(fields) == 2 and all(field.isdecimal() for field in fields)


def _is_header_of(first: str, width: int, file: TextFile, setting: str) -> bool:
    """Whether the first line is a header; or an error if it tells of another width."""
    if (given := _width_of(first, width, file)) != width:
        what = f"the vectors have {given} numbers, the embeddings of the model {width}"
        raise DataError(what, where=file.where(1), hint=f"set {setting} to {given}, or take other vectors")
    return _is_header(first)


def _width_of(first: str, width: int, file: TextFile) -> int:
    """How many numbers the vectors have; words of several words are known by the width that is wanted."""
    fields = first.split(" ")
    if len(fields) < 2:
        raise _broken(f"{first[:40]!r} has no numbers behind it", file.where(1))
    if _is_header(first):
        return int(fields[1])
    if len(fields) > width and all(map(_is_number, fields[-width:])) and not all(map(_is_number, fields[1:])):
        return width
    if wrong := next((field for field in fields[1:] if not _is_number(field)), None):
        raise _broken(f"{wrong[:40]!r} is not a number", file.where(1))
    return len(fields) - 1


def _word_of(text: str, width: int, where: str) -> str:
    """The word of a line. Only spaces are counted here: most lines are of words that nobody asked for."""
    spaces = text.count(" ")
    if spaces == width:
        return text[: text.index(" ")]
    word = text.rsplit(" ", width)[0]
    if spaces < width or _is_number(word.rpartition(" ")[2]):
        raise _broken(f"{text.split(' ')[0][:40]!r} has {spaces} numbers, others have {width}", where)
    return word.rstrip(" ")  # GloVe's large files have words with spaces in them


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(text: str, width: int, where: str) -> NDArray[np.float32]:
    fields = text.rsplit(" ", width)[1:]
    try:
        vector = np.array(fields, dtype=np.float32)
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        raise _broken(f"{wrong[:40]!r} is not a number", where) from None
    if not np.isfinite(vector).all():
        raise _broken("a number is infinite or not a number", where)
    return vector


def _broken(what: str, where: str) -> DataError:
    return DataError(what, where=where, hint="a line is a word and its numbers, with a space between each two")
