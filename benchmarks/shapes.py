"""Captions of shapes that were never seen together: exact match with and without attention, and
what it attended to.

    python benchmarks/shapes.py [--out FOLDER] [KEY=VALUE ...]

Trains the recipe `shapes` with `decoder: attention` and with `decoder: plain`, each into a run
folder, and measures both on the test pictures. A look is inside where the region that a shape's
word looked at most has its middle in the box around the shape.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

import regard
from regard.data.batches import Batch
from regard.data.shapes import Scene, parse
from regard.layers.attention import recording
from regard.models.captioner import Captioner
from regard.runs import Run
from regard.runs.examples import examples_of
from regard.search.hypotheses import source_attention
from regard.tasks.captioning import CaptionedImages

DECODERS = {
    "attention": [],
    "transformer": ["training.learning_rate=1e-3"],
    "plain": ["training.learning_rate=1e-3"],
}
"""Overrides of each decoder: at 3e-3 the plain one writes the same caption for every image."""
IMAGES_PER_BATCH = 100
"""Images per batch."""


def looks(run: Run, limit: int) -> dict[str, float]:
    """How often, and with what share of its attention, the word for a shape attends to the box of
    that shape."""
    model = run.load_model(device="cpu")
    examples = examples_of(run, "test")
    words = run.tokenizers["target"].tokens(range(run.tokenizers["target"].size))
    hits = []
    weights = []
    for first in range(0, min(limit, len(examples)), IMAGES_PER_BATCH):
        rows = np.arange(first, min(first + IMAGES_PER_BATCH, limit, len(examples)))
        batch = examples.batch(rows)
        for row, weights_TS in zip(rows.tolist(), _weights(model, batch), strict=True):
            scene = parse(examples.texts["source"][row], examples.where(row))
            written = [words[token] for token in examples.columns["target"][row].tolist()]
            inside_2S = [_inside(scene, number, examples, row) for number in (0, 1)]
            for inside_S, step in zip(inside_2S, _shape_words(scene, written), strict=True):
                hits.append(bool(inside_S[int(weights_TS[step].argmax())]))
                weights.append(float(weights_TS[step][inside_S].sum()))
    return {
        "shape_words": len(hits),
        "inside_box": float(np.mean(hits)),
        "weight_inside_box": float(np.mean(weights)),
    }


@torch.inference_mode()
def _weights(model: Captioner, batch: Batch) -> torch.Tensor:
    """Attention [B, T, S] while the captions are written, the mean over layers and heads."""
    with recording() as recorded:
        model(batch)
    return source_attention(model, recorded)


def _shape_words(scene: Scene, written: list[str]) -> list[int]:
    """The steps at which an English caption names the shapes of the first and the second object."""
    named = [
        step
        for step, token in enumerate(written)
        if token.lstrip("▁") in (scene.first.shape, scene.second.shape)
    ]
    assert len(named) == 2, written
    return named


def _inside(
    scene: Scene, number: int, examples: CaptionedImages, row: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The regions whose centre is in the box of an object."""
    picture = examples.pictures[int(examples.numbers[row])]
    side = picture.columns
    middle = (np.arange(side) + 0.5) / side
    left, top, right, bottom = scene[number].box
    across, down = (middle >= left) & (middle <= right), (middle >= top) & (middle <= bottom)
    return (down[:, None] & across[None]).reshape(-1)


def measure(decoder: str, folder: Path, overrides: list[str]) -> dict[str, Any]:
    started = time.perf_counter()
    worked = time.process_time()
    run = regard.train(
        "shapes", [f"model.decoder={decoder}", *DECODERS[decoder], *overrides], out=folder / decoder
    )
    took = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - worked}
    found = regard.evaluate(run, split="test")
    kept = {
        name: found[name] for name in ("images", "exact_match", "bleu1", "bleu", "chrf", "loss")
    }
    return {
        "decoder": decoder,
        **took,
        **kept,
        **(looks(run, 10_000) if decoder != "plain" else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="a folder for the runs; default: a temporary one")
    parser.add_argument("--decoders", nargs="+", choices=DECODERS, default=["attention", "plain"])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    asked = parser.parse_args()
    folder = asked.out or Path(mkdtemp(prefix="shapes-"))
    for decoder in asked.decoders:
        print(json.dumps(measure(decoder, folder, asked.overrides)), flush=True)


if __name__ == "__main__":
    main()
