"""DistilBERT under the names of `transformers`."""

from __future__ import annotations

from typing import Any

from regard.exchange.encoder import PLAIN_ENCODER, WORD_TABLE, Encoder
from regard.exchange.folder import ModelFolder

POOLED_HEAD = {"head.pooler": "pre_classifier", "head.linear": "classifier"}


class DistilBERTEncoder(Encoder):
    """Sanh et al. 2019, arXiv:1910.01108: BERT with half of the layers and without segments."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        return {"next_sentence": False, "segment_vectors": 0, "pooler": "relu"}

    def is_written(self, config: Any) -> bool:
        return bool(config.segment_vectors == 0)

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {
            "next_sentence": (False,),
            "first_position": (0,),
            "embedding_width": (None,),
            "replaced_head": (False,),
            "pooler": ("relu",),
            "epsilon": (1e-12,),
            "activation": ("gelu", "relu"),
        }


DISTILBERT = DistilBERTEncoder(
    class_names={"distilbert": "DistilBert"},
    base="distilbert.",
    fields={
        "layers": ("n_layers", None),
        "width": ("dim", None),
        "heads": ("n_heads", None),
        "feed_forward": ("hidden_dim", None),
        "max_positions": ("max_position_embeddings", None),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
    },
    supported={
        name: values for name, values in PLAIN_ENCODER.items() if name != "position_embedding_type"
    },
    activation_key="activation",
    activations=("gelu", "relu"),
    head_dropout_key="seq_classif_dropout",
    layer="transformer.layer.",
    layer_weights={
        "self_attention.W_Q": "attention.q_lin",
        "self_attention.W_KV self_attention.W_KV": "attention.k_lin attention.v_lin",
        "self_attention.W_O": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "feed_forward.W_1": "ffn.lin1",
        "feed_forward.W_2": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
    },
    pretraining_heads={
        "masked_head": {
            "output.W": "vocab_transform",
            "output.norm": "vocab_layer_norm",
            "output.output.linear.bias": "vocab_projector.bias",
        },
    },
    heads={
        "classification": POOLED_HEAD,
        "regression": POOLED_HEAD,
        "multiple_choice": POOLED_HEAD,
        "tagging": {"head.linear": "classifier"},
        "question_answering": {"head.linear": "qa_outputs"},
    },
    outside=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
    copies={"vocab_projector.weight": WORD_TABLE},
)
ARCHITECTURE = DISTILBERT.architecture()
