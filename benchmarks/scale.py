"""How far one machine carries, and what more machines would bring (docs/scale.md).

    python benchmarks/scale.py tokenise [--pairs 1000000]   # one process, tokenizers' threads, a process a core; memory
    python benchmarks/scale.py predict [--lines 1000000]    # predict --file with 1 worker and one a core; memory
    python benchmarks/scale.py predict --device cuda        # the same on a GPU, with the GPU's share of the wall time
    python benchmarks/scale.py train                        # steps by 1 and by 2 processes on the CPU
    python benchmarks/scale.py simulate                     # 8, 64 and 512 GPUs on paper

Each figure is the median of --repeat runs, the variants taking turns: on a machine that others use,
the ratio of two medians says more than either.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory import peak, run, seconds, write_corpus

CORES = len(os.sched_getaffinity(0))
TINY_OVERRIDES = [
    "model.preset=tiny",
    "training.average=1",
    "training.decode=0",
    "training.device=cpu",
]


# Measured here


PREPARATION_PROGRAM = """
import sys, time
from pathlib import Path
from regard.recipes.loading import load_recipe
from regard.tasks import TASKS

def main():
    first = {}
    files = "data.train={source: train.source, target: train.target}"
    others = ["data.validation.split=0.001", "data.test=null", "training.epochs=1"]
    recipe, base = load_recipe("translation", ["data.workers=" + sys.argv[1], files, *others])
    def progress(step, examples):
        first.setdefault(step, time.perf_counter())
    data = TASKS["translation"].prepare(recipe, Path(), progress=progress)
    if "tokenising train" in first:
        print(len(data.train) / (time.perf_counter() - first["tokenising train"]))

if __name__ == "__main__":
    main()
"""


def tokenise(options: argparse.Namespace, folder: Path) -> None:
    """The first chunk is not timed: in it the processes start."""
    write_corpus(folder, options.pairs)
    (folder / "prepare.py").write_text(PREPARATION_PROGRAM)
    ways = {
        "1 process, 1 thread": ("1", "false"),
        f"1 process, {CORES} threads of tokenizers": ("1", "true"),
        f"{CORES} processes (data.workers)": (str(CORES), "false"),
    }
    curve, _ = run(["prepare.py", "1"], folder)
    print(
        f"first start, {options.pairs:,} pairs: {seconds(curve):.0f} s, {peak(curve):.2f} GB of "
        "anonymous memory"
    )
    rates: dict[str, list[float]] = {name: [] for name in ways}
    peaks: dict[str, float] = {}
    for _ in range(options.repeat):
        for name, (workers, threads) in ways.items():
            for encoded in (folder / "cache").glob("encoded-*"):
                shutil.rmtree(encoded)
            curve, printed = run(["prepare.py", workers], folder, TOKENIZERS_PARALLELISM=threads)
            peaks[name] = peak(curve)
            rates[name].append(float(printed))
    table(["tokenising", "pairs/s", "ratio", "GB"], rates, peaks)


def table(head: Sequence[str], rates: dict[str, list[float]], peaks: dict[str, float]) -> None:
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    base = statistics.median(next(iter(rates.values())))
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"| {name} | {rate:,.0f} | {rate / base:.2f} | {peaks[name]:.2f} |", flush=True)


def predict(options: argparse.Namespace, folder: Path) -> None:
    """The recipe `dates` in its smallest size, greedy."""
    train = [
        "-m",
        "regard",
        "train",
        "dates",
        *TINY_OVERRIDES,
        f"training.steps={options.steps}",
        "--out",
        "run",
    ]
    run(train, folder)
    chosen = random.Random(1)
    days = (
        f"{chosen.randint(1900, 2099)}년 {chosen.randint(1, 12)}월 {chosen.randint(1, 28)}일"
        for _ in range(options.lines)
    )
    (folder / "lines.txt").write_text("".join(f"{day}\n" for day in days))
    workers = options.workers or (
        ["1", "4", "8"] if options.device == "cuda" else ["1", str(CORES)]
    )
    rates: dict[str, list[float]] = {f"{count} workers": [] for count in workers}
    peaks: dict[str, float] = {}
    busy: dict[str, list[float]] = {name: [] for name in rates}
    spent: dict[str, list[float]] = {name: [] for name in rates}
    for _ in range(options.repeat):
        for count in workers:
            command = [
                "-m",
                "regard",
                "predict",
                "run",
                "--file",
                "lines.txt",
                "--out",
                "out.jsonl",
                "--overwrite",
                "--beam",
                "1",
                "--workers",
                count,
                "--device",
                options.device,
            ]
            watch = watch_gpu() if options.device == "cuda" else None
            before = os.times()
            curve, _ = run(command, folder, OMP_NUM_THREADS="1")
            after = os.times()
            name = f"{count} workers"
            peaks[name] = peak(curve)
            rates[name].append(options.lines / seconds(curve))
            used = (
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )
            spent[name].append(used)
            busy[name] += [watch()] if watch else []
    table(
        [f"predict --file, {options.lines:,} lines, {options.device}", "lines/s", "ratio", "GB"],
        rates,
        peaks,
    )
    for name, shares in busy.items():
        share = (
            f"; the GPU was busy for {statistics.median(shares):.0%} of the wall time"
            if shares
            else ""
        )
        print(f"{name}: {statistics.median(spent[name]):.1f} CPU seconds of all processes{share}")


def watch_gpu() -> Callable[[], float]:
    """Ask nvidia-smi ten times a second how busy the GPU is, until the mean is asked for."""
    query = [
        "nvidia-smi",
        "--query-gpu=utilization.gpu",
        "--format=csv,noheader,nounits",
        "-lms",
        "100",
    ]
    process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)

    def mean() -> float:
        process.terminate()
        printed, _ = process.communicate()
        return statistics.mean(float(line) for line in printed.split()) / 100

    return mean


def train(options: argparse.Namespace, folder: Path) -> None:
    """Tokens a second of the Transformer tiny, by the log of the run; each process has one core."""
    rates: dict[str, list[float]] = {f"{count} processes": [] for count in range(1, CORES + 1)}
    peaks: dict[str, float] = {}
    for turn in range(options.repeat):
        for count in range(1, CORES + 1):
            launcher = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(count),
            ]
            out = f"run-{count}-{turn}"
            every = f"training.log_every={options.steps // 4}"
            command = [
                *launcher,
                "-m",
                "regard",
                "train",
                "dates",
                *TINY_OVERRIDES,
                f"training.steps={options.steps}",
                every,
            ]
            curve, _ = run([*command, "--out", out], folder, OMP_NUM_THREADS="1")
            peaks[f"{count} processes"] = peak(curve)
            lines = [
                json.loads(line)
                for line in (folder / out / "metrics.jsonl").read_text().splitlines()
            ]
            found = [line["tokens_per_second"] for line in lines if line["event"] == "train"]
            rates[f"{count} processes"].append(statistics.median(found[1:]))
    table(["training", "tokens/s", "ratio", "GB"], rates, peaks)


# On paper


@dataclass(frozen=True)
class Cluster:
    """Nodes of eight H200. Bandwidths are what collectives reach, about 80 % of what is printed on
    the box."""

    within: float = 360e9
    """Bytes a second and direction between GPUs of a node: NVLink, 450 GB/s."""
    between: float = 40e9
    """The same of each GPU to other nodes: a network of 400 Gbit/s a GPU."""
    latency: float = 20e-6
    """Seconds of a collective within a node; between nodes once more for each doubling of their
    number."""
    node: int = 8
    bucket: float = 25e6
    """Bytes that DDP reduces together."""

    def all_reduce(self, size: float, gpus: int) -> float:
        """Seconds: reduce-scatter and all-gather within the nodes, and of an eighth between
        them."""
        inside = min(gpus, self.node)
        nodes = max(1, gpus // self.node)
        volume = (
            2
            * size
            * ((inside - 1) / inside / self.within + (nodes - 1) / nodes / inside / self.between)
        )
        hops = 1 + (nodes.bit_length() - 1)
        return volume + self.latency * hops * -(-size // self.bucket)


@dataclass(frozen=True)
class Training:
    """A model on one GPU, how much it is to read, and how much at once."""

    name: str
    parameters: float
    tokens_per_second: float
    """Tokens per second of one H200."""
    tokens: float
    """Tokens to train on in total."""
    at_once: float
    """The largest number of tokens per step known to train as well as smaller ones."""
    sharded: bool = False
    """Whether FSDP2 is used instead of DDP."""
    batch: float = 24_576
    """The tokens per batch with which a GPU was measured."""

    def step(self, gpus: int, cluster: Cluster, tokens: float) -> tuple[float, float]:
        """Seconds of computing so many tokens on each GPU, and of communication that it does not
        hide.

        DDP reduces the gradients (4 bytes each) during the backward pass, two thirds of the step,
        but for the last bucket. FSDP2 gathers the weights (2 bytes) before each use, forward and
        backward, and scatters the gradients; all of that can overlap but for the first and the last
        block, taken as a twelfth.
        """
        seconds = tokens / self.tokens_per_second
        size = 4 * self.parameters
        if gpus == 1:
            return seconds, 0.0
        if self.sharded:
            talk = cluster.all_reduce(size, gpus) / 2 + cluster.all_reduce(
                size / 2, gpus
            )  # one scatter, two gathers
            return seconds, max(talk / 12, talk - seconds)
        last = cluster.all_reduce(min(size, cluster.bucket), gpus)
        return seconds, last + max(0.0, cluster.all_reduce(size, gpus) - last - seconds * 2 / 3)


TRAININGS = [
    # 1.25 against 0.36 GFLOP a target token (6 x parameters in matrix products) at the same share
    # of the ceiling; 100 million pairs of 27 target tokens, five times; 400,000 tokens a step as in
    # Ott et al. 2018, arXiv:1806.00187
    Training("Transformer big, DDP", 213e6, 775_553 * 0.361 / 1.25, 5 * 100e6 * 27, 400_000),
    # as many positions as the paper's million steps of 256 x 512; 32,768 x 512 a step as in You et
    # al. 2020 (arXiv:1904.00962), with LAMB, which regard does not have: a fourth of it here
    Training("BERT base, DDP", 110e6, 644_217, 1e6 * 256 * 512, 8_192 * 512),
    # a model that needs FSDP: 6 x 1.5 G FLOP a token, at GPT base's 45.8 % of 800 TFLOP/s
    Training(
        "GPT of 1.5 G, FSDP2", 1.5e9, 0.458 * 800e12 / 9e9, 1e6 * 256 * 512, 2_000_000, True, 16_384
    ),
]
"""Tokens a second from benchmarks/README.md: one H200, bf16."""


def simulate(options: argparse.Namespace, folder: Path) -> None:
    """Two ways to use more GPUs: a full batch on each, or one batch of the same size shared by
    all."""
    names = [
        "training",
        "GPUs",
        "tokens a step",
        "step, ms",
        "waiting for others, ms",
        "efficiency",
        "hours",
        "GPU hours",
    ]
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for training in TRAININGS:
        for gpus in (1, 8, 64, 512):
            for tokens in sorted(
                {training.batch, min(training.batch, training.at_once / gpus)}, reverse=True
            ):
                seconds, talk = training.step(gpus, Cluster(), tokens)
                hours = training.tokens / (tokens * gpus) * (seconds + talk) / 3600
                print(
                    f"| {training.name} | {gpus} | {tokens * gpus / 1e6:.2f} M | "
                    f"{1e3 * (seconds + talk):.1f} | "
                    f"{1e3 * talk:.2f} | {seconds / (seconds + talk):.1%} | {hours:.2f} | "
                    f"{hours * gpus:.0f} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["tokenise", "predict", "train", "simulate"])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument(
        "--workers", nargs="+", help="of predict. Default: 1 and one a core; on a GPU 1, 4 and 8"
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        {"tokenise": tokenise, "predict": predict, "train": train, "simulate": simulate}[
            options.what
        ](options, Path(name))


if __name__ == "__main__":
    main()
