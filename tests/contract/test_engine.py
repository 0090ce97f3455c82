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
from regard import engine
from regard.api import train
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
