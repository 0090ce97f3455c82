"""How cost grows: tokens per second of a Transformer base against the size of everything, as one
plot.

    python benchmarks/growth.py [--out growth.svg] [--preset base] [--repeats 3]

Training against tokens a batch, length of sentences and vocabulary; decoding against beam and rows.
One thing changes at a time. On a GPU steps are captured as CUDA graphs in bf16, as a short `regard
train` runs them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import speed
import torch

from regard.models import MODELS
from regard.models.transformer import TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search.config import SearchConfig
from regard.search.decode import search


def pairs_of(length: int, tokens: int, count: int) -> speed.Sentences:
    """Pairs of sentences that all have this length."""
    lengths = torch.full((count * tokens // length,), length)

    def make(rows: speed.Rows, generator: torch.Generator) -> speed.Batch:
        target = speed.ids(lengths[rows] + 1, generator, begins=True)
        return speed.Batch(
            speed.ids(lengths[rows], generator), target, tokens=int(lengths[rows].sum())
        )

    return speed.Sentences(make, speed.Lengths(lengths, lengths), tokens, count)


def measured(job: speed.Job, tokens: int, device: str, repeats: int) -> float:
    """Tokens per second, after two runs to warm up."""
    for _ in range(2):
        job()
    return tokens / statistics.median(speed.clock(job, device) for _ in range(repeats))


def training(config: TransformerConfig, data: speed.Sentences, device: str, repeats: int) -> float:
    objective = TokenCrossEntropy(
        MODELS[config.kind].build(config, speed.VOCABULARY, speed.VOCABULARY), smoothing=0.1
    )
    if device == "cuda":
        return measured(*speed.captured(objective, data.filled(device), device), device, repeats)
    return measured(*speed.eager(objective, data.bucketed(device), device), device, repeats)


def decoding(config: TransformerConfig, rows: int, beam: int, device: str, repeats: int) -> float:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    length = 32
    model = (
        MODELS[config.kind]
        .build(config, speed.VOCABULARY, speed.VOCABULARY)
        .to(device, dtype)
        .eval()
    )
    generator = torch.Generator().manual_seed(1)
    source = speed.ids(speed.drawn(rows, generator), generator).to(device)
    settings = SearchConfig(beam=beam, min_length=length, max_length=length)
    return measured(lambda: search(model, source, settings), rows * length, device, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("growth.svg"))
    parser.add_argument("--preset", default="base")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = TransformerConfig(preset=options.preset, tie="all")
    repeats = options.repeats
    usual, count = (24_576, 4) if device == "cuda" else (2_048, 2)

    def with_vocabulary(size: int) -> float:
        before = speed.VOCABULARY
        speed.VOCABULARY = size
        try:
            return training(config, speed.pairs(usual, count), device, repeats)
        finally:
            speed.VOCABULARY = before

    panels: dict[str, tuple[Sequence[int], Callable[[int], float]]] = {
        "tokens a batch": (
            [usual * 2**n // 16 for n in range(6)],
            lambda tokens: training(config, speed.pairs(tokens, count), device, repeats),
        ),
        "length of the sentences": (
            [8, 16, 32, 64, 128, 256, 512],
            lambda length: training(config, pairs_of(length, usual, count), device, repeats),
        ),
        "vocabulary": ([4_000, 8_000, 16_000, 32_000, 64_000], with_vocabulary),
        "beam, 64 sentences": (
            [1, 2, 4, 8, 16],
            lambda beam: decoding(config, 64 if device == "cuda" else 8, beam, device, repeats),
        ),
        "sentences at once, greedy": (
            [1, 4, 16, 64, 256] if device == "cuda" else [1, 4, 16],
            lambda rows: decoding(config, rows, 1, device, repeats),
        ),
    }
    found = {
        title: {size: speed_at(size) for size in sizes}
        for title, (sizes, speed_at) in panels.items()
    }
    for title, speeds in found.items():
        print(
            f"| {title} | "
            + " | ".join(f"{size:,}: {each:,.0f}" for size, each in speeds.items())
            + " |"
        )
    draw(found, options.out)


def draw(found: dict[str, dict[int, float]], path: Path) -> None:
    """One panel per size that grows; training has a scale of its own."""
    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(1, len(found), figsize=(15, 3), constrained_layout=True)
    for place, ((title, speeds), axis) in enumerate(zip(found.items(), axes, strict=True)):
        alike = [
            each
            for number, own in enumerate(found.values())
            for each in own.values()
            if (number < 3) == (place < 3)
        ]
        axis.loglog([*speeds], [*speeds.values()], marker="o")
        axis.set_xticks([*speeds], [short(size) for size in speeds])
        axis.minorticks_off()
        marks = [
            10**n * m
            for n in range(7)
            for m in (1, 2, 5)
            if min(alike) / 2 < 10**n * m < max(alike) * 2
        ]
        axis.set_yticks(marks, [short(mark) for mark in marks])
        axis.set(
            xlabel=title,
            title="training" if place < 3 else "decoding",
            ylim=(min(alike) / 2, max(alike) * 2),
        )
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("tokens per second")
    figure.savefig(path)


def short(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return (
                f"{number / size:.2g}{unit}" if number < 10 * size else f"{number / size:.0f}{unit}"
            )
    return f"{number:g}"


if __name__ == "__main__":
    main()
