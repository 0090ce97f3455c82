"""The defaults of a recipe on short trainings with real data: learning rate, warm-up, schedule,
norm, batch.

    python benchmarks/defaults.py FOLDER [--only cases rates schedules warmups batches resume tasks]
    [--work RUNS]

FOLDER holds `tatoeba_en_fr`, `multi30k`, `nsmc` and `books_en`. Every training is short and on one
CPU core; the last validation is what counts. Results are kept in RUNS/results.json, so an
interrupted measurement continues.

- cases: hand-written minimal recipes with the defaults of version 1 and with those of today
- rates, schedules, warmups, batches: the default beside other values, one field at a time
- resume: a training that is resumed with twice the steps, beside one that was planned for them
- tasks: for each task a recipe that ships, and what is left of it without any field that a user need not give
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.config import Tree, apply_overrides, parse_yaml
from regard.recipes.loading import load_recipe
from regard.recipes.shipped import shipped_text
from regard.runs import Run
from regard.training.train import train

FORMER_DEFAULTS = [
    "training.schedule=inverse_sqrt",
    "training.warmup=0",
    "training.learning_rate=0.001",
]
"""The defaults of version 1; a task with a head had `schedule: linear`, and a Transformer `norm:
post`."""
SHORT_TRAINING = {"decode": 0, "samples": 0, "device": "cpu"}


def tatoeba(folder: Path, model: Tree) -> Tree:
    """English -> French, 40,000 pairs, 250 steps of 1,024 tokens."""
    file = str(folder / "tatoeba_en_fr" / "fra.tsv.xz")
    return {
        "task": "translation",
        "data": {
            "train": {"file": file, "source": 0, "target": 1, "size": 40_000},
            "validation": {"split": 0.02},
        },
        "tokenizer": {"kind": "bpe", "vocabulary": 4000},
        "model": model,
        "training": {"steps": 250, "batch_tokens": 1024, **SHORT_TRAINING},
    }


def multi30k(folder: Path, model: Tree) -> Tree:
    """English -> German, 150 steps of 1,024 tokens."""
    data = {
        part: {
            side: str(folder / "multi30k" / f"{name}.{language}.gz")
            for side, language in SIDES.items()
        }
        for part, name in {"train": "train", "validation": "val"}.items()
    }
    return {
        "task": "translation",
        "data": data,
        "tokenizer": {"kind": "bpe", "vocabulary": 8000},
        "model": model,
        "training": {"steps": 150, "batch_tokens": 1024, **SHORT_TRAINING},
    }


SIDES = {"source": "en", "target": "de"}


def nsmc(folder: Path, model: Tree) -> Tree:
    """Korean film reviews, 20,000 of them, 250 steps of 1,024 tokens."""
    train, test = (str(folder / "nsmc" / f"ratings_{part}.tsv.xz") for part in ("train", "test"))
    columns = {"text": "document", "label": "label"}
    return {
        "task": "classification",
        "data": {
            "train": {"file": train, "size": 20_000, **columns},
            "validation": {"file": test, "size": 2000, **columns},
            "bad_lines": "drop",
        },
        "tokenizer": {"kind": "bpe", "vocabulary": 8000},
        "model": model,
        "training": {"steps": 250, "batch_tokens": 1024, "device": "cpu"},
    }


def books(folder: Path, model: Tree) -> Tree:
    """English raw text, 230,000 words, 250 steps of 1,024 tokens."""
    masked = model["kind"] == "bert"
    return {
        "task": "masked_language_modeling" if masked else "language_modeling",
        "data": {
            "train": {"text": str(folder / "books_en" / "valid.txt.xz")},
            "validation": {"split": 0.05},
        },
        "tokenizer": {"kind": "wordpiece" if masked else "bpe", "vocabulary": 4000},
        "model": model,
        "training": {"steps": 250, "batch_tokens": 1024, **SHORT_TRAINING},
    }


Case = tuple[Callable[[Path, Tree], Tree], Tree, str]
CASES: dict[str, Case] = {
    "Transformer tiny, Tatoeba": (tatoeba, {"kind": "transformer", "preset": "tiny"}, "perplexity"),
    "Bahdanau tiny, Tatoeba": (tatoeba, {"kind": "bahdanau", "preset": "tiny"}, "perplexity"),
    "BiLSTM tiny, NSMC": (nsmc, {"kind": "bilstm", "preset": "tiny"}, "accuracy"),
    "CNN small, NSMC": (nsmc, {"kind": "cnn", "preset": "small"}, "accuracy"),
    "BERT tiny from scratch, NSMC": (nsmc, {"kind": "bert", "preset": "tiny"}, "accuracy"),
    "GPT tiny, books": (books, {"kind": "gpt", "preset": "tiny"}, "perplexity"),
    "LSTM LM tiny, books": (books, {"kind": "lstm_lm", "preset": "tiny"}, "perplexity"),
    "Transformer 3+3 x 256, Multi30k": (
        multi30k,
        {"kind": "transformer", "encoder_layers": 3, "decoder_layers": 3},
        "perplexity",
    ),
    "BiLSTM small, NSMC": (nsmc, {"kind": "bilstm"}, "accuracy"),
}
TRANSFORMER = "Transformer tiny, Tatoeba"
BILSTM = "BiLSTM tiny, NSMC"
CNN = "CNN small, NSMC"
BERT = "BERT tiny from scratch, NSMC"
CASES_WITH_HEADS = (
    "BiLSTM tiny, NSMC",
    "BiLSTM small, NSMC",
    "CNN small, NSMC",
    "BERT tiny from scratch, NSMC",
)
CASES_WITH_NORM = (
    "Transformer tiny, Tatoeba",
    "Transformer 3+3 x 256, Multi30k",
    "GPT tiny, books",
)
RATES = ("0.001", "0.003", "0.01")
SCHEDULES = ("wsd", "linear", "cosine", "constant")
TASKS = {
    "translation": ("dates", 100),
    "summarization": ("headlines", 100),
    "captioning": ("shapes", 100),
    "classification": ("sentiment", 300),
    "tagging": ("names", 80),
    "question_answering": ("portraits", 200),
    "language_modeling": ("tales-gpt", 100),
    "language_modeling, LSTM": ("tales-lstm-lm", 100),
    "language_modeling, ELMo": ("tales-elmo", 60),
    "masked_language_modeling": ("tales-bert", 150),
    "translation, Transformer": ("phrases-transformer", 100),
    "translation, Luong": ("phrases-luong", 100),
    "translation, RNN": ("phrases-rnn", 100),
    "story_answering": ("stories", 600),
}
"""A recipe that ships for each task with data of its own, and the steps that both trainings get."""


class Measurements:
    """Trains what was not trained before, and keeps the last validation of each training."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder.resolve()
        self.file = work / "results.json"
        work.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, dict[str, float]] = (
            json.loads(self.file.read_text()) if self.file.exists() else {}
        )

    def of_case(self, name: str, *overrides: str) -> float:
        """The case's metric with these overrides; infinity for the perplexity of a training that
        diverged."""
        data, model, metric = CASES[name]
        return self.of(data(self.folder, model), overrides)[metric]

    def of(
        self, recipe: Tree, overrides: Sequence[str] = (), then: Sequence[str] = ()
    ) -> dict[str, float]:
        """The last validation; with `then` after a second training that resumes the first with
        these overrides."""
        resolved = load_recipe(recipe, overrides)[0].model_dump()
        key = json.dumps([resolved, [*then]], sort_keys=True).replace(str(self.folder), "")
        if key not in self.known:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "run")
                run = train(recipe, overrides, out=out, quiet=True)
                if then:
                    run = train(recipe, [*overrides, *then], out=out, resume=True, quiet=True)
                self.known[key] = _last_validation(run)
            self.file.write_text(json.dumps(self.known, indent=1))
        return self.known[key]


def _last_validation(run: Run) -> dict[str, float]:
    validations = [line for line in run.events() if line["event"] == "validation"]
    return {name: value for name, value in validations[-1].items() if isinstance(value, float)}


def cases(measured: Measurements) -> Iterator[list[str]]:
    yield ["recipe", "metric", "former defaults", "today's"]
    for name, (_, _, metric) in CASES.items():
        before = [
            *FORMER_DEFAULTS,
            *(["training.schedule=linear"] if name in CASES_WITH_HEADS else []),
        ]
        before += ["model.norm=post"] if name in CASES_WITH_NORM else []
        yield [
            name,
            metric,
            _shown(measured.of_case(name, *before)),
            _shown(measured.of_case(name)),
        ]


def rates(measured: Measurements) -> Iterator[list[str]]:
    yield ["recipe", "metric", *RATES, "default"]
    for name in (BILSTM, CNN, BERT):
        values = [measured.of_case(name, f"training.learning_rate={rate}") for rate in RATES]
        yield [name, CASES[name][2], *map(_shown, values), _shown(measured.of_case(name))]


def schedules(measured: Measurements) -> Iterator[list[str]]:
    yield ["recipe", "metric", *SCHEDULES]
    for name in (TRANSFORMER, BILSTM):
        values = (measured.of_case(name, f"training.schedule={one}") for one in SCHEDULES)
        yield [name, CASES[name][2], *map(_shown, values)]


def warmups(measured: Measurements) -> Iterator[list[str]]:
    """Compare warm-ups at the same learning rate."""
    shares = ("0", "0.1")
    yield ["recipe, rate 1e-3", *(f"warmup {share}" for share in shares)]
    for name in (BILSTM, CNN, BERT):
        pairs = (["training.learning_rate=0.001", f"training.warmup={share}"] for share in shares)
        yield [name, *(_shown(measured.of_case(name, *pair)) for pair in pairs)]


def batches(measured: Measurements) -> Iterator[list[str]]:
    """Compare batch sizes with the same total number of tokens."""
    sizes = {512: 500, 1024: 250, 4096: 62}
    yield ["recipe", *(f"{steps} x {tokens:,} tokens" for tokens, steps in sizes.items())]
    for name in (BILSTM, CNN):
        pairs = (
            [f"training.batch_tokens={tokens}", f"training.steps={steps}"]
            for tokens, steps in sizes.items()
        )
        yield [name, *(_shown(measured.of_case(name, *pair)) for pair in pairs)]


def resume(measured: Measurements) -> Iterator[list[str]]:
    yield ["recipe", "75 steps", "resumed with 150", "150 steps at once"]
    for name in (BILSTM, CNN):
        data, model, metric = CASES[name]
        recipe = data(measured.folder, model)
        resumed = measured.of(recipe, ["training.steps=75"], ["training.steps=150"])[metric]
        short, long = (measured.of_case(name, f"training.steps={steps}") for steps in (75, 150))
        yield [name, _shown(short), _shown(resumed), _shown(long)]


def tasks(measured: Measurements) -> Iterator[list[str]]:
    yield ["task", "recipe", "steps", "metric", "built-in recipe", "shortest recipe", "share"]
    for name, (recipe, steps) in TASKS.items():
        whole = parse_yaml(shipped_text(recipe), where=recipe)
        pace = [
            f"training.steps={steps}",
            "training.epochs=null",
            f"training.validate_every={steps}",
        ]
        # the last validation counts, and a metric of decoded texts is not measured
        pace += ["training.device=cpu", "training.decode=0", "training.best=loss"]
        whole["training"].pop("patience", None)
        ours, theirs = (
            measured.of(apply_overrides(tree, pace)) for tree in (shortest(whole), whole)
        )
        metric = next((one for one in ("accuracy", "f1", "error") if one in ours), "perplexity")
        metric = "perplexity" if name.startswith(("translation", "masked")) else metric
        yield [
            name,
            recipe,
            str(steps),
            metric,
            _shown(theirs[metric]),
            _shown(ours[metric]),
            f"{100 * _share(metric, ours[metric], theirs[metric]):.0f} %",
        ]


def shortest(recipe: Tree) -> Tree:
    """The settings that a user must give: the task, the data and its tokens, the kind and size of
    the model, the batch."""
    model = {name: value for name, value in recipe["model"].items() if name in ESSENTIAL_FIELDS}
    batch = {name: value for name, value in recipe["training"].items() if name == "batch_tokens"}
    kept = {
        name: section for name, section in recipe.items() if name in ("task", "data", "tokenizer")
    }
    return {**kept, "model": model, "training": batch}


ESSENTIAL_FIELDS = (
    "kind",
    "preset",
    "images",
    "decoder",
    "layers",
    "encoder_layers",
    "decoder_layers",
    "width",
    "heads",
    "feed_forward",
    "hops",
)
"""Fields of a model that say what it is and how large."""


def _share(metric: str, ours: float, theirs: float) -> float:
    """Our result as a share of theirs: accuracies, or probabilities of a token (1 / perplexity)."""
    if metric == "perplexity":
        return theirs / ours
    return (1 - ours) / (1 - theirs) if metric == "error" else ours / theirs


def _shown(value: float) -> str:
    if math.isnan(value) or value > 1e5:
        return "diverged"
    return f"{value:.3f}" if value <= 1 else f"{value:.1f}"


PARTS: dict[str, Callable[[Measurements], Iterator[list[str]]]] = {
    "cases": cases,
    "rates": rates,
    "schedules": schedules,
    "warmups": warmups,
    "batches": batches,
    "resume": resume,
    "tasks": tasks,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--work", type=Path, default=Path("runs/defaults"))
    options: Any = parser.parse_args()
    torch.set_num_threads(1)
    measured = Measurements(options.folder, options.work)
    for part in options.only:
        print(f"\n{part}\n")
        for number, row in enumerate(PARTS[part](measured)):
            print(f"| {' | '.join(row)} |", flush=True)
            if number == 0:
                print(f"|{'---|' * len(row)}", flush=True)


if __name__ == "__main__":
    main()
