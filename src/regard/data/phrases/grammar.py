"""Drawing a meaning of about as many English words as asked for.

A sentence of n words is planned as clauses that share the n words between them. Each clause is drawn bare and then
given what still fits: an adjective, an adverb, a place, a relative clause. What misses the range is drawn again.
"""

from __future__ import annotations

from functools import cache
from random import Random

from regard.data.draws import pick
from regard.data.phrases import words
from regard.data.phrases.additions import MOMENTS, MOODS, fill
from regard.data.phrases.english import clause_words, unit_words
from regard.data.phrases.meaning import (
    PEOPLE,
    Adjective,
    Clause,
    Joint,
    Link,
    Phrase,
    Pronoun,
    Question,
    Sentence,
    Subject,
    Tense,
    Unit,
)
from regard.data.phrases.nouns import (
    described,
    kind_of,
    nouns_in,
    object_of,
    pronoun_for,
    someone,
    someone_else,
    something,
    verbs_for,
)

TENSES: dict[str, tuple[Tense, ...]] = {
    "past": ("past", "past", "past", "was"),
    "present": ("present", "present", "progressive"),
    "future": ("future",),
}
"""The tenses of a sentence's clauses, by when it plays."""
FRAMES = ("object",) * 9 + ("state",) + ("",) * 4 + ("give",) * 2 + ("to",) * 3 + ("in", "at") + ("is",) * 3
SHORT_FRAMES = ("", "is", "object")
SCENES = ("object", "to", "")
"""What someone does at one time, so that a clause with `when` can tell it."""
LINKS: tuple[Link, ...] = ("because", "when", "although")
FUTURE_LINKS: tuple[Link, ...] = ("because", "although")
WEATHER = (words.RAIN, words.SNOW)
QUESTIONS: tuple[Question, ...] = ("whether", "whether", "what", "where", "when", "why")
ASKABLE: dict[Question, tuple[str, ...]] = {
    "whether": FRAMES,
    "why": ("object", "to", "", "is"),
    "what": ("object",),
    "where": ("object", "to", "", "in", "at"),
    "when": ("object", "to", "give", ""),
}
"""The frames in which each question can be asked."""


def draw(random: Random, length: int, first: Unit | None = None) -> Sentence:
    """A sentence of about `length` English words; it begins with the unit that is given."""
    if first is None and length <= 12 and random.random() < 0.12:
        return Sentence((Unit(_question(random, length)),))
    playing = "past" if first else pick(random, ("past", "past", "present", "future"))
    units = [first] if first else []
    left = length - (len(unit_words(first)) + 1 if first else 0)
    clauses = max(round(left / (5 + 5 * random.random())), 0 if left < 3 and first else 1)
    while clauses > 0:
        linked = clauses > 1 and random.random() < 0.6
        main, size = draw_clause(random, round(left / clauses), pick(random, TENSES[playing]))
        unit, left, clauses = Unit(main), left - size - 1, clauses - 1
        if linked:
            unit, size = _linked(random, main, round(left / clauses))
            left, clauses = left - size - 1, clauses - 1
        units.append(unit)
    return Sentence(tuple(units), _joints(random, len(units) - 1))


def _joints(random: Random, count: int) -> tuple[Joint, ...]:
    """and, and at the most one but."""
    turn = int(random.random() * 2 * count)
    return tuple("but" if number == turn else "and" for number in range(count))


def _linked(random: Random, main: Clause, budget: int) -> tuple[Unit, int]:
    """The main clause with one that depends on it, about the same subject or another, and the words of that one."""
    link = pick(random, FUTURE_LINKS if main.tense == "future" else LINKS)
    frame = pick(random, SCENES) if link == "when" else None
    tense: Tense = "past" if main.tense in ("past", "was") else "present"
    share = random.random()
    if share < 0.08:
        return Unit(main, link, Clause(None, pick(random, WEATHER), tense), front=share < 0.04), 2
    if share < 0.5 and isinstance(main.subject, Phrase):
        dependent, size = draw_clause(random, budget, tense, pronoun_for(main.subject), frame)
        return Unit(main, link, dependent), size
    dependent, size = draw_clause(random, budget, tense, None, frame)
    while _same(dependent.subject, main):
        dependent, size = draw_clause(random, budget, tense, None, frame)
    return Unit(main, link, dependent, front=share > 0.8), size


def _same(subject: Subject | None, main: Clause) -> bool:
    """Whether the subject stands in the main clause already, so that a pronoun should stand for it."""
    return subject.noun in nouns_in(main) if isinstance(subject, Phrase) else subject == main.subject


def _question(random: Random, length: int) -> Clause:
    """Whether, what, where, when or why."""
    tense = pick(random, TENSES[pick(random, ("past", "past", "present", "future"))])
    subject = Pronoun("you") if random.random() < 0.5 else described(random, pick(random, words.nouns("PC")))
    kind = pick(random, QUESTIONS)
    clause, _ = draw_clause(random, length - (kind != "whether"), tense, subject, pick(random, ASKABLE[kind]))
    if kind == "what" and clause.object and clause.object.noun.kind in PEOPLE:
        kind = "whether"
    clause.question, clause.often = kind, None
    clause.negative = clause.negative and kind in ("whether", "why")
    if kind == "what":
        clause.object = clause.manner = None
    elif kind == "where":
        clause.place = None
    elif kind == "when":
        clause.time = None
    return clause


# Clauses


def draw_clause(
    random: Random, budget: int, tense: Tense, subject: Subject | None = None, frame: str | None = None
) -> tuple[Clause, int]:
    """A clause of about `budget` words, and how many it has."""
    if frame is None:
        frame = pick(random, SHORT_FRAMES if budget <= 3 else FRAMES)
    if subject is None:
        thing = frame == "is" and tense != "future" and random.random() < 0.3
        subject = something(random) if thing else someone(random, budget, frame)
    kind = kind_of(subject)
    if frame not in ("is", "at") and not verbs_for(frame, kind):
        frame = "is"
    verb = words.IS if frame == "is" else words.AT if frame == "at" else pick(random, verbs_for(frame, kind))
    if tense in ("progressive", "was") and (verb.state or verb.english[0] in MOMENTS):
        tense = "present" if tense == "progressive" else "past"
    clause = Clause(subject, verb, tense, random.random() < 0.15)
    if frame == "is":
        clause.adjective = pick(random, moods(kind) if tense == "future" else words.adjectives(kind, True))
    elif frame in ("to", "in", "at"):
        clause.place = pick(random, words.places())
    elif frame in ("object", "state", "give"):
        clause.object = object_of(random, verb, clause)
        if frame == "give":
            clause.recipient = someone_else(random, clause)
    size = len(clause_words(clause))
    return clause, budget - fill(random, clause, budget - size) if size < budget else size


@cache
def moods(kind: str) -> tuple[Adjective, ...]:
    """What someone can be for a time: not young tomorrow, but tired."""
    return tuple(adjective for adjective in words.adjectives(kind, True) if adjective.english in MOODS)
