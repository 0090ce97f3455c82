"""Tiny runs of every task and every model of texts; each is trained once a session and only
read."""

import copy
import json
from pathlib import Path
from typing import Any

from command_line import write
from regard.training.train import train

Tree = dict[str, Any]
BASE: Tree = {
    "task": "language_modeling",
    "data": {
        "train": {"corpus": "tales-en", "size": 150},
        "validation": {"corpus": "tales-en", "size": 12},
        "max_length": 24,
    },
    "tokenizer": {"kind": "bpe", "vocabulary": 200},
    "training": {
        "steps": 16,
        "batch_tokens": 512,
        "seed": 1,
        "device": "cpu",
        "learning_rate": 0.01,
        "schedule": "constant",
        "warmup": 0,
        "log_every": 4,
        "validate_every": 8,
        "samples": 2,
    },
}
GPT: Tree = {
    "kind": "gpt",
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "layers": 2,
    "max_positions": 64,
    "norm": "post",
}
LSTM: Tree = {"kind": "lstm_lm", "embedding": 16, "hidden": 16, "layers": 2, "weight_dropout": 0.1}
ELMO: Tree = {"kind": "elmo", "width": 16, "hidden": 16, "filters": 64, "layers": 2}
BERT: Tree = {
    "kind": "bert",
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "layers": 2,
    "max_positions": 64,
}


def raw_recipe(
    model: Tree, data: Tree | None = None, tokenizer: Tree | None = None, **training: Any
) -> Tree:
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
        "data": {
            part: {"corpus": "shapes", "size": size}
            for part, size in (("train", 60), ("validation", 6))
        },
        "tokenizer": {"kind": "word"},
        "model": {
            "kind": "captioner",
            "channels": [4],
            "width": 16,
            "attention": 16,
            "images": {"size": 16},
        },
        "training": BASE["training"] | {"label_smoothing": 0.0, "decode": 2},
    },
}


BILSTM: Tree = {"kind": "bilstm", "embedding": 8, "hidden": 8}
RNN: Tree = {"kind": "rnn", "preset": "tiny", "embedding": 8, "hidden": 8}
PAIRS = "a,b,score\none cat,a cat,2.5\na dog,two dogs,0.5\nsome dog,a dog,4\n"
FILES = {
    "pairs.csv": PAIRS,
    "bare.csv": PAIRS.partition("\n")[2],
    "choices.csv": "start,end0,end1,right\na cat,sleeps,flies,0\na bird,barks,sings,1\n",
    "reviews.csv": 'id,sentence,label\n7,very good,1\n8,"bad,\n""really"" bad",0\n9,so\tgood,1\n',
}


def corpus(name: str, size: int = 40) -> Tree:
    return {"train": {"corpus": name, "size": size}, "validation": {"corpus": name, "size": 6}}


def table(name: str, **columns: Any) -> Tree:
    return {part: {"file": name, **columns} for part in ("train", "validation")} | {
        "deduplicate": False
    }


TASKS: dict[str, tuple[str, Tree, Tree]] = {
    "translation": ("translation", table("pairs.csv", source="a", target="b"), RNN),
    "gpt-pre": (
        "language_modeling",
        corpus("tales-en") | {"max_length": 24},
        GPT | {"norm": "pre"},
    ),
    "summarization": ("summarization", corpus("headlines"), RNN),
    "stories": (
        "story_answering",
        corpus("stories-en"),
        {"kind": "memory_network", "preset": "single", "restarts": 1},
    ),
    "regression": ("regression", table("pairs.csv", first="a", second="b", label="score"), BILSTM),
    "numbered": ("regression", table("bare.csv", first=0, second=1, label=2), BILSTM),
    "choices": (
        "multiple_choice",
        table("choices.csv", text="start", choices=["end0", "end1"], label="right"),
        BILSTM,
    ),
    "reviews": ("classification", table("reviews.csv", text="sentence", label="label"), BILSTM),
    "tagging": ("tagging", corpus("names-en") | {"words": "whitespace"}, BILSTM),
    "questions": ("question_answering", corpus("portraits-en") | {"max_length": 64}, BILSTM),
    **{
        f"{model['kind']}-classifier": (
            "classification",
            corpus("reviews-en") | {"max_length": 64},
            model,
        )
        for model in (BILSTM, GPT, BERT, ELMO)
    },
}
"""Task, data and model of the other runs, with words as tokens; the columns of `numbered` have no
names."""


class Runs(dict[str, Path]):
    """The folder of each run, by its name in RECIPES or TASKS; trained when it is first asked
    for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        for name, content in FILES.items():
            write(folder / name, content)

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / name
        if name in RECIPES:
            tree = copy.deepcopy(RECIPES[name])
        else:
            task, data, model = TASKS[name]
            training = {"steps": 4, "batch_tokens": 256, "device": "cpu", "decode": 0, "samples": 0}
            words = {"kind": "word", "vocabulary": 300, "lowercase": True}
            tree = {
                "task": task,
                "data": data,
                "tokenizer": words,
                "model": model,
                "training": training,
            }
        train(write(self.folder / f"{name}.yaml", json.dumps(tree)), out=self[name], quiet=True)
        return self[name]
