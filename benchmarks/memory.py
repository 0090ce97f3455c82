"""What a large corpus costs: memory and time from 3 million generated pairs to a model in training.

    python benchmarks/memory.py [--pairs 3000000]

A second process reads `regard train`'s anonymous memory (RssAnon: what the kernel cannot drop, unlike mapped files)
ten times a second, for the first start, which reads, trains a tokenizer and tokenises, and for a second one, which
finds all of it in the cache. Also how long `regard --help` takes. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 2.0
"""GB of anonymous memory that the issue allows."""


def write_corpus(folder: Path, pairs: int) -> None:
    """Sentences of 4 to 20 made-up words; the target is the source word by word in another spelling."""
    random.seed(1)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(30_000)]
    others = {word: word[::-1] for word in words}
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    with (folder / "train.source").open("w") as source, (folder / "train.target").open("w") as target:
        for _ in range(0, pairs, 10_000):
            pool = iter(random.choices(words, weights, k=200_000))
            for _ in range(10_000):
                sentence = [next(pool) for _ in range(random.randint(4, 20))]
                source.write(" ".join(sentence) + "\n")
                target.write(" ".join(others[word] for word in sentence) + "\n")


def anonymous_memory(process: int) -> int:
    """Bytes of RssAnon of a process."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    return 0


def measured_training(folder: Path, run: str) -> tuple[float, float]:
    """Peak anonymous memory in GB and seconds until a few steps are made."""
    environment = {**os.environ, "REGARD_CACHE": str(folder / "cache")}
    command = [
        sys.executable, "-m", "regard.cli", "train", "translation", "training.steps=20", "training.epochs=1",
        "model.preset=tiny", "training.decode=0", "training.average=1", "data.validation.split=0.001",
        "data.test.split=0.001", "--out", run,
    ]  # fmt: skip
    started, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, anonymous_memory(process.pid))
        time.sleep(0.1)
    assert process.returncode == 0
    return peak / 1e9, time.perf_counter() - started


def help_seconds() -> float:
    def once() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "regard.cli", "--help"], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started

    return statistics.median(once() for _ in range(9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3_000_000)
    pairs = parser.parse_args().pairs
    print(f"regard --help: {help_seconds():.2f} s (median of 9; at most 0.5)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, pairs)
        print("\n| start | peak anonymous memory (GB) | share of the 2 GB allowed | seconds to 20 steps |")
        print("|---|---|---|---|")
        for start in ("first", "second"):
            peak, seconds = measured_training(folder, start)
            print(f"| {start}, {pairs:,} pairs | {peak:.2f} | {peak / LIMIT:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
