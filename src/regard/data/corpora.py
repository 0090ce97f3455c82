"""The built-in corpora: the same on every machine, and with nothing in common between their parts.

Dates, sequences and pictures of shapes are generated; all others come as files (`packaged`). A stable hash of what must
be unseen (the date, or the source text) decides which part an example belongs to, so that a test set holds no date and
no source of the training set, whatever the seeds and sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from itertools import islice
from random import Random
from typing import Literal, TypeVar

from regard.data import packaged
from regard.data.packaged import Cells
from regard.data.shapes import COLOURS, OUTLINES, RADIUS, Language, Scene, Thing, in_order

T = TypeVar("T")
Part = Literal["train", "validation", "test"]
Generator = Callable[[Random, Part], Iterator[Cells]]

SIZES: dict[Part, int] = {"train": 20_000, "validation": 500, "test": 1_000}
"""How many examples are generated when the recipe does not say."""
VERSION = 3
"""Counts up when a built-in corpus changes, so that no cache goes on with the old text."""
WORDS = range(3, 13)
"""How many words the English sentences of the phrases have."""


def generate(
    name: str, size: int | None, seed: int, part: Part, words: range = WORDS, about: str | None = None
) -> Iterator[Cells]:
    """The rows of one part of a built-in corpus; a longer part begins with a shorter one.

    Pairs are source and target; `packaged.rows` lists the columns of the other corpora. Without a size, the part has
    all rows that come as files, or as many as `SIZES` says. `words` is for the phrases, `about` for the stories.
    """
    random = Random(f"{name}:{seed}:{part}")
    if name in GENERATORS:
        return islice(GENERATORS[name](random, part), SIZES[part] if size is None else size)
    rows = packaged.rows(name, part, seed, about)
    if name.startswith("phrases-"):
        if words.stop > WORDS.stop:
            return islice(_longer(random, rows, words), SIZES[part] if size is None else size)
        rows = [row for row in rows if _length(row) in words]
    return packaged.first(rows, size, name, part)


def pick(random: Random, items: Sequence[T]) -> T:
    """One of the items. `random()` is the only draw whose sequence Python promises to keep between versions."""
    return items[int(random.random() * len(items))]


def part_of(text: str) -> Part:
    """Nine in ten texts are for training, the rest for validation and test in equal shares."""
    share = hashlib.blake2b(text.encode(), digest_size=8).digest()
    bucket = int.from_bytes(share, "big") % 20
    return "validation" if bucket == 18 else "test" if bucket == 19 else "train"


# Sequences: copy, reverse, sort

SYMBOLS = tuple("abcdefghij")
LENGTHS = range(3, 13)


def _sequences(random: Random, part: Part) -> Iterator[list[str]]:
    while True:
        symbols = [pick(random, SYMBOLS) for _ in range(pick(random, LENGTHS))]
        if part_of(" ".join(symbols)) == part:
            yield symbols


def _copy(random: Random, part: Part) -> Iterator[Cells]:
    for symbols in _sequences(random, part):
        yield " ".join(symbols), " ".join(symbols)


def _reverse(random: Random, part: Part) -> Iterator[Cells]:
    for symbols in _sequences(random, part):
        yield " ".join(symbols), " ".join(reversed(symbols))


def _sort(random: Random, part: Part) -> Iterator[Cells]:
    for symbols in _sequences(random, part):
        yield " ".join(symbols), " ".join(sorted(symbols))


# Dates as people write them -> ISO 8601

FIRST_DAY, LAST_DAY = date(1950, 1, 1), date(2049, 12, 31)
"""One hundred years, so that a year of two digits still means one year: '50 to '99 and '00 to '49."""

ENGLISH = (
    "{month} {day}, {year}",
    "{month} {day} {year}",
    "{month} {ordinal}, {year}",
    "{day} {month} {year}",
    "{ordinal} {month} {year}",
    "{ordinal} of {month} {year}",
    "the {ordinal} of {month}, {year}",
    "the {word} of {month}, {year}",
    "{month} the {word}, {year}",
    "{weekday}, {month} {day}, {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday}, the {ordinal} of {month} {year}",
    "{mon} {day}, {year}",
    "{day} {mon} {year}",
    "{day}-{mon}-{year}",
    "{mon} {day}, '{yy}",
    "{wd}, {day} {mon} {year}",
    "{wd}, {mon} {day}, {year}",
)
KOREAN = (
    "{year}년 {month}월 {day}일",
    "{year}년 {mm}월 {dd}일",
    "{year}년{month}월{day}일",
    "{year}년 {month}월 {day}일 {weekday}",
    "{year}년 {month}월 {day}일 ({wd})",
    "{weekday}, {year}년 {month}월 {day}일",
    "서기 {year}년 {month}월 {day}일",
    "{yy}년 {month}월 {day}일",
    "'{yy}. {month}. {day}.",
    "{year}. {month}. {day}.",
    "{year}. {mm}. {dd}. ({wd})",
    "{year}.{mm}.{dd}.",
    "{year}/{mm}/{dd}",
    "{year_word}년 {month_word}월 {day_word}일",
)
GERMAN = (
    "{day}. {month} {year}",
    "{dd}. {month} {year}",
    "{day}. {mon} {year}",
    "{dd}.{mm}.{year}",
    "{day}.{m}.{year}",
    "{day}. {m}. {year}",
    "am {day}. {month} {year}",
    "den {day}. {month} {year}",
    "der {word} {month} {year}",
    "{weekday}, {day}. {month} {year}",
    "{weekday}, den {day}. {month} {year}",
    "am {weekday}, dem {day}. {month} {year}",
    "{weekday}, {dd}.{mm}.{year}",
    "{wd}., {day}. {mon} {year}",
    "{wd}, {dd}.{mm}.{year}",
)
FRENCH = (
    "{day} {month} {year}",
    "le {day} {month} {year}",
    "le {word} {month} {year}",
    "{day} {mon} {year}",
    "{weekday} {day} {month} {year}",
    "{weekday}, {day} {month} {year}",
    "le {weekday} {day} {month} {year}",
    "{wd}. {day} {mon} {year}",
)


def _names(text: str, separator: str = " ") -> tuple[str, ...]:
    return tuple(text.split(separator))


_ENGLISH_MONTHS = _names("January February March April May June July August September October November December")
_ENGLISH_WEEKDAYS = _names("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_ENGLISH_DAYS = _names(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
)
_KOREAN_WEEKDAYS = "월화수목금토일"
_KOREAN_DIGITS = ("", "일", "이", "삼", "사", "오", "육", "칠", "팔", "구")
_GERMAN_MONTHS = _names("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
_GERMAN_SHORT = _names("Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.")
_GERMAN_WEEKDAYS = _names("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag")
_GERMAN_DAYS = _names(
    "erste zweite dritte vierte fünfte sechste siebte achte neunte zehnte elfte zwölfte dreizehnte vierzehnte "
    "fünfzehnte sechzehnte siebzehnte achtzehnte neunzehnte zwanzigste einundzwanzigste zweiundzwanzigste "
    "dreiundzwanzigste vierundzwanzigste fünfundzwanzigste sechsundzwanzigste siebenundzwanzigste achtundzwanzigste "
    "neunundzwanzigste dreißigste einunddreißigste"
)
_FRENCH_MONTHS = _names("janvier février mars avril mai juin juillet août septembre octobre novembre décembre")
_FRENCH_SHORT = _names("janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.")
_FRENCH_WEEKDAYS = _names("lundi mardi mercredi jeudi vendredi samedi dimanche")
_FRENCH_DAYS = _names(
    "premier,deux,trois,quatre,cinq,six,sept,huit,neuf,dix,onze,douze,treize,quatorze,quinze,seize,dix-sept,dix-huit,"
    "dix-neuf,vingt,vingt et un,vingt-deux,vingt-trois,vingt-quatre,vingt-cinq,vingt-six,vingt-sept,vingt-huit,"
    "vingt-neuf,trente,trente et un",
    separator=",",
)

Words = dict[str, str]


def _numbers(day: date) -> Words:
    """What all languages write in digits."""
    year = f"{day.year}"
    return {"year": year, "yy": year[2:], "mm": f"{day.month:02}", "day": f"{day.day}", "dd": f"{day.day:02}"}


def _english(day: date) -> Words:
    month, weekday = _ENGLISH_MONTHS[day.month - 1], _ENGLISH_WEEKDAYS[day.weekday()]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(0 if day.day in (11, 12, 13) else day.day % 10, "th")
    ordinal, word = f"{day.day}{ending}", _ENGLISH_DAYS[day.day - 1]
    names = {"month": month, "mon": month[:3], "weekday": weekday, "wd": weekday[:3]}
    return _numbers(day) | names | {"ordinal": ordinal, "word": word}


def _korean(day: date) -> Words:
    weekday = _KOREAN_WEEKDAYS[day.weekday()]
    # June and October lose a sound: 유월 and 시월, not 육월 and 십월
    month_word = {6: "유", 10: "시"}.get(day.month, korean_number(day.month))
    words = {"year_word": korean_number(day.year), "month_word": month_word, "day_word": korean_number(day.day)}
    return _numbers(day) | words | {"month": f"{day.month}", "weekday": f"{weekday}요일", "wd": weekday}


def korean_number(number: int) -> str:
    """Sino-Korean numerals below 10,000: 2024 -> 이천이십사; a one before 천, 백 and 십 is not said."""
    text = ""
    for unit, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = number // unit % 10
        if digit:
            text += name if digit == 1 and name else _KOREAN_DIGITS[digit] + name
    return text


def _german(day: date) -> Words:
    month, mon = _GERMAN_MONTHS[day.month - 1], _GERMAN_SHORT[day.month - 1]
    weekday, word = _GERMAN_WEEKDAYS[day.weekday()], _GERMAN_DAYS[day.day - 1]
    names = {"month": month, "mon": mon, "m": f"{day.month}", "weekday": weekday, "wd": weekday[:2]}
    return _numbers(day) | names | {"word": word}


def _french(day: date) -> Words:
    month, mon = _FRENCH_MONTHS[day.month - 1], _FRENCH_SHORT[day.month - 1]
    weekday, word = _FRENCH_WEEKDAYS[day.weekday()], _FRENCH_DAYS[day.day - 1]
    number = "1er" if day.day == 1 else f"{day.day}"
    names = {"month": month, "mon": mon, "weekday": weekday, "wd": weekday[:3]}
    return _numbers(day) | names | {"day": number, "word": word}


LANGUAGES: tuple[tuple[Callable[[date], Words], tuple[str, ...]], ...] = (
    (_english, ENGLISH),
    (_korean, KOREAN),
    (_german, GERMAN),
    (_french, FRENCH),
)
"""Each language with its styles. None puts numbers in an order that another language reads differently: a date in
digits begins with the year, marks the year ('24), or has German dots."""


@cache
def _days_of(part: Part) -> tuple[date, ...]:
    days = (FIRST_DAY + timedelta(number) for number in range((LAST_DAY - FIRST_DAY).days + 1))
    return tuple(day for day in days if part_of(day.isoformat()) == part)


def _letter_case(random: Random, text: str) -> str:
    """Most dates are written as they should be, some in small letters or in capitals."""
    share = random.random()
    return text.lower() if share < 0.08 else text.upper() if share < 0.12 else text


def _dates(random: Random, part: Part) -> Iterator[Cells]:
    days = _days_of(part)
    while True:
        day = pick(random, days)
        words, styles = pick(random, LANGUAGES)
        yield _letter_case(random, pick(random, styles).format_map(words(day))), day.isoformat()


# Pictures of shapes, as text that is drawn when it is looked at

GAP, EDGE, CLEAR = 4, 2, 1.5
"""Hundredths between two boxes and to the edge; and how many times the other one distance is, so that it has a name."""


def scenes(random: Random) -> Iterator[Scene]:
    """Scenes without end, of two things of different kinds."""
    while True:
        first, second = ([pick(random, tuple(words)) for words in (RADIUS, COLOURS, OUTLINES)] for _ in range(2))
        if first[1:] != second[1:]:
            yield in_order(_placed(random, first, second))


def _placed(random: Random, first: list[str], second: list[str]) -> Scene:
    """The things at places where they neither touch nor stand askew."""
    while True:
        scene = Scene(*(Thing(one[0], one[1], one[2], *_place(random, one[0])) for one in (first, second)))
        apart = sorted((abs(scene.first.x - scene.second.x), abs(scene.first.y - scene.second.y)))
        if apart[1] >= max(RADIUS[first[0]] + RADIUS[second[0]] + GAP, CLEAR * apart[0]):
            return scene


def _place(random: Random, size: str) -> tuple[int, int]:
    places = range(RADIUS[size] + EDGE, 101 - RADIUS[size] - EDGE)
    return pick(random, places), pick(random, places)


def _shapes(language: Language) -> Generator:
    def pairs(random: Random, part: Part) -> Iterator[Cells]:
        drawn = scenes(random)
        return ((scene.code, scene.caption(language)) for scene in drawn if part_of(scene.kinds) == part)

    return pairs


GENERATORS: dict[str, Generator] = {
    "dates": _dates,
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "shapes": _shapes("english"),
    "shapes-ko": _shapes("korean"),
}
"""The corpora that are generated, by the name that recipes use."""


# Phrases of more words than a sentence has


def _length(row: Cells) -> int:
    return len(row[0].split())


def _longer(random: Random, rows: Sequence[Cells], words: range) -> Iterator[Cells]:
    """Sentences one after the other, of as many English words together; all numbers of words are equally frequent."""
    by_length = {length: [row for row in rows if _length(row) == length] for length in WORDS}
    while True:
        left, chosen = pick(random, words), list[Cells]()
        while left:
            length = pick(random, [length for length in WORDS if length == left or length <= left - WORDS.start])
            chosen.append(pick(random, by_length[length]))
            left -= length
        yield tuple(" ".join(column) for column in zip(*chosen, strict=True))
