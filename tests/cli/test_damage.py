"""Flipped and cut files of a run and of the cache: the right answer or a message, never another answer."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import fail, succeed
from regard.api import train
from regard.errors import CheckpointError
from regard.recipes.recipe import load_recipe
from regard.runs import Run
from regard.runs.run import load_training, load_weights
from regard.tasks import TASKS
from tiny import TINY

RECIPE: dict[str, Any] = copy.deepcopy(TINY) | {
    "model": {"kind": "transformer", "preset": "tiny", "width": 16, "heads": 2, "feed_forward": 16},
}
RECIPE["data"]["test"] = {"corpus": "reverse", "size": 4}
RECIPE["training"] |= {"ema": 0.9, "decode": 0, "keep_best": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A run with every file that a run may have, and two checkpoints."""
    return train(RECIPE, out=tmp_path_factory.mktemp("damage") / "run", quiet=True).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    shutil.copytree(trained, tmp_path / "run")
    return Run.open(tmp_path / "run")


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def resume(folder: Path) -> dict[str, torch.Tensor]:
    """The weights after more steps."""
    run = train(RECIPE, ["training.steps=22"], out=folder, resume=True, quiet=True)
    return load_weights(run.checkpoint("last"))


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "training.pt"])
def test_a_flipped_bit_of_a_checkpoint_is_refused_and_whole_ones_are_named(run: Run, name: str) -> None:
    file, read = run.checkpoint("20") / name, load_weights if name == "model.safetensors" else load_training
    generator, data = random.Random(1), file.read_bytes()
    said = rf"step-00000020/{name}: the file is damaged.*other checkpoints here: step-00000010; "
    for bit in [0, 8 * len(data) - 1, *(generator.randrange(8 * len(data)) for _ in range(20))]:
        flip(file, bit)
        with pytest.raises(CheckpointError, match=said):
            read(file.parent)
        file.write_bytes(data)
    file.unlink()
    flip(run.checkpoint("10") / name, 999)
    with pytest.raises(CheckpointError, match=rf"{name}: .*no such file.*copy the checkpoint back from elsewhere"):
        read(file.parent)


def test_another_number_of_heads_is_refused(run: Run) -> None:
    """The shapes of the weights are the same."""
    path = run.folder / "recipe.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("heads: 2", "heads: 4"), encoding="utf-8")
    said = f"{path}: model.heads is 4, but {run.checkpoint().name} was trained with 2 (put it back)"
    for verb in (["predict", run.folder, "a"], ["score", run.folder, "a", "a"], ["evaluate", run.folder]):
        assert fail(*verb) == [said]
    with pytest.raises(CheckpointError, match=r"model\.heads is 4"):
        train(path, out=run.folder, resume=True, quiet=True)
    path.write_text(text.replace("beam: 2", "beam: 3"), encoding="utf-8")
    succeed("predict", run.folder, "a")


def test_a_damaged_cache_is_made_anew_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    recipe, base = load_recipe(RECIPE, ["data.train.size=40"])

    def tokens() -> list[list[int]]:
        column = TASKS[recipe.task].prepare(recipe, base).train.columns["target"]
        return [column[row].tolist() for row in range(len(column))]

    expected = tokens()
    kept = {path: path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert len(kept) > 15
    for path, data in [*kept.items()][::3]:
        caplog.clear()
        flip(path, 4 * len(data)) if data else path.unlink()
        assert tokens() == expected
        [line] = [record.getMessage() for record in caplog.records if record.name.startswith("regard")]
        assert path.parent.name in line
        assert "damaged" in line
        assert path.read_bytes() == data
