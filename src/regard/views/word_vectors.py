"""The vectors that a model gives to one word in several sentences: static and contextual, compared layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Example
from regard.errors import DecodeError, InputError, Problem, short
from regard.models.base import Contextual
from regard.tasks.answers import Note
from regard.tasks.views import TextVectors
from regard.text.normalise import Span
from regard.views.report import (
    Cell,
    Curves,
    HeatMap,
    HeatMaps,
    Part,
    Report,
    Result,
    Section,
    Series,
    Table,
    muted,
)
from regard.views.vectors import Features, text_vectors

TokenSpans = Sequence[tuple[list[int], list[Span]]]
MAX_NEIGHBOURS = 5
"""Number of neighbours listed."""
MAX_PAIRED_OCCURRENCES = 4
"""With more occurrences, pairs are summarised by mean and extremes."""
STATIC = "static"


class WordOccurrence(NamedTuple):
    """A word, the number of its sentence, from 1, and the rows of its tokens among those of all
    sentences."""

    sentence: int
    word: str
    rows: list[int]


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors(Result):
    """The vectors of one word in several sentences, compared."""

    word: str
    texts: Sequence[str]
    occurrences: Sequence[WordOccurrence]
    cosines: dict[str, NDArray[np.float64]]
    """`static`, then each layer -> cosines [occurrences, occurrences]."""
    layer: str
    """The layer in which neighbours are looked for."""
    neighbours: dict[str, list[list[dict[str, Any]]]]
    """`static`, and that layer -> the nearest words of each occurrence, each with `word`,
    `sentence` and `cosine`."""
    notes: Sequence[Note] = ()
    """Notes for the user on the texts that have the word."""

    def to_json(self) -> dict[str, Any]:
        return {
            "word": self.word,
            "inputs": list(self.texts),
            "occurrences": [
                {"sentence": sentence, "word": word} for sentence, word, _ in self.occurrences
            ],
            "cosines": {name: values.tolist() for name, values in self.cosines.items()},
            "layer": self.layer,
            "neighbours": self.neighbours,
            **({"notes": [*map(str, self.notes)]} if self.notes else {}),
        }

    def report(self) -> Report:
        rows = [
            [number, word, self.texts[sentence - 1]]
            for number, (sentence, word, _) in enumerate(self.occurrences, 1)
        ]
        notes = [f"note: {note}" for note in self.notes]
        sections = [Section("Occurrences", [Table(["", "word", "sentence"], rows, notes=notes)])]
        if len(rows) > 1:
            sections.append(Section("Cosine between the occurrences", [*self._by_layer()]))
        near = "{word} ({sentence}) {cosine:.2f}".format_map
        words = [
            [row + 1, occurrence.word, Cell(name, ours=True), " · ".join(map(near, nearest[row]))]
            for row, occurrence in enumerate(self.occurrences)
            for name, nearest in self.neighbours.items()
        ]
        note = (
            "Among all words of the sentences that the tokenizer knows; the number of the "
            "sentence is in parentheses."
        )
        sections.append(
            Section("Nearest words", [Table(["", "word", "vector", "nearest"], words), muted(note)])
        )
        sentences = {occurrence.sentence for occurrence in self.occurrences}
        return Report(f"{self.word} in {len(sentences)} sentences", sections)

    def _by_layer(self) -> Iterator[Part]:
        names = list(self.cosines)
        pairs = [*combinations(range(len(self.occurrences)), 2)]
        by_pair = {
            f"{first + 1:d} and {second + 1:d}": [
                round(float(of[first, second]), 3) for of in self.cosines.values()
            ]
            for first, second in pairs
        }
        if len(self.occurrences) > MAX_PAIRED_OCCURRENCES:
            values_PN = np.array([*by_pair.values()])
            kinds = {"mean": values_PN.mean(0), "least": values_PN.min(0), "most": values_PN.max(0)}
            by_pair = {kind: values_N.tolist() for kind, values_N in kinds.items()}
        table = [*zip([Cell(name, ours=True) for name in names], *by_pair.values(), strict=True)]
        yield Table(["vector", *by_pair], table, formats=[".3f"])
        if len(self.occurrences) > 2 or len(names) == 1:
            labels = [
                f"{number} {occurrence.word}"
                for number, occurrence in enumerate(self.occurrences, 1)
            ]
            maps = [
                HeatMap(labels, labels, values, choice=(name,))
                for name, values in self.cosines.items()
            ]
            yield HeatMaps(maps, ["vector"], [names.index(self.layer)])
        else:
            series = [Series(name, range(len(names)), values) for name, values in by_pair.items()]
            yield Curves(series, "", "cosine similarity", x_ticks=[*enumerate(names)])
        yield muted(
            "static is the embedding of the word alone; layer 0 also has its position, if the "
            "model learns positions."
        )


def word_vectors(
    vectors_of: TextVectors,
    model: Contextual,
    inputs: Sequence[Example],
    more: Sequence[Example],
    word: str,
    layer: int,
) -> WordVectors:
    """Compare a word that occurs in every input; words of `more` texts can be neighbours too."""
    tokenizer = vectors_of.tokenizer
    word = word.strip()
    if not word:
        raise DecodeError("there is no word", where="--word", hint="give a word of the sentences")
    every = [given.with_text(tokenizer.fold(given.text)) for given in (*inputs, *more)]
    texts = [given.text for given in every]
    read = text_vectors(vectors_of, model, every, layer=layer)
    layer = layer % (model.depth + 1)
    own = every[: len(inputs)]
    of_own = [text_vectors(vectors_of, model, own, layer=n) for n in range(model.depth + 1)]
    layers = {f"layer {n}": features.vectors for n, features in enumerate(of_own)}
    spans = tokenizer.token_spans(texts)
    unknown = set[int]()
    if "text" in model.embeddings:
        rows = [
            (tokens or [tokenizer.unk])[: _size(read, row)] for row, (tokens, _) in enumerate(spans)
        ]
        ids = [token for row in rows for token in row]
        unknown = {place for place, token in enumerate(ids) if token == tokenizer.unk}
        static = model.embeddings["text"].weight.detach().float().cpu().numpy()[ids]
        layers = layers if model.depth else {}
    else:  # from the letters of each word
        static = text_vectors(vectors_of, model, every, layer=0).vectors
        del layers["layer 0"]
    found = [*_occurrences(spans, read, texts, rf"(?<!\w)({re.escape(word)})\w*")]
    known = [occurrence for occurrence in found if unknown.isdisjoint(occurrence.rows)]
    _check_found(word, own, found, known)
    occurrences = [occurrence for occurrence in known if occurrence.sentence <= len(inputs)]
    pool = [
        other
        for other in _occurrences(spans, read, texts, r"(\w+)")
        if unknown.isdisjoint(other.rows)
    ]
    name = f"layer {layer}" if layers else STATIC
    shown = {STATIC: static} | ({name: read.vectors} if layers else {})
    cosines = {
        n: _cosines(vectors, occurrences, occurrences)
        for n, vectors in ({STATIC: static} | layers).items()
    }
    nearest = {
        n: _nearest(_cosines(vectors, occurrences, pool), occurrences, pool)
        for n, vectors in shown.items()
    }
    return WordVectors(word, texts, occurrences, cosines, name, nearest, of_own[0].notes)


def _check_found(
    word: str,
    inputs: Sequence[Example],
    found: Sequence[WordOccurrence],
    known: Sequence[WordOccurrence],
) -> None:
    """Refuse sentences without the word, or in which the tokenizer does not know it."""
    sentences = {occurrence.sentence for occurrence in found}
    sentences_known = {occurrence.sentence for occurrence in known}
    InputError.raise_if(
        Problem(
            given.place,
            f"{word!r} is unknown to the tokenizer in {short(given.text)!r}",
            "give a word it knows",
        )
        if number in sentences
        else Problem(
            given.place,
            f"no word of {short(given.text)!r} is {word!r} or begins with it",
            "--word must occur in every sentence",
        )
        for number, given in enumerate(inputs, 1)
        if number not in sentences_known
    )


def _occurrences(
    spans: TokenSpans, read: Features, texts: Sequence[str], pattern: str
) -> Iterator[WordOccurrence]:
    """The matching words, as far as the model reads the texts; their tokens are those of the
    pattern's first group."""
    for row, (text, (_, places)) in enumerate(zip(texts, spans, strict=True)):
        for match in re.finditer(pattern, text, re.IGNORECASE):
            first, last = match.span(1)
            tokens = [n for n, (start, end) in enumerate(places) if start < last and first < end]
            if tokens and tokens[-1] < _size(read, row):
                yield WordOccurrence(row + 1, match[0], [read.offsets[row] + n for n in tokens])


def _size(read: Features, row: int) -> int:
    """How many tokens of a text are read."""
    return read.offsets[row + 1] - read.offsets[row]


def _cosines(
    vectors: NDArray[np.float32], words: Sequence[WordOccurrence], others: Sequence[WordOccurrence]
) -> NDArray[np.float64]:
    """Cosines between words, each the mean of its tokens."""
    a, b = (np.stack([vectors[word.rows].mean(0) for word in some]) for some in (words, others))
    a, b = (
        rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (a, b)
    )
    return np.asarray(a @ b.T, dtype=np.float64).round(6)  # of single precision


def _nearest(
    cosines: NDArray[np.float64],
    occurrences: Sequence[WordOccurrence],
    pool: Sequence[WordOccurrence],
) -> list[list[dict[str, Any]]]:
    """The nearest words of each occurrence, each word once, without the occurrence itself."""
    rows = []
    for occurrence, values in zip(occurrences, cosines, strict=True):
        nearest: dict[str, dict[str, Any]] = {}
        for place in np.argsort(-values, kind="stable"):
            other = pool[place]
            cosine = float(values[place])
            if not {*other.rows} & {*occurrence.rows}:
                nearest.setdefault(
                    other.word, {"word": other.word, "sentence": other.sentence, "cosine": cosine}
                )
        rows.append([*nearest.values()][:MAX_NEIGHBOURS])
    return rows
