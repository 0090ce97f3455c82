"""A training that is cut off anywhere and resumed ends where an uninterrupted one ends, bit for
bit.

Processes are killed for real. They are forked from one server that has imported torch already, so
that a kill costs a fraction of a second.
"""

import copy
import json
import multiprocessing
import os
import platform
import random
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import fail
from regard import cli
from regard.cli import training
from regard.errors import ConfigError
from regard.runs import Run
from regard.runs.checkpoints import load_training
from regard.runs.metrics_log import read_metrics
from regard.training.train import train

if sys.platform == "win32":
    pytest.skip("there is no SIGKILL on Windows", allow_module_level=True)

Tree = dict[str, Any]
CLOCK = {"tokens_per_second", "seconds_per_step", "validation_seconds"}
"""What differs between two runs of the same training."""
MODELS: dict[str, Tree] = {
    "rnn": {"kind": "rnn", "preset": "tiny", "embedding": 16, "hidden": 16, "dropout": 0.1},
    "bahdanau": {
        "kind": "bahdanau",
        "preset": "tiny",
        "embedding": 16,
        "hidden": 16,
        "attention": 16,
        "dropout": 0.1,
    },
    "transformer": {
        "kind": "transformer",
        "preset": "tiny",
        "width": 16,
        "heads": 2,
        "feed_forward": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "tie": "all",
        "norm": "post",
    },
}
EVERYTHING: Tree = {
    "steps": 24,
    "accumulate": 2,
    "ema": 0.9,
    "schedule": "plateau",
    "warmup": 0,
    "plateau_patience": 0,
    "learning_rate": 0.05,
    "average": 3,
    "keep_best": 2,
    "validate_every": 6,
    "checkpoint_every": 4,
    "log_every": 3,
    "decode": 1,
    "teacher_forcing": 0.8,
}
"""All that has a state of its own, at a rate high enough to make the plateau act."""
PRELOADED = [
    __name__,
    "regard.api",
    "sacrebleu.metrics.chrf",
    "torch._dynamo",
    "torch.utils.tensorboard",
]
"""What the server imports once for all."""
PATIENCE = 240
"""Seconds after which a process is taken for hanging, many since the machine may be busy."""
IN_RUN = re.compile(r"/\.?killed[./](?!tensorboard)")
"""Paths in the run folder `killed`, also while it is made aside; TensorBoard's thread has a pace of
its own."""


def written(recipe: Tree, path: Path, model: str = "bahdanau", **training: Any) -> Path:
    """The recipe as a file; JSON is YAML."""
    recipe = copy.deepcopy(recipe) | {"model": MODELS[model]}
    recipe["training"] |= training
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def command(
    arguments: list[str],
    output: Path,
    kill_at: int,
    kill_by: int,
    biggest_file: int | None,
    terminal: str,
    nohup: bool,
) -> None:
    """`regard ARGUMENTS` in a process of its own, sent the signal `kill_by` before it touches a
    file in a folder `killed` for the `kill_at`-th time; at a terminal, where one is given, or under
    `nohup`."""
    import resource

    torch.set_num_threads(1)
    sys.stdout = sys.stderr = output.open("a", encoding="utf-8")
    sys.argv = ["regard", *arguments]
    if terminal:
        os.setsid()
        screen = os.open(
            terminal, os.O_RDWR
        )  # its closing sends SIGHUP, since this process leads the session
        os.dup2(screen, 1)
        os.dup2(sys.stderr.fileno() if nohup else screen, 2)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w") for stream in (1, 2))
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    touched = 0

    def touch(event: str, values: tuple[Any, ...]) -> None:
        nonlocal touched
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and IN_RUN.search(
            str(values[0])
        ):
            touched += 1
            if touched == kill_at:
                os.kill(os.getpid(), kill_by)

    if kill_at:
        sys.addaudithook(touch)
    if biggest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (biggest_file, resource.RLIM_INFINITY))
    cli.main()


class Commands:
    """Starts commands, and kills what is left of them."""

    def __init__(self, output: Path) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)
        self.output = output
        self.started: list[BaseProcess] = []

    def start(
        self,
        *arguments: str | Path,
        kill_at: int = 0,
        kill_by: int = signal.SIGKILL,
        biggest_file: int | None = None,
        terminal: str = "",
        nohup: bool = False,
    ) -> BaseProcess:
        values = (
            [str(one) for one in arguments],
            self.output,
            kill_at,
            kill_by,
            biggest_file,
            terminal,
            nohup,
        )
        process = self.context.Process(target=command, args=values)
        process.start()
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path, **options: Any) -> int:
        """The exit code; below 0 the signal that ended it."""
        process = self.start(*arguments, **options)
        process.join(PATIENCE)
        assert process.exitcode is not None, "the command hangs"
        return process.exitcode

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8")


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path / "output.txt")
    yield made
    for process in made.started:
        process.kill()
        process.join()


def contents(run: Run) -> Tree:
    """All that must be the same, byte for byte: weights, optimiser, generators, counters, log,
    pointers."""
    found: Tree = {"pointers": {name: (run.folder / name).read_text() for name in ("best", "last")}}
    for path in sorted(run.checkpoints.iterdir()):
        found |= {
            f"{path.name}/{file.name}": file.read_bytes() for file in path.glob("*.safetensors")
        }
        if (path / "training.pt").exists():
            found[f"{path.name}/training.pt"] = plain(load_training(path)[1])
    lines = read_metrics(run.folder / "metrics.jsonl")
    found["log"] = [
        {name: value for name, value in line.items() if name not in CLOCK} for line in lines
    ]
    return found


def plain(value: Any) -> Any:
    """State as values that `==` compares exactly; without the clock, and the length of a log that
    tells it."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
    if isinstance(value, dict):
        unlike = {"seconds", "validation_seconds", "log_length"}
        return {key: plain(one) for key, one in value.items() if key not in unlike}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def assert_same(run: Run, expected: Run) -> None:
    found, wanted = contents(run), contents(expected)
    assert found["log"] == wanted["log"]
    assert found.keys() == wanted.keys()
    assert [name for name in found if found[name] != wanted[name]] == []


def test_killed_between_any_two_touches_of_the_disk(
    tiny_recipe: Tree, tmp_path: Path, commands: Commands
) -> None:
    """With everything on that has a state. A dozen kills in one run: while a checkpoint is written,
    put in place, pointed to or removed, while the average is made, and before the first checkpoint.
    Resuming the finished run changes nothing, nor can steps that were made be taken back."""
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", "transformer", **EVERYTHING)
    expected = train(recipe, out=tmp_path / "uninterrupted", quiet=True)
    lines = read_metrics(expected.folder / "metrics.jsonl")
    rates = {line["learning_rate"] for line in lines if "learning_rate" in line}
    assert len(rates) > 1  # the plateau did act
    moments, kills, left = random.Random(1), 0, set()
    arguments = ("train", recipe, "--out", tmp_path / "killed", "--resume")
    while (code := commands.run(*arguments, kill_at=moments.randint(10, 60))) != 0:
        assert code == -signal.SIGKILL, commands.said()
        left |= {re.sub(r"\d+", "N", path.name) for path in (tmp_path / "killed").rglob(".*")}
        kills += 1
        assert kills < 100
    assert kills >= 8
    assert {".step-N.partial", ".average.partial"} <= left
    run = Run.open(tmp_path / "killed")
    assert_same(run, expected)
    assert not list(run.checkpoints.glob(".*"))
    before = contents(run), (run.folder / "recipe.yaml").read_bytes()
    train(recipe, out=run.folder, resume=True, quiet=True)
    with pytest.raises(
        ConfigError, match=r"training.steps: the run has made 24 steps, more than 15"
    ):
        train(recipe, ["training.steps=15"], out=run.folder, resume=True, quiet=True)
    assert (contents(run), (run.folder / "recipe.yaml").read_bytes()) == before


def wait_for(process: BaseProcess, happened: Callable[[], bool]) -> None:
    """Look again and again, as long as the process lives."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert process.is_alive(), "the process ended too soon"
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)  # the process needs the core more


def test_interrupted_it_reaches_the_same_weights(
    tiny_recipe: Tree, tmp_path: Path, commands: Commands
) -> None:
    """`timeout`, containers and job schedulers send SIGTERM.

    The checkpoint it saves out of turn must not enter the average of the last three.
    """
    changes: Tree = EVERYTHING | {"steps": 30, "checkpoint_every": 6, "log_every": 1}
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", "bahdanau", **changes)
    expected = train(recipe, out=tmp_path / "uninterrupted", quiet=True)
    for asked_by in (signal.SIGINT, signal.SIGTERM):
        run = tmp_path / asked_by.name
        process, log = commands.start("train", recipe, "--out", run), run / "metrics.jsonl"
        wait_for(process, lambda log=log: log.exists() and b'"step": 13,' in log.read_bytes())
        assert process.pid
        os.kill(process.pid, asked_by)
        process.join(PATIENCE)
        assert process.exitcode == 130
        said = commands.said()
        assert "--resume" in said.splitlines()[-1]
        assert "Traceback" not in said
        stopped = int((run / "last").read_text().removeprefix("step-"))
        assert 13 <= stopped < 30
        assert f"interrupted and saved at step {stopped}" in said
        train(recipe, out=run, resume=True, quiet=True)
        assert_same(Run.open(run), expected)


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_ends_it(
    tiny_recipe: Tree, tmp_path: Path, commands: Commands, ignored: bool
) -> None:
    """It sends SIGHUP, and nothing can be written to it any more; under `nohup` the training goes
    on."""
    steps = 60 if ignored else 100_000
    recipe = written(
        tiny_recipe, tmp_path / "recipe.yaml", "rnn", steps=steps, validate_every=steps, log_every=1
    )
    run, (screen, own) = tmp_path / "run", os.openpty()
    process = commands.start("train", recipe, "--out", run, terminal=os.ttyname(own), nohup=ignored)
    log, end = run / "metrics.jsonl", time.monotonic() + PATIENCE
    while not (log.exists() and log.stat().st_size) and time.monotonic() < end:
        select.select([screen], [], [], 0.05)[0] and os.read(screen, 1 << 16)
    os.close(own)
    os.close(screen)
    process.join(PATIENCE)
    assert (process.exitcode, (run / "last").exists()) == (0 if ignored else 130, True)


@pytest.mark.parametrize(("kill_at", "kill_by"), [(2, signal.SIGKILL), (12, signal.SIGINT)])
def test_ended_before_a_step(
    tiny_recipe: Tree, tmp_path: Path, commands: Commands, kill_at: int, kill_by: int
) -> None:
    """While the folder is laid out, and after that, before the first checkpoint."""
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", steps=4, validate_every=4, decode=0)
    run = tmp_path / "killed"
    code = commands.run("train", recipe, "--out", run, kill_at=kill_at, kill_by=kill_by)
    assert not (run / "last").exists()
    if kill_by == signal.SIGINT:
        assert code in (
            130,
            -signal.SIGINT,
        )  # Python ends by the signal where it had passed through code in a string
        said = (
            "interrupted; nothing was trained yet, so nothing is lost: the same command "
            "starts again\n"
        )
        assert commands.said().endswith(said)
        assert "Traceback" not in commands.said()
    assert (kill_at == 12) == (run / "recipe.yaml").exists()
    assert commands.run("train", recipe, "training.seed=2", "--out", run) == 0, commands.said()
    assert_same(
        Run.open(run),
        train(recipe, ["training.seed=2"], out=tmp_path / "uninterrupted", quiet=True),
    )


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    tiny_recipe: Tree, tmp_path: Path, commands: Commands
) -> None:
    """A limit on the size of files stands in for a disk: it makes the same calls fail at the same
    places."""
    recipe = written(
        tiny_recipe, tmp_path / "recipe.yaml", "rnn", steps=20, validate_every=10, log_every=1
    )
    expected = train(recipe, out=tmp_path / "uninterrupted", quiet=True)
    run = tmp_path / "run"
    assert commands.run("train", recipe, "training.steps=10", "--out", run) == 0
    saved = run / "checkpoints" / "step-00000010"
    model, state = ((saved / name).stat().st_size for name in ("model.safetensors", "training.pt"))
    log = (run / "metrics.jsonl").stat().st_size
    assert 2 * log < model < state
    assert commands.run("train", recipe, "--out", tmp_path / "fresh", biggest_file=model - 100) == 2
    assert commands.said().endswith("step-00000010: cannot be written: File too large\n"), (
        "none was saved before"
    )
    step = "step-00000020"
    for room, named in [(log + 100, "metrics.jsonl"), (model - 100, step), (state - 100, step)]:
        commands.output.write_text("")
        assert commands.run("train", recipe, "--out", run, "--resume", biggest_file=room) == 2
        assert f"regard: {run}" in commands.said()
        assert (
            f"{named}: cannot be written: File too large (what was saved before is whole; --resume"
            in commands.said()
        )
        assert "Traceback" not in commands.said()
        assert (run / "last").read_text() == "step-00000010\n"
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000010"]
        Run.open(run).load_model("last")
    assert commands.run("train", recipe, "--out", run, "--resume") == 0
    assert_same(Run.open(run), expected)


def test_going_on_for_longer_equals_going_on_at_once(tiny_recipe: Tree, tmp_path: Path) -> None:
    """Also where the file `last` is lost, or empty."""
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", log_every=1)
    longer = ["training.steps=30"]
    expected = train(recipe, longer, out=tmp_path / "at_once", quiet=True)
    half = train(recipe, out=tmp_path / "half", quiet=True)
    for last in ("step-00000020\n", "", None):
        folder = Path(shutil.copytree(half.folder, tmp_path / f"{last}"[:4] / "run"))
        (folder / "last").unlink()
        if last is not None:
            (folder / "last").write_text(last)
        run = train(recipe, longer, out=folder, resume=True, quiet=True)
        assert_same(run, expected)
        assert run.recipe == Run.open(expected.folder).recipe


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_in_the_middle_of_an_epoch_whatever_prepares_the_batches(
    tiny_recipe: Tree, tmp_path: Path, workers: int
) -> None:
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", **EVERYTHING)
    expected = train(recipe, out=tmp_path / "at_once", quiet=True)
    half = [f"data.workers={workers}", "training.steps=12"]
    run = train(recipe, half, out=tmp_path / "run", quiet=True)
    position = load_training(run.checkpoint("last"))[1]["progress"]["position"]
    assert position["index"] > 0
    other = [f"data.workers={3 - workers}"]
    run = train(recipe, other, out=run.folder, resume=True, quiet=True)
    assert_same(run, expected)


def test_more_patience_goes_on_after_an_early_stop(tiny_recipe: Tree, tmp_path: Path) -> None:
    """A learning rate far too high makes the loss rise."""
    changes: Tree = {
        "steps": 16,
        "validate_every": 2,
        "best": "exact_match",
        "decode": 2,
        "learning_rate": 1.0,
    }
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", patience=1, **changes)
    expected = train(recipe, ["training.patience=4"], out=tmp_path / "at_once", quiet=True)
    run = train(recipe, out=tmp_path / "run", quiet=True)
    assert run.checkpoint("last").name < expected.checkpoint("last").name
    run = train(recipe, ["training.patience=4"], out=tmp_path / "run", resume=True, quiet=True)
    assert_same(run, expected)


def test_going_on_from_an_earlier_checkpoint(tiny_recipe: Tree, tmp_path: Path) -> None:
    """Its name in the file `last` takes back all that came after it, in TensorBoard too."""
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", log_every=1, average=2, decode=0)
    run = train(recipe, out=tmp_path / "run", quiet=True)
    before = contents(run)
    (run.folder / "last").write_text("step-00000010\n")
    train(recipe, out=run.folder, resume=True, quiet=True)
    assert contents(run) == before
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard")).Reload()
    assert [scalar.step for scalar in events.Scalars("train/loss")] == list(range(1, 21))


def test_new_runs_and_longer_schedules(
    tiny_recipe: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step 20 ends a descent to zero, step 21 is in the middle of another: (1 - 16 / 40) of 0.01.
    For a log that is missing no bytes are made up."""
    recipe = written(
        tiny_recipe,
        tmp_path / "recipe.yaml",
        schedule="linear",
        warmup=5,
        learning_rate=0.01,
        steps=20,
    )
    run = train(recipe, out=tmp_path / "rnu", resume=True)
    assert (
        f"{tmp_path / 'rnu'}: there is no run to resume, so a new one begins\n"
        in capsys.readouterr().err
    )
    (run.folder / "metrics.jsonl").unlink()
    train(recipe, ["training.steps=44"], out=tmp_path / "rnu", resume=True)
    said = "the linear schedule now covers 44 steps: the learning rate continues at 0.006"
    assert said in capsys.readouterr().err
    steps = [(line["event"], line["step"]) for line in read_metrics(run.folder / "metrics.jsonl")]
    assert steps[:4] == [("train", 25), ("train", 30), ("timing", 30), ("validation", 30)]


@pytest.mark.parametrize(("process", "waits"), [(0, False), (1, True)])
def test_the_first_process_complains_for_all(
    tiny_recipe: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: int, waits: bool
) -> None:
    """A launcher kills all processes when one has ended, so that the first, which speaks for all,
    must end first."""
    assert training.FIRST_REPORT_SECONDS > 10
    monkeypatch.setattr(training, "FIRST_REPORT_SECONDS", 0.5)
    monkeypatch.setenv("RANK", f"{process}")
    recipe, begun = written(tiny_recipe, tmp_path / "recipe.yaml"), time.monotonic()
    messages = fail("train", recipe, "training.stesp=3", "--out", tmp_path / "run")
    assert (time.monotonic() - begun > 0.5) >= waits
    assert messages[-1] == "training.stesp: unknown key 'stesp' (did you mean 'steps'?)"
    assert messages[:-1] == (
        [f"process 1 ({platform.node()}): has an error of its own"] if waits else []
    )


def test_a_run_is_written_by_one_process_at_a_time(
    tiny_recipe: Tree, tmp_path: Path, commands: Commands
) -> None:
    """The second is refused while the first lives, and goes on once it is dead, even by kill -9."""
    recipe = written(
        tiny_recipe,
        tmp_path / "recipe.yaml",
        "bahdanau",
        steps=100_000,
        checkpoint_every=5,
        log_every=1,
    )
    run = tmp_path / "run"
    first = commands.start("train", recipe, "--out", run, "--resume")
    wait_for(first, lambda: (run / "last").exists())
    assert commands.run("train", recipe, "--out", run, "--resume") == 2
    assert (
        f"regard: {run}: another process is training this run (wait until it ends"
        in commands.said()
    )
    assert "Traceback" not in commands.said()
    assert first.is_alive()
    first.kill()
    first.join()
    stopped = int((run / "last").read_text().removeprefix("step-"))
    shorter = f"training.steps={stopped + 5}"
    assert commands.run("train", recipe, shorter, "--out", run, "--resume") == 0, commands.said()
    steps = [
        line["step"] for line in read_metrics(run / "metrics.jsonl") if line["event"] == "train"
    ]
    assert steps == list(range(1, stopped + 6))


def test_who_lays_out_a_run_keeps_it(tiny_recipe: Tree, tmp_path: Path, commands: Commands) -> None:
    """Of commands that start in one new folder at once, one trains and the others leave it
    alone."""
    recipe = written(tiny_recipe, tmp_path / "recipe.yaml", steps=4, validate_every=4, decode=0)
    run = tmp_path / "killed"
    first = commands.start("train", recipe, "--out", run, kill_at=5, kill_by=signal.SIGSTOP)
    wait_for(first, lambda: (run / "environment.json").exists())
    for option in ([], ["--resume"]):
        assert commands.run("train", recipe, "--out", run, *option) == 2, commands.said()
    assert (
        commands.said().count(
            f"regard: {run}: another process is training this run (wait until it ends"
        )
        == 2
    )
    assert first.pid
    os.kill(first.pid, signal.SIGCONT)
    first.join(PATIENCE)
    assert first.exitcode == 0, commands.said()
