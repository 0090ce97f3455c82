"""Short tales in English or Korean that the package writes: raw text to try pre-training on.

A tale has its own people, places and things, and tells of them sentence after sentence. So whether one sentence belongs
after another can be learned, and so can the words that a gap must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal

from regard.data.corpora import Part, part_of
from regard.data.draws import pick
from regard.data.phrases import english, korean_sentences, words
from regard.data.phrases.grammar import draw_clause
from regard.data.phrases.meaning import Clause, Noun, Phrase, Place, Sentence, Subject, Tense, Unit
from regard.data.phrases.nouns import pronoun_for

Tales = Literal["tales-en", "tales-ko"]
WRITERS: dict[str, Callable[[Sentence], str]] = {"tales-en": english.write, "tales-ko": korean_sentences.write}
SIZES: dict[Part, int] = {"train": 5_000, "validation": 200, "test": 200}
"""How many tales a part has when the recipe does not say."""
VERSION = 1
"""Counts up when the tales change, so that no cache goes on with the old ones."""
SENTENCES = range(4, 10)
BUDGETS = range(4, 10)
"""English words of a sentence, about."""
FRAMES = ("object",) * 5 + ("to",) * 3 + ("", "in", "at", "is", "give")
THINGS = "FKTOUWBVS"


@dataclass(frozen=True)
class Cast:
    """Who and what a tale is about."""

    people: tuple[Phrase, Phrase]
    places: tuple[Place, Place]
    things: tuple[Noun, ...]


def generate(name: Tales, size: int | None, seed: int, part: Part) -> Iterator[str]:
    """The tales of one part, each one a line; no tale stands in two parts, and a longer part begins with a shorter."""
    random = Random(f"{name}:{seed}:{part}")
    tales = (" ".join(WRITERS[name](sentence) for sentence in draw(random)) for _ in iter(int, 1))
    own = (tale for tale in tales if part_of(tale) == part)
    return islice(own, SIZES[part] if size is None else size)


def draw(random: Random) -> list[Sentence]:
    """The sentences of one tale, in their order."""
    cast = _cast(random)
    told: list[Sentence] = []
    before: Phrase | None = None
    for number in range(pick(random, SENTENCES)):
        person = cast.people[0] if number == 0 else cast.people[int(random.random() * 3) // 2]
        again = person == before and random.random() < 0.5
        told.append(Sentence((Unit(_clause(random, cast, person, pronoun_for(person) if again else person)),)))
        before = person
    return told


def _cast(random: Random) -> Cast:
    first, second = _someone(random), _someone(random)
    while second.noun == first.noun:
        second = _someone(random)
    places = pick(random, words.places()), pick(random, words.places())
    return Cast((first, second), places, tuple(pick(random, words.nouns(THINGS)) for _ in range(3)))


def _someone(random: Random) -> Phrase:
    noun = pick(random, words.nouns(pick(random, ("N", "EPC", "A"))))
    return Phrase(noun, "" if noun.kind == "N" else "my" if noun.kind == "E" else "the")


def _clause(random: Random, cast: Cast, person: Phrase, subject: Subject) -> Clause:
    """What someone does, with the places and things of this tale wherever the words allow it."""
    tense: Tense = "was" if random.random() < 0.2 else "past"
    clause, _ = draw_clause(random, pick(random, BUDGETS), tense, subject, pick(random, FRAMES))
    if clause.place is not None:
        clause.place = cast.places[int(random.random() * 2)]
    fitting = [noun for noun in cast.things if noun.kind in clause.verb.objects]
    if clause.object is not None and fitting:
        clause.object = Phrase(pick(random, fitting), "the")
    other = cast.people[0] if person == cast.people[1] else cast.people[1]
    if clause.recipient is not None and other.noun.kind != "A":
        clause.recipient = other
    if clause.companion is not None:
        clause.companion = other
    return clause
