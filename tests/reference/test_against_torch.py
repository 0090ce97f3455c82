"""The encoder-decoder RNN and the loss against torch.nn with the same weights.

The Transformer is held against transformers (test_against_transformers.py, test_exchange.py).
"""

import pytest
import torch
from torch import Tensor, nn

from model_cases import CASES, SOURCES, TARGETS, batch_of, build, close, logits_of
from regard.layers.recurrence import as_carry, as_torch
from regard.models.rnn import RNN


def encoder_decoder(model: RNN, source: list[int], target: list[int]) -> Tensor:
    """Logits of one sentence by torch's recurrent layers, without padding or packing."""
    config = model.config
    read = source[::-1] if config.reverse_source else source
    outputs, last = model.encoder.rnn(model.source_embedding.weight[read][None])
    first_states = []
    for W_s, part in zip(model.bridge.W_s, as_carry(last), strict=True):
        both_ways = part.chunk(config.layers)
        layers = [torch.cat(list(directions), dim=-1) for directions in both_ways]
        first_states.append(
            torch.tanh(nn.functional.linear(torch.stack(layers), W_s.weight, W_s.bias))
        )
    forward_B1D, backward_B1D = outputs[:, -1:, : config.hidden], outputs[:, :1, config.hidden :]
    x_BTD = model.target_embedding.weight[target[:-1]][None]
    if config.context == "every_step":
        context_B1D = torch.cat([forward_B1D, backward_B1D], -1)
        x_BTD = torch.cat([x_BTD, context_B1D.repeat(1, x_BTD.shape[1], 1)], -1)
    s_BTD, _ = model.decoder(x_BTD, as_torch(tuple(first_states)))
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
