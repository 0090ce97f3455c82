"""Encoders of `transformers`: alone, with the heads of their pre-training, or under the head of a
task.

An architecture is a subclass of `Encoder` in a file of its own, with its names of settings and
weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.config import parse_yaml
from regard.errors import CheckpointError, ConfigError, DataError
from regard.exchange.folder import (
    Architecture,
    Exported,
    Fields,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import WeightNames, prefixed, to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import read_tokenizer
from regard.runs.run import Run
from regard.runs.weights import stored_weights
from regard.text.tokenizers import Tokenizers

PRETRAINING = "masked_language_modeling"
HEAD_CLASSES = {
    "classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "multiple_choice": "ForMultipleChoice",
    "tagging": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
}
"""Task -> what the name of the architecture with its head ends in."""
# the tasks whose head reads one vector for a text
POOLING_TASKS = ("classification", "regression", "multiple_choice")
POOLINGS = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
"""`head.pooling` -> its name in sentence-transformers."""
NAMED_CLASS_TASKS = ("classification", "tagging")  # the tasks whose classes have names
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""Activation in config.json -> `model.activation`."""
SIZES: Fields = {
    "layers": ("num_hidden_layers", None),
    "width": ("hidden_size", None),
    "heads": ("num_attention_heads", None),
    "feed_forward": ("intermediate_size", None),
    "max_positions": ("max_position_embeddings", None),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "epsilon": ("layer_norm_eps", 1e-12),
}
"""The settings of BERT, which most of the others took over."""
PLAIN_ENCODER: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "problem_type": (None, "single_label_classification", "regression"),
}
"""Settings that no encoder has here in another form."""
WORD_TABLE = "embeddings.word_embeddings.weight"
EMBEDDING_WEIGHTS = {
    "embedding.tokens.weight": WORD_TABLE,
    "embedding.positions.learned.weight": "embeddings.position_embeddings.weight",
    "embedding.norm": "embeddings.LayerNorm",
}
CLASSIFICATION_HEAD = {"head.pooler": "classifier.dense", "head.linear": "classifier.out_proj"}
POOLER_WITHOUT_CLASSES = {
    "next_sentence.pooler": "pooler.dense",
    "next_sentence.output": "cls.seq_relationship",
}
"""The pooler of a model that was not trained on next sentences: its classes are zeros here."""
LM_HEAD = {
    "output.W": "lm_head.dense",
    "output.norm": "lm_head.layer_norm",
    "output.output.linear.bias": "lm_head.bias",
}
"""The masked head of RoBERTa, and of architectures that name it alike."""
LM_HEAD_COPIES = {"lm_head.decoder.weight": WORD_TABLE, "lm_head.decoder.bias": "lm_head.bias"}
ROBERTA_HEADS = {
    "classification": CLASSIFICATION_HEAD,
    "regression": CLASSIFICATION_HEAD,
    "multiple_choice": {"head.pooler": "pooler.dense", "head.linear": "classifier"},
    "tagging": {"head.linear": "classifier"},
    "question_answering": {"head.linear": "qa_outputs"},
}
ROBERTA_HEAD_WEIGHTS = ("lm_head.", "classifier.", "qa_outputs.")
SEGMENT_WEIGHTS = {"embedding.segments.weight": "embeddings.token_type_embeddings.weight"}
LAYER_WEIGHTS = {
    "self_attention.W_Q": "attention.self.query",
    "self_attention.W_KV self_attention.W_KV": "attention.self.key attention.self.value",
    "self_attention.W_O": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.W_1": "intermediate.dense",
    "feed_forward.W_2": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
"""Our names of weights -> those of BERT, which most of the others took over."""
# the key in config.json of the sections of a recipe that `transformers` does not have
OWN_SECTIONS_KEY = "regard"


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """An encoder under its names in `transformers`; the defaults are those of BERT."""

    kind: str = "bert"  # `model.kind`
    class_names: Mapping[str, str]
    """`model_type` -> what the names of its architectures begin with. The first one is written."""
    base: str
    """What the names of the weights below a head begin with."""
    fields: Fields = field(default_factory=lambda: SIZES)
    supported: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: PLAIN_ENCODER)
    """Settings that our model has in these forms only, the default first."""
    activation_key: str = "hidden_act"
    activations: Sequence[str] = ("gelu",)
    head_dropout_key: str = "classifier_dropout"
    pretrained_classes: Sequence[str] = ("Model", "ForMaskedLM")
    """What the names of the architectures without the head of a task end in."""
    word_table: str = WORD_TABLE
    layer: str = "encoder.layer."
    layer_weights: WeightNames = field(default_factory=lambda: LAYER_WEIGHTS)
    pretraining_heads: Mapping[str, WeightNames]
    """Field of the config -> the weights of that head of pre-training."""
    heads: Mapping[str, WeightNames]
    """Task -> the weights of its head."""
    poolings: tuple[str, ...] = ("first",)
    """The values of `head.pooling` that it has."""
    outside: tuple[str, ...]
    """What the names of weights begin with that are not below the heads."""
    copies: Mapping[str, str]
    """Second name of a tensor -> its first name."""
    unread: tuple[str, ...] = ()
    """Beginnings of the names of weights that these architectures never read."""

    # What differs between them

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        """The fields of our config that `fields` does not have."""
        return {}

    def own_settings(self, config: Any) -> dict[str, Any]:
        """The settings in config.json that `fields` does not have."""
        return {}

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        """Fields of our config with the values that this architecture can have."""
        return {}

    def embedding_weights(self, config: Mapping[str, Any]) -> WeightNames:
        segments = SEGMENT_WEIGHTS if config["segment_vectors"] else {}
        return EMBEDDING_WEIGHTS | segments

    def layer_names(self, config: Mapping[str, Any], number: int) -> WeightNames:
        return self.layer_weights

    def own_head(self, folder: ModelFolder, task: str) -> dict[str, Any]:
        """The settings of the head of a task that are in config.json under other names."""
        return {}

    def head_settings(self, pooling: str) -> dict[str, Any]:
        """The settings in config.json for a head that makes one vector of a text."""
        return {}

    def has_segments(self, config: Mapping[str, Any]) -> bool:
        """Whether the model tells two texts apart by their segments."""
        return bool(config["segment_vectors"] == 2)

    def is_written(self, config: Any) -> bool:
        """Whether a model of ours with this config is this architecture in `transformers`."""
        return True

    def check_tokenizer(self, pad: int, config: Mapping[str, Any], where: str) -> None:
        """Refuse a tokenizer that does not fit the model's positions."""

    def pretrained_class(self, config: Any, theirs: Mapping[str, Tensor]) -> str:
        return "ForMaskedLM" if config.masked_head else "Model"

    # Import

    def read(self, folder: ModelFolder) -> Imported:
        """Read any of the architectures. The weights show which heads of its pre-training a model
        has; the classes of a fine-tuned one keep their names and their order."""
        activation = folder.config.get(self.activation_key, "gelu")
        folder.expect({**self.supported, self.activation_key: ("gelu", *self.activations)})
        config = {"kind": self.kind, **folder.fields(self.fields)}
        config |= {"activation": ACTIVATIONS[activation], **self.own_fields(folder)}
        tasks = self.tasks_of(folder.architecture)
        theirs = self.each_once(folder.weights(), folder.name)
        if tasks:
            config |= dict.fromkeys(self.pretraining_heads, False)
            task, sections = self._read_head(folder, config, tasks)
            theirs = self.without_unused_pooler(theirs, task)
        else:
            task = PRETRAINING
            sections = {"data": {"max_length": config["max_positions"]}}
            for head, names in self.pretraining_heads.items():
                first = next(iter(names.values()))
                config[head] = first in theirs or f"{first}.weight" in theirs
            theirs = self.completed(theirs, config)
        rows = len(theirs.get(self.word_table, ()))
        weights = to_ours(self.weight_names(task, config), theirs, folder.name)
        tokenizer = read_tokenizer(
            folder,
            rows,
            begin="cls",
            end="sep",
            segments=self.has_segments(config),
        )
        self.check_tokenizer(tokenizer.pad, config, folder.name)
        return Imported(task, config, weights, Tokenizers({"text": tokenizer}), sections)

    def tasks_of(self, architecture: str | None) -> list[str]:
        """The tasks of the head that an architecture has; none for a pre-trained one."""
        return [
            task
            for task, end in HEAD_CLASSES.items()
            if architecture and architecture.endswith(end)
        ]

    def each_once(self, theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Each tensor once, without the prefix of a model under a head and with today's names for a
        norm's weights."""
        named = {
            name.removeprefix(self.base)
            .replace(".gamma", ".weight")
            .replace(".beta", ".bias"): tensor
            for name, tensor in theirs.items()
        }
        # constants in older files
        constants = ("embeddings.position_ids", "embeddings.token_type_ids")
        unread = constants + self.unread
        return without_copies(
            {name: tensor for name, tensor in named.items() if not name.startswith(unread)},
            self.copies,
            where,
        )

    def without_unused_pooler(self, theirs: dict[str, Tensor], task: str) -> dict[str, Tensor]:
        """The weights without the pooler of pre-training, which older files keep under a head that
        does not read it."""
        if any(name.startswith("pooler.") for name in self.heads[task].values()):
            return theirs
        return {name: w for name, w in theirs.items() if not name.startswith("pooler.")}

    def completed(self, theirs: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
        """The weights of a pre-trained model, with those that its pooler lacks to predict the next
        sentence: zeros give both classes the same probability."""
        if config.get("next_sentence") and "cls.seq_relationship.weight" not in theirs:
            theirs |= {"cls.seq_relationship.weight": torch.zeros(2, config["width"])}
            theirs |= {"cls.seq_relationship.bias": torch.zeros(2)}
        return theirs

    def _read_head(
        self, folder: ModelFolder, config: dict[str, Any], tasks: Sequence[str]
    ) -> tuple[str, dict[str, dict[str, Any]]]:
        """The task of a fine-tuned model, one of `tasks`, and the sections of its recipe."""
        names = folder.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        named = (
            [names.get(str(number)) for number in range(len(names))]
            if isinstance(names, dict)
            else [None]
        )
        if not all(isinstance(name, str | int | float) for name in named):
            what = "is not an object with the number and name of each class"
            where = f"{folder.config_path}: id2label"
            raise DataError(
                what, where=where, hint='for example {"0": "negative", "1": "positive"}'
            )
        labels = [*map(str, named)]
        task = tasks[-1] if len(labels) == 1 else tasks[0]
        key = self.head_dropout_key
        dropout = folder.config.get(key)
        dropout = config["dropout"] if dropout is None else folder.real(key, dropout)
        head: dict[str, Any] = {"dropout": dropout}
        data: dict[str, Any] = {"max_length": config["max_positions"]}
        head |= self.own_head(folder, task) if task in POOLING_TASKS else {}
        if task in NAMED_CLASS_TASKS:
            head["labels"] = labels
        if task == "question_answering":
            head["no_answer"] = _may_have_no_answer(folder)
        if task == "tagging" and any(label.startswith(("E-", "S-")) for label in labels):
            data["learned"] = "bioes"
        sections = {"data": data, "head": head, "evaluation": {}}
        own = folder.config.get(OWN_SECTIONS_KEY, {})
        if not isinstance(own, dict) or not all(
            isinstance(section, dict) for section in own.values()
        ):
            where = f"{folder.config_path}: {OWN_SECTIONS_KEY}"
            raise DataError(
                "is not what 'regard export' writes there", where=where, hint="leave it out"
            )
        return task, {name: section | own.get(name, {}) for name, section in sections.items()}

    # Export

    def write(self, run: Run, checkpoint: str) -> Exported:
        """Write a model with the heads of pre-training that it has, or with the head of the run's
        task."""
        task = run.recipe.task
        config = run.recipe.model
        tokenizer = run.tokenizers["text"]
        apart = task in HEAD_CLASSES and getattr(run.recipe.head, "apart", False)  # type: ignore[attr-defined]
        require_settings(run, "model", self.requires(config), tool="transformers")
        if task in HEAD_CLASSES:
            allowed: dict[str, tuple[Any, ...]] = {"features": ("last",), "bilstm": (None,)}
            allowed |= {"pooling": self.poolings} if task in POOLING_TASKS and not apart else {}
            require_settings(run, "head", allowed, tool="transformers")
        self.check_tokenizer(tokenizer.pad, config.model_dump(), str(run.folder))
        names = self.weight_names(task, config.model_dump(), apart=apart)
        theirs = to_theirs(names, stored_weights(run.load_model(checkpoint)))
        if task in HEAD_CLASSES:
            end = "Model" if apart else HEAD_CLASSES[task]
        else:
            end = self.pretrained_class(config, theirs)
            theirs = self.without_zeros(theirs, end, str(run.folder))
        model_type, class_name = next(iter(self.class_names.items()))
        prefix = "" if end == "Model" else self.base
        activation = {"gelu_tanh": "gelu_new"}.get(config.activation, config.activation)
        settings = {
            "model_type": model_type,
            "vocab_size": tokenizer.size,
            **config_fields(self.fields, config),
            self.activation_key: activation,
            "pad_token_id": tokenizer.pad,
            **self.own_settings(config),
        }
        return Exported(
            class_name + end,
            settings | (self._head_config(run) if task in HEAD_CLASSES and not apart else {}),
            {
                name if name.startswith(self.outside) else prefix + name: tensor
                for name, tensor in theirs.items()
            },
            None,
            config.max_positions,
            files=_sentence_transformer(run) if apart else {},
            end=end,
            raw_text=task == PRETRAINING and bool(run.recipe.data.train),
            reads_masks=task == PRETRAINING,
            segments=self.has_segments(config.model_dump()),
        )

    def without_zeros(self, theirs: dict[str, Tensor], end: str, where: str) -> dict[str, Tensor]:
        """The weights without the zeros of a model that was imported with a pooler only."""
        if end in ("ForPreTraining", "ForNextSentencePrediction"):
            return theirs
        learned = [name for name in theirs if name.startswith("cls.seq_relationship.")]
        if any(theirs[name].any() for name in learned):
            what = "transformers has no head for model.next_sentence: true in this architecture"
            raise CheckpointError(
                what, where=where, hint="model.next_sentence: false can be exported"
            )
        return {name: tensor for name, tensor in theirs.items() if name not in learned}

    def _head_config(self, run: Run) -> dict[str, Any]:
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
        config = {self.head_dropout_key: tree["head"]["dropout"], OWN_SECTIONS_KEY: own}
        if task in POOLING_TASKS:
            config |= self.head_settings(tree["head"]["pooling"])
        if labels:
            config["id2label"] = {str(number): label for number, label in enumerate(labels)}
            config["label2id"] = {label: number for number, label in enumerate(labels)}
        problem = {"regression": "regression", "classification": "single_label_classification"}.get(
            task
        )
        return config | ({"problem_type": problem} if problem else {})

    def weight_names(
        self, task: str, config: dict[str, Any], *, apart: bool = False
    ) -> dict[str, str]:
        """Our names of all weights -> theirs, with the heads of pre-training or that of the task,
        unless it compares texts that it reads `apart`."""
        table = dict(self.embedding_weights(config))
        for number in range(config["layers"]):
            names = self.layer_names(config, number)
            table |= prefixed(f"blocks.{number}.", f"{self.layer}{number}.", names)
        if task not in HEAD_CLASSES:
            for head, names in self.pretraining_heads.items():
                table |= names if config[head] else {}
            return table
        return prefixed("base.", "", table) | ({} if apart else dict(self.heads[task]))

    def architecture(self) -> Architecture:
        ends = dict.fromkeys([*self.pretrained_classes, *HEAD_CLASSES.values()])
        return Architecture(
            {
                model_type: tuple(name + end for end in ends)
                for model_type, name in self.class_names.items()
            },
            self.read,
            [(task, self.kind) for task in (PRETRAINING, *HEAD_CLASSES)],
            self.write,
            self.is_written,
        )


def check_positions_after_padding(pad: int, config: Mapping[str, Any], where: str) -> None:
    """Refuse a tokenizer whose padding token is not right before the first position, as in RoBERTa
    and MPNet."""
    first = config["first_position"]
    if pad != first - 1:
        what = (
            f"the tokenizer pads with token {pad}, but the positions count from token {first - 1}"
        )
        raise DataError(what, where=where, hint="the two must come from the same model")


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
