"""The README.md of an exported model: what it is, what it was trained on, how good it was, how to use it."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from regard.config import write_yaml
from regard.exchange.card_code import example
from regard.exchange.exchanged import Exported
from regard.exchange.marian import unsaid
from regard.runs.checkpoints import load_facts
from regard.runs.run import Run

TAGS = {
    "BertModel": "feature-extraction",
    "BertForPreTraining": "fill-mask",
    "BertForMaskedLM": "fill-mask",
    "BertForNextSentencePrediction": "text-classification",
    "BertForSequenceClassification": "text-classification",
    "BertForTokenClassification": "token-classification",
    "BertForMultipleChoice": "multiple-choice",
    "BertForQuestionAnswering": "question-answering",
    "GPT2LMHeadModel": "text-generation",
}
"""Architecture -> what the Hub calls its task, where it is not called as here."""


def model_card(run: Run, exported: Exported, checkpoint: str) -> str:
    """The whole card; paths are shortened to the names of files."""
    tag = TAGS.get(exported.architecture, run.recipe.task)
    recipe: dict[str, Any] = _without_folders(run.recipe.model_dump())
    origin = run.environment.get("imported")
    front = {"library_name": "transformers", "pipeline_tag": tag, "tags": ["regard", run.recipe.task]}
    come = f"imported from `{_without_folders(origin['from'])}`" if origin else "trained with `regard train`"
    return f"""---
{write_yaml(front)}---

# {run.folder.resolve().name}

A {run.recipe.model.kind} for {run.recipe.task.replace("_", " ")}, exported by regard {run.environment["regard"]} as a
`{exported.architecture}`. It was {come}. It loads with transformers 5 or later.

```python
{example(run, exported.architecture)}
```
{_rules(run, exported)}
## Data

```yaml
{write_yaml(_said(recipe["data"]))}```

## Metrics

{_metrics(run, checkpoint)}

## Recipe

```yaml
{write_yaml(recipe)}```
"""


def _rules(run: Run, exported: Exported) -> str:
    """What the search has here and not there, after an empty line."""
    names = ", ".join(f"`{name}`" for name in unsaid(run.recipe.search)) if exported.generation else ""
    return (
        f"\nHere its search has {names}, too, which `generate` has no words for: the two may differ.\n" if names else ""
    )


def _metrics(run: Run, checkpoint: str) -> str:
    """The last validation up to the checkpoint, as a table."""
    step = load_facts(run.checkpoint(checkpoint)).get("step", 0)
    log = run.folder / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    validations = [line for line in lines if line.get("event") == "validation" and line.get("step", 0) <= step]
    if not validations:
        return "None were measured here."
    numbers = {name: value for name, value in validations[-1].items() if isinstance(value, float)}
    rows = [f"| {name.replace('_', ' ')} | {value:.4f} |" for name, value in numbers.items()]
    return "\n".join([f"On the validation data, after {step:,} steps:", "", "| metric | value |", "|---|---|", *rows])


def _said(node: Any) -> Any:
    """Without what was left open."""
    if isinstance(node, dict):
        return {key: _said(value) for key, value in node.items() if value not in (None, "")}
    return [_said(value) for value in node] if isinstance(node, list) else node


def _without_folders(node: Any) -> Any:
    """Where files lay on the machine of the training is nobody's business."""
    if isinstance(node, dict):
        return {key: _without_folders(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_folders(value) for value in node]
    return PurePath(node).name if isinstance(node, str) and PurePath(node).is_absolute() else node
