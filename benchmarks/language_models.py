"""Language models on real text, with the recipes that ship: perplexity, masked accuracy, speed and
curves.

    python benchmarks/language_models.py FOLDER [--only lstm gpt bert] [--seconds 360] [--set
    KEY=VALUE ...]

FOLDER holds the folders `wikitext2` and `nsmc`. Each recipe trains alone on the machine, as users
train, and is then measured on its test part. The clock runs from the start of the training's
process to its end: imports, reading, training the tokenizer and all. With `--seconds` a short
training first finds out how many steps fit, and the schedule is laid over these. Perplexity is a
word's, one end a line included, so that sub-words and words can be compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from commands import events, fitting, regard, timed_training

RECIPES = {"lstm": "wikitext2-lstm", "gpt": "wikitext2-gpt", "bert": "nsmc-bert"}
AIMS = {"lstm": "95 a word in 360 s", "gpt": "none, equal time", "bert": "a curve in 480 s"}


def measure(part: str, changes: list[str], seconds: float | None, folder: Path, work: Path) -> None:
    recipe = RECIPES[part]
    run = work / part
    if seconds is not None:
        changes = [*fitting(recipe, changes, seconds, work / f"try-{part}", folder), *changes]
    all_in = timed_training(recipe, changes, run, work / f"cold-{part}", folder)
    found = json.loads(
        regard("evaluate", str(run), "--json", folder=folder, cache=work / f"cold-{part}")
    )
    trained = events(run, "train")
    speed = statistics.median(line["tokens_per_second"] for line in trained)
    names = (
        "tokens",
        "loss",
        "word_perplexity",
        "perplexity",
        "masked_accuracy",
        "bits_per_character",
    )
    measured = ", ".join(f"{name} {found[name]:,.4g}" for name in names if name in found)
    print(
        f"\n| recipe | test | predicted tokens/s | steps | seconds in total | aim |\n|{'---|' * 6}"
    )
    print(
        f"| {recipe} {' '.join(changes)} | {measured} | {speed:,.0f} | {trained[-1]['step']:,} | "
        f"{all_in:.0f} "
        f"| {AIMS[part]} |",
        flush=True,
    )
    curve(run)


def curve(run: Path) -> None:
    """Training loss and validation metrics by step, with the seconds of the steps."""
    trained = events(run, "train")
    validated = events(run, "validation")
    metrics = [name for name, value in validated[0].items() if isinstance(value, float)]
    print(
        "\n| step | seconds | training loss | "
        f"{' | '.join(f'validation {name}' for name in metrics)} |"
    )
    print(f"|{'---|' * (3 + len(metrics))}")
    for line in validated:
        before = [one for one in trained if one["step"] <= line["step"]]
        steps = [one["step"] for one in before]
        spent = sum(
            one["seconds_per_step"] * (step - last)
            for one, step, last in zip(before, steps, [0, *steps[:-1]], strict=True)
        )
        values = " | ".join(f"{line[name]:.4g}" for name in metrics)
        print(
            f"| {line['step']:,} | {spent:.0f} | {before[-1]['loss']:.3f} | {values} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--seconds", type=float, help="in total; default: the recipe's own length")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the runs; default: they are deleted"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for part in options.only:
            measure(
                part,
                options.set,
                options.seconds,
                options.folder.absolute(),
                (options.keep or Path(work)).absolute(),
            )


if __name__ == "__main__":
    main()
