"""Stories in English or Korean that the package writes, with questions and the sentences that answer them.

People walk between places, take things and put them down. Every now and then a question is asked: where someone or
something is, who has a thing, how many things someone has, whether someone is somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from regard.data.corpora import Part, part_of
from regard.data.draws import pick
from regard.data.phrases.korean import particle

StoryCorpus = Literal["stories-en", "stories-ko"]
About = Literal["where", "things", "who", "count", "yes_no"]
ABOUT: tuple[About, ...] = ("where", "things", "who", "count", "yes_no")
"""What a question may be about."""
SIZES: dict[Part, int] = {"train": 4_000, "validation": 400, "test": 1_000}
"""How many questions a part has when the recipe does not say."""
VERSION = 2
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


def _english(verbs: str) -> tuple[Callable[[str, str], str], ...]:
    return tuple(lambda a, b, verb=verb: f"{a} {verb} the {b}." for verb in verbs.split(", "))


def _korean(verbs: str, case: str) -> tuple[Callable[[str, str], str], ...]:
    """A verb after its subject and what else it takes, under the particle of that `case`."""
    return tuple(
        lambda a, b, verb=verb: f"{particle(a, '이')} {particle(b, case)} {verb}." for verb in verbs.split(", ")
    )


ENGLISH = Language(
    people=("Mary", "John", "Sandra", "Daniel"),
    places=("kitchen", "garden", "office", "bathroom", "hallway", "bedroom"),
    things=("apple", "football", "milk", "book"),
    told={
        "go": _english("went to, walked to, moved to, travelled to, journeyed to, went back to"),
        "take": _english("took, picked up, got, grabbed"),
        "drop": _english("dropped, put down, discarded, left"),
    },
    asked={
        "where": lambda a, b: f"Where is {a}?",
        "things": lambda a, b: f"Where is the {b}?",
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
        "go": _korean("갔다, 걸어갔다, 이동했다, 뛰어갔다, 향했다, 돌아갔다", "으로"),
        "take": _korean("집었다, 들었다, 챙겼다, 주웠다", "을"),
        "drop": _korean("내려놓았다, 떨어뜨렸다, 버렸다, 놓았다", "을"),
    },
    asked={
        "where": lambda a, b: f"{particle(a, '은')} 어디에 있나요?",
        "things": lambda a, b: f"{particle(b, '은')} 어디에 있나요?",
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
    lies: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Where a thing was put down, and the sentence that said that its holder was there."""
    handled: dict[str, list[int]] = field(default_factory=dict)
    """The sentences in which a person took things or put them down."""

    def held(self, person: str) -> list[str]:
        return [thing for thing, (holder, _) in self.holder.items() if holder == person]

    def free(self, person: str) -> list[str]:
        """The things that nobody has, less those that lie somewhere else than where the person is."""
        here = self.place.get(person, (None, 0))[0]
        lying = {thing: place for thing, (place, _) in self.lies.items() if here is not None}
        held = {thing for thing, (holder, _) in self.holder.items() if holder != self.language.nobody}
        return [thing for thing in self.language.things if thing not in held and lying.get(thing, here) == here]

    def tell(self, random: Random, what: str, person: str, other: str) -> None:
        """Let something happen."""
        number = len(self.told)
        self.told.append(pick(random, self.language.told[what])(person, other))
        if what == "go":
            self.place[person] = other, number
            return
        self.holder[other] = (person if what == "take" else self.language.nobody), number
        self.lies.pop(other, None)
        if what == "drop" and person in self.place:
            self.lies[other] = self.place[person]
        self.handled.setdefault(person, []).append(number)

    def found(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Where things are, if it is known: with who has them, or where they were put down; and why."""
        places = {thing: self.lies.get(thing) or self.place.get(holder) for thing, (holder, _) in self.holder.items()}
        return {
            thing: (place[0], tuple(sorted((self.holder[thing][1], place[1]))))
            for thing, place in places.items()
            if place is not None
        }

    def known(self, kind: About) -> Mapping[str, object]:
        """Who and what can be asked about."""
        known: dict[About, Mapping[str, object]] = {
            "who": self.holder, "things": self.found(), "count": self.handled,
        }  # fmt: skip
        return known.get(kind, self.place)


def _draw(random: Random, language: Language, about: About | None) -> Iterator[Asked]:
    world, opening = _World(language), ""
    people = language.people[:2] if about == "count" else language.people  # among few, someone gathers more
    for _ in range(QUESTIONS):
        kind: About = pick(random, ABOUT) if about is None else about
        for _ in range(pick(random, EVENTS)):
            _happen(random, world, people)
        while not world.known(kind):
            _happen(random, world, people)
        opening = opening or "\n".join(world.told)
        yield Asked(0, opening, tuple(world.told), *_ask(random, world, kind))


def _happen(random: Random, world: _World, people: Sequence[str]) -> None:
    """Someone goes somewhere, or takes a thing that nobody has, or puts one down."""
    language = world.language
    person = pick(random, people)
    held, free = world.held(person), world.free(person)
    draw = random.random()
    if draw < 0.35 and free and len(held) < MOST_HELD:
        world.tell(random, "take", person, pick(random, free))
    elif draw < 0.5 and held:
        world.tell(random, "drop", person, pick(random, held))
    else:
        here = world.place.get(person, ("", 0))[0]
        world.tell(random, "go", person, pick(random, [place for place in language.places if place != here]))


def _ask(random: Random, world: _World, kind: About) -> tuple[str, str, tuple[int, ...]]:
    """A question of the kind about someone or something that the story tells of, its answer, and why."""
    language, named = world.language, pick(random, sorted(world.known(kind)))
    if kind == "who":
        holder, fact = world.holder[named]
        return language.asked[kind]("", named), holder, (fact,)
    if kind == "things":
        return language.asked[kind]("", named), *world.found()[named]
    if kind == "count":
        answer = language.counts[len(world.held(named))]
        return language.asked[kind](named, ""), answer, tuple(world.handled[named])
    place, fact = world.place[named]
    if kind == "where":
        return language.asked[kind](named, ""), place, (fact,)
    asked = place if random.random() < 0.5 else pick(random, [one for one in language.places if one != place])
    return language.asked[kind](named, asked), language.yes_no[asked != place], (fact,)
