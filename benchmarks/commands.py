"""What the benchmarks share: `regard` as users call it, what a run has logged, and how many updates fit into a time."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TRIED = 100
"""Steps of the short training that finds out how long one takes."""
VALIDATIONS = 8
RESERVE = 0.05
"""Share of the time that is left for validations and checkpoints beyond the one that was timed."""


def regard(*arguments: str, cache: Path, folder: Path | None = None) -> str:
    """The command as users give it, in a process of its own; what it prints as a result."""
    done = subprocess.run(
        [sys.executable, "-m", "regard.cli", *arguments], cwd=folder, text=True, capture_output=True, check=False,
        env={**os.environ, "REGARD_CACHE": str(cache)},
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"regard {' '.join(arguments)}\n{done.stderr[-4000:]}")
    return done.stdout


def events(run: Path, event: str) -> list[dict[str, Any]]:
    """The lines of a run's log of one kind."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def training_seconds(run: Path, *, after: int = 0) -> float:
    """What its updates took, validations and checkpoints aside: those after the first so many, where there are more,
    and as if those had taken as long as the others."""
    lines = events(run, "train")
    steps = [line["step"] for line in lines]
    counted = [step - last for step, last in zip(steps, [0, *steps[:-1]], strict=True)]
    timed = [(line["seconds_per_step"], count) for line, count in zip(lines, counted, strict=True)]
    settled = [one for one, step in zip(timed, steps, strict=True) if step > after] or timed
    return steps[-1] * sum(a_step * count for a_step, count in settled) / sum(count for _, count in settled)


def timed_training(recipe: str, changes: list[str], run: Path, cache: Path, folder: Path | None = None) -> float:
    """Seconds from the start of the process to its end."""
    started = time.perf_counter()
    regard("train", recipe, *changes, "--out", str(run), cache=cache, folder=folder)
    return time.perf_counter() - started


def step_seconds(
    recipe: str, changes: list[str], run: Path, cache: Path, folder: Path | None = None, *, tried: int = TRIED
) -> tuple[float, float]:
    """Of a short training: the seconds of an update once it is under way, and those of all that is not an update."""
    short = ["training.epochs=null", f"training.steps={tried}", "training.warmup=0", "training.log_every=10"]
    all_in = timed_training(recipe, [*changes, *short], run, cache, folder)
    a_step = statistics.median(line["seconds_per_step"] for line in events(run, "train")[tried // 20 :])
    return a_step, all_in - tried * a_step


def fitting(recipe: str, changes: list[str], seconds: float, work: Path, folder: Path | None = None) -> list[str]:
    """The changes that let a training take about so long, all in, and validate now and then."""
    a_step, besides = step_seconds(recipe, changes, work / "short", work / "cold", folder)
    steps = int(((1 - RESERVE) * seconds - besides) / a_step)
    assert steps > TRIED, f"{seconds:.0f} s are too few: {besides:.0f} s go by without an update"
    return ["training.epochs=null", f"training.steps={steps}", f"training.validate_every={steps // VALIDATIONS}"]


def summary(scores: list[float]) -> str:
    """Two cells: mean and spread, and all of them."""
    if not scores:
        return " | "
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return f"{statistics.mean(scores):.4f} ± {spread:.4f} | {', '.join(f'{score:.4f}' for score in scores)}"
