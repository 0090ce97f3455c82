"""The recipes of docs/what-pretraining-buys, and the arithmetic of the benchmark that uses them."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

import regard
from places import ROOT
from regard.config import read_yaml
from regard.models import MODELS
from regard.models.base import count_parameters
from regard.recipes.recipe import recipe_of

FOLDER = ROOT / "docs" / "what-pretraining-buys"
PRETRAINED = ("bert", "roberta", "electra", "gpt", "lstm-lm", "elmo")
SCRATCH = ("bilstm", "cnn")
VOCABULARY = 16_000

sys.path.insert(0, str(ROOT / "benchmarks"))
import commands  # noqa: E402  (it lies beside the scripts that share it)
import pretraining  # noqa: E402


def test_there_is_a_commented_recipe_for_every_step() -> None:
    paths = {path.stem: path for path in FOLDER.glob("*.yaml")}
    assert {*paths} == {*(f"{name}-pretrain" for name in PRETRAINED), *PRETRAINED, *SCRATCH}
    assert {pretraining.recipe(model).stem for model in pretraining.MODELS} == {
        *PRETRAINED,
        *SCRATCH,
    }
    for path in paths.values():
        assert all(" # " in f" {line}" for line in path.read_text(encoding="utf-8").splitlines()), (
            path
        )
    trees = {name: read_yaml(paths[name]) for name in (*PRETRAINED, *SCRATCH)}
    before = read_yaml(paths["roberta-pretrain"])
    assert trees["roberta"]["data"].pop("max_length") == before["data"]["max_length"]
    trees["roberta"]["data"]["max_length"] = trees["bert"]["data"]["max_length"]
    assert all(tree["data"] == trees["bert"]["data"] for tree in trees.values()), (
        "labelled reviews are read alike by all, but for the length that RoBERTa has learned"
    )
    assert all(tree["training"]["batch_tokens"] == 1024 for tree in trees.values())


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_model_is_fine_tuned_with_its_own_sizes_and_can_begin_afresh(name: str) -> None:
    """The script drops `init` and gives the model's section of its pre-training instead."""
    tree, before = read_yaml(FOLDER / f"{name}.yaml"), read_yaml(FOLDER / f"{name}-pretrain.yaml")
    kind = before["model"]["kind"]
    assert tree["training"].pop("init") == f"runs/{name.replace('-', '_')}"
    assert "model" not in tree
    found = recipe_of(tree | {"model": before["model"]})
    assert found.model == recipe_of(before).model
    assert (found.head.freeze == "all") is (kind == "elmo")


def test_pretrained_models_are_of_like_size() -> None:
    """So that equal time is spent on like numbers of weights: 14 to 21 million."""
    characters = {"characters_VC": torch.zeros(VOCABULARY, 50, dtype=torch.long)}
    sizes = {}
    for name in PRETRAINED:
        config = recipe_of(read_yaml(FOLDER / f"{name}-pretrain.yaml")).model
        options = characters if config.letters else {}
        sizes[name] = count_parameters(MODELS[config.kind].build(config, VOCABULARY, **options))
    assert max(sizes.values()) < 1.6 * min(sizes.values()), sizes


def test_the_script_measures_a_training_by_its_log(tmp_path: Path) -> None:
    """20 steps: ten at 0.5 s, five at 0.2 s, five at 0.4 s."""
    lines = [
        {"event": "train", "step": step, "seconds_per_step": a_step}
        for step, a_step in ((10, 0.5), (15, 0.2), (20, 0.4))
    ]
    log = [lines[0], {"event": "validation", "step": 10, "loss": 1.0}, *lines[1:]]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, log)) + "\n")
    assert commands.training_seconds(tmp_path) == pytest.approx(5.0 + 1.0 + 2.0)
    assert commands.training_seconds(tmp_path, after=10) == pytest.approx(20 * 0.3)
    assert commands.training_seconds(tmp_path, after=20) == pytest.approx(8.0)


def test_mean_and_spread() -> None:
    assert commands.summary([0.8, 0.9, 1.0]) == "0.9000 ± 0.1000 | 0.8000, 0.9000, 1.0000"
    assert commands.summary([0.5]) == "0.5000 ± 0.0000 | 0.5000"


NARROW = {
    "roberta": (64, 600, "loss", 3.0),
    "electra": (128, 600, "replaced_f1", 0.2),
}
"""The width and updates of a small model, the metric that it is judged by, and its limit. A RoBERTa with rows
of 128 tokens has a loss of 3.3, an ELECTRA with four times the rate an F1 of 0."""


@pytest.mark.skipif("REGARD_SLOW" not in os.environ, reason="a minute each: REGARD_SLOW=1")
@pytest.mark.parametrize("name", NARROW)
def test_the_settings_leave_the_frequencies_of_the_tokens_behind(name: str, tmp_path: Path) -> None:
    """The recipe for a narrower model, with a learning rate that is higher by the same factor, on
    built-in reviews."""
    width, steps, metric, limit = NARROW[name]
    path = FOLDER / f"{name}-pretrain.yaml"
    recipe = recipe_of(read_yaml(path))
    changes = [
        'data.train={"corpus": "reviews-en", "size": 4000}',
        "tokenizer.vocabulary=600",
        f"model.width={width}",
        f"model.feed_forward={4 * width}",
        f"model.heads={width // 32}",
        "model.layers=2",
        f"training.learning_rate={recipe.training.learning_rate * recipe.model.width / width}",
        f"training.steps={steps}",
        "training.warmup=60",
        f"training.validate_every={steps // 4}",
        "training.batch_tokens=1024",
        "training.device=cpu",
    ]
    run = regard.train(str(path), changes, out=tmp_path / "run", quiet=True)
    *_, last = commands.events(run.folder, "validation")
    assert last[metric] < limit if metric == "loss" else last[metric] > limit, last
