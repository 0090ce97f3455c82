"""The cost of beam search: time by beam size and output length, and memory of a large beam on long
sources.

    python benchmarks/search.py [--device cpu] [--preset tiny] [--sentences 8]

A Transformer with random weights and 8,000 words. It may not end before the length that is
measured, and the beam is always full, so that the figures are those of the search and not of a
particular text. Times are the best of several, on one thread of a CPU. Memory is what the process
(on a CPU) or the device holds at its peak, above what it held before.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regard.data.batches import Padded
from regard.models import MODELS
from regard.models.base import Generator
from regard.models.transformer import TransformerConfig
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.text.vocabularies import END

VOCABULARY = 8_000
BEAMS = (1, 2, 4, 8, 16)
LENGTHS = (16, 32, 64, 128)


def model_of(preset: str, device: torch.device) -> Generator:
    torch.manual_seed(1)
    config = TransformerConfig.model_validate({"preset": preset, "tie": "all"})
    return MODELS[config.kind].build(config, VOCABULARY, VOCABULARY).eval().to(device)


def sources(count: int, length: int, device: torch.device) -> Padded:
    ids_BL = torch.randint(
        END + 1, VOCABULARY, (count, length), generator=torch.Generator().manual_seed(1)
    )
    ids_BL[:, -1] = END
    return Padded.of(ids_BL, torch.full((count,), length)).to(device)


def searching(model: Generator, source: Padded, beam: int, length: int) -> Callable[[], object]:
    """A search that writes exactly `length` tokens with a full beam."""
    config = SearchConfig(beam=beam, min_length=length, max_length=length)
    return lambda: search(model, source, config)


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """The smallest of several times: other load of the machine only adds to it."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times)


def resident() -> int:
    """Bytes of anonymous memory of this process; 0 without /proc."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Peak memory of a call, beyond the memory in use before it."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        return torch.cuda.max_memory_allocated() - before
    before = resident()
    peak = 0
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident())

    watcher = threading.Thread(target=look)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(0, peak - before)


def show_memory(model: Generator, device: torch.device) -> None:
    print(
        "\n| sources of 400 tokens at once | beam | tokens written | peak memory (MB) | MB per "
        "sentence |"
    )
    print("|---|---|---|---|---|")
    for count in (1, 4):
        used = peak_bytes(searching(model, sources(count, 400, device), 10, 400), device) / 1e6
        print(f"| {count} | 10 | 400 | {used:.0f} | {used / count:.0f} |", flush=True)


def show_beams(model: Generator, source: Padded, device: torch.device, length: int) -> None:
    print(
        f"\n| beam | seconds for {len(source)} sentences of {length} tokens | over beam 1 | over "
        "beam 1 and the beam |"
    )
    print("|---|---|---|---|")
    first = None
    for beam in BEAMS:
        took = seconds(searching(model, source, beam, length), device)
        first = first or took
        print(
            f"| {beam} | {took:.3f} | {took / first:.2f} | {took / first / beam:.2f} |", flush=True
        )


def show_lengths(model: Generator, source: Padded, device: torch.device, beam: int) -> None:
    print(
        f"\n| tokens written | seconds for {len(source)} sentences, beam {beam} | milliseconds per "
        "step |"
    )
    print("|---|---|---|")
    for length in LENGTHS:
        took = seconds(searching(model, source, beam, length), device)
        print(f"| {length} | {took:.3f} | {1000 * took / length:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="tiny", choices=["tiny", "small", "base"])
    parser.add_argument("--sentences", type=int, default=8)
    given = parser.parse_args()
    device = torch.device(given.device)
    model = model_of(given.preset, device)
    print(f"Transformer {given.preset}, {VOCABULARY:,} words, {device}, torch {torch.__version__}")
    torch.set_num_threads(1)
    source = sources(given.sentences, 24, device)
    searching(model, source, 2, 8)()  # what is loaded on first use is not the search's
    show_memory(model, device)
    show_beams(model, source, device, length=32)
    show_lengths(model, source, device, beam=4)


if __name__ == "__main__":
    main()
