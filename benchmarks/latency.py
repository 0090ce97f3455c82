"""One short sentence a request to a classifier of MiniLM's size that stays loaded, on the CPU.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [--count 100]

`regard.load` and transformers' pipeline on the same model, exported, in the same process and in turn; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import regard


def requests(count: int) -> None:
    """The median time of a request to a loaded classifier, and that of the peer."""
    from transformers import pipeline

    size = {"layers": 6, "width": 384, "heads": 12, "feed_forward": 1536}
    recipe = {
        "task": "classification", "data": {"train": {"corpus": "reviews-en", "size": 200}},
        "model": {"kind": "bert", **size}, "training": {"steps": 1, "batch_tokens": 512, "device": "cpu"},
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        run = regard.train(recipe, out=f"{folder}/run", quiet=True)
        regard.export_run(run, to="huggingface", out=f"{folder}/exported")
        model, peer = (
            regard.load(run, device="cpu"),
            pipeline("text-classification", f"{folder}/exported", device="cpu"),
        )
    text = "The plot was not dull, although the music was silly."
    jobs: list[Callable[[], Any]] = [lambda: model.predict(text), lambda: peer(text)]
    for measure, now in {"seconds": time.perf_counter, "seconds of the processor": time.process_time}.items():
        times: list[list[float]] = [[], []]
        for _ in range(count + 3):
            for job, side in zip(jobs, times, strict=True):
                started = now()
                job()
                side.append(now() - started)
        ours, theirs = (1000 * statistics.median(side[3:]) for side in times)
        print(f"milli{measure} a request: regard {ours:.1f}, transformers {theirs:.1f}, ratio {theirs / ours:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    requests(parser.parse_args().count)


if __name__ == "__main__":
    main()
