"""A model that stays loaded, what a program may give it, and standard input that is answered as it
comes."""

import io
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import succeed
from raw_cases import Runs
from regard import cli
from regard.errors import CheckpointError, DecodeError, InputError, RegardError

SHAPES = "shapes: small red circle 20 32, large blue square 68 40"
STORY = "Mary went to the garden."


def outputs(predictions: Any) -> list[Any]:
    return [
        {name: value for name, value in one.to_json().items() if name != "input"}
        for one in predictions
    ]


# A model that stays loaded


def test_a_loaded_model_needs_its_files_no_more(tiny_run: Path, tmp_path: Path) -> None:
    """The methods are the functions: the same answers to the same arguments."""
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    loaded = regard.load(folder, device="cpu")
    expected = regard.predict(folder, ["a b", "b c"], nbest=2), regard.score(folder, "a b", "b a")
    shown = regard.explain(folder, "a b").to_json()
    shutil.rmtree(folder)
    assert (loaded.predict(["a b", "b c"], nbest=2), loaded.score("a b", "b a")) == expected
    assert regard.predict(loaded, ["a b", "b c"], nbest=2) == expected[0]
    assert loaded.explain("a b").to_json() == shown


def test_what_is_fixed_when_a_model_is_loaded(tiny_run: Path) -> None:
    loaded = regard.load(tiny_run, ["search.nbest=2"], checkpoint="last", precision="bf16")
    assert len(loaded.predict("a b")[0].to_json()["nbest"]) == 2
    assert {str(one.dtype) for one in loaded.load_model().parameters()} == {"torch.bfloat16"}
    with pytest.raises(
        DecodeError,
        match=r"checkpoint: the model is loaded with 'last' \(regard.load\(RUN, checkpoint=",
    ):
        loaded.predict("a b", checkpoint="best")
    with pytest.raises(
        DecodeError, match="precision: there is no precision 'fp23' \\(did you mean 'fp32'"
    ):
        regard.load(tiny_run, precision="fp23")  # type: ignore[arg-type]
    assert regard.Run(str(tiny_run)).recipe == regard.Run.open(tiny_run).recipe
    with pytest.raises(CheckpointError, match="nowhere: there is no such run folder"):
        regard.Run("nowhere")


# What a program may give

ALIKE: list[tuple[str, list[Any]]] = [
    (
        "translation",
        ["one cat", {"a": "one cat"}, {"source": "one cat", "b": ""}, ["one cat"], ("one cat",)],
    ),
    ("summarization", ["the cat sat", {"source": "the cat sat"}]),
    ("captioner", [SHAPES, {"image": SHAPES}]),
    ("gpt", ["the cat", {"text": "the cat"}]),
    ("bert", ["the [MASK]", {"text": "the [MASK]"}]),
    (
        "stories",
        [
            f"{STORY} Where is Mary?",
            [STORY, "Where is Mary?"],
            {"story": STORY, "question": "Where is Mary?"},
        ],
    ),
    (
        "bilstm-classifier",
        ["very good", {"text": "very good"}, ("very good",), iter(["very good"])],
    ),
    (
        "regression",
        [
            ("a cat", "one cat"),
            {"a": "a cat", "b": "one cat"},
            [("a cat", "one cat")],
            [["a cat", "one cat"]],
        ],
    ),
    ("numbered", [("a cat", "one cat"), {"first": "a cat", "second": "one cat"}]),
    (
        "choices",
        [("a cat", "sings", "flies"), {"start": "a cat", "end0": "sings", "end1": "flies"}],
    ),
    ("tagging", ["Anna Kim", {"text": "Anna Kim"}, {"tokens": ["Anna", "Kim"]}]),
    (
        "questions",
        [
            ("Where is Ben?", "Ben is here."),
            {"context": "Ben is here.", "question": "Where is Ben?"},
        ],
    ),
]
"""By run: ways to give one input."""
TABS: list[tuple[str, Any]] = [
    ("translation", "one\tcat"),
    ("bilstm-classifier", "very\tgood"),
    ("regression", ("a\tcat", "one\tcat")),
    ("choices", ("a\tcat", "sings\tso", "flies")),
    ("bert", "the\t[MASK]"),
    ("tagging", "Anna\tKim"),
    ("questions", ("Where\tis Ben?", "Ben\tis here.")),
]
"""By run: an input with tabs within its texts."""
ONE = "one text is expected, not 2 (several inputs are a list)"
NONE = "{} is not a text (give a text, a dict with the run's columns, or a tuple of texts)"
MISTAKES: list[tuple[str, Any, str]] = [
    *((name, [value], NONE.format(value)) for name, _ in ALIKE for value in (None, 2.5)),
    ("translation", 7, NONE.format(7)),
    ("translation", b"a", NONE.format("b'a'")),
    ("translation", ("a", None), NONE.format("('a', None)")),
    ("translation", ("a", "b"), ONE),
    ("tagging", [("a", "b")], ONE),
    ("bilstm-classifier", {"review": "x"}, "there is no column 'text' (the columns are review)"),
    ("bilstm-classifier", {"text": None}, "the column 'text' holds null, not a string"),
    (
        "regression",
        "a cat\tone cat",
        "two texts are expected, not 1 (put a tab between first and second, in bash "
        "$'FIRST\\tSECOND', or in Python give a tuple)",
    ),
    ("regression", ("a", "b", "c"), "two texts are expected, not 3"),
    ("questions", ("a?", "b", "c"), "a question and one text are expected, not 3 texts"),
    ("questions", "a?\tb", "there is a question, but no text that it is about"),
]


@pytest.mark.parametrize(("name", "given"), ALIKE, ids=[name for name, _ in ALIKE])
def test_one_input_in_several_ways(runs: Runs, name: str, given: list[Any]) -> None:
    loaded = regard.load(runs[name])
    first, *others = (outputs(loaded.predict(one)) for one in given)
    assert len(first) == 1
    assert all(one == first for one in others)
    one = given[0]
    assert loaded.explain(one).output == loaded.explain([one]).output
    if loaded.task.views.targets is not None and name != "captioner":
        assert loaded.score({"source": one}, iter(["</s>"]))["tokens"] == ["</s>"]


def test_a_table_of_pandas_is_its_rows(runs: Runs) -> None:
    """Iterated, it gives the names of its columns, which were classified as texts."""
    pandas, loaded = pytest.importorskip("pandas"), regard.load(runs["bilstm-classifier"])
    table = pandas.DataFrame({"text": ["very good", "so bad"], "label": ["x", "y"]})
    assert [found.input for found in loaded.predict(table)] == ["very good", "so bad"]
    assert [found.input for found in loaded.predict(table["text"])] == ["very good", "so bad"]


@pytest.mark.parametrize(("name", "given"), TABS, ids=[name for name, _ in TABS])
def test_a_tab_is_part_of_a_text(runs: Runs, name: str, given: Any) -> None:
    loaded = regard.load(runs[name])
    [found] = loaded.predict(given)
    assert found.input == (given if isinstance(given, str) else "\t".join(given))
    assert loaded.explain(given).input == found.input
    if name == "choices":
        assert found.choices == {"0": "sings\tso", "1": "flies"}  # type: ignore[attr-defined]


def test_a_tab_makes_no_pair_for_an_imported_classifier(runs: Runs) -> None:
    """Which reads one text or two; only a line that is typed has tabs between them."""
    own = regard.load(runs["bilstm-classifier"])
    data = own.recipe.data.model_copy(update={"train": []})
    imported = own.under(own.recipe.model_copy(update={"data": data}))
    text, pair = "very\tgood", ("very", "good")
    assert (
        outputs(imported.predict(text))
        == outputs(own.predict(text))
        != outputs(imported.predict(pair))
    )
    assert outputs(imported.predict([imported.task.inputs.typed(text, "")])) == outputs(
        imported.predict(pair)
    )


def test_a_tab_in_a_story_begins_no_answer(runs: Runs) -> None:
    found, expected = (
        regard.predict(runs["stories"], f"{STORY}{sign}Where is Mary?") for sign in "\t "
    )
    assert found == expected


@pytest.mark.parametrize(("name", "given", "message"), MISTAKES)
def test_what_is_no_input(runs: Runs, name: str, given: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        regard.predict(runs[name], given)
    assert str(told.value).startswith(f"input 1: {message}")
    with pytest.raises(RegardError):
        regard.explain(runs[name], given)


def test_bad_inputs_beside_good_ones(runs: Runs) -> None:
    good, bad = regard.predict(runs["bilstm-classifier"], ["very good", None], skip_bad=True)  # type: ignore[list-item]
    assert good.to_json()["output"] in ("positive", "negative")
    assert bad.to_json()["problem"]["where"] == "input 2"
    with pytest.raises(DecodeError, match="target: 5 is not a text"):
        regard.score(runs["translation"], "one cat", 5)  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match="input 1: None is not a text"):
        regard.score(runs["translation"], None, "cat")  # type: ignore[arg-type]
    assert regard.evaluate(runs["translation"], files=runs.folder / "pairs.csv")["sentences"] == 3


# Standard input


class Slowly(io.BytesIO):
    """Standard input of which a part comes only when what came before is answered; notes how much
    is by then."""

    def __init__(self, *parts: str) -> None:
        super().__init__()
        self.parts, self.answered, self.pipe = (
            [part.encode() for part in parts],
            list[str](),
            os.pipe(),
        )

    def fileno(self) -> int:
        return self.pipe[0]

    def read1(self, size: int | None = -1) -> bytes:
        self.answered.append(sys.stdout.getvalue())  # type: ignore[attr-defined]
        return self.parts.pop(0) if self.parts else b""


def test_standard_input_is_answered_as_it_comes(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the middle of a line, and of a story whose question comes later."""
    cases = {
        "bilstm-classifier": (
            ["very good\nve", "ry bad\nsi", "lly\nvery", " dull"],
            [0, 1, 2, 3, 3, 4],
        ),
        "stories": ([f"{STORY}\n", "Where is Mary?\nWhere", " is Mary?\n"], [0, 0, 1, 2]),
    }
    for name, (parts, counts) in cases.items():
        stdin = Slowly(*parts)
        monkeypatch.setattr(sys, "argv", ["regard", "predict", str(runs[name])])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        monkeypatch.setattr(sys, "stdout", written := io.StringIO())
        with pytest.raises(SystemExit):
            cli.main()
        found = [len(text.splitlines()) for text in [*stdin.answered, written.getvalue()]]
        assert found == [*counts[: len(parts) + 1], counts[-1]]
        monkeypatch.undo()
        assert succeed("predict", runs[name], stdin="".join(parts)).out == written.getvalue()


def test_a_bad_line_ends_a_stream_that_was_answered_so_far(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["regard", "predict", str(runs["bilstm-classifier"])])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Slowly("very good\n", "\nvery bad\n")))
    monkeypatch.setattr(sys, "stdout", written := io.StringIO())
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert written.getvalue().count("\n") == 1
    assert "standard input:2: the text is empty" in said.getvalue()
    assert "1 outputs were written before (--skip-bad" in said.getvalue()


# A prompt


class Terminal:
    """A command at a terminal."""

    def __init__(self, *arguments: object) -> None:
        self.screen, own = pty.openpty()
        command = [sys.executable, "-m", "regard", *map(str, arguments)]
        environment = os.environ | {"TERM": "dumb", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            command, stdin=own, stdout=own, stderr=own, env=environment, start_new_session=True
        )
        os.close(own)

    def until(self, text: str) -> str:
        """What is on the screen when a text appears."""
        shown = b""
        while text.encode() not in shown:
            ready, _, _ = select.select([self.screen], [], [], 120)
            assert ready, shown
            shown += os.read(self.screen, 4096)
        return shown.decode().replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())


class Typed(io.TextIOWrapper):
    """What is typed at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("language", "begin", "stopped"), [("en", "run", "stopped"), ("ko", "모델", "중단했습니다")]
)
def test_a_conversation(
    language: str,
    begin: str,
    stopped: str,
    tiny_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line is answered by itself; Ctrl-C stops an answer, and the next line is answered."""
    expected = succeed("predict", tiny_run, "b c").out
    call, calls = torch.nn.Module.__call__, list[int]()

    def interrupted(self: torch.nn.Module, *given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return call(self, *given, **options)

    monkeypatch.setattr(torch.nn.Module, "__call__", interrupted)
    monkeypatch.setenv("REGARD_LANG", language)
    monkeypatch.setattr(sys, "argv", ["regard", "chat", str(tiny_run)])
    monkeypatch.setattr(sys, "stdin", Typed(io.BytesIO(b"a b\n\nb c\n")))
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err) == (
        f"{begin}: {expected}".strip(),
        f"regard: {stopped}\n",
    )


def test_a_prompt(tiny_run: Path) -> None:
    """A line that cannot be read is told and the next one is asked for; the arrow brings back the
    one before."""
    expected = [one["output"] for one in succeed("predict", tiny_run, "a b", "b c", "--json").jsons]
    terminal = Terminal("predict", tiny_run)
    assert terminal.until("> ").endswith("> ")
    terminal.type("a b\n")
    assert terminal.until("> ").splitlines()[1:] == [expected[0], "> "]
    terminal.type("%\n")
    assert "regard: input: every token of '%' is unknown" in terminal.until("> ")
    terminal.type("b c\n")
    assert terminal.until("> ").splitlines()[1:] == [expected[1], "> "]
    terminal.type("\x1b[A\x1b[A\x1b[A\n")  # the line before the last
    assert terminal.until("> ").splitlines()[1:] == [expected[0], "> "]
    terminal.type("a")
    terminal.until("a")
    terminal.process.send_signal(signal.SIGINT)
    for _ in range(60):  # Python may not have begun to wait for a key
        if select.select([terminal.screen], [], [], 1)[0]:
            break
        terminal.process.send_signal(signal.SIGINT)
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.process.wait(60) == 0


def test_standard_input_is_computed_in_the_precision_that_is_given(tiny_run: Path) -> None:
    options = ("--json", "--precision", "bf16")
    typed = succeed("predict", tiny_run, "b a b", *options).jsons
    assert succeed("predict", tiny_run, *options, stdin="b a b\n").jsons == typed
