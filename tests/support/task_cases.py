"""Tasks to test with, from as little of a recipe as they read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from regard.data.prepare import Prepared, prepare
from regard.recipes.recipe import recipe_of
from regard.tasks import TASKS
from regard.tasks.translation import Translation
from regard.text.tokenizers import TokenizerConfig, Tokenizers

DATA: dict[str, Any] = {
    "translation": {"corpus": "reverse", "size": 10},
    "classification": {"file": "a.tsv", "text": "text", "label": "label"},
    "tagging": {"file": "a.conll"},
    "question_answering": {"file": "a.json"},
}


def make_task(name: str, tokenizers: Tokenizers, **sections: Any) -> Any:
    """A task of this name; `sections` are those of a recipe, `data` what it says besides the corpora."""
    data = {"train": DATA[name], **sections.pop("data", {})}
    model = sections.pop("model", {"kind": "bilstm" if "text" in tokenizers else "rnn", "preset": "tiny"})
    tree = {"task": name, "data": data, "model": model, "training": {"steps": 1}, **sections}
    return TASKS[name](recipe_of(tree), tokenizers)


def prepare_pairs(
    data: Any,
    tokenizer: TokenizerConfig,
    base: Path,
    *,
    seed: int = 1,
    tokenizers: Tokenizers | None = None,
    **more: Any,
) -> Prepared[Any]:
    """The pipeline for pairs of texts, from the sections that it reads."""
    training = SimpleNamespace(seed=seed)
    recipe: Any = SimpleNamespace(task="translation", data=data, tokenizer=tokenizer, training=training)
    return prepare(Translation, recipe, base, tokenizers, **more)
