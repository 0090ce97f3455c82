"""Built-in corpora that come as files: phrases, headlines, tales, names, reviews, portraits and stories.

The generators of commit 6733b05 wrote them with seed 1 (src/regard/data/phrases, headlines.py, tales.py and so on);
tests/unit/test_corpora.py holds hashes of what these wrote. A text stands in one part only (`part_of` in corpora.py).

NAME.bz2 is a table, stored column by column with a form feed between the columns. The first line of a column lists its
pieces of text with tabs between them, and each further line is a cell, in which character 14 + n stands for piece n.
The first column is the part: train, validation or test. Several questions about one text share a row, with | between
them.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from random import Random
from typing import NamedTuple

from regard.errors import ConfigError, DataError, did_you_mean

Cells = tuple[str, ...]
"""The columns of a row."""
FIRST = 14
"""The character that stands for the first piece: the next one after those that end lines and columns."""
PHENOMENA = {"phrases-en-ko": "phenomena-en-ko", "phrases-en-fr": "phenomena-en-fr"}


@cache
def _table(name: str) -> tuple[Cells, ...]:
    """All rows of a file, the part first."""
    text = bz2.decompress(files("regard.data.packaged").joinpath(f"{name}.bz2").read_bytes()).decode()
    return tuple(zip(*map(_cells, text.split("\f")), strict=True))


def _cells(column: str) -> list[str]:
    pieces, _, coded = column.partition("\n")
    return coded.translate(dict(enumerate(pieces.split("\t"), FIRST))).split("\n")


def rows(name: str, part: str, seed: int = 1, about: str | None = None) -> list[Cells]:
    """The rows of a part: in the order of the file with seed 1, shuffled with any other seed.

    phrases: English, translation   headlines: report, headline   tales: text
    names: words, tags   reviews: text, label   portraits: text, question, answer ("" if there is none)
    stories: how the story begins, the story so far (a sentence a line), question, answer, numbers of the supporting
    sentences from 0; `about` selects one kind of question, otherwise the kinds take turns, a story each
    """
    found = [row for own, *row in _table(name) if own == part]
    if name.startswith("stories-"):
        kinds = dict.fromkeys(row[0] for row in found) if about is None else [about]
        found = list(chain(*zip(*([row for row in found if row[0] == kind] for kind in kinds), strict=True)))
    if seed != 1:
        random = Random(f"{name}:{seed}:{part}")
        found.sort(key=lambda _: random.random())
    if name.startswith("stories-"):
        return list(chain.from_iterable(_questions_of_story(row[1:]) for row in found))
    if name.startswith("portraits-"):
        return [(text, *asked) for text, *cells in found for asked in _questions(cells)]
    return [tuple(row) for row in found]


def first(rows: list[Cells], size: int | None, name: str, part: str) -> Iterator[Cells]:
    """As many rows as the recipe asks for."""
    if size is not None and size > len(rows):
        what = f"the package has {len(rows):,} such rows for {part}, not {size:,}"
        raise DataError(what, where=f"corpus {name}", hint=f"size: {len(rows)} is the most")
    return iter(rows[:size])


def _questions(cells: Sequence[str]) -> Iterator[Cells]:
    return zip(*(cell.split("|") for cell in cells), strict=True)


def _questions_of_story(cells: Sequence[str]) -> Iterator[Cells]:
    """Each question with what was told before it."""
    opening = story = ""
    for told, *asked in _questions(cells):
        story += "\n" * bool(story) + told.replace(". ", ".\n")
        opening = opening or story
        yield opening, story, *asked


class Marked(NamedTuple):
    """A pair with a word whose meaning the rest of the sentence decides. Positions count words between spaces."""

    source: str
    target: str
    phenomenon: str
    """pronoun or homonym."""
    position: int
    """Of the pronoun in the source, or of the homonym in the target."""
    refers_to: int
    """In the source: the pronoun's antecedent, or the English word of the homonym."""
    meaning: str
    """That word, in the singular."""


def phenomena(name: str, size: int | None, seed: int, part: str) -> Iterator[Marked]:
    """Sentences like the phrases with a pronoun whose antecedent is known or (in Korean) a homonym that is explained.

    They belong to the same part as in the corpus itself, so that a model is tested on what it has not seen.
    """
    if name not in PHENOMENA:
        raise ConfigError(f"the corpus {name!r} has no marked sentences", hint=did_you_mean(name, PHENOMENA))
    found = first(rows(PHENOMENA[name], part, seed), size, PHENOMENA[name], part)
    return (Marked(row[0], row[1], row[2], int(row[3]), int(row[4]), row[5]) for row in found)
