"""Files are read within bounds; files and folders are written whole or not at all."""

import gzip
import lzma
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from regard.config import read_yaml
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.text import files
from regard.text.checksums import checksum, has_checksum
from regard.text.files import open_text
from regard.text.writing import (
    atomic_file,
    check_writable,
    remove_partial_files,
    write_file,
    write_folder,
)


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write_file(tmp_path / "file", "처음\n")
    monkeypatch.setattr(os, call, no_space)
    with pytest.raises(CheckpointError, match=r"file: cannot be written: No space left on device$"):
        write_file(tmp_path / "file", b"new\n")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "처음\n"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_is_complete_when_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, seen = os.replace, []

    def watched(partial: Path, path: Path) -> None:
        seen.append((path.exists(), partial.read_text()))
        replace(partial, path)

    monkeypatch.setattr(os, "replace", watched)
    write_file(tmp_path / "file", "text")
    assert seen == [(False, "text")]


def test_a_stream_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a.npz") as file:
        np.savez(file, a=np.arange(3))
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "b.npz") as file:
        file.write(bytes(1 // 0))
    assert os.listdir(tmp_path) == ["a.npz"]


@pytest.mark.parametrize("place", ["missing/name", "file/name", "folder"])
def test_a_path_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=f"{place}: cannot be written: "):
        write_file(tmp_path / place, "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_folder_that_cannot_be_filled_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    write_folder(path, lambda partial: write_file(partial / "old", ""))

    def fail(partial: Path) -> None:
        write_file(partial / "new", "")
        no_space()

    with pytest.raises(CheckpointError, match="folder: cannot be written: No space left on device"):
        write_folder(path, fail)
    assert (os.listdir(tmp_path), os.listdir(path)) == (["folder"], ["old"])


def test_folders_beside_it_are_not_touched(tmp_path: Path) -> None:
    beside = [".folder.before", ".folder.old", ".folder.partial"]
    for name in (*beside, "folder"):
        (tmp_path / name).mkdir()
        write_file(tmp_path / name / "mine", "mine")
    with pytest.raises(CheckpointError, match="folder: cannot be written: Directory not empty"):
        write_folder(tmp_path / "folder", lambda partial: write_file(partial / "new", "new"))
    assert sorted(os.listdir(tmp_path)) == [*beside, "folder"]
    assert [os.listdir(path) for path in tmp_path.iterdir()] == [["mine"]] * 4


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name in (".folder.partial", ".folder.old", "folder"):
        (tmp_path / name).mkdir()
        write_file(tmp_path / name / "half", "half")
    write_folder(
        tmp_path / "folder", lambda partial: write_file(partial / "new", "new"), replace=True
    )
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "folder")) == (["folder"], ["new"])


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_a_line_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    zstandard = pytest.importorskip("zstandard")
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(Path(name).suffix, bytes)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 100_000, raising=False)
    write_file(tmp_path / name, pack(b"x" * 99_999 + b"\n" + b"x" * 100_000 + b"\n"))
    lines = open_text(name, tmp_path).lines()
    assert len(next(lines)) == 99_999
    with pytest.raises(DataError, match=f"{name}:2: the line has more than 100,000 bytes"):
        next(lines)


def test_xz_is_read_in_little_memory(tmp_path: Path) -> None:
    """Of several streams with padding; one whose dictionary is larger than the limit is refused."""
    write_file(tmp_path / "a.txt.xz", lzma.compress(b"a\n") + bytes(8) + lzma.compress(b"b\n"))
    assert [*open_text("a.txt.xz", tmp_path).lines()] == ["a", "b"]
    packed = bytearray(lzma.compress(b"a\n"))
    packed[16] = 36  # the dictionary's size, 1 GiB; then the header's own checksum
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    write_file(tmp_path / "a.txt.xz", bytes(packed))
    with pytest.raises(
        DataError, match=r"a\.txt\.xz:1: the \.xz file is broken here: Memory usage limit exceeded"
    ):
        next(open_text("a.txt.xz", tmp_path).lines())


def test_partial_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Those of a living process stay, and whatever has another name."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = f".best.{ended.pid}.partial"
    kept = ["best", f".best.{os.getpid()}.partial", ".best.partial", f"best.{ended.pid}.partial"]
    for name in (*kept, left):
        (tmp_path / name).write_text("step-00000001")
    remove_partial_files(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


@pytest.mark.parametrize("encoding", ["utf-8", "cp949"])
def test_lines_in_two_encodings_are_named(tmp_path: Path, encoding: str) -> None:
    old = {3, 4, 5, 9}
    lines = [
        f"한국어 {number}\n".encode("cp949" if number in old else "utf-8")
        for number in range(1, 12)
    ]
    write_file(tmp_path / "a.txt", b"plain\n" + b"".join(lines))
    with pytest.raises(DataError) as raised:
        [*open_text("a.txt", tmp_path, encoding).lines()]
    [problem] = raised.value.problems
    what = "its lines are in two encodings: 7 in UTF-8 (2-3, 7-9, 11-12), 4 in CP949 (4-6, 10)"
    assert (problem.what, "latin1" in problem.hint) == (what, False)


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.jsonl", "a.tsv.gz"])
def test_lines_that_end_in_cr_alone_are_refused(tmp_path: Path, name: str) -> None:
    """They would be one line: a table of one row, or one text."""

    def put(content: str) -> None:
        data = content.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    for content in ("source\ttarget\ra\tb\r", "\ufeffa\r가"):
        put(content)
        with pytest.raises(DataError, match="its lines end in CR alone, as on old Macs"):
            [*open_text(name, tmp_path).lines()]
    for content in ("a\rb\n", "a\nb\rc", "a\r"):
        put(content)
        assert "".join(open_text(name, tmp_path).lines()) == content.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "inside", "kind"),
    [
        ("a.xlsx", "xl/workbook.xml", "an Excel workbook (.xlsx)"),
        ("a.csv", "xl/workbook.xml", "an Excel workbook"),
        ("a.docx", "word/document.xml", "a Word document (.docx)"),
        ("a.hwpx", "Contents/a.xml", "a Hangul document"),
        ("a.zip", "a.txt", "a .zip archive"),
        ("a.xls", None, "an Excel, Word or Hangul document (.xls, .doc, .hwp)"),
    ],
)
def test_office_documents_are_called_what_they_are(
    tmp_path: Path, name: str, inside: str | None, kind: str
) -> None:
    if inside is None:
        write_file(tmp_path / name, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("[Content_Types].xml", "<Types/>")
            archive.writestr(inside, os.urandom(500))
    with pytest.raises(DataError) as raised:
        [*open_text(name, tmp_path).lines()]
    [problem] = raised.value.problems
    assert problem.what.startswith(f"this is {kind}")
    assert ("CSV UTF-8 (comma delimited)" in problem.hint) == ("Excel" in kind)


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "/proc/kmsg", "/proc/self/mem"])
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    if not (tmp_path / name).exists():
        pytest.skip("this system has none")
    with pytest.raises(DataError, match=f"^{name}: is not a regular file"):
        open_text(name, tmp_path)
    if not (tmp_path / name).is_file():
        with pytest.raises(ConfigError, match=f"{name}: is not a regular file"):
            read_yaml(tmp_path / name)


@pytest.mark.parametrize("size", [0, 1, 4096, 5000, 2_200_000])
def test_a_checksum_sees_every_flip_cut_swap_and_byte_more(tmp_path: Path, size: int) -> None:
    path, generator = tmp_path / "file", np.random.default_rng(1)
    data = generator.bytes(size)
    changed = [data + b"\0", data[:-1], data[4096:8192] + data[:4096] + data[8192:]]
    changed.append(data[8:16] + data[:8] + data[16:])  # words of 64 bits change places
    for bit in (0, 8 * size - 1, *generator.integers(8 * size, size=20).tolist()) if size else ():
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        changed.append(bytes(flipped))
    path.write_bytes(data)
    expected = checksum(path)
    for other in (other for other in changed if other != data):
        path.write_bytes(other)
        assert checksum(path) != expected
        assert not has_checksum(path, expected)


SUMS = {
    0: "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
    5000: "9850349d7d8e184a11cb418545d901747111005821089f6cb918809e36354dc5",
}


def test_checksums_of_earlier_versions_are_still_compared(tmp_path: Path) -> None:
    """The sums of files of so many bytes, as the last version that wrote them computed them."""
    for size, written in SUMS.items():
        path = tmp_path / "file"
        path.write_bytes(np.random.default_rng(1).bytes(size))
        assert has_checksum(path, written)
        path.write_bytes(path.read_bytes() + b"\0")
        assert not has_checksum(path, written)
    assert not has_checksum(path, None)


def test_what_is_in_a_folder_of_data_stays_as_it_is(tmp_path: Path) -> None:
    """A new file may stand there, and a run, whose files are its own; a text is no folder, even if
    it is called so."""
    old = tmp_path / "data" / "below" / "old.json"
    run = tmp_path / "data" / "run"
    for file in (old, run / "environment.json", run / "predictions.jsonl"):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, "mine")
    for inputs in ([tmp_path / "data"], ["a", str(tmp_path / "data" / "below")]):
        with pytest.raises(
            DecodeError, match=r"old.json: this file is in a folder of data \(give another --out\)"
        ):
            check_writable(old, "--out", inputs, overwrite=True)
    check_writable(old.with_name("new.json"), "--out", [tmp_path / "data"])
    check_writable(run / "predictions.jsonl", "--out", [tmp_path / "data"], overwrite=True)
    check_writable(old, "--out", ["."], overwrite=True)
