"""Messages: one line each, whatever is repeated in them."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from command_line import fail, succeed
from regard.errors import Problem, RegardError, printable, short
from regard.exchange.folder import render
from regard.search.config import SearchConfig
from regard.training.display import Display
from regard.views.report import Report, Section, Table, Text
from regard.views.terminal import print_report

LONG, FOLDERS = "a" * 100_000, "/folder" * 30


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (
            Problem("key", f"{LONG!r} is not allowed", "b"),
            f"key: '{'a' * 40}…{'a' * 39}' is not allowed (b)",
        ),
        (
            Problem("", f'unknown "{LONG}", did you mean "b"?'),
            f'unknown "{"a" * 40}…{"a" * 39}", did you mean "b"?',
        ),
        (Problem("", f"give 'a.', {'b' * 90} and 'c'"), f"give 'a.', {'b' * 90} and 'c'"),
        (
            Problem("", "it's not " + 9 * "the run's, "),
            "it's not " + 9 * "the run's, ",
        ),  # no quotes
        (Problem(f"{FOLDERS}/a.txt:7", "is empty"), f"{FOLDERS}/a.txt:7: is empty"),
        (
            Problem("", "no file", f"did you mean {FOLDERS + '/a'!r}?"),
            f"no file (did you mean {FOLDERS + '/a'!r}?)",
        ),
        (
            Problem("a\x1b[31m\r.txt:7", "is\nempty", "\x9b\u202e\udc80"),
            r"a\x1b[31m\r.txt:7: is\nempty (\x9b\u202e\udc80)",
        ),
        (Problem("안녕.txt:7", "'\u200d' is 'é\u3000'"), "안녕.txt:7: '\u200d' is 'é\u3000'"),
    ],
)
def test_a_problem_is_one_line_with_short_values(problem: Problem, told: str) -> None:
    assert str(problem) == told == str(RegardError(problems=[problem]))


def test_long_places_and_lists_keep_both_ends() -> None:
    problem = Problem(
        f"{LONG}/b.txt:7",
        f"is {[1] * LONG.count('a')}",
        f"allowed: {', '.join([LONG[:30]] * 1000)}",
    )
    assert len(str(problem)) < 2500
    assert problem.where.endswith("/b.txt:7")
    assert problem.hint.startswith("allowed: aaa")


def test_printable_keeps_lines_and_short_keeps_both_ends() -> None:
    assert printable("a\tb\nc\x07d\x7f") == "a\tb\nc\\x07d\\x7f"
    assert (short("abcdef", 6), short("abcdef", 5)) == ("abcdef", "ab…ef")


def test_what_a_terminal_gets_has_no_control_characters(tmp_path: Path) -> None:
    """Neither from the name of a file nor from a cell, in messages, reports and the lines of a
    training."""
    odd = "a\x1b[31m\x07"
    written = succeed("recipes", "dates", "--out", tmp_path / f"{odd}.yaml").out
    refused = fail("check", tmp_path / f"{odd}.csv")
    console, display = Console(file=io.StringIO(), width=200), Display()
    display.console = Console(file=io.StringIO())
    print_report(
        Report(odd, [Section(odd, [Table([odd], [[odd]], odd, [odd]), Text([odd])])], odd, [odd]),
        console,
    )
    display.say(odd)
    for shown in (written, *refused, console.file.getvalue(), display.console.file.getvalue()):
        assert r"a\x1b[31m\x07" in shown
        assert not {"\x1b", "\x07"} & {*shown}


def test_a_full_disk_is_named(tmp_path: Path, disk: Callable[[int], None], cache: Path) -> None:
    """That of a recipe, of the cache, and of a run, of which the second file may be the one that
    fails."""
    run = tmp_path / "run"
    recipe = ["dates", "data.train.size=20", "data.validation.size=5", "data.test.size=5"]
    disk(100)
    refused = f"{tmp_path / 'a.yaml'}: cannot be written: File too large"
    assert fail("recipes", "dates", "--out", tmp_path / "a.yaml") == [refused]
    [message] = fail("check", *recipe)
    assert message.startswith(
        f"{cache}: prepared data cannot be stored here: File too large (make room, or set "
        "REGARD_CACHE"
    )
    assert not [*cache.iterdir()]
    disk(1 << 30)
    succeed("check", *recipe)
    for size, file in ((100, "environment.json"), (1500, "tokenizer.source.json")):
        disk(size)
        assert (
            fail("train", *recipe, "--out", run)[-1]
            == f"{run / file}: cannot be written: File too large"
        )
        assert [*tmp_path.iterdir()] == [cache]


def test_a_heading_is_plain_text() -> None:
    """The name of a run is a folder's, which may hold Markdown, HTML or a line break."""
    card = render(
        "ctranslate2.md",
        name="a_b\n# [x](y) <img> 한",
        files=["t"],
        search=SearchConfig(),
        never=[],
        source_first=[],
        target_first=[],
    )
    assert card.splitlines()[0] == r"# a\_b \# \[x\]\(y\) \<img\> 한, for CTranslate2"
