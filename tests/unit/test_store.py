"""The cache folders and the columns in them."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import fail, regard
from regard.data import store
from regard.data.store import (
    ColumnWriter,
    TextColumn,
    TokenColumn,
    cache_folder,
    is_whole,
    stored,
    token_type,
    trim_cache,
)
from regard.errors import DataError

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=20)
NAME = "texts-" + 32 * "0"
pytestmark = pytest.mark.usefixtures("cache")
ROWS = st.lists(st.lists(st.integers(4, 999), max_size=9), min_size=1, max_size=12)


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
        self,
        platform: str,
        variable: str | None,
        expected: str,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        for name in ("REGARD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        if variable:
            monkeypatch.setenv(variable, str(tmp_path / "chosen"))
        monkeypatch.setattr("sys.platform", platform)
        monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
        assert cache_folder() == tmp_path / expected


class TestStored:
    @pytest.mark.parametrize(
        "damage",
        [
            {"numbers": bytes(11)},
            {"numbers": b"\1" + bytes(11)},
            {"numbers": None},
            {"whole.json": b'{"checksums": {"num'},
            {"whole.json": None},
            {"numbers": None, "whole.json": None},
        ],
        ids=["short", "flipped", "missing", "manifest", "no manifest", "empty folder"],
    )
    def test_rebuilds_what_is_damaged(self, damage: dict[str, bytes | None]) -> None:
        folder = stored(NAME, write_twelve)
        for name, content in damage.items():
            (folder / name).unlink()
            if content is not None:
                (folder / name).write_bytes(content)
        assert not is_whole(folder)
        assert (stored(NAME, write_twelve) / "numbers").read_bytes() == bytes(12)
        assert is_whole(folder)
        assert os.listdir(folder.parent) == [NAME]

    def test_what_was_found_whole_is_remembered_until_it_changes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, now = stored(NAME, write_twelve), time.time()
        assert not (folder / "verified.json").exists(), "too new: a change could keep the time"
        monkeypatch.setattr("time.time", lambda: now + 10)
        assert is_whole(folder)
        seen = json.loads((folder / "verified.json").read_text())
        assert seen["numbers"][:2] == [12, (folder / "numbers").stat().st_mtime_ns]
        (folder / "numbers").write_bytes(b"\1" + bytes(11))
        os.utime(folder / "numbers", ns=(seen["numbers"][1], seen["numbers"][1]))
        assert not is_whole(folder)

    def test_an_error_leaves_nothing(self, cache: Path) -> None:
        def fail(folder: Path) -> None:
            write_twelve(folder)
            raise DataError("a bad line")

        with pytest.raises(DataError, match="a bad line"):
            stored(NAME, fail)
        assert os.listdir(cache) == []

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_killed_process_leaves_nothing_that_counts(self, cache: Path) -> None:
        def killed(folder: Path) -> None:
            write_twelve(folder)
            os.kill(os.getpid(), signal.SIGKILL)

        process = os.fork()
        if process == 0:
            stored(NAME, killed)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL
        (leftover,) = cache.iterdir()
        assert leftover.name != NAME
        assert not is_whole(leftover)
        assert is_whole(stored(NAME, write_twelve))
        assert os.listdir(cache) == [NAME], "its process is dead"

    def test_of_two_at_once_both_get_the_one_that_was_faster(self, cache: Path) -> None:
        def slower(folder: Path) -> None:
            (folder / "numbers").write_bytes(b"slower")
            stored(NAME, lambda aside: (aside / "numbers").write_bytes(b"faster") and None)

        assert (stored(NAME, slower) / "numbers").read_bytes() == b"faster"
        assert os.listdir(cache) == [NAME]

    def test_a_folder_that_cannot_be_written_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file" / "cache"))
        with pytest.raises(
            DataError, match=r"file/cache: prepared data cannot be stored here.*REGARD_CACHE"
        ):
            stored(NAME, write_twelve)


@contextmanager
def living_process(work: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """A process that does `work` and, where it calls its argument, waits until the `with` block
    ends."""
    (ready, tell), (wait, end) = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        os.close(end)
        work(lambda: os.write(tell, b".") and os.read(wait, 1) and None)
        os._exit(0)
    assert os.read(ready, 1) == b"."
    yield
    os.close(end)
    assert os.waitpid(process, 0)[1] == 0


def write_million(folder: Path) -> None:
    (folder / "numbers").write_bytes(bytes(10**6))


def names(count: int) -> list[str]:
    return [f"texts-{number:032}" for number in range(count)]


def release() -> None:
    """What the end of this process would do."""
    for file in store._held.values():
        file.close()
    store._held.clear()


class TestLimit:
    @pytest.mark.parametrize(
        ("now", "second"),
        [
            (None, None),
            (60.0, None),
            (None, 2.0**33),
            (None, 2.0**62),
            (None, 0.0),
        ],
        ids=["right", "back in 1970", "ahead", "ahead for ever", "back"],
    )
    def test_the_oldest_go_first(
        self, now: float | None, second: float | None, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A limit of three and a half folders; the second folder is the last one that is used
        before the fifth."""
        if now is not None:
            monkeypatch.setattr("time.time", lambda: now)
        for number, name in enumerate(names(4)):
            folder = stored(name, write_million)
            if number == 1 and second is not None:
                os.utime(folder / "whole.json", (second, second))
        stored(names(4)[1], write_million)
        release()
        monkeypatch.setenv("REGARD_CACHE_LIMIT", "0.0035 GB")
        stored(names(5)[4], write_million)
        assert sorted(os.listdir(cache)) == [names(5)[1], names(5)[3], names(5)[4]]

    def test_a_clock_that_is_wrong_removes_nothing(self, cache: Path) -> None:
        for name, moment in zip(names(3), (0.0, 2.0**33, 2.0**62), strict=True):
            folder = stored(name, write_twelve)
            for path in (folder, folder / "whole.json"):
                os.utime(path, (moment, moment))
        release()
        trim_cache(1000)
        stored(NAME, write_twelve)
        assert sorted(os.listdir(cache)) == sorted({*names(3), NAME})

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_nothing_that_a_living_process_uses_or_builds(self, cache: Path) -> None:
        used, built = names(2)

        def work(pause: Callable[[], None]) -> None:
            stored(used, write_twelve)
            stored(built, lambda folder: pause())

        with living_process(work):
            for path in [*cache.iterdir(), *cache.glob("*/*")]:
                os.utime(path, (0, 0))
            trim_cache(0)
            assert len(os.listdir(cache)) == 2
        assert sorted(os.listdir(cache)) == [used, built]
        trim_cache(0)
        assert os.listdir(cache) == []

    def test_nothing_that_is_not_its_own(self, cache: Path) -> None:
        for name in ("notes", "notes.partial", "texts-1.partial", f"{NAME}.txt"):
            (cache / name).mkdir(parents=True)
            (cache / name / "whole.json").write_text("{}")
        trim_cache(0)
        assert len(os.listdir(cache)) == 4

    @pytest.mark.parametrize("given", ["much", "-1", "5 MB", "1e3", "nan"])
    def test_a_limit_that_is_no_size_is_refused(
        self, given: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REGARD_CACHE_LIMIT", given)
        assert fail("cache") == [
            f"REGARD_CACHE_LIMIT: {given!r} is not a size (a number of GB: 20, or 0.5)"
        ]

    def test_the_command(self, cache: Path) -> None:
        stored(NAME, write_twelve)
        size = sum(path.stat().st_size for path in (cache / NAME).iterdir())
        shown = regard("cache", "--json").json
        assert (shown["folder"], shown["bytes"], shown["limit"]) == (str(cache), size, 20e9)
        assert [(entry["name"], entry["bytes"]) for entry in shown["entries"]] == [(NAME, size)]
        os.utime(cache / NAME / "whole.json", (2.0**62, 2.0**62))
        assert NAME in regard("cache").out
        kept = regard("cache", "--clear")
        assert NAME in kept.out
        assert "in use" in kept.err
        release()
        cleared = regard("cache", "--clear")
        assert (cleared.out, cleared.err) == (
            f"{cache}: 0.0 MB, at most 20,000 MB (REGARD_CACHE_LIMIT)\n",
            "",
        )


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
        assert (
            list(chosen) == [texts[row] for row in rows] == [chosen[i] for i in range(len(chosen))]
        )
        assert list(chosen[1:3]) == [texts[row] for row in rows][1:3]

    @pytest.mark.parametrize("vocabulary", [2**16, 2**16 + 1])
    def test_written_in_chunks_and_mapped(self, vocabulary: int, tmp_path: Path) -> None:
        rows = [[vocabulary - 1, 5], [], [6], [7, 8, 9]]
        texts = ["가나다", "", "a\nb", "ß"]
        tokens = ColumnWriter(tmp_path, "tokens", token_type(vocabulary))
        characters, none = (ColumnWriter(tmp_path, name, np.uint8) for name in ("texts", "none"))
        for chunk in (slice(0, 1), slice(1, 1), slice(1, 4)):
            values = np.array([token for row in rows[chunk] for token in row], dtype=np.int64)
            tokens.extend(values, [len(row) for row in rows[chunk]])
            characters.extend_texts(texts[chunk])
        for writer in (tokens, characters, none):
            writer.close()
        column = TokenColumn.open(tmp_path, "tokens", token_type(vocabulary))
        assert [column[i].tolist() for i in range(4)] == rows
        assert column.lengths.tolist() == [2, 0, 1, 3]
        with pytest.raises(IndexError):
            column[4]
        assert (tmp_path / "tokens.values").stat().st_size == 6 * (2 if vocabulary == 2**16 else 4)
        assert list(TextColumn.open(tmp_path, "texts")) == texts
        assert list(TextColumn.open(tmp_path, "none")) == []
        assert len(TokenColumn.open(tmp_path, "none", np.uint16).lengths) == 0

    def test_rows_with_a_token(self) -> None:
        column = TokenColumn.of([[1, 2], [], [2, 3, 2], [], [4]])
        assert column.rows_with(2).tolist() == [0, 2, 2]
        assert column.rows_with(4).tolist() == [4]
        assert column.rows_with(5).tolist() == []

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
