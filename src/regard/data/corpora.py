"""Corpora that are generated: the same on every machine, and with nothing in common between their parts.

A stable hash of what must be unseen (the date, or the source text) decides which part an example belongs to, so that a
test set holds no date and no source of the training set, whatever the seeds and sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import cache
from itertools import islice
from random import Random
from typing import Literal

from regard.data import headlines, phrases, shapes
from regard.data.draws import pick
from regard.data.phrases import Marked
from regard.errors import ConfigError, did_you_mean

Part = Literal["train", "validation", "test"]
Pair = tuple[str, str]
Generator = Callable[[Random, Part, range], Iterator[Pair]]

SIZES: dict[Part, int] = {"train": 20_000, "validation": 500, "test": 1_000}
"""How many examples a part has when the recipe does not say."""

VERSION = 1
"""Counts up when a generator changes what it writes, so that no cache goes on with the old text."""


WORDS = range(3, 13)
"""How many English words a sentence of the phrases has when the recipe does not say."""


def generate(name: str, size: int | None, seed: int, part: Part, words: range = WORDS) -> Iterator[Pair]:
    """The (source, target) pairs of one part of a built-in corpus; a longer one begins with the shorter one.

    `words` says how many English words a sentence of the phrases may have; the other corpora do not ask.
    """
    random = Random(f"{name}:{seed}:{part}")
    return islice(GENERATORS[name](random, part, words), SIZES[part] if size is None else size)


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


def _copy(random: Random, part: Part, _: range) -> Iterator[Pair]:
    for symbols in _sequences(random, part):
        yield " ".join(symbols), " ".join(symbols)


def _reverse(random: Random, part: Part, _: range) -> Iterator[Pair]:
    for symbols in _sequences(random, part):
        yield " ".join(symbols), " ".join(reversed(symbols))


def _sort(random: Random, part: Part, _: range) -> Iterator[Pair]:
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


def _dates(random: Random, part: Part, _: range) -> Iterator[Pair]:
    days = _days_of(part)
    while True:
        day = pick(random, days)
        words, styles = pick(random, LANGUAGES)
        yield _letter_case(random, pick(random, styles).format_map(words(day))), day.isoformat()


# Sentences and reports

PHRASES: dict[str, phrases.Language] = {"phrases-en-ko": "ko", "phrases-en-fr": "fr"}


def _phrases(language: phrases.Language) -> Generator:
    def pairs(random: Random, part: Part, words: range) -> Iterator[Pair]:
        drawn = phrases.draw(random, language, words[0], words[-1], phrases.MARKED_SHARE)
        return (sentence.pair(language) for sentence in drawn if part_of(sentence.source) == part)

    return pairs


def _headlines(random: Random, part: Part, _: range) -> Iterator[Pair]:
    while True:
        report, headline = headlines.draw(random)
        if part_of(report) == part:
            yield report, headline


# Pictures of shapes, as text that is drawn when it is looked at


def _shapes(language: shapes.Language) -> Generator:
    def pairs(random: Random, part: Part, _: range) -> Iterator[Pair]:
        drawn = shapes.scenes(random)
        return ((scene.code, scene.caption(language)) for scene in drawn if part_of(scene.kinds) == part)

    return pairs


GENERATORS: dict[str, Generator] = {
    "dates": _dates,
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "phrases-en-ko": _phrases("ko"),
    "phrases-en-fr": _phrases("fr"),
    "headlines": _headlines,
    "shapes": _shapes("english"),
    "shapes-ko": _shapes("korean"),
}
"""The built-in corpora by the name that recipes use."""

MARKED_WORDS = range(3, 21)
"""How many English words the marked sentences have."""


def phenomena(name: str, size: int | None, seed: int, part: Part) -> Iterator[Marked]:
    """Sentences of the phrases with a pronoun whose antecedent is known or (in Korean) a homonym that is explained.

    They belong to the same part as in the corpus itself, so that a model is asked about what it has not seen.
    """
    if name not in PHRASES:
        raise ConfigError(f"the corpus {name!r} has no marked sentences", hint=did_you_mean(name, PHRASES))
    language = PHRASES[name]
    random = Random(f"phenomena:{name}:{seed}:{part}")
    drawn = phrases.draw(random, language, MARKED_WORDS[0], MARKED_WORDS[-1], marked_share=1.0)
    found = (sentence.marked(language) for sentence in drawn if part_of(sentence.source) == part)
    return islice(found, SIZES[part] if size is None else size)
