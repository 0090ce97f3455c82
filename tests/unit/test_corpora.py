"""The built-in corpora are right, the same everywhere, and share nothing between their parts."""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from datetime import date
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from command_line import fail, succeed
from regard.data import corpora
from regard.data.config import BuiltIn
from regard.data.corpora import (
    GENERATORS,
    SIZES,
    TURNED,
    Cells,
    Part,
    as_object,
    date_words,
    first_rows,
    generate,
    generator_words,
    korean_number,
    meanings,
    packaged_rows,
    part_of,
)  # fmt: skip
from regard.data.readers import open_corpus
from regard.errors import DataError
from regard.tasks.translation import Parallel

PARTS: tuple[Part, ...] = ("train", "validation", "test")

# Generated corpora


def test_no_two_dates_look_the_same() -> None:
    """In any style and any letter case, so that a source has one target."""
    meanings: dict[str, date] = {}
    days = [date(*day) for day in product((1950, 1999, 2000, 2011, 2049), range(1, 13), range(1, 29))]
    days += [date(2024, month, day) for month in (1, 3, 5, 7, 8, 10, 12) for day in (29, 30, 31)]
    for day, language in product(days, generator_words()["dates"]):
        for text in (style.format_map(date_words(language, day)) for style in language["styles"]):
            for source in (text, text.lower(), text.upper()):
                assert meanings.setdefault(source, day) == day, source


@pytest.mark.parametrize(("day", "expected"), [
    (date(2024, 3, 1), {"1st of March 2024", "vendredi 1er mars 2024", "le premier mars 2024", "der erste März 2024"}),
    (date(2024, 3, 5), {"Tue, 5 Mar 2024", "2024년 3월 5일 화요일", "Dienstag, den 5. März 2024", "mar. 5 mars 2024"}),
    (date(2005, 6, 2), {"Jun 2, '05", "05년 6월 2일", "'05. 6. 2.", "02.06.2005", "이천오년 유월 이일", "2 juin 2005"}),
    (date(1999, 10, 13), {"October 13th, 1999", "천구백구십구년 시월 십삼일", "Mi., 13. Okt. 1999", "13-Oct-1999"}),
    (date(2049, 12, 11), {"11th December 2049", "the eleventh of December, 2049", "2049. 12. 11. (토)"}),
    (date(1950, 2, 12), {"12th February 1950", "am Sonntag, dem 12. Februar 1950", "1950/02/12"}),
    (date(2031, 8, 23), {"the 23rd of August, 2031", "le vingt-trois août 2031", "23.8.2031", "sam. 23 août 2031"}),
    (date(2031, 8, 31), {"August 31st, 2031", "le trente et un août 2031", "der einunddreißigste August 2031"}),
])  # fmt: skip
def test_dates_are_written_as_people_write_them(day: date, expected: set[str]) -> None:
    assert expected <= {
        style.format_map(date_words(language, day))
        for language in generator_words()["dates"]
        for style in language["styles"]
    }


@pytest.mark.parametrize(("number", "words"), [
    (1, "일"), (10, "십"), (11, "십일"), (20, "이십"), (31, "삼십일"), (1950, "천구백오십"), (2000, "이천"),
    (2024, "이천이십사"),
])  # fmt: skip
def test_korean_numbers(number: int, words: str) -> None:
    assert korean_number(number) == words


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


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_parts_sizes_and_seeds(name: str) -> None:
    """Parts share nothing, whatever the seed; the first rows do not depend on the size."""
    column = 1 if name == "dates" else 0
    seen = {part: {pair[column] for seed in (1, 7) for pair in generate(name, 120, seed, part)} for part in PARTS}
    assert not seen["train"] & seen["validation"] | seen["train"] & seen["test"] | seen["validation"] & seen["test"]
    assert list(generate(name, 50, 1, "train")) == list(generate(name, 90, 1, "train"))[:50]
    assert list(generate(name, 50, 1, "train")) != list(generate(name, 50, 2, "train"))


@pytest.mark.parametrize(("name", "pairs"), [
    ("greetings-en-ko", {"How are you?": "잘 지내?", "Is Minsu sick?": "민수는 아파?"}),
    ("greetings-fr-en", {"je suis étudiant": "I am a student", "elle n'est pas prête": "she is not ready",
                         "ils ne sont pas avocats": "they are not lawyers"}),
])  # fmt: skip
def test_greetings_hold_each_sentence_once(name: str, pairs: dict[str, str]) -> None:
    parts = [dict(generate(name, None, 1, part)) for part in PARTS]
    assert sum(map(len, parts)) == len(parts[0] | parts[1] | parts[2]) >= 90
    assert {**parts[0], **parts[1], **parts[2]}.items() >= pairs.items()
    assert next(iter(pairs)) in parts[0]
    with pytest.raises(DataError, match="not 1,000"):
        generate(name, 1000, 1, "train")


def test_a_part_has_a_size_of_its_own() -> None:
    assert {part: sum(1 for _ in generate("copy", None, 1, part)) for part in PARTS} == SIZES


def test_parts_are_nine_tenths_and_twice_a_twentieth() -> None:
    counts = Counter(part_of(f"text {number}") for number in range(20_000))
    assert counts["train"] == pytest.approx(18_000, rel=0.02)
    assert counts["validation"] == pytest.approx(1_000, rel=0.1)
    assert counts["test"] == pytest.approx(1_000, rel=0.1)


GENERATED = {
    "dates": "f1f8ab3cb04f506109f8e26c851e3633bf389b0088ad4cbdcb4816df7009f9a6",
    "copy": "576531e75d2e3aaf9fa6999d1e44d4895c40472b074a1e3116d51893484b6d78",
    "reverse": "c99fb0de2c355d03bec70d1aca191e973349e57963de3fa954dbcfd6447869ae",
    "sort": "799628df1989a42119c0a78daeccd39e730bd1714c1b4e9e1cdea88de1be0d4b",
    "order": "65bb92762902f55b18e5675c6d16c9217435c3110c1aa6d08266d631a5e1e931",
    "errands": "8898443dabaf700747612599a9fb0f70588de028ea41bbc251d2956397508fe8",
    "shapes": "80e228fc427364ec438f6bfce843679052fdfc236c90604d02befd7ef595a50b",
    "shapes-ko": "010c84cfcdaeb8d9e76ea27f25ae6ac09f1b19c117b300942f7e2fef7cd77e40",
}
"""SHA-256 of the first rows. A reader of the four languages found the right day and weekday in each of these dates; it
is in the history of this file, before November 2026."""


@pytest.mark.parametrize("name", GENERATED)
def test_text_is_the_same_on_every_machine(name: str) -> None:
    """When this changes on purpose, VERSION in corpora.py counts up."""
    rows = [list(generate(name, 300, seed, part)) for seed in (1, 2) for part in PARTS]
    assert hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest() == GENERATED[name]


# Corpora that come as files

WRITTEN = {
    "greetings-en-ko": "8c63e4e10f1776bcfe438ed6ad281eb82ae1cbd0af991559caac07bb079254b8",
    "greetings-fr-en": "b5fd5415dce5e5407d8dccea75d6c239e4e0ab25ac408c794d1074997faefc3c",
    "phrases-en-ko": "239a6eb7b8b2405d1575e96e2884b4cd1e8d4d582c773b8ce21366ce62201a73",
    "phrases-en-fr": "2954a16f75c92a71f6291e9a0b8c0ba1c19ec237f5eee566ecb0cae0fbf139b6",
    "headlines": "599dc445274e6110d578184e6d086a5ba074d1ccb9e6c9091dc8906610964ea9",
    "tales-en": "b3feb5d5b5b82967b6183fe4904cf981a07901f5b89ea3da794bd1bef33e6d3f",
    "tales-ko": "f46eef4fd32896cc224bd764b512be6084d0fccc683c835e3430519f6c256d2b",
    "names-en": "a712b44eabad3021cfb9b3fd37fb1e75eb9a850e71a92083b63f5b19fca83930",
    "names-ko": "959a87b95b6ab6caca243c659ed5396df04f619fbf935f8a63a25a7ea3496882",
    "reviews-en": "56e506ac9e98eaff0bfcf6f969d98536323e74bb395ee4a07a57b3ac1e19061c",
    "reviews-ko": "e6adaca0167a3d1383bef4e0e7571e1d0fa281adbf6a11394a53a5588188f9b5",
    "portraits-en": "14c7a7be4b2c414ec50accca0c23cea28e48bfa705044ebab769c274a13bbd62",
    "portraits-ko": "2284f1d5dbaf601d91dbede482759b7130b38cebfcee70de25780833ef9326e7",
    "stories-en where": "ae073d8c52cb2ee5b5c50f3c285c57edc3a120f58e497e90c203350aa4a6302d",
    "stories-en things": "ba9e60871d1bf84444a713b818d7970ba4c3123baf768762c4069d477518710f",
    "stories-en who": "393d3e108d84abaea50dcd50f468b7d445bc52c8c955595d23a5c86693f96464",
    "stories-en count": "18c17845bd4142b314556b61e6a9747843b55eee15762091afa6b2a78c922435",
    "stories-en yes_no": "2eaef06a135b274abc2e3df2e23a994ff9ae3e0e80ed049b62592359717a99b0",
    "stories-ko where": "def4c2acd1a7dd78b896874b323581aff7a90de1c84fd576cea7df17ce65e10c",
    "stories-ko things": "ce9429cd475c788715771a69f7249855e327fdc2e4255f8d9b36c64a501c666d",
    "stories-ko who": "31109643cef49aed229ca253bed842b94e4fd4eb53466b23637ba9c415c7ebab",
    "stories-ko count": "371fdf491f917c402b7dbe4474c31e248f9feafa7c4292a26c54650ea51c60ae",
    "stories-ko yes_no": "dc17b66358f34027b5e959f6bd1702949a0023bf7546c87ef8e38b59b2071e25",
    "phenomena-en-ko": "40df1ac757cc430e34d65db9c240fc677a26750e1f969675089785abcaebbf60",
    "phenomena-en-fr": "11326d141e7c1247ec75c1f67cec125a94ea63fc1c6396a89ad1526f30529ab2",
    "chat-ko": "f2abbcea52e7cb84b1069e02264e341150fb0dcd7dba346f78302337adb17369",
}
"""SHA-256 of all rows that the generators of commit 6733b05 (greetings: 152aba7) wrote with seed 1, by corpus and what
stories are about."""
FILES = sorted({key.split()[0] for key in WRITTEN})


def rows_of(key: str, part: Part) -> list[Cells]:
    name, _, about = key.partition(" ")
    return packaged_rows(name, part, about=about or None)


@pytest.mark.parametrize("key", WRITTEN)
def test_files_hold_what_the_generators_wrote(key: str) -> None:
    rows = {part: rows_of(key, part) for part in PARTS}
    assert hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest() == WRITTEN[key]


def test_files_are_small_and_each_is_known() -> None:
    found = {path.stem: path.stat().st_size for path in Path(corpora.__file__).parent.glob("packaged/*.bz2")}
    assert sorted(found) == FILES
    assert sum(found.values()) < 1_010_000
    assert set(get_args(BuiltIn)) <= {*GENERATORS, *TURNED, *FILES}


@pytest.mark.parametrize("name", FILES)
def test_a_text_belongs_to_one_part_and_has_its_columns(name: str) -> None:
    """The first column is what must be unseen: a source, a text, how a story begins."""
    for part in PARTS:
        rows = packaged_rows(name, part)
        assert all(part_of(row[0]) == part for row in rows)
        assert all(unicodedata.normalize("NFC", cell) == cell for row in rows for cell in row)
        if name.startswith("names"):
            assert all(len(words.split()) == len(tags.split()) for words, tags in rows)
        if name.startswith("portraits"):
            assert all(answer in text for text, _, answer in rows)
            assert 0.15 < sum(not answer for *_, answer in rows) / len(rows) < 0.35
        if name.startswith("stories"):
            assert all(story.startswith(opening) for opening, story, *_ in rows)
            assert all(int(facts.split()[-1]) <= story.count("\n") for _, story, _, _, facts in rows)


@pytest.mark.parametrize("name", FILES)
def test_a_seed_shuffles_a_part_and_a_size_takes_its_first_rows(name: str) -> None:
    rows, other = packaged_rows(name, "train"), packaged_rows(name, "train", seed=2)
    assert rows != other == packaged_rows(name, "train", seed=2)
    assert sorted(rows) == sorted(other)
    assert list(first_rows(rows, 20, name, "train")) == rows[:20]
    assert list(first_rows(rows, None, name, "train")) == rows


def test_more_rows_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="corpus phrases-en-fr: the package has 300 such rows for test, not 301"):
        generate("phrases-en-fr", 301, 1, "test")
    [message] = fail("check", "sentiment", "data.train.size=5000", "training.device=cpu")
    assert message == "corpus reviews-en: the package has 4,000 such rows for train, not 5,000 (size: 4000 is the most)"


def test_stories_about_everything_take_turns() -> None:
    kinds = [packaged_rows("stories-en", "train", about=about) for about in ("where", "things", "who")]
    rows = list(generate("stories-en", None, 1, "train"))
    assert rows[:12] == [row for kind in kinds for row in kind[:4]]
    assert len(rows) == 10_000
    assert list(generate("stories-en", 30, 1, "train", about="who")) == kinds[2][:30]


PARTICLE = re.compile(
    r"\b(학생|책|빵|우산|창문|사촌|지영|하은|공|사과|친구|의사|요리사|편지|민수|우유)(이|가|은|는|을|를|과|와)\b"
)


@pytest.mark.parametrize(("name", "column"), [("phrases-en-ko", 1), ("tales-ko", 0), ("stories-ko", 1)])
def test_korean_particles_agree_with_the_nouns_before_them(name: str, column: int) -> None:
    found = {match for row in packaged_rows(name, "train") for match in PARTICLE.findall(row[column])}
    assert len(found) >= 7
    for noun, particle in found:
        closed = (ord(noun[-1]) - ord("가")) % 28 > 0
        assert particle in ("이은을과" if closed else "가는를와"), noun


# Lengths of the phrases


@pytest.mark.parametrize("name", ["phrases-en-ko", "phrases-en-fr"])
@pytest.mark.parametrize(("least", "most"), [(3, 3), (7, 7), (5, 9), (3, 12), (25, 35), (60, 60), (3, 60)])
def test_lengths_are_kept_and_all_of_them_occur(name: str, least: int, most: int) -> None:
    for part, size in {"train": 800 if most > 12 else None, "test": 400 if most > 12 else None}.items():
        rows = list(generate(name, size, 1, part, range(least, most + 1)))
        assert {len(source.split()) for source, _ in rows} == set(range(least, most + 1))


def test_longer_texts_are_sentences_of_their_part_in_a_row() -> None:
    pairs = {part: dict(packaged_rows("phrases-en-ko", part)) for part in PARTS}
    for part in PARTS:
        rows = list(generate("phrases-en-ko", 1_000, 1, part, range(5, 61)))
        assert len(set(rows)) > 950
        assert rows[:10] == list(generate("phrases-en-ko", 10, 1, part, range(5, 61)))
        assert rows[:10] != list(generate("phrases-en-ko", 10, 2, part, range(5, 61)))
        for source, target in rows:
            sentences = re.findall(r"[^.?]+[.?]", source)
            assert " ".join(pairs[part][sentence.strip()] for sentence in sentences) == target
    assert sum(1 for _ in generate("phrases-en-ko", 30_000, 1, "train", range(5, 61))) == 30_000


def test_default_lengths_and_the_cache(tmp_path: Path) -> None:
    assert Parallel(corpus="phrases-en-ko").words == range(3, 13)
    assert Parallel(corpus="phrases-en-ko", min_words=20).words == range(20, 21)
    assert Parallel(corpus="phrases-en-ko", max_words=60).words == range(3, 61)
    long = open_corpus(Parallel(corpus="phrases-en-ko", size=30, min_words=20, max_words=25), tmp_path)
    assert {len(row.values[0].split()) for row in long.rows()} <= set(range(20, 26))
    short = open_corpus(Parallel(corpus="phrases-en-ko", size=30), tmp_path)
    assert long.fingerprint() != short.fingerprint()


@pytest.mark.parametrize(("name", "homonyms"), [
    ("meanings-en", {"bank": 2, "spring": 2, "match": 2}),
    ("meanings-ko", {"배를": 3, "눈을": 2, "다리를": 2, "사과를": 2}),
])  # fmt: skip
def test_what_decides_a_meaning_is_marked(name: str, homonyms: dict[str, int]) -> None:
    """One word tells it, as often before the homonym as after it; without that word the sentence could mean any."""
    marked = list(islice(meanings(name, Random(1), "train"), 20_000))
    frames: dict[str, set[str]] = {}
    meant: dict[str, set[str]] = {}
    before = Counter[bool]()
    for mark in marked:
        words = mark.text.strip(".").replace(".", "").split(" ")
        if mark.kind == "pronoun":
            assert words[mark.position] in ("it", "그것은")
            assert words[mark.decided_by].startswith(mark.meaning)
            assert mark.decided_by < mark.position
        elif mark.kind == "homonym":
            meant.setdefault(words[mark.position], set()).add(mark.meaning)
            before[mark.decided_by < mark.position] += 1
            words[mark.decided_by] = "?"
            frames.setdefault(" ".join(words), set()).add(mark.meaning)
    assert {word: len(found) for word, found in meant.items()} == homonyms
    assert 0.4 < before[True] / before.total() < 0.6
    assert sum(len(found) > 1 for found in frames.values()) > len(frames) / 2
    assert all(part_of(mark.text) == "train" for mark in marked)


def test_pronouns_and_homonyms_of_phrases_are_marked() -> None:
    meanings: dict[str, set[str]] = {}
    for row in packaged_rows("phenomena-en-ko", "test"):
        mark = as_object("phenomena-en-ko", row)
        source, target = str(mark["source"]).split(), str(mark["target"]).split()
        position, meaning = int(str(mark["position"])), str(mark["meaning"])
        assert source[int(str(mark["refers_to"]))].strip(".,") in (meaning, meaning + "s")
        if mark["phenomenon"] == "pronoun":
            assert (source[position - 1], source[position]) == ("because", "it")
        else:
            meanings.setdefault(target[position][:-1], set()).add(meaning)
    assert meanings["배"] == {"pear", "ship", "belly"}
    assert meanings["눈"] == {"eye", "snow"}


def test_phrases_the_other_way_round_share_no_source_either() -> None:
    for name, other in TURNED.items():
        sources = {part: [source for source, _ in generate(name, None, 1, part)] for part in PARTS}
        assert not {*sources["train"]} & {*sources["validation"], *sources["test"]}
        assert len(sources["validation"]) >= len(packaged_rows(other, "validation")) - 3
    assert next(generate("phrases-ko-en", 1, 1, "train")) == packaged_rows("phrases-en-ko", "train")[0][::-1]


def test_who_acts_first_is_the_label() -> None:
    rows = list(generate("order", 400, 1, "train"))
    for text, label in rows:
        assert label == min(("Anna", "Ben"), key=text.index)
    assert 0.4 < sum(label == "Anna" for _, label in rows) / len(rows) < 0.6
    between = {text.split("Anna", 1)[1 if label == "Anna" else 0].partition("Ben")[label == "Ben" and 2].count("then")
               for text, label in rows}  # fmt: skip
    assert between == {1, 2, 3, 4}


@pytest.mark.parametrize(("name", "task"), [
    ("reviews-en", "classification"), ("names-en", "tagging"), ("portraits-en", "question_answering"),
    ("errands", "language_modeling"), ("stories-en", "story_answering"), ("chat-ko", "translation"),
    ("headlines", "summarization"), ("shapes", "captioning"),
])  # fmt: skip
def test_a_corpus_as_a_file_is_read(name: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    succeed("corpora", name, "--size", "60", "--out", "own.jsonl")
    succeed("check", "own.jsonl", "--out", "own.yaml", "--json")
    recipe = Path("own.yaml").read_text(encoding="utf-8")
    assert f"task: {task}" in recipe
    [message] = fail("corpora", name, "--out", "own.jsonl")
    assert message == "own.jsonl: the file exists already (give another --out, or --overwrite)"
