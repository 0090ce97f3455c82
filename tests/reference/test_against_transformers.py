"""The whole Transformer against a Marian model of `transformers` with the same weights.

Marian's encoder-decoder is the paper's, but its waves are not interleaved: all sines stand before all cosines. That
is the same model with the axes of its width in another order, so every weight is copied in our order.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from model_cases import SOURCES, TARGETS, batch_of, each_real, labels_of, logits_of, tokens_of
from regard.layers.attention import FeedForward, MultiHeadAttention, recording
from regard.models.transformer import DecoderBlock, EncoderBlock, Transformer, TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.text.vocabularies import BEGIN, END, PAD

transformers = pytest.importorskip("transformers")

VOCABULARY, WIDTH, HEADS, INNER, LAYERS = 13, 16, 4, 24, 2
ORDER_D = torch.arange(WIDTH).view(2, WIDTH // 2).T.flatten()
"""Our axis d is Marian's axis ORDER_D[d]: sine 0, cosine 0, sine 1, ..."""


def copy_linear(ours: nn.Linear, theirs: nn.Linear, *, reads_width: bool, writes_width: bool) -> None:
    weight, bias = theirs.weight, theirs.bias
    weight = weight[:, ORDER_D] if reads_width else weight
    ours.weight.copy_(weight[ORDER_D] if writes_width else weight)
    ours.bias.copy_(bias[ORDER_D] if writes_width else bias)


def copy_attention(ours: MultiHeadAttention, theirs: nn.Module) -> None:
    copy_linear(ours.W_Q, theirs.q_proj, reads_width=True, writes_width=False)
    ours.W_KV.weight.copy_(torch.cat([theirs.k_proj.weight, theirs.v_proj.weight])[:, ORDER_D])
    ours.W_KV.bias.copy_(torch.cat([theirs.k_proj.bias, theirs.v_proj.bias]))
    copy_linear(ours.W_O, theirs.out_proj, reads_width=False, writes_width=True)


def copy_feed_forward(ours: FeedForward, theirs: nn.Module) -> None:
    copy_linear(ours.W_1, theirs.fc1, reads_width=True, writes_width=False)
    copy_linear(ours.W_2, theirs.fc2, reads_width=False, writes_width=True)


def copy_norm(ours: nn.Module, theirs: nn.LayerNorm) -> None:
    ours.load_state_dict({name: tensor[ORDER_D] for name, tensor in theirs.state_dict().items()})


def copy_encoder_block(ours: EncoderBlock, theirs: nn.Module) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_norm(ours.around_attention.norm, theirs.self_attn_layer_norm)
    copy_norm(ours.around_feed_forward.norm, theirs.final_layer_norm)


def copy_decoder_block(ours: DecoderBlock, theirs: nn.Module) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.encoder_attn)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_norm(ours.around_self.norm, theirs.self_attn_layer_norm)
    copy_norm(ours.around_cross.norm, theirs.encoder_attn_layer_norm)
    copy_norm(ours.around_feed_forward.norm, theirs.final_layer_norm)


def marian() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        max_position_embeddings=20,
        activation_function="relu",
        scale_embedding=True,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=BEGIN,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        attn_implementation="eager",
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        model.final_logits_bias.normal_(std=0.3)
    return model


@pytest.fixture(scope="module", name="models")
def models_with_the_same_weights() -> tuple[Transformer, nn.Module]:
    theirs = marian()
    config = TransformerConfig(
        width=WIDTH,
        heads=HEADS,
        feed_forward=INNER,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        dropout=0.0,
        tie="all",
    )
    ours = Transformer(config, VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        ours.source_embedding.weight.copy_(theirs.model.shared.weight[:, ORDER_D])
        ours.output.linear.bias.copy_(theirs.final_logits_bias[0])
        for block, layer in zip(ours.encoder, theirs.model.encoder.layers, strict=True):
            copy_encoder_block(block, layer)
        for block, layer in zip(ours.decoder, theirs.model.decoder.layers, strict=True):
            copy_decoder_block(block, layer)
    return ours, theirs


def marian_inputs() -> dict[str, Tensor]:
    batch = batch_of()
    visible_BS = torch.arange(batch.source.ids_BL.shape[1]) < batch.source.lengths_B[:, None]
    return {
        "input_ids": batch.source.ids_BL,
        "attention_mask": visible_BS.long(),
        "decoder_input_ids": batch.target.ids_BL[:, :-1],
    }


def test_logits(models: tuple[Transformer, nn.Module]) -> None:
    ours, theirs = models
    with torch.no_grad():
        expected = theirs(**marian_inputs()).logits
    for actual_TV, expected_TV in zip(each_real(logits_of(ours, batch_of())), each_real(expected), strict=True):
        torch.testing.assert_close(actual_TV, expected_TV, rtol=1e-5, atol=1e-5)
        assert expected_TV.std() > 0.3, "logits that are all alike would prove nothing"


def test_loss(models: tuple[Transformer, nn.Module]) -> None:
    ours, theirs = models
    batch = batch_of()
    with torch.no_grad():
        expected = theirs(**marian_inputs(), labels=labels_of(batch)).loss
        actual = TokenCrossEntropy(ours).eval()(batch)[0] / batch.tokens
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_attention_weights(models: tuple[Transformer, nn.Module]) -> None:
    ours, theirs = models
    with torch.no_grad():
        expected = theirs(**marian_inputs(), output_attentions=True)
    with recording() as recorded:
        logits_of(ours, batch_of())
    weights = recorded.by_name(ours)
    for layer in range(LAYERS):
        for name, theirs_BHQK in (
            (f"encoder.{layer}.self_attention", expected.encoder_attentions[layer]),
            (f"decoder.{layer}.self_attention", expected.decoder_attentions[layer]),
            (f"decoder.{layer}.cross_attention", expected.cross_attentions[layer]),
        ):
            queries = SOURCES if name.startswith("encoder") else [target[:-1] for target in TARGETS]
            for ours_HQK, theirs_HQK, query in zip(weights[name], theirs_BHQK, queries, strict=True):
                real = slice(0, len(query))
                torch.testing.assert_close(ours_HQK[:, real], theirs_HQK[:, real], rtol=1e-5, atol=1e-5)


def test_steps_with_a_cache(models: tuple[Transformer, nn.Module]) -> None:
    ours, theirs = models
    inputs = marian_inputs()
    histories_BT, state, cache = inputs.pop("decoder_input_ids"), ours.begin(tokens_of(SOURCES), 1, 10), None
    for tokens_B in histories_BT.unbind(1):
        with torch.no_grad():
            expected = theirs(**inputs, decoder_input_ids=tokens_B[:, None], past_key_values=cache, use_cache=True)
            logits_BV, state = ours.step(tokens_B, state)
        cache = expected.past_key_values
        torch.testing.assert_close(logits_BV, expected.logits[:, 0], rtol=1e-5, atol=1e-5)
