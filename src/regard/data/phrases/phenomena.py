"""Sentences for experiments: pronouns whose antecedent is known, and Korean homonyms that their sentence explains."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Literal, NamedTuple

from regard.data.draws import pick
from regard.data.phrases import english, words
from regard.data.phrases.additions import times_within
from regard.data.phrases.korean import Stem, particle
from regard.data.phrases.korean_sentences import unit_text
from regard.data.phrases.meaning import Adjective, Clause, Noun, Phrase, Pronoun, Tense, Unit, Verb
from regard.data.phrases.nouns import ANYONES, someone

TENSES: tuple[Tense, ...] = ("past", "past", "present")


class Mark(NamedTuple):
    """A unit, and what is to be known about it; it stands first in its sentence, so that its positions hold there."""

    unit: Unit
    phenomenon: Literal["pronoun", "homonym"]
    position: int
    refers_to: int
    meaning: str


# The animal did not cross the street because it was too tired / too wide

# subjects | verb | objects | what the subject is | what the object is
SCENES = """
dog cat rabbit bear cow pig duck tiger monkey lion fox mouse elephant turtle frog | cross \
| street bridge river field | tired hungry weak sick lazy | wide dangerous narrow long
dog cat rabbit bear cow pig duck monkey fox mouse elephant turtle frog | eat \
| apple banana peach carrot potato tomato mushroom cake | tired sick full | hot cold hard salty
truck car bicycle | cross | bridge river field street | heavy slow big | narrow dangerous wide long
ball box | break | window door | heavy hard big | weak thin
monkey bear cat mouse fox turtle | climb | wall tower | tired weak sick lazy | high dangerous slippery
cow elephant dog bear | carry | box bag table chair lamp | weak sick tired | heavy big
dog cat fox monkey mouse | find | ball key ring toy cup | tired slow sick | small light
"""

# of those adjectives, the ones that the lexicon does not have: Korean, its class | French
MORE_ADJECTIVES = """
weak | 약하다 | faible faible
lazy | 게으르다 르 | paresseux paresseuse
full | 배부르다 르 | rassasié rassasiée
hard | 단단하다 | dur dure
salty | 짜다 | salé salée
slow | 느리다 | lent lente
thin | 얇다 | mince mince
slippery | 미끄럽다 ㅂ | glissant glissante
"""
CLIMB = Verb("object", "A", "H", ("climb", "climbs", "climbed", "climbing"), Stem("오르", "르"), Stem("오르", "르"),
             "escalader", False)  # fmt: skip


class Scene(NamedTuple):
    subjects: tuple[Noun, ...]
    verb: Verb
    objects: tuple[Noun, ...]
    of_subject: tuple[Adjective, ...]
    of_object: tuple[Adjective, ...]


@cache
def adjective(name: str) -> Adjective:
    """An adjective of the lexicon by its English name, or one of these scenes."""
    for row in MORE_ADJECTIVES.strip().splitlines():
        word, korean, french = row.split(" | ")
        if word == name:
            masculine, feminine = french.split(" ")
            return Adjective("", word, words.stem(korean, True), masculine, feminine, False)
    return next(found for kind in "PCAFMTOVHY" for found in words.adjectives(kind) if found.english == name)


@cache
def scenes() -> tuple[Scene, ...]:
    found = []
    for row in SCENES.strip().splitlines():
        subjects, base, objects, of_subject, of_object = (part.split() for part in row.split("|"))
        verb = CLIMB if base == ["climb"] else words.verb(base[0])
        nouns = [tuple(words.noun(name) for name in names) for names in (subjects, objects)]
        adjectives = [tuple(adjective(name) for name in names) for names in (of_subject, of_object)]
        found.append(Scene(nouns[0], verb, nouns[1], *adjectives))
    return tuple(found)


def pronoun(random: Random) -> Mark:
    """A scene where only the adjective tells what `it` is: the one who acts, or what it would have been done to."""
    scene = pick(random, scenes())
    subject = Phrase(pick(random, scene.subjects), pick(random, ("the", "the", *ANYONES)))
    thing = Phrase(pick(random, scene.objects))
    of_subject = random.random() < 0.5
    antecedent = subject if of_subject else thing
    said = pick(random, scene.of_subject if of_subject else scene.of_object)
    tense = pick(random, TENSES)
    main = Clause(subject, scene.verb, tense, scene.verb.english[0] != "break", thing)
    before = english.clause_words(main)
    refers_to = before.index(subject.noun.english) if of_subject else len(before) - 1
    if random.random() < 0.3:
        main.time = pick(random, times_within(tense, 3))
    degree = pick(random, words.adverbs("DEGREES"))
    dependent = Clause(Pronoun("it", antecedent), words.IS, tense, adjective=said, degree=degree)
    position = len(english.clause_words(main)) + 1
    return Mark(Unit(main, "because", dependent), "pronoun", position, refers_to, antecedent.noun.english)


# 배: a pear that is eaten, a ship that is boarded, a belly that is touched

# Korean | English (plural) | kind, whether it is somebody's (+) | verbs of the lexicon | verbs of its own
HOMONYMS = """
배 | pear pears | F - | eat buy wash cut sell | peel peels peeled peeling = 깎다
배 | ship ships | V - | repair | board boards boarded boarding = 타다, steer steers steered steering = 몰다
배 | belly bellies | B + | | touch touches touched touching = 만지다, rub rubs rubbed rubbing = 문지르다 르
사과 | apple apples | F - | eat buy wash cut sell | peel peels peeled peeling = 깎다
사과 | apology apologies | T + | | accept accepts accepted accepting = 받아들이다, \
demand demands demanded demanding = 요구하다, refuse refuses refused refusing = 거절하다
눈 | eye eyes | B + | | cover covers covered covering = 가리다, examine examines examined examining = 검사하다
눈 | snow snow | M - | | clear clears cleared clearing = 치우다, melt melts melted melting = 녹이다, \
shovel shovels shoveled shoveling = 퍼내다
말 | horse horses | A - | | ride rides rode riding = 타다, raise raises raised raising = 기르다 르, \
tame tames tamed taming = 길들이다
말 | word words | T + | | believe believes believed believing = 믿다, \
understand understands understood understanding = 이해하다, repeat repeats repeated repeating = 따라 하다
밤 | night nights | J - | | fear fears feared fearing = 무서워하다, spend spends spent spending = 보내다
밤 | chestnut chestnuts | F - | eat buy wash sell | roast roasts roasted roasting = 굽다 ㅂ, \
peel peels peeled peeling = 까다
"""


class Homonym(NamedTuple):
    noun: Noun
    owned: bool
    verbs: tuple[Verb, ...]


@cache
def homonyms() -> tuple[Homonym, ...]:
    found = []
    for row in HOMONYMS.strip().splitlines():
        korean, names, kind, known, own = (part.strip() for part in row.split("|"))
        singular, plural = names.split(" ")
        noun = Noun(kind[0], singular, plural, korean, {"A": "마리", "V": "척"}.get(kind[0], "개"), "", False)
        verbs = [words.verb(base) for base in known.split()]
        for entry in own.split(", "):
            forms, _, stem = entry.partition(" = ")
            base, third, past, ing = forms.split(" ")
            verbs.append(
                Verb("object", "EPCN", "", (base, third, past, ing), words.stem(stem), words.stem(stem), "", False)
            )
        found.append(Homonym(noun, kind[-1] == "+", tuple(verbs)))
    return tuple(found)


def homonym(random: Random) -> Mark:
    """A sentence whose verb, and whose owner, tell which of the homonyms it is."""
    noun, owned, verbs = pick(random, homonyms())
    subject = someone(random, 12, "object")
    tense = pick(random, TENSES)
    phrase = Phrase(noun, "the", noun.english in ("eye", "word"))
    if owned:
        phrase = phrase._replace(owner=pick(random, words.nouns("PC")))
    elif noun.kind in "FVA":
        phrase = phrase._replace(determiner=pick(random, ("the", "a", "this", "that")))
    clause = Clause(subject, pick(random, verbs), tense, random.random() < 0.15, phrase)
    if noun.english != "ship" and random.random() < 0.5:
        clause.place = pick(random, words.places())
    if noun.english != "night" and random.random() < 0.4:
        clause.time = pick(random, times_within(tense, 3))
    unit = Unit(clause)
    said = noun.plural if phrase.plural else noun.english
    position = unit_text(unit, "요").split(" ").index(particle(noun.korean, "을"))
    return Mark(unit, "homonym", position, english.clause_words(clause).index(said), noun.english)
