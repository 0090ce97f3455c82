"""A recipe that trains in about a second."""

from typing import Any

TINY: dict[str, Any] = {
    "task": "translation",
    "data": {
        "train": {"corpus": "reverse", "size": 300},
        "validation": {"split": 0.05},
        "max_length": 40,
    },
    "tokenizer": {"kind": "character"},
    "model": {
        "kind": "bahdanau",
        "preset": "tiny",
        "embedding": 16,
        "hidden": 16,
        "attention": 16,
        "dropout": 0.1,
    },
    "training": {
        "steps": 20,
        "batch_tokens": 256,
        "seed": 1,
        "device": "cpu",
        "learning_rate": 0.01,
        "schedule": "constant",
        "warmup": 0,
        "log_every": 5,
        "validate_every": 10,
        "decode": 8,
        "samples": 1,
    },
    "search": {"beam": 2},
}
