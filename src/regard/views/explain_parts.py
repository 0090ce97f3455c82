"""What every explanation is made of, whatever the model reads: attentions, likeliest tokens, positions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.layers.positions import Positions
from regard.models.base import device_of
from regard.search.scoring import log_probabilities
from regard.text.tokenizers import Tokenizer
from regard.views.capture import Observed
from regard.views.heatmap import Numbers
from regard.views.seen import Attention, Candidate, Kind, Step

CANDIDATES = 5
"""How many of the likeliest tokens are kept at each step."""
POSITIONS = 50
"""How many places are drawn of the position encodings."""


def attention_of(name: str, kind: Kind, observed: Observed, queries: Sequence[str], keys: Sequence[str]) -> Attention:
    """One attention between pieces; its layer stands in its name."""
    number, weights_HQK = re.search(r"\.(\d+)\.", name), observed.weights_HQK[name]
    return Attention(
        name,
        kind,
        layer=int(number[1]) + 1 if number else 1,
        queries=tuple(queries[: weights_HQK.shape[1]]),  # a recurrent decoder takes no step for padding
        keys=tuple(keys),
        weights=weights_HQK.float().cpu().numpy(),
        visible=observed.visible_QK[name].cpu().numpy(),
    )


@torch.inference_mode()
def steps_of(logits_TV: Tensor, vocabulary: Tokenizer, target_ids: Sequence[int]) -> tuple[Step, ...]:
    """The model's own probabilities: what the search may not write is among them."""
    p_TV = log_probabilities(logits_TV[: len(target_ids)]).exp().cpu()
    written_T1 = torch.tensor(target_ids)[:, None]
    p_T1 = p_TV.gather(1, written_T1)
    ranks = ((p_TV > p_T1).sum(1) + 1).tolist()
    likeliest = p_TV.topk(min(CANDIDATES, p_TV.shape[1]))
    candidates = zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
    pieces = vocabulary.pieces(target_ids)
    return tuple(
        Step(piece, p, rank, tuple(map(Candidate, _pieces_alone(vocabulary, ids), probabilities)))
        for piece, p, rank, (ids, probabilities) in zip(pieces, p_T1[:, 0].tolist(), ranks, candidates, strict=True)
    )


def _pieces_alone(vocabulary: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token on its own: side by side the bytes of alternatives would be read as one character."""
    return [vocabulary.pieces([token])[0] for token in ids]


@torch.inference_mode()
def positions_of(model: nn.Module) -> Numbers | None:
    """What the model adds to the tokens at the first places."""
    for module in model.modules():
        if isinstance(module, Positions) and module.kind != "none":
            places = min(POSITIONS, module.longest) if module.kind == "learned" else POSITIONS
            nothing_1LD = torch.zeros(1, places, module.width, device=device_of(model))
            encoding_LD: Numbers = module(nothing_1LD)[0].float().cpu().numpy()
            return encoding_LD
    return None
