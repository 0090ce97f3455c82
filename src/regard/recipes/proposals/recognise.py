"""What is in a user's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape
from itertools import islice, permutations
from pathlib import Path
from typing import Any

from regard.data.config import OBJECTS, TABLES, Corpus
from regard.data.corpora import Part
from regard.data.formats import (
    RECORDS,
    is_array,
    object_in,
    objects_of,
)
from regard.data.readers import DatasetReader, is_saved
from regard.data.squad import QuestionedText, squad_rows
from regard.data.stories import NUMBERED
from regard.errors import DataError
from regard.recipes.proposals.captions import captions_in
from regard.recipes.proposals.columns import SAMPLED_ROWS, Table
from regard.recipes.proposals.labelled import paired_texts, texts_in
from regard.recipes.proposals.profile import DataProfile
from regard.recipes.proposals.raw_text import raw_text, text_files_in
from regard.recipes.proposals.roles import chosen_texts
from regard.recipes.proposals.tables import columns_of, sampled, table_of
from regard.recipes.proposals.tagged_words import objects_in, tagged_words
from regard.text.files import EncodingError, TextFile, open_text


def recognise(
    names: Sequence[str],
    roles: Mapping[str, str] | None = None,
    held_out: Mapping[Part, Sequence[str]] | None = None,
) -> DataProfile:
    """The profile of files, in UTF-8 or an encoding that can be told.

    `roles` has columns of a table by some COLUMN_ROLES, and under `task` one of LABELLINGS. `held_out` has
    the files for validation and test: as many as for training each, and of the same kind.
    """
    profile = recognised_in_its_encoding(names, roles)
    lines = {
        part: held_out_line(profile, names, files)
        for part, files in (held_out or {}).items()
        if files
    }
    return replace(profile, held_out=lines)


def held_out_line(
    profile: DataProfile, names: Sequence[str], files: Sequence[str]
) -> dict[str, Any]:
    """The data line for files that are like those for training."""
    if len(files) != len(names) or "dataset" in profile.data:
        what = f"files for training: {len(names)}, for this part: {len(files)}"
        raise DataError(
            what,
            where=files[0],
            hint="validation and test need as many as training, of the same kind",
        )
    folders = [text_files_in(Path(name)) for name in files]
    encoding = profile.settings.get("data.encoding", "utf-8")
    opened = [
        open_text(name, Path(), encoding)
        for name, folder in zip(files, folders, strict=True)
        if not folder
    ]
    own = [
        Path(escape(name) if profile.task == "story_answering" else folder or name)
        for name, folder in zip(files, folders, strict=True)
    ]
    paths = [key for key, value in profile.data.items() if isinstance(value, Path)]
    if opened and profile.task != "tagging" and TextFile(names[0], Path()).suffixes[0] in RECORDS:
        _refuse_other_header(open_text(names[0], Path(), encoding), opened[0])
    return {**profile.data, **dict(zip(paths, own, strict=True))}


def _refuse_other_header(train: TextFile, other: TextFile) -> None:
    """Refuse two tables of which only one has a header: a row with names would be read as an
    example."""
    named = {
        file.name: isinstance(next(iter(table_of(file).columns), 0), str) for file in (train, other)
    }
    if len({*named.values()}) > 1:
        has, has_not = sorted(named, key=lambda name: not named[name])
        what = f"{has} has a header with the names of its columns, {has_not} has none"
        raise DataError(what, where=other.name, hint="give both a header, or neither")


def recognised_in_its_encoding(
    names: Sequence[str], roles: Mapping[str, str] | None
) -> DataProfile:
    try:
        return recognised(names, "utf-8", roles or {})
    except EncodingError as error:
        if not (encoding := error.encoding):
            raise
    for name, other in permutations(names, 2):
        if _is_utf8_only(open_text(other, Path()), encoding):
            hint = f"save {name} as UTF-8: data.encoding holds for both"
            raise DataError(f"this is {encoding}, and {other} is UTF-8", where=name, hint=hint)
    profile = recognised(names, encoding, roles or {})
    return replace(profile, settings={"data.encoding": encoding, **profile.settings})


def _is_utf8_only(file: TextFile, encoding: str) -> bool:
    """Whether a file is UTF-8, and not the same in another encoding, as plain ASCII may be."""
    try:
        return sum(line.encode().decode(encoding, "replace") != line for line in file.lines()) > 0
    except DataError:
        return False


def recognised(names: Sequence[str], encoding: str, roles: Mapping[str, str]) -> DataProfile:
    """The profile of one file, of two parallel files, or of a folder: a saved dataset, or texts."""
    if len(names) == 1 and is_saved(Path(names[0])):
        reader = DatasetReader(Corpus(dataset=names[0]), Path(), "train")
        examples, rows = sampled(reader.examples())
        table = Table({"dataset": Path(names[0])}, columns_of(examples), rows)
        return chosen_texts(table, roles) if roles else texts_in(table)
    if len(names) == 1 and (pattern := text_files_in(Path(names[0]))):
        return raw_text(pattern, encoding)
    files = [open_text(name, Path(), encoding) for name in names]
    _refuse_unrelated(files)
    if len(files) == 2:
        pairs, rows = sampled(zip(*(file.lines() for file in files), strict=False))
        return paired_texts({}, rows, [*map(Path, names)], [*zip(*pairs, strict=True)])
    [file] = files
    if roles:
        Corpus.model_construct().format(file)
        return chosen_texts(table_of(file), roles)
    return (
        _questions_in(file)
        or _stories_in(file)
        or tagged_words(file)
        or _table_in(file)
        or _text_in(file, encoding)
    )


def _refuse_unrelated(files: Sequence[TextFile]) -> None:
    """Refuse more than two files, and two of which one is a table."""
    if len(files) > 2 or (len(files) == 2 and any(file.suffixes[0] in TABLES for file in files)):
        hint = (
            f"one file with all columns ({', '.join(TABLES)}), or two text files, parallel line by "
            "line; "
            "--validation FILE and --test FILE name others, as do names with train, dev and test"
        )
        raise DataError(
            f"{len(files)} files cannot be read together", where=files[1].name, hint=hint
        )


def _questions_in(file: TextFile) -> DataProfile | None:
    """Questions about texts, in SQuAD's format."""
    if file.suffixes[0] != ".json" or is_array(file):
        return None
    if "data" not in object_in(next(objects_of(file))[1], file.name):
        return None
    questions = sum(1 for _ in squad_rows(file, QuestionedText(file=file.name)))
    return DataProfile("question_answering", {"file": Path(file.name)}, questions)


def _first_lines(file: TextFile) -> list[str]:
    """The first lines with text, of a file that has lines."""
    if file.suffixes[0] == ".parquet":
        return []
    return [*islice(filter(str.strip, file.lines()), SAMPLED_ROWS)]


def _stories_in(file: TextFile) -> DataProfile | None:
    """Stories with questions, in bAbI's numbered lines; a tab comes before the answer."""
    lines = _first_lines(file)
    if file.suffixes[0] != ".txt" or not lines or not all(map(NUMBERED.fullmatch, lines)):
        return None
    questions = sum("\t" in line for line in file.lines())
    if int(lines[0].split()[0]) != 1 or not questions:
        return None
    # a recipe may name several files of stories by a pattern
    return DataProfile("story_answering", {"file": Path(escape(file.name))}, questions)


def _table_in(file: TextFile) -> DataProfile | None:
    """The examples in a table."""
    if file.suffixes[0] not in TABLES:
        return None
    table = table_of(file)
    objects = objects_in(table) if file.suffixes[0] in OBJECTS else None
    return objects or captions_in(table) or texts_in(table)


def _text_in(file: TextFile, encoding: str) -> DataProfile:
    """Raw text, unless most lines have tabs."""
    lines = _first_lines(file)
    if 2 * sum("\t" in line for line in lines) <= len(lines):
        return raw_text(file.name, encoding)
    hint = (
        f"a table ({', '.join(TABLES)}), CoNLL columns, SQuAD's .json, bAbI's numbered lines, "
        f"two parallel texts: {file.name} OTHER, or raw text: regard check gpt "
        f"data.train.text={file.name}"
    )
    raise DataError("the format is unclear: most lines have tabs", where=file.name, hint=hint)
