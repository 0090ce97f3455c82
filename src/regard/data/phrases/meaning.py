"""What a sentence means, before any language says it: the grammar draws it, three languages write it.

Nouns carry a letter for their kind, and verbs and adjectives name the kinds they go with, so that letters are read and
soup is eaten:

    E elder   P adult   C child   N a person's name   A animal   F fruit and vegetables   K what is baked or made
    M meals, Q other food and D drinks, which are not counted   T text   O object   U tool   W clothes   B what opens
    V vehicle   H building   Y way   J subject to learn   S song
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from regard.data.phrases.korean import Stem

Tense = Literal["past", "present", "progressive", "was", "future"]
"""ate, eats, is eating, was eating, will eat."""
Link = Literal["because", "when", "although"]
Joint = Literal["and", "but"]
Determiner = Literal[
    "", "the", "a", "this", "that", "my", "our", "mass", "some", "many", "two", "three", "four", "five"
]
"""`mass` is some of what is not counted (du pain), `some` is several (des pommes)."""
Question = Literal["", "whether", "what", "where", "when", "why"]

PEOPLE = "EPCN"
PLURAL = frozenset(("some", "many", "two", "three", "four", "five"))


class Noun(NamedTuple):
    kind: str
    english: str
    plural: str
    korean: str
    counter: str
    french: str
    feminine: bool


class Adjective(NamedTuple):
    kinds: str
    english: str
    korean: Stem
    french: str
    feminine: str
    before: bool
    """Whether French puts it before its noun."""


class Adverb(NamedTuple):
    english: str
    korean: str
    french: str


class Verb(NamedTuple):
    frame: str
    """'' | object | to (motion) | in (stays somewhere) | give | is (adjective) | at (is somewhere) | weather."""
    subjects: str
    objects: str
    english: tuple[str, str, str, str]
    """eat, eats, ate, eating."""
    korean: Stem
    elder: Stem
    """What elders do instead: 드시다 for 먹다."""
    french: str
    state: bool
    """Whether it lasts, so that it has no progressive and French tells its past in the imparfait."""
    particle: str = "에서"
    """What Korean puts on the place: 에서 where something is done, 에 and 으로 where it leads."""


class Place(NamedTuple):
    english: str
    """The noun with its article: 'the park', 'Seoul'."""
    preposition: str
    """in or at."""
    korean: str
    french: str
    feminine: bool
    """Of a city's name: no article."""
    french_preposition: str


class Phrase(NamedTuple):
    """A noun with what belongs to it."""

    noun: Noun
    determiner: Determiner = "the"
    plural: bool = False
    adjective: Adjective | None = None
    owner: Noun | None = None
    relative: Relative | None = None


class Pronoun(NamedTuple):
    """I, we, you, he, she, they, or a pronoun that stands for a phrase (and then is dropped in Korean)."""

    word: Literal["I", "we", "you", "he", "she", "they", "it"]
    antecedent: Phrase | None = None


Subject = Phrase | Pronoun


@dataclass(slots=True)
class Clause:
    """Who does what to whom, where, when and how. The grammar fills it in; from then on it does not change."""

    subject: Subject | None
    verb: Verb
    tense: Tense
    negative: bool = False
    object: Phrase | None = None
    recipient: Phrase | None = None
    companion: Phrase | None = None
    place: Place | None = None
    vehicle: Adverb | None = None
    adjective: Adjective | None = None
    degree: Adverb | None = None
    often: Adverb | None = None
    manner: Adverb | None = None
    time: Adverb | None = None
    question: Question = ""


class Relative(NamedTuple):
    """A clause that says which one is meant: its gap is the subject (who ate the bread) or the object (that I ate)."""

    clause: Clause
    gap: Literal["subject", "object"]


class Unit(NamedTuple):
    """A main clause, and one that depends on it."""

    main: Clause
    link: Link | None = None
    dependent: Clause | None = None
    front: bool = False
    """Whether the dependent clause comes first in English and French; in Korean it always does."""


class Sentence(NamedTuple):
    """One unit, or several with and / but between them."""

    units: tuple[Unit, ...]
    joints: tuple[Joint, ...] = ()


def is_plural(phrase: Phrase) -> bool:
    return phrase.plural or phrase.determiner in PLURAL
