"""Layers and models against torch.nn with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from model_cases import CASES, SOURCES, TARGETS, batch_of, build, close, labels_of, logits_of
from regard.layers.attention import FeedForward, MultiHeadAttention, Visibility
from regard.layers.recurrence import as_carry, as_torch
from regard.models.rnn import RNN
from regard.models.transformer import DecoderBlock, EncoderBlock, Sublayer, TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy

WIDTH, HEADS, INNER = 12, 3, 20
LENGTHS_B = torch.tensor([5, 2, 4])
SOURCE_LENGTHS_B = torch.tensor([3, 6, 1])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def hidden_keys(lengths_B: Tensor) -> Tensor:
    """Torch's padding mask, whose True means the opposite of ours."""
    return torch.arange(int(lengths_B.max())) >= lengths_B[:, None]


def assert_real_rows_close(actual: Tensor, expected: Tensor, lengths_B: Tensor) -> None:
    real = ~hidden_keys(lengths_B)
    close(actual[real], expected[real])


def shake(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Torch keeps W^Q, W^K and W^V in one matrix."""
    ours.W_Q.weight.copy_(theirs.in_proj_weight[:WIDTH])
    ours.W_Q.bias.copy_(theirs.in_proj_bias[:WIDTH])
    ours.W_KV.weight.copy_(theirs.in_proj_weight[WIDTH:])
    ours.W_KV.bias.copy_(theirs.in_proj_bias[WIDTH:])
    ours.W_O.load_state_dict(theirs.out_proj.state_dict())


def copy_feed_forward(ours: FeedForward, theirs: nn.Module) -> None:
    ours.W_1.load_state_dict(theirs.linear1.state_dict())
    ours.W_2.load_state_dict(theirs.linear2.state_dict())


def copy_norms(theirs: nn.Module, *ours: Sublayer) -> None:
    for number, sublayer in enumerate(ours, start=1):
        sublayer.norm.load_state_dict(getattr(theirs, f"norm{number}").state_dict())


def config_of(norm: str) -> TransformerConfig:
    return TransformerConfig(width=WIDTH, heads=HEADS, feed_forward=INNER, dropout=0.0, norm=norm)  # type: ignore[arg-type]


def sizes(norm: str) -> dict[str, object]:
    return {
        "d_model": WIDTH,
        "nhead": HEADS,
        "dim_feedforward": INNER,
        "dropout": 0.0,
        "batch_first": True,
        "norm_first": norm == "pre",
        "dtype": torch.float64,
    }


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention(causal: bool) -> None:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    shake(theirs)
    ours = MultiHeadAttention(WIDTH, HEADS).double()
    with torch.no_grad():
        copy_attention(ours, theirs)
    lengths_B = LENGTHS_B if causal else SOURCE_LENGTHS_B
    x_BQD = randn(3, 5, WIDTH)
    memory_BKD = x_BQD if causal else randn(3, 6, WIDTH)
    mask = ~torch.ones(5, 5, dtype=torch.bool).tril() if causal else None
    expected, _ = theirs(
        x_BQD, memory_BKD, memory_BKD, key_padding_mask=hidden_keys(lengths_B), attn_mask=mask, need_weights=False
    )
    actual = ours(x_BQD, *ours.keys_values(memory_BKD), Visibility(lengths_B, causal=causal))
    assert_real_rows_close(actual, expected, LENGTHS_B)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_block(norm: str) -> None:
    theirs = nn.TransformerEncoderLayer(**sizes(norm))  # type: ignore[arg-type]
    shake(theirs)
    ours = EncoderBlock(config_of(norm)).double()
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_feed_forward(ours.feed_forward, theirs)
        copy_norms(theirs, ours.around_attention, ours.around_feed_forward)
    x_BSD = randn(3, 5, WIDTH)
    expected = theirs(x_BSD, src_key_padding_mask=hidden_keys(LENGTHS_B))
    assert_real_rows_close(ours(x_BSD, Visibility(LENGTHS_B)), expected, LENGTHS_B)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_block(norm: str) -> None:
    theirs = nn.TransformerDecoderLayer(**sizes(norm))  # type: ignore[arg-type]
    shake(theirs)
    ours = DecoderBlock(config_of(norm)).double()
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        copy_feed_forward(ours.feed_forward, theirs)
        copy_norms(theirs, ours.around_self, ours.around_cross, ours.around_feed_forward)
    x_BTD, memory_BSD = randn(3, 5, WIDTH), randn(3, 6, WIDTH)
    expected = theirs(
        x_BTD,
        memory_BSD,
        tgt_mask=~torch.ones(5, 5, dtype=torch.bool).tril(),
        tgt_key_padding_mask=hidden_keys(LENGTHS_B),
        memory_key_padding_mask=hidden_keys(SOURCE_LENGTHS_B),
    )
    actual = ours(x_BTD, memory_BSD, Visibility(LENGTHS_B, causal=True), Visibility(SOURCE_LENGTHS_B))
    assert_real_rows_close(actual, expected, LENGTHS_B)


def fresh_copy(rnn: nn.RNNBase) -> nn.RNNBase:
    copy = type(rnn)(
        rnn.input_size,
        rnn.hidden_size,
        rnn.num_layers,
        batch_first=True,
        bidirectional=rnn.bidirectional,
        dtype=torch.float64,
    )
    copy.load_state_dict(rnn.state_dict())
    return copy


def encoder_decoder(model: RNN, source: list[int], target: list[int]) -> Tensor:
    """Logits of one sentence by torch's recurrent layers, without padding or packing."""
    config = model.config
    read = source[::-1] if config.reverse_source else source
    outputs, last = fresh_copy(model.encoder.rnn)(model.source_embedding.weight[read][None])
    first_states = []
    for W_s, part in zip(model.bridge.W_s, as_carry(last), strict=True):
        both_ways = part.chunk(config.layers)
        layers = [torch.cat(list(directions), dim=-1) for directions in both_ways]
        first_states.append(torch.tanh(nn.functional.linear(torch.stack(layers), W_s.weight, W_s.bias)))
    forward_B1D, backward_B1D = outputs[:, -1:, : config.hidden], outputs[:, :1, config.hidden :]
    x_BTD = model.target_embedding.weight[target[:-1]][None]
    if config.context == "every_step":
        context_B1D = torch.cat([forward_B1D, backward_B1D], -1)
        x_BTD = torch.cat([x_BTD, context_B1D.repeat(1, x_BTD.shape[1], 1)], -1)
    s_BTD, _ = fresh_copy(model.decoder)(x_BTD, as_torch(tuple(first_states)))
    hidden_BTD = torch.tanh(nn.functional.linear(s_BTD, model.V.weight, model.V.bias))
    return nn.functional.linear(hidden_BTD, model.output.linear.weight, model.output.linear.bias)[0]


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("rnn")])
def test_encoder_decoder_rnn(case: str) -> None:
    model = build(CASES[case])
    assert isinstance(model, RNN)
    logits_BTV = logits_of(model, batch_of())
    for source, target, logits_TV in zip(SOURCES, TARGETS, logits_BTV, strict=True):
        with torch.no_grad():
            close(logits_TV[: len(target) - 1], encoder_decoder(model, source, target))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing(smoothing: float) -> None:
    model, batch = build(CASES["transformer"]), batch_of(extra=2)
    loss, plain_loss = TokenCrossEntropy(model, smoothing=smoothing).train()(batch)
    logits_PV, labels_P = logits_of(model, batch).flatten(0, 1), labels_of(batch).flatten()
    close(loss, nn.functional.cross_entropy(logits_PV, labels_P, label_smoothing=smoothing, reduction="sum"))
    close(plain_loss, nn.functional.cross_entropy(logits_PV, labels_P, reduction="sum"))
