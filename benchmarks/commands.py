"""Functions shared by the benchmarks: call `regard` as users do, read the log of a run, plan the
number of updates for a given time."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TRIAL_STEPS = 100
"""Steps of the short training that measures the time of a step."""
VALIDATIONS = 8
RESERVED_SHARE = 0.05
"""Share of the time reserved for validations and checkpoints beyond the one that was timed."""


def regard(*arguments: str, cache: Path, folder: Path | None = None) -> str:
    """Run the command in a new process, as users do; returns what it prints."""
    words = " ".join(["regard", *arguments])
    return printed(["-m", "regard", *arguments], words, cache=cache, folder=folder)


def printed(python: list[str], name: str, *, cache: Path, folder: Path | None = None) -> str:
    """What a new process of Python prints; if it fails, this one ends with its name and its error."""
    done = subprocess.run(
        [sys.executable, *python],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "REGARD_CACHE": str(cache)},
    )
    if done.returncode:
        sys.exit(f"{name}\n{done.stderr[-4000:]}")
    return done.stdout


SESSION = """
import json, sys, regard
recipe, changes, run, files = json.loads(sys.argv[1])
regard.train(recipe, changes, out=run, quiet=True)
found = [regard.evaluate(run, split="test", predictions=False)]
found += [regard.evaluate(run, files=file, predictions=False) for file in files]
print(json.dumps([{k: v for k, v in one.items() if isinstance(v, float)} for one in found]))
"""


def train_and_evaluate(
    recipe: Path, changes: list[str], run: Path, *, files: list[Path], cache: Path
) -> list[dict[str, float]]:
    """Train and evaluate in one new process, so that torch is imported once: the metrics on the test
    part, then on each of the files."""
    asked = json.dumps([str(recipe), changes, str(run), [str(file) for file in files]])
    told = printed(["-c", SESSION, asked], " ".join([str(recipe), *changes]), cache=cache)
    found: list[dict[str, float]] = json.loads(told.splitlines()[-1])
    return found


def events(run: Path, event: str) -> list[dict[str, Any]]:
    """The lines of a run's log of one kind."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def training_seconds(run: Path, *, after: int = 0) -> float:
    """Seconds of all updates, without validations and checkpoints. The first `after` updates count
    as long as the others, if there are others."""
    lines = events(run, "train")
    steps = [line["step"] for line in lines]
    counted = [step - last for step, last in zip(steps, [0, *steps[:-1]], strict=True)]
    timed = [(line["seconds_per_step"], count) for line, count in zip(lines, counted, strict=True)]
    settled = [one for one, step in zip(timed, steps, strict=True) if step > after] or timed
    return (
        steps[-1]
        * sum(a_step * count for a_step, count in settled)
        / sum(count for _, count in settled)
    )


def timed_training(
    recipe: str, changes: list[str], run: Path, cache: Path, folder: Path | None = None
) -> float:
    """Seconds from the start of the process to its end."""
    started = time.perf_counter()
    regard("train", recipe, *changes, "--out", str(run), cache=cache, folder=folder)
    return time.perf_counter() - started


def step_seconds(
    recipe: str,
    changes: list[str],
    run: Path,
    cache: Path,
    folder: Path | None = None,
    *,
    tried: int = TRIAL_STEPS,
) -> tuple[float, float]:
    """Two times of a short training: the seconds per update after warm-up, and the seconds of
    everything else."""
    short = [
        "training.epochs=null",
        f"training.steps={tried}",
        "training.warmup=0",
        "training.log_every=10",
    ]
    all_in = timed_training(recipe, [*changes, *short], run, cache, folder)
    a_step = statistics.median(
        line["seconds_per_step"] for line in events(run, "train")[tried // 20 :]
    )
    return a_step, all_in - tried * a_step


def fitting(
    recipe: str, changes: list[str], seconds: float, work: Path, folder: Path | None = None
) -> list[str]:
    """Overrides for a training that takes about this long in total, with a few validations."""
    a_step, besides = step_seconds(recipe, changes, work / "short", work / "cold", folder)
    steps = int(((1 - RESERVED_SHARE) * seconds - besides) / a_step)
    assert steps > TRIAL_STEPS, (
        f"{seconds:.0f} s are too few: {besides:.0f} s go by without an update"
    )
    return [
        "training.epochs=null",
        f"training.steps={steps}",
        f"training.validate_every={steps // VALIDATIONS}",
    ]


def summary(scores: list[float]) -> str:
    """Two cells: mean with standard deviation, and the single values."""
    if not scores:
        return " | "
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return (
        f"{statistics.mean(scores):.4f} ± {spread:.4f} | "
        f"{', '.join(f'{score:.4f}' for score in scores)}"
    )
