"""Attention rollout: how much of each word there is in a state, after all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.views.heatmap import Numbers


@dataclass(frozen=True)
class Rollout:
    """Shares after each layer, first to last; the rows of `source` and `target` together sum to 1, if they are of
    pieces and not of words, since a word that is read ends one piece later than the same word when it is written."""

    encoder: tuple[Numbers, ...]
    """[S, S]: of source words in the encoder's states."""
    source: tuple[Numbers, ...]
    """[T, S]: of source words in the decoder's states."""
    target: tuple[Numbers, ...]
    """[T, T]: of what the decoder has read of its own in its states."""


def roll_out(
    encoder: Sequence[Numbers], own: Sequence[Numbers], cross: Sequence[Numbers], *, residual: bool = True
) -> Rollout:
    """Follow the words through the layers, given each layer's weights averaged over its heads.

    Abnar & Zuidema 2020, arXiv:2005.00928, section 3, with A = 0.5 W_att + 0.5 I for the residual connection:
        R_l = A_l R_{l-1},  R_0 = I

    The paper has one stack: BERT's, or GPT's. A decoder's states stem from two texts: looking at itself mixes what its
    states hold, and looking at the source adds what the encoder's last states hold; regions of an image, which
    no layers mix, hold themselves. A model without residual connections has A = W_att.
    """
    share = 0.5 if residual else 1.0
    in_encoder = _through_one_stack(encoder, share)
    if not len(cross):
        return Rollout(in_encoder, (), _through_one_stack(own, share))
    mixed, source, target = in_encoder[-1] if in_encoder else np.eye(cross[0].shape[1]), [], []
    of_target: Numbers = np.eye(len(own[0]))
    of_source: Numbers = np.zeros(cross[0].shape)
    for looks_back, looks_over in zip(own, cross, strict=True):
        of_target = _mix(looks_back @ of_target, of_target, share)
        of_source = _mix(looks_back @ of_source, of_source, share)
        of_target, of_source = (1 - share) * of_target, _mix(looks_over @ mixed, of_source, share)
        source.append(of_source)
        target.append(of_target)
    return Rollout(in_encoder, tuple(source), tuple(target))


def _through_one_stack(layers: Sequence[Numbers], share: float) -> tuple[Numbers, ...]:
    """The paper's own case: an encoder, or a decoder by itself."""
    mixed: Numbers = np.eye(len(layers[0]) if len(layers) else 0)
    found = []
    for weights in layers:
        mixed = _mix(weights @ mixed, mixed, share)
        found.append(mixed)
    return tuple(found)


def _mix(new: Numbers, old: Numbers, share: float) -> Numbers:
    mixed: Numbers = share * new + (1 - share) * old
    return mixed
