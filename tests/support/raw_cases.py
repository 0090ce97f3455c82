"""Tiny models on raw text, and one that reads images; each is trained once a session and only read."""

import copy
from pathlib import Path
from typing import Any

from regard.training.train import train

Tree = dict[str, Any]
BASE: Tree = {
    "task": "language_modeling",
    "data": {
        "train": {"corpus": "tales-en", "size": 150}, "validation": {"corpus": "tales-en", "size": 12},
        "max_length": 24,
    },
    "tokenizer": {"kind": "bpe", "vocabulary": 200},
    "training": {
        "steps": 16, "batch_tokens": 512, "seed": 1, "device": "cpu", "learning_rate": 0.01, "schedule": "constant",
        "log_every": 4, "validate_every": 8, "samples": 2,
    },
}  # fmt: skip
GPT: Tree = {"kind": "gpt", "width": 16, "heads": 2, "feed_forward": 32, "layers": 1, "max_positions": 64}
LSTM: Tree = {"kind": "lstm_lm", "embedding": 16, "hidden": 16, "layers": 2, "weight_dropout": 0.1}
ELMO: Tree = {"kind": "elmo", "width": 16, "hidden": 16, "filters": 64, "layers": 1}
BERT: Tree = {"kind": "bert", "width": 16, "heads": 2, "feed_forward": 32, "layers": 1, "max_positions": 64}


def raw_recipe(model: Tree, data: Tree | None = None, tokenizer: Tree | None = None, **training: Any) -> Tree:
    """A recipe of its own, to change at will."""
    tree = copy.deepcopy(BASE) | {"model": dict(model)}
    tree["data"] |= data or {}
    tree["training"] |= training
    if model["kind"] == "bert":
        tree["task"], tree["tokenizer"]["kind"] = "masked_language_modeling", "wordpiece"
    return tree | ({"tokenizer": tokenizer} if tokenizer else {})


RECIPES: dict[str, Tree] = {
    "gpt": raw_recipe(GPT),
    "lstm": raw_recipe(LSTM, {"blocks": "stream"}),
    "words": raw_recipe(LSTM, tokenizer={"kind": "word", "vocabulary": 30}),
    "autoencoder": raw_recipe(LSTM | {"objective": "autoencoder"}),
    "elmo": raw_recipe(ELMO),
    "bert": raw_recipe(BERT),
    "bert-single": raw_recipe(BERT | {"next_sentence": False}, {"whole_words": "words"}),
    "captioner": BASE
    | {
        "task": "captioning",
        "data": {part: {"corpus": "shapes", "size": size} for part, size in (("train", 60), ("validation", 6))},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "captioner", "channels": [4], "width": 16, "attention": 16, "images": {"size": 16}},
        "training": BASE["training"] | {"label_smoothing": 0.0, "decode": 2},
    },
}


class Runs(dict[str, Path]):
    """The folder of each run, by its name in RECIPES; trained when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / name
        train(copy.deepcopy(RECIPES[name]), out=self[name], quiet=True)
        return self[name]
