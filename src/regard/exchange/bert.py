"""BERT, under the names of `transformers`: BertModel, with or without the heads of its pre-training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError
from regard.exchange.exchanged import Exported, Imported
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import Renaming, affine, joined, same, to_ours, to_theirs
from regard.exchange.vocabularies import read_tokenizer
from regard.runs.run import Run, stored_weights
from regard.text.tokenizers import Tokenizers

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
"""Their name -> ours."""
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Tables that stand in older files beside the weights."""


def read(folder: ModelFolder) -> Imported:
    """A BertModel, BertForMaskedLM or BertForPreTraining; which heads there are, the weights tell."""
    theirs = plain_weights(folder)
    config = read_config(folder) | {
        "next_sentence": "pooler.dense.weight" in theirs,
        "masked_head": "cls.predictions.transform.dense.weight" in theirs,
    }
    if config["next_sentence"] and "cls.seq_relationship.weight" not in theirs:
        # A pooler by itself: the next sentence is a toss-up, as zeros say.
        theirs |= {"cls.seq_relationship.weight": torch.zeros(2, config["width"])}
        theirs |= {"cls.seq_relationship.bias": torch.zeros(2)}
    weights = to_ours(renamings(config), theirs, folder.name)
    tokenizer = read_tokenizer(folder, len(weights["embedding.tokens.weight"]), begin="cls", end="sep")
    data = {"max_length": config["max_positions"]}
    return Imported("masked_language_modeling", config, weights, Tokenizers({"text": tokenizer}), {"data": data})


def read_config(folder: ModelFolder) -> dict[str, Any]:
    """The section `model`, but for the heads."""
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
    config = folder.config
    return {
        "kind": "bert",
        "layers": folder.number("num_hidden_layers"),
        "width": folder.number("hidden_size"),
        "heads": folder.number("num_attention_heads"),
        "feed_forward": folder.number("intermediate_size"),
        "max_positions": folder.number("max_position_embeddings"),
        "dropout": float(config.get("hidden_dropout_prob", 0.1)),
        "attention_dropout": float(config.get("attention_probs_dropout_prob", 0.1)),
        "activation": ACTIVATIONS[config.get("hidden_act", "gelu")],
        "epsilon": float(config.get("layer_norm_eps", 1e-12)),
    }


def plain_weights(folder: ModelFolder) -> dict[str, Tensor]:
    """Without the prefix of a model under a head, with today's names for a norm's weights, and each tensor once."""
    named = {
        name.removeprefix("bert.").replace(".gamma", ".weight").replace(".beta", ".bias"): tensor
        for name, tensor in folder.weights().items()
    }
    found = {name: tensor for name, tensor in named.items() if name not in IGNORED}
    _tied(folder, found)
    return found


def _tied(folder: ModelFolder, theirs: dict[str, Tensor]) -> None:
    """Forget second copies of what is one tensor here; refuse them where they differ."""
    copies = {
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    for copy, first in copies.items():
        if copy in theirs and not torch.equal(tensor := theirs.pop(copy), theirs.setdefault(first, tensor)):
            what = "the readout has other weights than the embeddings, which are one and the same here"
            raise DataError(what, where=f"{folder.name}: {copy}")


def write(run: Run, model: Any) -> Exported:
    """The BERT with the heads that it has."""
    config = run.recipe.model
    theirs = to_theirs(renamings(config.model_dump()), stored_weights(model))
    name, prefix = _architecture(config, theirs)
    weights = {name if name.startswith("cls.") else prefix + name: tensor for name, tensor in theirs.items()}
    return Exported(name, write_config(run), weights, around(run))


def around(run: Run) -> tuple[str, ...]:
    """What stands around one text, and around two."""
    tokenizer = run.tokenizers["text"]
    cls, sep = tokenizer.tokens([tokenizer.begin, tokenizer.end])
    return cls, "$A", sep, "$B", sep


def write_config(run: Run) -> dict[str, Any]:
    """config.json, but for what a head adds."""
    config, tokenizer = run.recipe.model, run.tokenizers["text"]
    return {
        "model_type": "bert",
        "vocab_size": tokenizer.size,
        "type_vocab_size": 2,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feed_forward,
        "max_position_embeddings": config.max_positions,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "hidden_act": {"gelu_tanh": "gelu_new"}.get(config.activation, config.activation),
        "layer_norm_eps": config.epsilon,
        "pad_token_id": tokenizer.pad,
    }


def _architecture(config: Any, theirs: dict[str, Tensor]) -> tuple[str, str]:
    """Its name there, and what stands before the names of the weights below its heads."""
    if config.masked_head:
        return ("BertForPreTraining" if config.next_sentence else "BertForMaskedLM"), "bert."
    next_sentence = [name for name in theirs if name.startswith("cls.")]
    if any(theirs[name].any() for name in next_sentence):
        return "BertForNextSentencePrediction", "bert."
    for name in next_sentence:  # the zeros of a model that came with a pooler only
        del theirs[name]
    return "BertModel", ""


def renamings(config: dict[str, Any]) -> list[Renaming]:
    """All weights of a BERT with these sizes and the heads of its pre-training."""
    pairs = body(config["layers"])
    if config["next_sentence"]:
        pairs += affine("next_sentence.pooler", "pooler.dense")
        pairs += affine("next_sentence.output", "cls.seq_relationship")
    if config["masked_head"]:
        pairs += affine("output.W", "cls.predictions.transform.dense")
        pairs += affine("output.norm", "cls.predictions.transform.LayerNorm")
        pairs += same("output.output.linear.bias", "cls.predictions.bias")
    return pairs


def body(layers: int, base: str = "") -> list[Renaming]:
    """The weights below all heads; `base` stands before our names."""
    pairs = [
        *same(f"{base}embedding.tokens.weight", "embeddings.word_embeddings.weight"),
        *same(f"{base}embedding.segments.weight", "embeddings.token_type_embeddings.weight"),
        *same(f"{base}embedding.positions.learned.weight", "embeddings.position_embeddings.weight"),
        *affine(f"{base}embedding.norm", "embeddings.LayerNorm"),
    ]
    for number in range(layers):
        pairs += _block(f"{base}blocks.{number}", f"encoder.layer.{number}")
    return pairs


def _block(ours: str, theirs: str) -> list[Renaming]:
    attention = f"{theirs}.attention"
    return [
        *affine(f"{ours}.self_attention.W_Q", f"{attention}.self.query"),
        *joined(f"{ours}.self_attention.W_KV", f"{attention}.self.key", f"{attention}.self.value"),
        *affine(f"{ours}.self_attention.W_O", f"{attention}.output.dense"),
        *affine(f"{ours}.attention_norm", f"{attention}.output.LayerNorm"),
        *affine(f"{ours}.feed_forward.W_1", f"{theirs}.intermediate.dense"),
        *affine(f"{ours}.feed_forward.W_2", f"{theirs}.output.dense"),
        *affine(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm"),
    ]
