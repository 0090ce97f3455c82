"""BERT under the names of `transformers`: alone, with the heads of its pre-training, or under the
head of a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.config import parse_yaml
from regard.errors import ConfigError, DataError
from regard.exchange.folder import (
    Architecture,
    Exported,
    Fields,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import prefixed, to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import read_tokenizer
from regard.runs.run import Run
from regard.runs.weights import stored_weights
from regard.text.tokenizers import Tokenizers

PRETRAINING = "masked_language_modeling"
PRETRAINED_ARCHITECTURES = (
    "BertModel",
    "BertForMaskedLM",
    "BertForPreTraining",
    "BertForNextSentencePrediction",
)
"""The architectures without the head of a task."""
HEAD_ARCHITECTURES = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
}
"""Task -> the architecture with its head."""
# the tasks whose head reads one vector for a text
POOLING_TASKS = ("classification", "regression", "multiple_choice")
POOLINGS = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
"""`head.pooling` -> its name in sentence-transformers."""
NAMED_CLASS_TASKS = ("classification", "tagging")  # the tasks whose classes have names
FIELDS: Fields = {
    "layers": ("num_hidden_layers", None),
    "width": ("hidden_size", None),
    "heads": ("num_attention_heads", None),
    "feed_forward": ("intermediate_size", None),
    "max_positions": ("max_position_embeddings", None),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "epsilon": ("layer_norm_eps", 1e-12),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""`hidden_act` -> `model.activation`."""
SUPPORTED_SETTINGS: dict[str, tuple[Any, ...]] = {
    "type_vocab_size": (2,),
    "position_embedding_type": ("absolute",),
    "hidden_act": tuple(ACTIVATIONS),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "problem_type": (None, "single_label_classification", "regression"),
}
WORD_TABLE = "embeddings.word_embeddings.weight"
TIED_WEIGHTS = {
    "cls.predictions.decoder.weight": WORD_TABLE,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Second name of a tensor -> its first name."""
# their names of weights that are not below the heads
HEAD_PREFIXES = ("cls.", "classifier.", "qa_outputs.")
MODEL_WEIGHTS = {
    "embedding.tokens.weight": WORD_TABLE,
    "embedding.segments.weight": "embeddings.token_type_embeddings.weight",
    "embedding.positions.learned.weight": "embeddings.position_embeddings.weight",
    "embedding.norm": "embeddings.LayerNorm",
}
LAYER_WEIGHTS = {
    "self_attention.W_Q": "attention.self.query",
    "self_attention.W_KV self_attention.W_KV": "attention.self.key attention.self.value",
    "self_attention.W_O": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.W_1": "intermediate.dense",
    "feed_forward.W_2": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
NEXT_SENTENCE_WEIGHTS = {
    "next_sentence.pooler": "pooler.dense",
    "next_sentence.output": "cls.seq_relationship",
}
MASKED_HEAD_WEIGHTS = {
    "output.W": "cls.predictions.transform.dense",
    "output.norm": "cls.predictions.transform.LayerNorm",
    "output.output.linear.bias": "cls.predictions.bias",
}
"""Our names of weights -> theirs: of the model, of a layer, and of the heads of pre-training."""
# the key in config.json of the sections of a recipe that `transformers` does not have
OWN_SECTIONS_KEY = "regard"


def read(folder: ModelFolder) -> Imported:
    """Read any of the architectures. The weights show which heads of its pre-training a BERT has;
    the classes of a fine-tuned one keep their names and their order."""
    folder.expect(SUPPORTED_SETTINGS)
    activation = ACTIVATIONS[folder.config.get("hidden_act", "gelu")]
    config = {"kind": "bert", **folder.fields(FIELDS), "activation": activation}
    theirs = each_once(folder.weights(), folder.name)
    if folder.architecture not in HEAD_ARCHITECTURES.values():
        task = PRETRAINING
        sections = {"data": {"max_length": config["max_positions"]}}
        config["next_sentence"] = "pooler.dense.weight" in theirs
        config["masked_head"] = "cls.predictions.transform.dense.weight" in theirs
        if config["next_sentence"] and "cls.seq_relationship.weight" not in theirs:
            # a pooler without the classifier above it: zeros give both classes the same probability
            theirs |= {"cls.seq_relationship.weight": torch.zeros(2, config["width"])}
            theirs |= {"cls.seq_relationship.bias": torch.zeros(2)}
    else:
        config |= {"next_sentence": False, "masked_head": False}
        task, sections = _read_head(folder, config)
    weights = to_ours(weight_names(task, config), theirs, folder.name)
    tokenizer = read_tokenizer(folder, len(theirs[WORD_TABLE]), begin="cls", end="sep")
    return Imported(task, config, weights, Tokenizers({"text": tokenizer}), sections)


def each_once(theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Each tensor once, without the prefix of a model under a head and with today's names for a
    norm's weights."""
    named = {
        name.removeprefix("bert.").replace(".gamma", ".weight").replace(".beta", ".bias"): tensor
        for name, tensor in theirs.items()
    }
    # constants in older files
    for table in ("embeddings.position_ids", "embeddings.token_type_ids"):
        named.pop(table, None)
    return without_copies(named, TIED_WEIGHTS, where)


def _read_head(
    folder: ModelFolder, config: dict[str, Any]
) -> tuple[str, dict[str, dict[str, Any]]]:
    """The task of a fine-tuned BERT, and the sections of its recipe."""
    names = folder.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    named = (
        [names.get(str(number)) for number in range(len(names))]
        if isinstance(names, dict)
        else [None]
    )
    if not all(isinstance(name, str | int | float) for name in named):
        what = "is not an object with the number and name of each class"
        where = f"{folder.config_path}: id2label"
        raise DataError(what, where=where, hint='for example {"0": "negative", "1": "positive"}')
    labels = [*map(str, named)]
    tasks = [
        task
        for task, architecture in HEAD_ARCHITECTURES.items()
        if architecture == folder.architecture
    ]
    task = tasks[-1] if len(labels) == 1 else tasks[0]
    dropout = folder.config.get("classifier_dropout")
    dropout = config["dropout"] if dropout is None else folder.real("classifier_dropout", dropout)
    head: dict[str, Any] = {"dropout": dropout}
    data: dict[str, Any] = {"max_length": config["max_positions"]}
    if task in NAMED_CLASS_TASKS:
        head["labels"] = labels
    if task == "question_answering":
        head["no_answer"] = _may_have_no_answer(folder)
    if task == "tagging" and any(label.startswith(("E-", "S-")) for label in labels):
        data["learned"] = "bioes"
    sections = {"data": data, "head": head, "evaluation": {}}
    own = folder.config.get(OWN_SECTIONS_KEY, {})
    if not isinstance(own, dict) or not all(isinstance(section, dict) for section in own.values()):
        where = f"{folder.config_path}: {OWN_SECTIONS_KEY}"
        raise DataError(
            "is not what 'regard export' writes there", where=where, hint="leave it out"
        )
    return task, {name: section | own.get(name, {}) for name, section in sections.items()}


def _may_have_no_answer(folder: ModelFolder) -> bool | None:
    """Whether some questions of the datasets that the model card lists have no answer; None if it
    lists none."""
    try:
        _, front, _ = (folder.path / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        datasets = parse_yaml(front, where="README.md").get("datasets")
    except (OSError, ValueError, ConfigError):  # a card may hold any text
        return None
    names = datasets if isinstance(datasets, list) else [datasets] if datasets else []
    return (
        any(str(name).rpartition("/")[2] in ("squad_v2", "klue") for name in names)
        if names
        else None
    )


def write(run: Run, checkpoint: str) -> Exported:
    """Write a BERT with the heads of pre-training that it has, or with the head of the run's
    task."""
    task = run.recipe.task
    config = run.recipe.model
    tokenizer = run.tokenizers["text"]
    apart = task in HEAD_ARCHITECTURES and getattr(run.recipe.head, "apart", False)  # type: ignore[attr-defined]
    if task in HEAD_ARCHITECTURES:
        allowed: dict[str, tuple[Any, ...]] = {"features": ("last",), "bilstm": (None,)}
        allowed |= {"pooling": ("first",)} if task in POOLING_TASKS and not apart else {}
        require_settings(run, "head", allowed, tool="transformers")
    names = weight_names(task, config.model_dump(), apart=apart)
    theirs = to_theirs(names, stored_weights(run.load_model(checkpoint)))
    next_sentence = [name for name in theirs if name.startswith("cls.seq_relationship.")]
    if task in HEAD_ARCHITECTURES:
        architecture = "BertModel" if apart else HEAD_ARCHITECTURES[task]
    elif config.masked_head:
        architecture = "BertForPreTraining" if config.next_sentence else "BertForMaskedLM"
    elif any(theirs[name].any() for name in next_sentence):
        architecture = "BertForNextSentencePrediction"
    else:
        architecture = "BertModel"
        for name in next_sentence:  # the zeros of a model that was imported with a pooler only
            del theirs[name]
    prefix = "" if architecture == "BertModel" else "bert."
    settings = {
        "model_type": "bert",
        "vocab_size": tokenizer.size,
        "type_vocab_size": 2,
        **config_fields(FIELDS, config),
        "hidden_act": {"gelu_tanh": "gelu_new"}.get(config.activation, config.activation),
        "pad_token_id": tokenizer.pad,
    }
    return Exported(
        architecture,
        settings | (_head_config(run) if task in HEAD_ARCHITECTURES and not apart else {}),
        {
            name if name.startswith(HEAD_PREFIXES) else prefix + name: tensor
            for name, tensor in theirs.items()
        },
        None,
        config.max_positions,
        files=_sentence_transformer(run) if apart else {},
        raw_text=task == PRETRAINING and bool(run.recipe.data.train),
        reads_masks=task == PRETRAINING,
    )


def _sentence_transformer(run: Run) -> dict[str, str]:
    """The files that sentence-transformers needs besides the model, to give the vector of a single
    text."""
    recipe: Any = run.recipe
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    files: dict[str, Any] = {
        "modules.json": [
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{name}",
            }
            for number, (path, name) in enumerate(modules)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": recipe.model.width,
            **{
                f"pooling_mode_{name}": ours == recipe.head.pooling
                for ours, name in POOLINGS.items()
            },
        },
        "sentence_bert_config.json": {
            "max_seq_length": recipe.data.max_length,
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
    }
    return {name: json.dumps(content, indent=1) for name, content in files.items()}


def _head_config(run: Run) -> dict[str, Any]:
    """The entries of config.json for the head and its classes, and for settings that only regard
    has."""
    task = run.recipe.task
    tree = run.recipe.model_dump()
    own = {
        "data": {
            key: value
            for key, value in tree["data"].items()
            if key not in ("train", "validation", "test")
        },
        "head": {
            key: value
            for key, value in tree["head"].items()
            if key != "labels" or task not in NAMED_CLASS_TASKS
        },
        "evaluation": tree["evaluation"],
    }
    labels = (
        tree["head"]["labels"]
        if task in NAMED_CLASS_TASKS
        else ["LABEL_0"]
        if task == "regression"
        else []
    )
    config = {"classifier_dropout": tree["head"]["dropout"], OWN_SECTIONS_KEY: own}
    if labels:
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    problem = {"regression": "regression", "classification": "single_label_classification"}.get(
        task
    )
    return config | ({"problem_type": problem} if problem else {})


def weight_names(task: str, config: dict[str, Any], *, apart: bool = False) -> dict[str, str]:
    """Our names of all weights -> theirs, with the heads of pre-training or that of the task,
    unless it compares texts that it reads `apart`."""
    table = dict(MODEL_WEIGHTS)
    for number in range(config["layers"]):
        table |= prefixed(f"blocks.{number}.", f"encoder.layer.{number}.", LAYER_WEIGHTS)
    if task not in HEAD_ARCHITECTURES:
        table |= NEXT_SENTENCE_WEIGHTS if config["next_sentence"] else {}
        return table | (MASKED_HEAD_WEIGHTS if config["masked_head"] else {})
    if apart:
        return prefixed("base.", "", table)
    pooler = {"head.pooler": "pooler.dense"} if task in POOLING_TASKS else {}
    linear = {"head.linear": "qa_outputs" if task == "question_answering" else "classifier"}
    return prefixed("base.", "", table) | pooler | linear


ARCHITECTURE = Architecture(
    {"bert": tuple(dict.fromkeys([*PRETRAINED_ARCHITECTURES, *HEAD_ARCHITECTURES.values()]))},
    read,
    [(PRETRAINING, "bert"), *((task, "bert") for task in HEAD_ARCHITECTURES)],
    write,
)
