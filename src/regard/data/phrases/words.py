"""The tables of lexicon.py and actions.py as words, by what they can be drawn for."""

from __future__ import annotations

from functools import cache

from regard.data.phrases import actions, lexicon
from regard.data.phrases.korean import Stem
from regard.data.phrases.korean import verb as stem_of
from regard.data.phrases.meaning import Adjective, Adverb, Noun, Place, Tense, Verb


def _rows(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().splitlines()]


def stem(text: str, descriptive: bool = False) -> Stem:
    """A dictionary form and its irregular class: '걷다 ㄷ'."""
    *words, last = text.split(" ")
    if last.endswith("다"):
        return stem_of(text, "", descriptive)
    return stem_of(" ".join(words), last, descriptive)  # type: ignore[arg-type]


@cache
def nouns(kinds: str) -> tuple[Noun, ...]:
    """The nouns of some kinds."""
    return tuple(noun for noun in _nouns() if noun.kind in kinds)


@cache
def _nouns() -> tuple[Noun, ...]:
    found = []
    for english, korean, french in _rows(lexicon.NOUNS):
        kind, word = english.split(" ")
        singular, _, plural = word.partition("/")
        korean_word, counter = korean.split(" ")
        french_word, gender = french.rsplit(" ", 1)
        found.append(Noun(kind, singular, plural or singular + "s", korean_word, counter, french_word, gender == "f"))
    return tuple(found)


def noun(english: str) -> Noun:
    """The noun of that English name."""
    return next(noun for noun in _nouns() if noun.english == english)


@cache
def adjectives(kind: str, predicate: bool = False) -> tuple[Adjective, ...]:
    """The adjectives that go with a kind of noun, before it or after `is`."""
    found = []
    for english, korean, french, position in _rows(lexicon.ADJECTIVES):
        kinds, word = english.split(" ")
        if kind in kinds and not (predicate and word in ("old", "new")):  # Korean says these only before a noun
            masculine, feminine = french.split(" ")
            found.append(Adjective(kinds, word, stem(korean, True), masculine, feminine, position == "-"))
    return tuple(found)


@cache
def adverbs(table: str) -> tuple[Adverb, ...]:
    """OFTEN, MANNERS, VEHICLES or DEGREES."""
    return tuple(Adverb(*row) for row in _rows(getattr(actions, table)))


@cache
def times(tense: Tense) -> tuple[Adverb, ...]:
    return tuple(Adverb(*row) for row in _rows(actions.TIMES[tense]))


@cache
def places() -> tuple[Place, ...]:
    found = []
    for english, korean, french in _rows(actions.PLACES):
        preposition, word = english.split(" ")
        french_word, gender, french_preposition = french.split(" ")
        name = word if gender == "-" else f"the {word}"
        found.append(Place(name, preposition, korean, french_word, gender == "f", french_preposition))
    return tuple(found)


_FRAMES = {
    "object": actions.OBJECT_VERBS,
    "state": actions.STATES,
    "": actions.ACTIVITIES,
    "give": actions.GIFTS,
    "to": actions.MOTIONS,
    "in": actions.STAYS,
}


@cache
def verbs(frame: str) -> tuple[Verb, ...]:
    """The verbs of a frame."""
    found = []
    for head, korean, french in _rows(_FRAMES[frame]):
        kinds, english = head.split(": ")
        subjects, _, objects = kinds.partition(" ")
        base, third, past, ing = english.split(" ")
        plain, _, elder = korean.partition(" ; ")
        plain_stem = stem(plain)
        respectful = Stem(elder.removesuffix("다"), "시") if elder else plain_stem
        forms = (base, third, past, ing)
        if frame in ("to", "in"):  # their tables have the particle of the place where others have objects
            found.append(Verb(frame, subjects, "", forms, plain_stem, respectful, french, base == "live", objects))
        else:
            kind, state = ("object", True) if frame == "state" else (frame, False)
            found.append(Verb(kind, subjects, objects, forms, plain_stem, respectful, french, state))
    return tuple(found)


def verb(english: str) -> Verb:
    """The verb with an object of that English name."""
    return next(verb for verb in verbs("object") if verb.english[0] == english)


def _verb(frame: str, english: tuple[str, str, str, str], korean: Stem, elder: Stem, french: str, state: bool) -> Verb:
    return Verb(frame, "EPCNA", "", english, korean, elder, french, state, "에")


BE = ("be", "is", "was", "being")
IS = _verb("is", BE, Stem("", "", True), Stem("", "", True), "être", True)
"""Is + adjective: Korean conjugates the adjective itself."""
AT = _verb("at", BE, Stem("있"), Stem("계시", "시"), "être", True)
RAIN = _verb("weather", ("rain", "rains", "rained", "raining"), Stem("비가 오"), Stem("비가 오"), "pleuvoir", False)
SNOW = _verb("weather", ("snow", "snows", "snowed", "snowing"), Stem("눈이 오"), Stem("눈이 오"), "neiger", False)
