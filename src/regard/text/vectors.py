"""Static word vectors in text format (word2vec, GloVe, fastText) for the tokens of a vocabulary, streamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    """Files of word vectors that initialise the embeddings. Tokens without a vector are initialised at random."""

    source: str | None = None
    """Vectors of the source's words: .vec, GloVe or word2vec's text format, plain or compressed. With `tie: all`, where
    both sides share one embedding, those of both."""
    target: str | None = None
    """Vectors of the target's words. With `tie: target` or `all` they also initialise the readout."""
    text: str | None = None
    """Vectors of the words of a text, for models of one text."""
    freeze: bool = False
    """Do not train these embeddings, including tokens without a vector and a tied readout."""

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
    """The ids of the tokens that have a vector."""
    values: NDArray[np.float32]
    """Their vectors, a row each."""


Spellings = dict[str, list[tuple[int, int]]]
"""Word in the file -> the tokens that it may stand for, each with the rank of the match: lower is better."""


def read_vectors(file: TextFile, tokenizer: Tokenizer, width: int, setting: str = "the width") -> Vectors:
    """The vectors of a vocabulary's tokens, which must have this width; all other lines are skipped.

    `setting` is the name of the width in messages.
    A token is looked up as the vocabulary spells it (`▁Paris`), then without the mark (`Paris`), then in lower case.
    """
    spellings, faults = _spellings(tokenizer), Faults()
    best: dict[int, tuple[int, NDArray[np.float32]]] = {}
    line = announced = 0
    try:
        for line, text in enumerate(_text_lines(file), 1):
            if line == 1:
                _check_width(text, width, file.where(line), setting)
                if _is_header(text):
                    announced = int(text.split(" ")[0])
                    continue
            try:
                _take(text, width, file.where(line), spellings, best)
            except DataError as error:
                faults.add(*error.problems)
        if announced and line - 1 < announced:
            what = f"the header promises {announced:,} vectors, here they end after {line - 1:,}"
            raise DataError(what, where=file.where(line), hint="is it cut off? Copy or download it again")
    except DataError as error:  # the rest of the file cannot be read
        faults.add(*error.problems)
    if faults.count:
        raise DataError(problems=faults.problems)
    if not best.keys() - {tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end}:
        shown = (piece.lstrip(MARK) for token in range(tokenizer.size) for piece in tokenizer.pieces([token]))
        examples = ", ".join([word for word in shown if word.isalpha()][:3])
        hint = f"its words should be spelt like {examples}; are they of the same language?"
        raise DataError("none of its vectors is of a token in the vocabulary", where=file.name, hint=hint)
    tokens = np.array(sorted(best), dtype=np.int64)
    return Vectors(tokens, np.stack([best[token][1] for token in tokens.tolist()]))


def _take(
    text: str, width: int, where: str, spellings: Spellings, best: dict[int, tuple[int, NDArray[np.float32]]]
) -> None:
    """Take the vector of a line for the tokens that have none of a better spelling."""
    tokens = spellings.get(nfc(_word_of(text, width, where)), ())
    better = [(token, rank) for token, rank in tokens if token not in best or rank < best[token][0]]
    if better:
        vector = _numbers(text, width, where)
        best.update((token, (rank, vector)) for token, rank in better)


def _spellings(tokenizer: Tokenizer) -> Spellings:
    spellings: Spellings = {}
    for token in range(tokenizer.size):
        [own], [shown] = tokenizer.tokens([token]), tokenizer.pieces([token])
        bare = shown.lstrip(MARK)
        for rank, word in enumerate(dict.fromkeys((own, bare, bare.lower()))):
            if word:
                spellings.setdefault(word, []).append((token, rank))
    return spellings


def _text_lines(file: TextFile) -> Iterator[str]:
    """The lines without the space that word2vec and fastText write at their end."""
    if file.suffixes[0] == ".bin":
        hint = "export them as text: .vec, or word2vec with -binary 0"
        raise DataError("binary vectors are not read", where=file.name, hint=hint)
    return (line.rstrip(" \t") for line in file.lines())


def _is_header(first: str) -> bool:
    """`count width`, which word2vec and fastText write above the vectors and GloVe does not."""
    fields = first.split(" ")
    return len(fields) == 2 and all(field.isdecimal() for field in fields)


def _check_width(first: str, width: int, where: str, setting: str) -> None:
    """Refuse a file whose first line, a header or a vector, has another width."""
    fields = first.split(" ")
    if len(fields) < 2:
        raise _broken(f"{first[:40]!r} has no numbers behind it", where)
    numbers = [*map(_is_number, fields)]
    if _is_header(first):
        actual = int(fields[1])
    elif len(fields) > width and all(numbers[-width:]) and not all(numbers[1:]):  # a word with spaces in it
        actual = width
    elif not all(numbers[1:]):
        raise _broken(f"{fields[numbers.index(False, 1)][:40]!r} is not a number", where)
    else:
        actual = len(fields) - 1
    if actual != width:
        what = f"the vectors have {actual} numbers, the embeddings of the model {width}"
        raise DataError(what, where=where, hint=f"set {setting} to {actual}, or take other vectors")


def _word_of(text: str, width: int, where: str) -> str:
    """The word of a line. Only spaces are counted, since the numbers of most lines are never needed."""
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
