"""Memory and time of a large corpus: from 3 million generated pairs, or from raw text, to a model
in training.

    python benchmarks/memory.py [--pairs 3000000] [--curve memory.svg]
    python benchmarks/memory.py --text 10         # 10 and 60 MB of raw text instead, with BERT: memory should not grow

A second process reads the anonymous memory of `regard train` and the processes that it starts
(RssAnon: what the kernel cannot drop, unlike mapped files) ten times a second, for the first start,
which reads, trains a tokenizer and tokenises, and for a second one, which finds all of it in the
cache. A third is killed after its first checkpoint and resumed: its losses must be those of the
second. Also how long `regard --help` takes. Linux only.
"""

from __future__ import annotations

import argparse
import json
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
    with (
        (folder / "train.source").open("w") as source,
        (folder / "train.target").open("w") as target,
    ):
        for sentence in islice(sentences(), pairs):
            source.write(" ".join(sentence) + "\n")
            target.write(" ".join(word[::-1] for word in sentence) + "\n")


def write_text(path: Path, megabytes: float) -> None:
    """Documents of 2 to 200 sentences, one per line; then as much text in one long document."""
    drawn = sentences()
    size = 0
    with path.open("w") as file:
        while size < megabytes * 1e6:
            whole = size > megabytes * 5e5
            for sentence in islice(drawn, random.randint(2, 200)):
                size += file.write(" ".join(sentence).capitalize() + ".\n")
            file.write("" if whole else "\n")


def family(process: int) -> list[int]:
    """A process and all its descendants."""
    try:  # any thread may have started some
        children = [
            one
            for file in Path(f"/proc/{process}/task").glob("*/children")
            for one in file.read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return [process]
    return [process, *(one for child in children for one in family(int(child)))]


def anonymous_memory(process: int) -> int:
    """The anonymous memory (RssAnon) of a process, in bytes."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


Curve = list[tuple[float, float]]
"""Anonymous memory in GB at points of time."""


def run(
    command: Sequence[str], folder: Path, until: Path | None = None, **environment: str
) -> tuple[Curve, str]:
    """The memory of all processes of a command, and its output; the command is killed once there is
    a file `until`."""
    surroundings = os.environ | {"REGARD_CACHE": str(folder / "cache"), **environment}
    curve: Curve = [(time.time(), 0)]
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=surroundings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None:
            if until is not None and until.exists():
                process.kill()
            time.sleep(0.1)
            curve.append((time.time(), sum(map(anonymous_memory, family(process.pid))) / 1e9))
        assert process.stdout is not None
        printed = process.stdout.read()
    assert process.returncode == 0 or until is not None, printed
    return curve, printed


def seconds(curve: Curve) -> float:
    return curve[-1][0] - curve[0][0]


def peak(curve: Curve) -> float:
    return max(size for _, size in curve)


PAIRS = [
    "translation",
    "training.epochs=1",
    "training.average=1",
    "data.validation.split=0.001",
    "data.test.split=0.001",
]
TEXT = [
    "bert",
    "data.validation={text: held.txt}",
    "data.test=null",
    "tokenizer.vocabulary=8000",
    "training.batch_tokens=4096",
    "training.validate_every=20",
    "training.warmup=2",
]


def train(
    folder: Path, name: str, recipe: Sequence[str], *options: str, until: Path | None = None
) -> Curve:
    """Train 20 steps into a run folder."""
    few = ["training.steps=20", "training.log_every=1", "training.checkpoint_every=5"]
    command = [
        "-m",
        "regard",
        "train",
        *recipe,
        *few,
        "model.preset=tiny",
        "training.decode=0",
        "--out",
        name,
    ]
    return run([*command, *options], folder, until)[0]


def losses(folder: Path) -> list[float]:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["event"] == "train"]


def help_seconds() -> float:
    def once() -> float:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "regard", "--help"], stdout=subprocess.DEVNULL, check=True
        )
        return time.perf_counter() - started

    return statistics.median(once() for _ in range(9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3_000_000)
    parser.add_argument(
        "--text",
        type=float,
        metavar="MB",
        help="measure raw text of this many MB, and six times as much",
    )
    parser.add_argument(
        "--curve", type=Path, metavar="SVG", help="draw the memory of the first start over time"
    )
    options = parser.parse_args()
    print(f"regard --help: {help_seconds():.2f} s (median of 9; at most 0.5)")
    print(
        "\n| start | peak anonymous memory (GB) | share of the 2 GB allowed | seconds to 20 steps |"
    )
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.text is None:
            write_corpus(folder, options.pairs)
            curve = measure(folder, f"{options.pairs:,} pairs", PAIRS)
            if options.curve is not None:
                draw(curve, folder / "cache", options.curve)
            return
        write_text(folder / "held.txt", 0.2)
        for megabytes in (options.text, 6 * options.text):
            write_text(folder / f"{megabytes:g}.txt", megabytes)
            measure(
                folder,
                f"{megabytes:g} MB of text",
                [*TEXT, f"data.train={{text: {megabytes:g}.txt}}"],
            )


def measure(folder: Path, what: str, recipe: Sequence[str]) -> Curve:
    """A line of the table for the first start, which prepares the data, and one for a second; the
    curve of the first. Then a third start, killed and resumed."""
    curves = []
    for start in ("first", "second"):
        curves.append(curve := train(folder, f"{start} {what}", recipe))
        print(
            f"| {start}, {what} | {peak(curve):.2f} | {peak(curve) / LIMIT:.2f} | "
            f"{seconds(curve):.0f} |",
            flush=True,
        )
    third = folder / f"third {what}"
    train(folder, third.name, recipe, until=third / "last")
    before = losses(third)
    train(folder, third.name, recipe, "--resume")
    same = losses(third) == losses(folder / f"second {what}")
    print(
        f"killed after step {len(before)}, resumed: the losses of all 20 steps are "
        f"{'' if same else 'NOT '}the same"
    )
    return curves[0]


def draw(curve: Curve, cache: Path, file: Path) -> None:
    """The curve, with the ends of the three steps of the preparation."""
    import matplotlib.pyplot as plt

    start = curve[0][0]
    ends = {
        "reading": "texts-*/report.json",
        "tokenizer": "tokenizers-*/columns.json",
        "tokenising": "encoded-*/report.json",
    }
    plt.rcParams["svg.hashsalt"] = "1"
    figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
    axes.plot([at - start for at, _ in curve], [size for _, size in curve], linewidth=1)
    axes.axhline(LIMIT, color="gray", linestyle="--", linewidth=1)
    before = 0.0
    for name, pattern in ends.items():
        [end] = (path.stat().st_mtime - start for path in cache.glob(pattern))
        axes.axvline(end, color="lightgray", linewidth=1)
        axes.text((before + end) / 2, 0.05, name, ha="center", size="small")
        before = end
    axes.text((before + curve[-1][0] - start) / 2, 0.05, "steps", ha="center", size="small")
    axes.set(
        xlabel="seconds", ylabel="anonymous memory (GB)", ylim=(0, 1.1 * LIMIT), xlim=(0, None)
    )
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
