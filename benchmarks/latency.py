"""One short sentence per request to a classifier of MiniLM's size that stays loaded, on the CPU.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [--count 100]
    python benchmarks/latency.py --loading        # the share of checksums in loading a BERT-base and a cached corpus

`regard.load` and transformers' pipeline on the same model, exported, in the same process and in
turn; medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import regard


def requests(count: int) -> None:
    """The median time of a request to a loaded classifier, and that of the peer."""
    from transformers import pipeline

    size = {"layers": 6, "width": 384, "heads": 12, "feed_forward": 1536}
    recipe = {
        "task": "classification",
        "data": {"train": {"corpus": "reviews-en", "size": 200}},
        "model": {"kind": "bert", **size},
        "training": {"steps": 1, "batch_tokens": 512, "device": "cpu"},
    }
    with TemporaryDirectory() as folder:
        run = regard.train(recipe, out=f"{folder}/run", quiet=True)
        regard.export_run(run, to="huggingface", out=f"{folder}/exported")
        model = regard.load(run, device="cpu")
        peer = pipeline("text-classification", f"{folder}/exported", device="cpu")
    text = "The plot was not dull, although the music was silly."
    jobs: list[Callable[[], Any]] = [lambda: model.predict(text), lambda: peer(text)]
    for measure, now in {
        "seconds": time.perf_counter,
        "seconds of the processor": time.process_time,
    }.items():
        times: list[list[float]] = [[], []]
        for _ in range(count + 3):
            for job, side in zip(jobs, times, strict=True):
                started = now()
                job()
                side.append(now() - started)
        ours, theirs = (1000 * statistics.median(side[3:]) for side in times)
        print(
            f"milli{measure} a request: regard {ours:.1f}, transformers {theirs:.1f}, ratio "
            f"{theirs / ours:.2f}"
        )


def loading(count: int) -> None:
    """The share of checksums in the time to load a run, the state of its training, and prepared
    data: each is loaded with them and, in turn, with nothing in their place; in a process of its
    own, whose memory is fresh as a user's."""
    from regard.data.store import VERIFIED
    from regard.runs.checkpoints import load_training

    with (
        TemporaryDirectory() as name,
        mock.patch.dict(os.environ, {"REGARD_CACHE": f"{name}/cache"}),
    ):
        folder = Path(name)
        words = random.Random(1).choices([*map(str, range(30_000))], k=5_000_000)
        rows = zip(*[iter(words)] * 100, strict=False)
        (folder / "texts.tsv").write_text(
            "".join(f"{' '.join(row)}\t{row[0][0]}\n" for row in rows)
        )
        (folder / "recipe.yaml").write_text(
            "{task: classification, data: {train: {file: texts.tsv, text: 0, label: 1}, "
            "validation: {split: 0.001}}, "
            "tokenizer: {kind: word, vocabulary: 30000}, model: {kind: bert, preset: base}, "
            "training: {steps: 1, batch_tokens: 512, device: cpu}}"
        )
        command = [sys.executable, "-m", "regard", "train", "recipe.yaml", "--out", "run"]
        subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)
        run = regard.Run.open(folder / "run")

        def prepare() -> None:
            for verified in folder.glob(f"cache/*/{VERIFIED}"):
                verified.unlink()
            run.task.prepare(run.recipe, folder)

        in_fresh_process(
            prepare
        )  # the run's recipe has absolute paths, under which nothing is prepared yet
        jobs: dict[str, tuple[str, Callable[[], Any]]] = {
            "a run": ("runs.checkpoints.verify", lambda: regard.load(run, device="cpu")),
            "the state of a training": (
                "runs.checkpoints.verify",
                lambda: load_training(run.checkpoint("last")),
            ),
            "prepared data, first use": ("data.store.is_whole", prepare),
        }
        for what, (verify, load) in jobs.items():
            times: list[list[float]] = [[], []]
            for turn in range(2 * count):
                with (
                    mock.patch(f"regard.{verify}", return_value=True) if turn % 2 else nullcontext()
                ):
                    times[turn % 2].append(in_fresh_process(load))
            verified, believed = (1000 * statistics.median(side) for side in times)
            share = 1 - believed / verified
            print(
                f"{what}: {verified:.0f} ms, without checksums {believed:.0f} ms: they are "
                f"{share:.1%} of it"
            )


def in_fresh_process(job: Callable[[], Any]) -> float:
    """Seconds that a job takes in a fork of this process."""
    fork = multiprocessing.get_context("fork")
    seconds = fork.SimpleQueue()

    def timed() -> None:
        started = time.perf_counter()
        job()
        seconds.put(time.perf_counter() - started)

    process = fork.Process(target=timed)
    process.start()
    process.join()
    return float(seconds.get())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--loading", action="store_true")
    options = parser.parse_args()
    (loading if options.loading else requests)(options.count)


if __name__ == "__main__":
    main()
