"""The built-in corpora: the same on every machine, and with nothing in common between their parts.

Dates, sequences, facts, sentences with ambiguous words and pictures of shapes are generated, from the
words in packaged/words.yaml. A stable hash of what must be unseen (the date, or the source text)
decides which part an example belongs to, so that a test set holds no date and no source of the
training set, whatever the seeds and sizes.

Greetings come from greetings.py and are divided in the same way. All others come as files in
packaged/: phrases, headlines, tales, names, reviews, portraits, stories, and chat-ko, which was
written by hand. The generators of commit 6733b05 wrote the others with seed 1;
tests/unit/test_corpora.py holds hashes of what these wrote. NAME.bz2 is a table, stored column by
column with a form feed between the columns. The first line of a column lists its pieces of text
with tabs between them, and each further line is a cell, in which character 14 + n stands for piece
n. The first column is the part: train, validation or test. Several questions about one text share a
row, with | between them.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import cache, partial
from importlib.resources import files
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, TypeVar, cast

from regard.config import Tree, parse_yaml
from regard.data.greetings import GREETINGS
from regard.data.shapes import (
    COLOURS,
    OUTLINES,
    RADIUS,
    Language,
    Scene,
    Thing,
    draw,
    in_order,
    parse,
)
from regard.errors import DataError, did_you_mean, import_extra
from regard.language import particle_after
from regard.text.writing import write_file

T = TypeVar("T")
Part = Literal["train", "validation", "test"]
Cells = tuple[str, ...]  # the columns of a row
Generator = Callable[[Random, Part], Iterator[Cells]]

SIZES: dict[Part, int] = {"train": 20_000, "validation": 500, "test": 1_000}
"""How many examples are generated when the recipe does not say."""
VERSION = 6  # counts up when a built-in corpus changes, so that no cache goes on with the old text
WORDS = range(3, 13)  # how many words the English sentences of the phrases have
REVERSED = {"phrases-ko-en": "phrases-en-ko", "phrases-fr-en": "phrases-en-fr"}
"""Pairs the other way round. Held-out parts then lack the few sentences that the training part has
in other words."""
FIRST_PIECE = 14  # the character that stands for the first piece of text in a file
PACKAGED = files("regard.data").joinpath("packaged")


def generate(
    name: str,
    size: int | None,
    seed: int,
    part: Part,
    words: range = WORDS,
    about: str | None = None,
) -> Iterator[Cells]:
    """The rows of one part of a built-in corpus; a longer part begins with a shorter one.

    Pairs are source and target; `packaged_rows` lists the columns of the other corpora. Without a
    size, the part has all rows that come as files, or as many as `SIZES` says. `words` is for the
    phrases, `about` for the stories.
    """
    if name in REVERSED:
        seen = (
            set() if part == "train" else {row[1] for row in packaged_rows(REVERSED[name], "train")}
        )
        pairs = generate(REVERSED[name], size, seed, part, words)
        return (pair[::-1] for pair in pairs if pair[1] not in seen)
    random = Random(f"{name}:{seed}:{part}")
    if name in GENERATORS:
        return islice(GENERATORS[name](random, part), SIZES[part] if size is None else size)
    rows = packaged_rows(name, part, seed, about)
    if name.startswith("phrases-"):
        by_words = {
            length: [row for row in rows if len(row[0].split()) == length] for length in WORDS
        }
        if words.stop > WORDS.stop:
            return islice(_longer(random, by_words, words), SIZES[part] if size is None else size)
        rows = [row for row in rows if len(row[0].split()) in words]
    if size is not None and size > len(rows):
        what = f"the package has {len(rows):,} such rows for {part}, not {size:,}"
        raise DataError(what, where=f"corpus {name}", hint=f"size: {len(rows)} is the most")
    return iter(rows[:size])


def pick(random: Random, items: Sequence[T]) -> T:
    """One of the items. `random()` is the only draw whose sequence Python promises to keep between
    versions."""
    return items[int(random.random() * len(items))]


def with_particles(text: str) -> str:
    """The particles that fit the words before them: 배을/를 -> 배를."""
    return re.sub(r"(.)(.)/.", lambda at: at[1] + particle_after(at[1], at[2]), text)


def part_of(text: str) -> Part:
    """Nine in ten texts are for training, the rest for validation and test in equal shares."""
    share = hashlib.blake2b(text.encode(), digest_size=8).digest()
    bucket = int.from_bytes(share, "big") % 20
    return "validation" if bucket == 18 else "test" if bucket == 19 else "train"


@cache
def generator_words() -> Tree:
    return parse_yaml(PACKAGED.joinpath("words.yaml").read_text(encoding="utf-8"), "words.yaml")


# Corpora that come as files


@cache
def _table(name: str) -> tuple[Cells, ...]:
    """All rows of a file, the part first."""
    compressed = PACKAGED.joinpath(f"{name}.bz2").read_bytes()
    columns = []
    for column in bz2.decompress(compressed).decode().split("\f"):
        pieces, _, coded = column.partition("\n")
        columns.append(
            coded.translate(dict(enumerate(pieces.split("\t"), FIRST_PIECE))).split("\n")
        )
    return tuple(zip(*columns, strict=True))


def packaged_rows(name: str, part: Part, seed: int = 1, about: str | None = None) -> list[Cells]:
    """The rows of a part: in the order of the file with seed 1, shuffled with any other seed.

    phrases: English, translation   headlines: report, headline   tales: text   chat: what one says, the answer
    greetings: source, target, shuffled with every seed
    phenomena: phrases with a pronoun or, in the Korean target, a homonym; which; its position (words are counted from
    0, a homonym's in the target); the position in the source of what it refers to; that word
    names: words, tags   reviews: text, label   portraits: text, question, answer ("" if there is none)
    stories: how the story begins, the story so far (a sentence a line), question, answer, numbers of the supporting
    sentences from 0; `about` selects one kind of question, otherwise the kinds take turns, a story each
    """
    if name in GREETINGS:
        rows = [[*pair] for pair in GREETINGS[name]() if part_of(pair[0]) == part]
    else:
        rows = [row for own, *row in _table(name) if own == part]
    if name.startswith("stories-"):
        kinds = dict.fromkeys(row[0] for row in rows) if about is None else [about]
        rows = list(
            chain(*zip(*([row for row in rows if row[0] == kind] for kind in kinds), strict=True))
        )
    if seed != 1 or name in GREETINGS:
        random = Random(f"{name}:{seed}:{part}")
        rows.sort(key=lambda _: random.random())
    if name.startswith("stories-"):
        return list(chain.from_iterable(_questions_of_story(row[1:]) for row in rows))
    if name.startswith("portraits-"):
        return [(text, *question) for text, *cells in rows for question in _questions(cells)]
    return [tuple(row) for row in rows]


def _questions(cells: Sequence[str]) -> Iterator[Cells]:
    return zip(*(cell.split("|") for cell in cells), strict=True)


def _questions_of_story(cells: Sequence[str]) -> Iterator[Cells]:
    """Each question with the story before it."""
    opening = story = ""
    for sentences, *question in _questions(cells):
        story += "\n" * bool(story) + sentences.replace(". ", ".\n")
        opening = opening or story
        yield opening, story, *question


def _longer(random: Random, by_words: dict[int, list[Cells]], words: range) -> Iterator[Cells]:
    """Sentences one after the other, of as many English words together; all numbers of words are
    equally frequent."""
    while True:
        left = pick(random, words)
        chosen = list[Cells]()
        while left:
            length = pick(
                random,
                [length for length in WORDS if length == left or length <= left - WORDS.start],
            )
            chosen.append(pick(random, by_words[length]))
            left -= length
        yield tuple(" ".join(column) for column in zip(*chosen, strict=True))


# Sequences: copy, reverse, sort

SYMBOLS = tuple("abcdefghij")
LENGTHS = range(3, 13)


def _sequences(
    answer: Callable[[list[str]], list[str]], random: Random, part: Part
) -> Iterator[Cells]:
    while True:
        symbols = [pick(random, SYMBOLS) for _ in range(pick(random, LENGTHS))]
        if part_of(" ".join(symbols)) == part:
            yield " ".join(symbols), " ".join(answer(symbols))


# Dates as people write them -> ISO 8601

FIRST_DAY, LAST_DAY = date(1950, 1, 1), date(2049, 12, 31)
"""One hundred years, so that a year of two digits still means one year: '50 to '99 and '00 to
'49."""


def date_words(language: Tree, day: date) -> dict[str, str]:
    """What the styles of a language may contain, for one day."""
    year, month = f"{day.year}", language["months"].split()[day.month - 1]
    weekday = language["weekdays"].split()[day.weekday()]
    short_months = language.get("short", "").split()
    ending = {1: "st", 2: "nd", 3: "rd"}.get(0 if day.day in (11, 12, 13) else day.day % 10, "th")
    return {
        "year": year,
        "yy": year[2:],
        "year_word": korean_number(day.year),
        "m": f"{day.month}",
        "mm": f"{day.month:02}",
        "month": month,
        "mon": short_months[day.month - 1] if short_months else month[:3],
        # June and October lose a sound: 유월 and 시월, not 육월 and 십월
        "month_word": {6: "유", 10: "시"}.get(day.month, korean_number(day.month)),
        "day": f"{day.day}",
        "dd": f"{day.day:02}",
        "ordinal": f"{day.day}{ending}",
        "jour": "1er" if day.day == 1 else f"{day.day}",
        "word": language["days"][day.day - 1],
        "weekday": weekday,
        "wd": weekday[: language.get("short_weekday", 3)],
    }


def korean_number(number: int) -> str:
    """Sino-Korean numerals below 10,000: 2024 -> 이천이십사; a one before 천, 백 and 십 is not said."""
    text = ""
    for unit, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        if digit := number // unit % 10:
            text += name if digit == 1 and name else " 일이삼사오육칠팔구"[digit] + name
    return text


def _dates(random: Random, part: Part) -> Iterator[Cells]:
    """Most dates are written as they should be, some in small letters or in capitals."""
    days = [FIRST_DAY + timedelta(number) for number in range((LAST_DAY - FIRST_DAY).days + 1)]
    days = [day for day in days if part_of(day.isoformat()) == part]
    while True:
        day = pick(random, days)
        language = pick(random, generator_words()["dates"])
        text = pick(random, language["styles"]).format_map(date_words(language, day))
        share = random.random()
        yield (
            text.lower() if share < 0.08 else text.upper() if share < 0.12 else text,
            day.isoformat(),
        )


# Raw text with words whose meaning another word of the sentence decides


class AmbiguousSentence(NamedTuple):
    """A sentence with such a word. Positions count words between spaces."""

    text: str
    kind: str  # homonym, noun (with one meaning only) or pronoun
    position: int
    decided_by: int  # the word that tells the meaning; of a pronoun, the noun that it stands for
    meaning: str


def meanings(name: str, random: Random, part: Part) -> Iterator[AmbiguousSentence]:
    """Sentences of a part without end: two in three are about a noun, the others have a pronoun."""
    grammar = generator_words()[name]
    while True:
        words = {slot: pick(random, choices) for slot, choices in grammar["others"].items()}
        if random.random() < 1 / 3:
            kind = "pronoun"
            frame = grammar["pronoun"]
            words["act"] = pick(random, [*grammar["things"]])
            nouns = {"animal": grammar["animals"], "thing": grammar["things"][words["act"]]}
            words |= {slot: pick(random, own.split()) for slot, (own, _) in nouns.items()}
            meant = pick(random, [*nouns])
            meaning = words[meant]
            words["state"] = pick(random, nouns[meant][1].split())
            words[meant] = f"+{meaning}"
            if "because" in grammar and random.random() < 0.5:
                frame = grammar["because"]
                # 피곤했어요 -> 피곤하였기, 넓었어요 -> 넓었기
                words["cause"] = words["state"].replace("했어요", "하였어요").replace("어요", "기")
        else:
            meaning = pick(random, [*grammar["nouns"]])
            frame, tells = pick(random, [("before", 1), ("after", 2)])
            frame = grammar[frame]
            own = grammar["nouns"][meaning]
            words["noun"] = pick(random, own[0].split())
            words["tells"] = pick(random, own[tells].split())
            alike = sum(words["noun"] in row[0].split() for row in grammar["nouns"].values())
            kind = "homonym" if alike > 1 else "noun"
        text = with_particles(frame.format_map(words))
        marked = text.split(" ")
        position, decided_by = ([word[0] for word in marked].index(mark) for mark in "*+")
        text = " ".join(word.lstrip("*+") for word in marked)
        if part_of(text) == part:
            yield AmbiguousSentence(text, kind, position, decided_by, meaning)


def _meanings(name: str, random: Random, part: Part) -> Iterator[Cells]:
    return (tuple(map(str, sentence)) for sentence in meanings(name, random, part))


# Order: two people act, and other things happen before, between and after


def _order(random: Random, part: Part) -> Iterator[Cells]:
    """ "First the rain fell, then Ben left, then a dog barked, then Anna sang, then the sun rose.":
    Ben was first.

    None to three events stand between the two, one or two before and one or two after. So nothing
    near a name tells.
    """
    words = generator_words()["order"]
    while True:
        people = ["Anna", "Ben"] if random.random() < 0.5 else ["Ben", "Anna"]
        before, between, after = (
            [pick(random, words["events"]) for _ in range(pick(random, counts))]
            for counts in (range(1, 3), range(4), range(1, 3))
        )
        acts = [f"{person} {pick(random, words['acts'])}" for person in people]
        text = f"First {', then '.join([*before, acts[0], *between, acts[1], *after])}."
        if part_of(text) == part:
            yield text, people[0]


# Errands and pets: two sentences, of which the second depends on the first


def _errands(random: Random, part: Part) -> Iterator[Cells]:
    """ "the man went to the store. he bought a gallon of milk." and "my dog is hairy. it barks at
    the postman."."""
    words = generator_words()["errands"]
    while True:
        if random.random() < 0.7:
            (person, pronoun), (place, acts) = (
                pick(random, [*words[what].items()]) for what in ("people", "places")
            )
            text = (
                f"the {person} went to the {place}. {pronoun} "
                f"{pick(random, acts)}{pick(random, words['times'])}."
            )
        else:
            pet, (like, does) = pick(random, [*words["pets"].items()])
            text = (
                f"{pick(random, words['owners'])} {pet} is {like}. "
                f"{does}{pick(random, words['habits'])}."
            )
        if part_of(text) == part:
            yield (text,)


# What somebody thought of something: as a diary, which goes on, and as an opinion with a label


def _opinions(random: Random, part: Part, *, diary: bool = False) -> Iterator[Cells]:
    """ "어제 본 영화는 지루했다." with its label 나쁨; in a diary without a label, but with what followed
    from it: "돈이 아까웠다." So the text of diaries tells which words are alike."""
    words = generator_words()["opinions-ko"]
    while True:
        label = pick(random, ["좋음", "나쁨"])
        adjective = pick(random, " ".join(words[label]).split())
        thing = pick(random, words["things"])
        text = f"{pick(random, words['times'])} {thing}{particle_after(thing, '은')} {adjective}."
        if diary:
            text += f" {pick(random, words['then'][label])}."
        if part_of(text) == part:
            yield (text,) if diary else (text, label)


# Facts about things that come in pairs, for word vectors

FACTS = range(2, 5)
"""How many sentences a text has."""


class Analogy(NamedTuple):
    """a is to b as c is to d."""

    relation: str
    a: str
    b: str
    c: str
    d: str


def _facts(name: str, random: Random, part: Part) -> Iterator[Cells]:
    """ "she is the queen who wears a crown. the actress plays a queen who rules the land."

    What makes a queen of a king makes an actress of an actor: so vectors that are learned from the
    words around a word have the difference of a relation in common.
    """
    grammar = generator_words()[name]
    while True:
        relation = pick(random, [*grammar.values()])
        pair = pick(random, relation["pairs"])
        side = pick(random, range(2))
        frames = relation["frames"][side]
        sentences = list[str]()
        wanted = pick(random, FACTS)
        while len(sentences) < wanted:
            words = {slot: pick(random, choices) for slot, choices in pair.items() if slot != "of"}
            sentence = f"{pick(random, frames).format(it=pair['of'][side], **words)}."
            if sentence not in sentences:
                sentences.append(sentence)
        text = with_particles(" ".join(sentences))
        if part_of(text) == part:
            yield (text,)


def analogies(name: str) -> list[Analogy]:
    """All analogies between two pairs of a relation in the facts: king is to queen as man is to
    woman."""
    if not name.startswith("facts-") or name not in GENERATORS:
        allowed = [own for own in GENERATORS if own.startswith("facts-")]
        raise DataError(
            f"there are no analogies of {name!r}", where="corpora", hint=did_you_mean(name, allowed)
        )
    return [
        Analogy(relation, *pair["of"], *other["of"])
        for relation, rows in generator_words()[name].items()
        for pair in rows["pairs"]
        for other in rows["pairs"]
        if pair is not other
    ]


# Conversations in which an answer may depend on an earlier turn

TURN_MARK = "|"
"""Stands between the turns in the source of a conversation: what was said, the answer, and so on."""
EXCHANGES = range(1, 5)


def joined_turns(exchanges: Sequence[tuple[str, str]], text: str) -> str:
    """What was said and answered before a text, and the text: the source of its answer."""
    turns = [turn for exchange in exchanges for turn in exchange]
    return f" {TURN_MARK} ".join([*turns, text])


def _conversations(name: str, random: Random, part: Part) -> Iterator[Cells]:
    """ "my name is Anna. | nice to meet you, Anna. | what is my name?" -> "you are Anna."

    The last turn alone does not tell the answer. Two in three conversations end with a question for
    a fact, which was told before or not.
    """
    grammar = generator_words()[name]
    while True:
        told = dict[str, str]()
        exchanges = [
            _exchange(grammar, random, told, asks=random.random() < 0.3)
            for _ in range(pick(random, EXCHANGES) - 1)
        ]
        said, answer = _exchange(grammar, random, told, asks=random.random() < 2 / 3)
        source = with_particles(joined_turns(exchanges, said))
        if part_of(source) == part:
            yield source, with_particles(answer)


def _exchange(
    grammar: Tree, random: Random, told: dict[str, str], *, asks: bool
) -> tuple[str, str]:
    """Something that is said and its answer; `told` has the facts so far, and gets what is told."""
    if not asks and random.random() < 0.3:
        said, answer = pick(random, grammar["others"])
        return said, answer
    names = [*grammar["facts"]]
    name = pick(random, [*told] if asks and told and random.random() < 0.6 else names)
    fact = grammar["facts"][name]
    if asks:
        answer = fact["know"].format(it=told[name]) if name in told else fact["unknown"]
        return pick(random, fact["ask"]), answer
    told[name] = pick(random, fact["words"])
    return pick(random, fact["tell"]).format(it=told[name]), fact["reply"].format(it=told[name])


# Natural language inference: two sentences about one scene

INFERENCES = ("entailment", "neutral", "contradiction")
SLOTS = ("subject", "act", "place", "time")
HYPOTHESES_TRIED = 400


@cache
def _relation(name: str, slot: str, given: str, said: str) -> str:
    """How a word of a hypothesis follows from the word of a premise in the same slot."""
    lines = generator_words()[name][slot]
    if any(given in line and said in line[line.index(given) :] for line in lines):
        return "entailment"
    particular = any(said in line and given in line[line.index(said) :] for line in lines)
    return "neutral" if particular else "contradiction"


def inference(name: str, premise: Sequence[str], hypothesis: Sequence[str]) -> str:
    """Whether a hypothesis follows from a premise, may be true, or cannot be; the same scene is
    meant, so that what is neither equal nor more general nor more particular excludes each
    other."""
    words = zip(SLOTS, premise, hypothesis, strict=True)
    relations = {_relation(name, slot, given, said) for slot, given, said in words}
    return next(label for label in reversed(INFERENCES) if label in relations)


def _inferences(name: str, random: Random, part: Part) -> Iterator[Cells]:
    """ "a boy eats an apple in the park." entails "a child eats fruit outside."; "a boy eats an apple
    outside." is neutral to "a boy eats fruit in the park."; "a girl eats ..." contradicts it.

    The three labels are equally frequent. Both sentences are of the part, so no sentence of one
    part occurs in another.
    """
    grammar = generator_words()[name]

    def sentence(words: Sequence[str]) -> str:
        text = grammar["frame"].format(**dict(zip(SLOTS, words, strict=True))).replace("-", "")
        return re.sub(r"(.)이/가", lambda at: at[1] + particle_after(at[1], "이"), text)

    labels = cycle(INFERENCES)
    label = next(labels)
    while True:
        premise = _scene_words(grammar, random)
        if part_of(sentence(premise)) != part:
            continue
        # nothing is more general than some premises, and nothing more particular than others
        for _ in range(HYPOTHESES_TRIED):
            hypothesis = [
                _related(grammar[slot], word, label, random)
                for slot, word in zip(SLOTS, premise, strict=True)
            ]
            fits = (
                hypothesis != premise
                and inference(name, premise, hypothesis) == label
                and part_of(sentence(hypothesis)) == part
            )
            if fits:
                yield sentence(premise), sentence(hypothesis), label
                label = next(labels)
                break


def _scene_words(grammar: Tree, random: Random) -> list[str]:
    return [pick(random, pick(random, grammar[slot])) for slot in SLOTS]


def _related(lines: Sequence[Sequence[str]], word: str, label: str, random: Random) -> str:
    """A word for the same slot: most often of the same line, and any word now and then in a
    contradiction."""
    if label == "contradiction" and random.random() < 0.4:
        return pick(random, pick(random, lines))
    return pick(random, pick(random, [line for line in lines if word in line]))


# Pictures of shapes, as text that is drawn when it is looked at

GAP = 4
EDGE = 2
CLEAR = 1.5
"""The least distance between two boxes and to the edge, in hundredths of the side. A relation as
`left of` has a name only where one of the distances, across or down, is CLEAR times the other."""


def scenes(random: Random) -> Iterator[Scene]:
    """Endless scenes of two different things that do not touch, one clearly beside or above the
    other."""
    while True:
        first, second = (
            [pick(random, tuple(words)) for words in (RADIUS, COLOURS, OUTLINES)] for _ in range(2)
        )
        placed = False
        while first[1:] != second[1:] and not placed:
            things = []
            for size, colour, outline in (first, second):
                places = range(RADIUS[size] + EDGE, 101 - RADIUS[size] - EDGE)
                things.append(
                    Thing(size, colour, outline, pick(random, places), pick(random, places))
                )
            scene = Scene(*things)
            apart = sorted(
                (abs(scene.first.x - scene.second.x), abs(scene.first.y - scene.second.y))
            )
            placed = apart[1] >= max(RADIUS[first[0]] + RADIUS[second[0]] + GAP, CLEAR * apart[0])
        if placed:
            yield in_order(scene)


def _shapes(language: Language, random: Random, part: Part) -> Iterator[Cells]:
    return (
        (scene.code, scene.caption(language))
        for scene in scenes(random)
        if part_of(scene.kinds) == part
    )


GENERATORS: dict[str, Generator] = {
    "dates": _dates,
    "copy": partial(_sequences, list),
    "reverse": partial(_sequences, lambda symbols: symbols[::-1]),
    "sort": partial(_sequences, sorted),
    **{name: partial(_meanings, name) for name in ("meanings-en", "meanings-ko")},
    "order": _order,
    "errands": _errands,
    "diaries-ko": partial(_opinions, diary=True),
    "opinions-ko": _opinions,
    **{name: partial(_facts, name) for name in ("facts-en", "facts-ko")},
    **{name: partial(_conversations, name) for name in ("conversations-en", "conversations-ko")},
    **{name: partial(_inferences, name) for name in ("inference-en", "inference-ko")},
    "shapes": partial(_shapes, "english"),
    "shapes-ko": partial(_shapes, "korean"),
}
"""The corpora that are generated, by the name that recipes use."""


# As files, which are what a user's own look like


def names() -> list[str]:
    packaged = (
        file.name.removesuffix(".bz2") for file in PACKAGED.iterdir() if file.name.endswith(".bz2")
    )
    return sorted({*GENERATORS, *REVERSED, *packaged})


COLUMNS = {
    "phenomena": ("source", "target", "phenomenon", "position", "refers_to", "meaning"),
    "meanings": AmbiguousSentence._fields,
    **dict.fromkeys(
        ("tales", "errands", "reviews", "order", "diaries", "opinions", "facts"), ("text", "label")
    ),
    "headlines": ("document", "summary"),
    "inference": ("first", "second", "label"),
    "shapes": ("image", "caption"),
}
"""The columns of corpora that are no pairs of source and target."""
POSITIONS = {"position", "refers_to", "decided_by"}


def as_object(name: str, row: Cells) -> dict[str, object]:
    """A row as a line of the .jsonl file that the corpus's task reads."""
    match kind := name.partition("-")[0]:
        case "names":
            return {"tokens": row[0].split(), "tags": row[1].split()}
        case "portraits":
            return {"context": row[0], "question": row[1], "answers": [row[2]] if row[2] else []}
        case "stories":
            facts = [int(number) + 1 for number in row[4].split()]
            return {
                "story": row[1].split("\n"),
                "question": row[2],
                "answer": row[3],
                "facts": facts,
            }
    cells = zip(COLUMNS.get(kind, ("source", "target")), row, strict=False)
    return {column: int(cell) if column in POSITIONS else cell for column, cell in cells}


def objects(name: str, size: int | None, part: str) -> list[dict[str, object]]:
    """The rows of a part, each as a line of a .jsonl file."""
    for what, given, allowed in (("corpus", name, names()), ("part", part, [*SIZES])):
        if given not in allowed:
            raise DataError(
                f"there is no {what} {given!r}", where="corpora", hint=did_you_mean(given, allowed)
            )
    return [as_object(name, row) for row in generate(name, size, 1, cast(Part, part))]


def write_corpus(name: str, out: Path, size: int | None = None, part: str = "train") -> int:
    """Write a part of a built-in corpus as .jsonl, and images in a folder beside it; how many rows
    it has."""
    rows = objects(name, size, part)
    if name.startswith("shapes"):
        pillow = import_extra("PIL.Image", extra="images", where=name, doing="writing")
        out.with_suffix("").mkdir(parents=True, exist_ok=True)
        for number, row in enumerate(rows, 1):
            image = pillow.fromarray(draw(parse(str(row["image"]), name), side=128))
            row["image"] = f"{out.stem}/{number}.png"
            image.save(out.parent / str(row["image"]))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    return len(rows)
