"""Trainings with a time limit, the number of threads, and how long something may take."""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import succeed, write
from regard.config import write_yaml
from regard.data.config import TrainingConfig
from regard.errors import ConfigError
from regard.recipes.loading import load_recipe
from regard.runs.checkpoints import load_training
from regard.tasks.pairs import decoded_inputs
from regard.tasks.translation import EvaluationConfig, translation_scores
from regard.training.accelerator import make_accelerator
from regard.training.display import Display, duration_range
from regard.training.interrupts import Interrupted
from regard.training.pace import Pace
from regard.training.progress import TrainingProgress
from regard.training.threads import fastest_of
from regard.training.time_limit import TimeLimit, TimePlan, affordable_interval, plan_for
from regard.training.timetable import Timetable
from regard.training.train import train


@pytest.mark.parametrize(
    ("seconds", "pace", "every", "expected"),
    [
        # 97 s: a tenth for 9 validations of 1 s, 88 s for steps of half a second
        (100, Pace(0.5, 1.0), None, TimePlan(176, 20)),
        # validations are fast: 20 of them
        (100, Pace(0.5, 0.1), None, TimePlan(190, 10)),
        # they are slow: four of them, although these take more than a tenth
        (100, Pace(0.5, 10.0), None, TimePlan(114, 29)),
        # four would take more than half of the time
        (100, Pace(0.5, 30.0), None, TimePlan(134, 134)),
        # as often as the recipe says: (97 - 1) / (0.5 + 1 / 10)
        (100, Pace(0.5, 1.0), 10, TimePlan(160, 10)),
        (0.1, Pace(0.5, 1.0), None, TimePlan(1, 1)),
    ],
)
def test_steps_and_validations_fill_the_time(
    seconds: float, pace: Pace, every: int | None, expected: TimePlan
) -> None:
    assert plan_for(seconds, pace, every) == expected


@pytest.mark.parametrize(
    ("every", "left", "pace", "expected"),
    [
        # 10 validations of 20 s beside 1,000 s of steps: 5 of them take 100 of 1,100 s
        (100, 1_000, Pace(1.0, 20.0), 200),
        # a tenth or less, if the validations themselves are counted: 100 of 1,000 s
        (100, 1_000, Pace(0.9, 10.0), 100),
        # four at least, although they take more than the steps
        (10, 160, Pace(0.1, 60.0), 40),
        (10, 70, Pace(0.1, 60.0), 10),
        # half a minute in all is nothing that anybody waits for
        (10, 100, Pace(0.01, 3.0), 10),
        (10, 100, Pace(0.01, 3.1), 20),
    ],
)
def test_slow_validations_become_rarer(every: int, left: int, pace: Pace, expected: int) -> None:
    assert affordable_interval(every, left, pace) == expected


def timetable_of(epoch_batches: int, **training: Any) -> Timetable:
    """The timetable of a training on a CPU whose steps take a second each."""
    config = TrainingConfig(**{"epochs": 40, **training})
    accelerator = make_accelerator(TrainingConfig(epochs=1, device="cpu"))
    timetable = Timetable(config, epoch_batches, 1, accelerator, Display(quiet=True))
    for _ in range(3):
        timetable.add_step(1.0)
    return timetable


def test_the_plan_of_validations_is_kept_and_checkpoints_stay_as_frequent() -> None:
    timetable = timetable_of(epoch_batches=25)
    progress = TrainingProgress(step=25)
    timetable.replan(progress, 9.0)  # 39 of them would take 351 of 1,326 s, 10 take 90 of 1,065
    assert (timetable.validate_every, timetable.checkpoint_every) == (100, 25)
    assert timetable.is_saved(50)
    assert not timetable.is_validated(50)
    resumed = timetable_of(epoch_batches=25)
    resumed.plan(1, progress)
    assert resumed.validate_every == 100


@pytest.mark.parametrize(
    "given", [{"validate_every": 25}, {"patience": 3}, {"schedule": "plateau"}]
)
def test_validations_that_are_asked_for_or_counted_stay(given: dict[str, Any]) -> None:
    timetable = timetable_of(epoch_batches=25, **given)
    timetable.replan(TrainingProgress(step=25), 9.0)
    assert timetable.validate_every == 25


def test_the_time_left_counts_the_validations() -> None:
    timetable = timetable_of(epoch_batches=25, epochs=None, steps=110)
    assert timetable.validation_seconds_left(20) is None  # none was measured
    timetable.add_validation(2.0, TrainingProgress())
    # at steps 50, 75, 100 and 110
    assert timetable.validation_seconds_left(26) == timetable.validation_seconds_left(50) == 8.0
    assert timetable.validation_seconds_left(110) == 2.0


def limit_of(minutes: float, pace: Pace, used: float = 0.0) -> TimeLimit:
    return TimeLimit(
        TrainingConfig(minutes=minutes), pace, time.monotonic(), TrainingProgress(spent=used)
    )


def test_what_is_left_of_the_time() -> None:
    limit = limit_of(1, Pace(0.5, 2.0), used=50)
    assert limit.left == pytest.approx(10, abs=0.5)
    assert not limit.is_up()
    assert limit_of(
        1, Pace(0.5, 2.0), used=58
    ).is_up()  # a step, a validation and its checkpoint need 2.5 s
    for seconds in (30.0, 0.1, 0.3):  # the first step is slower
        limit.measured.add_step(seconds)
    assert limit.pace.step == pytest.approx(0.2)


def test_the_rest_is_planned_anew_only_if_the_pace_is_another() -> None:
    limit = limit_of(1, Pace(0.1, 1e-3), used=0)
    assert limit.replanned(580, 100) is None
    assert limit.replanned(540, 100) is None  # 7 % less
    for steps in (300, 1_200):
        plan = limit.replanned(steps, 100)
        assert plan is not None
        assert plan.steps == pytest.approx(580, abs=4)
    late = limit_of(1, Pace(0.1, 1e-3), used=45).replanned(1_000, 100)
    assert late is not None
    assert (
        round(late.steps / late.validate_every) == 5
    )  # a quarter of the time has a quarter of the validations
    assert limit_of(1, Pace(0.0, 0.0)).replanned(1, 1) is None  # just resumed


@pytest.fixture
def without_an_end(tiny_recipe: dict[str, Any]) -> dict[str, Any]:
    recipe = copy.deepcopy(tiny_recipe)
    for name in ("steps", "validate_every"):
        del recipe["training"][name]
    recipe["training"] |= {"schedule": "linear", "log_every": 1, "decode": 0}
    return recipe


def test_the_log_and_the_screen_say_how_long_a_validation_takes(
    tiny_recipe: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_recipe["training"] |= {"steps": 12, "validate_every": 6, "log_every": 3}
    run = train(tiny_recipe, out=tmp_path / "run")
    timings = [event for event in run.events() if event["event"] == "timing"]
    assert [event["step"] for event in timings] == [6, 12]
    assert all(0 < event["validation_seconds"] < 60 for event in timings)
    printed = capsys.readouterr().err
    assert f"validation at step 6 in {timings[0]['validation_seconds']:.1f} s: loss" in printed
    steps = [line for line in printed.splitlines() if line.startswith("step ")]
    assert [line.endswith("left, not counting validations") for line in steps] == [
        True,
        True,
        False,
        False,
    ]


def test_a_training_ends_in_time_with_a_checkpoint(
    without_an_end: dict[str, Any], tmp_path: Path
) -> None:
    started = time.monotonic()
    run = train(without_an_end, ["training.minutes=0.05"], out=tmp_path / "run", quiet=True)
    assert time.monotonic() - started < 3.0 + 4.0  # on a machine that is busy
    events = [*run.events()]
    plans = [event for event in events if event["event"] == "plan"]
    last = events[-1]
    assert (last["event"], run.checkpoint("last").name) == (
        "validation",
        f"step-{last['step']:08d}",
    )
    assert plans[0]["step"] == 0
    assert last["step"] <= plans[-1]["steps"]
    assert 1 <= len([event for event in events if event["event"] == "validation"]) <= 40
    again = train(
        without_an_end, ["training.minutes=0.05"], out=tmp_path / "run", resume=True, quiet=True
    )
    assert [*again.events()] == events  # nothing is left
    more = train(
        without_an_end, ["training.minutes=0.08"], out=tmp_path / "run", resume=True, quiet=True
    )
    assert [*more.events()][-1]["step"] > last["step"]


@contextmanager
def interrupted(run: Path, lines: int) -> Iterator[None]:
    """Press Ctrl-C once the log of a run has so many more lines."""
    log = run / "metrics.jsonl"
    wanted = lines + (log.read_bytes().count(b"\n") if log.exists() else 0)

    def look(number: int, frame: object) -> None:
        if log.exists() and log.read_bytes().count(b"\n") >= wanted:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_plan_is_a_number_of_steps_and_is_kept(
    without_an_end: dict[str, Any], tmp_path: Path
) -> None:
    """A training with a time limit makes the very steps of one with `training.steps`, also after it
    was resumed."""
    limited, steps = tmp_path / "limited", tmp_path / "steps"
    given = ["training.minutes=300", "training.validate_every=1000000"]
    with interrupted(limited, 20):
        train(without_an_end, given, out=limited, quiet=True)
    with interrupted(limited, 20):
        train(without_an_end, given, out=limited, resume=True, quiet=True)
    events = [*regard.Run(limited).events()]
    [plan] = [event for event in events if event["event"] == "plan"]
    progress = load_training(regard.Run(limited).checkpoint("last"))[1]["progress"]
    assert (progress["planned_steps"], plan["validate_every"]) == (plan["steps"], 1_000_000)
    assert 0.0 < progress["spent"] < 300
    with interrupted(steps, 40):
        train(without_an_end, [f"training.steps={plan['steps']}", given[1]], out=steps, quiet=True)
    found, expected = (
        {
            event["step"]: (event["loss"], event["learning_rate"])
            for event in one
            if event["event"] == "train"
        }
        for one in (events, regard.Run(steps).events())
    )
    common = found.keys() & expected.keys()
    assert len(common) > 20  # beyond where it was interrupted
    assert {step: found[step] for step in common} == {step: expected[step] for step in common}


def test_minutes_stand_alone(without_an_end: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match="training: minutes plans the number of steps: leave out steps and epochs",
    ):
        train(without_an_end, ["training.minutes=1", "training.epochs=2"], out=tmp_path / "run")
    found = regard.check(without_an_end, minutes=0.5, quiet=True)
    assert found.training["steps"] * found.training["seconds_per_step"] == pytest.approx(
        30, rel=0.1
    )


@pytest.mark.parametrize(
    ("own", "given", "length"),
    [
        ({"steps": 9, "epochs": 8}, ["training.minutes=7"], (None, None, 7.0)),
        ({"steps": 9}, ["training.epochs=2"], (None, 2, None)),
        ({"epochs": 8}, ["training.steps=3"], (3, None, None)),
        ({"minutes": 0.5}, ["training.steps=3"], (3, None, None)),
        ({"minutes": 0.5}, ["training.steps=3", "training.epochs=2"], (3, 2, None)),
        ({"steps": 9, "epochs": 8}, ["training.steps=3", "training.steps=null"], (None, 8, None)),
        ({"steps": 9, "epochs": 8}, ["training={epochs: 2}"], (None, 2, None)),
        ({"steps": 9, "epochs": 8}, ["training.seed=3"], (9, 8, None)),
    ],
)
def test_a_length_that_is_given_replaces_the_others(
    without_an_end: dict[str, Any], own: dict[str, Any], given: list[str], length: tuple[Any, ...]
) -> None:
    without_an_end["training"] |= own
    config = load_recipe(without_an_end, given)[0].training
    assert (config.steps, config.epochs, config.minutes) == length


def test_a_note_says_which_length_is_left_out(
    without_an_end: dict[str, Any], tmp_path: Path
) -> None:
    """Also for a recipe that ships, and on every way to give one."""
    note = "training.minutes=0.5: left out of the recipe: epochs: 4"
    assert note in regard.check("sentiment", minutes=0.5, quiet=True).data["findings"]
    without_an_end["training"] |= {"steps": 900, "epochs": 8}
    recipe = write(tmp_path / "recipe.yaml", write_yaml(without_an_end))
    result = succeed("train", recipe, "training.steps=1", "--out", tmp_path / "run")
    assert "training.steps=1: left out of the recipe: epochs: 8" in result.err
    assert regard.Run(tmp_path / "run").recipe.training.epochs is None
    result = succeed("train", recipe, "--out", tmp_path / "both", "training.minutes=0.01")
    assert "left out of the recipe: steps: 900, epochs: 8" in result.err


def test_the_fastest_number_of_threads() -> None:
    assert (
        fastest_of({4: [1.0, 9.0, 1.1], 2: [1.0, 1.0, 1.0], 1: [2.0, 2.0, 2.0]}, 4) == 4
    )  # not clearly faster
    assert fastest_of({2: [1.0, 0.9, 1.2], 1: [0.5, 0.6, 3.0]}, 2) == 1
    assert fastest_of({2: [0.5, 0.6, 0.5], 1: [1.0, 1.0, 1.0]}, 2) == 2


def test_a_run_keeps_its_number_of_threads(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not measured where the user has set it, nor when a run is resumed."""
    run = train(tiny_recipe, ["training.steps=1"], out=tmp_path / "set", quiet=True)
    assert "chosen_threads" not in run.environment
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        pytest.skip("there is nothing to choose on one core")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(cores)
    try:
        run = train(tiny_recipe, ["training.steps=1"], out=tmp_path / "run", quiet=True)
        chosen = run.environment["chosen_threads"]
        assert (chosen, torch.get_num_threads()) in [
            (threads, cores) for threads in (1, cores // 2, cores)
        ]
        assert run.environment["threads"] == chosen
        environment = (run.folder / "environment.json").read_text()
        train(tiny_recipe, ["training.steps=2"], out=tmp_path / "run", resume=True, quiet=True)
        assert (run.folder / "environment.json").read_text() == environment
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (45, 45.2, "45 s"),
        (30, 45, "30 to 45 s"),
        (80, 130, "80 s to 2 min"),
        (200, 290, "3 to 5 min"),
        (3600, 9000, "60 min to 2.5 h"),
    ],
)
def test_a_range_of_time(low: float, high: float, text: str) -> None:
    assert duration_range(low, high) == text


# What is decoded in a validation


def test_the_decoded_inputs_are_the_same_sample_in_every_training_and_not_the_first() -> None:
    """The first inputs of a file that is sorted by length are its shortest."""
    inputs = [[number] for number in range(1000)]
    chosen = decoded_inputs(inputs, 200)
    assert chosen == decoded_inputs(inputs, 200)
    assert chosen == sorted(chosen)
    assert len({number for [number] in chosen}) == 200
    assert 400 < sum(number for [number] in chosen) / 200 < 600
    assert decoded_inputs(inputs[:7], 200) == inputs[:7]
    assert decoded_inputs(inputs, 0) == []


def test_no_warning_of_tokenised_outputs_reaches_the_screen(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """sacreBLEU warns if most of 100 outputs end in a full stop after a space."""
    outputs = ["a sentence of a model ."] * 200
    scores = translation_scores(outputs, [[text] for text in outputs], EvaluationConfig())
    assert scores["bleu"] == pytest.approx(100)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
