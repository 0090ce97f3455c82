"""Sentences whose words are tagged -> rows of text: CoNLL's columns, JSON Lines, or sentences of
the package's own.

CoNLL's columns (Tjong Kim Sang & De Meulder 2003, arXiv:cs/0306050): a word a line with its tags,
between tabs or spaces, an empty line after each sentence, `-DOCSTART-` lines between documents.

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self, cast

from pydantic import Field, model_validator

from regard.data.config import OBJECTS
from regard.data.corpora import Part
from regard.data.example import Example
from regard.data.formats import (
    NamedColumns,
    Object,
    Row,
    object_rows,
    or_one_error,
    read_objects,
    table_rows,
    text_of,
    value_in,
)
from regard.data.inputs import Inputs, is_table
from regard.data.labelled import LabelledSplits, OneFile
from regard.errors import ColumnError, DataError, Problem, Recurring
from regard.text.files import TextFile
from regard.text.normalise import Words, joined_words

DOCUMENT_MARK = "-DOCSTART-"
COMMENT_MARK = "#"
Word = tuple[int, str, str]  # the line of a word, the word and its tag
COLUMN_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".tsv")
"""Suffixes by which CoNLL's columns are known where there need be no tags; a .txt then has one text
a line."""


class TaggedText(OneFile):
    """Sentences, and a tag for each of their words."""

    ROW: ClassVar[tuple[str, ...]] = ("tokens", "tags")
    """The words and the tags of a sentence, each a JSON list."""
    NOT_COLUMNS: ClassVar[frozenset[str]] = frozenset({"scheme"})
    EXAMPLES: ClassVar[str] = "tagged sentences"
    SUFFIXES: ClassVar[Mapping[str, str]] = dict.fromkeys(OBJECTS, "tagged")
    ALLOWED: ClassVar[str] = (
        "CoNLL's columns, a word and its tags a line; .jsonl (an object a line) or .json (an "
        "array): tokens and tags"
    )

    file: str | None = None
    """A file of CoNLL's columns, whatever its suffix, or .jsonl or .json: objects with a list of
    words and a list of tags; plain or as .gz, .xz or .zst."""
    tokens: str | int | None = None
    """The column of the words: its number from 0 (default: 0), or its key in .jsonl (default:
    tokens)."""
    tags: str | int | None = None
    """The column of the tags: its number, -1 the last one (default), or its key in .jsonl (default:
    tags)."""
    scheme: Literal["auto", "iob1", "iob2", "bioes", "plain"] = "auto"
    """How entities are written. `auto` reads IOB1, IOB2 and BIOES alike, and faults as conlleval
    does; a named one is held to its rules. `plain`: a tag a word and no entities, as for parts of
    speech."""
    corpus: Literal["names-en", "names-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Sentences of the package with names of people, places and firms: English words, or Korean
    syllables."""

    def format(self, file: TextFile) -> str:
        return super().format(file) if file.suffixes[0] in (*OBJECTS, ".parquet") else "conll"

    @classmethod
    def of_files(cls, files: Sequence[str], own: Sequence[Self], hint: str = "give one") -> Self:
        """Objects have no columns by number, CoNLL's columns no names: there the defaults stand for
        them."""
        corpus = super().of_files(files, own, hint)
        kind = str if TextFile(files[0], Path(files[0])).suffixes[0] in OBJECTS else int
        other = (name for name in ("tokens", "tags") if not isinstance(getattr(corpus, name), kind))
        return corpus.model_copy(update=dict.fromkeys(other))

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        return (tuple(_json_list(cell.split()) for cell in row) for row in super().built_in(part))


class TaggingData(LabelledSplits[TaggedText]):
    """The sentences of a run."""

    UNIT: ClassVar[str] = "sentences"

    max_characters: int = Field(100_000, ge=1)
    """A sentence longer than this, with its tags, is taken for a broken file."""
    deduplicate: bool = False
    """Drop training sentences that stand twice; scores, names and datelines do, and their number
    says something."""
    learned: Literal["iob2", "bioes"] = "iob2"
    """The scheme that the model learns; entities are the same in both."""
    words: Words = "punctuation"
    """How a text that is typed is split into words: `punctuation`, at white space and around signs,
    as in CoNLL; `whitespace` alone; `characters`, where the data tags syllables, which is so by
    itself instead of `punctuation` where every word of the training data is one character;
    `characters_and_blanks`, where it tags spaces too."""

    max_length: int = Field(128, ge=8)
    """Most tokens that are read at once, special ones included; a longer sentence is read in
    windows."""
    stride: int | None = Field(None, ge=1)
    """Tokens from the beginning of one window to that of the next. Default: half a window."""

    @property
    def by_character(self) -> bool:
        """Whether each character is a word."""
        return self.words in ("characters", "characters_and_blanks")

    @property
    def plain(self) -> bool:
        """Whether tags mark no entities."""
        return any(corpus.scheme == "plain" for corpus in self.train)

    @model_validator(mode="after")
    def _plain_or_not(self) -> TaggingData:
        if len({corpus.scheme == "plain" for corpus in self.corpora}) > 1:
            raise ValueError("scheme: plain is for all corpora or for none")
        return self


@or_one_error
def conll_rows(file: TextFile, corpus: TaggedText) -> Iterator[Row]:
    """CoNLL's columns: a word a line. A sentence that cannot be read has a row for each of its
    faults."""
    for words, faults in _in_columns(file, corpus):
        lines, tokens, tags = zip(*words, strict=True)
        fault = (
            None
            if faults
            else _tag_fault(tags, [file.where(line) for line in lines], corpus.scheme)
        )
        for problem in [fault] if fault else faults:
            yield Row(lines[0], ("", ""), problem)
        for cells in [] if faults or fault else _sentence_cells(tokens, tags):
            first = next(line for line, token in zip(lines, tokens, strict=True) if token.strip())
            yield Row(first, cells)


@or_one_error
def tagged_rows(file: TextFile, corpus: TaggedText) -> Iterator[Row]:
    """An object a line with a list of words and a list of tags."""
    keys = (
        "tokens" if corpus.tokens is None else corpus.tokens,
        "tags" if corpus.tags is None else corpus.tags,
    )

    def cells(example: Object, where: str) -> list[tuple[str, ...]]:
        lists = [value_in(example, key, where) for key in keys]
        for key, value in zip(keys, lists, strict=True):
            if not isinstance(value, list):
                what = f"the column {key!r} holds {json.dumps(value)[:80]}, not a list"
                raise DataError(what, where=where, hint='for example ["B-PER", "O"]')
        tokens = [text_of(token, keys[0], where) for token in lists[0]]
        tags = [text_of(tag, keys[1], where, number=True) for tag in lists[1]]
        if len(tokens) != len(tags):
            what = f"there are {len(tokens)} words and {len(tags)} tags"
            raise DataError(what, where=where, hint="a tag for each word")
        DataError.raise_if([_tag_fault(tags, [where] * len(tags), corpus.scheme)])
        return _sentence_cells(tokens, tags)

    return object_rows(file, keys, cells)


def _sentence_cells(tokens: Sequence[str], tags: Sequence[str]) -> list[tuple[str, ...]]:
    """The words and their tags as two JSON lists; nothing where no word is left.

    White space alone is no word, except where each character is tagged: there it says where words
    end.
    """
    words = [pair for pair in zip(tokens, tags, strict=True) if pair[0].strip()]
    if words and all(len(word) == 1 for word, _ in words):
        words = [(token or " ", tag) for token, tag in zip(tokens, tags, strict=True)]
    return [tuple(map(_json_list, zip(*words, strict=True)))] if words else []


def _tag_fault(tags: Sequence[str], places: Sequence[str], scheme: str) -> Problem | None:
    """The first tag that is of no scheme, or cannot stand there in the one that is named."""
    if scheme == "plain":
        return None
    for place, tag in zip(places, tags, strict=True):
        if not is_chunk_tag(tag):
            hint = (
                "expected is O, B-PER, I-PER, E-PER, S-PER; scheme: plain for tags that "
                "mark no entities"
            )
            return Recurring(place, f"the tag {tag!r} is not a BIO or BIOES tag", hint)
    if scheme == "auto" or (word := first_fault(tags, cast("Scheme", scheme))) is None:
        return None
    before = f"after {tags[word - 1]!r}" if word else "at the beginning of a sentence"
    what = f"{tags[word]!r} is not allowed {before} in the scheme {scheme}"
    return Recurring(places[word], what, "scheme: auto reads it as conlleval does")


def _json_list(values: Sequence[str]) -> str:
    return json.dumps(values, ensure_ascii=False)


def _in_columns(
    file: TextFile, corpus: TaggedText, tagged: bool = True
) -> Iterator[tuple[list[Word], list[Problem]]]:
    """The words of each sentence, and why it cannot be read, if so: a problem for each line that is
    to blame.

    A word a line. Without `tagged` the tags are not read.
    """
    width = 0
    words = list[Word]()
    faults = list[Problem]()
    shape = shape_of(file.lines())
    for line, text in enumerate(chain(file.lines(), [""]), 1):
        fields = fields_of(text)
        if not text.strip() or fields[0] == DOCUMENT_MARK:
            if words:
                yield words, faults
            words = []
            faults = []
            continue
        if is_comment(text, shape):
            continue
        if not width:
            width = len(fields)
            places = _column_numbers(corpus, width, file.where(line), tagged=tagged)
        if len(fields) == width:
            words.append((line, fields[places[0]], fields[places[1]]))
        else:
            hint = (
                "a word a line, its columns between tabs or spaces, an empty line after "
                "each sentence"
            )
            what = f"{_column_count(len(fields))}, where the lines before have {width}"
            faults.append(Problem(file.where(line), what, hint))
            words.append((line, "", ""))


def shape_of(lines: Iterable[str]) -> tuple[int, bool]:
    """The number of columns of the first line that has a word, and whether tabs are between
    them."""
    first = next(
        (
            text
            for text in lines
            if text.strip() and not text.startswith((COMMENT_MARK, DOCUMENT_MARK))
        ),
        COMMENT_MARK,
    )
    return len(fields_of(first)), "\t" in first


def is_comment(text: str, shape: tuple[int, bool]) -> bool:
    """Whether a line that begins with # is not a word: it has a space in its first column, or other
    columns than words have."""
    if not text.startswith(COMMENT_MARK):
        return False
    fields = fields_of(text)
    return " " in fields[0] or (len(fields), "\t" in text) != shape


def fields_of(text: str) -> list[str]:
    """The columns of a line: between tabs, where there is one, else between blanks; other spaces
    are part of a word."""
    if "\t" in text:
        return [field.strip() or field for field in text.split("\t")]
    return [field for field in text.split(" ") if field]


def _column_count(count: int) -> str:
    return "there is one column" if count == 1 else f"there are {count} columns"


def _column_numbers(corpus: TaggedText, width: int, where: str, *, tagged: bool) -> tuple[int, int]:
    """The numbers of the columns of words and tags among so many; an error where they are not among
    them."""
    places = {"tokens": 0, "tags": -1}
    for name, key in (("tokens", corpus.tokens), *([("tags", corpus.tags)] if tagged else [])):
        if isinstance(key, str):
            hint = f"a number from 0 to {width - 1}, or -1 for the last"
            raise DataError(
                f"columns have no names here, so there is no {key!r} ({name})",
                where=where,
                hint=hint,
            )
        if key is not None and not -width <= key < width:
            hint = f"they are numbered from 0 to {width - 1}, or from -1 back"
            raise ColumnError(f"there is no column {key} ({name})", where=where, hint=hint)
        places[name] = places[name] if key is None else key
    words, tags = places["tokens"] % width, places["tags"] % width
    if tagged and words == tags:
        hint = "a word and its tag are expected, between tabs or spaces"
        raise DataError(
            f"{_column_count(width)}: words and tags cannot be the same one", where=where, hint=hint
        )
    return words, tags


@dataclass(frozen=True)
class TaggedInputs(Inputs):
    """Sentences to tag: texts, or lists of words as `tokens`."""

    TYPED_OBJECTS = "rows or texts"

    def of_words(self, words: Sequence[str], place: str, fault: Problem | None = None) -> Example:
        """Words that are known one by one, so that each may hold signs and blanks."""
        return Example({"tokens": tuple(words)}, place, fault, typed=joined_words(words)[0])

    def rows(self, file: TextFile) -> Iterator[Example]:
        """CoNLL's columns, objects, or a table with a column `text`; else a text per line."""
        suffix = file.suffixes[0]
        if suffix in COLUMN_SUFFIXES:
            return self._in_columns(file)
        if suffix in OBJECTS:
            return self._in_objects(file)
        if not is_table(file):
            return self.lines(file)
        rows = table_rows(file, NamedColumns.of("text"), answered=False)
        return (self.of_cells(row.values, file.row(row.line), row.fault) for row in rows)

    def _in_columns(self, file: TextFile) -> Iterator[Example]:
        corpus = self.corpus_of([file.name])
        for words, faults in _in_columns(file, corpus, tagged=False):
            tokens = [token for _, token, _ in words]
            yield self.of_words(tokens, file.where(words[0][0]), next(iter(faults), None))

    def _in_objects(self, file: TextFile) -> Iterator[Example]:
        key = str(self.corpus_of([file.name]).tokens or "tokens")
        for line, example in read_objects(file, [key], partial(self._read_words, key=key)):
            place = file.row(line)
            if isinstance(example, Example):
                yield example
            else:
                yield self.of_texts([""], place, example)

    def read_object(self, values: Object, place: str) -> Example:
        keys = (corpus.tokens for corpus in self.corpora if isinstance(corpus.tokens, str))
        return self._read_words(values, place, next(keys, "tokens"))

    def _read_words(self, values: Object, place: str, key: str) -> Example:
        """The words of an object in a list; its `text` if it does not have their key."""
        name = "text" if key not in values and "text" in values else key
        words = value_in(values, name, place)
        if not isinstance(words, list):
            return self.of_texts([text_of(words, name, place)], place)
        return self.of_words([text_of(word, name, place) for word in words], place)

    def corpus_of(self, files: Sequence[str]) -> TaggedText:
        return TaggedText.of_files(files, self.corpora)


Scheme = Literal["iob1", "iob2", "bioes"]
OUTSIDE = "O"


class Entity(NamedTuple):
    """Words from `start` up to, but without, `end`."""

    type: str
    start: int
    end: int


def is_chunk_tag(tag: str) -> bool:
    """Whether a tag is of a scheme: `O`, or a prefix, a hyphen and a type."""
    return tag == OUTSIDE or (len(tag) > 2 and tag[0] in "BIES" and tag[1] == "-")


def entities_in(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, of whatever scheme the tags are, sound or not, by the rules of
    conlleval."""
    entities: list[Entity] = []
    begun = 0
    for word, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if before[0] in "ES" or tag[0] in "BS" or before[2:] != tag[2:]:
            if before != OUTSIDE:
                entities.append(Entity(before[2:], begun, word))
            begun = word
    return entities


def tags_of(entities: Iterable[Entity], words: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence whose entities these are, in their order."""
    tags = [OUTSIDE] * words
    before = Entity("", 0, 0)
    for entity in entities:
        size = entity.end - entity.start
        adjoins = before.type == entity.type and before.end == entity.start
        prefixes = ("I" if scheme == "iob1" and not adjoins else "B") + "I" * (size - 1)
        if scheme == "bioes":
            prefixes = "S" if size == 1 else "B" + "I" * (size - 2) + "E"
        tags[entity.start : entity.end] = [f"{prefix}-{entity.type}" for prefix in prefixes]
        before = entity
    return tags


def labels_of(types: Iterable[str], scheme: Scheme) -> list[str]:
    """All tags that entities of these types can have."""
    prefixes = "BIES" if scheme == "bioes" else "BI"
    return [OUTSIDE, *(f"{prefix}-{type}" for type in sorted(types) for prefix in prefixes)]


def first_fault(tags: Sequence[str], scheme: Scheme) -> int | None:
    """The number of the first tag that cannot stand where it does in the scheme."""
    written = tags_of(entities_in(tags), len(tags), scheme)
    return next(
        (word for word, (tag, sound) in enumerate(zip(tags, written, strict=True)) if tag != sound),
        None,
    )
