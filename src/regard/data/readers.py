"""Files and built-in corpora -> rows of text, streamed."""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import hashlib
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast

from regard.data.config import Corpus
from regard.data.corpora import VERSION, Part, generate
from regard.errors import DataError, Problem, did_you_mean

Key = str | int
"""A column of a file: its name, or its number from 0."""


class Row(NamedTuple):
    """One example: the line where it begins, and the text of each column."""

    line: int
    values: tuple[str, ...]


def open_corpus(corpus: Corpus, base: Path, part: Part = "train") -> Reader:
    """A reader of the corpus; file names are relative to `base`, `part` is the part of a built-in corpus."""
    reader = Reader(corpus, base, part)
    problems = [problem for file in reader.files if (problem := _problem_with(file))]
    if problems:
        raise DataError(problems=problems)
    if corpus.file is not None:
        _format_of(reader.files[0])
    if corpus.corpus is not None and reader.columns != ("source", "target"):
        what = f"the built-in corpora have a source and a target, not {' and '.join(reader.columns)}"
        raise DataError(what, where=f"corpus {corpus.corpus}", hint="name files instead")
    return reader


@dataclass(frozen=True)
class Reader:
    """The rows of a corpus: each iteration streams them anew, and none holds more than a line a file."""

    corpus: Corpus
    base: Path
    part: Part

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order of a row's values."""
        return tuple(self.corpus.columns)

    @property
    def files(self) -> tuple[TextFile, ...]:
        """The one file, or a file for each column, or none."""
        if self.corpus.corpus is not None:
            return ()
        names = self.corpus.columns.values() if self.corpus.file is None else [self.corpus.file]
        return tuple(TextFile(str(name), self.base / str(name)) for name in names)

    def __iter__(self) -> Iterator[Row]:
        if self.corpus.corpus is not None:
            pairs = generate(self.corpus.corpus, self.corpus.size, self.corpus.seed, self.part)
            return (Row(line, pair) for line, pair in enumerate(pairs, 1))
        if self.corpus.file is None:
            return islice(_parallel_rows(self.files), self.corpus.size)
        file = self.files[0]
        return islice(_format_of(file)(file, self.corpus), self.corpus.size)

    def where(self, line: int, column: str | None = None) -> str:
        """The place of a row, or of one of its columns, as messages name it: `train.en:17`."""
        if self.corpus.corpus is not None:
            return f"corpus {self.corpus.corpus}:{line}"
        number = self.columns.index(column) if column and self.corpus.file is None else 0
        return self.files[number].where(line)

    def fingerprint(self) -> str:
        """A hash of all that decides the rows: the bytes of the files as they lie there, and how they are read."""
        corpus = self.corpus
        settings: list[Any] = [corpus.size, self.columns]
        if corpus.corpus is not None:
            settings += [corpus.corpus, corpus.seed, self.part, VERSION]
        elif corpus.file is not None:
            settings += [list(corpus.columns.values()), corpus.header]
        settings += [[file.suffixes, file.digest()] for file in self.files]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class TextFile:
    """A UTF-8 text file, plain or compressed."""

    name: str
    """As the user wrote it."""
    path: Path

    @property
    def suffixes(self) -> tuple[str, str]:
        """What the file is and how it is compressed: `pairs.tsv.gz` -> (".tsv", ".gz")."""
        path, compression = PurePath(self.name.lower()), ""
        if path.suffix in (".gz", ".xz"):
            path, compression = path.with_suffix(""), path.suffix
        return path.suffix, compression

    def where(self, line: int) -> str:
        return f"{self.name}:{line}"

    def open(self) -> io.BufferedReader:
        """The bytes of the text, decompressed."""
        match self.suffixes[1]:
            case ".gz":
                # GzipFile and LZMAFile find lines in Python; a buffer around them finds them in C
                return io.BufferedReader(cast(io.RawIOBase, gzip.open(self.path)))
            case ".xz":
                return io.BufferedReader(cast(io.RawIOBase, lzma.open(self.path)))
        return self.path.open("rb")

    def lines(self, keep_ends: bool = False) -> Iterator[str]:
        r"""The lines, which end in \n or \r\n and nowhere else: U+2028 and \f are characters like others."""
        line = 0
        try:
            with self.open() as stream:
                for line, data in enumerate(stream, 1):
                    if line == 1:
                        data = data.removeprefix(codecs.BOM_UTF8)
                    if not keep_ends:
                        data = data[:-2] if data.endswith(b"\r\n") else data.removesuffix(b"\n")
                    yield data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(error, self.where(line)) from None
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            hint = "it may be cut off: copy or download it again"
            what = f"the {self.suffixes[1]} file is broken here: {error}"
            raise DataError(what, where=self.where(line + 1), hint=hint) from None
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", where=self.name) from None
        if line == 0:
            raise DataError("the file is empty", where=self.name, hint="one example a line is expected")

    def count_lines(self) -> int:
        """How many lines there are; the last one need not end."""
        lines, last = 0, b"\n"
        with self.open() as stream:
            while block := stream.read(1 << 20):
                lines += block.count(b"\n")
                last = block[-1:]
        return lines + (last != b"\n")

    def digest(self) -> str:
        """A hash of the bytes as they lie on the disk."""
        try:
            with self.path.open("rb") as stream:
                return hashlib.file_digest(stream, "blake2b").hexdigest()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", where=self.name) from None


def open_text(name: str, base: Path) -> TextFile:
    """A text file that is there."""
    file = TextFile(name, base / name)
    if problem := _problem_with(file):
        raise DataError(problems=[problem])
    return file


def _not_utf8(error: UnicodeDecodeError, where: str) -> DataError:
    what = f"byte 0x{error.object[error.start]:02x} at position {error.start + 1} of the line is not UTF-8"
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    else:
        encoding = "cp949 (Korean) or latin1 (Western Europe)"
    return DataError(
        what, where=where, hint=f"convert the file with iconv -f ENCODING -t utf-8; ENCODING may be {encoding}"
    )


def _problem_with(file: TextFile) -> Problem | None:
    """What keeps the file from being opened at all."""
    try:
        if file.path.is_dir():
            return Problem(file.name, "is a folder, not a file", "name a file in it")
        return None if file.path.exists() else Problem(file.name, "there is no such file", _near(file))
    except OSError as error:
        return Problem(file.name, f"cannot be read: {error.strerror}")


def _near(file: TextFile) -> str:
    """A file that may have been meant, or the folder where none is."""
    folder = file.path.parent
    names = [path.name for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    near = difflib.get_close_matches(file.path.name, names, n=1)
    if not near:
        return f"looked in {folder.absolute()}"
    return did_you_mean(file.name, [str(PurePath(file.name).with_name(near[0]))])


def _parallel_rows(files: Sequence[TextFile]) -> Iterator[Row]:
    """Line n of each file makes row n."""
    lines = zip(*(file.lines() for file in files), strict=True)
    try:
        for line, values in enumerate(lines, 1):
            yield Row(line, values)
    except ValueError:  # zip: one file ended before another
        raise _unequal(files) from None


def _unequal(files: Sequence[TextFile]) -> DataError:
    counts = {file: file.count_lines() for file in files}
    shorter, longer = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    what = f"{longer.name} has {counts[longer]:,} lines, {shorter.name} has {counts[shorter]:,}"
    hint = "parallel files need the same number of lines; this line has no partner"
    return DataError(what, where=longer.where(counts[shorter] + 1), hint=hint)


def _tsv_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """Fields between tabs; there is no quoting."""
    return _table_rows(file, corpus, ((line, text.split("\t")) for line, text in enumerate(file.lines(), 1)))


def _csv_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """RFC 4180: a field in double quotes may hold commas, line breaks and doubled quotes."""
    return _table_rows(file, corpus, _csv_records(file))


def _csv_records(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    records = csv.reader(file.lines(keep_ends=True), strict=True)
    line = 1
    try:
        for fields in records:
            yield line, fields
            line = records.line_num + 1
    except csv.Error as error:
        what = f"not valid CSV: {str(error).partition(' - ')[0]}"
        hint = "is a quote not closed? Quotes within a quoted field are doubled"
        raise DataError(what, where=file.where(line), hint=hint) from None


def _table_rows(file: TextFile, corpus: Corpus, records: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    columns = _columns(corpus)
    header = corpus.header if corpus.header is not None else any(isinstance(key, str) for key in columns.values())
    first_line, names = next(records)
    indexes = [_index(key, names if header else None, file.where(first_line)) for key in columns.values()]
    line = 0
    for line, fields in records if header else chain([(first_line, names)], records):
        try:
            values = tuple([fields[index] for index in indexes])
        except IndexError:
            if len(fields) > 1 or "".join(fields).strip():
                raise _too_few(columns, indexes, fields, file.where(line)) from None
            values = ("",) * len(indexes)  # an empty line: data.bad_lines decides about it
        yield Row(line, values)
    if line == 0:
        raise DataError("there is a header, but no row below it", where=file.name)


def _columns(corpus: Corpus) -> dict[str, Key]:
    return {name: key for name, key in corpus.columns.items() if key is not None}


def _index(key: Key, names: list[str] | None, where: str) -> int:
    """The number of a column; `names` is the header, if there is one."""
    if isinstance(key, int):
        if key < 0:
            raise DataError(f"there is no column {key}", where=where, hint="columns are numbered from 0")
        return key
    if names is None:
        raise DataError(f"a column named {key!r} needs a header", where=where, hint="header: true, or a column number")
    if names.count(key) != 1:
        what = f"two columns are named {key!r}" if key in names else f"there is no column {key!r}"
        raise DataError(what, where=where, hint=f"the columns are {', '.join(names)}")
    return names.index(key)


def _too_few(columns: dict[str, Key], indexes: list[int], fields: list[str], where: str) -> DataError:
    name, key = next(pair for pair, index in zip(columns.items(), indexes, strict=True) if index >= len(fields))
    what = f"there is no column {key!r} ({name}) in this row"
    return DataError(what, where=where, hint=f"it has {len(fields)}, numbered from 0: {' | '.join(fields)[:200]}")


def _jsonl_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """One object a line; a column is a key."""
    columns = _columns(corpus)
    for line, text in enumerate(file.lines(), 1):
        if not text.strip():
            yield Row(line, ("",) * len(columns))  # an empty line: data.bad_lines decides about it
            continue
        example = _object(text, file.where(line))
        yield Row(line, tuple([_text(example, key, file.where(line)) for key in columns.values()]))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        example = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at position {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"not valid JSON: {reason}", where=where, hint="one object a line is expected") from None
    if not isinstance(example, dict):
        raise DataError(
            f"{text[:80]} is not an object", where=where, hint='for example {"source": "...", "target": "..."}'
        )
    return example


def _text(example: dict[str, Any], key: Key, where: str) -> str:
    if key not in example:
        raise DataError(f"there is no column {key!r}", where=where, hint=f"the columns are {', '.join(example)}")
    value = example[str(key)]
    if not isinstance(value, str):
        raise DataError(f"the column {key!r} holds {json.dumps(value)[:80]}, not a string", where=where)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"the column {key!r} holds half of a surrogate pair", where=where) from None
    return value


FORMATS: dict[str, Callable[[TextFile, Corpus], Iterator[Row]]] = {
    ".tsv": _tsv_rows,
    ".csv": _csv_rows,
    ".jsonl": _jsonl_rows,
}
"""What one file with all columns may be, by its suffix."""


def _format_of(file: TextFile) -> Callable[[TextFile, Corpus], Iterator[Row]]:
    suffix = file.suffixes[0]
    if suffix not in FORMATS:
        what = f"one file with all columns cannot be a {suffix or 'file without a suffix'}"
        hint = (
            f"allowed: {', '.join(FORMATS)}, plain or as .gz or .xz; parallel files are named by column, without 'file'"
        )
        raise DataError(what, where=file.name, hint=hint)
    return FORMATS[suffix]
