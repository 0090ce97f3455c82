"""One attention computed step by step with the run's own numbers: `regard explain --numbers`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.data.batches import StoryBatch
from regard.errors import DecodeError
from regard.layers.attention import recording, split_heads
from regard.layers.scores import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    Focus,
    FullyConnectedAttention,
    GeneralAttention,
    Memory,
    ScoredAttention,
    SummedAttention,
)
from regard.models.memory_network import MemoryNetwork, position_weights
from regard.text.vocabularies import PAD
from regard.views.explanation import NAMES, Choice, Explanation, check_number, unit
from regard.views.labels import label
from regard.views.recording import Attention, Call, Step, module_calls
from regard.views.report import Report, Section, Table, Text

SCORES: dict[type[nn.Module], tuple[str, str, str]] = {
    AdditiveAttention: ("W_a s", "U_a h_j", "e_j = v_a . tanh(W_a s + U_a h_j)"),
    ConcatAttention: ("W_b [s ; 0]", "W_b [0 ; h_j]", "e_j = w . tanh(W_b [s ; 0] + W_b [0 ; h_j])"),
    FullyConnectedAttention: ("W_b [s ; 0]", "W_b [0 ; h_j]", "e_j = w . max(0, W_b [s ; 0] + W_b [0 ; h_j])"),
    DotAttention: ("s", "h_j", "e_j = s . h_j"),
    GeneralAttention: ("s", "W_a h_j", "e_j = s . W_a h_j"),
}
"""What each score makes of the decoder's state and of a key, and the score."""
READERS = ("UVC_o", "W_c", "L_h", "L_z")
"""The modules of Bahdanau's, Luong's and Xu's models that read the context."""
SUBLAYERS = {"self_attention": ("around_self", "around_attention"), "cross_attention": ("around_cross",)}
"""The sublayers of a Transformer that an attention may be in: those of a decoder's block, then of an encoder's."""
SHOWN = 4
"""Numbers of a vector that are printed."""
MOST_KEYS = 16
"""Keys that are printed: those with the largest weights, in their order."""


# --------------------------------------------------------------------------------------------------------- the result


class Line(NamedTuple):
    """An equation and its value, a vector."""

    equation: str
    value_D: Tensor


@dataclass(frozen=True)
class Letters:
    """What a paper calls the score, the weight and the value of a key, the softmax and the context."""

    score: str = "e_j"
    weight: str = "alpha_j"
    value: str = "v_j"
    softmax: str = "alpha_j = exp(e_j) / sum_k exp(e_k)"
    context: str = "c = sum_j alpha_j v_j"


MEMORY_LETTERS = Letters("e_i", "p_i", "c_i", "p_i = exp(e_i) / sum_k exp(e_k)", "o = sum_i p_i c_i")
"""Those of Sukhbaatar et al. 2015, who have none for the score."""


@dataclass(frozen=True)
class Worked:
    """An attention at one query: query, keys -> scores -> weights -> context -> what the model does with it."""

    title: str
    query: tuple[Line, ...]
    """The state that looks, and what is made of it before it meets the keys."""
    keys: tuple[str, ...]
    vectors: dict[str, Tensor]
    """What is computed from each key, [K, D] by name; the values are among them."""
    score_equation: str
    scores_K: Tensor
    """-inf where the query may not look."""
    weights_K: Tensor
    context_D: Tensor
    after: tuple[Line, ...]
    """What is done with the context."""
    step: Step | None
    """The token that is being written; None where the source attends to itself."""
    weight_factor: str = ""
    """What the softmax is multiplied with, or a remark on it."""
    letters: Letters = Letters()

    def to_json(self) -> dict[str, Any]:
        """All the numbers; a score of null belongs to a key that is hidden."""
        return {
            "title": self.title,
            "query": {line.equation: line.value_D.tolist() for line in self.query},
            "keys": self.keys,
            "vectors": {name: vectors_KD.tolist() for name, vectors_KD in self.vectors.items()},
            "scores": [score if math.isfinite(score) else None for score in self.scores_K.tolist()],
            "weights": self.weights_K.tolist(),
            "context": self.context_D.tolist(),
            "after": {line.equation: line.value_D.tolist() for line in self.after},
        }

    def report(self) -> Report:
        """The first numbers of each vector, and the keys with the largest weights."""
        equations = Text([self.score_equation, self.letters.softmax + self.weight_factor])
        after: list[Table | Text] = [_lines(self.after)]
        if self.step is not None:
            likeliest = "   ".join(f"{label(one.token)} {one.probability:.4f}" for one in self.step.candidates)
            after.append(Text(["Finally the softmax over the vocabulary; the likeliest tokens:", likeliest]))
        return Report(
            self.title,
            [
                Section("1. The query", [_lines(self.query)]),
                Section("2. The keys, their scores, and the softmax of the scores", [equations, self._table()]),
                Section(
                    "3. The context: the values, weighted and summed",
                    [_lines([Line(self.letters.context, self.context_D)])],
                ),
                Section("4. What is done with the context", after),
            ],
            opening=self.title,
        )

    def _table(self) -> Table:
        """A row for each key, and a note on those that are left out."""
        letters, values_KD = self.letters, self.vectors[self.letters.value]
        others = {name: vectors_KD for name, vectors_KD in self.vectors.items() if name != letters.value}
        kept, rows = sorted(self.weights_K.topk(min(MOST_KEYS, len(self.keys))).indices.tolist()), []
        for j in kept:
            score = float(self.scores_K[j])
            numbers = [f"{score:.4f}" if math.isfinite(score) else "hidden", f"{float(self.weights_K[j]):.4f}"]
            vectors = [_vector(vectors_KD[j]) for vectors_KD in others.values()]
            rows.append([label(self.keys[j]), *vectors, *numbers, _vector(values_KD[j])])
        rest = float(self.weights_K.sum() - self.weights_K[kept].sum())
        left_out = len(self.keys) - len(kept)
        notes = [f"and {left_out} more, with {rest:.4f} of the weight"] if left_out else []
        return Table(["", *others, letters.score, letters.weight, letters.value], rows, notes=notes)


def _lines(lines: Sequence[Line]) -> Table:
    return Table(["", ""], [[line.equation, _vector(line.value_D)] for line in lines])


def _vector(value_D: Tensor) -> str:
    shown = " ".join(f"{number:7.4f}" for number in value_D[:SHOWN].tolist())
    return f"[{shown} …]" if len(value_D) > SHOWN else f"[{shown}]"


# --------------------------------------------------------------------------------------------------- which attention


def work_out(explanation: Explanation) -> Worked:
    """Compute one attention again for one query: that of the explanation's options, or of the defaults.

    These are attention over the source, the last layer, the first head and step. A step is a token that is written;
    for the encoder's self-attention, one that is read.
    """
    if explanation.by_token is not None:
        raise DecodeError("the numbers are those of tokens, not of words", where="--words", hint="leave it out")
    options, attention = explanation.options, _chosen(explanation)
    head, step = _single(options.head, "--head"), 1 if options.step is None else options.step
    written = [] if attention.kind == "encoder" else explanation.steps
    head = 1 if head is None else head
    check_number("--head", head, len(attention.weights))
    check_number("--step", step, len(written) or len(attention.queries))
    with torch.inference_mode():
        if attention.kind == "hops":
            return _hop(explanation, attention.layer)
        calls = _calls(explanation, attention.name)
        if isinstance(explanation.model.get_submodule(attention.name), ScoredAttention):
            return _scored(explanation, attention, calls, step - 1)
        return _dot_product(explanation, attention, calls, head - 1, step - 1)


def _single(choice: Choice, option: str) -> int | None:
    """A single layer or head, or None where none was named."""
    if choice == "all":
        raise DecodeError("the numbers are those of one of them", where=option, hint="a number from 1 on")
    if choice == "mean":
        return None
    return choice


def _chosen(explanation: Explanation) -> Attention:
    view, layer, kinds = explanation.options.view, _single(explanation.options.layer, "--layer"), explanation.kinds
    if not kinds:
        what = f"the model {explanation.model_kind!r} has no attention to work out"
        raise DecodeError(what, where="--numbers", hint="--view probabilities shows its token probabilities")
    kind = next((kind for kind in kinds if view in (None, kind)), None)
    if kind is None:
        what = f"the model {explanation.model_kind!r} has no {NAMES.get(str(view), 'such attention')} to work out"
        raise DecodeError(what, where="--view", hint=f"allowed for it: {', '.join(kinds)}")
    attentions = explanation.of_kind(kind)
    if layer is None:
        return attentions[-1]
    check_number("--layer", layer, len(attentions), unit(kind))
    return attentions[layer - 1]


def _calls(explanation: Explanation, name: str) -> dict[str, list[Call]]:
    """The calls of the attention, of what is inside it, and of all that may read its context."""
    parent = name.rpartition(".")[0]
    norms = {f"{parent}.{sublayer}.norm" for names in SUBLAYERS.values() for sublayer in names}
    wanted = {name, f"{name}.W_Q", *norms, f"{parent}.attention_norm", *READERS}
    with recording(), module_calls(explanation.model, wanted) as calls:
        explanation.forward()
    return calls


def _title(explanation: Explanation, attention: Attention, step: int, heads: str = "") -> str:
    layer = f"layer {attention.layer} of {len(explanation.of_kind(attention.kind))}{heads}"
    verb = "writing" if attention.kind == "alignment" else "at"
    place = f"{verb} {label(attention.queries[step])}, step {step + 1} of {len(attention.queries)}"
    return f"{NAMES[attention.kind]} ({attention.name}), {layer}, {place}"


def _rows(outputs: Sequence[Tensor]) -> Tensor:
    """What one call returned for all steps, or one call for each step, as one row a step."""
    return torch.cat([output.reshape(-1, output.shape[-1]) for output in outputs])


# ------------------------------------------------------------------------------------------ scores of recurrent models


def _scored(explanation: Explanation, attention: Attention, calls: dict[str, list[Call]], step: int) -> Worked:
    module = explanation.model.get_submodule(attention.name)
    assert isinstance(module, ScoredAttention)
    own = calls[attention.name]
    s_D = _rows([call.inputs[0] for call in own])[step]
    memory: Memory = own[0].inputs[1]
    query_name, key_name, equation = SCORES[type(module)]
    scaled = " / sqrt(d)" if isinstance(module, DotAttention) and module.scaled else ""
    query, vectors = [Line("s, the decoder's state", s_D)], {key_name + scaled: memory.keys_BSA[0]}
    if isinstance(module, SummedAttention):  # its score has a hidden layer
        query_A = module.query(s_D[None, None])[0, 0]
        query.append(Line(query_name, query_A))
        activation = torch.relu if module.rectified else torch.tanh
        name = equation.partition(" . ")[2].partition("(")[0] + "(...)"
        vectors[name] = activation(query_A + memory.keys_BSA[0])
    scores_K = _visible(module.scores(s_D[None, None], memory.keys_BSA)[0, 0], attention, step)
    weights_K, factor = scores_K.softmax(0), ""
    focuses = [call.inputs[2] for call in own if len(call.inputs) > 2 and isinstance(call.inputs[2], Focus)]
    if focuses and focuses[0].factor_BQS is not None:
        weights_K = weights_K * _rows([focus.factor_BQS for focus in focuses if focus.factor_BQS is not None])[step]
        factor = " * exp(-(j - p_t)^2 / (2 sigma^2))"
    return Worked(
        _title(explanation, attention, step),
        query=tuple(query),
        keys=attention.keys,
        vectors=vectors | {"v_j": memory.h_BSD[0]},
        score_equation=equation + scaled,
        scores_K=scores_K,
        weights_K=weights_K,
        context_D=weights_K @ memory.h_BSD[0],
        after=_read(calls, step, len(s_D)),
        step=explanation.steps[step],
        weight_factor=factor,
    )


def _visible(scores_K: Tensor, attention: Attention, step: int) -> Tensor:
    visible_K = torch.from_numpy(attention.visible[step]).to(scores_K.device)
    return scores_K.masked_fill(~visible_K, -torch.inf)


def _read(calls: dict[str, list[Call]], step: int, width: int) -> tuple[Line, ...]:
    """What the recurrent model, whose states have this width, computes from the context."""
    if "W_c" in calls:
        return (Line("h~_t = tanh(W_c [c ; h_t])", torch.tanh(_rows([call.output for call in calls["W_c"]])[step])),)
    if "L_z" in calls:
        h_D, z_D = (_rows([calls[name][0].inputs[0]])[step] for name in ("L_h", "L_z"))
        gated = Line("z_t = beta_t c, what the gate lets through", z_D)
        return gated, Line("h_t = LSTM([y_{t-1} ; z_t], h_{t-1})", h_D)
    read_D, pairs_D = (_rows([rows])[step] for rows in (calls["UVC_o"][0].inputs[0], calls["UVC_o"][0].output))
    return (
        Line("s_i = f(s_{i-1}, y_{i-1}, c)", read_D[:width]),
        Line("t_i = maxout(U_o s_i + V_o y_{i-1} + C_o c)", pairs_D.view(-1, 2).amax(-1)),
    )


# --------------------------------------------------------------------------------------------------- dot products


def _dot_product(
    explanation: Explanation, attention: Attention, calls: dict[str, list[Call]], head: int, step: int
) -> Worked:
    [call] = calls[attention.name]
    x_BQD, k_BHKE, v_BHKE = call.inputs[:3]
    module, heads, width = explanation.model.get_submodule(attention.name), k_BHKE.shape[1], k_BHKE.shape[-1]
    q_E, k_KE, v_KE = x_BQD[0, step], k_BHKE[0, head], v_BHKE[0, head]
    sublayer = _sublayer(explanation.model, attention.name, calls, step)
    query = [Line("x, the state that looks", sublayer.x_D)]
    if sublayer.order == "pre":
        query = [Line("x, the state so far", sublayer.x_D), Line("LayerNorm(x), what looks", q_E)]
    if f"{attention.name}.W_Q" in calls:
        q_E = split_heads(calls[f"{attention.name}.W_Q"][0].output, heads)[0, head, step]
        reads = "LayerNorm(x)" if sublayer.order == "pre" else "x"
        query.append(Line(f"q = {reads} W_Q" + (f", head {head + 1}" if heads > 1 else ""), q_E))
    scaled = getattr(module, "scaled", False)
    scores_K = _visible(k_KE @ q_E / (width**0.5 if scaled else 1.0), attention, step)
    weights_K = scores_K.softmax(0)
    return Worked(
        _title(explanation, attention, step, f", head {head + 1} of {heads}"),
        query=tuple(query),
        keys=attention.keys,
        vectors={"k_j": k_KE, "v_j": v_KE},
        score_equation="e_j = q . k_j" + (f" / sqrt({width})" if scaled else ""),
        scores_K=scores_K,
        weights_K=weights_K,
        context_D=weights_K @ v_KE,
        after=sublayer.added(call.output[0, step], joined=hasattr(module, "W_O")),
        step=explanation.steps[step] if explanation.steps and attention.kind != "encoder" else None,
    )


@dataclass(frozen=True)
class Sublayer:
    """What is around an attention: the residual connection, and a norm before or after it."""

    x_D: Tensor
    """The state that the attention's output is added to; pre-norm, the attention itself reads its norm."""
    order: str
    """Of the norm: pre, post or none."""
    residual: bool
    norm: nn.Module

    def added(self, attended_D: Tensor, *, joined: bool) -> tuple[Line, ...]:
        """All heads through W_O, then the residual connection and the norm."""
        output = Line("[c_1 ; c_2 ; ...] W_O, all heads" if joined else "the context as it is", attended_D)
        total_D = self.x_D + attended_D if self.residual else attended_D
        total = "x + that" if self.residual else "that alone, without x"
        if self.order == "post":
            normed = Line(f"LayerNorm({total}), what the next layer reads", self.norm(total_D))
            return output, Line(total, total_D), normed
        reads = "whose LayerNorm the next layer reads" if self.order == "pre" else "what the next layer reads"
        return output, Line(f"{total}, {reads}", total_D)


def _sublayer(model: nn.Module, name: str, calls: dict[str, list[Call]], step: int) -> Sublayer:
    parent, _, own = name.rpartition(".")
    block: Any = model.get_submodule(parent)
    if hasattr(block, "attention_norm"):  # BERT and GPT
        order, residual = "pre" if getattr(block, "pre", False) else "post", True
        norm, norm_name = block.attention_norm, f"{parent}.attention_norm"
    else:
        sublayer_name = next(candidate for candidate in SUBLAYERS[own] if hasattr(block, candidate))
        sublayer = getattr(block, sublayer_name)
        order, residual, norm, norm_name = (
            sublayer.order, sublayer.residual, sublayer.norm, f"{parent}.{sublayer_name}.norm",
        )  # fmt: skip
    read = calls[norm_name if order == "pre" else name][0].inputs[0]
    return Sublayer(read[0, step], order, residual, norm)


# ------------------------------------------------------------------------------------------------- hops over a story


def _hop(explanation: Explanation, hop: int) -> Worked:
    """A hop, from 1, over the sentences of a story.

    Sukhbaatar et al. 2015, arXiv:1503.08895, sections 2 and 4.1, with the words x_ij of sentence i and hops 1 .. K:
        m_i     = sum_j l_j * A^k x_ij + T_A^k(i)
        c_i     = sum_j l_j * C^k x_ij + T_C^k(i)
        p_i     = softmax_i(u^k . m_i)
        o       = sum_i p_i c_i
        u^{k+1} = u^k + o, layer-wise H u^k + o
    The model keeps nothing of it, so it is computed again from its parameters.
    """
    model, batch, story = explanation.model, explanation.batch, explanation.story
    assert isinstance(model, MemoryNetwork)
    assert isinstance(batch, StoryBatch)
    assert story is not None
    empty = model.config.sentences - len(story.sentences)
    next_D = _embedded(model, batch.question_BL[:1], "B", 1)[0]
    for number in range(1, hop + 1):
        u_D = next_D
        m_KD, c_KD = (_memories(model, batch, letter, number) for letter in "AC")
        scores_K = m_KD @ u_D
        scores_K[len(story.sentences) :] = math.log(max(1, empty))  # of so many empty memories together
        p_K = scores_K.softmax(0)
        o_D = p_K @ c_KD
        next_D = o_D + (u_D if model.H_DID is None else model.H_DID[:, model.winner] @ u_D)
    time = " + T_{}(i)" if model.config.temporal else ""
    memories = ", ".join(f"{letter} = {of} x_i{time.format(of)}" for letter, of in (("m_i", "A"), ("c_i", "C")))
    sentences = [f"{number} {text}" for number, text in zip(story.numbers, story.sentences, strict=True)]
    hops = len(explanation.of_kind("hops"))
    return Worked(
        f"{NAMES['hops']}, hop {hop} of {hops}: {story.question}",
        query=(Line("u^1 = B q, the question" if hop == 1 else f"u^{hop}, what hop {hop - 1} made of it", u_D),),
        keys=(*sentences, *([f"({empty} empty)"] if empty else [])),
        vectors={"m_i": m_KD, "c_i": c_KD},
        score_equation=f"e_i = u^{hop} . m_i, where {memories}",
        scores_K=scores_K,
        weights_K=p_K,
        context_D=o_D,
        after=(Line(f"u^{hop + 1} = {'' if model.H_DID is None else 'H '}u^{hop} + o", next_D),),
        step=explanation.steps[0],
        weight_factor=f"; each empty memory scores 0, together log {empty}" if empty else "",
        letters=MEMORY_LETTERS,
    )


def _memories(model: MemoryNetwork, batch: StoryBatch, letter: str, hop: int) -> Tensor:
    """m or c of each sentence, and a zero where some memories are empty."""
    present = batch.times_BS[0] > 0
    sentences_KD = _embedded(model, batch.story_BSL[0, present], letter, hop)
    if model.config.temporal:
        times_K = batch.times_BS[0, present].clamp(1, model.config.sentences) - 1
        sentences_KD = sentences_KD + model.times[model.table_of(letter, hop)][times_K, model.winner]
    empty = model.config.sentences > len(sentences_KD)
    return torch.cat([sentences_KD, sentences_KD.new_zeros(int(empty), sentences_KD.shape[1])])


def _embedded(model: MemoryNetwork, words_KL: Tensor, letter: str, hop: int) -> Tensor:
    """Each sentence as one vector: the sum of its words, weighted by their positions."""
    words_KLD = model.tables[model.table_of(letter, hop)][words_KL, model.winner]
    weights_KLD = (words_KL != PAD)[..., None].to(words_KLD.dtype)
    if model.config.words == "position":
        weights_KLD = position_weights(words_KL, model.config.width)
    sentences_KD: Tensor = (words_KLD * weights_KLD).sum(1)
    return sentences_KD
