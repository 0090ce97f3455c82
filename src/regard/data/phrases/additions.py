"""What is added to a bare clause as long as there is room: adjectives, adverbs, places, relative clauses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from regard.data.draws import pick
from regard.data.phrases import words
from regard.data.phrases.english import phrase_words
from regard.data.phrases.meaning import PEOPLE, Adverb, Clause, Phrase, Relative, Tense
from regard.data.phrases.nouns import kind_of, nouns_in, object_of, someone_else, verbs_for, verbs_of

MOODS = frozenset(("happy", "sad", "busy", "tired", "sick", "hungry"))
"""What someone is for a time."""
MOMENTS = frozenset(("see", "hear", "meet", "find", "lose", "forget", "break"))
"""What is not said to be going on."""
UNHURRIED = frozenset(("cry", "laugh", "sleep", "wait", *MOMENTS))
"""What is not done quickly or carefully."""
PAST: tuple[Tense, ...] = ("past",)
RELATIVE_TENSES: tuple[Tense, ...] = ("past", "past", "present", "was")


def fill(random: Random, clause: Clause, room: int) -> int:
    """Add to the clause in random order, until nothing more fits; how many words are still free then."""
    number, stride = int(random.random() * len(ADDITIONS)), pick(random, STRIDES)
    for _ in ADDITIONS:
        if room <= 0:
            break
        number = (number + stride) % len(ADDITIONS)
        least, add = ADDITIONS[number]
        if room >= least:
            room -= add(random, clause, room)
    return room


# Each adds at most `room` words to the clause and returns how many: 0 when it cannot be said of this clause


def _subject_adjective(random: Random, clause: Clause, _: int) -> int:
    subject = clause.subject
    if not isinstance(subject, Phrase) or clause.adjective:
        return 0
    found = words.adjectives(subject.noun.kind)
    if not found:
        return 0
    clause.subject = subject._replace(adjective=pick(random, found))
    return 1


def _object_adjective(random: Random, clause: Clause, _: int) -> int:
    found = words.adjectives(clause.object.noun.kind) if clause.object else ()
    if not clause.object or not found:
        return 0
    clause.object = clause.object._replace(adjective=pick(random, found))
    return 1


def _owner(random: Random, clause: Clause, _: int) -> int:
    """the book -> the teacher's book."""
    phrase = clause.object
    if phrase is None or phrase.relative or phrase.determiner not in ("the", "a") or phrase.noun.kind not in "TOUWV":
        return 0
    owner = pick(random, words.nouns("EPC"))
    if owner in nouns_in(clause):
        return 0
    clause.object = phrase._replace(determiner="the", owner=owner)
    return 1


def _often(random: Random, clause: Clause, _: int) -> int:
    if clause.negative or clause.verb.state or clause.tense not in ("past", "present") or clause.time:
        return 0
    clause.often = pick(random, words.adverbs("OFTEN"))
    return 1


def _manner(random: Random, clause: Clause, _: int) -> int:
    verb = clause.verb
    if verb.state or verb.frame not in ("", "object", "to") or verb.english[0] in UNHURRIED:
        return 0
    if clause.vehicle or _closed(clause):
        return 0
    clause.manner = pick(random, words.adverbs("MANNERS"))
    return 1


def _degree(random: Random, clause: Clause, _: int) -> int:
    if not clause.adjective or clause.negative:
        return 0
    clause.degree = pick(random, words.adverbs("DEGREES"))
    return 1


def _time(random: Random, clause: Clause, room: int) -> int:
    lasting = clause.verb.state and clause.verb.frame != "at"
    if clause.often or _closed(clause) or (lasting and not (clause.adjective and clause.adjective.english in MOODS)):
        return 0
    found = times_within(clause.tense, min(room, 3))
    if not found:
        return 0
    clause.time = pick(random, found)
    return clause.time.english.count(" ") + 1


@cache
def times_within(tense: Tense, most: int) -> tuple[Adverb, ...]:
    """The time phrases of a tense that have at most so many words."""
    return tuple(time for time in words.times(tense) if time.english.count(" ") < most)


def _place(random: Random, clause: Clause, _: int) -> int:
    if clause.place or clause.adjective or clause.verb.state or _closed(clause):
        return 0
    clause.place = pick(random, words.places())
    return clause.place.english.count(" ") + 2


def _companion(random: Random, clause: Clause, _: int) -> int:
    if clause.verb.frame not in ("", "object", "to") or clause.verb.state or _closed(clause):
        return 0
    clause.companion = someone_else(random, clause)
    return 3 if clause.companion.determiner else 2


def _vehicle(random: Random, clause: Clause, _: int) -> int:
    if clause.verb.frame != "to" or clause.manner or not clause.subject or kind_of(clause.subject) == "A":
        return 0
    clause.vehicle = pick(random, words.adverbs("VEHICLES"))
    return 2


def _subject_relative(random: Random, clause: Clause, room: int) -> int:
    """the girl -> the girl who bought the book."""
    subject = clause.subject
    if not isinstance(subject, Phrase) or subject.noun.kind not in "EPC":
        return 0
    verb = pick(random, verbs_for("object", subject.noun.kind))
    tense = pick(random, PAST if verb.english[0] in MOMENTS else RELATIVE_TENSES)
    inner = Clause(subject._replace(adjective=None), verb, tense)
    inner.object = object_of(random, verb, inner)
    longer = subject._replace(relative=Relative(inner, "subject"))
    added = len(phrase_words(longer)) - len(phrase_words(subject))
    if added > room:
        return 0
    clause.subject = longer
    return added


def _closed(clause: Clause) -> bool:
    """Whether what comes next would be taken for a part of the object's relative clause."""
    return clause.object is not None and clause.object.relative is not None


def _object_relative(random: Random, clause: Clause, room: int) -> int:
    """the book -> the book that the girl bought."""
    phrase = clause.object
    if clause.recipient or clause.manner or clause.companion or clause.place or clause.time:
        return 0
    if phrase is None or phrase.owner or phrase.determiner not in ("the", "a") or not verbs_of(phrase.noun.kind):
        return 0
    verb = pick(random, verbs_of(phrase.noun.kind))
    person = pick(random, words.nouns(people_in(verb.subjects)))
    added = 3 if person.kind == "N" else 4
    if added > room or person in nouns_in(clause):
        return 0
    inner = Clause(Phrase(person, "" if person.kind == "N" else "the"), verb, "past")
    clause.object = phrase._replace(determiner="the", relative=Relative(inner, "object"))
    return added


@cache
def people_in(kinds: str) -> str:
    return "".join(kind for kind in kinds if kind in PEOPLE)


ADDITIONS: tuple[tuple[int, Callable[[Random, Clause, int], int]], ...] = (
    (1, _subject_adjective),
    (1, _object_adjective),
    (1, _owner),
    (1, _often),
    (1, _manner),
    (1, _degree),
    (1, _time),
    (3, _place),
    (3, _companion),
    (2, _vehicle),
    (4, _subject_relative),
    (3, _object_relative),
)
"""How much room each needs at the least, and how it is added."""
STRIDES = (1, 5, 7, 11)
"""Each goes through all of the additions, for none divides their number: an order from two draws instead of twelve."""
