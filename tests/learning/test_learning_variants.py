"""Each score, reach and cell that the models of test_learning.py leave out learns as well: short, unseen sequences.

The task is to write two to four letters backwards; with the window of local_m, which walks forwards, to copy them
(Luong et al. 2015, arXiv:1508.04025, section 3.2: "monotonic alignment").
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from command_line import write
from regard.api import evaluate
from regard.training.train import train

BAHDANAU = {"kind": "bahdanau", "embedding": 16, "hidden": 32, "attention": 32}
LUONG = {"kind": "luong", "embedding": 16, "hidden": 32, "input_feeding": False}
VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "bahdanau-concat": (BAHDANAU | {"score": "concat"}, 100),
    "bahdanau-fully-connected": (BAHDANAU | {"score": "fully_connected"}, 100),
    "bahdanau-plain-cell": (BAHDANAU | {"cell": "rnn"}, 100),
    "luong-dot": (LUONG | {"score": "dot"}, 200),
    "luong-scaled-dot": (LUONG | {"score": "scaled_dot"}, 250),
    "luong-concat": (LUONG | {"score": "concat"}, 240),
    "luong-local-m": (LUONG | {"reach": "local_m", "window": 1}, 200),
}
"""The model, and the steps that it takes."""


@pytest.mark.parametrize("name", VARIANTS)
def test_it_learns(name: str, tmp_path: Path) -> None:
    model, steps = VARIANTS[name]
    texts = [" ".join(letters) for size in (2, 3, 4) for letters in itertools.product("abcde", repeat=size)]
    random.Random(1).shuffle(texts)
    direction = 1 if model.get("reach") == "local_m" else -1
    pairs = [f"{text}\t{text[::direction]}\n" for text in texts]
    columns = {"source": 0, "target": 1}
    tree = {
        "task": "translation",
        "data": {
            "train": {"file": str(write(tmp_path / "train.tsv", "".join(pairs[100:]))), **columns},
            "validation": {"split": 0.05},
            "test": {"file": str(write(tmp_path / "test.tsv", "".join(pairs[:100]))), **columns},
        },
        "tokenizer": {"kind": "word"},
        "model": {"dropout": 0.0, **model},
        "training": {
            "steps": steps, "device": "cpu", "batch_tokens": 512, "learning_rate": 0.02, "warmup": 20,
            "schedule": "linear", "label_smoothing": 0.0, "validate_every": steps, "decode": 0,
        },
        "search": {"beam": 1},
    }  # fmt: skip
    found = evaluate(train(tree, out=tmp_path / "run", quiet=True))
    assert found["sentences"] == 100
    assert found["exact_match"] >= 0.9
    assert found["perplexity"] < 1.2
