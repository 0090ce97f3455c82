"""A user's files -> the task that they suit, the columns that it reads, and how much data there is."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from glob import escape
from itertools import chain, combinations, groupby, islice, permutations
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from typing import Any, NamedTuple, TypeVar

import numpy as np

from regard.data.config import TABLES, Corpus
from regard.data.conll import COMMENT, DOCUMENT, OUTSIDE, fields_of, is_chunk_tag
from regard.data.documents import RawText
from regard.data.file_inputs import SAMPLE, are_images, is_header, is_named, last_name, table_records
from regard.data.formats import Key, count_rows, leaves_in, object_in, plain_columns, read_parquet
from regard.data.labelled import list_of
from regard.data.readers import HubDataset, is_saved
from regard.data.squad import QuestionedText, squad_rows
from regard.data.stories import NUMBERED
from regard.errors import DataError
from regard.text.files import TextFile, open_text
from regard.text.normalise import nfc
from regard.text.sentences import split_sentences

R = TypeVar("R")
CAPTIONS = ("caption", "captions", "description", "sentences")
CHOICES = ("ending", "choice", "option", "answer", "candidate", "sol", "alternative")
CHOICE_LABELS = ("0123456789", "123456789", "ABCDEFGHI", "abcdefghi")
COMPARED = (("premise", "hypothesis"), ("first", "second"), ("question", "passage"), ("question", "sentence"))
TAGS = ("tags", "ner_tags", "ner", "pos_tags", "labels")
CONLL = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class Size(NamedTuple):
    """What texts look like."""

    script: str
    """What most letters belong to: Latin, Hangul, Cjk, ..."""
    words: float
    """Words of a text, on average."""
    characters: int
    """What 99 of 100 texts do not exceed; of raw text the average."""


@dataclass(frozen=True)
class DataProfile:
    """What a recipe is proposed from."""

    task: str
    data: dict[str, Any]
    """The line `data.train`: the file, as a Path, and its columns."""
    examples: int
    sizes: tuple[Size, ...] = ()
    """Of what is read and, last, of what is written."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What else the data decides, by its path in the recipe."""
    others: tuple[Key, ...] = ()
    """Columns that may be the label as well."""
    several_sentences: float = 0.0
    """Of raw text: the share of documents with two sentences or more."""


def recognise(names: Sequence[str]) -> DataProfile:
    """What is in one file, in two parallel files, or in a folder: a saved dataset, or texts."""
    if len(names) == 1 and is_saved(Path(names[0])):
        examples, count = _sample(HubDataset(names[0], Path(), None, None, "train").examples())
        return _texts(_Table({"dataset": Path(names[0])}, _columns_of(examples), count))
    if len(names) == 1 and (pattern := text_files_in(Path(names[0]))):
        return _raw_text(pattern)
    files = [open_text(name, Path()) for name in names]
    if len(files) > 2 or (len(files) == 2 and any(file.suffixes[0] in TABLES for file in files)):
        hint = f"one file with all columns ({', '.join(TABLES)}), or two text files, parallel line by line"
        raise DataError(f"{len(files)} files cannot be read together", where=files[1].name, hint=hint)
    if len(files) == 2:
        rows, _ = _sample(zip(*(file.lines() for file in files), strict=False))
        return _pairs({}, files[0].count_lines(), [*map(Path, names)], [*zip(*rows, strict=True)])
    [file] = files
    if file.suffixes[0] == ".json":  # the reader says what is wrong with any other than SQuAD's
        questions = sum(1 for _ in squad_rows(file, QuestionedText(file=file.name)))
        return DataProfile("question_answering", {"file": Path(file.name)}, questions)
    if special := _numbered_stories(file) or _tagged_words(file):
        return special
    if file.suffixes[0] in TABLES:
        table = _table(file)
        special = _objects(table) if file.suffixes[0] == ".jsonl" else None
        return special or _captions(table) or _texts(table)
    lines = [*islice(filter(_is_filled, file.lines()), SAMPLE)]
    if 2 * sum("\t" in line for line in lines) <= len(lines):
        return _raw_text(file.name)
    hint = (
        f"a table ({', '.join(TABLES)}), CoNLL columns, SQuAD's .json, bAbI's numbered lines, "
        f"two parallel texts: {file.name} OTHER, or raw text: regard check gpt data.train.text={file.name}"
    )
    raise DataError("the format is unclear: most lines have tabs", where=file.name, hint=hint)


# Tables


@dataclass(frozen=True)
class _Table:
    """A sample of the rows of a table."""

    data: dict[str, Any]
    """The file or the dataset, as a recipe names it."""
    columns: Mapping[Key, Sequence[Any]]
    """Texts and, of a .jsonl or a dataset, also lists."""
    rows: int
    """Of the whole table."""

    @cached_property
    def kinds(self) -> dict[Key, str]:
        return {key: _kind(key, values) for key, values in self.columns.items()}

    def of_kind(self, *kinds: str) -> list[Key]:
        return [key for key, kind in self.kinds.items() if kind in kinds]

    @cached_property
    def sentences(self) -> list[Key]:
        """The columns of text, first those that are named so. Single words beside sentences are rather names."""
        words = {key: mean(len(text.split()) for text in self.columns[key]) for key in self.of_kind("text")}
        keys = [key for key in words if words[key] >= 1.5 or max(words.values()) < 3]
        return sorted(keys, key=lambda key: not is_named(key, "text"))


def _kind(key: Key, values: Sequence[Any]) -> str:
    """Of a column: list, image, number (with a fraction, or named so), class (few short words or whole numbers), text
    or other."""
    if any(isinstance(value, list) for value in values):
        return "list"
    filled = [value.strip() for value in values if value.strip()]
    distinct = {*filled}
    if filled and are_images(values):
        return "image"
    if len(filled) >= 0.9 * len(values) and len(distinct) > 1:
        numeric = all(map(NUMBER.fullmatch, distinct))
        if numeric and (is_named(key, "number") or any("." in value for value in distinct)):
            return "number"
        few = len(distinct) <= (len(filled) / 2 if _is_label(key) else min(50, len(filled) / 4))
        if few and max(map(len, distinct)) <= 40 and mean(len(value.split()) for value in distinct) <= 3:
            return "class"
    texts = [value for value in filled if any(map(str.isalpha, value)) and not re.match("https?://", value)]
    repeated = len(values) > 50 and len(distinct) <= 10
    return "text" if len(texts) > len(values) / 2 and not repeated else "other"


def _table(file: TextFile) -> _Table:
    Corpus.model_construct().format(file)
    columns: Mapping[Key, Sequence[Any]]
    if file.suffixes[0] == ".parquet":
        names, count = plain_columns(file), count_rows(file)
        rows, _ = _sample(row.values for row in read_parquet(file, names, frozenset(names))) if names else ([], 0)
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    elif file.suffixes[0] == ".jsonl":
        lines, count = _sample(enumerate(file.lines(), 1))
        columns = _columns_of(object_in(text, file.where(line)) for line, text in sorted(lines) if text.strip())
    else:
        records, count = _sample(table_records(file))
        width = Counter(map(len, records)).most_common(1)[0][0]
        below = [record for record in records[1:] if len(record) == width]
        header = is_header(records[0], below) or _names_labels(records[0], below)
        keys: Sequence[Key] = records[0] if header else range(width)
        cells = [record[: len(keys)] for record in records[header:] if len(record) >= len(keys)]
        columns, count = {key: values for key, *values in zip(keys, *cells, strict=True)}, count - header
    return _Table({"file": Path(file.name)}, columns, count)


def _names_labels(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record has short names, no numbers or files, and one is above labels but is no such label."""
    if not rows or len(rows[0]) != len(first) or len({*first}) < len(first) or not all(first[1:]):
        return False
    if any(len(name) > 30 or re.fullmatch(r"[-+\d.,]+|.*\.\w{3,4}", name) for name in first):
        return False
    columns = zip(first, *rows, strict=True)
    return any(_kind(0, values) in ("class", "number") and name not in values for name, *values in columns)


def _columns_of(examples: Iterable[Mapping[str, Any]]) -> dict[Key, list[Any]]:
    """The columns of objects; numbers become texts, and what is neither text nor list an empty text."""
    rows = [dict(leaves_in(example)) for example in examples]
    return {path: [_cell(row.get(path)) for row in rows] for path in dict.fromkeys(chain.from_iterable(rows))}


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | list) else json.dumps(value) if isinstance(value, int | float) else ""


def _sample(records: Iterable[R]) -> tuple[list[R], int]:
    """The first records and some of all others, since many files are sorted by label or length; and their number."""
    rows, count, random = list[R](), 0, Random(0)
    for count, fields in enumerate(records, 1):
        if count <= SAMPLE:
            rows.append(fields)
        elif (place := random.randrange(20, count)) < SAMPLE:  # the first ones tell a header
            rows[place] = fields
    return rows, count


def _size_of(texts: Sequence[str]) -> Size:
    lengths = sorted(map(len, texts)) or [0]
    longest = quantiles(lengths, n=100)[-1] if len(lengths) > 1 else lengths[0]
    signs = (sign for text in texts[:300] for sign in nfc(text)[:300])
    scripts = Counter(unicodedata.name(sign, "no").split()[0].split("-")[0] for sign in signs if sign.isalpha())
    script = scripts.most_common(1)[0][0].capitalize() if scripts else "no"
    return Size(script, mean(len(text.split()) for text in texts or [""]), round(longest))


# Texts with choices, with labels, alone, or in pairs


def _texts(table: _Table) -> DataProfile:
    if choices := _choices(table):
        return choices
    texts = table.of_kind("text")
    sources = [key for key in texts if is_named(key, "source")]
    targets = [key for key in texts if is_named(key, "target", "summary") and key not in sources[:1]]
    are_pairs = sources and any(is_named(key, "target") for key in targets)
    if not are_pairs and (labels := _labels(table)):
        return labels
    if len(texts) == len(table.columns) == 1:
        [values] = table.columns.values()
        return _documents({**table.data, "text": texts[0]}, table.rows, mean(map(len, values)), values)
    if len(table.columns) == 2 and not table.of_kind("list"):  # then these are the two, whatever is in them
        texts = [*table.columns]
    if len(texts) < 2:
        seen = f"only column {texts[0]} looks like text" if texts else "no column looks like text"
        what = f"two columns of text are needed, or a text and its label, but {seen}"
        hint = f"the columns are {', '.join(map(str, table.columns))}"
        raise DataError(what, where=str(next(iter(table.data.values()))), hint=hint)
    source = [*sources, *(key for key in texts if key not in targets[:1])][0]
    target = [*targets, *(key for key in texts if key != source)][0]
    return _pairs(table.data, table.rows, [source, target], [table.columns[source], table.columns[target]])


def _pairs(data: dict[str, Any], rows: int, keys: Sequence[Any], texts: Sequence[Sequence[str]]) -> DataProfile:
    """A summary is known by the name of its column, or because it is far shorter; other pairs are translations."""
    source, target = map(_size_of, texts)
    task, names = "translation", ("source", "target")
    named = not isinstance(keys[1], Path) and is_named(keys[1], "summary")
    if named or source.words > max(25, 4 * target.words):
        task, names = "summarization", ("document", "summary")
    return DataProfile(task, {**data, **dict(zip(names, keys, strict=True))}, rows, (source, target))


def _choices(table: _Table) -> DataProfile | None:
    """A text, its choices in numbered or lettered columns or in a list, and a column that says which is right."""
    columns = {**table.columns}
    for key in table.of_kind("list"):
        if {*map(type, columns[key])} == {list} and len({*map(len, columns[key])}) == 1:
            items = enumerate(zip(*columns[key], strict=True))
            columns |= {f"{key}.{place}": [*map(_cell, values)] for place, values in items}
    groups: dict[str, list[Key]] = {}
    for key, values in columns.items():
        match = re.fullmatch(r"(.*?)[ ._-]?(\d|[a-eA-E])", key) if isinstance(key, str) else None
        if match and _kind(key, values) == "text":
            groups.setdefault(last_name(match[1]), []).append(key)
    for name, choices in groups.items():
        known = len(choices) > 2 or list_of(choices) or name.rstrip("s") in CHOICES
        texts = [key for key in table.sentences if key not in choices]
        ways = {key: _choice_labels(values, len(choices)) for key, values in columns.items()}
        labels = sorted(filter(ways.get, ways), key=lambda key: not _is_label(key) and last_name(key) != "answer")
        if len(choices) > 1 and known and texts and labels:
            line = {**table.data, "text": texts[0], "choices": choices, "label": labels[0]}
            rows = zip(columns[texts[0]], *map(columns.__getitem__, choices), strict=True)
            size = _size_of([f"{text} {max(others, key=len)}" for text, *others in rows])
            way = ways[labels[0]]
            head = {} if way == CHOICE_LABELS[0] else {"head.labels": [*way[: len(choices)]]}
            return DataProfile("multiple_choice", line, table.rows, (size,), head)
    return None


def _is_label(key: Key) -> bool:
    return is_named(key, "class", "number")


def _choice_labels(values: Sequence[Any], count: int) -> str:
    """How a column numbers or letters the choices; empty where it does not."""
    given = {str(value).strip() for value in values}
    return next((way for way in CHOICE_LABELS if given <= {*way[:count]}), "")


def _labels(table: _Table) -> DataProfile | None:
    """A text or two with a class or a number; the likeliest label by its name, then classes, then the fewest."""
    labels = table.of_kind("class", "number")
    labels.sort(key=lambda key: (not _is_label(key), table.kinds[key], len({*table.columns[key]})))
    for label in labels:
        if not (inputs := _labelled_texts(table, named=_is_label(label))):
            continue
        line = {**table.data, **inputs, "label": label}
        texts = zip(*(table.columns[key] for key in inputs.values()), strict=True)
        size = _size_of([*map(" ".join, texts)])
        if table.kinds[label] == "number":
            return DataProfile("regression", line, table.rows, (size,))
        counts = Counter(table.columns[label]).values()
        best = {"training.best": "f1_macro"} if max(counts) > 3 * min(counts) else {}  # so that rare labels count
        others = () if _is_label(label) else (key for key in table.of_kind("class") if key != label)
        return DataProfile("classification", line, table.rows, (size,), best, others=tuple(others))
    return None


def _labelled_texts(table: _Table, *, named: bool) -> dict[str, Key]:
    """The text that a label is for, or the two; none where one text is rather to be written for the other, which only
    a label that is `named` so excludes."""
    texts = [key for key in table.columns if key in table.sentences]
    for first, second in combinations(texts, 2):
        names = (last_name(first), last_name(second))
        stems = {re.sub(r"\d+|(?<=[_ -])[ab]$", "", name) for name in names}
        if names in COMPARED or (isinstance(first, str) and len(stems) == 1 and stems != {""}):
            return {"first": first, "second": second}
    if not texts or (len(texts) > 1 and not named):
        return {}
    return {"text": min(texts, key=lambda key: (not is_named(key, "text"), -mean(map(len, table.columns[key]))))}


# Images, tagged words, questions, stories


def _captions(table: _Table) -> DataProfile | None:
    """A column of images and one of captions, by its name, or the only other one with text unless there is a label."""
    images = table.of_kind("image")
    others = [key for key in table.columns if key not in images[:1]]
    texts = [key for key in others if table.kinds[key] == "text"]
    captions = [key for key in others if last_name(key) in CAPTIONS] or others
    if len(captions) > 1 and not any(map(_is_label, others)):
        captions = texts
    if not images or len(captions) != 1:
        return None
    cells = table.columns[captions[0]]
    size = _size_of([text for cell in cells for text in (cell if isinstance(cell, list) else [cell])])
    settings: dict[str, Any] = {}
    arrays = (name for name in table.columns[images[0]] if name.lower().endswith(".npy"))
    for name in arrays:
        with suppress(OSError, ValueError, EOFError, IndexError):  # which the reader reports
            width = int(np.load(table.data["file"].parent / name, mmap_mode="r").shape[-1])
            settings = {"model.images": None, "model.encoder": "features", "model.feature_width": width}
            break
    line = {**table.data, "image": images[0], "caption": captions[0]}
    return DataProfile("captioning", line, table.rows, (size,), settings)


def _tagged_words(file: TextFile) -> DataProfile | None:
    """CoNLL's columns: a word a line, then its tag as the last one, empty lines between sentences; CoNLL-U has parts of
    speech in its fourth."""
    named = file.suffixes[0] in CONLL
    if not named and file.suffixes[0] in {*TABLES} - {".tsv"}:
        return None
    rows = [fields_of(line) for line in islice(filter(_is_word, file.lines()), SAMPLE)]
    data: dict[str, Any] = {"file": Path(file.name), "tokens": 0, "tags": -1}
    if {*map(len, rows)} == {10} and file.suffixes[0] == ".conllu":
        data |= {"tokens": 1, "tags": 3}
    words, tags = ([fields[data[name]] for fields in rows] for name in ("tokens", "tags"))
    entities = all(map(is_chunk_tag, tags)) and {*tags} != {OUTSIDE}
    if len({*map(len, rows)}) != 1 or len(rows[0]) < 2 or not (named or entities):
        return None
    lengths = [len([*group]) for is_sentence, group in groupby(file.lines(), _is_word) if is_sentence]
    return _tagging(data, len(lengths), mean(lengths), words, tags) if len(lengths) > 1 else None


def _is_word(line: str) -> bool:
    """Whether a line has a word and its tags; else it ends a sentence, or is a comment."""
    return _is_filled(line) and not line.startswith((DOCUMENT, f"{COMMENT} "))


def _objects(table: _Table) -> DataProfile | None:
    """JSON Lines with stories, with answers to questions, or with a list of words and a list of their tags."""
    if {"story", "question", "answer"} <= {*table.columns}:
        return DataProfile("story_answering", {"file": Path(escape(str(table.data["file"])))}, table.rows)
    lists = table.of_kind("list")
    if {"context", "question"} <= {*table.columns} and any(str(key).split(".")[0] == "answers" for key in lists):
        return DataProfile("question_answering", table.data, table.rows)
    for tokens, tags in permutations(lists, 2):
        lengths, others = ([*map(len, table.columns[key])] for key in (tokens, tags))
        words, marks = ([*chain.from_iterable(table.columns[key])] for key in (tokens, tags))
        are_tags = last_name(tags) in TAGS or all(is_chunk_tag(str(mark)) for mark in marks)
        if lengths == others and are_tags and {*map(type, (*words, *marks))} == {str}:
            data = {**table.data, "tokens": tokens, "tags": tags}
            return _tagging(data, table.rows, mean(lengths), words, marks)
    return None


def _tagging(data: dict[str, Any], count: int, length: float, words: Sequence[str], tags: Sequence[str]) -> DataProfile:
    settings: dict[str, Any] = {}
    if not all(map(is_chunk_tag, tags)):  # tags that mark no entities
        data, settings = {**data, "scheme": "plain"}, {"training.best": "accuracy"}
    if mean(map(len, words)) == 1:
        settings["data.words"] = "characters"
    return DataProfile("tagging", data, count, (_size_of(words)._replace(words=length),), settings)


def _numbered_stories(file: TextFile) -> DataProfile | None:
    """bAbI's format: every line has a number, from 1 on, and questions a tab before their answers."""
    lines = [*islice(filter(_is_filled, file.lines()), SAMPLE)] if file.suffixes[0] == ".txt" else []
    if not lines or not all(map(NUMBERED.fullmatch, lines)) or int(lines[0].split()[0]) != 1:
        return None
    questions = sum("\t" in line for line in file.lines())
    data = {"file": Path(escape(file.name))}  # a recipe may name several files of stories by a pattern
    return DataProfile("story_answering", data, questions) if questions else None


# Raw text


def text_files_in(folder: Path) -> str | None:
    """What names the .txt files of a folder, plain or compressed; None for a folder without, or one of recipes."""
    if not folder.is_dir() or any(path.suffix in (".yaml", ".yml") for path in folder.iterdir()):
        return None
    kinds = {"".join(file.suffixes) for file in _text_files(str(folder))}
    texts = sorted(kind for kind in kinds if kind.startswith(".txt"))
    if not texts:
        return None
    return str(folder) if len(kinds) == 1 else f"{folder.as_posix()}/**/*{texts[0]}"


def _text_files(name: str) -> tuple[TextFile, ...]:
    """The files that a name of raw text stands for, which may be none."""
    try:
        return RawText(text=name).files(Path())
    except DataError:
        return ()


def _raw_text(name: str) -> DataProfile:
    """The documents of a text file, a folder or a pattern: blocks between blank lines, or lines if those are few."""
    files = _text_files(name)
    sample, blocks, lines, characters = list[str](), 0, 0, 0
    for filled, group in groupby(chain.from_iterable(chain(file.lines(), [""]) for file in files), _is_filled):
        blocks += filled
        for line in group:
            lines, characters = lines + filled, characters + len(line)
            sample += [line] * (len(sample) < SAMPLE)
    if blocks < 5 and lines > blocks:
        data = {"text": Path(name), "documents": "lines"}
        return _documents(data, lines, characters / lines, [*filter(_is_filled, sample)])
    texts = [" ".join(group) for filled, group in groupby(sample, _is_filled) if filled]
    return _documents({"text": Path(name)}, blocks, characters / max(1, blocks), texts)


def _is_filled(line: str) -> bool:
    return bool(line.strip())


def _documents(data: dict[str, Any], count: int, characters: float, texts: Sequence[str]) -> DataProfile:
    size = _size_of(texts)._replace(characters=round(characters))
    several = mean(len(split_sentences(text)) > 1 for text in texts or [""])
    return DataProfile("language_modeling", data, count, (size,), several_sentences=several)
