"""BERT under the names of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.exchange.encoder import ACTIVATIONS, PLAIN_ENCODER, WORD_TABLE, Encoder
from regard.exchange.folder import ModelFolder

POOLED_HEAD = {"head.pooler": "pooler.dense", "head.linear": "classifier"}


class BERTEncoder(Encoder):
    """Devlin et al. 2019: the pooler, trained by next-sentence prediction, is below the heads."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        return {"segment_vectors": 2}

    def own_settings(self, config: Any) -> dict[str, Any]:
        return {"type_vocab_size": 2}

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {
            "segment_vectors": (2,),
            "first_position": (0,),
            "embedding_width": (None,),
            "replaced_head": (False,),
            "pooler": ("tanh",),
        }

    def pretrained_class(self, config: Any, theirs: Mapping[str, Tensor]) -> str:
        if config.masked_head:
            return "ForPreTraining" if config.next_sentence else "ForMaskedLM"
        learned = [name for name in theirs if name.startswith("cls.seq_relationship.")]
        if any(theirs[name].any() for name in learned):
            return "ForNextSentencePrediction"
        return "Model"


BERT = BERTEncoder(
    class_names={"bert": "Bert"},
    activations=tuple(ACTIVATIONS),
    base="bert.",
    supported={**PLAIN_ENCODER, "type_vocab_size": (2,)},
    pretrained_classes=(
        "Model",
        "ForMaskedLM",
        "ForPreTraining",
        "ForNextSentencePrediction",
    ),
    pretraining_heads={
        "next_sentence": {
            "next_sentence.pooler": "pooler.dense",
            "next_sentence.output": "cls.seq_relationship",
        },
        "masked_head": {
            "output.W": "cls.predictions.transform.dense",
            "output.norm": "cls.predictions.transform.LayerNorm",
            "output.output.linear.bias": "cls.predictions.bias",
        },
    },
    heads={
        "classification": POOLED_HEAD,
        "regression": POOLED_HEAD,
        "multiple_choice": POOLED_HEAD,
        "tagging": {"head.linear": "classifier"},
        "question_answering": {"head.linear": "qa_outputs"},
    },
    outside=("cls.", "classifier.", "qa_outputs."),
    copies={
        "cls.predictions.decoder.weight": WORD_TABLE,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
ARCHITECTURE = BERT.architecture()
