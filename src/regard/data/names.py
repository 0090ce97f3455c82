"""Sentences with names of people, places and firms that the package writes, in English or Korean, with their tags.

Many names are ambiguous: Jordan, Paris and 세종 are people here and places there, and firms are called after both. So
what stands around a name has to be read. English is tagged word by word, Korean syllable by syllable, since particles
are written together with a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from regard.data.corpora import Part, part_of
from regard.data.draws import pick
from regard.data.phrases.korean import particle
from regard.data.schemes import OUTSIDE

NameCorpus = Literal["names-en", "names-ko"]
SIZES: dict[Part, int] = {"train": 3_000, "validation": 300, "test": 500}
"""How many sentences a part has when the recipe does not say."""
VERSION = 1
"""Counts up when the sentences change, so that no cache goes on with the old ones."""
_SLOT = re.compile(r"\{(?P<type>[A-Z]+)\}(?P<particle>[가-힣]*)")


class Tagged(NamedTuple):
    """A sentence."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Language:
    """The names, and the sentences that they stand in."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    both: tuple[str, ...]
    """Names of people and of places alike."""
    places: tuple[str, ...]
    firms: tuple[str, ...]
    """What the name of a firm ends in."""
    sentences: tuple[str, ...]
    person: Callable[[str, str], str]
    """First and last name as they are written."""
    tokens: Callable[[str], list[str]]


ENGLISH = Language(
    first=("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jacob"),
    last=("Kim", "Miller", "Novak", "Rossi", "Silva", "Walker", "Young", "Lopez", "Adams", "Weber"),
    both=("Jordan", "Paris", "Austin", "Victoria", "Chelsea", "Florence", "Sydney", "Charlotte"),
    places=("Berlin", "New York", "Seoul", "Cape Town", "Rome", "Hong Kong", "Oslo", "Buenos Aires", "Lima", "Cairo"),
    firms=("Bank", "Motors", "& Sons", "Airlines", "Press", "Foods Ltd."),
    sentences=(
        "{PER} lives in {LOC} .",
        "{PER} flew from {LOC} to {LOC} on Monday .",
        "{ORG} of {LOC} made {PER} its new director .",
        "Last year {PER} left {ORG} and moved to {LOC} .",
        "{ORG} , based in {LOC} , bought {ORG} .",
        "Shares of {ORG} fell by 3 percent .",
        '" We like {LOC} , " said {PER} of {ORG} .',
        "The streets of {LOC} were empty , {PER} wrote .",
        "{PER} and {PER} met in {LOC} .",
        "Nobody at {ORG} knew {PER} .",
        "It rained all day in {LOC} , but {PER} did not care .",
    ),
    person=lambda first, last: f"{first} {last}",
    tokens=str.split,
)
KOREAN = Language(
    first=("민수", "지영", "서준", "하은", "도윤", "수빈", "현우", "예린"),
    last=("김", "이", "박", "최", "정", "강", "조", "윤"),
    both=("세종", "경주", "나주", "남해", "수원", "진주"),
    places=("서울", "부산", "대전", "뉴욕", "파리", "제주", "광주", "베를린"),
    firms=("은행", "자동차", "출판사", "전자", "항공"),
    sentences=(
        "{PER}은 {LOC}에 산다.",
        "{PER}이 월요일에 {LOC}에서 {LOC}으로 갔다.",
        "{LOC}의 {ORG}은 {PER}을 새 대표로 뽑았다.",
        "작년에 {PER}은 {ORG}을 떠나 {LOC}으로 이사했다.",
        "{LOC}에 있는 {ORG}이 {ORG}을 샀다.",
        "{ORG}의 주가가 3퍼센트 떨어졌다.",
        "{ORG}의 {PER}은 {LOC}이 좋다고 말했다.",
        "{PER}과 {PER}은 {LOC}에서 만났다.",
        "{ORG}에서는 아무도 {PER}을 몰랐다.",
        "{LOC}에는 하루 종일 비가 왔지만 {PER}은 나갔다.",
    ),
    person=lambda first, last: f"{last}{first}",
    tokens=lambda text: [sign for sign in text if sign != " "],
)
LANGUAGES: dict[str, Language] = {"names-en": ENGLISH, "names-ko": KOREAN}


def generate(name: NameCorpus, size: int | None, seed: int, part: Part) -> Iterator[Tagged]:
    """The sentences of one part; none stands in two parts, and a longer part begins with a shorter one."""
    random, language = Random(f"{name}:{seed}:{part}"), LANGUAGES[name]
    drawn = (_draw(random, language) for _ in iter(int, 1))
    own = (one for one in drawn if part_of(" ".join(one.tokens)) == part)
    return islice(own, SIZES[part] if size is None else size)


def _draw(random: Random, language: Language) -> Tagged:
    """A sentence with its slots filled; a particle takes the form that the name before it asks for."""
    sentence, tokens, tags, done = pick(random, language.sentences), list[str](), list[str](), 0
    for slot in _SLOT.finditer(sentence):
        name = _NAMES[slot["type"]](random, language)
        _add(language.tokens(sentence[done : slot.start()]), "", tokens, tags)
        _add(language.tokens(name), slot["type"], tokens, tags)
        _add(language.tokens(particle(name, slot["particle"]).removeprefix(name)), "", tokens, tags)
        done = slot.end()
    _add(language.tokens(sentence[done:]), "", tokens, tags)
    return Tagged(tuple(tokens), tuple(tags))


def _add(new: list[str], type: str, tokens: list[str], tags: list[str]) -> None:
    tokens += new
    tags += [f"{'I' if number else 'B'}-{type}" if type else OUTSIDE for number in range(len(new))]


def _person(random: Random, language: Language) -> str:
    first = pick(random, (*language.first, *language.both))
    return first if random.random() < 0.3 else language.person(first, pick(random, language.last))


def _place(random: Random, language: Language) -> str:
    return pick(random, (*language.places, *language.both))


def _firm(random: Random, language: Language) -> str:
    called = pick(random, (*language.last, *language.both, *language.places))
    return f"{called} {pick(random, language.firms)}"


_NAMES: dict[str, Callable[[Random, Language], str]] = {"PER": _person, "LOC": _place, "ORG": _firm}
