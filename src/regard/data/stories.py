"""Stories in English or Korean that the package writes, with questions and the sentences that answer them.

People walk between places, take things and put them down. Every now and then a question is asked: where someone is, who
has a thing, how many things someone has, whether someone is somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from regard.data.corpora import Part, part_of
from regard.data.draws import pick
from regard.data.phrases.korean import particle

StoryCorpus = Literal["stories-en", "stories-ko"]
About = Literal["where", "who", "count", "yes_no"]
ABOUT: tuple[About, ...] = ("where", "who", "count", "yes_no")
"""What a question may be about."""
SIZES: dict[Part, int] = {"train": 4_000, "validation": 400, "test": 1_000}
"""How many questions a part has when the recipe does not say."""
VERSION = 1
"""Counts up when the stories change, so that no cache goes on with the old ones."""
QUESTIONS = 4
"""Asked of one story."""
EVENTS = range(2, 5)
"""What happens before the next question."""
MOST_HELD = 3


class Asked(NamedTuple):
    """A question about a story, and its answer."""

    line: int
    """Where it stands."""
    opening: str
    """How the story begins: what is told before its first question."""
    story: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the sentences that the answer rests on; None where that is not known."""


@dataclass(frozen=True)
class Language:
    """The words of the stories, and how sentences are made of them."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    things: tuple[str, ...]
    told: dict[str, tuple[Callable[[str, str], str], ...]]
    """Ways to say that a person goes to a place (`go`), takes a thing (`take`) or puts it down (`drop`)."""
    asked: dict[About, Callable[[str, str], str]]
    counts: tuple[str, ...]
    yes_no: tuple[str, str]
    nobody: str


ENGLISH = Language(
    people=("Mary", "John", "Sandra", "Daniel"),
    places=("kitchen", "garden", "office", "bathroom", "hallway", "bedroom"),
    things=("apple", "football", "milk", "book"),
    told={
        "go": (lambda a, b: f"{a} went to the {b}.", lambda a, b: f"{a} walked to the {b}."),
        "take": (lambda a, b: f"{a} took the {b}.", lambda a, b: f"{a} picked up the {b}."),
        "drop": (lambda a, b: f"{a} dropped the {b}.", lambda a, b: f"{a} put down the {b}."),
    },
    asked={
        "where": lambda a, b: f"Where is {a}?",
        "who": lambda a, b: f"Who has the {b}?",
        "count": lambda a, b: f"How many things does {a} have?",
        "yes_no": lambda a, b: f"Is {a} in the {b}?",
    },
    counts=("none", "one", "two", "three"),
    yes_no=("yes", "no"),
    nobody="nobody",
)
KOREAN = Language(
    people=("민수", "지영", "서준", "하은"),
    places=("부엌", "정원", "사무실", "욕실", "복도", "침실"),
    things=("사과", "공", "우유", "책"),
    told={
        "go": (
            lambda a, b: f"{particle(a, '이')} {particle(b, '으로')} 갔다.",
            lambda a, b: f"{particle(a, '이')} {particle(b, '으로')} 걸어갔다.",
        ),
        "take": (
            lambda a, b: f"{particle(a, '이')} {particle(b, '을')} 집었다.",
            lambda a, b: f"{particle(a, '이')} {particle(b, '을')} 들었다.",
        ),
        "drop": (
            lambda a, b: f"{particle(a, '이')} {particle(b, '을')} 내려놓았다.",
            lambda a, b: f"{particle(a, '이')} {particle(b, '을')} 떨어뜨렸다.",
        ),
    },
    asked={
        "where": lambda a, b: f"{particle(a, '은')} 어디에 있나요?",
        "who": lambda a, b: f"{particle(b, '은')} 누가 가지고 있나요?",
        "count": lambda a, b: f"{particle(a, '은')} 물건을 몇 개 가지고 있나요?",
        "yes_no": lambda a, b: f"{particle(a, '은')} {b}에 있나요?",
    },
    counts=("없음", "하나", "둘", "셋"),
    yes_no=("네", "아니요"),
    nobody="아무도",
)
LANGUAGES: dict[str, Language] = {"stories-en": ENGLISH, "stories-ko": KOREAN}


def generate(name: StoryCorpus, about: About | None, size: int | None, seed: int, part: Part) -> Iterator[Asked]:
    """The questions of one part; no story begins alike in two parts, and a longer part begins with the shorter one."""
    random = Random(f"{name}:{about}:{seed}:{part}")
    drawn = (one for _ in iter(int, 1) for one in _draw(random, LANGUAGES[name], about) if part_of(one.opening) == part)
    numbered = (one._replace(line=line) for line, one in enumerate(drawn, 1))
    return islice(numbered, SIZES[part] if size is None else size)


@dataclass
class _World:
    """What has happened, and which sentence told it."""

    language: Language
    told: list[str] = field(default_factory=list)
    place: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Where a person is, and the sentence that said so."""
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Who has a thing (`nobody`, once it was put down), likewise."""
    handled: dict[str, list[int]] = field(default_factory=dict)
    """The sentences in which a person took things or put them down."""

    def held(self, person: str) -> list[str]:
        return [thing for thing, (holder, _) in self.holder.items() if holder == person]

    def tell(self, random: Random, what: str, person: str, other: str) -> None:
        """Let something happen."""
        number = len(self.told)
        self.told.append(pick(random, self.language.told[what])(person, other))
        if what == "go":
            self.place[person] = other, number
            return
        self.holder[other] = (person if what == "take" else self.language.nobody), number
        self.handled.setdefault(person, []).append(number)


def _draw(random: Random, language: Language, about: About | None) -> Iterator[Asked]:
    world, opening = _World(language), ""
    for _ in range(QUESTIONS):
        kind: About = pick(random, ABOUT) if about is None else about
        with_things = about is None or kind in ("who", "count")
        people = language.people[:2] if about == "count" else language.people  # among few, someone gathers more
        for _ in range(pick(random, EVENTS)):
            _happen(random, world, people, with_things)
        if not (world.holder if kind in ("who", "count") else world.place):  # there is nothing to ask about yet
            what, others = ("take", language.things) if kind in ("who", "count") else ("go", language.places)
            world.tell(random, what, pick(random, language.people), pick(random, others))
        opening = opening or "\n".join(world.told)
        yield Asked(0, opening, tuple(world.told), *_ask(random, world, kind))


def _happen(random: Random, world: _World, people: Sequence[str], with_things: bool) -> None:
    """Someone goes somewhere, or takes a thing that nobody has, or puts one down."""
    language = world.language
    person = pick(random, people)
    held = world.held(person)
    free = [thing for thing in language.things if world.holder.get(thing, (language.nobody, 0))[0] == language.nobody]
    draw = random.random()
    if with_things and draw < 0.4 and free and len(held) < MOST_HELD:
        world.tell(random, "take", person, pick(random, free))
    elif with_things and draw < 0.6 and held:
        world.tell(random, "drop", person, pick(random, held))
    else:
        here = world.place.get(person, ("", 0))[0]
        world.tell(random, "go", person, pick(random, [place for place in language.places if place != here]))


def _ask(random: Random, world: _World, kind: About) -> tuple[str, str, tuple[int, ...]]:
    """A question of the kind about someone or something that the story tells of, its answer, and why."""
    language = world.language
    if kind == "who":
        thing = pick(random, sorted(world.holder))
        holder, fact = world.holder[thing]
        return language.asked[kind]("", thing), holder, (fact,)
    if kind == "count":
        person = pick(random, sorted(world.handled))
        answer = language.counts[len(world.held(person))]
        return language.asked[kind](person, ""), answer, tuple(world.handled[person])
    person = pick(random, sorted(world.place))
    place, fact = world.place[person]
    if kind == "where":
        return language.asked[kind](person, ""), place, (fact,)
    named = place if random.random() < 0.5 else pick(random, [one for one in language.places if one != place])
    return language.asked[kind](person, named), language.yes_no[named != place], (fact,)
