"""The cache folders and the columns in them."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.store import (
    ABANDONED_AFTER,
    ColumnWriter,
    TextColumn,
    TokenColumn,
    cache_folder,
    is_whole,
    stored,
    token_type,
)
from regard.errors import DataError

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=20)
ROWS = st.lists(st.lists(st.integers(4, 999), max_size=9), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_twelve(folder: Path) -> None:
    (folder / "numbers").write_bytes(bytes(12))


class TestCacheFolder:
    @pytest.mark.parametrize(
        ("platform", "variable", "expected"),
        [
            ("linux", "REGARD_CACHE", "chosen"),
            ("linux", None, "home/.cache/regard"),
            ("linux", "XDG_CACHE_HOME", "chosen/regard"),
            ("darwin", None, "home/Library/Caches/regard"),
            ("win32", "LOCALAPPDATA", "chosen/regard"),
            ("win32", None, "home/AppData/Local/regard"),
        ],
    )
    def test_platforms(
        self, platform: str, variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("REGARD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        if variable:
            monkeypatch.setenv(variable, str(tmp_path / "chosen"))
        monkeypatch.setattr("sys.platform", platform)
        monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
        assert cache_folder() == tmp_path / expected


class TestStored:
    @pytest.mark.parametrize("damage", ["short", "missing", "manifest", "no manifest", "empty folder"])
    def test_rebuilds_what_is_damaged(self, damage: str) -> None:
        folder = stored("a", write_twelve)
        if damage == "short":
            (folder / "numbers").write_bytes(bytes(11))
        if damage in ("missing", "empty folder"):
            (folder / "numbers").unlink()
        if damage == "manifest":
            (folder / "whole.json").write_text('{"sizes": {"num')
        if damage in ("no manifest", "empty folder"):
            (folder / "whole.json").unlink()
        assert not is_whole(folder)
        assert (stored("a", write_twelve) / "numbers").read_bytes() == bytes(12)
        assert is_whole(folder)
        assert os.listdir(folder.parent) == ["a"]

    def test_an_error_leaves_nothing(self, cache: Path) -> None:
        def fail(folder: Path) -> None:
            write_twelve(folder)
            raise DataError("a bad line")

        with pytest.raises(DataError, match="a bad line"):
            stored("a", fail)
        assert os.listdir(cache) == []

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_killed_process_leaves_nothing_that_counts(self, cache: Path) -> None:
        def killed(folder: Path) -> None:
            write_twelve(folder)
            os.kill(os.getpid(), signal.SIGKILL)

        process = os.fork()
        if process == 0:
            stored("a", killed)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL
        (leftover,) = cache.iterdir()
        assert leftover.name != "a"
        assert not is_whole(leftover)
        assert is_whole(stored("a", write_twelve))
        assert leftover.exists(), "it could still belong to a living process"
        old = leftover.stat().st_mtime - ABANDONED_AFTER - 1
        os.utime(leftover, (old, old))
        (cache / "a" / "numbers").unlink()
        stored("a", write_twelve)
        assert os.listdir(cache) == ["a"]

    def test_of_two_at_once_both_get_the_one_that_was_faster(self, cache: Path) -> None:
        def slower(folder: Path) -> None:
            (folder / "numbers").write_bytes(b"slower")
            stored("a", lambda aside: (aside / "numbers").write_bytes(b"faster") and None)

        assert (stored("a", slower) / "numbers").read_bytes() == b"faster"
        assert os.listdir(cache) == ["a"]

    def test_a_folder_that_cannot_be_written_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file" / "cache"))
        with pytest.raises(DataError, match=r"file/cache: prepared data cannot be stored here.*REGARD_CACHE"):
            stored("a", write_twelve)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
    def test_a_full_disk_is_a_message(self, cache: Path) -> None:
        def full(folder: Path) -> None:
            with open("/dev/full", "w") as file:
                file.write("a")

        with pytest.raises(DataError, match=r"No space left on device \(make room, or set REGARD_CACHE"):
            stored("a", full)
        assert os.listdir(cache) == []


class TestColumns:
    @given(TEXTS, st.data())
    def test_texts_come_back(self, texts: list[str], data: st.DataObject) -> None:
        column = TextColumn.of(texts)
        assert list(column) == texts == [column[i] for i in range(len(column))]
        assert list(column[1:4]) == texts[1:4]
        with pytest.raises(IndexError):
            column[len(texts)]
        assert list(column[::-2]) == texts[::-2]
        rows = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
        chosen = column.select(np.array(rows, dtype=np.int64))
        assert list(chosen) == [texts[row] for row in rows] == [chosen[i] for i in range(len(chosen))]
        assert list(chosen[1:3]) == [texts[row] for row in rows][1:3]

    @pytest.mark.parametrize("vocabulary", [2**16, 2**16 + 1])
    def test_written_in_chunks_and_mapped(self, vocabulary: int, tmp_path: Path) -> None:
        rows = [[vocabulary - 1, 5], [], [6], [7, 8, 9]]
        texts = ["가나다", "", "a\nb", "ß"]
        tokens = ColumnWriter(tmp_path, "tokens", token_type(vocabulary))
        characters = ColumnWriter(tmp_path, "texts", np.uint8)
        for chunk in (slice(0, 1), slice(1, 1), slice(1, 4)):
            tokens.extend_tokens(rows[chunk])
            characters.extend_texts(texts[chunk])
        tokens.close()
        characters.close()
        column = TokenColumn.open(tmp_path, "tokens", token_type(vocabulary))
        assert [column[i].tolist() for i in range(4)] == rows
        assert column.lengths.tolist() == [2, 0, 1, 3]
        with pytest.raises(IndexError):
            column[4]
        assert (tmp_path / "tokens.values").stat().st_size == 6 * (2 if vocabulary == 2**16 else 4)
        assert list(TextColumn.open(tmp_path, "texts")) == texts
        ColumnWriter(tmp_path, "none", np.uint8).close()
        assert list(TextColumn.open(tmp_path, "none")) == []
        assert len(TokenColumn.open(tmp_path, "none", np.uint16).lengths) == 0

    @given(ROWS, st.data(), st.sampled_from([None, 2]), st.sampled_from([None, 3]))
    def test_padded_is_the_plain_loop(
        self, rows: list[list[int]], data: st.DataObject, begin: int | None, end: int | None
    ) -> None:
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
        ids, lengths = TokenColumn.of(rows).padded(np.array(chosen), begin=begin, end=end, pad=0)
        before, after = [] if begin is None else [begin], [] if end is None else [end]
        expected = [before + rows[row] + after for row in chosen]
        longest = max(len(row) for row in expected)
        assert ids.tolist() == [row + [0] * (longest - len(row)) for row in expected]
        assert lengths.tolist() == [len(row) for row in expected]
        assert ids.dtype == lengths.dtype == np.int64
