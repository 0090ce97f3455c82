"""A training that begins with another run's weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import fail, succeed, write
from regard.config import write_yaml
from regard.errors import ConfigError
from regard.recipes.recipe import load_recipe
from regard.runs import Run
from regard.runs.run import load_weights, read_metrics
from regard.search.config import SearchConfig
from regard.training.train import train

Tree = dict[str, Any]


def validation_loss(run: Run) -> float:
    return next(float(line["loss"]) for line in read_metrics(run.folder / "metrics.jsonl") if line["event"] != "train")


@pytest.fixture
def recipe(tiny_recipe: Tree, tiny_run: Path, tmp_path: Path) -> Path:
    """The recipe of the tiny run, which begins with the weights of a copy of it."""
    shutil.copytree(tiny_run, tmp_path / "before")
    tiny_recipe["training"] |= {"init": "before", "steps": 4, "validate_every": 2}
    return write(tmp_path / "recipe.yaml", write_yaml(tiny_recipe))


def test_it_begins_where_the_best_checkpoint_of_the_other_ended(recipe: Path, tmp_path: Path) -> None:
    before = Run.open(tmp_path / "before")
    still = ["training.learning_rate=1e-12", "training.steps=1", "training.validate_every=1"]
    run = train(recipe, still, out=tmp_path / "run", quiet=True)
    theirs, ours = (load_weights(one.checkpoint("best")) for one in (before, run))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    losses = [line for line in read_metrics(before.folder / "metrics.jsonl") if line["event"] == "validation"]
    assert validation_loss(run) == pytest.approx(min(line["loss"] for line in losses), rel=1e-6)
    plain = train(recipe, [*still, "training.init=null"], out=tmp_path / "plain", quiet=True)
    assert validation_loss(plain) > validation_loss(run) + 0.3
    assert Run.open(run.folder).recipe.training.init == str(before.folder)


def test_a_section_that_is_null_is_left_out(recipe: Path, tmp_path: Path) -> None:
    """The model is then that of the run to begin with, the search what it is by default."""
    found, _ = load_recipe(recipe, ["model=null", "search=null"])
    assert found.model == Run.open(tmp_path / "before").recipe.model
    assert (found.model.hidden, found.search.beam) == (16, SearchConfig().beam)
    assert load_recipe(recipe)[0].search.beam == 2 != SearchConfig().beam
    with pytest.raises(ConfigError, match="model: this key is required"):
        load_recipe(recipe, ["model=null", "training.init=null"])


def test_a_resumed_run_does_not_need_the_other_any_more(recipe: Path, tmp_path: Path) -> None:
    """Nor does one that was killed before its first checkpoint need anything but the other: both end alike."""
    best = Run.open(tmp_path / "before").checkpoint("best").name
    assert f"weights: those of before, {best}\n" in succeed("train", recipe, "--out", tmp_path / "at_once").err
    expected = Run.open(tmp_path / "at_once")
    shutil.copytree(expected.folder, tmp_path / "killed", ignore=shutil.ignore_patterns("checkpoints", "best", "last"))
    killed = train(recipe, out=tmp_path / "killed", resume=True, quiet=True)
    train(recipe, ["training.steps=2"], out=tmp_path / "run", quiet=True)
    shutil.rmtree(tmp_path / "before")
    resumed = train(recipe, out=tmp_path / "run", resume=True, quiet=True)
    saved = [run.checkpoint("last") / "model.safetensors" for run in (expected, killed, resumed)]
    assert len({file.read_bytes() for file in saved}) == 1


def refused(recipe: Path, *overrides: str) -> str:
    """The one message of `train` and `check`; no run is made."""
    [message] = fail("train", recipe, *overrides, "--out", recipe.parent / "run")
    assert fail("check", recipe, *overrides) == [message]
    assert not (recipe.parent / "run").exists()
    return message


def test_other_weights(recipe: Path, tmp_path: Path) -> None:
    """What of a model does not fit is named as in tests/cli/test_fine_tuning.py."""
    size = Run.open(tmp_path / "before").tokenizers["source"].size
    assert refused(recipe, "model={kind: rnn, preset: tiny}") == (
        "training.init: before is a bahdanau, this recipe asks for rnn "
        "(leave the section model out, to use that run's model)"
    )
    assert refused(recipe, "model.tie=target").startswith(
        "training.init: the weights of before do not fit this recipe's model: "
        f"output.linear.weight is {size} x 16 there, missing here ("
    )


@pytest.mark.parametrize(("joint", "files"), [
    ("true", "{NAME}/tokenizer.json"),
    ("false", "{source: {NAME}/tokenizer.source.json, target: {NAME}/tokenizer.target.json}"),
])  # fmt: skip
def test_another_tokenizer_and_how_to_take_the_same(recipe: Path, tmp_path: Path, joint: str, files: str) -> None:
    name, apart = ("before", "") if joint == "true" else ("apart", ", tokenizer.joint: false")
    if apart:
        train(recipe, ["tokenizer.joint=false", "training.init=null"], out=tmp_path / name, quiet=True)
    files = files.replace("{NAME}", name)
    other = [f"training.init={name}", "data.train={corpus: dates, size: 300}"]
    assert refused(recipe, *other) == (
        f"training.init: {name} has another tokenizer, so its embeddings are those of other tokens "
        f"(use that one: tokenizer.file: {files}{apart})"
    )
    options = [*other, f"tokenizer.file={files}", f"tokenizer.joint={joint}"]
    run = train(recipe, options, out=tmp_path / "reused", quiet=True)
    assert run.tokenizers.fingerprint == Run.open(tmp_path / name).tokenizers.fingerprint


def test_what_is_no_run_or_has_no_weights(recipe: Path, tmp_path: Path) -> None:
    assert "there is no such run folder" in refused(recipe, "training.init=befor")
    (tmp_path / "empty").mkdir()
    assert "not a run folder" in refused(recipe, "training.init=empty")
    shutil.rmtree(tmp_path / "before" / "checkpoints")
    (tmp_path / "before" / "best").unlink()
    assert "the run has no checkpoint yet" in refused(recipe)
