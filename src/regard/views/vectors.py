"""`vectors`: one word in several sentences, its static and its contextual vectors compared layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from regard.errors import DecodeError, InputError, Problem, short
from regard.models.base import Contextual
from regard.tasks.raw import Features, features
from regard.tasks.task import Task
from regard.text.files import FileInput
from regard.text.normalise import Span
from regard.views.report import (
    Cell,
    Curves,
    HeatMap,
    HeatMaps,
    Numbers,
    Part,
    Report,
    Result,
    Section,
    Series,
    Table,
    Value,
    muted,
)

TokenSpans = Sequence[tuple[list[int], list[Span]]]
NEAREST = 5
"""Neighbours that are listed."""
PAIRS = 4
"""Most occurrences of which each pair has a column and a line."""
STATIC = "static"


class Word(NamedTuple):
    """A word, the number of its sentence, from 1, and the rows of its tokens among those of all sentences."""

    sentence: int
    word: str
    rows: list[int]


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors(Result):
    """What a model makes of one word in several sentences."""

    word: str
    texts: Sequence[str]
    occurrences: Sequence[Word]
    cosines: dict[str, Numbers]
    """Static, then each layer -> [occurrences, occurrences]."""
    layer: str
    """The layer of the neighbours."""
    neighbours: dict[str, list[list[dict[str, Any]]]]
    """Static, and in that layer: of each occurrence the nearest words, each with `word`, `sentence` and `cosine`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "word": self.word, "inputs": list(self.texts),
            "occurrences": [{"sentence": one.sentence, "word": one.word} for one in self.occurrences],
            "cosines": {name: values.round(6).tolist() for name, values in self.cosines.items()},
            "layer": self.layer, "neighbours": self.neighbours,
        }  # fmt: skip

    def report(self) -> Report:
        rows: list[list[Value]] = [
            [number, one.word, self.texts[one.sentence - 1]] for number, one in enumerate(self.occurrences, 1)
        ]
        sections = [Section("Occurrences", [Table(["", "word", "sentence"], rows)])]
        if len(rows) > 1:
            sections.append(Section("Cosine between the occurrences", [*self._by_layer()]))
        near = "{word} ({sentence}) {cosine:.2f}".format_map
        words: list[list[Value]] = [
            [row + 1, one.word, name, " · ".join(map(near, nearest[row]))]
            for row, one in enumerate(self.occurrences)
            for name, nearest in self.neighbours.items()
        ]
        note = "Of all words in the sentences; the number of the sentence stands in parentheses."
        sections.append(Section("Nearest words", [Table(["", "word", "vector", "nearest"], words), muted(note)]))
        return Report(f"{self.word} in {len({one.sentence for one in self.occurrences})} sentences", sections)

    def _by_layer(self) -> Iterator[Part]:
        names, pairs = list(self.cosines), [*combinations(range(len(self.occurrences)), 2)]
        by_pair = {f"{one + 1} and {other + 1}": [float(values[one, other]) for values in self.cosines.values()]
                   for one, other in pairs}  # fmt: skip
        if len(self.occurrences) > PAIRS:
            values_PN = np.array([*by_pair.values()])
            kinds = {"mean": values_PN.mean(0), "least": values_PN.min(0), "most": values_PN.max(0)}
            by_pair = {kind: values_N.tolist() for kind, values_N in kinds.items()}
        table: list[list[Value]] = [
            [name, *(Cell(values[row], ".3f") for values in by_pair.values())] for row, name in enumerate(names)
        ]
        yield Table(["vector", *by_pair], table)
        if len(self.occurrences) > 2:
            labels = [f"{number} {one.word}" for number, one in enumerate(self.occurrences, 1)]
            maps = [HeatMap(labels, labels, values, choice=(name,)) for name, values in self.cosines.items()]
            yield HeatMaps(maps, ["vector"], [names.index(self.layer)])
        elif len(names) > 1:
            series = [Series(name, range(len(names)), values) for name, values in by_pair.items()]
            yield Curves(series, "", "cosine", x_ticks=[*enumerate(names)])
        yield muted(
            "static is the embedding of the word alone; layer 0 has its position, too, where a model learns positions."
        )


def word_vectors(
    task: Task, model: Contextual, inputs: Sequence[FileInput], more: Sequence[FileInput], word: str, layer: int
) -> WordVectors:
    """Compare a word that stands in every input; words of `more` texts can be neighbours, too."""
    tokenizer, word = task.tokenizers[task.columns[0]], word.strip()
    if not word:
        raise DecodeError("there is no word", where="--word", hint="give a word of the sentences")
    every = [given._replace(text=tokenizer.fold(given.text)) for given in (*inputs, *more)]
    texts = [given.text for given in every]
    read = features(task, model, every, layer=layer)
    layer = layer % (model.depth + 1)
    own = every[: len(inputs)]
    layers = {f"layer {n}": features(task, model, own, layer=n).vectors for n in range(model.depth + 1)}
    spans = tokenizer.token_spans(texts)
    if "text" in model.embeddings:
        ids = [token for row, (tokens, _) in enumerate(spans) for token in tokens[: _size(read, row)]]
        static = model.embeddings["text"].weight.detach().float().cpu().numpy()[ids]
        layers = layers if model.depth else {}
    else:  # from the letters of each word
        static = features(task, model, every, layer=0).vectors
        del layers["layer 0"]
    found = [*_words(spans, read, texts, rf"(?<!\w)({re.escape(word)})\w*")]
    having, hint = {one.sentence for one in found}, "--word is a word of every sentence"
    InputError.raise_if(
        Problem(one.place, f"no word of {short(one.text)!r} is {word!r} or begins so", hint)
        for number, one in enumerate(own, 1)
        if number not in having
    )
    found = [one for one in found if one.sentence <= len(inputs)]
    pool = [*_words(spans, read, texts, r"(\w+)")]
    name = f"layer {layer}" if layers else STATIC
    shown = {STATIC: static} | ({name: read.vectors} if layers else {})
    cosines = {n: _cosines(vectors, found, found) for n, vectors in ({STATIC: static} | layers).items()}
    nearest = {n: _nearest(_cosines(vectors, found, pool), found, pool) for n, vectors in shown.items()}
    return WordVectors(word, texts, found, cosines, name, nearest)


def _words(spans: TokenSpans, read: Features, texts: Sequence[str], pattern: str) -> Iterator[Word]:
    """The words that match, as far as the model reads the texts; the tokens are those of the first group."""
    for row, (text, (_, places)) in enumerate(zip(texts, spans, strict=True)):
        for match in re.finditer(pattern, text, re.IGNORECASE):
            first, last = match.span(1)
            tokens = [n for n, (start, end) in enumerate(places) if start < last and first < end]
            if tokens and tokens[-1] < _size(read, row):
                yield Word(row + 1, match[0], [read.offsets[row] + n for n in tokens])


def _size(read: Features, row: int) -> int:
    """How many tokens of a text are read."""
    return read.offsets[row + 1] - read.offsets[row]


def _cosines(vectors: Numbers, words: Sequence[Word], others: Sequence[Word]) -> Numbers:
    """Between words, each the mean of its tokens."""
    a, b = (np.stack([vectors[one.rows].mean(0) for one in some]) for some in (words, others))
    a, b = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (a, b))
    return np.asarray(a @ b.T, dtype=np.float64)


def _nearest(cosines: Numbers, found: Sequence[Word], pool: Sequence[Word]) -> list[list[dict[str, Any]]]:
    """Of each occurrence the nearest words, each once, and not itself."""
    rows = []
    for one, values in zip(found, cosines, strict=True):
        nearest: dict[str, dict[str, Any]] = {}
        for place in np.argsort(-values):
            other, cosine = pool[place], round(float(values[place]), 6)
            if not {*other.rows} & {*one.rows}:
                nearest.setdefault(other.word, {"word": other.word, "sentence": other.sentence, "cosine": cosine})
        rows.append([*nearest.values()][:NEAREST])
    return rows
