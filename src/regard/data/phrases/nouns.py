"""Drawing who and what a clause is about."""

from __future__ import annotations

from functools import cache
from random import Random

from regard.data.draws import pick
from regard.data.phrases import words
from regard.data.phrases.meaning import PEOPLE, Clause, Determiner, Noun, Phrase, Pronoun, Subject, Verb, is_plural

PRONOUNS: tuple[Pronoun, ...] = tuple(Pronoun(word) for word in ("I", "I", "we", "he", "she", "they"))
NUMBERS: tuple[Determiner, ...] = ("two", "three", "four", "five", "many")
ANYONES: tuple[Determiner, ...] = ("this", "that")
ONES_OWN: tuple[Determiner, ...] = ("this", "that", "my", "our")
THINGS = "FKTOUWBVHYS"
RELATED = frozenset(("neighbor", "aunt", "uncle", "friend", "cousin", "child", "baby", "doctor", "lawyer"))
"""The people of whom one says my and our."""


def pronoun_for(phrase: Phrase) -> Pronoun:
    """he, she, it or they, whichever stands for the phrase."""
    if is_plural(phrase):
        return Pronoun("they", phrase)
    if phrase.noun.kind in PEOPLE:
        return Pronoun("she" if phrase.noun.feminine else "he", phrase)
    return Pronoun("it", phrase)


def kind_of(subject: Subject) -> str:
    """The kind that verbs and adjectives must go with; of names and pronouns, an adult's."""
    phrase = subject.antecedent if isinstance(subject, Pronoun) else subject
    return phrase.noun.kind if phrase and phrase.noun.kind != "N" else "P"


def nouns_in(clause: Clause) -> list[Noun]:
    """Who and what stands in the clause already."""
    subject = clause.subject.antecedent if isinstance(clause.subject, Pronoun) else clause.subject
    return [phrase.noun for phrase in (subject, clause.object, clause.recipient, clause.companion) if phrase]


@cache
def verbs_for(frame: str, kind: str) -> tuple[Verb, ...]:
    """The verbs of a frame that a kind of subject does."""
    return tuple(verb for verb in words.verbs(frame) if kind in verb.subjects)


@cache
def verbs_of(kind: str) -> tuple[Verb, ...]:
    """The verbs that people do to a kind of thing."""
    return tuple(verb for verb in words.verbs("object") if kind in verb.objects and "P" in verb.subjects)


def someone(random: Random, budget: int, frame: str) -> Subject:
    """A person, and now and then an animal; in a short clause a name or a pronoun."""
    share = random.random()
    if share < 0.15 or (budget <= 4 and share < 0.6):
        return pick(random, PRONOUNS)
    if share < 0.25 or budget <= 4:
        return Phrase(pick(random, words.nouns("N")), "")
    animal = frame in ("", "to", "is", "at") and share > 0.85
    noun = pick(random, words.nouns("A" if animal else "E" if share < 0.4 else "PC"))
    if noun.kind == "E":
        return Phrase(noun, "my" if random.random() < 0.5 else "the")
    return described(random, noun)


def something(random: Random) -> Phrase:
    return described(random, pick(random, words.nouns(THINGS)))


def described(random: Random, noun: Noun) -> Phrase:
    """the, this, that, my or a number of what can be counted."""
    share = random.random()
    if share < 0.12:
        return Phrase(noun, pick(random, NUMBERS))
    own = noun.kind not in "PCA" or noun.english in RELATED
    determiner = "the" if share < 0.6 else pick(random, ONES_OWN if own else ANYONES)
    return Phrase(noun, determiner, random.random() < 0.2)


def someone_else(random: Random, clause: Clause) -> Phrase:
    """A person who does not stand in the clause yet."""
    noun = pick(random, words.nouns(PEOPLE))
    while noun in nouns_in(clause):
        noun = pick(random, words.nouns(PEOPLE))
    own = noun.kind == "E" or noun.english in RELATED
    return Phrase(noun, "" if noun.kind == "N" else "my" if own and random.random() < 0.4 else "the")


def object_of(random: Random, verb: Verb, clause: Clause) -> Phrase:
    """What the verb can be done to."""
    found = words.nouns(verb.objects)
    noun = pick(random, found)
    while noun in nouns_in(clause):
        noun = pick(random, found)
    if noun.kind in "NJ":
        return Phrase(noun, "")
    if noun.kind == "E":
        return Phrase(noun, "my")
    if noun.kind in "MQD":
        return Phrase(noun, "the" if random.random() < 0.3 else "mass")
    if verb.state or noun.kind in "PC" or random.random() < 0.5:
        return described(random, noun)
    return Phrase(noun, "some" if not clause.negative and random.random() < 0.2 else "a")
