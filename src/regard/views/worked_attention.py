"""One attention worked out for one query, equation by equation, with the model's own numbers and the
code that computes it. A reader may change its scores and see what follows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from textwrap import dedent
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import AnyBatch, StoryBatch
from regard.errors import DecodeError
from regard.layers import attention as dot_products
from regard.layers import scores
from regard.layers.attention import Change, recording, split_heads
from regard.models.headed import LayerMix
from regard.models.memory_network import MemoryNetwork
from regard.views.attention import (
    ATTENTION_NAMES,
    Attention,
    ModuleCall,
    PredictedToken,
    module_calls,
)
from regard.views.labels import token_label
from regard.views.report import Cell, Part, Report, Result, Section, Table, Text

Forward = Callable[[], Tensor]
"""Runs the model."""
ChangedScores = Sequence[float | None] | None
"""Scores changed by the reader; None hides a key."""
SCORE_EQUATIONS: dict[type[nn.Module], tuple[str, str, str]] = {
    scores.AdditiveAttention: ("W_a {0}", "U_a {1}", "v_a . tanh(W_a {0} + U_a {1})"),
    scores.ConcatAttention: (
        "W_b [{0} ; 0]",
        "W_b [0 ; {1}]",
        "w . tanh(W_b [{0} ; 0] + W_b [0 ; {1}])",
    ),
    scores.FullyConnectedAttention: (
        "W_b [{0} ; 0]",
        "W_b [0 ; {1}]",
        "w . max(0, W_b [{0} ; 0] + W_b [0 ; {1}])",
    ),
    scores.DotAttention: ("{0}", "{1}", "{0} . {1}"),
    scores.GeneralAttention: ("{0}", "W_a {1}", "{0} . W_a {1}"),
}
"""For each kind of score: the projections of the decoder's state {0} and of an encoder's {1}, and
the score."""


class Notation(NamedTuple):
    """A paper's letters for the decoder's state, an encoder's state and the score, and its
    equations of softmax and context."""

    state: str
    encoded: str
    score: str
    softmax: str
    context: str


NOTATIONS = {
    "UVC_o": Notation(
        "s_{i-1}",
        "h_j",
        "e_ij",
        "alpha_ij = exp(e_ij) / sum_k exp(e_ik)",
        "c_i = sum_j alpha_ij h_j",
    ),
    "W_c": Notation(
        "h_t",
        "h_s",
        "score(h_t, h_s)",
        "a_t(s) = exp(score(h_t, h_s)) / sum_s' exp(score(h_t, h_s'))",
        "c_t = sum_s a_t(s) h_s",
    ),
    "L_z": Notation(
        "h_{t-1}",
        "a_i",
        "e_ti",
        "alpha_ti = exp(e_ti) / sum_k exp(e_tk)",
        "c_t = sum_i alpha_ti a_i",
    ),
}
"""The notations of Bahdanau, Luong and Xu, by the module of their models that reads the context."""
CONTEXT_READERS = (*NOTATIONS, "L_h")
SUBLAYERS_AROUND = {
    "self_attention": ("around_self", "around_attention"),
    "cross_attention": ("around_cross",),
}
"""Attribute of the attention in a Transformer's block -> attributes of the sublayer around it, in a
decoder's block and in an encoder's."""
MAX_SHOWN_NUMBERS = 4
"""Number of a vector's entries that are printed."""
MAX_SHOWN_KEYS = 16
"""Number of keys that are printed: those with the largest weights, in their order."""


@dataclass(frozen=True, repr=False)
class WorkedAttention(Result):
    """An attention at one query: query, keys -> scores -> weights -> context -> the states computed
    from it.

    Vectors are listed under their equations or names.
    """

    query: Mapping[str, Tensor]
    """The state that looks, and the projections of it that are compared with the keys."""
    keys: Sequence[str]
    vectors: Mapping[str, Tensor]
    """The vectors computed from each key, [K, D]; the values last."""
    score: str
    scores_K: Tensor
    """-inf where the query may not look."""
    weights_K: Tensor
    after: Mapping[str, Tensor]
    """The states computed from the context."""
    softmax: str = "alpha_j = exp(e_j) / sum_k exp(e_k)"
    context: str = "c = sum_j alpha_j v_j"
    title: str = ""
    step: PredictedToken | None = None
    """The token that is being written; None if the source attends to itself."""
    scale: float = 1.0
    """The factor of the products of query and keys."""
    functions: Sequence[Any] = ()
    outcome: Sequence[PredictedToken] = ()
    """The resulting predictions of the model."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """View, layer, head and step, with their alternatives."""

    @property
    def context_D(self) -> Tensor:
        *_, values_KD = self.vectors.values()
        return self.weights_K @ values_KD

    def to_json(self) -> dict[str, Any]:
        """All the numbers; the score of a hidden key is null."""
        return {
            "title": self.title,
            "query": {equation: value_D.tolist() for equation, value_D in self.query.items()},
            "keys": self.keys,
            "vectors": {name: vectors_KD.tolist() for name, vectors_KD in self.vectors.items()},
            "scores": [score if math.isfinite(score) else None for score in self.scores_K.tolist()],
            "weights": self.weights_K.tolist(),
            "context": self.context_D.tolist(),
            "after": {equation: value_D.tolist() for equation, value_D in self.after.items()},
        }

    def details(self) -> dict[str, Any]:
        """The rest beside the numbers: the choices, the equations, the code, and the model's
        predictions."""
        return {
            **self.chosen,
            "equations": {name: getattr(self, name) for name in ("score", "softmax", "context")},
            "scale": self.scale,
            "code": [source_of(function) for function in self.functions],
            "outcome": [asdict(step) for step in self.outcome],
        }

    def report(self) -> Report:
        """The first numbers of each vector, and the keys with the largest weights."""

        def lines(values: Mapping[str, Tensor]) -> Table:
            return Table(
                ["", ""],
                [[Cell(name, ours=True), _vector(value_D)] for name, value_D in values.items()],
            )

        after: list[Part] = [lines(self.after)]
        if self.step is not None:
            likeliest = " · ".join(
                f"{token_label(token)} {p:.4f}" for token, p in self.step.candidates
            )
            after.append(
                Text(["Finally the softmax over the vocabulary; the likeliest tokens:", likeliest])
            )
        sections: dict[str, list[Part]] = {
            **({"The query": [lines(self.query)]} if self.query else {}),
            "The keys, their scores, and the softmax of the scores": [
                Text([self.score, self.softmax]),
                self._table(),
            ],
            "The context: the values, weighted and summed": [lines({self.context: self.context_D})],
            "What is done with the context": after,
        }
        numbered = [
            Section(f"{number}. {name}", parts)
            for number, (name, parts) in enumerate(sections.items(), 1)
        ]
        return Report(self.title, numbered, opening=self.title)

    def _table(self) -> Table:
        """One row per key, and a note on the keys left out."""
        *others, value = self.vectors
        score, weight = (equation.partition(" = ")[0] for equation in (self.score, self.softmax))
        kept = sorted(self.weights_K.topk(min(MAX_SHOWN_KEYS, len(self.keys))).indices.tolist())
        rows = []
        for j in kept:
            e_j = float(self.scores_K[j])
            alpha_j = float(self.weights_K[j])
            score_j = f"{e_j:.4f}" if math.isfinite(e_j) else Cell("hidden", ours=True)
            *before, value_j = (_vector(vectors_KD[j]) for vectors_KD in self.vectors.values())
            rows.append([token_label(self.keys[j]), *before, score_j, f"{alpha_j:.4f}", value_j])
        rest = float(self.weights_K.sum() - self.weights_K[kept].sum())
        left_out = len(self.keys) - len(kept)
        notes = [f"and {left_out} more, with {rest:.4f} of the weight"] if left_out else []
        return Table(["", *others, score, weight, value], rows, notes=notes)


def source_of(function: Any) -> dict[str, str]:
    """The name, module and source text of a function."""
    plain = getattr(function, "fget", function)  # of a property
    return {
        "name": plain.__qualname__,
        "module": plain.__module__,
        "text": dedent(inspect.getsource(plain)).rstrip(),
    }


def replaced(module: nn.Module, head: int, step: int, weights_K: Tensor) -> Change:
    """A change that replaces the weights of one head at one query."""

    def change(owner: nn.Module, weights_BHQK: Tensor, before: int) -> Tensor:
        if owner is module and 0 <= step - before < weights_BHQK.shape[2]:
            weights_BHQK = weights_BHQK.clone()
            weights_BHQK[0, head, step - before] = weights_K[: weights_BHQK.shape[3]]
        return weights_BHQK

    return change


def given_scores(scores_K: Tensor, given: ChangedScores) -> Tensor:
    """The scores that the reader gave, if any. A key that was hidden stays hidden."""
    if given is None:
        return scores_K
    if len(given) != len(scores_K):
        raise DecodeError(f"there are {len(given)} scores for {len(scores_K)} keys", where="scores")
    changed_K = scores_K.new_tensor([-torch.inf if score is None else score for score in given])
    changed_K = changed_K.masked_fill(scores_K.isneginf(), -torch.inf)
    if changed_K.isneginf().all():
        raise DecodeError("every key is hidden", where="scores", hint="leave one of them")
    return changed_K


def _vector(value_D: Tensor) -> Cell:
    shown = " ".join(f"{number:7.4f}" for number in value_D[:MAX_SHOWN_NUMBERS].tolist())
    return Cell(f"[{shown} …]" if len(value_D) > MAX_SHOWN_NUMBERS else f"[{shown}]", tone="code")


@torch.inference_mode()
def work_out(
    model: nn.Module,
    forward: Forward,
    attention: Attention,
    layers: int,
    head: int,
    step: int,
    given: ChangedScores = None,
) -> WorkedAttention:
    """Compute one of the attentions of `layers` again at a head and a query, both from 0; `forward`
    runs the model.

    With `given` scores, everything after the scores is computed from those.
    """
    scored = isinstance(model.get_submodule(attention.name), scores.ScoredAttention)
    work = _scored if scored else _dot_product
    worked = work(model, forward, attention, head, step, given)
    of_heads = "" if scored else f", head {head + 1} of {len(attention.weights)}"
    layer = f"{ATTENTION_NAMES[attention.kind]} ({attention.name}), layer {attention.layer} of {layers}{of_heads}"
    verb = "writing" if attention.kind == "alignment" else "at"
    queries = attention.queries.texts
    return replace(
        worked,
        title=f"{layer}, {verb} {token_label(queries[step])}, step {step + 1} of {len(queries)}",
    )


def _hide(scores_K: Tensor, attention: Attention, step: int) -> Tensor:
    return scores_K.masked_fill(
        ~torch.from_numpy(attention.visible[step]).to(scores_K.device), -torch.inf
    )


def _scored(
    model: nn.Module,
    forward: Forward,
    attention: Attention,
    head: int,
    step: int,
    given: ChangedScores,
) -> WorkedAttention:
    """Work out the attention of a recurrent decoder, and what the decoder computes from the
    context."""
    module = model.get_submodule(attention.name)
    assert isinstance(module, scores.ScoredAttention)
    with recording(), module_calls(model, [attention.name, *CONTEXT_READERS]) as calls:
        forward()
    own = calls[attention.name]
    s_D = _at_step((call.inputs[0] for call in own), step)
    memory = own[0].inputs[1]
    letters = next(NOTATIONS[name] for name in NOTATIONS if name in calls)
    query_name, key_name, equation = (
        text.format(*letters) for text in SCORE_EQUATIONS[type(module)]
    )
    scaled = " / sqrt(d)" if isinstance(module, scores.DotAttention) and module.scaled else ""
    query = {f"{letters.state}, the decoder's state": s_D}
    vectors = {key_name + scaled: memory.keys_BSA[0]}
    functions = [type(module).keys, type(module).scores, type(module).weights, type(module).forward]
    if isinstance(module, scores.SummedAttention):  # its score has a hidden layer
        functions = [type(module).query, *functions]
        query_A = module.query(s_D[None, None])[0, 0]
        query[query_name] = query_A
        if module.rectified:
            vectors["max(...)"] = torch.relu(query_A + memory.keys_BSA[0])
        else:
            vectors["tanh(...)"] = torch.tanh(query_A + memory.keys_BSA[0])
    vectors[letters.encoded] = memory.h_BSD[0]
    scores_K = given_scores(
        _hide(module.scores(s_D[None, None], memory.keys_BSA)[0, 0], attention, step), given
    )
    weights_K = scores_K.softmax(0)
    factor_S = _focus_factor(own, step)
    if factor_S is not None:
        weights_K = weights_K * factor_S
    if given is not None:
        change = recording(replaced(module, head, step, weights_K))
        with change, module_calls(model, CONTEXT_READERS) as calls:
            forward()
    after = _after_context(calls, step, len(s_D))
    score = f"{letters.score} = {equation}{scaled}"
    worked = WorkedAttention(
        query, attention.keys.texts, vectors, score, scores_K, weights_K, after
    )
    focused = "" if factor_S is None else " * exp(-(s - p_t)^2 / (2 sigma^2))"
    return replace(
        worked, softmax=letters.softmax + focused, context=letters.context, functions=functions
    )


def _at_step(outputs: Iterable[Tensor], step: int) -> Tensor:
    """The output at the step, whether one call returned all steps or each step had its own."""
    return torch.cat([output.reshape(-1, output.shape[-1]) for output in outputs])[step]


def _focus_factor(calls: Sequence[ModuleCall], step: int) -> Tensor | None:
    """The Gaussian around the position that local attention predicts; None for other attentions."""
    focuses = [
        call.inputs[2]
        for call in calls
        if len(call.inputs) > 2 and isinstance(call.inputs[2], scores.Focus)
    ]
    factors = [focus.factor_BQS for focus in focuses if focus.factor_BQS is not None]
    return _at_step(factors, step) if factors else None


def _after_context(
    calls: Mapping[str, Sequence[ModuleCall]], step: int, width: int
) -> dict[str, Tensor]:
    """The states that a recurrent decoder computes from the context: Luong's, Xu's or
    Bahdanau's."""
    if "W_c" in calls:
        projected_D = _at_step((call.output for call in calls["W_c"]), step)
        return {"h~_t = tanh(W_c [c_t ; h_t])": torch.tanh(projected_D)}
    if "L_z" in calls:
        return {
            "z_t = beta_t c_t, what the gate lets through": _at_step(
                [calls["L_z"][0].inputs[0]], step
            ),
            "h_t = LSTM([y_{t-1} ; z_t], h_{t-1})": _at_step([calls["L_h"][0].inputs[0]], step),
        }
    read_D = _at_step([calls["UVC_o"][0].inputs[0]], step)
    pairs_D = _at_step([calls["UVC_o"][0].output], step)
    return {
        "s_i = f(s_{i-1}, y_{i-1}, c_i)": read_D[:width],
        "t_i = maxout(U_o s_i + V_o y_{i-1} + C_o c_i)": pairs_D.view(-1, 2).amax(-1),
    }


class SublayerAround(NamedTuple):
    """The sublayer around an attention of a Transformer's block."""

    norm: str
    """The name of its norm inside the model."""
    order: str
    """Whether the norm comes before or after the attention: `pre`, `post` or `none`."""
    residual: bool

    @classmethod
    def of(cls, model: nn.Module, attention: str) -> SublayerAround:
        parent, _, own = attention.rpartition(".")
        block: Any = model.get_submodule(parent)
        if hasattr(block, "attention_norm"):  # BERT and GPT
            order = "pre" if getattr(block, "pre", False) else "post"
            return cls(f"{parent}.attention_norm", order, residual=True)
        name = next(sublayer for sublayer in SUBLAYERS_AROUND[own] if hasattr(block, sublayer))
        sublayer = getattr(block, name)
        return cls(f"{parent}.{name}.norm", sublayer.order, sublayer.residual)


def _dot_product(
    model: nn.Module,
    forward: Forward,
    attention: Attention,
    head: int,
    step: int,
    given: ChangedScores,
) -> WorkedAttention:
    """Work out an attention with queries, keys and values, and the residual connection and norm
    around it."""
    name = attention.name
    around = SublayerAround.of(model, name)
    with recording(), module_calls(model, [name, f"{name}.W_Q", around.norm]) as calls:
        forward()
    [call] = calls[name]
    read_BQD, k_BHKE, v_BHKE = call.inputs[:3]
    module: Any = model.get_submodule(name)
    heads = k_BHKE.shape[1]
    width = k_BHKE.shape[-1]
    q_E = read_BQD[0, step]
    k_KE = k_BHKE[0, head]
    v_KE = v_BHKE[0, head]
    query = {"x, the state that looks": q_E}
    reads = "x"
    # the attention's output is added to x, and the attention itself reads its norm
    if around.order == "pre":
        x_D = calls[around.norm][0].inputs[0][0, step]
        query = {"x, the state so far": x_D, "LayerNorm(x), what looks": q_E}
        reads = "LayerNorm(x)"
    [x_D, *_] = query.values()
    if f"{name}.W_Q" in calls:
        q_E = split_heads(calls[f"{name}.W_Q"][0].output, heads)[0, head, step]
        query[f"q = {reads} W_Q" + (f", head {head + 1}" if heads > 1 else "")] = q_E
    scaled = getattr(module, "scaled", False)
    scale = width**-0.5 if scaled else 1.0
    own_scores_K = k_KE @ q_E * scale
    score = "e_j = q . k_j" + (f" / sqrt({width})" if scaled else "")
    terms = _score_terms(module, call, head, step)
    if terms:
        scale = 1.0
        own_scores_K = torch.stack([*terms.values()]).sum(0)
        score = f"e_j = {' + '.join(terms)}"
    scores_K = given_scores(_hide(own_scores_K, attention, step), given)
    weights_K = scores_K.softmax(0)
    if given is not None:
        change = recording(replaced(module, head, step, weights_K))
        with change, module_calls(model, [name]) as calls:
            forward()
        [call] = calls[name]
    attended = "[c_1 ; c_2 ; ...] W_O, all heads"
    if not hasattr(module, "W_O"):
        attended = "the context as it is"
    attended_D = call.output[0, step]
    after = {attended: attended_D} | _after_sublayer(model, around, x_D, attended_D)
    columns = {term: term_K[:, None] for term, term_K in terms.items()} if len(terms) > 1 else {}
    vectors = {"k_j": k_KE, **columns, "v_j": v_KE}
    functions = (
        [module.keys_values, module.forward]
        if isinstance(module, dot_products.MultiHeadAttention)
        else []
    )
    if terms:
        functions = [type(module).score_terms, *functions]
    worked = WorkedAttention(
        query, attention.keys.texts, vectors, score, scores_K, weights_K, after
    )
    return replace(worked, scale=scale, functions=[*functions, dot_products.attend])


def _score_terms(module: Any, call: ModuleCall, head: int, step: int) -> dict[str, Tensor]:
    """The terms of the scores, [K], by their equations, if an attention has others than q . k_j;
    else none."""
    if not hasattr(module, "score_terms"):
        return {}
    terms = module.score_terms(*call.inputs)
    return {equation: term_BHQK[0, head, step] for equation, term_BHQK in terms.items()}


def _after_sublayer(
    model: nn.Module, around: SublayerAround, x_D: Tensor, attended_D: Tensor
) -> dict[str, Tensor]:
    """The states after the residual connection and the norm."""
    total = "x + that" if around.residual else "that alone, without x"
    total_D = x_D + attended_D if around.residual else attended_D
    if around.order == "post":
        normed_D = model.get_submodule(around.norm)(total_D)
        return {total: total_D, f"LayerNorm({total}), what the next layer reads": normed_D}
    next_reads = "what the next layer reads"
    if around.order == "pre":
        next_reads = "whose LayerNorm the next layer reads"
    return {f"{total}, {next_reads}": total_D}


@torch.inference_mode()
def work_out_hop(
    model: MemoryNetwork,
    batch: StoryBatch,
    sentences: Sequence[str],
    hop: int,
    given: ChangedScores,
) -> WorkedAttention:
    """Work out a hop, from 1, over the sentences of a story.

    The model keeps no intermediate values (models/memory_network.py), so they are computed again.
    """
    config = model.config
    winner = model.winner
    words_SL = batch.story_BSL[0]
    times_1S = batch.times_BS[:1]
    rows_1S = torch.arange(len(words_SL), device=words_SL.device)[None]
    empty = config.sentences - len(sentences)

    def memories(letter: str, number: int) -> Tensor:
        """m or c of each sentence, and a zero vector if some memories are empty."""
        m_1SID = model.memory(words_SL, rows_1S, times_1S, model.table_of(letter, number))
        return F.pad(m_1SID[0, times_1S[0] > 0, winner], (0, 0, 0, int(empty > 0)))

    next_D = model.sentence_vectors(batch.question_BL[:1], model.table_of("B", 1))[0, winner]
    for number in range(1, hop + 1):
        u_D = next_D
        m_KD = memories("A", number)
        c_KD = memories("C", number)
        scores_K = m_KD @ u_D
        scores_K[len(sentences) :] = math.log(max(1, empty))  # of so many empty memories together
        scores_K = given_scores(scores_K, given if number == hop else None)
        p_K = scores_K.softmax(0)
        next_D = p_K @ c_KD + (u_D if model.H_DID is None else model.H_DID[:, winner] @ u_D)
    time = " + T_{}(i)" if config.temporal else ""
    named = ", ".join(
        f"{letter} = {of} x_i{time.format(of)}" for letter, of in (("m_i", "A"), ("c_i", "C"))
    )
    all_empty = f"; each empty memory scores 0, together log {empty}" if empty else ""
    return WorkedAttention(
        {"u^1 = B q, the question" if hop == 1 else f"u^{hop}, what hop {hop - 1} made of it": u_D},
        (*sentences, *([f"({empty} empty)"] if empty else [])),
        {"m_i": m_KD, "c_i": c_KD},
        f"e_i = u^{hop} . m_i, where {named}",
        scores_K,
        p_K,
        {f"u^{hop + 1} = {'' if model.H_DID is None else 'H '}u^{hop} + o": next_D},
        softmax=f"p_i = exp(e_i) / sum_k exp(e_k){all_empty}",
        context="o = sum_i p_i c_i",
        functions=(MemoryNetwork.memory, MemoryNetwork.forward),
    )


@torch.inference_mode()
def work_out_mix(
    model: Any,
    batch: AnyBatch,
    tokens: Sequence[str],
    step: int,
    given: ChangedScores,
    learned: bool,
) -> WorkedAttention:
    """Work out the mix of a token's layers, `learned` by a task or even."""
    layers = [
        layer_BLD[0, step] for layer_BLD in (model.base if learned else model).layers_of(batch)
    ]
    mix = model.mix if learned else LayerMix(len(layers))
    s_N = given_scores(mix.s.detach().float(), given)
    weights_N = s_N.softmax(0)
    h_ND = torch.stack(layers)
    names = ("embeddings", *(f"layer {number}" for number in range(1, len(layers))))
    return WorkedAttention(
        {},
        names,
        {"h_j": h_ND},
        "w_j, learned by the task" if learned else "w_j = 0, since no task has learned it",
        s_N,
        weights_N,
        {"ELMo = gamma * m": mix.gamma * (weights_N @ h_ND)},
        softmax="s_j = exp(w_j) / sum_k exp(w_k)",
        context="m = sum_j s_j h_j",
        title=f"the mix of {len(layers)} layers for {token_label(tokens[step])}, token {step + 1} of "
        f"{len(tokens)}",
        functions=(LayerMix.weights_N, LayerMix.forward),
    )


@contextmanager
def mixed(mix: LayerMix, weights_N: Tensor) -> Iterator[None]:
    """Within this context, mix the layers of every token with these weights."""
    hook = mix.register_forward_hook(
        lambda _, inputs, __: (
            mix.gamma * torch.einsum("n,n...->...", weights_N, torch.stack([*inputs[0]]))
        )
    )
    try:
        yield
    finally:
        hook.remove()
