"""The memory network on the bAbI tasks, 1k questions each, beside a GRU with attention on the same
data.

    python benchmarks/babi.py FOLDER [--tasks 1 2 4 15] [--restarts 20] [--jobs 4] [--joint]
    [--baseline]
        [--set KEY=VALUE ...]

FOLDER holds qa1_..._train.txt to qa20_..._test.txt, plain or compressed. Each task is trained by
itself with the recipe `babi`, its restarts side by side; a tenth of the training questions, never
the test set, chooses among them. --joint trains one model on all tasks at once. --baseline trains
Bahdanau's model to translate story and question into the answer. Errors in percent, and the mean
over tasks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from commands import regard

from regard.data.readers import open_corpus
from regard.data.stories import Stories

PUBLISHED_ERRORS = {"one by one": 13.8, "joint": 12.4}
"""The mean errors of Sukhbaatar et al. 2015 over the 20 tasks."""
JOINT_OVERRIDES = [
    "model.preset=joint",
    "model.linear_start=15",
    "training.epochs=60",
    "training.warmup=8000",
    "training.validate_every=4000",
]
"""Overrides to train all 20 tasks at once: the recipe's proportions, with the paper's width and
epochs."""
REMEMBERED = 50


def measured(
    run: Path, recipe: str, settings: list[str], cache: Path
) -> tuple[dict[str, float], float]:
    """Train; returns the test error of each task and the seconds of training."""
    started = time.perf_counter()
    regard("train", recipe, "--out", str(run), "--json", *settings, cache=cache)
    seconds = time.perf_counter() - started
    found = json.loads(regard("evaluate", str(run), "--json", "--split", "test", cache=cache))
    errors = found.get("tasks") or {run.name: 1 - found["exact_match"]}
    print(
        f"{run.name}: {100 * statistics.mean(errors.values()):.1f} in {seconds:.0f} s",
        file=sys.stderr,
    )
    return errors, seconds


def files_of(folder: Path, task: int | str) -> list[str]:
    patterns = {part: f"{folder.absolute()}/qa{task}_*_{part}.txt*" for part in ("train", "test")}
    return [f"data.{part}.file={pattern}" for part, pattern in patterns.items()]


def as_pairs(folder: Path, task: int, work: Path) -> list[str]:
    """Write a task as pairs of texts, the last sentences and the question -> the answer; returns
    the files."""
    settings = []
    for part in ("train", "test"):
        reader = open_corpus(Stories(file=f"{folder.absolute()}/qa{task}_*_{part}.txt*"), Path())
        path = work / f"qa{task}_{part}.tsv"
        with path.open("w", encoding="utf-8") as file:
            for _, story, question, answer, *_ in (row.values for row in reader):
                told = " ".join([*story.split("\n")[-REMEMBERED:], question])
                file.write(f"{told}\t{answer.replace(',', ' ')}\n")
        settings.append(f"data.{part}={{file: {path}, source: 0, target: 1}}")
    return settings


def baseline_recipe(work: Path) -> str:
    """GRU encoder and decoder with additive attention."""
    recipe = work / "gru.yaml"
    recipe.write_text(
        "task: translation\n"
        "data: {train: {file: x.tsv, source: 0, target: 1}, validation: {split: 0.1}, max_length: "
        "600}\n"
        "tokenizer: {kind: word, lowercase: true}\n"
        "model: {kind: bahdanau, preset: tiny, dropout: 0.2}\n"
        "training: {epochs: 60, batch_tokens: 4096, learning_rate: 3.0e-3, label_smoothing: 0.0, "
        "patience: 15,\n"
        "  best: exact_match, decode: 200, samples: 0}\n"
        "search: {beam: 1}\n",
        encoding="utf-8",
    )
    return str(recipe)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, nargs="+", default=list(range(1, 21)))
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--joint", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    asked = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        report(Path(temporary), asked)
    print(f"{time.perf_counter() - started:.0f} s in total")


def report(work: Path, asked: argparse.Namespace) -> None:
    cache = work / "cache"
    restarts = f"model.restarts={asked.restarts}"
    if asked.joint:
        settings = [*files_of(asked.folder, "*"), restarts, *JOINT_OVERRIDES, *asked.settings]
        errors, seconds = measured(work / "joint", "babi", settings, cache)
        show("joint", errors, seconds)
        return

    def train(task: int) -> tuple[dict[str, float], float]:
        run = work / f"qa{task}"
        if asked.baseline:
            return measured(
                run,
                baseline_recipe(work),
                [*as_pairs(asked.folder, task, work), *asked.settings],
                cache,
            )
        return measured(
            run, "babi", [*files_of(asked.folder, task), restarts, *asked.settings], cache
        )

    with ThreadPoolExecutor(asked.jobs) as pool:
        found = list(pool.map(train, asked.tasks))
    errors = {name: error for one, _ in found for name, error in one.items()}
    show(
        "GRU with attention" if asked.baseline else "one by one",
        errors,
        sum(seconds for _, seconds in found),
    )


def show(what: str, errors: dict[str, float], seconds: float) -> None:
    for name, error in errors.items():
        print(f"{name:32} {100 * error:6.1f}")
    paper = (
        f"   (paper {PUBLISHED_ERRORS[what]})"
        if what in PUBLISHED_ERRORS and len(errors) == 20
        else ""
    )
    print(
        f"{what:32} {100 * statistics.mean(errors.values()):6.1f}{paper}   {seconds:.0f} s of "
        "training"
    )


if __name__ == "__main__":
    main()
