"""Text files, plain or compressed, read line by line; and what is wrong with a file that is not
text."""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

from regard.errors import DataError, Problem, import_extra
from regard.text.access import is_inside, outside

MAX_LINE_BYTES = 1 << 28
"""Most bytes of a line: a small compressed file may unpack to one of any length. SQuAD's JSON is a
line of 30 MB."""
COMPRESSIONS = (".gz", ".xz", ".zst")  # supported compressions, by the last suffix
STATEFUL = ("iso2022_kr",)
"""Encodings in which a line cannot be decoded without the lines before it."""
BINARY_HINT = (
    "take it out of what is read, or convert it: from Excel save as CSV UTF-8; UTF-16 needs "
    "data.encoding=utf-16; "
    f"read are texts, plain or as {', '.join(COMPRESSIONS)}"
)
"""What to do with a file that is not text."""
_KINDS = {
    b"\xd0\xcf\x11\xe0": "an Excel, Word or Hangul document (.xls, .doc, .hwp)",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a .zip archive",
    b"BZh": "a .bz2 file",
    b"\x1f\x8b": "a .gz file under another name",
    b"PAR1": "a Parquet file under another name",
}
"""Kinds of files by their first bytes."""
_ARCHIVES = {
    "xl/": "an Excel workbook (.xlsx)",
    "word/": "a Word document (.docx)",
    "ppt/": "a PowerPoint file (.pptx)",
    "Contents/": "a Hangul document (.hwpx)",
    "content.xml": "an OpenDocument file (.ods, .odt)",
}
"""Kinds of .zip archives by the folder or file in them that only they have."""
EXCEL_HINT = "open it in Excel, and save each sheet as 'CSV UTF-8 (comma delimited)'"
SHOWN_LINES = 5  # ranges of lines that a message names
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",  # before UTF-16: the first two bytes are the same
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by their byte order marks."""


class EncodingError(DataError):
    """A file that is not in the encoding that was named; the right one, if it can be told."""

    encoding = ""


@dataclass(frozen=True)
class TextFile:
    """A text file, plain or compressed."""

    name: str  # the path as the user wrote it
    path: Path
    errors: str = "strict"  # Python's handler of bytes that are not valid in the encoding
    encoding: str = "utf-8"
    within: Path | None = None  # the only folder whose files may be read, resolved; None: any file
    notes: list[str] = field(default_factory=list, compare=False, repr=False)
    """What a user should know of the content, once it has been read to its end."""

    @property
    def suffixes(self) -> tuple[str, str]:
        """The suffixes of the format and of the compression: `pairs.tsv.gz` -> (".tsv", ".gz")."""
        path, compression = PurePath(self.name.lower()), ""
        if path.suffix in COMPRESSIONS:
            path, compression = path.with_suffix(""), path.suffix
        return path.suffix, compression

    def where(self, line: int) -> str:
        return f"{self.name}:{line}"

    def row(self, number: int) -> str:
        """What messages call a row: its line, or in .json the number of its object."""
        return (
            f"{self.name}: object {number}" if self.suffixes[0] == ".json" else self.where(number)
        )

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder that may be read."""
        # False too where a name is too long
        return is_inside(self.path, self.within) and os.path.isdir(self.path)

    def expect_inside(self) -> None:
        """Refuse a file outside the folder that may be read."""
        if not is_inside(self.path, self.within):
            raise DataError(problems=[outside(self.name)])

    def open(self) -> io.BufferedReader:
        """The bytes of the text, decompressed."""
        self.expect_inside()
        match self.suffixes[1]:
            case ".gz":
                # GzipFile and LZMAFile split lines in Python; a BufferedReader around them does so
                # in C
                return io.BufferedReader(cast(io.RawIOBase, gzip.open(self.path)))
            case ".xz":
                return io.BufferedReader(
                    _Frames(
                        self.path.open("rb"), lambda: lzma.LZMADecompressor(memlimit=MAX_LINE_BYTES)
                    )
                )
            case ".zst":
                zstandard = import_extra("zstandard", extra="formats", where=self.name)
                new = zstandard.ZstdDecompressor().decompressobj  # of windows up to 128 MiB
                return io.BufferedReader(_Frames(self.path.open("rb"), new, zstandard.ZstdError))
        return self.path.open("rb")

    def lines(self, keep_ends: bool = False) -> Iterator[str]:
        r"""The lines, which end in \n or \r\n only: U+2028 and \f are ordinary characters."""
        line = 0
        encoding = self.encoding
        try:
            with self.open() as stream:
                read, encoding = self._line_reader(stream)
                for line, data in enumerate(iter(lambda: read(MAX_LINE_BYTES + 1), b""), 1):
                    if len(data) > MAX_LINE_BYTES:
                        hint = "it may be a broken file: split the line, or take the file out"
                        raise DataError(
                            f"the line has more than {MAX_LINE_BYTES:,} bytes",
                            where=self.where(line),
                            hint=hint,
                        )
                    if line == 1:
                        data = data.removeprefix(codecs.BOM_UTF8)
                        is_whole_file = not data.endswith(b"\n")
                    if not keep_ends:
                        data = data[:-2] if data.endswith(b"\r\n") else data.removesuffix(b"\n")
                    decoded = data.decode(encoding, self.errors)
                    if line == 1 and is_whole_file:
                        self._expect_line_feeds(decoded)
                    yield decoded
        except UnicodeDecodeError as error:
            raise self._undecodable(error, line + (encoding != self.encoding)) from None
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            hint = "it may be cut off: copy or download it again"
            what = f"the {self.suffixes[1]} file is broken here: {error}"
            raise DataError(what, where=self.where(line + 1), hint=hint) from None
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", where=self.name) from None
        if line == 0:
            raise DataError(
                "the file is empty", where=self.name, hint="one example a line is expected"
            )

    def _line_reader(self, stream: BinaryIO) -> tuple[Callable[[int], bytes], str]:
        """A function that reads a line, up to a number of bytes, and the encoding of what it
        returns: UTF-8 if the end of a line is not one byte, as in UTF-16."""
        if "\n".encode(self.encoding) == b"\n" and self.encoding not in STATEFUL:
            return stream.readline, self.encoding
        text = io.TextIOWrapper(stream, self.encoding, self.errors, newline="\n")
        return lambda size: text.readline(size).encode(errors=self.errors), "utf-8"

    def _expect_line_feeds(self, whole: str) -> None:
        r"""Refuse a file of one line if it has several that end in \r alone. In JSON that is a blank
        like any other, and what reads .csv refuses it outside quotes."""
        if "\r" in whole.rstrip("\r") and self.suffixes[0] not in (".json", ".csv"):
            what = "its lines end in CR alone, as on old Macs: it would be read as one line"
            hint = "save it with LF or CR LF, for example: tr '\\r' '\\n' < OLD > NEW"
            raise DataError(what, where=self.name, hint=hint)

    def _undecodable(self, error: UnicodeDecodeError, line: int) -> DataError:
        byte = error.object[error.start]
        place = error.start + 1
        what = f"byte 0x{byte:02x} at position {place} of the line is not {self.encoding.upper()}"
        with self.open() as stream:
            head = stream.read(4096)
        encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
        if not encoding:
            controls = sum(byte < 9 or 13 < byte < 32 for byte in head)
            binary = "a binary file" if b"\0" in head or 100 * controls > len(head) else ""
            if kind := next(
                (kind for begin, kind in _KINDS.items() if head.startswith(begin)), binary
            ):
                kind = _kind_of_archive(self.path, kind)
                if ".xls" in kind:
                    return DataError(
                        f"this is {kind}, not a text", where=self.name, hint=EXCEL_HINT
                    )
                return DataError(
                    f"this is {kind}, not a text: {what}", where=self.where(line), hint=BINARY_HINT
                )
            if mixed := self._mixed():
                hint = (
                    "convert the lines of one encoding, or join the files again once each "
                    "is saved as UTF-8"
                )
                return EncodingError(mixed, where=self.where(line), hint=hint)
            encoding = next(
                (name for name in ("utf-8", "cp949") if self._seems(name, line + 1000)), ""
            )
        named = encoding or "latin1 (Western Europe), or another"
        hint = f"name its encoding with data.encoding={named}; or save it as UTF-8"
        told = EncodingError(what, where=self.where(line), hint=hint)
        told.encoding = encoding
        return told

    def _mixed(self) -> str:
        """Which lines have Hangul in UTF-8 and which in CP949, if there are both: files were joined
        as they were."""
        lines: dict[str, list[int]] = {"UTF-8": [], "CP949": []}
        with self.open() as stream:
            for number, data in enumerate(stream, 1):
                if not data.isascii() and (encoding := _encoding_of_hangul(data)):
                    lines[encoding].append(number)
        if not all(lines.values()):
            return ""
        new, old = lines.values()
        return (
            f"its lines are in two encodings: {len(new):,} in UTF-8 ({_ranges(new)}), {len(old):,} "
            "in CP949 "
            f"({_ranges(old)})"
        )

    def _seems(self, encoding: str, most: int) -> bool:
        """Whether the first lines are valid in an encoding, and have Hangul: much else is valid in
        cp949, too."""
        lines = islice(replace(self, encoding=encoding, errors="replace").lines(), most)
        signs = {sign for line in lines for sign in re.findall("[가-힣\ufffd]", line)}
        return "\ufffd" not in signs and (encoding == "utf-8" or bool(signs))

    def digest(self) -> str:
        self.expect_inside()
        try:
            with self.path.open("rb") as stream:
                return hashlib.file_digest(stream, "blake2b").hexdigest()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", where=self.name) from None


def _encoding_of_hangul(line: bytes) -> str:
    """UTF-8 or CP949, if the line is valid in it and has Hangul; else empty. Hangul in UTF-8 is no
    valid CP949 text that has Hangul, except by chance, so UTF-8 comes first."""
    for encoding in ("UTF-8", "CP949"):
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding if re.search("[가-힣]", text) else ""
    return ""


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as ranges, of which the first are named: 1-40, 43, …"""
    ranges = list[list[int]]()
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    named = [
        str(first) if first == last else f"{first}-{last}" for first, last in ranges[:SHOWN_LINES]
    ]
    return ", ".join([*named, *["…"] * (len(ranges) > SHOWN_LINES)])


def _kind_of_archive(path: Path, kind: str) -> str:
    """What a .zip archive is called that an office program wrote; other kinds stay as they are."""
    if "archive" not in kind:
        return kind
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return kind
    return next(
        (own for begin, own in _ARCHIVES.items() if any(name.startswith(begin) for name in names)),
        kind,
    )


def matching(pattern: str, base: Path, within: Path | None) -> list[TextFile]:
    """The files and folders that a pattern names, sorted. One that may lead out of `within` is
    refused at once."""
    if within is not None and not _stays_inside(pattern, base, within):
        raise DataError(problems=[outside(pattern)])
    found = [
        TextFile(name, base / name, within=within)
        for name in glob.glob(pattern, root_dir=base, recursive=True)
    ]
    readable = [file for file in found if is_inside(file.path, within)]
    if within is not None and not readable:
        raise DataError(problems=[outside(pattern)])
    return sorted(readable, key=lambda file: file.name)


def _stays_inside(pattern: str, base: Path, within: Path) -> bool:
    """Whether looking for a pattern lists no folder outside `within`, which a link in it may lead
    to."""
    if not Path(os.path.normpath(base.resolve() / pattern)).is_relative_to(within):
        return False
    return all(
        is_inside(Path(parent, name), within)
        for parent, names, _ in os.walk(base)
        for name in names
    )


def open_text(
    name: str, base: Path, encoding: str = "utf-8", within: Path | None = None
) -> TextFile:
    """A text file, or a DataError if it cannot be opened."""
    file = TextFile(name, base / name, encoding=encoding, within=within)
    DataError.raise_if([problem_with(file)])
    return file


def check_readable(name: str) -> None:
    """Refuse a text file that cannot be opened."""
    open_text(name, Path())


def files_below(root: TextFile, empty: bool = False) -> tuple[TextFile, ...]:
    """All files of a folder that are not hidden, by their names; only with `empty` also those that
    hold nothing."""
    below = [path for path in sorted(root.path.rglob("*")) if path.is_file()]
    shown = [
        path
        for path in below
        if not any(part.startswith(".") for part in path.relative_to(root.path).parts)
    ]
    chosen = [path for path in shown if empty or path.stat().st_size]
    files = [
        replace(root, name=str(Path(root.name) / path.relative_to(root.path)), path=path)
        for path in chosen
    ]
    if not files and below:
        what = (
            "the files in the folder are all empty, or hidden: their names, or their "
            "folder's, begin with a dot"
        )
        raise DataError(what, where=root.name, hint="put .txt files into it, or name one with text")
    if not files:
        raise DataError(
            "there is no file in the folder", where=root.name, hint="put .txt files into it"
        )
    return tuple(files)


def problem_with(file: TextFile) -> Problem | None:
    """Why the file cannot be opened, or None."""
    if file.within is not None:
        return (
            None
            if is_inside(file.path, file.within) and os.path.isfile(file.path)
            else outside(file.name)
        )
    try:
        if file.path.is_dir():
            return Problem(file.name, "is a folder, not a file", "name a file in it")
        if file.path.is_file() and Path("/proc") not in file.path.resolve().parents:
            return None
        if file.path.exists():
            return Problem(
                file.name,
                "is not a regular file",
                "a pipe or a device may never end: save it as a file",
            )
    except OSError as error:
        return Problem(file.name, f"cannot be read: {error.strerror}")
    is_here = file.path.absolute() == Path(file.name).absolute()
    return Problem(
        file.name,
        "there is no such file",
        "" if is_here else f"looked in {file.path.parent.absolute()}",
    )


def why_unreadable(path: Path) -> str:
    """Why a file cannot be opened; empty where it can be. Libraries that read weights call all of
    it a missing file."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return (
            f"is a link to {path.readlink()}, which is missing"
            if path.is_symlink()
            else "there is no such file"
        )
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""


class _Frames(io.RawIOBase):
    """The text of a .zst or .xz file of one or more frames, each read by a `new` decompressor.

    The reader of zstandard ignores a truncated frame, that of lzma has no limit of the memory.
    """

    BLOCK = 1 << 12  # bytes that are unpacked at once, to at most 32,768 times as many

    def __init__(
        self, stream: BinaryIO, new: Callable[[], Any], error: type[Exception] = lzma.LZMAError
    ) -> None:
        self._stream = stream
        self._new = new
        self._error = error
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            self._input = self._input or self._stream.read(self.BLOCK)
            within_frame = self._frame is not None and not self._frame.eof
            if not self._input:
                if within_frame:
                    raise EOFError("it ends within a frame")
                return 0
            if not within_frame:
                self._input = self._input.lstrip(b"\0")  # padding between frames
                if not self._input:
                    continue
                self._frame = self._new()
            try:
                # slices of it are no copies
                self._output = memoryview(self._frame.decompress(self._input))
            except self._error as error:
                raise EOFError(str(error)) from None
            self._input = self._frame.unused_data
        size = min(len(buffer), len(self._output))
        buffer[:size] = self._output[:size]
        self._output = self._output[size:]
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()
