"""Small runs to export, and what must hold of the folder that `transformers` then loads."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exchange_cases import spells_nothing_special
from regard.data.raw import one_blank
from regard.runs import Run
from regard.tasks import PRETRAINING
from regard.tasks.masked_language_modeling import MaskedLanguageModeling
from regard.training.train import train

transformers = pytest.importorskip("transformers")

TRAINING = {
    "steps": 3,
    "batch_tokens": 256,
    "device": "cpu",
    "decode": 0,
    "learning_rate": 0.05,
    "schedule": "constant",
}
TALES: dict[str, Any] = {"train": {"corpus": "tales-en", "size": 40}, "validation": {"split": 0.1}, "max_length": 32}
UNICODE = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30).filter(
    spells_nothing_special
) | st.sampled_from(["The king", "나는 간다"])
FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def trained(folder: Path, **sections: Any) -> Run:
    recipe = {"data": TALES, "training": TRAINING, "tokenizer": {"vocabulary": 300}, **sections}
    return train(recipe, out=folder, quiet=True)


def near(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def rows_of(run: Run, column: str = "text") -> list[list[int]]:
    tokenizer = run.tokenizers[column]
    texts = ["The king went home.", "A", "In the old house there lived a fox."]
    return [tokenizer.encode(text) for text in texts]


def mask_of(rows: list[list[int]]) -> torch.Tensor:
    return (torch.arange(max(map(len, rows))) < torch.tensor([[len(row)] for row in rows])).long()


def same_tokens(folder: Path, run: Run, column: str, before: list[int], after: list[int]) -> None:
    """AutoTokenizer reads every text as the run does, and puts the special tokens around it.

    Raw text is read with single blanks. That of BERT comes in parts, between gaps, so that none is taken from its ends.
    """
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), run.tokenizers[column]

    @FEW
    @given(UNICODE)
    def same(text: str) -> None:
        text = text.strip() if isinstance(run.task, MaskedLanguageModeling) else text
        read = one_blank(text) if isinstance(run.task, PRETRAINING) else text
        assert theirs(text).input_ids == [*before, *ours.encode(read), *after]

    same()
    assert theirs.pad_token_id == ours.pad
    assert theirs.unk_token_id == ours.unk


def printed_by_the_card(folder: Path, names: dict[str, Any] | None = None) -> str:
    """What the code of the folder's model card prints when it is run there as it stands; `names` is what it defines."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    code, said = card.split("```python\n")[1].split("```\n")[0], io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        exec(compile(code, str(folder / "README.md"), "exec"), {} if names is None else names)
    return said.getvalue().strip()
