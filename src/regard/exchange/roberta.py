"""RoBERTa, XLM-R and CamemBERT under the names of `transformers`: one architecture with three
tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.exchange.encoder import (
    LM_HEAD,
    LM_HEAD_COPIES,
    PLAIN_ENCODER,
    POOLER_WITHOUT_CLASSES,
    ROBERTA_HEAD_WEIGHTS,
    ROBERTA_HEADS,
    Encoder,
    check_positions_after_padding,
)
from regard.exchange.folder import ModelFolder


class RoBERTaEncoder(Encoder):
    """Liu et al. 2019, arXiv:1907.11692: BERT without next-sentence prediction. Its positions count
    from the token after padding."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        first = folder.number("pad_token_id", 1) + 1
        return {
            "segment_vectors": folder.config.get("type_vocab_size", 1),
            "first_position": first,
            "max_positions": folder.number("max_position_embeddings") - first,
        }

    def own_settings(self, config: Any) -> dict[str, Any]:
        return {
            "type_vocab_size": config.segment_vectors,
            "max_position_embeddings": config.first_position + config.max_positions,
        }

    def is_written(self, config: Any) -> bool:
        return bool(config.first_position > 0 or config.segment_vectors == 1)

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {
            "segment_vectors": (1, 2),
            "embedding_width": (None,),
            "replaced_head": (False,),
            "pooler": ("tanh",),
            "activation": ("gelu",),
        }

    def check_tokenizer(self, pad: int, config: Mapping[str, Any], where: str) -> None:
        check_positions_after_padding(pad, config, where)


ROBERTA = RoBERTaEncoder(
    class_names={"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
    base="roberta.",
    supported={**PLAIN_ENCODER, "type_vocab_size": (1, 2)},
    activations=("gelu",),
    pretraining_heads={"next_sentence": POOLER_WITHOUT_CLASSES, "masked_head": LM_HEAD},
    heads=ROBERTA_HEADS,
    outside=ROBERTA_HEAD_WEIGHTS,
    copies=LM_HEAD_COPIES,
)
ARCHITECTURE = ROBERTA.architecture()
