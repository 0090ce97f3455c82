"""Static word vectors in text format (word2vec, GloVe, fastText) for the tokens of a vocabulary,
streamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from regard.config import Config
from regard.errors import DataError, Faults, Problem
from regard.text.files import TextFile
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK


class VectorsConfig(Config):
    """Files of word vectors that initialise the embeddings. Tokens without a vector are initialised
    at random."""

    source: str | None = None
    """Vectors of the source's words: .vec, GloVe or word2vec's text format, plain or compressed.
    With `tie: all`, where both sides share one embedding, those of both."""
    target: str | None = None
    """Vectors of the target's words. With `tie: target` or `all` they also initialise the
    readout."""
    text: str | None = None
    """Vectors of the words of a text, for models of one text."""
    freeze: bool = False
    """Do not train these embeddings, including tokens without a vector and a tied readout."""

    @property
    def files(self) -> dict[str, str]:
        return self.model_dump(include={"source", "target", "text"}, exclude_none=True)

    @model_validator(mode="after")
    def _names_a_file(self) -> VectorsConfig:
        if not self.files:
            raise ValueError("name a file of vectors for the source, the target, or both")
        return self


def read_vectors(
    file: TextFile, tokenizer: Tokenizer, width: int, setting: str
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ids of the tokens that have a vector in the file, and their vectors, a row each; other
    words are skipped.

    The vectors must have this width; `setting` is its name in messages. A token is looked up as the
    vocabulary spells it (`▁Paris`), then without the mark (`Paris`), then in lower case.
    """
    if file.suffixes[0] == ".bin":
        hint = "export them as text: .vec, or word2vec with -binary 0"
        raise DataError("binary vectors are not read", where=file.name, hint=hint)
    # word in the file -> the tokens that it may represent, with ranks
    spellings: dict[str, list[tuple[int, int]]] = {}
    for token in range(tokenizer.size):
        [own] = tokenizer.tokens([token])
        [shown] = tokenizer.pieces([token])
        bare = shown.lstrip(MARK)
        for rank, word in enumerate(dict.fromkeys((own, bare, bare.lower()))):
            if word:
                spellings.setdefault(word, []).append((token, rank))
    faults = Faults()
    # token -> the rank of its spelling (lower is better), vector
    best: dict[int, tuple[int, NDArray[np.float32]]] = {}
    try:
        for where, text in _vector_lines(file, width, setting):
            # GloVe's large files have words with spaces in them
            word, *fields = text.rsplit(" ", width)
            last = word.rpartition(" ")[2]
            ranked = spellings.get(nfc(word.rstrip(" ")), ())
            better = [
                (token, rank)
                for token, rank in ranked
                if token not in best or rank < best[token][0]
            ]
            vector = _vector(fields) if better else np.empty(0, np.float32)
            if (
                vector is None
                or len(fields) < width
                or (last != word and _vector([last]) is not None)
            ):
                hint = (
                    f"with a space between each two; {setting} is how many numbers the model needs"
                )
                faults.add(
                    Problem(
                        where, f"the line is not a word and {width} numbers: {text[:40]!r}", hint
                    )
                )
            else:
                best.update((token, (rank, vector)) for token, rank in better)
    except DataError as error:  # the rest of the file cannot be read
        faults.add(*error.problems)
    if faults.count:
        raise DataError(problems=faults.problems)
    if not best.keys() - {tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end}:
        shown_words = (
            piece.lstrip(MARK)
            for token in range(tokenizer.size)
            for piece in tokenizer.pieces([token])
        )
        examples = ", ".join([word for word in shown_words if word.isalpha()][:3])
        hint = f"its words should be spelt like {examples}; are they of the same language?"
        raise DataError(
            "none of its vectors is of a token in the vocabulary", where=file.name, hint=hint
        )
    tokens = np.array(sorted(best), dtype=np.int64)
    return tokens, np.stack([best[token][1] for token in tokens.tolist()])


def vector_text(tokenizer: Tokenizer, vectors: NDArray[np.float32]) -> str:
    """The vectors of a vocabulary, one row per token, in word2vec's text format: `count width`,
    then one token per line.

    A token is written without the mark of a word's beginning (`Paris`), unless another one is spelt
    like that. Special tokens are left out.
    """
    tokens = [token for token in range(tokenizer.size) if token not in tokenizer.special]
    own = tokenizer.tokens(tokens)
    bare = [piece.lstrip(MARK) for piece in tokenizer.pieces(tokens)]
    counts = Counter(bare)
    words = [
        plain if plain and counts[plain] == 1 else spelt
        for plain, spelt in zip(bare, own, strict=True)
    ]
    rows = (
        f"{word} {' '.join(map(str, vectors[token]))}"
        for word, token in zip(words, tokens, strict=True)
    )
    return "\n".join([f"{len(tokens)} {vectors.shape[1]}", *rows, ""])


def _vector_lines(file: TextFile, width: int, setting: str) -> Iterator[tuple[str, str]]:
    """The place and the text of each line below the header, without the space that some tools write
    at its end.

    The header, `count width`, is written by word2vec and fastText, and not by GloVe.
    """
    line = announced = 0
    for line, text in enumerate((text.rstrip(" \t") for text in file.lines()), 1):
        count, _, size = text.partition(" ")
        if line > 1 or not (count.isdecimal() and size.isdecimal()):
            yield file.where(line), text
        elif int(size) == width:
            announced = int(count)
        else:
            what = f"the vectors have {size} numbers, the embeddings of the model {width}"
            raise DataError(
                what, where=file.where(line), hint=f"set {setting} to {size}, or take other vectors"
            )
    if announced and line - 1 < announced:
        what = f"the header promises {announced:,} vectors, here they end after {line - 1:,}"
        raise DataError(
            what, where=file.where(line), hint="is it cut off? Copy or download it again"
        )


def _vector(fields: list[str]) -> NDArray[np.float32] | None:
    """The numbers of a line; None if one of them is not a finite number."""
    try:
        vector = np.array(fields, dtype=np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None
