"""The effect of pre-training: NSMC sentiment with few labels or all, from scratch and pre-trained
for equal time.

    python benchmarks/pretraining.py FOLDER --keep DIR [--only pretrain|finetune] [--models lstm_lm
    elmo gpt bert ...]
        [--seconds 240] [--labels 2000|all] [--starts pre-trained] [--seeds 3] [--side-by-side 4]
        [--set KEY=VALUE ...]

FOLDER holds `nsmc`. The recipes are those of docs/what-pretraining-buys. First BERT's word pieces
are learned, which all models read; then each of the six that can be pre-trained reads the
unlabelled reviews for `--seconds` of updates, one after the other, each alone on the machine
(DIR/MODEL-plan.json, {"steps": N}, gives the number of updates where it is known better than a
short trial tells). Then all models learn from the labelled reviews, several side by side: the six
from their pre-trained weights, the same six with fresh ones, a BiLSTM and a CNN. Each seed draws
other labelled reviews, the same for all models. What stands in DIR is not made again, so that the
parts can be done in several calls; a training that was cut short goes on. Fine-tuned runs are
measured on the test reviews and removed. The table has all results that are in DIR. RoBERTa and
ELECTRA from scratch are BERT's model with another pooler or segment vector, so `--starts
pre-trained` leaves them out.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml
from commands import (
    TRIAL_STEPS,
    VALIDATIONS,
    events,
    regard,
    step_seconds,
    summary,
    training_seconds,
)

RECIPES = Path(__file__).parent.parent / "docs" / "what-pretraining-buys"
PRETRAINED = ("lstm_lm", "elmo", "gpt", "bert", "roberta", "electra")
MODELS = ("bilstm", "cnn", *PRETRAINED)
STARTS = ("from scratch", "pre-trained")
SCRATCH_OVERRIDES = {
    "lstm_lm": ["training.learning_rate=1.0e-3", "head.layer_decay=1.0"],
    "elmo": ["training.learning_rate=1.0e-3", "head.freeze=0"],
    "gpt": ["training.learning_rate=5.0e-4", "head.layer_decay=1.0", "head.auxiliary=0.0"],
    "bert": ["training.learning_rate=5.0e-4", "head.layer_decay=1.0"],
    "roberta": ["training.learning_rate=5.0e-4", "head.layer_decay=1.0"],
    "electra": ["training.learning_rate=5.0e-4", "head.layer_decay=1.0"],
}
"""Changes for a model with random weights: nothing is frozen, and the learning rate is higher."""
EPOCHS_FROM_SCRATCH = 15
ALL_LABELS = {"batch_tokens": 4096, "warmup": 200}
EPOCHS_OF_ALL = {"pre-trained": 3, "from scratch": 5}
"""Epochs with 150,000 labelled reviews instead of 2,000."""


@dataclass(frozen=True)
class Learner:
    """A model, pre-trained or not, and the seed of its labelled reviews."""

    model: str
    start: str
    """One of STARTS."""
    seed: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.start.replace(' ', '-')}-{self.seed}"


def recipe(model: str, stage: str = "") -> Path:
    return RECIPES / f"{model.replace('_', '-')}{stage}.yaml"


def trained(path: Path, changes: list[str], run: Path, cache: Path) -> None:
    """Train, or resume an interrupted training."""
    resume = ["--resume"] if run.exists() else []
    regard("train", str(path), *changes, "--out", str(run), *resume, cache=cache)


def unlabelled(options: argparse.Namespace) -> list[str]:
    corpus = {
        "text": str(options.folder / "nsmc/unlabelled.txt.xz"),
        "documents": "lines",
        "size": options.rows,
    }
    return [f"data.train={json.dumps(corpus)}", f"training.device={options.device}"]


def with_tokenizer(options: argparse.Namespace) -> list[str]:
    return [f"tokenizer.file={options.keep / 'tokenizer/tokenizer.json'}"]


def learn_tokenizer(options: argparse.Namespace) -> None:
    """Train the smallest BERT for one update; its run has the tokenizer."""
    if not (options.keep / "tokenizer/last").exists():
        shutil.rmtree(options.keep / "tokenizer", ignore_errors=True)
        small = [*options.set, "model.preset=tiny", "training.steps=1", "training.warmup=0"]
        trained(
            recipe("bert", "-pretrain"),
            [*unlabelled(options), *small],
            options.keep / "tokenizer",
            options.cache,
        )


def pretrain(model: str, options: argparse.Namespace) -> None:
    """The run DIR/MODEL, of as many updates as fit, or as DIR/MODEL-plan.json says; DIR/MODEL.json
    says how long they took."""
    run = options.keep / model
    record = options.keep / f"{model}.json"
    if record.exists():
        return
    path = recipe(model, "-pretrain")
    plan = options.keep / f"{model}-plan.json"
    changes = [*unlabelled(options), *with_tokenizer(options), *options.set]
    if not plan.exists():
        short = options.keep / f"{model}-short"
        shutil.rmtree(short, ignore_errors=True)
        a_step, _ = step_seconds(str(path), changes, short, options.cache, tried=options.tried)
        shutil.rmtree(short)
        plan.write_text(json.dumps({"steps": max(1, int(options.seconds / a_step))}))
    steps = json.loads(plan.read_text())["steps"]
    fitted = [f"training.steps={steps}", f"training.validate_every={max(1, steps // VALIDATIONS)}"]
    trained(path, [*changes, *fitted], run, options.cache)
    # ELECTRA's is that of the discriminator, which is what is fine-tuned
    validations = [
        line | {"loss": line.get("replaced_loss", line["loss"])}
        for line in events(run, "validation")
    ]
    kept = min(validations, key=lambda line: line["loss"])
    facts = {
        "steps": steps,
        "seconds": training_seconds(run),
        "kept": kept["step"],
        "loss": kept["loss"],
    }
    record.write_text(json.dumps(facts))
    print(f"{model}: {record.read_text()}", file=sys.stderr, flush=True)


def draw_labelled(options: argparse.Namespace, seed: int) -> Path:
    """Write the labelled reviews of a seed as a table: all, or a random sample of those with a
    text."""
    source = options.folder / "nsmc/ratings_train.tsv.xz"
    if options.labels == "all":
        return source
    table = options.keep / f"labelled-{options.labels}-{seed}.tsv"
    header, *rows = lzma.decompress(source.read_bytes()).decode().splitlines()
    drawn = random.Random(seed).sample(
        [row for row in rows if row.split("\t")[1].strip()], int(options.labels)
    )
    table.write_text("\n".join([header, *drawn]) + "\n")
    return table


def changes_of(learner: Learner, table: Path, options: argparse.Namespace) -> list[str]:
    """The overrides of the model's recipe."""
    columns = {"text": "document", "label": "label"}
    test = {
        "file": str(options.folder / "nsmc/ratings_test.tsv.xz"),
        "size": options.test_rows,
        **columns,
    }
    changes = [
        f"data.train={json.dumps({'file': str(table), **columns})}",
        f"data.test={json.dumps(test)}",
    ]
    changes += [f"training.seed={learner.seed}", f"training.device={options.device}"]
    own = options.set
    if learner.start == "pre-trained":
        changes += [f"training.init={options.keep / learner.model}"]
        own = [change for change in own if not change.startswith("model.")]  # the run has its model
    else:
        changes += with_tokenizer(options)
        if learner.model in PRETRAINED:
            sizes = yaml.safe_load(recipe(learner.model, "-pretrain").read_text())["model"]
            changes += [
                "training.init=null",
                f"model={json.dumps(sizes)}",
                f"training.epochs={EPOCHS_FROM_SCRATCH}",
            ]
            changes += SCRATCH_OVERRIDES[learner.model]
    if options.labels == "all":
        changes += [f"training.{name}={value}" for name, value in ALL_LABELS.items()]
        changes += [f"training.epochs={EPOCHS_OF_ALL[learner.start]}"]
    return [*changes, *own]


def finetune(learner: Learner, table: Path, options: argparse.Namespace) -> None:
    """DIR/results/LABELS/LEARNER.json: the output of `regard evaluate` on the test reviews."""
    result = options.keep / "results" / options.labels / f"{learner.name}.json"
    if result.exists():
        return
    run = options.keep / "runs" / options.labels / learner.name
    trained(recipe(learner.model), changes_of(learner, table, options), run, options.cache)
    found = json.loads(
        regard("evaluate", str(run), "--split", "test", "--json", cache=options.cache)
    )
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(found | {"seconds": training_seconds(run)}))
    shutil.rmtree(run)
    print(f"{learner.name}: {found['accuracy']:.4f}", file=sys.stderr, flush=True)


def learners(options: argparse.Namespace) -> Iterator[Learner]:
    """The learners that can be trained: pre-trained ones only if their pre-training is done."""
    for seed in range(1, options.seeds + 1):
        for model in options.models:
            if "pre-trained" in options.starts and (options.keep / f"{model}.json").exists():
                yield Learner(model, "pre-trained", seed)
            if "from scratch" in options.starts:
                yield Learner(model, "from scratch", seed)


def table(options: argparse.Namespace) -> None:
    """Mean and standard deviation over the seeds, from scratch and pre-trained."""
    print(
        "\n| model | from scratch | each | pre-trained | each | updates | kept after | loss there "
        f"|\n|{'---|' * 8}"
    )
    for model in MODELS:
        record = options.keep / f"{model}.json"
        cells = [measured(model, start, options) for start in STARTS]
        facts = json.loads(record.read_text()) if record.exists() else None
        if facts:
            cells += [
                f"{facts['steps']:,} in {facts['seconds']:.0f} s",
                f"{facts['kept']:,}",
                f"{facts['loss']:.3f}",
            ]
        else:
            cells += ["", "", ""]
        print(f"| {model} | {' | '.join(cells)} |", flush=True)


def measured(model: str, start: str, options: argparse.Namespace) -> str:
    files = sorted(
        (options.keep / "results" / options.labels).glob(
            f"{model}-{start.replace(' ', '-')}-*.json"
        )
    )
    return summary([json.loads(file.read_text())["accuracy"] for file in files])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--keep", type=Path, required=True, metavar="DIR", help="folder of all runs and results"
    )
    parser.add_argument("--only", choices=["pretrain", "finetune"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--seconds", type=float, default=240, help="seconds of updates for each pre-training"
    )
    parser.add_argument("--labels", default="2000", help="how many labelled reviews, or all")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--side-by-side", type=int, default=4, metavar="N", help="fine-tunings at a time"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="change every recipe"
    )
    parser.add_argument("--rows", type=int, help="for a trial: only the first N unlabelled reviews")
    parser.add_argument("--test-rows", type=int, help="for a trial: only the first N test reviews")
    parser.add_argument(
        "--tried", type=int, default=TRIAL_STEPS, help="updates that measure the time of one"
    )
    options = parser.parse_args()
    options.folder = options.folder.absolute()
    options.keep = options.keep.absolute()
    options.cache = options.keep / "cache"
    options.keep.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = arguments()
    learn_tokenizer(options)
    if options.only != "finetune":
        for model in options.models:
            if model in PRETRAINED:
                pretrain(model, options)
    if options.only != "pretrain":
        tables = {seed: draw_labelled(options, seed) for seed in range(1, options.seeds + 1)}
        with ThreadPoolExecutor(options.side_by_side) as pool:
            list(
                pool.map(
                    lambda learner: finetune(learner, tables[learner.seed], options),
                    learners(options),
                )
            )
    table(options)


if __name__ == "__main__":
    main()
