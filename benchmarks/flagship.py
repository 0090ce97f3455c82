"""The examples that every book shows, trained with ten seeds: what is written, and where the model
looks for each word.

    python benchmarks/flagship.py FOLDER [--seeds 10] [--only how-are-you]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import yaml

import regard
from regard.recipes.shipped import shipped_text

EXAMPLES = {
    "how-are-you": ("How are you?", "잘 지내?", {"잘": "How", "지내": "you"}),
    "je-suis-etudiant": (
        "je suis étudiant",
        "I am a student",
        {"I": "je", "am": "suis", "student": "étudiant"},
    ),
}
"""Text, output, and the source word that each written word should look at."""
RECIPES = {f"{name}{kind}": EXAMPLES[name] for name in EXAMPLES for kind in ("", "-transformer")}


@dataclass(frozen=True)
class Outcome:
    output: str
    shares: dict[str, float]
    """Of each written word, the share of its attention on the source word that it translates."""

    def is_right(self, name: str, least: float = 0.5) -> bool:
        """Whether the output is right and every word looks mostly where it should."""
        return self.output == RECIPES[name][1] and min(self.shares.values()) > least


def train_one(name: str, seed: int, folder: Path) -> Outcome:
    """Train a recipe as it ships, with this seed, and explain its sentence."""
    text, wanted, looks = RECIPES[name]
    recipe = yaml.safe_load(shipped_text(name))
    recipe["training"]["seed"] = seed
    out = folder / f"{name}-{seed}"
    if not out.exists():
        regard.train(recipe, out=out, quiet=True)
    explained = regard.explain(out, text)
    drawn = explained.heat_maps()[0]
    rows = [row.lstrip("▁") for row in drawn.rows]
    columns = [column.lstrip("▁") for column in drawn.columns]
    right = explained.output == wanted
    shares = {
        word: float(explained.weights[rows.index(word), columns.index(source)]) if right else 0.0
        for word, source in looks.items()
    }
    return Outcome(explained.output, shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=list(RECIPES), choices=RECIPES)
    asked = parser.parse_args()
    for name in asked.only:
        found = {seed: train_one(name, seed, asked.folder) for seed in range(1, asked.seeds + 1)}
        for seed, outcome in found.items():
            shares = ", ".join(f"{word} {share:.2f}" for word, share in outcome.shares.items())
            print(f"{name}  seed {seed}: {outcome.output}  {shares}")
        for least in (0.5, 0.8):
            right = sum(outcome.is_right(name, least) for outcome in found.values())
            print(f"{name}  right, every share above {least}: {right} of {len(found)}", flush=True)


if __name__ == "__main__":
    main()
