"""Our models against those of `transformers` with the same weights: logits, losses, layers,
attention, a cache.

GPT is held against OpenAI's post-norm GPT and against GPT-2, BERT against BertForPreTraining, the
Transformer against Marian. The weights go through the tables of exchange/; test_exchange.py tests
whole folders.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from exchange_cases import near, small_marian
from language_model_cases import PAIRS, TEXTS, masked_batch, text_batch
from model_cases import (
    IGNORED,
    SOURCES,
    TARGETS,
    batch_of,
    labels_of,
    tokens_of,
    with_weights_that_matter,
)
from regard.data.batches import Padded
from regard.exchange import bert, gpt2
from regard.exchange.encoder import PRETRAINING
from regard.exchange.renaming import to_ours
from regard.layers.attention import recording
from regard.models.bert import BERT, BERTConfig
from regard.models.gpt import GPT, GPTConfig
from regard.objectives.cross_entropy import TokenCrossEntropy, VocabularyLoss
from regard.objectives.language_model import MaskedTokens, NextToken

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {"layers": 2, "width": 16, "heads": 4, "max_positions": 20, "dropout": 0.0}
VOCABULARY = 13


@dataclass(frozen=True)
class Pair:
    """Two models with the same weights, a batch for both, and how many positions of each row
    count."""

    ours: Any
    theirs: Any
    objective: VocabularyLoss
    batch: Any
    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]
    lengths: Sequence[int]

    def same(
        self, ours_B: Tensor, theirs_B: Tensor, lengths: Sequence[int] | None = None, axis: int = 0
    ) -> None:
        for row, length in enumerate(lengths or self.lengths):
            near(ours_B[row].narrow(axis, 0, length), theirs_B[row].narrow(axis, 0, length))


def read_by(text: Padded) -> dict[str, Tensor]:
    real_BL = torch.arange(text.ids_BL.shape[1]) < text.lengths_B[:, None]
    return {"input_ids": text.ids_BL, "attention_mask": real_BL.long()}


def gpts(norm: str) -> Pair:
    common = {"vocab_size": VOCABULARY, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 4}
    common |= {
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "attn_implementation": "eager",
    }
    common |= {"bos_token_id": 2, "eos_token_id": 3}
    torch.manual_seed(0)
    if norm == "pre":
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**common, n_inner=24))
    else:  # its inner width is four times the outer one, always
        theirs = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**common))
    with_weights_that_matter(theirs)
    ours = GPT(GPTConfig(**SIZES, feed_forward=24 if norm == "pre" else 64, norm=norm), VOCABULARY)  # type: ignore[arg-type]
    old = {"tokens_embed": "wte", "positions_embed": "wpe"}
    weights = {
        ".".join(old.get(part, part) for part in name.split(".")): tensor
        for name, tensor in theirs.state_dict().items()
    }
    names = weight_names = gpt2.weight_names(2)
    if norm == "post":
        names = {name: weight_names[name] for name in weight_names if name != "norm"}
    ours.load_state_dict(to_ours(names, gpt2.each_once(weights, ""), ""), strict=False)
    batch = text_batch()
    inputs = read_by(batch.text)
    labels = {"labels": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)}
    return Pair(
        ours.eval(),
        theirs,
        NextToken(ours),
        batch,
        inputs,
        labels,
        [len(text) - 1 for text in TEXTS],
    )


def berts() -> Pair:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = with_weights_that_matter(transformers.BertForPreTraining(config))
    ours = BERT(BERTConfig(**SIZES, feed_forward=24), VOCABULARY).eval()
    names = bert.BERT.weight_names(PRETRAINING, ours.config.model_dump())
    weights = bert.BERT.each_once(theirs.state_dict(), "")
    ours.load_state_dict(to_ours(names, weights, ""), strict=False)
    batch = masked_batch()
    labels_BL = torch.full_like(batch.text.ids_BL, IGNORED)
    labels_BL.view(-1)[batch.places_P] = batch.labels_P
    assert batch.follows_B is not None
    labels = {
        "labels": labels_BL,
        "next_sentence_label": 1 - batch.follows_B,
    }  # 0 means there that the second follows
    inputs = read_by(batch.text) | {"token_type_ids": batch.segments_BL}
    return Pair(
        ours, theirs, MaskedTokens(ours), batch, inputs, labels, [len(pair) for pair in PAIRS]
    )


def marians() -> Pair:
    ours, theirs = small_marian()
    batch = batch_of()
    inputs = read_by(batch.source) | {"decoder_input_ids": batch.target.ids_BL[:, :-1]}
    labels = {"labels": labels_of(batch)}
    return Pair(
        ours,
        theirs,
        TokenCrossEntropy(ours),
        batch,
        inputs,
        labels,
        [len(target) - 1 for target in TARGETS],
    )


PAIRS_OF_MODELS = {
    "gpt": lambda: gpts("post"),
    "gpt2": lambda: gpts("pre"),
    "bert": berts,
    "marian": marians,
}


@cache
def built(name: str) -> Pair:
    return PAIRS_OF_MODELS[name]()


@pytest.mark.parametrize("name", PAIRS_OF_MODELS)
@torch.no_grad()
def test_logits_and_loss(name: str) -> None:
    pair = built(name)
    hidden_BTD = pair.ours(pair.batch).hidden_BTD
    expected = pair.theirs(**pair.inputs, **pair.labels)
    logits_BTV = expected.prediction_logits if name == "bert" else expected.logits
    pair.same(pair.ours.readout(hidden_BTD), logits_BTV)
    assert logits_BTV.std() > 0.3, "logits that are all alike would prove nothing"
    near(pair.objective.eval()(pair.batch)[0] / pair.batch.tokens, expected.loss)
    if name == "bert":
        near(pair.ours.next_sentence(hidden_BTD), expected.seq_relationship_logits)


@pytest.mark.parametrize("name", PAIRS_OF_MODELS)
@torch.no_grad()
def test_layers_and_attention(name: str) -> None:
    pair = built(name)
    expected = pair.theirs(**pair.inputs, output_hidden_states=True, output_attentions=True)
    with recording() as recorded:
        if name == "marian":
            pair.ours(pair.batch)
        else:
            for ours_BLD, theirs_BLD in zip(
                pair.ours.layers_of(pair.batch), expected.hidden_states, strict=True
            ):
                pair.same(ours_BLD, theirs_BLD)
    weights = recorded.by_name(pair.ours)
    for number in range(2):
        if name != "marian":
            pair.same(
                weights[f"blocks.{number}.self_attention"], expected.attentions[number], axis=1
            )
            continue
        sources = [len(source) for source in SOURCES]
        pair.same(
            weights[f"encoder.{number}.self_attention"],
            expected.encoder_attentions[number],
            sources,
            axis=1,
        )
        pair.same(
            weights[f"decoder.{number}.self_attention"], expected.decoder_attentions[number], axis=1
        )
        pair.same(
            weights[f"decoder.{number}.cross_attention"], expected.cross_attentions[number], axis=1
        )


@torch.no_grad()
def test_steps_with_a_cache() -> None:
    pair = built("marian")
    inputs, cache = dict(pair.inputs), None
    histories_BT, state = (
        inputs.pop("decoder_input_ids"),
        pair.ours.begin(tokens_of(SOURCES), 1, 10),
    )
    for tokens_B in histories_BT.unbind(1):
        expected = pair.theirs(
            **inputs, decoder_input_ids=tokens_B[:, None], past_key_values=cache, use_cache=True
        )
        logits_BV, state = pair.ours.step(tokens_B, state)
        cache = expected.past_key_values
        near(logits_BV, expected.logits[:, 0])
