"""One hop over a story worked out with the run's own numbers: `regard explain --numbers`.

Sukhbaatar et al. 2015, arXiv:1503.08895, sections 2 and 4.1, with the words x_ij of sentence i and hops k = 1 .. K:
    m_i     = sum_j l_j * A^k x_ij + T_A^k(i)
    c_i     = sum_j l_j * C^k x_ij + T_C^k(i)
    p_i     = softmax_i(u^k . m_i)
    o       = sum_i p_i c_i
    u^{k+1} = u^k + o, layer-wise H u^k + o
Nothing of it is kept by the model, so it is computed once more, from its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.batch import StoryBatch
from regard.models.memory_network import MemoryNetwork, position_weights
from regard.text.vocabularies import PAD
from regard.views.seen import Step
from regard.views.worked import MEMORY_LETTERS, SOFTMAX_OF_MEMORIES, Line, Worked


@dataclass(frozen=True)
class Look:
    """What one hop computes; K counts the sentences, and one more key where some memories are empty."""

    u_D: Tensor
    m_KD: Tensor
    c_KD: Tensor
    scores_K: Tensor
    p_K: Tensor
    o_D: Tensor
    next_D: Tensor


@torch.inference_mode()
def work_out_story(
    model: MemoryNetwork, batch: StoryBatch, sentences: Sequence[str], *, hop: int, title: str, step: Step
) -> Worked:
    """A hop, from 1, at the first question of a batch."""
    look = _look(model, batch, _said(model, batch.question_BL[:1], "B", 1)[0], 1)
    for number in range(2, hop + 1):
        look = _look(model, batch, look.next_D, number)
    empty = model.config.sentences - len(sentences)
    time = " + T_{}(i)" if model.config.temporal else ""
    memories = ", ".join(f"{letter} = {of} x_i{time.format(of)}" for letter, of in (("m_i", "A"), ("c_i", "C")))
    return Worked(
        title,
        query=(Line("u^1 = B q, the question" if hop == 1 else f"u^{hop}, what hop {hop - 1} made of it", look.u_D),),
        keys=(*sentences, *([f"({empty} empty)"] if empty else [])),
        vectors={"m_i": look.m_KD, "c_i": look.c_KD},
        score_equation=f"e_i = u^{hop} . m_i, where {memories}",
        scores_K=look.scores_K,
        weight_equation=SOFTMAX_OF_MEMORIES + (f"; each empty memory scores 0, together log {empty}" if empty else ""),
        weights_K=look.p_K,
        context_D=look.o_D,
        after=(Line(f"u^{hop + 1} = {'' if model.H_DID is None else 'H '}u^{hop} + o", look.next_D),),
        step=step,
        letters=MEMORY_LETTERS,
    )


def _look(model: MemoryNetwork, batch: StoryBatch, u_D: Tensor, hop: int) -> Look:
    m_KD, c_KD = (_memories(model, batch, letter, hop) for letter in "AC")
    scores_K, sentences = m_KD @ u_D, int((batch.times_BS[0] > 0).sum())
    scores_K[sentences:] = math.log(max(1, model.config.sentences - sentences))  # of so many empty memories together
    p_K = scores_K.softmax(0)
    o_D = p_K @ c_KD
    return Look(
        u_D, m_KD, c_KD, scores_K, p_K, o_D, o_D + (u_D if model.H_DID is None else model.H_DID[:, model.winner] @ u_D)
    )


def _memories(model: MemoryNetwork, batch: StoryBatch, letter: str, hop: int) -> Tensor:
    """m or c of each sentence, and a zero where some memories are empty."""
    told = batch.times_BS[0] > 0
    said_KD = _said(model, batch.story_BSL[0, told], letter, hop)
    if model.config.temporal:
        times_K = batch.times_BS[0, told].clamp(1, model.config.sentences) - 1
        said_KD = said_KD + model.times[model.table_of(letter, hop)][times_K, model.winner]
    empty = model.config.sentences > len(said_KD)
    return torch.cat([said_KD, said_KD.new_zeros(int(empty), said_KD.shape[1])])


def _said(model: MemoryNetwork, words_KL: Tensor, letter: str, hop: int) -> Tensor:
    """The words of each sentence as one vector: their sum, weighted by where they stand."""
    words_KLD = model.tables[model.table_of(letter, hop)][words_KL, model.winner]
    weights_KLD = (words_KL != PAD)[..., None].to(words_KLD.dtype)
    if model.config.words == "position":
        weights_KLD = position_weights(words_KL, model.config.width)
    said_KD: Tensor = (words_KLD * weights_KLD).sum(1)
    return said_KD
