"""ELECTRA's discriminator and its generator under the names of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.exchange.encoder import CLASSIFICATION_HEAD, PLAIN_ENCODER, WORD_TABLE, Encoder
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import WeightNames


class ELECTRAEncoder(Encoder):
    """Clark et al. 2020, arXiv:2003.10555: the discriminator is what is fine-tuned; the generator
    predicts masked tokens."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        embedding = folder.number("embedding_size", 128)
        return {
            "next_sentence": False,
            "segment_vectors": 2,
            "embedding_width": None if embedding == folder.number("hidden_size") else embedding,
            "pooler": "gelu",
        }

    def own_settings(self, config: Any) -> dict[str, Any]:
        return {"type_vocab_size": 2, "embedding_size": config.embedding_width or config.width}

    def embedding_weights(self, config: Mapping[str, Any]) -> WeightNames:
        projection = (
            {"embedding.projection": "embeddings_project"} if config["embedding_width"] else {}
        )
        return {**super().embedding_weights(config), **projection}

    def is_written(self, config: Any) -> bool:
        return bool(
            config.pooler == "gelu" or config.replaced_head or config.embedding_width is not None
        )

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {
            "next_sentence": (False,),
            "segment_vectors": (2,),
            "first_position": (0,),
            "pooler": ("gelu",),
            "activation": ("gelu",),
            # the two are separate models there
            "masked_head": (False,) if _is_discriminator(config) else (False, True),
        }

    def weight_names(
        self, task: str, config: dict[str, Any], *, apart: bool = False
    ) -> dict[str, str]:
        """The discriminator alone is exchanged, if the model was pre-trained with a generator."""
        if config.get("generator_size") is not None:
            config = {**config, "masked_head": False}
        return super().weight_names(task, config, apart=apart)

    def pretrained_class(self, config: Any, theirs: Mapping[str, Tensor]) -> str:
        return (
            "ForPreTraining" if config.replaced_head else super().pretrained_class(config, theirs)
        )


def _is_discriminator(config: Any) -> bool:
    """Whether the model has no masked-LM head of its own beside the head for replaced tokens."""
    return bool(config.replaced_head and config.generator_size is None)


ELECTRA = ELECTRAEncoder(
    class_names={"electra": "Electra"},
    base="electra.",
    supported={
        **PLAIN_ENCODER,
        "type_vocab_size": (2,),
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    activations=("gelu",),
    pretrained_classes=("ForPreTraining", "ForMaskedLM", "Model"),
    pretraining_heads={
        "masked_head": {
            "output.W": "generator_predictions.dense",
            "output.norm": "generator_predictions.LayerNorm",
            "output.output.linear.bias": "generator_lm_head.bias",
        },
        "replaced_head": {
            "replaced.W": "discriminator_predictions.dense",
            "replaced.output": "discriminator_predictions.dense_prediction",
        },
    },
    heads={
        "classification": CLASSIFICATION_HEAD,
        "regression": CLASSIFICATION_HEAD,
        "multiple_choice": {"head.pooler": "sequence_summary.summary", "head.linear": "classifier"},
        "tagging": {"head.linear": "classifier"},
        "question_answering": {"head.linear": "qa_outputs"},
    },
    outside=(
        "generator_",
        "discriminator_predictions.",
        "sequence_summary.",
        "classifier.",
        "qa_outputs.",
    ),
    copies={"generator_lm_head.weight": WORD_TABLE},
)
ARCHITECTURE = ELECTRA.architecture()
