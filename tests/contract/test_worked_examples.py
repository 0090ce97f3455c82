"""The worked examples of ARCHITECTURE.md: a format, a task and a model are each one entry in a literal dict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import eq
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch

import regard
from model_cases import SOURCE_SIZE, TARGET_SIZE, batch_of
from places import ROOT
from regard.data import config
from regard.data.config import Corpus, Data
from regard.data.formats import Row
from regard.data.readers import FORMATS, open_corpus
from regard.errors import Problem
from regard.models import MODELS, Kind, any_config, build_model
from regard.models.rnn import RNN, RNNConfig
from regard.tasks import TASKS
from regard.tasks.task import NoSettings
from regard.tasks.text_to_text import TextToText
from regard.tasks.translation import Parallel
from regard.text.files import TextFile

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


def test_a_format_is_one_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function as the page shows it."""
    names: dict[str, Any] = {
        "TextFile": TextFile, "Corpus": Corpus, "Iterator": Iterator, "Row": Row, "Problem": Problem,
    }  # fmt: skip
    exec(next(code for code in CODE if "def pipe_rows" in code), names)
    monkeypatch.setitem(FORMATS, ".pipe", names["pipe_rows"])
    monkeypatch.setattr(config, "TABLES", (*config.TABLES, ".pipe"))
    (tmp_path / "a.pipe").write_text("one | eins\ntwo\nthree | drei\n", encoding="utf-8")
    rows = list(open_corpus(Parallel(file="a.pipe", source="source", target="target"), tmp_path).rows())
    assert [row.values for row in rows] == [("one", "eins"), ("", ""), ("three", "drei")]
    assert str(rows[1].fault) == "a.pipe:2: 1 cells (source | target)"


class Titles(TextToText):
    """The task of the page, with types."""

    name = "titles"
    data = Data[Parallel]
    evaluation = NoSettings
    higher_is_better: ClassVar[Mapping[str, bool]] = {"loss": False, "perplexity": False, "exact_match": True}
    decoded = frozenset({"exact_match"})

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[str], config: Any) -> dict[str, Any]:
        return {"exact_match": sum(map(eq, outputs, references)) / len(outputs)}


def test_a_task_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_recipe: dict[str, Any]) -> None:
    """Trained, measured and used through the verbs, without a change anywhere else."""
    assert any("class Titles(TextToText)" in code for code in CODE)
    monkeypatch.setitem(TASKS, "titles", Titles)
    regard.train({**tiny_recipe, "task": "titles"}, out=tmp_path / "run", quiet=True)
    assert 0 <= regard.evaluate(tmp_path / "run")["exact_match"] <= 1
    [prediction] = regard.predict(tmp_path / "run", ["a b c"])
    assert prediction.to_json()["output"] == prediction.output  # type: ignore[attr-defined]


class EchoConfig(RNNConfig):
    """A model of one's own."""

    kind: Literal["echo"] = "echo"  # type: ignore[assignment]


class Echo(RNN):
    """The plain encoder-decoder RNN under another name."""


def test_a_model_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "echo", Kind(EchoConfig, Echo))
    assert "EchoConfig" in str(any_config(lambda config: config.reads == "source"))
    torch.manual_seed(0)
    ours = build_model(EchoConfig(preset="tiny", dropout=0.0), SOURCE_SIZE, TARGET_SIZE).eval()
    torch.manual_seed(0)
    theirs = build_model(RNNConfig(preset="tiny", dropout=0.0), SOURCE_SIZE, TARGET_SIZE).eval()
    batch = batch_of()
    torch.testing.assert_close(ours(batch).hidden_BTD, theirs(batch).hidden_BTD)
