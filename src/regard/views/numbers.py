"""Work one attention out with the run's own numbers: `regard explain --numbers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
from regard.models import bert, gpt
from regard.models.transformer import Sublayer
from regard.views.capture import Call, watching
from regard.views.explanation import KINDS, NAMES, Explanation, View
from regard.views.labels import label
from regard.views.seen import Attention
from regard.views.worked import SOFTMAX, Line, Worked

SCORES: dict[type[nn.Module], tuple[str, str]] = {
    AdditiveAttention: ("W_a s", "e_j = v_a . tanh(W_a s + U_a h_j)"),
    ConcatAttention: ("W_b [s ; 0]", "e_j = w . tanh(W_b [s ; 0] + W_b [0 ; h_j])"),
    FullyConnectedAttention: ("W_b [s ; 0]", "e_j = w . max(0, W_b [s ; 0] + W_b [0 ; h_j])"),
    DotAttention: ("s", "e_j = s . h_j"),
    GeneralAttention: ("s", "e_j = s . W_a h_j"),
}
"""What of each score depends on the decoder, and the score."""
KEY_NAMES = {AdditiveAttention: "U_a h_j", DotAttention: "h_j", GeneralAttention: "W_a h_j"}
READERS = ("UVC_o", "W_c", "L_h", "L_z")
"""The modules of Bahdanau's, Luong's and Xu's models that read the context."""
AROUND = {"self_attention": ("around_self", "around_attention"), "cross_attention": ("around_cross",)}
"""What an attention of a Transformer stands in, by its name: in a decoder's block, or in an encoder's."""


def work_out(
    explanation: Explanation, view: View | None = None, *, layer: int | None = None, head: int = 1, step: int = 1
) -> Worked:
    """Compute one attention anew for one query: over the source, of the last layer, unless told otherwise.

    `step` counts from 1 what is written; for the encoder's self-attention, the words that look.
    """
    if explanation.pieces is not None:
        raise DecodeError("the numbers are those of tokens, not of words", where="--words", hint="leave it out")
    attention = _chosen(explanation, view, layer)
    written = [] if attention.kind == "encoder" else explanation.steps
    queries = len(written) or len(attention.queries)
    _check("--head", head, len(attention.weights))
    _check("--step", step, queries)
    module = explanation.model.get_submodule(attention.name)
    calls = _calls(explanation, attention.name)
    with torch.inference_mode():
        if isinstance(module, ScoredAttention):
            return _scored(explanation, attention, calls, step - 1)
        return _dot_product(explanation, attention, calls, head - 1, step - 1)


def _chosen(explanation: Explanation, view: View | None, layer: int | None) -> Attention:
    there = [kind for kind in KINDS if explanation.of_kind(kind)]
    if not there:
        what = f"the model {explanation.model_kind!r} has no attention to work out"
        raise DecodeError(what, where="--numbers", hint="--view probabilities shows what it might have written")
    kind = next((kind for kind in there if view in (None, kind)), None)
    if kind is None:
        what = f"the model {explanation.model_kind!r} has no {NAMES.get(str(view), 'such attention')} to work out"
        raise DecodeError(what, where="--view", hint=f"allowed for it: {', '.join(there)}")
    attentions = explanation.of_kind(kind)
    if layer is not None:
        _check("--layer", layer, len(attentions))
    return attentions[(layer or len(attentions)) - 1]


def _check(option: str, number: int, count: int) -> None:
    if not 1 <= number <= count:
        what = f"there is no {option.strip('-')} {number}"
        raise DecodeError(what, where=option, hint=f"allowed: {f'1 to {count}' if count > 1 else '1'}")


@torch.inference_mode()
def _calls(explanation: Explanation, name: str) -> dict[str, list[Call]]:
    """The calls of the attention, of what is inside it, and of all that may read its context."""
    parent = name.rpartition(".")[0]
    norms = {f"{parent}.{around}.norm" for names in AROUND.values() for around in names}
    wanted = {name, f"{name}.W_Q", *norms, f"{parent}.attention_norm", *READERS}
    with recording(), watching(explanation.model, lambda called, _: called in wanted) as calls:
        explanation.read()
    return calls


def _title(explanation: Explanation, attention: Attention, step: int, heads: str) -> str:
    layers = len(explanation.of_kind(attention.kind))
    verb = "writing" if attention.kind == "alignment" else "at"
    place = f"{verb} {label(attention.queries[step])}, step {step + 1} of {len(attention.queries)}"
    which = f"layer {attention.layer} of {layers}{heads}"
    return f"{NAMES[attention.kind]} ({attention.name}), {which}, {place}"


def _rows(outputs: Sequence[Tensor]) -> Tensor:
    """What one call gave for all steps, or a call each for its own, as one row a step."""
    return torch.cat([output.reshape(-1, output.shape[-1]) for output in outputs])


# ------------------------------------------------------------------------------------------ scores of recurrent models


def _scored(explanation: Explanation, attention: Attention, calls: dict[str, list[Call]], step: int) -> Worked:
    module = explanation.model.get_submodule(attention.name)
    assert isinstance(module, ScoredAttention)
    looks = calls[attention.name]
    s_D = _rows([call.inputs[0] for call in looks])[step]
    memory: Memory = looks[0].inputs[1]
    focuses = [call.inputs[2] for call in looks if len(call.inputs) > 2 and isinstance(call.inputs[2], Focus)]
    query_A, inner_KA = _halves(module, s_D, memory.keys_BSA[0])
    query_name, equation = SCORES[type(module)]
    scaled = isinstance(module, DotAttention) and module.scaled
    vectors = {KEY_NAMES.get(type(module), "W_b [0 ; h_j]") + (" / sqrt(d)" if scaled else ""): memory.keys_BSA[0]}
    if inner_KA is not None:
        vectors[equation.partition(" . ")[2].partition("(")[0] + "(...)"] = inner_KA
    scores_K = module.scores(s_D[None, None], memory.keys_BSA)[0, 0]
    visible_K = torch.from_numpy(attention.visible[step]).to(scores_K.device)
    scores_K = scores_K.masked_fill(~visible_K, -torch.inf)
    weights_K, weight_equation = scores_K.softmax(0), SOFTMAX
    if focuses and focuses[0].factor_BQS is not None:
        weights_K = weights_K * _rows([focus.factor_BQS for focus in focuses if focus.factor_BQS is not None])[step]
        weight_equation += " * exp(-(j - p_t)^2 / (2 sigma^2))"
    query = [Line("s, the decoder's state", s_D)]
    return Worked(
        _title(explanation, attention, step, ""),
        query=tuple(query if query_name == "s" else [*query, Line(query_name, query_A)]),
        keys=attention.keys,
        vectors=vectors | {"v_j": memory.h_BSD[0]},
        score_equation=equation + (" / sqrt(d)" if scaled else ""),
        scores_K=scores_K,
        weight_equation=weight_equation,
        weights_K=weights_K,
        context_D=weights_K @ memory.h_BSD[0],
        after=_read(calls, step, len(s_D)),
        step=explanation.steps[step],
    )


def _halves(module: ScoredAttention, s_D: Tensor, keys_KA: Tensor) -> tuple[Tensor, Tensor | None]:
    """What is made of the query, and, where a score has a hidden layer, that layer for each key."""
    if not isinstance(module, SummedAttention):
        return s_D, None
    query_A = module.query(s_D[None, None])[0, 0]
    return query_A, torch.relu(query_A + keys_KA) if module.rectified else torch.tanh(query_A + keys_KA)


def _read(calls: dict[str, list[Call]], step: int, width: int) -> tuple[Line, ...]:
    """What the recurrent model made of the context; its states are of this width."""
    if "W_c" in calls:
        return (Line("h~_t = tanh(W_c [c ; h_t])", torch.tanh(_rows([call.output for call in calls["W_c"]])[step])),)
    if "L_z" in calls:
        h_D, z_D = (_rows([calls[name][0].inputs[0]])[step] for name in ("L_h", "L_z"))
        return Line("z_t = beta_t c, what the gate lets through", z_D), Line(
            "h_t = LSTM([y_{t-1} ; z_t], h_{t-1})", h_D
        )
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
    around = _around(explanation.model, attention.name, calls, step)
    query = [Line("x, the state that looks", around.x_D)]
    if around.order == "pre":
        query = [Line("x, the state so far", around.x_D), Line("LayerNorm(x), what looks", q_E)]
    if f"{attention.name}.W_Q" in calls:
        q_E = split_heads(calls[f"{attention.name}.W_Q"][0].output, heads)[0, head, step]
        looks = "LayerNorm(x)" if around.order == "pre" else "x"
        query.append(Line(f"q = {looks} W_Q" + (f", head {head + 1}" if heads > 1 else ""), q_E))
    scaled = getattr(module, "scaled", False)
    scores_K = k_KE @ q_E / (width**0.5 if scaled else 1.0)
    visible_K = torch.from_numpy(attention.visible[step]).to(scores_K.device)
    scores_K = scores_K.masked_fill(~visible_K, -torch.inf)
    weights_K = scores_K.softmax(0)
    return Worked(
        _title(explanation, attention, step, f", head {head + 1} of {heads}"),
        query=tuple(query),
        keys=attention.keys,
        vectors={"k_j": k_KE, "v_j": v_KE},
        score_equation="e_j = q . k_j" + (f" / sqrt({width})" if scaled else ""),
        scores_K=scores_K,
        weight_equation=SOFTMAX,
        weights_K=weights_K,
        context_D=weights_K @ v_KE,
        after=_added(around, call.output[0, step], joined=hasattr(module, "W_O")),
        step=explanation.steps[step] if explanation.steps and attention.kind != "encoder" else None,
    )


@dataclass(frozen=True)
class Around:
    """What stands around an attention: the residual connection, and a norm before or behind it."""

    x_D: Tensor
    """The state that the attention's output is added to; the attention itself reads its norm where that comes first."""
    order: str
    """Of the norm: pre, post or none."""
    residual: bool
    norm: nn.Module


def _around(model: nn.Module, name: str, calls: dict[str, list[Call]], step: int) -> Around:
    parent, _, own = name.rpartition(".")
    block = model.get_submodule(parent)
    norm: nn.Module
    if isinstance(block, gpt.Block | bert.Block):
        order = "pre" if isinstance(block, gpt.Block) and block.pre else "post"
        norm, norm_name, residual = block.attention_norm, f"{parent}.attention_norm", True
    else:
        around = next(one for one in AROUND[own] if hasattr(block, one))
        sublayer = model.get_submodule(f"{parent}.{around}")
        assert isinstance(sublayer, Sublayer)
        order, residual, norm, norm_name = sublayer.order, sublayer.residual, sublayer.norm, f"{parent}.{around}.norm"
    read = calls[norm_name if order == "pre" else name][0].inputs[0]
    return Around(read[0, step], order, residual, norm)


def _added(around: Around, attended_D: Tensor, *, joined: bool) -> tuple[Line, ...]:
    """The heads side by side through W_O, then the residual connection and the norm."""
    that = Line("[c_1 ; c_2 ; ...] W_O, all heads" if joined else "the context as it is", attended_D)
    total_D = around.x_D + attended_D if around.residual else attended_D
    total = "x + that" if around.residual else "that alone, without x"
    if around.order == "post":
        normed = Line(f"LayerNorm({total}), what the next layer reads", around.norm(total_D))
        return that, Line(total, total_D), normed
    reads = "whose LayerNorm the next layer reads" if around.order == "pre" else "what the next layer reads"
    return that, Line(f"{total}, {reads}", total_D)
