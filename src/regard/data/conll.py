"""Sentences whose words are tagged -> rows of text: CoNLL's columns, JSON Lines, or sentences of the package's own.

CoNLL's columns (Tjong Kim Sang & De Meulder 2003, arXiv:cs/0306050): a word a line with its tags, between tabs or
spaces, an empty line after each sentence, `-DOCSTART-` lines between documents.

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import Part
from regard.data.file_inputs import FileInput, is_table, table_rows
from regard.data.formats import Key, Row, object_in, objects_in, rows_or_one_error, text_of, value_in
from regard.errors import ColumnError, DataError, Problem, Recurring
from regard.text.files import TextFile
from regard.text.normalise import Words

DOCUMENT = "-DOCSTART-"
COMMENT = "#"


class TaggedText(Corpus):
    """Sentences, and a tag for each of their words."""

    file: str | None = None
    """A file of CoNLL's columns, whatever its suffix, or .jsonl with a list of words and a list of tags a line; plain
    or as .gz, .xz or .zst."""
    tokens: str | int | None = None
    """The column of the words: its number from 0 (default: 0), or its key in .jsonl (default: tokens)."""
    tags: str | int | None = None
    """The column of the tags: its number, -1 the last one (default), or its key in .jsonl (default: tags)."""
    scheme: Literal["auto", "iob1", "iob2", "bioes", "plain"] = "auto"
    """How entities are written. `auto` reads IOB1, IOB2 and BIOES alike, and faults as conlleval does; a named one is
    held to its rules. `plain`: a tag a word and no entities, as for parts of speech."""
    corpus: Literal["names-en", "names-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Sentences of the package with names of people, places and firms: English words, or Korean syllables."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {}

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The words and the tags of a sentence, each a JSON list."""
        return ("tokens", "tags")

    def files(self, base: Path) -> tuple[TextFile, ...]:
        return () if self.file is None else (TextFile(self.file, base / self.file),)

    def format(self, file: TextFile) -> str:
        suffix = file.suffixes[0]
        if suffix in (".parquet", ".json"):
            hint = "CoNLL's columns, a word and its tags a line; .jsonl: an object a line with tokens and tags"
            raise DataError(f"tagged words cannot be read from a {suffix}", where=file.name, hint=hint)
        return "tagged .jsonl" if suffix == ".jsonl" else "conll"

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        for words, tags in super().built_in(part):
            yield _json(words.split()), _json(tags.split())

    @model_validator(mode="after")
    def _file_or_corpus(self) -> TaggedText:
        for name in ("header", "dataset", "prefix"):
            if getattr(self, name):
                raise ValueError(f"tagged sentences have no {name!r}: give 'file' or 'corpus'")
        if self.file is None and self.corpus is None:
            raise ValueError("name the sentences: 'file', of CoNLL's columns or a .jsonl, or 'corpus'")
        return self


class TaggingData(Splits[TaggedText]):
    """The sentences of a run."""

    UNIT: ClassVar[str] = "sentences"

    train: Annotated[list[TaggedText], BeforeValidator(as_list)]
    """One corpus, or a list of them that are mixed by weight."""
    validation: HeldOut[TaggedText] = Split(split=0.1)
    """Sentences to choose the best checkpoint with."""
    test: HeldOut[TaggedText] | None = None
    """Sentences to measure with at the end."""
    max_characters: int = Field(100_000, ge=1)
    """A sentence longer than this, with its tags, is taken for a broken file."""
    deduplicate: bool = False
    """Drop training sentences that stand twice; scores, names and datelines do, and their number says something."""
    learned: Literal["iob2", "bioes"] = "iob2"
    """The scheme that the model learns; entities are the same in both."""
    words: Words = "punctuation"
    """How a text that is typed is split into words: `punctuation`, at white space and around signs, as in CoNLL;
    `whitespace` alone; `characters`, where the data tags syllables."""
    max_length: int = Field(128, ge=8)
    """Most tokens that are read at once, special ones included; a longer sentence is read in windows."""
    stride: int | None = Field(None, ge=1)
    """Tokens from the beginning of one window to that of the next. Default: half a window."""

    @property
    def plain(self) -> bool:
        """Whether tags mark no entities."""
        return any(corpus.scheme == "plain" for corpus in self.train)

    @model_validator(mode="after")
    def _plain_or_not(self) -> TaggingData:
        parts = [part for part in (self.train, self.validation, self.test) if isinstance(part, list)]
        if len({corpus.scheme == "plain" for part in parts for corpus in part}) > 1:
            raise ValueError("scheme: plain is for all corpora or for none")
        return self


class Sentence(NamedTuple):
    """Words with their tags, and the lines where they stand."""

    lines: tuple[int, ...]
    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    faults: tuple[Problem, ...] = ()
    """Why it cannot be read, if so: one for each line that is to blame. Its words are then not whole."""


def conll_rows(file: TextFile, corpus: TaggedText) -> Iterator[Row]:
    """CoNLL's columns: a word a line."""
    return rows_or_one_error(lambda: _sentence_rows(in_columns(file, corpus), file, corpus))


def tagged_rows(file: TextFile, corpus: TaggedText) -> Iterator[Row]:
    """An object a line with a list of words and a list of tags."""
    return rows_or_one_error(lambda: _sentence_rows(_listed(file, corpus), file, corpus))


def _sentence_rows(sentences: Iterable[Sentence], file: TextFile, corpus: TaggedText) -> Iterator[Row]:
    """Sentences with at least a word, and a row for each fault of the others; white space alone is no word."""
    for sentence in sentences:
        if not sentence.lines:
            continue
        line, faults = sentence.lines[0], sentence.faults or _faults(sentence, file, corpus.scheme)
        yield from (Row(line, ("", ""), fault) for fault in faults)
        words = [(token, tag) for token, tag in zip(sentence.tokens, sentence.tags, strict=True) if token.strip()]
        if words and not faults:
            first = next(line for line, token in zip(sentence.lines, sentence.tokens, strict=True) if token.strip())
            yield Row(first, (_json([token for token, _ in words]), _json([tag for _, tag in words])))


def _faults(sentence: Sentence, file: TextFile, scheme: str) -> tuple[Problem, ...]:
    """The first tag that is of no scheme, or cannot stand there in the one that is named."""
    if scheme == "plain":
        return ()
    for line, tag in zip(sentence.lines, sentence.tags, strict=True):
        if not is_chunk_tag(tag):
            hint = "expected is O, B-PER, I-PER, E-PER, S-PER; scheme: plain for tags that mark no entities"
            return (Recurring(file.where(line), f"the tag {tag!r} is of no scheme", hint),)
    if scheme == "auto" or (word := _fault(sentence.tags, cast("Scheme", scheme))) is None:
        return ()
    before = f"after {sentence.tags[word - 1]!r}" if word else "at the beginning of a sentence"
    what = f"{sentence.tags[word]!r} cannot stand {before} in the scheme {scheme}"
    return (Recurring(file.where(sentence.lines[word]), what, "scheme: auto reads it as conlleval does"),)


def _json(values: Sequence[str]) -> str:
    return json.dumps(values, ensure_ascii=False)


def _fault(tags: tuple[str, ...], scheme: Scheme) -> int | None:
    """The first tag that the scheme does not know, or not there."""
    foreign = (word for word, tag in enumerate(tags) if tag[1:] and tag[0] not in PREFIXES[scheme])
    return next(foreign, first_fault(tags, scheme))


# CoNLL's columns


def in_columns(file: TextFile, corpus: TaggedText, *, tagged: bool = True) -> Iterator[Sentence]:
    """A word a line. What begins with #, but has other columns than the rest or a space in its first, is a comment.

    Without `tagged` only words are asked for, and the tags say nothing.
    """
    width, words, faults = 0, list[tuple[int, str, str]](), list[Problem]()
    for line, text in enumerate(file.lines(), 1):
        fields = fields_of(text)
        if not text.strip() or fields[0] == DOCUMENT:
            if words:
                yield Sentence(*zip(*words, strict=True))._replace(faults=tuple(faults))
            words, faults = [], []
            continue
        if text.startswith(COMMENT) and (len(fields) != (width or 1) or " " in fields[0]):
            continue
        width = width or _checked(corpus, len(fields), file.where(line), tagged=tagged)
        token, tag = "", ""
        if len(fields) == width:
            token, tag = fields[_number(corpus.tokens, 0)], fields[_number(corpus.tags, -1)] if tagged else ""
        else:
            hint = "a word a line, its columns between tabs or spaces, an empty line after each sentence"
            what = f"{_columns(len(fields))}, where the lines before have {width}"
            faults.append(Problem(file.where(line), what, hint))
        words.append((line, token, tag))
    if words:
        yield Sentence(*zip(*words, strict=True))._replace(faults=tuple(faults))


def fields_of(text: str) -> list[str]:
    """The columns of a line: between tabs, where there is one, else between blanks; other spaces are part of a word."""
    if "\t" in text:
        return [one.strip() or one for one in text.split("\t")]
    return [one for one in text.split(" ") if one]


def _columns(count: int) -> str:
    return "there is one column" if count == 1 else f"there are {count} columns"


def _number(key: Key | None, default: int) -> int:
    return default if key is None else int(key)


def _checked(corpus: TaggedText, width: int, where: str, *, tagged: bool) -> int:
    """The number of columns, if those that are asked for are among them."""
    for name, key in (("tokens", corpus.tokens), *([("tags", corpus.tags)] if tagged else [])):
        if isinstance(key, str):
            hint = f"a number from 0 to {width - 1}, or -1 for the last"
            raise DataError(f"columns have no names here, so there is no {key!r} ({name})", where=where, hint=hint)
        if key is not None and not -width <= key < width:
            hint = f"they are numbered from 0 to {width - 1}, or from -1 back"
            raise ColumnError(f"there is no column {key} ({name})", where=where, hint=hint)
    if tagged and _number(corpus.tokens, 0) % width == _number(corpus.tags, -1) % width:
        hint = "a word and its tag are expected, between tabs or spaces"
        raise DataError(f"{_columns(width)}: words and tags cannot be the same one", where=where, hint=hint)
    return width


# JSON Lines


def _listed(file: TextFile, corpus: TaggedText) -> Iterator[Sentence]:
    """An object a line with a list of words and a list of tags."""
    keys = ("tokens" if corpus.tokens is None else corpus.tokens, "tags" if corpus.tags is None else corpus.tags)
    for line, example in objects_in(file, keys):
        if isinstance(example, Problem):
            yield Sentence((line,), ("",), ("",), (example,))
        elif example is not None:
            yield _sentence(example, keys, line, file.where(line))


def _sentence(example: dict[str, Any], keys: tuple[Key, Key], line: int, where: str) -> Sentence:
    try:
        words, marks = (value_in(example, key, where) for key in keys)
        tokens, tags = _texts(words, keys[0], where), _texts(marks, keys[1], where, number=True)
    except DataError as error:
        return Sentence((line,), ("",), ("",), error.problems)
    if len(tokens) != len(tags):
        fault = Problem(where, f"there are {len(tokens)} words and {len(tags)} tags", "a tag for each word")
        return Sentence((line,), ("",), ("",), (fault,))
    return Sentence((line,) * len(tokens), tokens, tags)


def _texts(value: Any, key: Key, where: str, *, number: bool = False) -> tuple[str, ...]:
    if not isinstance(value, list):
        said = json.dumps(value)[:80]
        raise DataError(f"the column {key!r} holds {said}, not a list", where=where, hint='for example ["B-PER", "O"]')
    return tuple(text_of(one, key, where, number=number) for one in value)


Scheme = Literal["iob1", "iob2", "bioes"]
PREFIXES: dict[Scheme, str] = {"iob1": "BI", "iob2": "BI", "bioes": "BIES"}
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
    """The entities of a sentence, of whatever scheme the tags are, sound or not, by the rules of conlleval."""
    found: list[Entity] = []
    begun = 0
    for word, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if _ends(before, tag):
            found.append(Entity(before[2:], begun, word))
        if _begins(before, tag):
            begun = word
    return found


def _begins(before: str, tag: str) -> bool:
    return tag != OUTSIDE and (tag[0] in "BS" or before == OUTSIDE or before[0] in "ES" or before[2:] != tag[2:])


def _ends(before: str, tag: str) -> bool:
    return before != OUTSIDE and (before[0] in "ES" or tag == OUTSIDE or tag[0] in "BS" or before[2:] != tag[2:])


def tags_of(entities: Iterable[Entity], words: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence whose entities these are, in their order."""
    tags, before = [OUTSIDE] * words, Entity("", 0, 0)
    for entity in entities:
        prefixes = _WRITTEN[scheme](
            entity.end - entity.start, before.type == entity.type and before.end == entity.start
        )
        tags[entity.start : entity.end] = [f"{prefix}-{entity.type}" for prefix in prefixes]
        before = entity
    return tags


_WRITTEN: dict[Scheme, Callable[[int, bool], str]] = {
    "iob1": lambda words, adjoins: ("B" if adjoins else "I") + "I" * (words - 1),
    "iob2": lambda words, adjoins: "B" + "I" * (words - 1),
    "bioes": lambda words, adjoins: "S" if words == 1 else "B" + "I" * (words - 2) + "E",
}
"""The prefixes of an entity of so many words, that adjoins one of its type or does not."""


def labels_of(types: Iterable[str], scheme: Scheme) -> list[str]:
    """All tags that entities of these types can have."""
    return [OUTSIDE, *(f"{prefix}-{one}" for one in sorted(types) for prefix in PREFIXES[scheme])]


def first_fault(tags: Sequence[str], scheme: Scheme) -> int | None:
    """The number of the first tag that cannot stand where it does in the scheme."""
    written = tags_of(entities_in(tags), len(tags), scheme)
    return next((word for word, (tag, sound) in enumerate(zip(tags, written, strict=True)) if tag != sound), None)


COLUMNS = (".conll", ".conllu", ".bio", ".iob", ".tsv")
"""Suffixes by which CoNLL's columns are known; a .txt has one text a line."""


def untagged_inputs(file: TextFile, corpus: TaggedText) -> Iterator[FileInput] | None:
    """The sentences of a file, their words with blanks between; None where a line is a text.

    Columns, and the key of .jsonl, are those of the corpus; a table without them has a column `text`.
    """
    if file.suffixes[0] in COLUMNS:
        sentences = in_columns(file, corpus, tagged=False)
        return (
            FileInput(" ".join(one.tokens), file.where(one.lines[0]), next(iter(one.faults), None)) for one in sentences
        )
    if file.suffixes[0] == ".jsonl":
        key = corpus.tokens if isinstance(corpus.tokens, str) else "tokens"
        return (_listed_input(text, key, file.where(line)) for line, text in enumerate(file.lines(), 1))
    if is_table(file):
        rows = table_rows(file, {"text": "text"})
        return (FileInput(row.values[0], file.where(row.line), row.fault) for row in rows)
    return None


def _listed_input(text: str, key: str, where: str) -> FileInput:
    """An object with a list of words, or with a text."""
    try:
        example: dict[str, Any] = object_in(text, where, [key]) if text.strip() else {"text": ""}
        if key not in example and "text" in example:
            return FileInput(text_of(example["text"], "text", where), where)
        words = value_in(example, key, where)
        if not isinstance(words, list):
            return FileInput(text_of(words, key, where), where)
        return FileInput(" ".join(text_of(word, key, where) for word in words), where)
    except DataError as error:
        return FileInput("", where, error.problems[0])
