"""The worked examples of ARCHITECTURE.md: a format, a task and a model are each one entry in a
literal dict."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import regard
from model_cases import SOURCE_SIZE, TARGET_SIZE, batch_of
from places import ROOT
from regard.data import config, formats, inputs
from regard.data.readers import FORMATS, open_corpus
from regard.models import MODELS, any_config
from regard.models.base import Kind
from regard.models.rnn import RNN, RNNConfig
from regard.recipes.proposals import recognise
from regard.tasks import TASKS
from regard.tasks.translation import Parallel

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


def test_a_format_is_one_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_run: Path
) -> None:
    """The function as the page shows it, in training data and in a file to predict for."""
    names: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\n"
        + next(code for code in CODE if "def _pipe_records" in code),
        names,
    )
    monkeypatch.setitem(formats.RECORDS, ".pipe", names["_pipe_records"])
    monkeypatch.setitem(formats.TABLE_ROWS, ".pipe", formats._table_rows)
    monkeypatch.setitem(FORMATS, ".pipe", formats.table_rows)
    for module in (config, inputs, recognise):
        monkeypatch.setattr(module, "TABLES", (*config.TABLES, ".pipe"))
    file = tmp_path / "a.pipe"
    file.write_text("one | eins\ntwo\n\nthree | drei\n", encoding="utf-8")
    rows = list(open_corpus(Parallel(file="a.pipe", source=0, target=1), tmp_path).rows())
    assert [row.values for row in rows] == [("one", "eins"), ("", ""), ("", ""), ("three", "drei")]
    assert str(rows[1].fault).startswith("a.pipe:2: there is no column 1 (target)")
    assert [row.fault for row in rows].count(None) == 3
    file.write_text("source | target\na b | b a\n", encoding="utf-8")
    [prediction] = regard.predict(tiny_run, file=file)
    assert prediction.input == "a b"
    file.write_text(
        "text | label\n" + "".join(f"a text {n} | {n % 2}\n" for n in range(100)), encoding="utf-8"
    )
    proposed = regard.check(str(file), quiet=True).proposal
    assert "text: text, label: label" in str(proposed)


def test_a_task_is_one_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_recipe: dict[str, Any]
) -> None:
    """The task as the page shows it, trained, measured and used through the verbs."""
    names: dict[str, Any] = {"__name__": "titles"}
    exec(next(code for code in CODE if "class Titles(Task)" in code), names)
    monkeypatch.setitem(TASKS, "titles", names["Titles"])
    regard.train({**tiny_recipe, "task": "titles"}, out=tmp_path / "run", quiet=True)
    assert 0 <= regard.evaluate(tmp_path / "run")["exact_match"] <= 1
    [prediction] = regard.predict(tmp_path / "run", ["a b c"])
    assert prediction.to_json()["output"] == prediction.output  # type: ignore[attr-defined]
    assert regard.diagnose(tmp_path / "run", limit=5).to_json()["sentences"] == 5


class EchoConfig(RNNConfig):
    """A model of one's own."""

    kind: Literal["echo"] = "echo"  # type: ignore[assignment]


class Echo(RNN):
    """The plain encoder-decoder RNN under another name."""


def test_a_model_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "echo", Kind(EchoConfig, Echo))
    assert "EchoConfig" in str(any_config(lambda config: config.reads == "source"))
    torch.manual_seed(0)
    ours = (
        MODELS["echo"]
        .build(EchoConfig(preset="tiny", dropout=0.0), SOURCE_SIZE, TARGET_SIZE)
        .eval()
    )
    torch.manual_seed(0)
    theirs = (
        MODELS["rnn"].build(RNNConfig(preset="tiny", dropout=0.0), SOURCE_SIZE, TARGET_SIZE).eval()
    )
    batch = batch_of()
    torch.testing.assert_close(ours(batch).hidden_BTD, theirs(batch).hidden_BTD)
