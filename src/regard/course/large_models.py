"""Chapter 10: the large models side by side, and their objectives on equal data for equal time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch

from regard.api import Run, evaluate
from regard.config import Tree
from regard.course.lab import BLOCK_SIZES, Findings, Lab, built_in, last_loss, training_of
from regard.course.seeds import Claim
from regard.data.corpora import generate
from regard.models import MODELS
from regard.models.base import count_parameters
from regard.views.compare import training_length
from regard.views.report import Table

# The models of the papers

PAPERS: dict[str, tuple[int, str, str, int, int, str, str]] = {
    "GPT-1": (2018, "next token", "left to right", 12, 768, "117 M", "0.8 billion words"),
    "BERT base": (2019, "masked tokens, next sentence", "both", 12, 768, "110 M", "3.3 billion words"),
    "BERT large": (2019, "masked tokens, next sentence", "both", 24, 1024, "340 M", "3.3 billion words, 4 days"),
    "GPT-2": (2019, "next token", "left to right", 48, 1600, "1,542 M", "40 GB"),
    "RoBERTa": (2019, "masked tokens", "both", 24, 1024, "355 M", "160 GB"),
    "BART": (2020, "denoising", "both, then left to right", 24, 1024, "406 M", "160 GB"),
    "T5": (2020, "denoising of spans", "both, then left to right", 48, 1024, "11,000 M", "750 GB"),
    "ELECTRA": (2020, "replaced tokens", "both", 24, 1024, "335 M", "33 billion tokens"),
    "GPT-3": (2020, "next token", "left to right", 96, 12_288, "175,000 M", "300 billion tokens"),
}  # fmt: skip
"""Year, objective, direction, layers, width, parameters and data, as the papers or the published
weights have them; of several sizes the largest."""


def _blocks(layers: int, width: int, heads: int) -> Tree:
    return {"layers": layers, "width": width, "heads": heads, "feed_forward": 4 * width}


OWN_CONFIGS: dict[str, tuple[Tree, tuple[int, ...]]] = {
    "GPT-1": ({"kind": "gpt", "preset": "base"}, (40_478,)),
    "BERT base": ({"kind": "bert", "preset": "base"}, (30_522,)),
    "BERT large": ({"kind": "bert", "preset": "large"}, (30_522,)),
    "GPT-2": ({"kind": "gpt", **_blocks(48, 1600, 25), "max_positions": 1024}, (50_257,)),
    "RoBERTa": (
        {
            "kind": "bert",
            "preset": "large",
            "next_sentence": False,
            "segment_vectors": 1,
            "first_position": 2,
        },
        (50_265,),
    ),
    "BART": (
        {
            "kind": "transformer",
            "encoder_layers": 12,
            "decoder_layers": 12,
            "width": 1024,
            "heads": 16,
            "feed_forward": 4096,
            "norm": "post",
            "positions": "learned",
            "max_positions": 1024,
            "first_position": 2,
            "shared_positions": False,
            "embedding_norm": True,
            "tie": "all",
            "activation": "gelu",
        },
        (50_265, 50_265),
    ),
    "ELECTRA": (
        {
            "kind": "bert",
            "preset": "large",
            "next_sentence": False,
            "masked_head": False,
            "replaced_head": True,
        },
        (30_522,),
    ),
    "GPT-3": ({"kind": "gpt", **_blocks(96, 12_288, 96), "max_positions": 2048}, (50_257,)),
}
"""The models of the table as configs of this package, with the sizes of their vocabularies. T5's
relative positions are not here."""


def parameters_of(name: str) -> int:
    """The parameters of a model, counted without memory for them."""
    tree, sizes = OWN_CONFIGS[name]
    kind = MODELS[str(tree["kind"])]
    with torch.device("meta"):
        return count_parameters(kind.build(kind.config.model_validate(tree), *sizes))


def table_of_models() -> Table:
    rows = []
    for name, (year, objective, direction, layers, width, published, data) in PAPERS.items():
        own = f"{parameters_of(name) / 1e6:,.0f} M" if name in OWN_CONFIGS else ""
        rows.append([name, str(year), objective, direction, layers, width, own, published, data])
    columns = ["model", "year", "objective", "direction", "layers", "width"]
    columns += ["parameters, counted here", "in the paper", "data"]
    return Table(columns, rows)


# The experiment

BERT: Tree = {"kind": "bert", **BLOCK_SIZES, "next_sentence": False}
SIDES: Tree = {
    "kind": "transformer",
    "encoder_layers": 1,
    "decoder_layers": 1,
    "width": 64,
    "heads": 4,
    "feed_forward": 128,
    "dropout": 0.0,
    "tie": "all",
}
ELECTRA: Tree = {**BERT, "replaced_head": True, "generator_size": 0.5, "pooler": "gelu"}
MASKED = "masked_language_modeling"
OBJECTIVES: dict[str, tuple[str, str, Tree, Tree, int, float]] = {
    "causal": ("next token (GPT)", "language_modeling", {"kind": "gpt", **BLOCK_SIZES}, {}, 1700, 3e-3),
    "masked": ("masked tokens (RoBERTa)", MASKED, BERT, {}, 1700, 2e-3),
    "both": ("masked tokens, next sentence (BERT)", MASKED, {**BERT, "next_sentence": True}, {}, 1700, 2e-3),
    "replaced": ("replaced tokens (ELECTRA)", MASKED, ELECTRA, {"mask_share": 0.85, "random_share": 0.0}, 1250, 2e-3),
    "denoising": ("denoising (BART)", "denoising", SIDES, {}, 900, 3e-3),
}  # fmt: skip
"""Title, task, model, settings of the data, updates that take about the same time on one core, and
learning rate."""
DOCUMENTS = 6000
DIARIES = 3000
"""How many of the documents are entries of a diary."""
SINGLE_LABELS = 40
PAIR_LABELS = 900
NEAR = 0.01
"""Accuracies that differ by less than this count as equal."""


def documents(seed: int) -> Iterator[str]:
    """Two sentences each: a premise with what follows from it or may be true, or an entry of a diary.
    No sentence of the test parts is among them."""
    random = Random(seed)
    pairs = generate("inference-ko", DOCUMENTS, 1, "train")
    texts = [f"{first} {second}" for first, second, label in pairs if label != "contradiction"]
    texts += [entry for entry, *_ in generate("diaries-ko", DIARIES, 1, "train")]
    texts.sort(key=lambda _: random.random())
    yield from texts


def experiment(lab: Lab) -> Findings:
    """Pre-train with each objective on the same texts for about the same time, then learn a task of
    single texts and one of pairs from few labels."""
    data = {"train": _text_file(lab), "validation": {"split": 0.02}, "max_length": 64}
    starts: dict[str, Run | Tree] = {key: _pretrained(lab, key, data) for key in OBJECTIVES}
    starts["scratch"] = {"model": BERT}
    rows = []
    numbers = Findings()
    for key, start in starts.items():
        single = _learned(lab, "single", start, _opinions(lab))
        pair = _learned(lab, "pair", start, _inferences(lab))
        numbers |= {f"{key}_single": single, f"{key}_pair": pair}
        if isinstance(start, Run):
            updates, seconds = training_length(start.events())
            rows.append(
                [OBJECTIVES[key][0], updates, seconds, last_loss(start, "validation"), single, pair]
            )
        else:
            rows.append(["none: BERT from scratch", None, None, None, single, pair])
    columns = ["pre-trained with", "updates", "seconds", "own loss", "single text", "pair"]
    table = Table(columns, rows, formats=["", "", ".0f", ".2f", ".3f", ".3f"])
    sizes = {"single_labels": SINGLE_LABELS, "pair_labels": PAIR_LABELS, "documents": DOCUMENTS}
    full = _on_film_reviews(lab) if lab.full else {}
    return {"models": table_of_models(), "objectives": table, **sizes, **numbers, **full}


def _text_file(lab: Lab) -> Tree:
    text = "".join(f"{line}\n" for line in islice(documents(lab.seed), lab.few(DOCUMENTS, 400)))
    name = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    file = lab.runs / f"two-sentences-{name}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return {"text": str(file.resolve()), "documents": "lines"}


def _pretrained(lab: Lab, key: str, data: Tree) -> Run:
    _, task, model, more, steps, rate = OBJECTIVES[key]
    training = training_of(steps, rate)
    if task != MASKED:
        training["decode"] = 0
    recipe = {
        "task": task,
        "data": {**data, **more},
        "tokenizer": {"kind": "word", "vocabulary": 1000},
        "model": model,
        "training": training,
    }
    if task == "language_modeling":
        # the same tokens as the others read: [MASK] among them
        masked = _pretrained(lab, "masked", data)
        recipe["tokenizer"] = {"file": str((masked.folder / "tokenizer.json").resolve())}
    return lab.train(f"large-{key}", recipe)


def _opinions(lab: Lab) -> Tree:
    data = built_in("opinions-ko", SINGLE_LABELS, validation=40, test=500)
    return data | {"train": data["train"] | {"seed": lab.seed + 1}}


def _inferences(lab: Lab) -> Tree:
    data = built_in("inference-ko", PAIR_LABELS, validation=90, test=300)
    return data | {"train": data["train"] | {"seed": lab.seed + 1}}


def _learned(lab: Lab, name: str, start: Run | Tree, data: Tree) -> float:
    steps = 100 if name == "single" else 400
    run = lab.fine_tune(f"large-{name}", data, start, steps=steps, rate=2e-3)
    return float(evaluate(run, overwrite=True)["accuracy"])


# With --full: Korean film reviews (NSMC)

FULL_SIZES: Tree = {
    "kind": "bert",
    "layers": 4,
    "width": 512,
    "heads": 8,
    "feed_forward": 2048,
    "max_positions": 128,
}
FULL_MODELS: dict[str, tuple[str, Tree, Tree]] = {
    "bert": ("BERT", {}, {}),
    "masked": ("BERT without next sentences", {"next_sentence": False}, {}),
    "roberta": (
        "RoBERTa",
        {"next_sentence": False, "segment_vectors": 1, "first_position": 2},
        {"blocks": "contiguous", "max_length": 32},
    ),
    "electra": (
        "ELECTRA",
        {
            "next_sentence": False,
            "replaced_head": True,
            "generator_size": 0.25,
            "pooler": "gelu",
        },
        {"mask_share": 0.85, "random_share": 0.0},
    ),
}
FULL_RATES = {"bert": 7e-4, "masked": 7e-4, "roberta": 3.5e-4, "electra": 2e-4}
"""Learning rates, as in docs/what-pretraining-buys: at 7e-4 ELECTRA's pre-training did not
help."""
FULL_MINUTES = 110 / 60
FULL_LABELS = (2000, 150_000)


def _on_film_reviews(lab: Lab) -> Findings:
    """Pre-train four models on unlabelled reviews for equal times, then learn whether a review is
    good from few labels and from all."""
    assert lab.full is not None
    folder = lab.full.resolve() / "nsmc"
    vocabulary: Tree = {"kind": "wordpiece", "vocabulary": 16_000}
    rows = []
    for name, (title, model, more) in FULL_MODELS.items():
        text = {"text": str(folder / "unlabelled.txt.xz"), "documents": "lines"}
        length = {"steps": 20, "warmup": 5} if lab.quick else {"minutes": FULL_MINUTES}
        recipe = {
            "task": MASKED,
            "data": {
                "train": {**text, **({"size": 2000} if lab.quick else {})},
                "validation": {"split": 0.02},
                "max_length": 128,
                **more,
            },
            "tokenizer": vocabulary,
            "model": {**FULL_SIZES, **model},
            "training": {
                "optimizer": "adamw",
                "weight_decay": 0.01,
                "betas": [0.9, 0.98],
                "learning_rate": FULL_RATES[name],
                "schedule": "linear",
                "batch_tokens": 16_384,
                "compile": False,
                "best": "replaced_loss" if name == "electra" else "loss",
                "warmup": 200,
                **length,
            },
        }
        run = lab.train(f"large-nsmc-{name}", recipe)
        vocabulary = {"file": str((run.folder / "tokenizer.json").resolve())}
        updates, seconds = training_length(run.events())
        scores = [_film_accuracy(lab, folder, run, size) for size in FULL_LABELS]
        rows.append([title, updates, seconds, *scores])
    columns = ["model", "updates", "seconds", *(f"{size:,} labels" for size in FULL_LABELS)]
    return {"full_nsmc": Table(columns, rows, formats=["", "", ".0f", ".3f", ".3f"])}


def _film_accuracy(lab: Lab, folder: Path, start: Run, size: int) -> float:
    few = size == FULL_LABELS[0]
    columns = {"text": "document", "label": "label"}
    train: Tree = {"file": str(folder / "ratings_train.tsv.xz"), **columns}
    if few or lab.quick:
        train |= {"size": lab.few(size, 400), "seed": lab.seed}
    data = {
        "train": train,
        "validation": {"split": 0.1 if few else 0.02},
        "test": {"file": str(folder / "ratings_test.tsv.xz"), **columns},
        "max_length": start.recipe.data.max_length,  # later positions were not learned
        "bad_lines": "drop",
    }
    training = {
        "init": str(start.folder.resolve()),
        "epochs": 10 if few else 2,
        "batch_tokens": 1024 if few else 8192,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "learning_rate": 1.5e-4 if few else 2e-4,
        "schedule": "linear",
        "warmup": 50,
        "best": "accuracy",
        "compile": False,
    }
    head = {"pooling": "mean", "layer_decay": 0.9}
    recipe = {"task": "classification", "data": data, "head": head, "training": training}
    run = lab.train(f"large-nsmc-{size}-labels", recipe)
    return float(evaluate(run, overwrite=True)["accuracy"])


# What the numbers say


def _better(first: str, second: str) -> Any:
    def holds(found: Mapping[str, Any]) -> bool:
        return bool(found[first] > found[second] + NEAR)

    return holds


def _most(kind: str) -> Any:
    """Whether most of the objectives are better than no pre-training: the best of five would often be
    so by chance."""

    def holds(found: Mapping[str, Any]) -> bool:
        better = [_better(f"{key}_{kind}", f"scratch_{kind}")(found) for key in OBJECTIVES]
        return bool(sum(better) > len(better) / 2)

    return holds


CLAIMS = {
    "single": Claim("Most objectives help with single texts.", _most("single")),
    "pair": Claim("Most objectives help with pairs.", _most("pair")),
    "next_pair": Claim(
        "Next-sentence prediction helps with pairs.", _better("both_pair", "masked_pair")
    ),
    "next_single": Claim(
        "Next-sentence prediction helps with single texts.",
        _better("both_single", "masked_single"),
    ),
    "direction": Claim(
        "Masked tokens help more with pairs than the next token does.",
        _better("masked_pair", "causal_pair"),
    ),
    "replaced": Claim(
        "Replaced tokens help more with pairs than masked tokens do.",
        _better("replaced_pair", "masked_pair"),
    ),
    "denoising": Claim(
        "Denoising helps more with pairs than masked tokens do.",
        _better("denoising_pair", "masked_pair"),
    ),
}
