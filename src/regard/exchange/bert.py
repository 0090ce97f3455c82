"""BERT under the names of `transformers`: alone, with the heads of its pre-training, or under the head of a task."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError
from regard.exchange.folder import Exported, Fields, Imported, ModelFolder, config_fields, require_settings
from regard.exchange.renaming import Renaming, affine, joined, same, to_ours, to_theirs
from regard.exchange.tokenizers import read_tokenizer
from regard.runs.run import Run, stored_weights
from regard.text.tokenizers import Tokenizers

PRETRAINED = ("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForNextSentencePrediction")
"""The architectures without the head of a task."""
HEADED = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
}
"""Task -> the architecture with its head."""
POOLED = ("classification", "regression", "multiple_choice")
"""The tasks whose head reads one vector for a text."""
NAMED = ("classification", "tagging")
"""The tasks whose classes have names."""
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
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
"""`hidden_act` -> `model.activation`."""
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constant tables that older files have beside the weights."""
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Second names of one tensor."""
OWN = "regard"
"""The key in config.json of settings that `transformers` does not have."""
KEPT: dict[str, tuple[str, ...]] = {
    "data": ("max_length", "long", "stride", "max_question", "words", "learned"),
    "head": ("labels", "no_answer", "both_orders"),
    "evaluation": ("script", "longest_answer", "threshold"),
}
"""Those settings: section of a recipe -> its keys that predictions depend on, as far as the task has them."""
WITH_NO_ANSWER = ("squad_v2", "klue")
"""Datasets on the Hub in which some questions have no answer."""


def read(folder: ModelFolder) -> Imported:
    """A BertModel, BertForMaskedLM or BertForPreTraining; the weights show which heads it has."""
    theirs = _read_weights(folder)
    config = _read_config(folder) | {
        "next_sentence": "pooler.dense.weight" in theirs,
        "masked_head": "cls.predictions.transform.dense.weight" in theirs,
    }
    if config["next_sentence"] and "cls.seq_relationship.weight" not in theirs:
        # a pooler without the classifier above it: zeros give both classes the same probability
        theirs |= {"cls.seq_relationship.weight": torch.zeros(2, config["width"])}
        theirs |= {"cls.seq_relationship.bias": torch.zeros(2)}
    weights = to_ours(_pretrained(config), theirs, folder.name)
    tokenizer = read_tokenizer(folder, len(weights["embedding.tokens.weight"]), begin="cls", end="sep")
    data = {"max_length": config["max_positions"]}
    return Imported("masked_language_modeling", config, weights, Tokenizers({"text": tokenizer}), {"data": data})


def read_headed(folder: ModelFolder) -> Imported:
    """A fine-tuned BERT; its classes keep their names and their order."""
    folder.expect({"problem_type": (None, "single_label_classification", "regression")})
    architecture, labels = folder.config["architectures"][0], _labels(folder)
    tasks = [task for task, name in HEADED.items() if name == architecture]
    task = tasks[-1] if len(labels) == 1 else tasks[0]
    config = _read_config(folder) | {"next_sentence": False, "masked_head": False}
    weights = to_ours(_headed(task, config["layers"]), _read_weights(folder), folder.name)
    tokenizer = read_tokenizer(folder, len(weights["base.embedding.tokens.weight"]), begin="cls", end="sep")
    dropout = folder.config.get("classifier_dropout")
    head: dict[str, Any] = {"dropout": config["dropout"] if dropout is None else float(dropout)}
    data: dict[str, Any] = {"max_length": config["max_positions"]}
    if task in NAMED:
        head["labels"] = labels
    if task == "question_answering" and folder.datasets:
        head["no_answer"] = any(name.rpartition("/")[2] in WITH_NO_ANSWER for name in folder.datasets)
    if task == "tagging" and any(label.startswith(("E-", "S-")) for label in labels):
        data["learned"] = "bioes"
    own = _read_own(folder)
    sections = {name: settings for name, settings in own.items() if settings}
    sections |= {"data": data | own["data"], "head": head | own["head"]}
    return Imported(task, config, weights, Tokenizers({"text": tokenizer}), sections)


def _labels(folder: ModelFolder) -> list[str]:
    names = folder.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    return [str(names[number]) for number in sorted(names, key=int)]


def _read_own(folder: ModelFolder) -> dict[str, dict[str, Any]]:
    """The settings that `regard export` has written into config.json."""
    own = folder.config.get(OWN, {})
    if not isinstance(own, dict) or not all(isinstance(section, dict) for section in own.values()):
        where = f"{folder.config_path}: {OWN}"
        raise DataError("is not what 'regard export' writes there", where=where, hint="leave it out")
    return {
        name: {key: value for key, value in own.get(name, {}).items() if key in keys} for name, keys in KEPT.items()
    }


def _read_config(folder: ModelFolder) -> dict[str, Any]:
    """The section `model`, except for the heads."""
    folder.expect(
        {
            "type_vocab_size": (2,),
            "position_embedding_type": ("absolute",),
            "hidden_act": tuple(ACTIVATIONS),
            "is_decoder": (False,),
            "add_cross_attention": (False,),
            "tie_word_embeddings": (True,),
        }
    )
    activation = ACTIVATIONS[folder.config.get("hidden_act", "gelu")]
    return {"kind": "bert", **folder.fields(FIELDS), "activation": activation}


def _read_weights(folder: ModelFolder) -> dict[str, Tensor]:
    """Each tensor once, without the prefix of a model under a head and with today's names for a norm's weights."""
    theirs = {
        name.removeprefix("bert.").replace(".gamma", ".weight").replace(".beta", ".bias"): tensor
        for name, tensor in folder.weights().items()
    }
    for copy, first in TIED.items():
        if copy in theirs and not torch.equal(tensor := theirs.pop(copy), theirs.setdefault(first, tensor)):
            what = "the readout has other weights than the embeddings, which are one and the same here"
            raise DataError(what, where=f"{folder.name}: {copy}")
    return {name: tensor for name, tensor in theirs.items() if name not in IGNORED}


def write(run: Run, checkpoint: str) -> Exported:
    """A BERT with the heads of its pre-training that it has."""
    config = run.recipe.model
    theirs = to_theirs(_pretrained(config.model_dump()), stored_weights(run.load_model(checkpoint)))
    next_sentence = [name for name in theirs if name.startswith("cls.seq_relationship.")]
    if config.masked_head:
        architecture = "BertForPreTraining" if config.next_sentence else "BertForMaskedLM"
    elif any(theirs[name].any() for name in next_sentence):
        architecture = "BertForNextSentencePrediction"
    else:
        architecture = "BertModel"
        for name in next_sentence:  # the zeros of a model that was imported with a pooler only
            del theirs[name]
    prefix = "" if architecture == "BertModel" else "bert."
    weights = {name if name.startswith("cls.") else prefix + name: tensor for name, tensor in theirs.items()}
    return Exported(architecture, _config(run), weights, _template(run), raw_text=bool(run.recipe.data.train))


def write_headed(run: Run, checkpoint: str) -> Exported:
    """A BERT under the head of the run's task."""
    recipe: Any = run.recipe
    task, head = recipe.task, recipe.head
    allowed: dict[str, tuple[Any, ...]] = {"apart": (False,), "features": ("last",), "bilstm": (None,)}
    allowed |= {"pooling": ("first",)} if task in POOLED else {}
    require_settings(head, allowed, path="head", tool="transformers", where=run.folder)
    theirs = to_theirs(_headed(task, recipe.model.layers), stored_weights(run.load_model(checkpoint)))
    own = {
        name: {key: getattr(section, key) for key in keys if hasattr(section, key)}
        for name, keys in KEPT.items()
        for section in [getattr(recipe, name)]
    }
    if task in NAMED:
        del own["head"]["labels"]  # they are in id2label
    config = _config(run) | {"classifier_dropout": head.dropout} | _classes(task, head) | {OWN: own}
    heads = ("classifier.", "qa_outputs.")
    weights = {name if name.startswith(heads) else f"bert.{name}": tensor for name, tensor in theirs.items()}
    return Exported(HEADED[task], config, weights, _template(run))


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


def _template(run: Run) -> tuple[str, ...]:
    tokenizer = run.tokenizers["text"]
    cls, sep = tokenizer.tokens([tokenizer.begin, tokenizer.end])
    return cls, "$A", sep, "$B", sep


def _config(run: Run) -> dict[str, Any]:
    """config.json, except for what a head adds."""
    config, tokenizer = run.recipe.model, run.tokenizers["text"]
    return {
        "model_type": "bert",
        "vocab_size": tokenizer.size,
        "type_vocab_size": 2,
        **config_fields(FIELDS, config),
        "hidden_act": {"gelu_tanh": "gelu_new"}.get(config.activation, config.activation),
        "pad_token_id": tokenizer.pad,
    }


def _pretrained(config: dict[str, Any]) -> list[Renaming]:
    """All weights of a BERT of this config with the heads of its pre-training."""
    pairs = _body(config["layers"])
    if config["next_sentence"]:
        pairs += affine("next_sentence.pooler", "pooler.dense")
        pairs += affine("next_sentence.output", "cls.seq_relationship")
    if config["masked_head"]:
        pairs += affine("output.W", "cls.predictions.transform.dense")
        pairs += affine("output.norm", "cls.predictions.transform.LayerNorm")
        pairs += same("output.output.linear.bias", "cls.predictions.bias")
    return pairs


def _headed(task: str, layers: int) -> list[Renaming]:
    """All weights of a BERT under the head of a task."""
    pairs = _body(layers, "base.")
    if task in POOLED:
        pairs += affine("head.pooler", "pooler.dense")
    return pairs + affine("head.linear", "qa_outputs" if task == "question_answering" else "classifier")


def _body(layers: int, base: str = "") -> list[Renaming]:
    """The weights below all heads; `base` is the prefix of our names."""
    pairs = [
        *same(f"{base}embedding.tokens.weight", "embeddings.word_embeddings.weight"),
        *same(f"{base}embedding.segments.weight", "embeddings.token_type_embeddings.weight"),
        *same(f"{base}embedding.positions.learned.weight", "embeddings.position_embeddings.weight"),
        *affine(f"{base}embedding.norm", "embeddings.LayerNorm"),
    ]
    for number in range(layers):
        ours, theirs = f"{base}blocks.{number}", f"encoder.layer.{number}"
        pairs += affine(f"{ours}.self_attention.W_Q", f"{theirs}.attention.self.query")
        pairs += joined(f"{ours}.self_attention.W_KV", f"{theirs}.attention.self.key", f"{theirs}.attention.self.value")
        pairs += affine(f"{ours}.self_attention.W_O", f"{theirs}.attention.output.dense")
        pairs += affine(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        pairs += affine(f"{ours}.feed_forward.W_1", f"{theirs}.intermediate.dense")
        pairs += affine(f"{ours}.feed_forward.W_2", f"{theirs}.output.dense")
        pairs += affine(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return pairs
