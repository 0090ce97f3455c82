"""Frames per second of the studio's view Look while the pointer moves over the attention of 512
tokens, in chromium.

    OMP_NUM_THREADS=1 python benchmarks/studio.py [--rounds 3]
    OMP_NUM_THREADS=1 python benchmarks/studio.py --interactions

A BERT of 12 layers and 12 heads, trained for one step, since only its size matters. A browser draws
60 frames a second at most; a busy machine slows it down even where there is nothing to draw, which
is measured first. For each way of drawing: medians over the rounds of frames a second and of the
longest of 99 % of frames; the work for each move of the pointer in scripts, styles and layout, for
which a frame has 16.7 ms; and how long the first map and another head take.

With --interactions: milliseconds from what a reader does in Try, Look, Step by step and Beam, with
64 tokens on both sides, to the second frame after it, when it has been drawn: the median and the
longest of ten.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

import regard

TOKENS = 512
MOVES = 240
FRAME_COUNTER = """() => {
    window.times = [];
    const tick = now => { window.times.push(now); requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""


def train(folder: Path) -> None:
    sizes = {"layers": 12, "width": 96, "heads": 12, "feed_forward": 96, "max_positions": TOKENS}
    recipe = {
        "task": "masked_language_modeling",
        "data": {"train": {"corpus": "tales-en", "size": 60}, "max_length": TOKENS},
        "model": {"kind": "bert", **sizes, "next_sentence": False},
        "tokenizer": {"kind": "wordpiece", "vocabulary": 300},
        "training": {"steps": 1, "batch_tokens": 512, "device": "cpu"},
    }
    regard.train(recipe, out=folder, quiet=True)


def longest_text(folder: Path) -> str:
    """A text of as many tokens as the model reads, without [CLS] and [SEP]."""
    tokenizer = regard.Run.open(folder).tokenizers["text"]
    words = ["the"]
    while len(tokenizer.encode(" ".join([*words, "cat"]))) <= TOKENS - 2:
        words.append(("cat", "and", "the", "dog", "ran")[len(words) % 5])
    return " ".join(words)


def frames(page: Any, picture: Any) -> tuple[float, float]:
    """Frames per second while the pointer moves over a picture, and the 99th percentile of the
    milliseconds per frame."""
    box = picture.bounding_box()
    page.evaluate("window.times.length = 0")
    for move in range(MOVES):
        page.mouse.move(box["x"] + 40 + move / 2, box["y"] + 20 + move * 1.7 % 380)
    times = page.evaluate("window.times")
    spans = sorted(later - earlier for earlier, later in pairwise(times))
    return 1000 * len(spans) / sum(spans), spans[int(0.99 * len(spans))]


def work(session: Any) -> float:
    """Seconds that the page has spent so far in scripts, styles and layout."""
    spent = {
        metric["name"]: metric["value"]
        for metric in session.send("Performance.getMetrics")["metrics"]
    }
    return float(sum(spent[f"{name}Duration"] for name in ("Script", "RecalcStyle", "Layout")))


INTERACTIONS = (
    ("try", "point at a token", "one.dispatchEvent(new PointerEvent('pointerenter'))", ".token"),
    (
        "look",
        "move the slider",
        "one.stepUp(), one.dispatchEvent(new Event('input'))",
        "[type=range]",
    ),
    ("look", "scale by row", "one.click()", "[data-control=scale] button:not([aria-checked=true])"),
    ("look", "map or lines", "one.click()", "[data-control=draw] button:not([aria-checked=true])"),
    ("look", "zoom", "one.click()", "[data-control=zoom] button:not([aria-checked=true])"),
    ("steps", "next or first stage", "one.click()", ".dots button:not([aria-current])"),
    (
        "steps",
        "move a score",
        "one.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowUp'}))",
        ".film-score",
    ),
    (
        "beam",
        "another step",
        "one.click()",
        ".film button:not([disabled]):is(:nth-child(2), :nth-child(4))",
    ),
)
"""View, what the reader does, how, and on which element."""
TIMED = """async () => {
    const one = document.querySelector(%s), begin = performance.now();
    %s;
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - begin;
}"""


def train_translation(folder: Path) -> None:
    sizes = {"width": 64, "heads": 4, "feed_forward": 128, "encoder_layers": 2, "decoder_layers": 2}
    recipe = {
        "task": "translation",
        "data": {"train": {"corpus": "phrases-en-ko", "size": 200}, "validation": {"split": 0.1}},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "transformer", **sizes},
        "training": {"steps": 1, "batch_tokens": 512, "device": "cpu"},
        "search": {"min_length_ratio": 1.0, "max_length": 64},
    }
    regard.train(recipe, out=folder, quiet=True)


def measure_interactions(address: str, rounds: int = 10) -> None:
    text = " ".join(["the", "cook", "forgot", "his", "cup", "and", "his", "book", "."] * 7)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for view, what, act, selector in INTERACTIONS:
            page.goto("about:blank")
            page.goto(f"{address}/#/{view}?{urlencode({'run': 'run', 'text': text, 'stage': 6})}")
            page.wait_for_selector("main[aria-busy=false]")
            page.wait_for_selector(selector, timeout=60_000)
            page.wait_for_load_state("networkidle")
            times = [page.evaluate(TIMED % (json.dumps(selector), act)) for _ in range(rounds)]
            middle, longest = statistics.median(times), max(times)
            print(f"{view}: {what}: {middle:.0f} ms, at most {longest:.0f} ms")
        browser.close()


def measure(address: str, text: str, rounds: int) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/#/runs")
        page.wait_for_selector("main[aria-busy=false]")
        page.evaluate(FRAME_COUNTER)
        rates = [frames(page, page.locator("h1"))[0] for _ in range(rounds)]
        print(f"nothing to draw: {statistics.median(rates):.0f} frames a second")
        for way in ("map", "lines"):
            page.goto(address)
            started = time.perf_counter()
            query = {"run": "bert", "text": text, "draw": way, "layer": 1, "head": 1}
            page.goto(f"{address}/#/look?{urlencode(query)}")
            page.wait_for_selector(".map canvas, .lines canvas", timeout=60_000)
            first = time.perf_counter() - started
            tokens = int(page.locator("input[type=range]").get_attribute("max")) + 1
            started = time.perf_counter()
            page.locator("[data-control=head] select").select_option("2")
            page.wait_for_selector(".heads button[aria-label='layer 1, head 2'][aria-pressed=true]")
            another = time.perf_counter() - started
            page.evaluate(FRAME_COUNTER)
            picture = page.locator(".map canvas, .lines canvas").first
            picture.scroll_into_view_if_needed()
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            before = work(session)
            rates, slowest = zip(*(frames(page, picture) for _ in range(rounds)), strict=True)
            spent = 1000 * (work(session) - before) / (rounds * MOVES)
            print(
                f"{way}: {tokens} tokens, {statistics.median(rates):.0f} frames a second (99 % of "
                "frames within "
                f"{statistics.median(slowest):.0f} ms), {spent:.1f} ms of work for each; first map "
                f"{first:.1f} s, "
                f"another head {another:.1f} s"
            )
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interactions", action="store_true")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        run = Path(folder) / ("run" if given.interactions else "bert")
        (train_translation if given.interactions else train)(run)
        command = [
            sys.executable,
            "-m",
            "regard",
            "studio",
            str(run),
            "--port",
            "0",
            "--no-browser",
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[-1]
            if given.interactions:
                measure_interactions(address)
            else:
                measure(address, longest_text(run), given.rounds)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
