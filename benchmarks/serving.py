"""Sentences a second of `regard serve` with 1, 8 and 64 clients: requests batched, against one at a time.

    python benchmarks/serving.py [--seconds 5] [--preset small]

Two servers of one run, a small Transformer, are up at once and measured in turn; each client sends its next sentence
when it has the answer to the last one. The ratios are of one machine at one time: it and the clients share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

import regard

SIDES = {"batched": ["--batch", "64"], "one at a time": ["--batch", "1", "--window", "0"]}
SENTENCES = [
    f"{year}년 {month}월 {day}일" for year in (1999, 2012, 2024) for month in range(1, 13) for day in (1, 9, 17, 25)
]


async def client(port: int, first: int, end: float) -> list[float]:
    """Seconds of each request of one client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = list[float]()
    while (started := time.perf_counter()) < end:
        sentence = SENTENCES[(first + 7 * len(seconds)) % len(SENTENCES)]
        body = json.dumps({"inputs": [sentence]}).encode()
        head = ["POST /predict HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
        writer.write("\r\n".join([*head, f"content-length: {len(body)}", "", ""]).encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert length
        [prediction] = json.loads(await reader.readexactly(int(length[1])))["predictions"]
        assert prediction["input"] == sentence
        seconds.append(time.perf_counter() - started)
    writer.close()
    return seconds


async def clients(port: int, count: int, seconds: float) -> tuple[float, list[float]]:
    """Sentences a second, and the seconds of each."""
    started = time.perf_counter()
    parts = await asyncio.gather(*(client(port, n, started + seconds) for n in range(count)))
    taken = sorted(one for part in parts for one in part)
    return len(taken) / (time.perf_counter() - started), taken


def measure(ports: dict[str, int], seconds: float) -> None:
    for count in (1, 8, 64):
        rates = dict[str, float]()
        for side, port in ports.items():
            asyncio.run(clients(port, count, 1))  # warm-up
            rates[side], taken = asyncio.run(clients(port, count, seconds))
            p50, p99 = (1000 * taken[min(len(taken) - 1, int(share * len(taken)))] for share in (0.5, 0.99))
            print(
                f"{count:3} clients, {side:14} {rates[side]:7.1f} sentences/s, p50 {p50:6.1f} ms, p99 {p99:6.1f} ms",
                flush=True,
            )
        print(f"{count:3} clients: {rates['batched'] / rates['one at a time']:.1f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--preset", default="small")
    options = parser.parse_args()
    recipe = {
        "task": "translation", "data": {"train": {"corpus": "dates", "size": 2_000}},
        "tokenizer": {"kind": "character"},
        "model": {"kind": "transformer", "preset": options.preset}, "search": {"max_length": 16},
        "training": {"steps": 20, "batch_tokens": 1024, "device": "cpu", "decode": 0, "samples": 0},
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        regard.train(recipe, out=f"{folder}/run", quiet=True)
        command = [sys.executable, "-m", "regard.cli", "serve", f"{folder}/run", "--port", "0", "--device", "cpu"]
        servers = {
            side: subprocess.Popen([*command, *own], stdout=subprocess.PIPE, text=True) for side, own in SIDES.items()
        }
        try:
            lines = {side: server.stdout.readline() for side, server in servers.items() if server.stdout}
            measure({side: int(line.rpartition(":")[2]) for side, line in lines.items()}, options.seconds)
        finally:
            for server in servers.values():
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
