"""People in a few sentences that the package writes, in English or Korean, and questions about them that a stretch of
the text answers, or that nothing in it does.

A text tells three of four things in any order, so that a question has to be understood to be answered, and the text to
be silent about the fourth. Korean answers end within a word, before a particle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from regard.data.corpora import Part, part_of
from regard.data.draws import pick
from regard.data.phrases.korean import particle

PortraitCorpus = Literal["portraits-en", "portraits-ko"]
SIZES: dict[Part, int] = {"train": 6_000, "validation": 300, "test": 500}
"""How many questions a part has when the recipe does not say."""
VERSION = 1
"""Counts up when the texts change, so that no cache goes on with the old ones."""
QUESTIONS = 2
"""Asked of one text."""
UNANSWERED = 0.25
"""Share of the questions that a text does not answer."""


class Question(NamedTuple):
    """A question about a text; where its answer begins, and the answer: None where there is none."""

    context: str
    question: str
    answer: tuple[int, str] | None


@dataclass(frozen=True)
class Fact:
    """Something told of a person: the sentence around it, the question for it, and what it may be."""

    told: Callable[[str, str], tuple[str, str]]
    """Who and what -> what stands before the answer, and after it."""
    asked: Callable[[str], str]
    known: Callable[[Random], str]


def _of(*what: str) -> Callable[[Random], str]:
    return lambda random: pick(random, what)


def _number(form: str, numbers: range) -> Callable[[Random], str]:
    return lambda random: form.format(pick(random, numbers))


ENGLISH = {
    "home": Fact(
        lambda who, what: (f"{who} lives in ", "."),
        lambda who: f"Where does {who} live?",
        _of("Oslo", "New York", "Seoul", "Cape Town", "Rome", "Lima"),
    ),
    "work": Fact(
        lambda who, what: (f"{who} works as a ", "."),
        lambda who: f"What does {who} work as?",
        _of("baker", "school teacher", "nurse", "taxi driver", "painter"),
    ),
    "animal": Fact(
        lambda who, what: (f"{who} has a ", "."),
        lambda who: f"Which animal does {who} have?",
        _of("black cat", "dog", "small horse", "parrot", "white rabbit"),
    ),
    "birth": Fact(
        lambda who, what: (f"{who} was born in ", "."),
        lambda who: f"When was {who} born?",
        _number("{}", range(1950, 2010)),
    ),
}
KOREAN = {
    "home": Fact(
        lambda who, what: (f"{particle(who, '은')} ", "에 산다."),
        lambda who: f"{particle(who, '은')} 어디에 사나요?",
        _of("서울", "부산", "제주", "뉴욕", "베를린"),
    ),
    "work": Fact(
        lambda who, what: (f"{particle(who, '은')} ", "에서 일한다."),
        lambda who: f"{particle(who, '은')} 어디에서 일하나요?",
        _of("빵집", "초등학교", "병원", "은행", "도서관"),
    ),
    "animal": Fact(
        lambda who, what: (f"{particle(who, '은')} ", f"{particle(what, '을').removeprefix(what)} 키운다."),
        lambda who: f"{particle(who, '은')} 무엇을 키우나요?",
        _of("검은 고양이", "강아지", "작은 말", "앵무새", "토끼"),
    ),
    "birth": Fact(
        lambda who, what: (f"{particle(who, '은')} ", "에 태어났다."),
        lambda who: f"{particle(who, '은')} 언제 태어났나요?",
        _number("{}년", range(1950, 2010)),
    ),
}
FACTS: dict[str, dict[str, Fact]] = {"portraits-en": ENGLISH, "portraits-ko": KOREAN}
PEOPLE: dict[str, tuple[str, ...]] = {
    "portraits-en": ("Anna", "Ben", "Carla", "David", "Emma", "Felix"),
    "portraits-ko": ("민수", "지영", "서준", "하은", "도윤", "수빈"),
}


def generate(name: PortraitCorpus, size: int | None, seed: int, part: Part) -> Iterator[Question]:
    """The questions of one part; no text stands in two parts, and a longer part begins with a shorter one."""
    random = Random(f"{name}:{seed}:{part}")
    drawn = (one for _ in iter(int, 1) for one in _draw(random, name) if part_of(one.context) == part)
    return islice(drawn, SIZES[part] if size is None else size)


def _draw(random: Random, name: PortraitCorpus) -> Iterator[Question]:
    """The questions about one text."""
    facts, who = FACTS[name], pick(random, PEOPLE[name])
    *told, untold = sorted(facts, key=lambda kind: random.random())
    context, answers = "", dict[str, tuple[int, str]]()
    for kind in told:
        what = facts[kind].known(random)
        before, after = facts[kind].told(who, what)
        context += (" " if context else "") + before
        answers[kind] = len(context), what
        context += what + after
    for _ in range(QUESTIONS):
        kind = untold if random.random() < UNANSWERED else pick(random, told)
        yield Question(context, facts[kind].asked(who), answers.get(kind))
