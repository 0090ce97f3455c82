"""Small models for tasks with a head, recipes to train them with, and labelled batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model_cases import tokens_of
from regard.data.batches import LabelledBatch
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.text.vocabularies import PAD

Tree = dict[str, Any]
SIZES: Tree = {
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "layers": 2,
    "max_positions": 64,
    "dropout": 0.0,
}
MODELS: dict[str, Tree] = {
    "gpt": {"kind": "gpt", **SIZES},
    "bert": {"kind": "bert", **SIZES},
    "plain-bert": {"kind": "bert", **SIZES, "next_sentence": False},
    "lstm": {"kind": "lstm_lm", "embedding": 16, "hidden": 24, "layers": 2},
    "elmo": {"kind": "elmo", "width": 16, "hidden": 16, "filters": 64, "layers": 1},
}
TRAINING: Tree = {
    "steps": 3,
    "batch_tokens": 256,
    "device": "cpu",
    "learning_rate": 0.01,
    "schedule": "constant",
    "warmup": 0,
    "log_every": 1,
}

QUESTIONS: Tree = {
    "task": "question_answering",
    "data": {
        "train": {"corpus": "portraits-en", "size": 1500},
        "validation": {"corpus": "portraits-en", "size": 60},
        "test": {"corpus": "portraits-en", "size": 200},
        "max_length": 96,
    },
    "tokenizer": {"kind": "word"},
    "model": {
        "kind": "bert",
        "layers": 2,
        "width": 64,
        "heads": 4,
        "feed_forward": 128,
        "dropout": 0.0,
    },
    "training": {
        "epochs": 5,
        "batch_tokens": 512,
        "learning_rate": 0.004,
        "schedule": "linear",
        "warmup": 0,
        "device": "cpu",
        "validate_every": 200,
    },
}
TAGGING: Tree = {
    "task": "tagging",
    "data": {
        "train": {"corpus": "names-en", "size": 1000},
        "validation": {"corpus": "names-en", "size": 100},
        "test": {"corpus": "names-en", "size": 200},
    },
    "tokenizer": {"kind": "word"},
    "model": {"kind": "bilstm", "preset": "tiny"},
    "training": {
        "epochs": 5,
        "batch_tokens": 512,
        "learning_rate": 0.01,
        "schedule": "linear",
        "device": "cpu",
    },
}


def pretraining(model: Tree) -> Tree:
    bert = model["kind"] == "bert"
    return {
        "task": "masked_language_modeling" if bert else "language_modeling",
        "data": {
            "train": {"corpus": "tales-en", "size": 60},
            "validation": {"corpus": "tales-en", "size": 5},
            "max_length": 24,
        },
        "tokenizer": {"kind": "wordpiece" if bert else "bpe", "vocabulary": 200},
        "model": model,
        "training": TRAINING,
    }


def weights_of(run: Path, checkpoint: str = "last") -> dict[str, Tensor]:
    return load_weights(Run.open(run).checkpoint(checkpoint))


def labelled_batch_of(
    rows: Sequence[Sequence[int]],
    labels: Sequence[Any],
    owners: Sequence[int] | None = None,
    *,
    extra: int = 0,
    filler: int = PAD,
) -> LabelledBatch:
    """Rows of tokens in one segment, with the labels of their examples."""
    text = tokens_of(rows, extra=extra, filler=filler)
    owners_B = torch.tensor(owners or range(len(rows)))
    return LabelledBatch(
        text, torch.zeros_like(text.ids_BL), owners_B, torch.tensor(labels), tokens=len(labels)
    )


SMALL: dict[str, dict[str, Any]] = {
    "lstm_lm": {"embedding": 16, "hidden": 16, "layers": 1},
    "elmo": {"width": 16, "hidden": 16, "filters": 64, "layers": 1},
    "gpt": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16, "max_positions": 64},
    "bert": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16, "max_positions": 64},
    "mpnet": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16, "max_positions": 64},
    "deberta": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16, "max_positions": 64},
    "modernbert": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16, "max_positions": 64},
    "transformer": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "width": 16,
        "heads": 2,
        "feed_forward": 16,
    },
    "bilstm": {"embedding": 16, "hidden": 8, "layers": 1},
    "cnn": {"embedding": 16, "maps": 8},
}
"""Sizes of each model that a head can be put on."""
