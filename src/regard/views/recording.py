"""What a model computes for one input, recorded from outside: attention, likely tokens, numbers of one step.

No model knows that it is recorded: weights come from `layers.attention.recording`, the rest from forward hooks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import StoryBatch
from regard.layers import scores
from regard.layers.attention import recording, split_heads
from regard.layers.embeddings import Positions
from regard.models.base import device_of
from regard.models.memory_network import MemoryNetwork
from regard.search.hypotheses import log_probabilities
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK
from regard.views.labels import label
from regard.views.report import Numbers, Part, Report, Section, Table, Text

Kind = Literal["alignment", "encoder", "decoder", "hops"]
"""Attention over the source, self-attention of the encoder or the decoder, attention over the sentences of a story."""
NAMES: dict[Kind, str] = {
    "alignment": "attention over the source",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "hops": "attention over the story",
}
POSITIONS = 50
"""Position encodings that are shown."""
CANDIDATES = 5
"""Likeliest tokens that are kept for each step."""
SCORES: dict[type[nn.Module], tuple[str, str, str]] = {
    scores.AdditiveAttention: ("W_a s", "U_a h_j", "e_j = v_a . tanh(W_a s + U_a h_j)"),
    scores.ConcatAttention: ("W_b [s ; 0]", "W_b [0 ; h_j]", "e_j = w . tanh(W_b [s ; 0] + W_b [0 ; h_j])"),
    scores.FullyConnectedAttention: ("W_b [s ; 0]", "W_b [0 ; h_j]", "e_j = w . max(0, W_b [s ; 0] + W_b [0 ; h_j])"),
    scores.DotAttention: ("s", "h_j", "e_j = s . h_j"),
    scores.GeneralAttention: ("s", "W_a h_j", "e_j = s . W_a h_j"),
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


class Call(NamedTuple):
    """One call of a module."""

    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def module_calls(model: nn.Module, names: Collection[str]) -> Iterator[dict[str, list[Call]]]:
    """The calls of these modules inside `model`, by name and in order; the name of `model` itself is empty."""
    calls: dict[str, list[Call]] = {}

    def keep(name: str, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls.setdefault(name, []).append(Call(inputs, output))

    modules = dict(model.named_modules())
    hooks = [modules[name].register_forward_hook(partial(keep, name)) for name in names if name in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


class Pieces(NamedTuple):
    """A text as a model reads or writes it, in tokens or words."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    """The position of each word's first token."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> Pieces:
        """The tokens `ids`. Special tokens, `<unk>` among them, are words of their own.

        A word begins with the mark `▁`, or, in vocabularies that write `##` before continuations, without `##`.
        """
        special, pieces = tokenizer.special, tuple(tokenizer.pieces(ids))
        decoder = json.loads(tokenizer.to_json())["decoder"] or {}
        hashes, starts = decoder.get("prefix") == "##", []
        for position, piece in enumerate(pieces):
            begins = not piece.startswith("##") if hashes else piece.startswith(MARK)
            after_special = position == 0 or ids[position - 1] in special
            if begins or after_special or ids[position] in special:
                starts.append(position)
        return cls(pieces, tuple(starts))

    def first(self, count: int) -> Pieces:
        return Pieces(self.texts[:count], tuple(start for start in self.starts if start < count))

    def words(self) -> Pieces:
        """The tokens of each word joined, without the marks."""
        ends = [*self.starts[1:], len(self.texts)]
        joined = ["".join(self.texts[first:last]) for first, last in zip(self.starts, ends, strict=False)]
        words = tuple(word.replace("##", "").replace("‿", "").strip(MARK) or MARK for word in joined)
        return Pieces(words, tuple(range(len(words))))


def merge_pieces(weights: Numbers, query_starts: Sequence[int], key_starts: Sequence[int]) -> Numbers:
    """Weights [..., Q, K] between words: the sum over the tokens of a key, the mean over the tokens of a query.

    So rows that sum to 1 still do (Clark et al. 2019, arXiv:1906.04341, section 4.1).
    """
    summed = np.add.reduceat(weights, key_starts, axis=-1)
    tokens_Q1 = np.diff([*query_starts, weights.shape[-2]])[:, None]
    merged: Numbers = np.add.reduceat(summed, query_starts, axis=-2) / tokens_Q1
    return merged


@dataclass(frozen=True, eq=False)
class Attention:
    """The weights of one attention: `weights[h, q, k]` is how much of key k head h reads at query q."""

    name: str
    """Of the module inside the model."""
    kind: Kind
    layer: int
    queries: Pieces
    keys: Pieces
    weights: Numbers
    visible: npt.NDArray[np.bool_]
    """[Q, K], where it may look."""

    def between_words(self) -> Attention:
        starts = self.queries.starts, self.keys.starts
        return replace(
            self,
            queries=self.queries.words(),
            keys=self.keys.words(),
            weights=merge_pieces(self.weights, *starts).astype(self.weights.dtype),
            visible=merge_pieces(self.visible.astype(np.float32), *starts) > 0,
        )

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"queries": self.queries.texts, "keys": self.keys.texts}


@torch.inference_mode()
def record(
    model: nn.Module, forward: Callable[[], Tensor], source: Pieces, inputs: Pieces, target: Pieces
) -> tuple[Tensor, dict[str, Attention]]:
    """Run the written-out equation of every attention for the first sentence of a batch: hidden states, attentions."""
    with recording() as recorded:
        hidden_BTD = forward()
    visible, attentions = recorded.by_name(model, visible=True), dict[str, Attention]()
    for name, weights_BHQK in recorded.by_name(model).items():
        kind: Kind = "decoder"
        queries = keys = inputs
        if fnmatch(name, getattr(model, "alignment", "")):
            kind, queries, keys = "alignment", target, source
        elif name.startswith("encoder") or not inputs.texts:
            kind, queries, keys = "encoder", source, source
        queries = queries.first(weights_BHQK.shape[2])  # a recurrent decoder takes no step for padding
        number = re.search(r"\.(\d+)\.", name)
        layer, weights = int(number[1]) + 1 if number else 1, weights_BHQK[0].float().cpu().numpy()
        attentions[name] = Attention(name, kind, layer, queries, keys, weights, visible[name][0, 0].cpu().numpy())
    return hidden_BTD[0], attentions


def roll_out(attentions: Mapping[str, Attention], *, residual: bool = True) -> dict[Kind, list[Attention]]:
    """How much of each token there is in the states after each layer, by kind; empty without self-attention.

    Abnar & Zuidema 2020, arXiv:2005.00928, section 3, for weights averaged over the heads, with
    A = 0.5 W_att + 0.5 I for the residual connection; a model without has A = W_att:
        R_l = A_l R_{l-1},  R_0 = I

    The paper has one stack, as BERT and GPT have. In a decoder over an encoder, self-attention mixes what the states
    hold, and attention over the source adds what the encoder's last states, or the regions of an image, hold; the
    shares of source and target tokens sum to 1 together.
    """
    layers = {kind: [layer for layer in attentions.values() if layer.kind == kind] for kind in NAMES}
    encoder, decoder, cross = layers["encoder"], layers["decoder"], layers["alignment"]
    if not decoder and (cross or not encoder):
        return {}
    share, rolled = 0.5 if residual else 1.0, dict[Kind, list[Attention]]()

    def mix(attention: Attention, read: Numbers, before: Numbers) -> Numbers:
        mixed: Numbers = share * (attention.weights.mean(0, dtype=np.float64) @ read) + (1 - share) * before
        return mixed

    def keep(attention: Attention, shares: Numbers) -> None:
        rolled.setdefault(attention.kind, []).append(replace(attention, weights=shares[None]))

    of_encoder: Numbers = np.eye(len([*encoder, *cross][0].keys.texts) if encoder or cross else 0)
    for layer in encoder:
        of_encoder = mix(layer, of_encoder, of_encoder)
        keep(layer, of_encoder)
    of_target: Numbers = np.eye(len(decoder[0].keys.texts) if decoder else 0)
    of_source: Numbers = np.zeros((len(of_target), len(of_encoder)))
    for number, layer in enumerate(decoder):
        of_target, of_source = mix(layer, of_target, of_target), mix(layer, of_source, of_source)
        if cross:
            of_target, of_source = (1 - share) * of_target, mix(cross[number], of_encoder, of_source)
            keep(cross[number], of_source)
        keep(layer, of_target)
    return rolled


@torch.inference_mode()
def positions_of(model: nn.Module) -> Numbers | None:
    """What the model adds to the embeddings at the first positions, [50, D]; None where it has no such encoding."""
    for module in model.modules():
        if isinstance(module, Positions) and module.kind != "none":
            count = min(POSITIONS, module.longest) if module.kind == "learned" else POSITIONS
            zeros_1LD = torch.zeros(1, count, module.width, device=device_of(model))
            encodings_LD: Numbers = module(zeros_1LD)[0].float().cpu().numpy()
            return encodings_LD
    return None


@dataclass(frozen=True)
class Step:
    """One token of the target: its probability, its rank from 1, and the likeliest tokens at its position."""

    token: str
    probability: float
    rank: int
    candidates: tuple[tuple[str, float], ...]
    """Each with its probability."""


class Predicted(NamedTuple):
    """Where a model predicts tokens, and which; None: the likeliest ones that are not special."""

    tokenizer: Tokenizer
    places: Sequence[int] = ()
    written: Sequence[int] | None = None


@torch.inference_mode()
def steps_of(model: Any, hidden_TD: Tensor, predicted: Predicted) -> tuple[Step, ...]:
    """The model's own probabilities, also of tokens that the search may not write."""
    tokenizer, places, written = predicted
    if not places:
        return ()
    logits_PV = model.readout(hidden_TD[[*places]])
    if written is None:
        special = torch.tensor(sorted(tokenizer.special), device=logits_PV.device)
        written = logits_PV.index_fill(1, special, -torch.inf).argmax(-1).tolist()
    p_PV = log_probabilities(logits_PV).exp().cpu()
    p_P1 = p_PV.gather(1, torch.tensor(written)[:, None])
    ranks = ((p_PV > p_P1).sum(1) + 1).tolist()
    likeliest = p_PV.topk(min(CANDIDATES, p_PV.shape[1]))
    columns = tokenizer.pieces(written), p_P1[:, 0].tolist(), ranks, likeliest.indices, likeliest.values.tolist()
    steps = []
    for piece, p, rank, ids, probabilities in zip(*columns, strict=True):
        # Each alone: side by side, the bytes of alternatives would be read as one character.
        tokens = [tokenizer.pieces([token])[0] for token in ids.tolist()]
        steps.append(Step(piece, p, rank, tuple(zip(tokens, probabilities, strict=True))))
    return tuple(steps)


@dataclass(frozen=True)
class Worked:
    """An attention at one query: query, keys -> scores -> weights -> context -> what the model does with it.

    Vectors are listed under their equations or names.
    """

    query: Mapping[str, Tensor]
    """The state that looks, and what is made of it before it meets the keys."""
    keys: Sequence[str]
    vectors: Mapping[str, Tensor]
    """What is computed from each key, [K, D]; the values last."""
    score: str
    scores_K: Tensor
    """-inf where the query may not look."""
    weights_K: Tensor
    after: Mapping[str, Tensor]
    """What is done with the context."""
    softmax: str = "alpha_j = exp(e_j) / sum_k exp(e_k)"
    context: str = "c = sum_j alpha_j v_j"
    title: str = ""
    step: Step | None = None
    """The token that is being written; None where the source attends to itself."""

    @property
    def context_D(self) -> Tensor:
        *_, values_KD = self.vectors.values()
        return self.weights_K @ values_KD

    def to_json(self) -> dict[str, Any]:
        """All the numbers; a score of null belongs to a key that is hidden."""
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

    def report(self) -> Report:
        """The first numbers of each vector, and the keys with the largest weights."""

        def lines(values: Mapping[str, Tensor]) -> Table:
            return Table(["", ""], [[equation, _vector(value_D)] for equation, value_D in values.items()])

        after: list[Part] = [lines(self.after)]
        if self.step is not None:
            likeliest = "   ".join(f"{label(token)} {p:.4f}" for token, p in self.step.candidates)
            after.append(Text(["Finally the softmax over the vocabulary; the likeliest tokens:", likeliest]))
        sections: dict[str, list[Part]] = {
            "1. The query": [lines(self.query)],
            "2. The keys, their scores, and the softmax of the scores": [
                Text([self.score, self.softmax]),
                self._table(),
            ],
            "3. The context: the values, weighted and summed": [lines({self.context: self.context_D})],
            "4. What is done with the context": after,
        }
        return Report(self.title, [Section(*section) for section in sections.items()], opening=self.title)

    def _table(self) -> Table:
        """A row for each key, and a note on those that are left out."""
        *others, value = self.vectors
        score, weight = (equation.partition(" = ")[0] for equation in (self.score, self.softmax))
        kept, rows = sorted(self.weights_K.topk(min(MOST_KEYS, len(self.keys))).indices.tolist()), []
        for j in kept:
            e_j, alpha_j = float(self.scores_K[j]), float(self.weights_K[j])
            numbers = [f"{e_j:.4f}" if math.isfinite(e_j) else "hidden", f"{alpha_j:.4f}"]
            vectors = {name: _vector(vectors_KD[j]) for name, vectors_KD in self.vectors.items()}
            rows.append([label(self.keys[j]), *(vectors[name] for name in others), *numbers, vectors[value]])
        rest = float(self.weights_K.sum() - self.weights_K[kept].sum())
        left_out = len(self.keys) - len(kept)
        notes = [f"and {left_out} more, with {rest:.4f} of the weight"] if left_out else []
        return Table(["", *others, score, weight, value], rows, notes=notes)


def _vector(value_D: Tensor) -> str:
    shown = " ".join(f"{number:7.4f}" for number in value_D[:SHOWN].tolist())
    return f"[{shown} …]" if len(value_D) > SHOWN else f"[{shown}]"


@torch.inference_mode()
def work_out(
    model: nn.Module, forward: Callable[[], Tensor], attention: Attention, layers: int, head: int, step: int
) -> Worked:
    """Compute one of the attentions of `layers` again at a head and a query, both from 0; `forward` runs the model."""
    scored = isinstance(model.get_submodule(attention.name), scores.ScoredAttention)
    worked = _scored(model, forward, attention, step) if scored else _dot_product(model, forward, attention, head, step)
    of_heads = "" if scored else f", head {head + 1} of {len(attention.weights)}"
    layer = f"{NAMES[attention.kind]} ({attention.name}), layer {attention.layer} of {layers}{of_heads}"
    verb, queries = "writing" if attention.kind == "alignment" else "at", attention.queries.texts
    return replace(worked, title=f"{layer}, {verb} {label(queries[step])}, step {step + 1} of {len(queries)}")


def _hide(scores_K: Tensor, attention: Attention, step: int) -> Tensor:
    return scores_K.masked_fill(~torch.from_numpy(attention.visible[step]).to(scores_K.device), -torch.inf)


def _scored(model: nn.Module, forward: Callable[[], Tensor], attention: Attention, step: int) -> Worked:
    """A score of a recurrent decoder, and what the decoder computes from the context."""
    module = model.get_submodule(attention.name)
    assert isinstance(module, scores.ScoredAttention)
    with recording(), module_calls(model, [attention.name, *READERS]) as calls:
        forward()

    def at_step(outputs: Iterable[Tensor]) -> Tensor:
        """Of what one call returned for all steps, or one call for each step."""
        return torch.cat([output.reshape(-1, output.shape[-1]) for output in outputs])[step]

    own = calls[attention.name]
    s_D, memory = at_step(call.inputs[0] for call in own), own[0].inputs[1]
    query_name, key_name, equation = SCORES[type(module)]
    scaled = " / sqrt(d)" if isinstance(module, scores.DotAttention) and module.scaled else ""
    query, vectors = {"s, the decoder's state": s_D}, {key_name + scaled: memory.keys_BSA[0]}
    if isinstance(module, scores.SummedAttention):  # its score has a hidden layer
        query[query_name] = query_A = module.query(s_D[None, None])[0, 0]
        name, activation = ("max(...)", torch.relu) if module.rectified else ("tanh(...)", torch.tanh)
        vectors[name] = activation(query_A + memory.keys_BSA[0])
    vectors["v_j"] = memory.h_BSD[0]
    scores_K = _hide(module.scores(s_D[None, None], memory.keys_BSA)[0, 0], attention, step)
    weights_K, factor = scores_K.softmax(0), ""
    focuses = [call.inputs[2] for call in own if len(call.inputs) > 2 and isinstance(call.inputs[2], scores.Focus)]
    if focuses and focuses[0].factor_BQS is not None:
        weights_K = weights_K * at_step(focus.factor_BQS for focus in focuses if focus.factor_BQS is not None)
        factor = " * exp(-(j - p_t)^2 / (2 sigma^2))"
    if "W_c" in calls:
        after = {"h~_t = tanh(W_c [c ; h_t])": torch.tanh(at_step(call.output for call in calls["W_c"]))}
    elif "L_z" in calls:
        h_D, z_D = (at_step([calls[name][0].inputs[0]]) for name in ("L_h", "L_z"))
        after = {"z_t = beta_t c, what the gate lets through": z_D, "h_t = LSTM([y_{t-1} ; z_t], h_{t-1})": h_D}
    else:
        read_D, pairs_D = at_step([calls["UVC_o"][0].inputs[0]]), at_step([calls["UVC_o"][0].output])
        maxout_D = pairs_D.view(-1, 2).amax(-1)
        after = {
            "s_i = f(s_{i-1}, y_{i-1}, c)": read_D[: len(s_D)], "t_i = maxout(U_o s_i + V_o y_{i-1} + C_o c)": maxout_D,
        }  # fmt: skip
    worked = Worked(query, attention.keys.texts, vectors, equation + scaled, scores_K, weights_K, after)
    return replace(worked, softmax=worked.softmax + factor)


def _dot_product(model: nn.Module, forward: Callable[[], Tensor], attention: Attention, head: int, step: int) -> Worked:
    """An attention with queries, keys and values, and the residual connection and norm around it."""
    name, (parent, _, own) = attention.name, attention.name.rpartition(".")
    block: Any = model.get_submodule(parent)
    if hasattr(block, "attention_norm"):  # BERT and GPT
        norm_name, order, residual = "attention_norm", "pre" if getattr(block, "pre", False) else "post", True
    else:
        around = next(sublayer for sublayer in SUBLAYERS[own] if hasattr(block, sublayer))
        norm_name, order, residual = f"{around}.norm", getattr(block, around).order, getattr(block, around).residual
    norm_name = f"{parent}.{norm_name}"
    with recording(), module_calls(model, [name, f"{name}.W_Q", norm_name]) as calls:
        forward()
    [call] = calls[name]
    read_BQD, k_BHKE, v_BHKE = call.inputs[:3]
    module, heads, width = model.get_submodule(name), k_BHKE.shape[1], k_BHKE.shape[-1]
    q_E, k_KE, v_KE = read_BQD[0, step], k_BHKE[0, head], v_BHKE[0, head]
    query, reads = {"x, the state that looks": q_E}, "x"
    if order == "pre":  # the attention's output is added to x, and the attention itself reads its norm
        x_D = calls[norm_name][0].inputs[0][0, step]
        query, reads = {"x, the state so far": x_D, "LayerNorm(x), what looks": q_E}, "LayerNorm(x)"
    [x_D, *_] = query.values()
    if f"{name}.W_Q" in calls:
        q_E = split_heads(calls[f"{name}.W_Q"][0].output, heads)[0, head, step]
        query[f"q = {reads} W_Q" + (f", head {head + 1}" if heads > 1 else "")] = q_E
    scaled = getattr(module, "scaled", False)
    scores_K = _hide(k_KE @ q_E / (width**0.5 if scaled else 1.0), attention, step)
    attended_D = call.output[0, step]
    total, total_D = ("x + that", x_D + attended_D) if residual else ("that alone, without x", attended_D)
    after = {"[c_1 ; c_2 ; ...] W_O, all heads" if hasattr(module, "W_O") else "the context as it is": attended_D}
    if order == "post":
        normed_D = model.get_submodule(norm_name)(total_D)
        after |= {total: total_D, f"LayerNorm({total}), what the next layer reads": normed_D}
    else:
        next_reads = "whose LayerNorm the next layer reads" if order == "pre" else "what the next layer reads"
        after[f"{total}, {next_reads}"] = total_D
    score = "e_j = q . k_j" + (f" / sqrt({width})" if scaled else "")
    vectors = {"k_j": k_KE, "v_j": v_KE}
    return Worked(query, attention.keys.texts, vectors, score, scores_K, scores_K.softmax(0), after)


@torch.inference_mode()
def work_out_hop(model: MemoryNetwork, batch: StoryBatch, sentences: Sequence[str], hop: int) -> Worked:
    """A hop, from 1, over the sentences of a story.

    The model keeps nothing of its equations (models/memory_network.py), so they are computed again.
    """
    config, winner = model.config, model.winner
    words_SL, times_1S = batch.story_BSL[0], batch.times_BS[:1]
    rows_1S = torch.arange(len(words_SL), device=words_SL.device)[None]
    empty = config.sentences - len(sentences)

    def memories(letter: str, number: int) -> Tensor:
        """m or c of each sentence, and a zero where some memories are empty."""
        m_1SID = model.memory(words_SL, rows_1S, times_1S, model.table_of(letter, number))
        return F.pad(m_1SID[0, times_1S[0] > 0, winner], (0, 0, 0, int(empty > 0)))

    next_D = model.sentence_vectors(batch.question_BL[:1], model.table_of("B", 1))[0, winner]
    for number in range(1, hop + 1):
        u_D, m_KD, c_KD = next_D, memories("A", number), memories("C", number)
        scores_K = m_KD @ u_D
        scores_K[len(sentences) :] = math.log(max(1, empty))  # of so many empty memories together
        p_K = scores_K.softmax(0)
        next_D = p_K @ c_KD + (u_D if model.H_DID is None else model.H_DID[:, winner] @ u_D)
    time = " + T_{}(i)" if config.temporal else ""
    named = ", ".join(f"{letter} = {of} x_i{time.format(of)}" for letter, of in (("m_i", "A"), ("c_i", "C")))
    all_empty = f"; each empty memory scores 0, together log {empty}" if empty else ""
    return Worked(
        {"u^1 = B q, the question" if hop == 1 else f"u^{hop}, what hop {hop - 1} made of it": u_D},
        (*sentences, *([f"({empty} empty)"] if empty else [])),
        {"m_i": m_KD, "c_i": c_KD},
        f"e_i = u^{hop} . m_i, where {named}",
        scores_K,
        p_K,
        {f"u^{hop + 1} = {'' if model.H_DID is None else 'H '}u^{hop} + o": next_D},
        softmax=f"p_i = exp(e_i) / sum_k exp(e_k){all_empty}",
        context="o = sum_i p_i c_i",
    )
