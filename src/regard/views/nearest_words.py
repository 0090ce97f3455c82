"""The vectors of single words: nearest neighbours, analogies, a map in two dimensions, and how well
they agree with lists of analogies and with people's judgement of similarity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.corpora import Analogy
from regard.data.corpora import analogies as built_in_analogies
from regard.data.example import Example
from regard.errors import DataError, DecodeError, InputError, Problem
from regard.models.base import Contextual
from regard.tasks.regression import spearman
from regard.tasks.views import TextVectors
from regard.text.files import TextFile
from regard.text.vocabularies import MARK
from regard.views.report import (
    HeatMap,
    HeatMaps,
    Part,
    Points,
    Report,
    Result,
    Section,
    Table,
    muted,
)
from regard.views.vectors import text_vectors

Vectors = NDArray[np.float32]
MAX_NEIGHBOURS = 8
"""Number of neighbours listed."""
MAX_ANSWERS = 3
"""Number of answers to an analogy that are listed."""
MAPPED_NEIGHBOURS = 4
"""Neighbours of each word in the map."""
ANALOGIES_AT_ONCE = 512
ALL = "all"


class Neighbour(NamedTuple):
    """A word of the vocabulary, and the cosine of its vector with the one that was asked for."""

    word: str
    cosine: float


class AnalogyScore(NamedTuple):
    """How many analogies of a list, or of a section of it, have the right word as the nearest."""

    section: str
    right: int
    total: int
    skipped: int
    """Analogies with a word that the model does not know."""


class SimilarityScore(NamedTuple):
    """The rank correlation of cosines with people's judgement."""

    spearman: float
    pairs: int
    skipped: int


@dataclass(frozen=True, eq=False, repr=False)
class NearestWords(Result):
    """Words and analogies with the words of the vocabulary that are nearest to each."""

    words: Sequence[str]
    neighbours: Sequence[Sequence[Neighbour]]
    cosines: NDArray[np.float64]
    """Between the words."""
    analogies: Sequence[tuple[str, ...]] = ()
    answers: Sequence[Sequence[Neighbour]] = ()
    map: Points | None = None
    scores: Sequence[AnalogyScore] = ()
    similarity: SimilarityScore | None = None

    def to_json(self) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        if self.words:
            parts["words"] = [
                {"word": word, "nearest": [near._asdict() for near in nearest]}
                for word, nearest in zip(self.words, self.neighbours, strict=True)
            ]
            parts["cosines"] = self.cosines.tolist()
        if self.analogies:
            parts["analogies"] = [
                {"analogy": [*analogy], "answers": [near._asdict() for near in nearest]}
                for analogy, nearest in zip(self.analogies, self.answers, strict=True)
            ]
        if self.map is not None:
            points = zip(self.map.labels, self.map.x, self.map.y, strict=True)
            parts["map"] = [{"word": word, "x": x, "y": y} for word, x, y in points]
        if self.scores:
            parts["analogy_scores"] = [score._asdict() for score in self.scores]
        if self.similarity is not None:
            parts["similarity"] = self.similarity._asdict()
        return parts

    def report(self) -> Report:
        return Report("Nearest words", [*self._sections()])

    def _sections(self) -> Iterator[Section]:
        if self.words:
            rows = [
                [word, _listed(nearest)]
                for word, nearest in zip(self.words, self.neighbours, strict=True)
            ]
            parts: list[Part] = [Table(["word", "nearest, with the cosine"], rows)]
            if len(self.words) > 1:
                heat_map = HeatMap(self.words, self.words, self.cosines)
                parts.append(HeatMaps([heat_map], title="Cosines between the words"))
            yield Section("Nearest words", parts)
        if self.analogies:
            rows = [
                [_question(analogy), _listed(nearest)]
                for analogy, nearest in zip(self.analogies, self.answers, strict=True)
            ]
            note = "The words nearest to v_b - v_a + v_c, other than a, b and c."
            yield Section("Analogies", [Table(["analogy", "answers"], rows), muted(note)])
        if self.map is not None:
            note = (
                "The two directions in which these vectors differ most (principal components): "
                "what is far apart in the others may look near."
            )
            yield Section("Map", [self.map, muted(note)])
        if self.scores:
            counted: list[list[Any]] = [
                [name, right / total if total else None, right, total, skipped]
                for name, right, total, skipped in self.scores
            ]
            columns = ["analogies", "right", "number right", "asked", "with unknown words"]
            yield Section("List of analogies", [Table(columns, counted, formats=[".3f"])])
        if self.similarity is not None:
            columns = ["Spearman's correlation", "pairs", "with unknown words"]
            table = Table(columns, [[*self.similarity]], formats=[".3f"])
            yield Section("Word similarity", [table])


def _listed(nearest: Sequence[Neighbour]) -> str:
    return " · ".join(f"{word} {cosine:.2f}" for word, cosine in nearest)


def _question(analogy: Sequence[str]) -> str:
    a, b, c = analogy[:3]
    return f"{a} : {b} = {c} : ?"


class Vocabulary:
    """The words that can be neighbours, and their vectors of length 1."""

    def __init__(self, vectors_of: TextVectors, model: Contextual) -> None:
        tokenizer = vectors_of.tokenizer
        self.vectors_of = vectors_of
        self.model = model
        ids = [token for token in range(tokenizer.size) if token not in tokenizer.special]
        spelt = [piece.lstrip(MARK) for piece in tokenizer.pieces(ids)]
        kept = [place for place, word in enumerate(spelt) if any(map(str.isalnum, word))]
        self.words = [spelt[place] for place in kept]
        self.vectors_VD = unit(_static(model, [ids[place] for place in kept]))

    def vectors(self, words: Sequence[str], where: str) -> Vectors:
        """The vectors of words, of length 1; an error names those that the model does not know."""
        vectors = [self.find(word) for word in words]
        unknown = [word for word, vector in zip(words, vectors, strict=True) if vector is None]
        InputError.raise_if(
            Problem(where, f"{word!r} is not in the vocabulary", "give words of the training text")
            for word in unknown
        )
        return np.stack([vector for vector in vectors if vector is not None])

    def find(self, word: str) -> Vectors | None:
        """The vector of a word: of several tokens, the mean; of a word outside the vocabulary, from
        its letters, if the model reads them."""
        tokenizer = self.vectors_of.tokenizer
        folded = tokenizer.fold(word)
        ids = tokenizer.encode(folded)
        if not ids:
            return None
        if tokenizer.unk not in ids:
            return unit(_static(self.model, ids).mean(0, keepdims=True)).reshape(-1)
        if self.model.config.letters is None:
            return None
        example = Example.of_text(folded, "word")
        read = text_vectors(self.vectors_of, self.model, [example], layer=0)
        return unit(read.vectors.mean(0, keepdims=True)).reshape(-1)

    def nearest(
        self, vectors_QD: Vectors, others: Sequence[Sequence[str]], count: int
    ) -> list[list[Neighbour]]:
        """The words with the largest cosine for each vector, without those that were given."""
        cosines_QV = vectors_QD @ self.vectors_VD.T
        found = []
        for cosines_V, given in zip(cosines_QV, others, strict=True):
            left_out = {*given}
            nearest = dict[str, float]()
            for place in np.argsort(-cosines_V, kind="stable")[: count + 3 * len(left_out) + 8]:
                if self.words[place] not in left_out:
                    nearest.setdefault(self.words[place], round(float(cosines_V[place]), 4))
            found.append([Neighbour(*item) for item in [*nearest.items()][:count]])
        return found


def _static(model: Contextual, ids: Sequence[int]) -> Vectors:
    vectors: Vectors = model.static_vectors(torch.tensor([*ids])).cpu().numpy()
    return vectors


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return np.asarray(vectors / lengths, dtype=np.float32)


def nearest_words(
    vectors_of: TextVectors,
    model: Contextual,
    words: Sequence[str],
    *,
    analogies: Sequence[str] = (),
    analogy_list: str | Path | None = None,
    similarity: str | Path | None = None,
) -> NearestWords:
    """The nearest words of each word and of each analogy `a b c`; scores on a list of analogies and
    on a list of judged pairs."""
    if not (words or analogies or analogy_list or similarity):
        hint = "give words, --analogy, --analogies or --similarity"
        raise DecodeError("there is no word", where="vectors", hint=hint)
    if not model.has_word_vectors:
        what = f"{model.config.kind} has no vectors of single words"
        raise DecodeError(what, where="vectors", hint="models with word embeddings have")
    vocabulary = Vocabulary(vectors_of, model)
    asked = [_read_analogy(text) for text in analogies]
    vectors = vocabulary.vectors(words, "WORD") if words else np.zeros((0, 1), np.float32)
    neighbours = (
        vocabulary.nearest(vectors, [[word] for word in words], MAX_NEIGHBOURS) if words else []
    )
    answers = [
        vocabulary.nearest(_targets(vocabulary.vectors(one, "--analogy")[None]), [one[:3]], 3)[0]
        for one in asked
    ]
    return NearestWords(
        [*words],
        neighbours,
        np.asarray(vectors @ vectors.T, dtype=np.float64).round(6),
        asked,
        answers,
        _map(vocabulary, words, neighbours, asked, answers),
        [] if analogy_list is None else _scores(vocabulary, read_analogies(analogy_list)),
        None if similarity is None else _agreement(vocabulary, read_similarity(similarity)),
    )


# Analogies


def _read_analogy(text: str) -> tuple[str, ...]:
    words = tuple(word for word in text.split() if word.strip(":=?"))
    if len(words) != 3:
        what = f"{text!r} has {len(words)} words"
        hint = 'give three, "man king woman": king is to man as what is to woman?'
        raise DecodeError(what, where="--analogy", hint=hint)
    return words


def _targets(vectors_QKD: Vectors) -> Vectors:
    """b - a + c of the vectors a, b and c, of length 1.

    Mikolov et al. 2013, arXiv:1301.3781, section 4: the answer d has the largest cosine with it.
    """
    a_QD, b_QD, c_QD = vectors_QKD[:, 0], vectors_QKD[:, 1], vectors_QKD[:, 2]
    return unit(b_QD - a_QD + c_QD)


def read_analogies(source: str | Path) -> list[Analogy]:
    """A built-in list, or a file with `a b c d` in each line and headings that begin with a colon."""
    if str(source).startswith("facts-") and not Path(source).exists():
        return built_in_analogies(str(source))
    file = TextFile(str(source), Path(source))
    found = []
    section = ALL
    for number, line in enumerate(file.lines(), 1):
        words = line.split()
        if words[:1] and words[0].startswith(":"):
            section = " ".join(words).lstrip(": ") or ALL
        elif words:
            if len(words) != 4:
                hint = "a line is `a b c d`, or `: heading`"
                what = f"the line has {len(words)} words"
                raise DataError(what, where=file.where(number), hint=hint)
            found.append(Analogy(section, *words))
    if not found:
        raise DataError("there is no analogy in it", where=file.name, hint="a line is `a b c d`")
    return found


def _scores(vocabulary: Vocabulary, analogies: Sequence[Analogy]) -> list[AnalogyScore]:
    """How many analogies have d as the nearest word, by section and in all."""
    vectors = _vectors_of_known(vocabulary, {word for analogy in analogies for word in analogy[1:]})
    counts = defaultdict[str, list[int]](lambda: [0, 0, 0])
    known = [one for one in analogies if all(word in vectors for word in one[1:])]
    for start in range(0, len(known), ANALOGIES_AT_ONCE):
        part = known[start : start + ANALOGIES_AT_ONCE]
        given = np.stack([[vectors[word] for word in one[1:4]] for one in part])
        nearest = vocabulary.nearest(_targets(given), [one[1:4] for one in part], 1)
        for one, found in zip(part, nearest, strict=True):
            counts[one.relation][0] += bool(found) and found[0].word == one.d
            counts[one.relation][1] += 1
    for one in analogies:
        counts[one.relation][2] += not all(word in vectors for word in one[1:])
    scores = [AnalogyScore(section, *numbers) for section, numbers in counts.items()]
    if len(scores) > 1:
        scores.append(
            AnalogyScore(ALL, *(sum(own[n] for own in counts.values()) for n in range(3)))
        )
    return scores


def _vectors_of_known(vocabulary: Vocabulary, words: set[str]) -> Mapping[str, Vectors]:
    found = {word: vocabulary.find(word) for word in sorted(words)}
    return {word: vector for word, vector in found.items() if vector is not None}


# Similarity


class Judged(NamedTuple):
    """How alike people find two words."""

    first: str
    second: str
    value: float


def read_similarity(source: str | Path) -> list[Judged]:
    """A file with two words and a number in each line, between tabs, commas or blanks, as
    WordSim-353 and SimLex-999 have it; of several numbers the first counts. A first line without a
    number is a header."""
    file = TextFile(str(source), Path(source))
    found = []
    for number, line in enumerate(file.lines(), 1):
        separator = next((mark for mark in "\t,;" if mark in line), None)
        first, second, *cells = [cell.strip() for cell in line.split(separator)] + ["", ""]
        value = next((float(cell) for cell in cells if _is_number(cell)), None)
        if value is not None and first and second:
            found.append(Judged(first, second, value))
        elif line.strip() and number > 1:
            hint = "a line has two words and a number, between tabs, commas or blanks"
            raise DataError("the line has no judgement", where=file.where(number), hint=hint)
    if len(found) < 2:
        raise DataError("there are no judged pairs in it", where=file.name, hint="two at least")
    return found


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).removeprefix("-").isdecimal()


def _agreement(vocabulary: Vocabulary, judged: Sequence[Judged]) -> SimilarityScore:
    vectors = _vectors_of_known(vocabulary, {word for one in judged for word in one[:2]})
    known = [one for one in judged if one.first in vectors and one.second in vectors]
    if len(known) < 2:
        what = "the model knows the words of fewer than two pairs"
        raise DataError(what, where="--similarity", hint="are they of the same language?")
    cosines = np.array([float(vectors[one.first] @ vectors[one.second]) for one in known])
    values = np.array([one.value for one in known])
    return SimilarityScore(spearman(values, cosines), len(known), len(judged) - len(known))


# The map


def _map(
    vocabulary: Vocabulary,
    words: Sequence[str],
    neighbours: Sequence[Sequence[Neighbour]],
    analogies: Sequence[tuple[str, ...]],
    answers: Sequence[Sequence[Neighbour]],
) -> Points | None:
    """The words with some neighbours, and each analogy as two lines that should be parallel."""
    groups = dict[str, int]()
    for group, word in enumerate(words):
        groups[word] = group
    for group, near in enumerate(neighbours):
        for other in near[:MAPPED_NEIGHBOURS]:
            groups.setdefault(other.word, group)
    lines = []
    for analogy, found in zip(analogies, answers, strict=True):
        whole = [*analogy, *(near.word for near in found[:1])]
        for word in whole:
            groups.setdefault(word, len(words))
        if len(whole) == 4:
            lines += [(whole[0], whole[1]), (whole[2], whole[3])]
    if len(groups) < 3:
        return None
    labels = [*groups]
    vectors = np.stack([*_vectors_of_known(vocabulary, groups.keys() & {*labels}).values()])
    order = sorted(labels)
    places = {word: row for row, word in enumerate(order)}
    x, y = plane(vectors)[[places[word] for word in labels]].T.round(4).tolist()
    joined = [(labels.index(first), labels.index(last)) for first, last in lines]
    return Points(labels, x, y, [*groups.values()], joined)


def plane(vectors: Vectors) -> NDArray[np.float64]:
    """The first two principal components of some vectors, [P, 2]; the signs are chosen so that the
    largest number of each is positive."""
    centred = vectors.astype(np.float64) - vectors.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    found = centred @ directions[:2].T
    signs = np.sign(found[np.abs(found).argmax(0), [0, 1]])
    return np.asarray(found * np.where(signs == 0, 1, signs))
