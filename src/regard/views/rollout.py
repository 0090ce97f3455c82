"""Attention rollout: how much of each token there is in a hidden state, after all layers below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.views.report import Numbers


@dataclass(frozen=True)
class Rollout:
    """Shares after each layer, first to last.

    Between tokens the rows of `source` and `target` sum to 1 together. Between words they need not: a word that the
    decoder reads ends one token later than the same word when it is written.
    """

    encoder: tuple[Numbers, ...]
    """[S, S]: of source tokens in the encoder's states."""
    source: tuple[Numbers, ...]
    """[T, S]: of source tokens in the decoder's states."""
    target: tuple[Numbers, ...]
    """[T, T]: of the decoder's own inputs in its states."""


def roll_out(
    encoder: Sequence[Numbers], own: Sequence[Numbers], cross: Sequence[Numbers], *, residual: bool = True
) -> Rollout:
    """Follow the tokens through the layers, given each layer's weights averaged over its heads.

    Abnar & Zuidema 2020, arXiv:2005.00928, section 3, with A = 0.5 W_att + 0.5 I for the residual connection:
        R_l = A_l R_{l-1},  R_0 = I

    The paper has one stack, as BERT and GPT have. In a decoder over an encoder, self-attention mixes what the states
    hold, and attention over the source adds what the encoder's last states hold; the regions of an image, which no
    layer mixes, hold only themselves. A model without residual connections has A = W_att.
    """
    share = 0.5 if residual else 1.0
    in_encoder = _one_stack(encoder, share)
    if not len(cross):
        return Rollout(in_encoder, (), _one_stack(own, share))
    memory, source, target = in_encoder[-1] if in_encoder else np.eye(cross[0].shape[1]), [], []
    of_target: Numbers = np.eye(len(own[0]))
    of_source: Numbers = np.zeros(cross[0].shape)
    for own_weights, cross_weights in zip(own, cross, strict=True):
        of_target = share * (own_weights @ of_target) + (1 - share) * of_target
        of_source = share * (own_weights @ of_source) + (1 - share) * of_source
        of_target, of_source = (1 - share) * of_target, share * (cross_weights @ memory) + (1 - share) * of_source
        source.append(of_source)
        target.append(of_target)
    return Rollout(in_encoder, tuple(source), tuple(target))


def _one_stack(layers: Sequence[Numbers], share: float) -> tuple[Numbers, ...]:
    """The paper's own case: an encoder, or a decoder by itself."""
    rolled: list[Numbers] = [np.eye(len(layers[0]) if len(layers) else 0)]
    for weights in layers:
        rolled.append(share * (weights @ rolled[-1]) + (1 - share) * rolled[-1])
    return tuple(rolled[1:])
