"""Optimisations stand in `engine/` alone, and everything works without them."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import refusal, write
from regard import engine
from regard.api import train
from regard.config import write_yaml
from regard.engine import (
    additive,
    attention,
    caches,
    dropout,
    losses,
    products,
    recurrence,
    top_scores,
)
from regard.errors import ConfigError
from tiny import TINY

PACKAGE = Path(regard.__file__).parent
TABLES: list[list[Any]] = [
    additive.ADDITIVE_STEPS,
    attention.ATTENTION,
    attention.BIASED_ATTENTION,
    attention.SELF_PROJECTIONS,
    caches.EMPTY_CACHES,
    dropout.DROPOUT,
    losses.LAST_LAYER_LOSSES,
    losses.LOGIT_LOSSES,
    products.ACTIVATED_PRODUCTS,
    products.PRODUCTS,
    recurrence.RECURRENT_ENCODERS,
    recurrence.DECODER_LOOPS,
    recurrence.LSTM_CELLS,
    recurrence.LSTM_LAYERS,
    top_scores.BEST_SCORES,
]
DEVICE_WORDS = re.compile(
    r"triton|is_compiling|mkldnn|onednn|cpuinfo|intel\b|cudagraph|sdpa|varlen|device\.type|autocast",
    re.IGNORECASE,
)


def equations() -> list[Path]:
    return sorted(
        path
        for folder in ("layers", "models", "objectives", "search")
        for path in (PACKAGE / folder).glob("*.py")
    )


@pytest.mark.parametrize("path", equations(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_equations_know_nothing_of_devices(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if DEVICE_WORDS.search(line)] == []


def test_every_table_is_listed_here() -> None:
    """A table is a list of (applies, kernel) pairs with a name in capitals."""
    found = []
    for path in sorted((PACKAGE / "engine").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assigned = [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
        tables = [
            target.id for target in assigned if isinstance(target, ast.Name) and target.id.isupper()
        ]
        if tables and path.stem != "triton_kernels":
            module = importlib.import_module(f"regard.engine.{path.stem}")
            values = [getattr(module, name) for name in tables]
            found += [
                value for value in values if isinstance(value, list) and isinstance(value[0], tuple)
            ]
    assert sorted(map(id, found)) == sorted(map(id, TABLES))


def tables_asked_by(path: Path) -> set[tuple[str, str]]:
    """The tables that a file passes to `first_that_applies`, each with the place of the call: the
    function or, if it is a method, its class."""
    found = set()
    for scope in ast.parse(path.read_text(encoding="utf-8")).body:
        calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call)]
        for call in calls:
            if ast.unparse(call.func).endswith("first_that_applies"):
                table = ast.unparse(call.args[0]).rpartition(".")[2]
                found.add((table, f"{path.parent.name}/{path.name} `{scope.name}`"))
    return found


def test_the_table_for_newcomers_names_every_table_and_who_asks_it() -> None:
    lines = re.findall(r" {2,}(\w+\.py) ([A-Z_]+) +(\w+/\w+\.py `\w+`)", engine.__doc__ or "")
    asked = set().union(*(tables_asked_by(path) for path in equations()))
    assert {(table, place) for _, table, place in lines} == asked
    assert len(lines) == len(TABLES)
    for file, table, _ in lines:
        module = importlib.import_module(f"regard.engine.{file.removesuffix('.py')}")
        assert getattr(module, table) in TABLES


def logged_losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["bahdanau", "luong", "transformer"])
def test_without_any_kernel_the_losses_are_the_same(kind: str, tmp_path: Path) -> None:
    sizes = (
        {"width": 16, "heads": 2, "feed_forward": 16}
        if kind == "transformer"
        else {"embedding": 16, "hidden": 16}
    )
    recipe = TINY | {"model": {"kind": kind, "preset": "tiny", "dropout": 0.0, **sizes}}
    train(recipe, out=tmp_path / "engine", quiet=True)
    tables = [list(table) for table in TABLES]
    try:
        for table in TABLES:
            table.clear()
        train(recipe, out=tmp_path / "empty", quiet=True)
    finally:
        for table, kernels in zip(TABLES, tables, strict=True):
            table.extend(kernels)
    with engine.plain():
        train(recipe, out=tmp_path / "plain", quiet=True)
    expected = logged_losses(tmp_path / "engine")
    assert len(expected) == 6
    assert logged_losses(tmp_path / "empty") == pytest.approx(expected, rel=1e-4)
    assert logged_losses(tmp_path / "plain") == pytest.approx(expected, rel=1e-4)


@pytest.mark.engine
def test_the_environment_switches_the_engine_off() -> None:
    program = "from regard import engine; print(engine.is_plain())"
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {engine.ENVIRONMENT_VARIABLE: value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for value in ("plain", "")
    ]
    assert printed == ["True", "False"]
    assert not engine.is_plain()
    with engine.plain():
        assert engine.is_plain()
        assert engine.first_that_applies(attention.ATTENTION, None, None, 0.0) is None


@pytest.mark.engine
def test_a_recipe_switches_the_engine_off(tmp_path: Path) -> None:
    """No kernel is asked whether it applies in the whole training."""

    def refuse(*arguments: Any) -> bool:
        raise AssertionError("a kernel is asked for")

    for table in TABLES:
        table.insert(0, (refuse, refuse))
    try:
        run = train(TINY, {"training.engine": "plain"}, out=tmp_path / "run", quiet=True)
    finally:
        for table in TABLES:
            del table[0]
    assert run.recipe.training.engine == "plain"
    assert not engine.is_plain(), "the engine is on again after the training"
    settings = {"training.engine": "plain", "training.compile": True}
    with pytest.raises(ConfigError, match="nothing is compiled while the engine is off"):
        train(TINY, settings, out=tmp_path / "compiled", quiet=True)


def test_a_misspelt_environment_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(engine.ENVIRONMENT_VARIABLE, "plian")
    monkeypatch.chdir(tmp_path)
    expected = "REGARD_ENGINE: 'plian' is not allowed (did you mean 'plain'?)"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        engine.is_plain()
    recipe = write(tmp_path / "recipe.yaml", write_yaml(TINY))
    assert refusal("check", recipe) == expected
    assert refusal("train", recipe, "--out", "run") == expected
    assert not (tmp_path / "run").exists()
