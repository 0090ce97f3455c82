"""Where each hop of a memory network looked among the past words of a text, worked out from what goes into it.

Sukhbaatar et al. 2015, arXiv:1503.08895, section 5, with the words x_i of the past, i = 1 the newest:
    m_i     = A x_i + T_A(i)
    c_i     = C x_i + T_C(i)
    p_i     = softmax_i(u^k . m_i)
    u^{k+1} = f(H u^k + sum_i p_i c_i)
The model reads H u^k in every hop, so u^k is what H is called with; no memory is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.models.memory_lm import MemoryLanguageModel, half_relu
from regard.views.capture import Call, Observed, watching
from regard.views.seen import Step
from regard.views.worked import MEMORY_LETTERS, SOFTMAX_OF_MEMORIES, Line, Worked

NAME = "hops.{}.p"
"""What the attention of a hop, from 0, is called: the model has no module for it."""


@torch.inference_mode()
def watch_hops(model: MemoryLanguageModel, read: Callable[[], Tensor]) -> Observed:
    """The weights of every hop at every place of the first text; `read` gives the hidden states."""
    with watching(model, _remembers) as calls:
        hidden_BTD = read()
    a_KD = calls["A"][-1].output[0]
    time_QK, heard_QK = _times(model, a_KD)
    weights_HQK, visible_QK = {}, {}
    for hop, call in enumerate(calls["H"]):
        u_QD = call.inputs[0][0]
        scores_QK = u_QD @ a_KD.t() + (u_QD @ model.T_A.weight.t()).gather(-1, time_QK)
        weights_HQK[NAME.format(hop)] = scores_QK.masked_fill(~heard_QK, -torch.inf).softmax(-1)[None]
        visible_QK[NAME.format(hop)] = heard_QK
    return Observed(hidden_BTD[0], weights_HQK, visible_QK)


@torch.inference_mode()
def work_out_hop(
    model: MemoryLanguageModel,
    read: Callable[[], Tensor],
    keys: Sequence[str],
    *,
    hop: int,
    place: int,
    title: str,
    step: Step | None,
) -> Worked:
    """One hop at one place, both from 0, step by step."""
    with watching(model, _remembers) as calls:
        read()
    u_D = calls["H"][hop].inputs[0][0, place]
    m_KD, c_KD, heard_K = _memories(model, calls, place)
    scores_K = (m_KD @ u_D).masked_fill(~heard_K, -torch.inf)
    p_K = scores_K.softmax(0)
    o_D = p_K @ c_KD
    return Worked(
        title,
        query=(Line("u^k, the state that looks", u_D),),
        keys=tuple(keys),
        vectors={"m_i": m_KD, "c_i": c_KD},
        score_equation="e_i = u^k . m_i, where m_i = A x_i + T_A(i) and c_i = C x_i + T_C(i)",
        scores_K=scores_K,
        weight_equation=SOFTMAX_OF_MEMORIES,
        weights_K=p_K,
        context_D=o_D,
        after=(Line("u^{k+1} = f(H u^k + that)", half_relu(model.H(u_D) + o_D)),),
        step=step,
        letters=MEMORY_LETTERS,
    )


def _remembers(name: str, _: object) -> bool:
    return name in ("A", "C", "H")


def _times(model: MemoryLanguageModel, like_KD: Tensor) -> tuple[Tensor, Tensor]:
    """The row of T_A and T_C for each word that a place remembers, and which words these are."""
    places_K = torch.arange(len(like_KD), device=like_KD.device)
    ago_QK = places_K[:, None] - places_K
    heard_QK = (ago_QK >= 0) & (ago_QK < model.config.words)
    return ago_QK.clamp(0, model.config.words - 1), heard_QK


def _memories(model: MemoryLanguageModel, calls: dict[str, list[Call]], place: int) -> tuple[Tensor, Tensor, Tensor]:
    """m and c of every word, seen from one place, and which of them it remembers."""
    a_KD, c_KD = calls["A"][-1].output[0], calls["C"][-1].output[0]
    time_QK, heard_QK = _times(model, a_KD)
    return a_KD + model.T_A(time_QK[place]), c_KD + model.T_C(time_QK[place]), heard_QK[place]
