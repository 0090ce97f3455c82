"""Quality on Multi30k en -> de and the time to reach a peer's, with the recipes that ship.

    python benchmarks/multi30k.py FOLDER [--seeds 3] [--only quality|time] [--recipes NAME ...]
    [--set KEY=VALUE ...]

FOLDER holds the folder `multi30k`. Quality: each recipe with several seeds, side by side on one
GPU; BLEU (sacreBLEU 13a, lowercased, beam 5) on test_2016_flickr, parameters, training time, and
the speed of decoding alone on the GPU. Time: one short training alone on the machine, the clock
running from the start of the process to its end: imports, reading, training the tokenizer and all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

QUALITY_RUNS = (
    ("multi30k-transformer",),
    ("multi30k-bahdanau", "multi30k-rnn"),
    ("multi30k-luong", "multi30k-self-attention"),
)
"""Recipes that are trained in parallel, each with all its seeds."""
SOURCES = "multi30k/test_2016_flickr.en.gz"
SHORT_TRAINING = [
    "training.batch_tokens=16384",
    "training.ema=null",
    "training.precision=bf16",
    "training.validate_every=10000",
    "training.decode=0",
]
TIMED_RECIPES = {
    "multi30k-transformer": [
        *SHORT_TRAINING,
        "training.steps=550",
        "training.warmup=120",
        "model.dropout=0.2",
    ],
    "multi30k-bahdanau": [
        *SHORT_TRAINING,
        "training.steps=380",
        "training.learning_rate=3.0e-3",
        "model.dropout=0.3",
    ],
}
PEER_RESULTS = {"multi30k-transformer": (34.7, 170), "multi30k-bahdanau": (29.2, 170)}
"""JoeyNMT on one H200, same data and metric: BLEU, seconds."""


def regard(*arguments: str, folder: Path, cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "REGARD_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-m", "regard", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    assert process.returncode == 0, process.args
    return output


def bleu(run: Path, folder: Path, cache: Path, split: str = "test") -> float:
    found = finished(
        regard("evaluate", str(run), "--json", "--split", split, folder=folder, cache=cache)
    )
    return float(json.loads(found)["bleu"])


def training_seconds(run: Path) -> float:
    """Seconds from the first to the last event of the training log."""
    return (run / "last").stat().st_mtime - (run / "environment.json").stat().st_mtime


def decoding_speed(run: Path, folder: Path) -> float:
    """Target tokens per second on the whole test set with the recipe's beam; the model is loaded
    and warm."""
    import regard

    opened = regard.Run.open(run)
    source = gzip.decompress((folder / SOURCES).read_bytes()).decode().splitlines()
    regard.predict(opened, source[:200])
    started = time.perf_counter()
    found = regard.predict(opened, source)
    seconds = time.perf_counter() - started
    return sum(len(one.nbest[0].tokens) for one in found) / seconds


def quality(folder: Path, work: Path, seeds: int, recipes: list[str], changes: list[str]) -> None:
    print(
        f"\n| recipe | BLEU, mean of {seeds} | each | parameters | training, slowest (s) | "
        "training, tokens/s "
        "| decoding, tokens/s |"
    )
    print("|---|---|---|---|---|---|---|")
    for group in [[name for name in group if name in recipes] for group in QUALITY_RUNS]:
        runs = {
            (recipe, seed): work / f"{recipe}-{seed}"
            for recipe in group
            for seed in range(1, seeds + 1)
        }
        trainings = [
            regard(
                "train",
                recipe,
                *changes,
                f"training.seed={seed}",
                "--out",
                str(run),
                folder=folder,
                cache=work / "cache",
            )
            for (recipe, seed), run in runs.items()
        ]
        for training in trainings:
            finished(training)
        with ThreadPoolExecutor() as pool:
            found = dict(
                zip(
                    runs,
                    pool.map(lambda run: bleu(run, folder, work / "cache"), runs.values()),
                    strict=True,
                )
            )
        for recipe in group:
            show(recipe, [run for (name, _), run in runs.items() if name == recipe], found, folder)


def show(recipe: str, runs: list[Path], found: dict[tuple[str, int], float], folder: Path) -> None:
    from regard.models.base import count_parameters
    from regard.runs import Run

    scores = [score for (name, _), score in found.items() if name == recipe]
    lines = [
        json.loads(line)
        for run in runs
        for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    speed = statistics.median(
        line["tokens_per_second"] for line in lines if line["event"] == "train"
    )
    slowest = max(training_seconds(run) for run in runs)
    each = ", ".join(f"{score:.2f}" for score in scores)
    size = count_parameters(Run.open(runs[0]).task.network.build())
    print(
        f"| {recipe} | {statistics.mean(scores):.2f} | {each} | {size:,} | {slowest:.0f} | "
        f"{speed:,.0f} "
        f"| {decoding_speed(runs[0], folder):,.0f} |",
        flush=True,
    )


def time_to_quality(folder: Path, work: Path) -> None:
    print(
        "\n| recipe | BLEU | seconds in total | the peer's mark | seconds / a quarter of the "
        "peer's |"
    )
    print("|---|---|---|---|---|")
    for recipe, overrides in TIMED_RECIPES.items():
        run = work / f"{recipe}-time"
        started = time.perf_counter()
        finished(
            regard(
                "train",
                recipe,
                *overrides,
                "--out",
                str(run),
                folder=folder,
                cache=work / f"cold-{recipe}",
            )
        )
        seconds = time.perf_counter() - started
        mark, limit = PEER_RESULTS[recipe]
        found = bleu(run, folder, work / "cache")
        print(
            f"| {recipe} | {found:.2f} | {seconds:.1f} | {mark} in {limit} s | "
            f"{seconds / (limit / 4):.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=["quality", "time"])
    parser.add_argument(
        "--recipes", nargs="+", default=[name for group in QUALITY_RUNS for name in group]
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.only != "quality":
            finished(
                regard(
                    "check", QUALITY_RUNS[0][0], folder=options.folder, cache=Path(work) / "cache"
                )
            )  # wakes the GPU
            time_to_quality(options.folder, Path(work))
        if options.only != "time":
            quality(options.folder, Path(work), options.seeds, options.recipes, options.set)


if __name__ == "__main__":
    main()
