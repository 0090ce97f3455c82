"""Memory and time of a large corpus: from 3 million generated pairs, or from raw text, to a model in training.

    python benchmarks/memory.py [--pairs 3000000]
    python benchmarks/memory.py --text 10         # 10 and 60 MB of raw text instead, with BERT: memory should not grow

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
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

LIMIT = 2.0
"""The limit, in GB of anonymous memory."""


def sentences() -> Iterator[list[str]]:
    """An endless stream of sentences of 4 to 20 made-up words."""
    random.seed(1)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(30_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    while True:
        pool = iter(random.choices(words, weights, k=200_000))
        for _ in range(10_000):
            yield [next(pool) for _ in range(random.randint(4, 20))]


def write_corpus(folder: Path, pairs: int) -> None:
    """The target is the source word by word in another spelling."""
    with (folder / "train.source").open("w") as source, (folder / "train.target").open("w") as target:
        for sentence in islice(sentences(), pairs):
            source.write(" ".join(sentence) + "\n")
            target.write(" ".join(word[::-1] for word in sentence) + "\n")


def write_text(path: Path, megabytes: float) -> None:
    """Documents of 2 to 200 sentences, one per line; then as much text in one long document."""
    drawn, size = sentences(), 0
    with path.open("w") as file:
        while size < megabytes * 1e6:
            whole = size > megabytes * 5e5
            for sentence in islice(drawn, random.randint(2, 200)):
                size += file.write(" ".join(sentence).capitalize() + ".\n")
            file.write("" if whole else "\n")


def anonymous_memory(process: int) -> int:
    """Bytes of RssAnon of a process."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    return 0


PAIRS = [
    "translation", "training.epochs=1", "training.average=1", "data.validation.split=0.001", "data.test.split=0.001",
]  # fmt: skip
TEXT = [
    "bert", "data.validation={text: held.txt}", "data.test=null", "tokenizer.vocabulary=8000",
    "training.batch_tokens=4096", "training.validate_every=20", "training.warmup=2",
]  # fmt: skip


def measured_training(folder: Path, run: str, recipe: Sequence[str]) -> tuple[float, float]:
    """Peak anonymous memory in GB, and seconds until a few steps are done."""
    environment = {**os.environ, "REGARD_CACHE": str(folder / "cache")}
    command = [
        sys.executable, "-m", "regard.cli", "train", *recipe, "training.steps=20", "model.preset=tiny",
        "training.decode=0", "--out", run,
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
    parser.add_argument(
        "--text", type=float, metavar="MB", help="measure raw text of this many MB, and six times as much"
    )
    options = parser.parse_args()
    print(f"regard --help: {help_seconds():.2f} s (median of 9; at most 0.5)")
    print("\n| start | peak anonymous memory (GB) | share of the 2 GB allowed | seconds to 20 steps |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.text is None:
            write_corpus(folder, options.pairs)
            measure(folder, f"{options.pairs:,} pairs", PAIRS)
            return
        write_text(folder / "held.txt", 0.2)
        for megabytes in (options.text, 6 * options.text):
            write_text(folder / f"{megabytes:g}.txt", megabytes)
            measure(folder, f"{megabytes:g} MB of text", [*TEXT, f"data.train={{text: {megabytes:g}.txt}}"])


def measure(folder: Path, what: str, recipe: Sequence[str]) -> None:
    """A line of the table for the first start, which prepares the data, and one for a second."""
    for start in ("first", "second"):
        peak, seconds = measured_training(folder, f"{start} {what}", recipe)
        print(f"| {start}, {what} | {peak:.2f} | {peak / LIMIT:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
