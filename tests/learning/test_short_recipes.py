"""The shortest recipe of a task learns as much as the one that ships, in as many steps: its
defaults are good ones."""

from pathlib import Path

import pytest

from regard.config import Tree, parse_yaml
from regard.recipes.shipped import shipped_text
from regard.training.train import train

SIZES = ("kind", "preset", "encoder_layers", "decoder_layers")


def last_validation(tree: Tree, folder: Path, steps: int) -> dict[str, float]:
    training = {name: value for name, value in tree["training"].items() if name != "epochs"}
    training |= {
        "steps": steps,
        "batch_tokens": 512,
        "validate_every": steps,
        "device": "cpu",
        "decode": 0,
        "samples": 0,
    }
    run = train({**tree, "training": training}, out=folder, quiet=True)
    [line] = [line for line in run.events() if line["event"] == "validation"]
    return line


@pytest.mark.parametrize(
    ("name", "steps", "metric"),
    [
        ("phrases-transformer", 60, "perplexity"),
        ("tales-gpt", 60, "perplexity"),
        ("names", 80, "accuracy"),
    ],
)
def test_the_shortest_recipe_reaches_95_percent(
    name: str, steps: int, metric: str, tmp_path: Path
) -> None:
    """Perplexity counts as the probability of a token, 1 / perplexity."""
    whole = parse_yaml(shipped_text(name), where=name)
    for part, size in (("train", 2000), ("validation", 60), ("test", 20)):
        whole["data"][part]["size"] = size
    shortest = {
        **{section: whole[section] for section in ("task", "data", "tokenizer")},
        "model": {field: value for field, value in whole["model"].items() if field in SIZES},
        "training": {},
    }
    ours, theirs = (
        last_validation(tree, tmp_path / label, steps)[metric]
        for label, tree in (("shortest", shortest), ("whole", whole))
    )
    share = theirs / ours if metric == "perplexity" else ours / theirs
    assert share >= 0.95, f"{metric}: {ours:.3f} with the defaults, {theirs:.3f} with the recipe"
    assert ours < 150 if metric == "perplexity" else ours > 0.7
