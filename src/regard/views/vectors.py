"""`features`: the vectors that a model has for texts. `vectors`: those of one word in several
sentences, static and contextual, compared layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import MaskedBatch, TextBatch
from regard.data.framing import Framing
from regard.errors import DecodeError, InputError, Problem, first_of, short
from regard.models.base import Contextual, Pooling, device_of, pool, refused_pooling
from regard.tasks import task as tasks
from regard.tasks.masked_language_modeling import GAP, with_gaps
from regard.tasks.task import Note, Task
from regard.text.files import FileInput
from regard.text.normalise import Span
from regard.text.spelling import unknown_in
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

TokenSpans = Sequence[tuple[list[int], list[Span]]]
MAX_NEIGHBOURS = 5
"""Neighbours that are listed."""
MAX_PAIRED_OCCURRENCES = 4
"""Most occurrences of which each pair has a column and a line."""
STATIC = "static"


# Vectors of texts


@dataclass(frozen=True)
class Features:
    """The vectors of some texts: of their tokens, those of text i in the rows offsets[i] to
    offsets[i + 1], or of each text as a whole. A text that was skipped has no tokens, or a vector
    of NaN."""

    inputs: tuple[str, ...]
    vectors: NDArray[np.float32]  # [tokens, D], or [texts, D] where there is one vector a text
    tokens: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()  # what a user should know about the inputs
    skipped: tuple[Problem, ...] = ()  # why each text that was skipped cannot be read

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a .npz file of them holds."""
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "inputs": np.array(self.inputs)}
        if self.offsets:
            arrays |= {
                "tokens": np.array(self.tokens),
                "offsets": np.array(self.offsets, dtype=np.int64),
            }
        return arrays


def text_vectors(
    task: Task,
    model: Contextual,
    inputs: Sequence[FileInput],
    *,
    layer: int = -1,
    pooling: Pooling | None = None,
    normalize: bool = False,
    skip_bad: bool = False,
    gaps: bool = False,
) -> Features:
    """A vector for each token of each text, or with `pooling` one for each text, from one of the
    model's layers; with `normalize` each of length 1.

    Layer 0 is the embeddings, -1 the last one. Special tokens are read around a text, but have no
    vectors here: BERT reads [CLS] before it, a language model the `</s>` of the text before. A long
    text is cut. One that cannot be read is an InputError; with `skip_bad` it is skipped. With
    `gaps` a masked model reads [MASK] in a text as its token.
    """
    texts = tuple(given.text for given in inputs)
    problems = [tasks.problem_in(given) for given in inputs]
    read = [row for row, problem in enumerate(problems) if problem is None]
    skipped = [*filter(None, problems)]
    if not read or (skipped and not skip_bad):
        raise InputError(problems=first_of(skipped) or [Problem("--features", "there is no text")])
    inputs = [inputs[row] for row in read]
    tokenizer = task.tokenizers[task.vocabularies[0]]
    folds = task.reads_raw_text and bool(task.recipe.data.train)  # as its training did
    folded = [tokenizer.fold(text) if folds else text for text, *_ in inputs]
    encoded = [
        ids or [tokenizer.unk] for ids in tokenizer.encode_batch(folded, model.config.letters)
    ]
    if (
        gaps
        and task.reads_raw_text
        and tokenizer.mask is not None
        and model.config.pretraining == "masked"
    ):
        encoded = [
            with_gaps(tokenizer, text) if GAP in text else ids
            for text, ids in zip(folded, encoded, strict=True)
        ]
    longest = getattr(model, "longest", None) or tasks.LONGEST
    longest = (
        longest if task.reads_raw_text else task.recipe.data.max_length
    )  # what a head has read
    framing = Framing(
        tokenizer, model.config.segments, longest, source=model.config.reads == "source"
    )
    _check_chosen(model, framing, layer, pooling)
    notes = _notes(task, inputs, encoded, framing)
    encoded = [ids[: framing.room] for ids in encoded]
    states = _states(
        model, [framing.frame(ids).ids for ids in encoded], tokenizer.pad, layer, pooling
    )
    if pooling is None:
        states = [
            rows[framing.before(1) :][: len(ids)] for rows, ids in zip(states, encoded, strict=True)
        ]
    vectors = np.concatenate(states) if pooling is None else np.stack(states)
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    if pooling is not None:
        of_all = np.full((len(texts), vectors.shape[1]), np.nan, dtype=np.float32)
        of_all[read] = vectors
        return Features(texts, of_all, notes=notes, skipped=tuple(skipped))
    sizes = np.zeros(len(texts), dtype=np.int64)
    sizes[read] = [len(ids) for ids in encoded]
    tokens: list[str] = []
    for ids in encoded:
        spelt = tokenizer.tokens(ids)
        # a word that a model of characters has read all the same
        for place, token in unknown_in(ids):
            spelt[place] = token.word
        tokens += spelt
    return Features(
        texts, vectors, tuple(tokens), (0, *np.cumsum(sizes).tolist()), notes, tuple(skipped)
    )


def _check_chosen(model: Contextual, framing: Framing, layer: int, pooling: Pooling | None) -> None:
    """Refuse a layer that is not there, and the vector of a special token that has not read the
    text."""
    if not -model.depth - 1 <= layer <= model.depth:
        raise DecodeError(
            f"there is no layer {layer}", where="--layer", hint=f"0 to {model.depth}, or -1"
        )
    if what := refused_pooling(model.config, pooling):
        allowed = [name for name in get_args(Pooling) if not refused_pooling(model.config, name)]
        raise DecodeError(what, where="--pooling", hint=f"allowed: {', '.join(allowed)}")
    special = pooling == "last" or (pooling == "first" and framing.before(1) > 0)
    if special and layer in (0, -model.depth - 1):
        what = (
            f"in layer 0 the {pooling} vector is that of a special token, which has not "
            "read the text"
        )
        raise DecodeError(what, where="--pooling", hint="choose mean, or another layer")


def _notes(
    task: Task, inputs: Sequence[FileInput], encoded: Sequence[Sequence[int]], framing: Framing
) -> tuple[Note, ...]:
    """Which texts are cut, and which have nothing that is known; then what the task says of the
    others."""
    notes = list[Note]()
    others = list[int]()
    for number, ((text, place, *_), ids) in enumerate(zip(inputs, encoded, strict=True)):
        if len(ids) > framing.room:
            length = len(ids) + framing.special(1)
            what = (
                f"{place} has {length:,} tokens with the special ones: the model reads the "
                f"first {framing.longest:,}"
            )
            notes.append(Note("length", what))
        elif tasks.is_foreign(framing.tokenizer, ids):
            notes.append(Note("unknown", str(tasks.nothing_known(text, place))))
        else:
            others.append(number)
    rows = [framing.frame(encoded[number]).ids for number in others]
    return (*notes, *task.text_notes([inputs[number] for number in others], rows))


@torch.inference_mode()
def _states(
    model: Contextual, rows: Sequence[list[int]], pad: int, layer: int, pooling: Pooling | None
) -> list[NDArray[np.float32]]:
    """Of each row the vectors of its tokens and of padding after them, or with `pooling` one
    vector."""
    states = dict[int, NDArray[np.float32]]()
    for numbers in tasks.by_length([len(row) for row in rows], tasks.read_tokens(model)):
        text = tasks.padded([rows[number] for number in numbers], pad).to(device_of(model))
        batch: TextBatch | MaskedBatch = TextBatch(text)
        if model.config.segments:
            nothing = text.ids_BL.new_empty(0)
            batch = MaskedBatch(text, torch.zeros_like(text.ids_BL), nothing, nothing)
        x_BLD = model.layers_of(batch)[layer]
        chosen = x_BLD if pooling is None else pool(x_BLD, text, pooling)
        states |= dict(zip(numbers, chosen.float().cpu().numpy(), strict=True))
    return [states[number] for number in range(len(rows))]


# One word in several texts


class WordOccurrence(NamedTuple):
    """A word, the number of its sentence, from 1, and the rows of its tokens among those of all
    sentences."""

    sentence: int
    word: str
    rows: list[int]


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors(Result):
    """What a model makes of one word in several sentences."""

    word: str
    texts: Sequence[str]
    occurrences: Sequence[WordOccurrence]
    cosines: dict[str, NDArray[np.float64]]
    """Static, then each layer -> [occurrences, occurrences]."""
    layer: str
    """The layer of the neighbours."""
    neighbours: dict[str, list[list[dict[str, Any]]]]
    """Static, and in that layer: of each occurrence the nearest words, each with `word`, `sentence`
    and `cosine`."""
    notes: Sequence[Note] = ()
    """What a user should know about the texts that have the word."""

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
            "Of all words in the sentences that the tokenizer knows; the number of the "
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
            "static is the embedding of the word alone; layer 0 has its position, too, where a "
            "model learns positions."
        )


def word_vectors(
    task: Task,
    model: Contextual,
    inputs: Sequence[FileInput],
    more: Sequence[FileInput],
    word: str,
    layer: int,
) -> WordVectors:
    """Compare a word that stands in every input; words of `more` texts can be neighbours, too."""
    tokenizer = task.tokenizers[task.vocabularies[0]]
    word = word.strip()
    if not word:
        raise DecodeError("there is no word", where="--word", hint="give a word of the sentences")
    every = [given._replace(text=tokenizer.fold(given.text)) for given in (*inputs, *more)]
    texts = [given.text for given in every]
    read = text_vectors(task, model, every, layer=layer)
    layer = layer % (model.depth + 1)
    own = every[: len(inputs)]
    of_own = [text_vectors(task, model, own, layer=n) for n in range(model.depth + 1)]
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
        static = text_vectors(task, model, every, layer=0).vectors
        del layers["layer 0"]
    found = [*_occurrences(spans, read, texts, rf"(?<!\w)({re.escape(word)})\w*")]
    known = [occurrence for occurrence in found if unknown.isdisjoint(occurrence.rows)]
    having, known_in = ({occurrence.sentence for occurrence in some} for some in (found, known))
    InputError.raise_if(
        Problem(
            given.place,
            f"{word!r} is unknown to the tokenizer in {short(given.text)!r}",
            "give a word it knows",
        )
        if number in having
        else Problem(
            given.place,
            f"no word of {short(given.text)!r} is {word!r} or begins so",
            "--word is a word of every sentence",
        )
        for number, given in enumerate(own, 1)
        if number not in known_in
    )
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


def _occurrences(
    spans: TokenSpans, read: Features, texts: Sequence[str], pattern: str
) -> Iterator[WordOccurrence]:
    """The words that match, as far as the model reads the texts; the tokens are those of the first
    group."""
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
    """Between words, each the mean of its tokens."""
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
    """Of each occurrence the nearest words, each once, and not itself."""
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
