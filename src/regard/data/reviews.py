"""Short reviews in English or Korean that the package writes, positive or negative.

What counts is the main clause, and a negation turns it round: so it takes more than a list of good and bad words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from regard.data.corpora import Part, part_of
from regard.data.draws import pick
from regard.data.phrases.korean import final_of, particle

Reviews = Literal["reviews-en", "reviews-ko"]
SIZES: dict[Part, int] = {"train": 4_000, "validation": 500, "test": 500}
"""How many reviews a part has when the recipe does not say."""
VERSION = 1
"""Counts up when the reviews change, so that no cache goes on with the old ones."""
NEGATED, SINGLE, FIRST = 0.4, 0.3, 0.5
"""How many clauses are negated, how many reviews have only one, and of those with two how many begin with the main
one."""


class Opinion(NamedTuple):
    """A clause: what it is about, which word says how it is, and whether that is denied."""

    aspect: str
    word: str
    good: bool
    """Whether the word is a good one."""
    negated: bool

    @property
    def positive(self) -> bool:
        return self.good != self.negated


ASPECTS_EN = ("plot", "acting", "music", "dialogue", "ending", "pacing", "photography", "script", "story", "humour")
GOOD_EN = ("brilliant", "moving", "charming", "clever", "gripping", "fresh", "convincing", "superb", "lovely", "honest")
BAD_EN = ("dull", "clumsy", "shallow", "tedious", "weak", "silly", "lifeless", "messy", "stale", "painful")
DEGREES_EN = ("", "", "really ", "quite ", "truly ", "rather ")
DENIALS_EN = ("was not", "was never", "was hardly", "was by no means")
TIMES_EN = ("", "", "This time ", "For once ", "Once again ", "In the end ")

ASPECTS_KO = ("연기", "음악", "대사", "결말", "전개", "영상", "각본", "줄거리", "연출", "배경")
GOOD_KO = ("훌륭", "탄탄", "신선", "완벽", "따뜻", "유쾌", "탁월", "섬세", "참신", "근사")
BAD_KO = ("지루", "답답", "유치", "어색", "산만", "엉성", "뻔", "허술", "진부", "황당")
DEGREES_KO = ("", "", "정말 ", "꽤 ", "무척 ", "상당히 ")
TIMES_KO = ("", "", "이번에는 ", "결국 ", "의외로 ", "역시 ")


def generate(name: Reviews, size: int | None, seed: int, part: Part) -> Iterator[tuple[str, str]]:
    """The reviews of one part with their labels; none stands in two parts, and a longer part begins with a shorter."""
    random = Random(f"{name}:{seed}:{part}")
    drawn = (WRITERS[name](random) for _ in iter(int, 1))
    own = (review for review in drawn if part_of(review[0]) == part)
    return islice(own, SIZES[part] if size is None else size)


def _opinion(random: Random, aspects: tuple[str, ...], good: tuple[str, ...], bad: tuple[str, ...]) -> Opinion:
    is_good = random.random() < 0.5
    word, aspect = pick(random, good if is_good else bad), pick(random, aspects)
    return Opinion(aspect, word, is_good, random.random() < NEGATED)


def _english(random: Random) -> tuple[str, str]:
    main = _opinion(random, ASPECTS_EN, GOOD_EN, BAD_EN)
    aside = _opinion(random, tuple(one for one in ASPECTS_EN if one != main.aspect), GOOD_EN, BAD_EN)
    label = "positive" if main.positive else "negative"
    told, added, time = _clause_en(random, main), _clause_en(random, aside), pick(random, TIMES_EN)
    if random.random() < SINGLE:
        text = f"{time}{told}."
    elif random.random() < FIRST:
        text = f"{time}{told}, {pick(random, ('although', 'even though', 'even if'))} {added}."
    else:
        text = pick(
            random, (f"Although {added}, {told}.", f"{time}{added}, but {told}.", f"{time}{added}; still {told}.")
        )
    return text[0].upper() + text[1:], label


def _clause_en(random: Random, opinion: Opinion) -> str:
    verb = f"{pick(random, DENIALS_EN)} " if opinion.negated else f"was {pick(random, DEGREES_EN)}"
    return f"the {opinion.aspect} {verb}{opinion.word}"


def _korean(random: Random) -> tuple[str, str]:
    main = _opinion(random, ASPECTS_KO, GOOD_KO, BAD_KO)
    aside = _opinion(random, tuple(one for one in ASPECTS_KO if one != main.aspect), GOOD_KO, BAD_KO)
    label, time = "긍정" if main.positive else "부정", pick(random, TIMES_KO)
    told = _clause_ko(random, main)
    if random.random() < SINGLE:
        return f"{time}{told}다.", label
    if random.random() < FIRST:
        return f"{time}{told}다. 비록 {_clause_ko(random, aside)}지만.", label
    return f"{time}{_clause_ko(random, aside)}지만 {told}다.", label


def _clause_ko(random: Random, opinion: Opinion) -> str:
    """A clause up to its past stem: 정말 훌륭한 연기였-, 지루한 결말은 아니었-."""
    aspect = opinion.aspect
    if opinion.negated:
        return f"{opinion.word}한 {particle(aspect, '은')} 아니었"
    return f"{pick(random, DEGREES_KO)}{opinion.word}한 {aspect}{'이었' if final_of(aspect) else '였'}"


WRITERS: dict[str, Callable[[Random], tuple[str, str]]] = {"reviews-en": _english, "reviews-ko": _korean}
"""The corpora by the name that recipes use."""
