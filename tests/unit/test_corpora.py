"""The generated corpora are right, the same everywhere, and share nothing between their parts."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from itertools import chain, islice, product
from typing import get_args

import pytest

from regard.data.config import CORPORA, Corpus
from regard.data.corpora import GENERATORS, LANGUAGES, SIZES, Pair, Part, generate, korean_number, part_of

PARTS: tuple[Part, ...] = ("train", "validation", "test")

WEEKDAYS = {
    word: number
    for words in (
        "monday tuesday wednesday thursday friday saturday sunday",
        "mon tue wed thu fri sat sun",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        "mo di mi do fr sa so",
        "mo. di. mi. do. fr. sa. so.",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "lun. mar. mer. jeu. ven. sam. dim.",
        "월 화 수 목 금 토 일",
    )
    for number, word in enumerate(words.split())
}
MONTHS = {
    word: number
    for words in (
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "jan. feb. märz apr. mai juni juli aug. sept. okt. nov. dez.",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
    )
    for number, word in enumerate(words.split(), 1)
}
ATOMS = {
    word: number
    for first, words in (
        (1, "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"),
        (15, "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"),
        (1, "ein zwei drei vier fünf sechs sieben acht neun"),
        (1, "erste zweite dritte vierte fünfte sechste siebte achte neunte zehnte elfte zwölfte dreizehnte vierzehnte"),
        (15, "fünfzehnte sechzehnte siebzehnte achtzehnte neunzehnte zwanzigste"),
        (1, "premier deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"),
    )
    for number, word in enumerate(words.split(), first)
}
ATOMS |= {"twenty": 20, "thirty": 30, "thirtieth": 30, "dreißigste": 30, "dreissigste": 30}
ATOMS |= {"un": 1, "vingt": 20, "trente": 30, "et": 0}
FILLERS = {"", "the", "of", "am", "den", "dem", "der", "le"}


def full_year(text: str) -> int:
    year = int(text)
    return year if year > 99 else 1900 + year if year >= 50 else 2000 + year


def sino_korean(text: str) -> int:
    """천구백오십 -> 1950, and digits as they are."""
    if text.isdigit():
        return int(text)
    total = digit = 0
    for sign in text:
        if sign in "십백천":
            total += max(digit, 1) * {"십": 10, "백": 100, "천": 1000}[sign]
            digit = 0
        else:
            digit = "영일이삼사오육칠팔구".index(sign)
    return total + digit


def korean_date(text: str) -> tuple[date, int | None] | None:
    weekday = re.search(r"(.)요일|\((.)\)", text)
    found = re.search(r"([\d일이삼사오육칠팔구십백천]+)년 ?(\w+)월 ?([\d일이삼사오육칠팔구십]+)일", text)
    found = found or re.match(r"'?(\d+)[./] ?(\d+)[./] ?(\d+)", text)
    if not found:
        return None
    year, month, day = found.groups()
    month_number = {"유": 6, "시": 10}.get(month) or sino_korean(month)
    year_number = full_year(year) if year.isdigit() else sino_korean(year)
    return date(year_number, month_number, sino_korean(day)), weekday and WEEKDAYS[weekday[1] or weekday[2]]


def european_date(text: str) -> tuple[date, int | None]:
    text = re.sub(r"^(\d+)-(\w+)-(\d+)$", r"\1 \2 \3", text)
    words = [word for word in re.split(r"[ ,]+", text) if word not in FILLERS]
    year = full_year(words.pop().removeprefix("'"))
    weekday = next((WEEKDAYS[word] for word in words if word in WEEKDAYS), None)
    month = next(MONTHS[word] for word in words if word in MONTHS)
    words = [word for word in words if word not in WEEKDAYS and word not in MONTHS]
    number = re.match(r"(\d+)(st|nd|rd|th|er|\.)?$", words[0])
    day = int(number[1]) if number else sum(ATOMS[atom] for atom in re.split("-| |und", " ".join(words)))
    return date(year, month, day), weekday


def solve(source: str) -> tuple[date, int | None]:
    """The date that a reader of the four languages finds, and the weekday that stands beside it."""
    text = source.lower()
    dotted = re.search(r"^(?:(\w+), )?(\d{1,2})\. ?(\d{1,2})\. ?(\d{4})$", text)
    if dotted:
        weekday, day, month, year = dotted.groups()
        return date(int(year), int(month), int(day)), WEEKDAYS[weekday] if weekday else None
    return korean_date(text) or european_date(text)


@pytest.fixture(scope="module")
def dates() -> list[Pair]:
    return [pair for part in PARTS for seed in (1, 2) for pair in generate("dates", 12_000, seed, part)]


def test_every_date_can_be_read_and_its_weekday_is_right(dates: list[Pair]) -> None:
    weekdays = 0
    for source, target in dates:
        day, weekday = solve(source)
        assert day.isoformat() == target, source
        assert weekday is None or weekday == day.weekday(), source
        weekdays += weekday is not None
    assert weekdays > 0.2 * len(dates)


def test_every_style_gives_every_month_and_day_one_meaning() -> None:
    """No two dates of a century look the same, in any style and any letter case."""
    meanings: dict[str, date] = {}
    days = [
        date(year, month, day)
        for year, month, day in product((1950, 1999, 2000, 2011, 2049), range(1, 13), range(1, 29))
    ]
    days += [date(2024, month, day) for month in (1, 3, 5, 7, 8, 10, 12) for day in (29, 30, 31)]
    for day in days:
        for words, styles in LANGUAGES:
            for text in (style.format_map(words(day)) for style in styles):
                for source in (text, text.lower(), text.upper()):
                    assert meanings.setdefault(source, day) == day, source
                    assert solve(source)[0] == day, source


def test_a_source_has_one_target(dates: list[Pair]) -> None:
    targets: dict[str, str] = {}
    for source, target in chain(dates, generate("dates", 50_000, 3, "train")):
        assert targets.setdefault(source, target) == target, source
    assert len(targets) > 100_000


def test_all_languages_styles_and_years_occur(dates: list[Pair]) -> None:
    sources = [source for source, _ in dates]
    share = sum(bool(re.search(r"[가-힣]|^'|^\d{4}[./]", source)) for source in sources) / len(sources)
    assert share == pytest.approx(0.25, abs=0.01)
    for english, german, french in (("october", "oktober", "octobre"), ("july", "juli", "juillet")):
        found = Counter(word for source in sources for word in re.findall(r"\w+", source.lower()))
        assert min(found[english], found[german], found[french]) > 400
    assert {target[:4] for _, target in dates} == {str(year) for year in range(1950, 2050)}


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (
            date(2024, 3, 1),
            {"1st of March 2024", "vendredi 1er mars 2024", "le premier mars 2024", "der erste März 2024"},
        ),
        (
            date(2024, 3, 5),
            {"Tue, 5 Mar 2024", "2024년 3월 5일 화요일", "Dienstag, den 5. März 2024", "mar. 5 mars 2024"},
        ),
        (
            date(2005, 6, 2),
            {"Jun 2, '05", "05년 6월 2일", "'05. 6. 2.", "02.06.2005", "이천오년 유월 이일", "2 juin 2005"},
        ),
        (date(1999, 10, 13), {"October 13th, 1999", "천구백구십구년 시월 십삼일", "Mi., 13. Okt. 1999", "13-Oct-1999"}),
        (date(2049, 12, 11), {"11th December 2049", "the eleventh of December, 2049", "2049. 12. 11. (토)"}),
        (date(1950, 2, 12), {"12th February 1950", "am Sonntag, dem 12. Februar 1950", "1950/02/12"}),
        (date(2031, 8, 23), {"the 23rd of August, 2031", "le vingt-trois août 2031", "23.8.2031", "sam. 23 août 2031"}),
        (date(2031, 8, 31), {"August 31st, 2031", "le trente et un août 2031", "der einunddreißigste August 2031"}),
    ],
)
def test_dates_are_written_as_people_write_them(day: date, expected: set[str]) -> None:
    assert expected <= {style.format_map(words(day)) for words, styles in LANGUAGES for style in styles}


def test_letter_case_varies_in_moderation(dates: list[Pair]) -> None:
    latin = [source for source, _ in dates if re.search(r"[A-Za-z]{3}", source)]
    assert 0.02 < sum(source.isupper() for source in latin) / len(latin) < 0.06


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "일"),
        (10, "십"),
        (11, "십일"),
        (20, "이십"),
        (31, "삼십일"),
        (1950, "천구백오십"),
        (2000, "이천"),
        (2024, "이천이십사"),
    ],
)
def test_korean_numbers(number: int, words: str) -> None:
    assert korean_number(number) == words
    assert sino_korean(words) == number


@pytest.mark.parametrize(
    ("name", "solution"), [("copy", list), ("reverse", lambda symbols: symbols[::-1]), ("sort", sorted)]
)
@pytest.mark.parametrize("part", PARTS)
def test_sequences(name: str, solution: type[list[str]], part: Part) -> None:
    lengths = set()
    for source, target in generate(name, 2_000, 1, part):
        symbols = source.split(" ")
        assert target.split(" ") == solution(symbols)
        assert set(symbols) <= set("abcdefghij")
        lengths.add(len(symbols))
    assert lengths == set(range(3, 13))


@pytest.mark.parametrize("name", CORPORA)
def test_parts_share_nothing_whatever_the_seed(name: str) -> None:
    column = 1 if name == "dates" else 0
    seen = {part: {pair[column] for seed in (1, 7) for pair in generate(name, 1_000, seed, part)} for part in PARTS}
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]


def test_parts_are_nine_tenths_and_twice_a_twentieth() -> None:
    counts = Counter(part_of(f"text {number}") for number in range(20_000))
    assert counts["train"] == pytest.approx(18_000, rel=0.02)
    assert counts["validation"] == pytest.approx(1_000, rel=0.1)
    assert counts["test"] == pytest.approx(1_000, rel=0.1)


@pytest.mark.parametrize("name", CORPORA)
def test_sizes_and_seeds(name: str) -> None:
    for part in PARTS:
        assert sum(1 for _ in generate(name, None, 1, part)) == SIZES[part]
    assert list(generate(name, 50, 1, "train")) == list(islice(generate(name, 90, 1, "train"), 50))
    assert list(generate(name, 50, 1, "train")) != list(generate(name, 50, 2, "train"))


def test_names_agree_with_the_config() -> None:
    assert tuple(GENERATORS) == CORPORA
    assert get_args(get_args(Corpus.model_fields["corpus"].annotation)[0]) == CORPORA


GOLDEN: dict[tuple[str, Part], list[Pair]] = {
    ("dates", "train"): [
        ("1982/12/13", "1982-12-13"),
        ("sam. 25 déc. 2027", "2027-12-25"),
        ("목요일, 2048년 1월 16일", "2048-01-16"),
    ],
    ("dates", "validation"): [
        ("am 10. Juli 1989", "1989-07-10"),
        ("Montag, 8. Juli 2013", "2013-07-08"),
        ("2046/04/19", "2046-04-19"),
    ],
    ("dates", "test"): [
        ("13. februar 2006", "2006-02-13"),
        ("2025. 1. 2.", "2025-01-02"),
        ("le 4 octobre 1995", "1995-10-04"),
    ],
    ("copy", "train"): [("i c i j a f c", "i c i j a f c"), ("f b i", "f b i"), ("g c g b a i j", "g c g b a i j")],
    ("reverse", "validation"): [
        ("i a c d d c", "c d d c a i"),
        ("d e e e b e d b j g i h", "h i g j b d e b e e e d"),
        ("d b h b i i", "i i b h b d"),
    ],
    ("sort", "test"): [("g b e", "b e g"), ("i a a", "a a i"), ("e j e d f e", "d e e e f j")],
}


@pytest.mark.parametrize(("name", "part"), GOLDEN)
def test_text_is_the_same_on_every_machine(name: str, part: Part) -> None:
    """When this changes on purpose, VERSION in corpora.py counts up."""
    assert list(generate(name, 3, 1, part)) == GOLDEN[name, part]
