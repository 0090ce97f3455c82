"""GPT and BERT against `transformers` with the same weights: logits, losses, layers and attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from language_model_cases import FOLLOWS, PAIRS, PLACES, TEXTS, each, masked_batch, next_logits, text_batch
from model_cases import IGNORED
from regard.data.batches import MaskedBatch
from regard.layers.attention import MultiHeadAttention, recording
from regard.models.bert import BERT, BERTConfig
from regard.models.gpt import GPT, GPTConfig
from regard.objectives.language_model import MaskedTokens, NextToken

transformers = pytest.importorskip("transformers")

SIZES = {"layers": 2, "width": 16, "heads": 4, "feed_forward": 24, "max_positions": 20, "dropout": 0.0}
VOCABULARY = 13


def near(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def with_weights_that_matter(model: nn.Module) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


@torch.no_grad()
def copy(ours: nn.Module, theirs: nn.Module, *, transposed: bool = False) -> None:
    """A linear layer or a norm; GPT's code keeps its matrices the other way round."""
    ours.weight.copy_(theirs.weight.T if transposed else theirs.weight)
    ours.bias.copy_(theirs.bias)


@torch.no_grad()
def copy_attention(ours: MultiHeadAttention, q: nn.Linear, k: nn.Linear, v: nn.Linear) -> None:
    copy(ours.W_Q, q)
    ours.W_KV.weight.copy_(torch.cat([k.weight, v.weight]))
    ours.W_KV.bias.copy_(torch.cat([k.bias, v.bias]))


# GPT


def their_gpt(norm: str) -> Any:
    torch.manual_seed(0)
    common = {"vocab_size": VOCABULARY, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 4}
    common |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"}
    common |= {"bos_token_id": 2, "eos_token_id": 3}
    if norm == "pre":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**common, n_inner=24))
    else:
        # Its inner width is four times the outer one, always.
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**common))
    return with_weights_that_matter(model)


@pytest.fixture(scope="module", params=["post", "pre"], name="gpts")
def gpts_with_the_same_weights(request: pytest.FixtureRequest) -> tuple[GPT, Any]:
    """Post-norm is OpenAI's GPT, pre-norm is GPT-2."""
    theirs, inner = their_gpt(request.param), 24 if request.param == "pre" else 64
    ours = GPT(GPTConfig(**{**SIZES, "feed_forward": inner}, norm=request.param), VOCABULARY).eval()
    body, tokens, positions = (
        theirs.transformer,
        *(("wte", "wpe") if request.param == "pre" else ("tokens_embed", "positions_embed")),
    )
    with torch.no_grad():
        ours.embedding.weight.copy_(getattr(body, tokens).weight)
        ours.positions.learned.weight.copy_(getattr(body, positions).weight)
        for block, layer in zip(ours.blocks, body.h, strict=True):
            (q, k, v), (b_q, b_k, b_v) = layer.attn.c_attn.weight.T.chunk(3), layer.attn.c_attn.bias.chunk(3)
            block.self_attention.W_Q.weight.copy_(q)
            block.self_attention.W_Q.bias.copy_(b_q)
            block.self_attention.W_KV.weight.copy_(torch.cat([k, v]))
            block.self_attention.W_KV.bias.copy_(torch.cat([b_k, b_v]))
            copy(block.self_attention.W_O, layer.attn.c_proj, transposed=True)
            copy(block.feed_forward.W_1, layer.mlp.c_fc, transposed=True)
            copy(block.feed_forward.W_2, layer.mlp.c_proj, transposed=True)
            copy(block.attention_norm, layer.ln_1)
            copy(block.feed_forward_norm, layer.ln_2)
        if request.param == "pre":
            copy(ours.norm, body.ln_f)
    return ours, theirs


def gpt_inputs() -> dict[str, Tensor]:
    text = text_batch().text
    real_BL = torch.arange(text.ids_BL.shape[1]) < text.lengths_B[:, None]
    return {"input_ids": text.ids_BL, "attention_mask": real_BL.long()}


def test_gpt_logits(gpts: tuple[GPT, Any]) -> None:
    ours, theirs = gpts
    with torch.no_grad():
        expected = theirs(**gpt_inputs()).logits
    for actual_TV, expected_TV in zip(
        each(next_logits(ours, text_batch()), TEXTS, 1), each(expected, TEXTS, 1), strict=True
    ):
        near(actual_TV, expected_TV)
        assert expected_TV.std() > 0.3, "logits that are all alike would prove nothing"


def test_gpt_loss(gpts: tuple[GPT, Any]) -> None:
    ours, theirs = gpts
    inputs, batch = gpt_inputs(), text_batch()
    labels_BL = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
    with torch.no_grad():
        near(NextToken(ours)(batch)[0] / batch.tokens, theirs(**inputs, labels=labels_BL).loss)


def test_gpt_layers_and_attention(gpts: tuple[GPT, Any]) -> None:
    ours, theirs = gpts
    with torch.no_grad():
        expected = theirs(**gpt_inputs(), output_hidden_states=True, output_attentions=True)
    with recording() as recorded:
        layers = ours.layers_of(text_batch())
    for actual_BLD, expected_BLD in zip(layers, expected.hidden_states, strict=True):
        for actual, theirs_LD in zip(each(actual_BLD, TEXTS), each(expected_BLD, TEXTS), strict=True):
            near(actual, theirs_LD)
    for number, theirs_BHQK in enumerate(expected.attentions):
        weights_BHQK = recorded.by_name(ours)[f"blocks.{number}.self_attention"]
        for row, text in enumerate(TEXTS):
            near(weights_BHQK[row, :, : len(text)], theirs_BHQK[row, :, : len(text)])


# BERT


@pytest.fixture(scope="module", name="berts")
def berts_with_the_same_weights() -> tuple[BERT, Any]:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        max_position_embeddings=20, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = with_weights_that_matter(transformers.BertForPreTraining(config))
    ours = BERT(BERTConfig(**SIZES), VOCABULARY).eval()
    body, heads = theirs.bert, theirs.cls
    with torch.no_grad():
        ours.embedding.tokens.weight.copy_(body.embeddings.word_embeddings.weight)
        ours.embedding.segments.weight.copy_(body.embeddings.token_type_embeddings.weight)
        ours.embedding.positions.learned.weight.copy_(body.embeddings.position_embeddings.weight)
        ours.output.output.linear.bias.copy_(heads.predictions.decoder.bias)
    copy(ours.embedding.norm, body.embeddings.LayerNorm)
    for block, layer in zip(ours.blocks, body.encoder.layer, strict=True):
        attention = layer.attention
        copy_attention(block.self_attention, attention.self.query, attention.self.key, attention.self.value)
        copy(block.self_attention.W_O, attention.output.dense)
        copy(block.attention_norm, attention.output.LayerNorm)
        copy(block.feed_forward.W_1, layer.intermediate.dense)
        copy(block.feed_forward.W_2, layer.output.dense)
        copy(block.feed_forward_norm, layer.output.LayerNorm)
    assert ours.next_sentence is not None
    copy(ours.output.W, heads.predictions.transform.dense)
    copy(ours.output.norm, heads.predictions.transform.LayerNorm)
    copy(ours.next_sentence.pooler, body.pooler.dense)
    copy(ours.next_sentence.output, heads.seq_relationship)
    return ours, theirs


def bert_inputs(batch: MaskedBatch) -> dict[str, Tensor]:
    real_BL = torch.arange(batch.text.ids_BL.shape[1]) < batch.text.lengths_B[:, None]
    return {"input_ids": batch.text.ids_BL, "attention_mask": real_BL.long(), "token_type_ids": batch.segments_BL}


def test_bert_logits_of_both_heads(berts: tuple[BERT, Any]) -> None:
    ours, theirs = berts
    batch = masked_batch()
    with torch.no_grad():
        expected, hidden_BLD = theirs(**bert_inputs(batch)), ours(batch).hidden_BTD
        for actual, theirs_LV in zip(
            each(ours.readout(hidden_BLD), PAIRS), each(expected.prediction_logits, PAIRS), strict=True
        ):
            near(actual, theirs_LV)
            assert theirs_LV.std() > 0.3, "logits that are all alike would prove nothing"
        assert ours.next_sentence is not None
        near(ours.next_sentence(hidden_BLD), expected.seq_relationship_logits)
        near(ours.next_sentence.pool(hidden_BLD), theirs.bert(**bert_inputs(batch)).pooler_output)


def test_bert_loss(berts: tuple[BERT, Any]) -> None:
    """Theirs is the mean over masked tokens plus the mean over pairs, and 0 means that the second follows."""
    ours, theirs = berts
    batch = masked_batch()
    labels_BL = torch.full_like(batch.text.ids_BL, IGNORED)
    labels_BL.view(-1)[batch.places_P] = batch.labels_P
    told_B = 1 - torch.tensor(FOLLOWS)
    with torch.no_grad():
        expected = theirs(**bert_inputs(batch), labels=labels_BL, next_sentence_label=told_B).loss
        near(MaskedTokens(ours)(batch)[0] / batch.tokens, expected)
    assert sum(map(len, PLACES)) == batch.tokens


def test_bert_layers_and_attention(berts: tuple[BERT, Any]) -> None:
    ours, theirs = berts
    batch = masked_batch()
    with torch.no_grad():
        expected = theirs(**bert_inputs(batch), output_hidden_states=True, output_attentions=True)
    with recording() as recorded:
        layers = ours.layers_of(batch)
    for actual_BLD, expected_BLD in zip(layers, expected.hidden_states, strict=True):
        for actual, theirs_LD in zip(each(actual_BLD, PAIRS), each(expected_BLD, PAIRS), strict=True):
            near(actual, theirs_LD)
    for number, theirs_BHQK in enumerate(expected.attentions):
        weights_BHQK = recorded.by_name(ours)[f"blocks.{number}.self_attention"]
        for row, text in enumerate(PAIRS):
            near(weights_BHQK[row, :, : len(text)], theirs_BHQK[row, :, : len(text)])
