"""The topics of a usual course on this line of models, and the search for one by any word that a
textbook may use for it.

`topics.yaml` is the one list: the map (docs/map.md), `regard course`, the studio's search and
tests/learning/test_topics.py read it.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml

from regard.errors import RegardError

MAX_SUGGESTIONS = 5
"""Most words that are suggested instead of an unknown one."""
MIN_SIMILARITY = 0.6
"""The least similarity, from 0 to 1, of a word that is suggested."""
MIN_PART_CHARACTERS = 2
"""A word with fewer characters is looked for only as a whole, not inside of others."""

FINDING = {
    "en": "regard course NUMBER runs a chapter; regard course WORD finds a topic, by any word that "
    "textbooks use for it.",
    "ko": "regard course 번호는 장을 실행하고, regard course 단어는 주제를 찾습니다. 교재마다 다른 "
    "말로도, 한국어로도 영어로도 찾을 수 있습니다.",
}

RELATED = {"en": "related", "ko": "관련 주제"}
"""How the lists of the command line end, and what other topics are called."""


FIRST = {"en": "first", "ko": "먼저"}
"""What is said before a command that trains the run of a topic."""


@dataclass(frozen=True)
class Topic:
    """A topic, with its names and texts by language."""

    section: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]
    """The usual name, then the words that other books use."""
    means: Mapping[str, str]
    run: str
    """A command that shows the topic, without `regard`."""
    code: str
    """The class, function or module that computes it."""
    chapter: int | None = None
    picture: str | None = None
    """`CHAPTER:FIGURE` of the course, or `show:NAME` for `regard show NAME`."""

    def name(self, language: str) -> str:
        return self.names[language][0]

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names in all languages, each once."""
        return tuple(dict.fromkeys(name for names in self.names.values() for name in names))

    @cached_property
    def plain_names(self) -> tuple[str, ...]:
        """The names without case, spaces and hyphens, by which a topic is found."""
        return tuple(map(_plain, self.all_names))

    def to_json(self) -> dict[str, Any]:
        return {
            "section": dict(self.section),
            "names": {language: list(names) for language, names in self.names.items()},
            "means": dict(self.means),
            "first": commands_before(self),
            "command": f"regard {self.run}",
            "chapter": self.chapter,
            "picture": self.picture,
            "code": self.code,
        }


@cache
def _tree() -> dict[str, Any]:
    text = (files("regard.course") / "topics.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


@cache
def topics() -> tuple[Topic, ...]:
    """All topics, in teaching order."""
    return tuple(
        Topic(
            section=section["name"],
            names={language: tuple(names) for language, names in entry["names"].items()},
            means=entry["means"],
            run=entry["run"],
            code=f"regard.{entry['code']}",
            chapter=entry.get("chapter"),
            picture=entry.get("picture"),
        )
        for section in _tree()["sections"]
        for entry in section["topics"]
    )


def training_commands() -> dict[str, str]:
    """The command, without `regard`, that makes each run of the topics' commands; by the name of
    the run. A run is named like its recipe, unless the list says how it is trained."""
    named = {
        name
        for topic in topics()
        for name in re.findall(r"runs/([\w-]+)", topic.run)
        if not topic.run.startswith(("train ", "import "))
    }
    given = _tree()["runs"]
    return {name: f"{given.get(name, f'train {name}')} --out runs/{name}" for name in sorted(named)}


def example_files() -> dict[str, str]:
    """The texts of the small files that some commands read, by their names."""
    return dict(_tree()["files"])


def find_topics(wanted: str) -> list[Topic]:
    """The topics with this name, or else those with it in a name, or else those that have all of
    its words in their names: Korean or English, in any case, with or without spaces and hyphens."""
    whole = _plain(wanted)
    words = [_plain(word) for word in wanted.split()]
    if not whole:
        return []
    for fits in (_is_named, _has_in_name, _has_all_words):
        if found := [topic for topic in topics() if fits(topic, whole, words)]:
            return found
    return []


def topics_or_refusal(wanted: str) -> list[Topic]:
    """The topics that a word finds; an error with the nearest words if there is none."""
    if found := find_topics(wanted):
        return found
    names = ", ".join(map(repr, near_names(wanted)))
    raise RegardError(
        f"there is no topic {wanted!r}",
        where="WORD",
        hint=f"did you mean {names}?" if names else "`regard course` lists them",
    )


def near_names(wanted: str) -> list[str]:
    """Names of topics that are written much like a word, nearest first."""
    by_plain = {_plain(name): name for topic in topics() for name in topic.all_names}
    near = difflib.get_close_matches(
        _plain(wanted), by_plain, n=MAX_SUGGESTIONS, cutoff=MIN_SIMILARITY
    )
    return [by_plain[name] for name in near]


def _plain(text: str) -> str:
    """A name without case, spaces and hyphens: "Self-Attention" is "selfattention"."""
    return re.sub(r"[\s\-_]+", "", unicodedata.normalize("NFC", text).casefold())


def _is_named(topic: Topic, whole: str, words: list[str]) -> bool:
    return whole in topic.plain_names


def _has_in_name(topic: Topic, whole: str, words: list[str]) -> bool:
    is_part = len(whole) >= MIN_PART_CHARACTERS
    return is_part and any(whole in name for name in topic.plain_names)


def _has_all_words(topic: Topic, whole: str, words: list[str]) -> bool:
    names = " ".join(topic.plain_names)
    return all(len(word) >= MIN_PART_CHARACTERS and word in names for word in words)


def commands_before(topic: Topic) -> list[str]:
    """The commands that train the runs which the command of a topic reads."""
    trained = training_commands()
    return [
        f"regard {trained[name]}"
        for name in dict.fromkeys(re.findall(r"runs/([\w-]+)", topic.run))
        if name in trained
    ]


def described(topic: Topic, language: str) -> str:
    """A topic in a few lines of text, in one language."""
    name, *others = topic.names[language]
    [other_language] = set(topic.names) - {language}
    also = ", ".join([*others, *topic.names[other_language][:2]])
    lines = [
        topic.means[language],
        *(f"{FIRST[language]}: {command}" for command in commands_before(topic)),
        f"regard {topic.run}",
        topic.code,
    ]
    if topic.chapter is not None and topic.run != f"course {topic.chapter}":
        chapter = {"en": f"chapter {topic.chapter}", "ko": f"{topic.chapter}장"}[language]
        lines.append(f"{chapter}: regard course {topic.chapter}")
    return "\n".join([f"{name} ({also})", *(f"    {line}" for line in lines)])


def related(found: Sequence[Topic], wanted: str, language: str) -> list[str]:
    """The names of further topics that have a word in one of theirs."""
    whole = _plain(wanted)
    if len(whole) < MIN_PART_CHARACTERS:
        return []
    return [
        topic.name(language)
        for topic in topics()
        if topic not in found and any(whole in name for name in topic.plain_names)
    ]
