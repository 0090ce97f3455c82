"""BERT under the head of a fine-tuned task, under the names of `transformers`."""

from __future__ import annotations

from typing import Any

from regard.errors import CheckpointError, DataError
from regard.exchange.bert import around, body, plain_weights, read_config, write_config
from regard.exchange.exchanged import Exported, Imported
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import Renaming, affine, to_ours, to_theirs
from regard.exchange.vocabularies import read_tokenizer
from regard.runs.run import Run, stored_weights
from regard.text.tokenizers import Tokenizers

ARCHITECTURES = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
}
"""Our task -> their architecture."""
POOLED = ("classification", "regression", "multiple_choice")
"""The tasks whose head reads one vector for a text."""
NAMED = ("classification", "tagging")
"""The tasks whose classes have names."""
OWN = "regard"
"""The key in config.json of what `transformers` has no words for."""
KEPT: dict[str, tuple[str, ...]] = {
    "data": ("max_length", "long", "stride", "max_question", "words", "learned"),
    "head": ("labels", "no_answer", "both_orders"),
    "evaluation": ("script", "longest_answer", "threshold"),
}
"""That is what answers hang on besides the weights: section of a recipe -> its keys, as far as the task has them."""
UNANSWERABLE = ("squad_v2", "klue")
"""Datasets on the Hub in which some questions have no answer."""


def read(folder: ModelFolder) -> Imported:
    """A fine-tuned BERT; its classes keep their names and their order."""
    folder.expect({"problem_type": (None, "single_label_classification", "regression")})
    architecture, labels = folder.config["architectures"][0], _labels(folder)
    tasks = [task for task, name in ARCHITECTURES.items() if name == architecture]
    task = tasks[-1] if len(labels) == 1 else tasks[0]
    config = read_config(folder) | {"next_sentence": False, "masked_head": False}
    weights = to_ours(renamings(task, config["layers"]), plain_weights(folder), folder.name)
    tokenizer = read_tokenizer(folder, len(weights["base.embedding.tokens.weight"]), begin="cls", end="sep")
    dropout = folder.config.get("classifier_dropout")
    head: dict[str, Any] = {"dropout": config["dropout"] if dropout is None else float(dropout)}
    if task in NAMED:
        head["labels"] = labels
    if task == "question_answering" and folder.datasets:
        head["no_answer"] = any(name.rpartition("/")[2] in UNANSWERABLE for name in folder.datasets)
    own, data = _own(folder), {"max_length": config["max_positions"]}
    if task == "tagging" and any(label.startswith(("E-", "S-")) for label in labels):
        data["learned"] = "bioes"
    sections = {name: settings for name, settings in own.items() if settings}
    sections |= {"data": data | own["data"], "head": head | own["head"]}
    return Imported(task, config, weights, Tokenizers({"text": tokenizer}), sections)


def _labels(folder: ModelFolder) -> list[str]:
    names = folder.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    return [str(names[number]) for number in sorted(names, key=int)]


def _own(folder: ModelFolder) -> dict[str, dict[str, Any]]:
    """What a model of ours says of itself beyond what `transformers` reads."""
    told = folder.config.get(OWN, {})
    if not isinstance(told, dict) or not all(isinstance(section, dict) for section in told.values()):
        where = f"{folder.path / 'config.json'}: {OWN}"
        raise DataError("is not what 'regard export' writes there", where=where, hint="leave it out")
    return {
        name: {key: value for key, value in told.get(name, {}).items() if key in keys} for name, keys in KEPT.items()
    }


def write(run: Run, model: Any) -> Exported:
    """The architecture that has this task's head."""
    recipe: Any = run.recipe
    task, head = recipe.task, recipe.head
    wanted: dict[str, Any] = {"apart": False, "features": "last", "bilstm": None}
    wanted |= {"pooling": "first"} if task in POOLED else {}
    for name, value in ((name, value) for name, value in wanted.items() if hasattr(head, name)):
        if getattr(head, name) != value:
            what = f"transformers has no head like one with {name}: {str(getattr(head, name)).lower()}"
            hint = f"one with head.{name}: {'null' if value is None else str(value).lower()} can be exported"
            raise CheckpointError(what, where=str(run.folder), hint=hint)
    theirs = to_theirs(renamings(task, recipe.model.layers), stored_weights(model))
    config = write_config(run) | {"classifier_dropout": head.dropout} | _classes(task, head)
    config[OWN] = {name: _kept(task, getattr(recipe, name), keys) for name, keys in KEPT.items()}
    weights = {name if _is_head(name) else f"bert.{name}": tensor for name, tensor in theirs.items()}
    return Exported(ARCHITECTURES[task], config, weights, around(run))


def _kept(task: str, section: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Of classes with names config.json tells these anyway."""
    told = ("labels",) if task in NAMED else ()
    return {key: getattr(section, key) for key in keys if hasattr(section, key) and key not in told}


def _classes(task: str, head: Any) -> dict[str, Any]:
    """What config.json says of the classes."""
    if task == "regression":
        return {"problem_type": "regression", "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if task not in NAMED:
        return {}
    single = {"problem_type": "single_label_classification"} if task == "classification" else {}
    return single | {
        "id2label": {str(number): label for number, label in enumerate(head.labels)},
        "label2id": {label: number for number, label in enumerate(head.labels)},
    }


def renamings(task: str, layers: int) -> list[Renaming]:
    """All weights of a BERT under the head of a task."""
    pairs = body(layers, "base.")
    if task in POOLED:
        pairs += affine("head.pooler", "pooler.dense")
    return pairs + affine("head.linear", "qa_outputs" if task == "question_answering" else "classifier")


def _is_head(name: str) -> bool:
    return name.startswith(("classifier.", "qa_outputs."))
