"""Hypotheses: what ranks them, how they are stored while a search runs, which tokens may come next
(each rule rules out candidates before anything is chosen), and the scores of given targets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.batches import Batch, Ragged, TextBatch, real_positions
from regard.errors import DecodeError
from regard.layers.attention import Recording, recording
from regard.models.base import Generator
from regard.search.config import SearchConfig
from regard.text.vocabularies import BEGIN, END, PAD, UNK

NEVER = -math.inf
"""log P of a token that is ruled out, and of an empty slot. Other tokens keep the model's log P:
nothing is renormalised."""
MIN_COVERAGE = 1e-6
"""The smallest attention that the coverage of a source token counts with: local attention can leave
it at 0."""
# target tokens that the readout computes together: logits need far more memory than hidden states
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Hypothesis:
    """A finished output."""

    tokens: tuple[int, ...]  # the output, with the final `</s>`
    score: float  # log P of exactly these tokens under the model
    # the value that ranks it: the score normalised for length, with the penalties of the config
    objective: float


# Ranking


def objective_of(
    config: SearchConfig, log_p: Tensor, length: int | Tensor, covered: Tensor | None = None
) -> Tensor:
    """The value that ranks finished hypotheses: log P, normalised for length, plus a coverage
    penalty.

        none      log P
        mean      log P / |Y|^alpha
        wu        log P / lp(Y),  lp(Y) = ((5 + |Y|) / 6)^alpha
        reward    log P + alpha |Y|

    `wu` and the coverage penalty cp(X; Y) are Wu et al. 2016, arXiv:1609.08144, equation 14; the
    reward per word is that of Murray and Chiang 2018, arXiv:1808.10006. |Y| includes `</s>`;
    `covered` is the result of `coverage`.

    For the longest length that a live hypothesis may grow to, this is an upper bound of its value:
    log P only falls, no normalisation falls with the length while log P <= 0 and alpha >= 0, and a
    coverage penalty is at most 0.
    """
    alpha = config.length_penalty
    if isinstance(length, Tensor):  # otherwise integers would be divided in float32
        length = length.to(log_p.dtype)
    match config.normalisation:
        case "none":
            value = log_p
        case "mean":
            value = log_p / length**alpha
        case "wu":
            value = log_p / ((5 + length) / 6) ** alpha
        case "reward":
            value = log_p + alpha * length
    return value if covered is None else value + config.coverage_penalty * covered


def coverage(attended_BWS: Tensor, lengths_B: Tensor) -> Tensor:
    """How much of each source was attended to, at most 0.

    Wu et al. 2016, arXiv:1609.08144, equation 14, without its beta:
        cp(X; Y) = sum_i log(min(sum_j p_ij, 1))
    p_ij is the attention of target token j to source token i, here the mean over layers and heads.
    """
    real_BS = real_positions(lengths_B, attended_BWS.shape[-1])
    return attended_BWS.clamp(MIN_COVERAGE, 1.0).log().masked_fill(~real_BS[:, None], 0.0).sum(-1)


def source_attention(model: Generator, recorded: Recording) -> Tensor:
    """The recorded attention over the source [B, Q, S], mean over layers and heads."""
    if not model.alignment:
        what = (
            f"the model {type(model).__name__} has no attention over the source, so "
            "coverage is not defined"
        )
        hint = "leave it at 0, or use a model with attention"
        raise DecodeError(what, where="search.coverage_penalty", hint=hint)
    weights = [
        weights
        for name, weights in recorded.by_name(model).items()
        if fnmatch(name, model.alignment)
    ]
    return torch.cat(weights, dim=1).mean(1)


def penalise_repetition(log_p_BWV: Tensor, history_BWT: Tensor, theta: float) -> Tensor:
    """The value that ranks candidates, in place: log P of a token that is already in the output,
    times theta.

    Keskar et al. 2019, arXiv:1909.05858, section 4.1, divides the logit of such a token by theta.
    Here log P, which is never above 0, is multiplied and not normalised again: so theta >= 1 never
    favours a repetition, and log P of the other tokens does not change.
    """
    if theta == 1.0 or history_BWT.shape[-1] == 0:
        return log_p_BWV
    return log_p_BWV.scatter_(-1, history_BWT, log_p_BWV.gather(-1, history_BWT) * theta)


# While a search runs


@dataclass(frozen=True)
class Live:
    """Unfinished hypotheses, W slots for each sentence that is still in the batch."""

    sentences_B: Tensor  # the index of each group's sentence in the batch that the search was given
    history_BWT: Tensor  # the tokens so far
    # what hypotheses are ranked by: log P so far, with the repetition penalty; NEVER in an empty
    # slot
    total_BW: Tensor
    own_BW: Tensor | None = None  # the model's log P so far; None if it equals `total_BW`
    attended_BWS: Tensor | None = None
    """The attention to each source token, summed over the steps so far and this one; None without
    coverage penalty."""

    @property
    def score_BW(self) -> Tensor:
        return self.total_BW if self.own_BW is None else self.own_BW

    def objective_BW(self, config: SearchConfig, source_lengths_B: Tensor) -> Tensor:
        """The ranking value of hypotheses that end here, given the lengths of all sources."""
        covered_BW = None
        if self.attended_BWS is not None:
            covered_BW = coverage(self.attended_BWS, source_lengths_B[self.sentences_B])
        return objective_of(config, self.total_BW, self.history_BWT.shape[-1], covered_BW)

    def pick(self, groups_B1: Tensor, slots_BW: Tensor) -> Live:
        """These slots of these groups."""
        return Live(
            self.sentences_B[groups_B1[:, 0]],
            self.history_BWT[groups_B1, slots_BW],
            self.total_BW[groups_B1, slots_BW],
            None if self.own_BW is None else self.own_BW[groups_B1, slots_BW],
            None if self.attended_BWS is None else self.attended_BWS[groups_B1, slots_BW],
        )

    def without(self, removed: Tensor) -> Live:
        """The same with these slots [B, W] (or all slots of these sentences, [B, 1]) empty."""
        return replace(self, total_BW=self.total_BW.masked_fill(removed, NEVER))


@dataclass(frozen=True)
class Choice:
    """The continuations that a strategy takes in one step, W for each sentence."""

    parents_BW: Tensor  # the slot of the hypothesis that is continued
    tokens_BW: Tensor
    total_BW: Tensor  # `Live.total_BW` with the new token; NEVER if nothing was taken

    def continued(self, live: Live, log_p_BWV: Tensor | None) -> Live:
        """The chosen hypotheses with their new token; `log_p_BWV` is needed if the ranking differs
        from log P."""
        parents = live
        own_BW = live.own_BW
        if (
            own_BW is not None
            or self.parents_BW.shape[1] > 1
            or live.total_BW.shape != self.parents_BW.shape
        ):
            groups_B1 = torch.arange(len(live.sentences_B), device=self.parents_BW.device)[:, None]
            parents = live.pick(groups_B1, self.parents_BW)
            if parents.own_BW is not None:
                assert log_p_BWV is not None
                own_BW = parents.own_BW + log_p_BWV[groups_B1, self.parents_BW, self.tokens_BW]
        history_BWT = torch.cat([parents.history_BWT, self.tokens_BW[..., None]], dim=-1)
        return replace(parents, history_BWT=history_BWT, total_BW=self.total_BW, own_BW=own_BW)


class Finished:
    """Finished hypotheses, one slot each, in the order in which they ended; the last slot takes
    what has not ended.

    Everything stays on the device until the search is over, so that no step waits for the GPU.
    """

    def __init__(
        self,
        slots: int,
        longest: int,
        config: SearchConfig,
        source_lengths_B: Tensor,
        *,
        like: Tensor,
    ) -> None:
        sentences = len(source_lengths_B)
        device = like.device
        self._slots = slots
        self._config = config
        self._source_lengths_B = source_lengths_B
        self._tokens_BWT = torch.zeros(
            sentences, slots + 1, longest, dtype=torch.long, device=device
        )
        self._lengths_BW = torch.zeros(sentences, slots + 1, dtype=torch.long, device=device)
        self._score_BW = like.new_full((sentences, slots + 1), NEVER)
        self._objective_BW = like.new_full((sentences, slots + 1), NEVER)
        self.count_B = torch.zeros(sentences, dtype=torch.long, device=device)
        self.some = False
        """Whether any may have been stored."""

    def add(self, ends: Live, ended_BW: Tensor) -> None:
        """Store the hypotheses that have ended, in the order of their slots."""
        # on a GPU this test would cost more than the rest
        if ended_BW.device.type == "cpu" and not ended_BW.any():
            return
        self.some = True
        sentences_B = ends.sentences_B
        length = ends.history_BWT.shape[-1]
        number_BW = self.count_B[sentences_B][:, None] + ended_BW.cumsum(-1) - 1
        index = (sentences_B[:, None], torch.where(ended_BW, number_BW, self._slots))
        self._tokens_BWT[..., :length][index] = ends.history_BWT
        self._lengths_BW[index] = length
        self._score_BW[index] = ends.score_BW
        self._objective_BW[index] = ends.objective_BW(self._config, self._source_lengths_B)
        self.count_B[sentences_B] += ended_BW.sum(-1)

    def objective_to_beat(self, sentences_B: Tensor, nbest: int) -> Tensor:
        """The ranking value of the `nbest`-th best hypothesis of each sentence; NEVER if there are
        fewer."""
        return self._objective_BW[sentences_B, : self._slots].topk(nbest).values[:, -1]

    def best(self, nbest: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence; of equal ones the first that ended."""
        tokens_BWT = self._tokens_BWT.cpu()
        lengths = self._lengths_BW.tolist()
        scores = self._score_BW.tolist()
        objectives = self._objective_BW.tolist()
        best = []
        for b, count in enumerate(self.count_B.tolist()):
            ranked = sorted(range(count), key=lambda w: -objectives[b][w])[:nbest]
            outputs = {w: tuple(tokens_BWT[b, w, : lengths[b][w]].tolist()) for w in ranked}
            best.append([Hypothesis(outputs[w], scores[b][w], objectives[b][w]) for w in ranked])
        return best


# Scores of given targets


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the vocabulary, in float32 or higher whatever the precision of the model."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@torch.inference_mode()
def score(model: Generator, batch: Batch[Any] | TextBatch) -> list[list[float]]:
    """log P of each token of the targets (or texts) but the first, given those before it and the
    source, if any.

    The sum of a list is the score that the search reports for a hypothesis of the same tokens.
    """
    assert not model.training, "the model is in training mode, with dropout"
    target = batch.target if isinstance(batch, Batch) else batch.text
    targets_BT = target.ids_BL[:, 1:]
    real_BT = real_positions(target.lengths_B - 1, targets_BT.shape[1])
    parts = zip(
        *(torch.split(x[real_BT], ROWS_AT_ONCE) for x in (model(batch).hidden_BTD, targets_BT)),
        strict=True,
    )
    log_p_P = torch.cat(
        [
            log_probabilities(model.readout(hidden)).gather(-1, tokens[:, None])[:, 0]
            for hidden, tokens in parts
        ]
    ).cpu()
    return [
        tokens.tolist() for tokens in torch.split(log_p_P, (target.host_lengths_B - 1).tolist())
    ]


@torch.inference_mode()
def as_hypotheses(model: Generator, batch: Batch[Any], config: SearchConfig) -> list[Hypothesis]:
    """The given targets as hypotheses, with the score and ranking value that a search would give
    them."""
    covered_B = None
    theta = config.repetition_penalty
    with recording() if config.coverage_penalty > 0 else nullcontext() as recorded:
        scores = score(model, batch)
    if recorded is not None:
        weights_BTS = source_attention(model, recorded)
        real_BT = real_positions(batch.target.lengths_B - 1, weights_BTS.shape[1])
        attended_B1S = torch.where(real_BT[..., None], weights_BTS, 0.0).sum(1, keepdim=True)
        covered_B = coverage(attended_B1S, batch.source.lengths_B)[:, 0].cpu()
    targets = [
        ids[1 : 1 + len(log_p)]
        for ids, log_p in zip(batch.target.ids_BL.tolist(), scores, strict=True)
    ]
    totals = [
        sum(
            theta * value if ids[place] in ids[:place] else value
            for place, value in enumerate(log_p)
        )
        for ids, log_p in zip(targets, scores, strict=True)
    ]
    lengths_B = batch.target.host_lengths_B - 1
    objectives = objective_of(
        config, torch.tensor(totals, dtype=torch.float64), lengths_B, covered_B
    ).tolist()
    return [
        Hypothesis(tuple(ids), sum(log_p), objective)
        for ids, log_p, objective in zip(targets, scores, objectives, strict=True)
    ]


# Which tokens may come next

NO_TOKEN = -1  # pads lists of tokens


class Special(NamedTuple):
    """The tokens of a vocabulary that a search must know; None if it has none."""

    begin: int = BEGIN  # what is read before the first token is written
    end: int = END
    pad: int | None = PAD
    unknown: int | None = UNK
    start: int | None = None
    """`<s>` where texts begin with another token: a language model reads `</s>` first, and never
    learns `<s>`."""


SPECIAL = Special()


@dataclass(frozen=True)
class Constraints:
    """`SearchConfig.prefix` and `SearchConfig.banned` as tokens."""

    prefixes: Sequence[Sequence[int]] = ()
    """The beginning of each sentence's output, `()` for none; empty: no output has a prefix."""
    banned: BannedTexts | None = None  # what no output may contain
    contexts: Sequence[Sequence[int]] = ()
    """The tokens before each output, if it continues a text; empty: outputs stand alone."""

    def of(self, sentences: Sequence[int]) -> Constraints:
        prefixes, contexts = (
            [each[number] for number in sentences] if each else ()
            for each in (self.prefixes, self.contexts)
        )
        return Constraints(prefixes, self.banned, contexts)


UNCONSTRAINED = Constraints()


@dataclass(frozen=True)
class Limits:
    """The fewest and most tokens of each sentence's output, `</s>` included."""

    shortest: list[int]
    longest: list[int]

    @staticmethod
    def of(
        source_lengths: Sequence[int],
        config: SearchConfig,
        constraints: Constraints = UNCONSTRAINED,
    ) -> Limits:
        """The limits for sources of these lengths, or a DecodeError if they allow no output.

        `min_length` raises the most tokens if necessary.
        """
        floor = max(1, config.min_length)
        ceiling = math.inf if config.max_length is None else config.max_length
        most = [
            int(config.max_length_ratio * length + config.max_length_offset)
            for length in source_lengths
        ]
        longest = [max(floor, int(min(ceiling, limit))) for limit in most]
        shortest = [
            max(floor, math.ceil(config.min_length_ratio * length)) for length in source_lengths
        ]
        for source, least, limit in zip(source_lengths, shortest, longest, strict=True):
            if least > limit:
                needs = f"a source of {source} tokens needs an output of at least {least}"
                hint = "lower it, or raise search.max_length or search.max_length_ratio"
                what = f"{needs}, but at most {limit} are allowed"
                raise DecodeError(what, where="search.min_length_ratio", hint=hint)
        for prefix, limit in zip(constraints.prefixes, longest, strict=False):
            if len(prefix) >= limit:
                what = (
                    f"a prefix of {len(prefix)} tokens and the end do not fit into the "
                    f"{limit} that are allowed"
                )
                hint = "shorten it, or raise search.max_length or search.max_length_offset"
                raise DecodeError(what, where="search.prefix", hint=hint)
        return Limits(shortest, longest)


# Banned texts


class BannedTexts:
    """Which tokens would complete a banned text, whichever tokens wrote the beginning of that text.

    A token completes the text b if b stands in what it writes, or if this begins with b[i:] after
    an output that ends in b[:i].
    """

    def __init__(self, texts: Iterable[Iterable[int]], pieces: Mapping[int, Iterable[int]]) -> None:
        """Texts, and what each token writes, are sequences of symbols, such as bytes of UTF-8."""
        self._pieces = {token: "".join(map(chr, piece)) for token, piece in pieces.items()}
        spelt = ["".join(map(chr, text)) for text in texts]
        begun = defaultdict[str, set[str]](set)  # b[i:] -> every b[:i]
        for text in spelt:
            for i in range(1, len(text)):
                begun[text[i:]].add(text[:i])
        self._longest = max(map(len, spelt)) - 1
        self.completing = defaultdict[str, set[int]](set)
        """What an output ends in -> the tokens that would then complete a text."""
        for token, piece in self._pieces.items():
            for stop in range(1, len(piece) + 1):
                for before in begun.get(piece[:stop], ()):
                    self.completing[before].add(token)
        always = [
            token for token, piece in self._pieces.items() if any(text in piece for text in spelt)
        ]
        self._always = torch.tensor(always, dtype=torch.long)

    def after(self, tokens: Sequence[int]) -> set[int]:
        """The tokens that would complete a text after these, besides those that always do."""
        written = ""
        for token in reversed(tokens):
            if token not in self._pieces or len(written) >= self._longest:
                break
            written = self._pieces[token] + written
        return set().union(
            *(self.completing.get(written[start:], ()) for start in range(len(written)))
        )

    def forbid(self, log_p_BWV: Tensor, live: Live, contexts: Sequence[Sequence[int]] = ()) -> None:
        """Rule out tokens that would complete a text; `contexts` are the tokens before each
        sentence's output."""
        log_p_BWV.index_fill_(-1, self._always.to(log_p_BWV.device), NEVER)
        if not self.completing:
            return
        places = [
            (b, w, token)
            for b, (sentence, rows) in enumerate(
                zip(live.sentences_B.tolist(), live.history_BWT.tolist(), strict=True)
            )
            for w, tokens in enumerate(rows)
            for token in self.after([*contexts[sentence], *tokens] if contexts else tokens)
        ]
        if places:
            log_p_BWV[torch.tensor(places, device=log_p_BWV.device).unbind(1)] = NEVER


# All rules of a search


Rule = Callable[[Tensor, Live], None]


class Rules:
    """All rules of a search, each a method that sets tokens that may not come next to NEVER, in
    place.

    Inside the prefix of a sentence's output no other rule applies.
    """

    def __init__(
        self,
        source: Ragged,
        config: SearchConfig,
        constraints: Constraints = UNCONSTRAINED,
        special: Special = SPECIAL,
    ) -> None:
        device = source.device
        prefixes = constraints.prefixes
        banned = constraints.banned
        self.limits = limits = Limits.of(source.host_lengths_B.tolist(), config, constraints)
        self._shortest_B, self._longest_B = (
            torch.tensor(x, device=device) for x in (limits.shortest, limits.longest)
        )
        self._end_id = special.end
        self._ngram = config.no_repeat_ngram or 0
        unknown = None if config.unknown else special.unknown
        never = {special.begin, special.start, special.pad, unknown} - {special.end}
        self._never_M = torch.tensor(
            [token for token in never if token is not None], dtype=torch.long, device=device
        )
        self._banned: Rule | None = None
        if banned is not None:
            self._banned = partial(banned.forbid, contexts=constraints.contexts)
        self.names = (*self._rules, "prefix")
        longest = max((len(ids) for ids in prefixes), default=0)
        padded = [[*ids, *[NO_TOKEN] * (longest - len(ids))] for ids in prefixes]
        self._prefixes_BT = torch.tensor(padded, dtype=torch.long, device=device).view(
            len(prefixes), longest
        )

    @property
    def _rules(self) -> dict[str, Rule]:
        """Those that apply. They are not kept: an object that holds its own methods keeps its
        tables on the GPU until the garbage is collected."""
        rules: dict[str, Rule] = {
            "never written": self._never_written,
            "maximum length": self._maximum_length,
        }
        if max(self.limits.shortest) > 1:
            rules["minimum length"] = self._minimum_length
        if self._banned is not None:
            rules["banned"] = self._banned
        if self._ngram:
            rules["repeated n-gram"] = self._no_repeat
        return rules

    def _never_written(self, log_p_BWV: Tensor, live: Live) -> None:
        """No `<pad>`, no `<s>`, and no `<unk>` unless the config allows it."""
        log_p_BWV.index_fill_(-1, self._never_M, NEVER)

    def _minimum_length(self, log_p_BWV: Tensor, live: Live) -> None:
        """No `</s>` before the shortest length of a sentence."""
        length = live.history_BWT.shape[-1] + 1
        if length < max(self.limits.shortest):
            too_short_B1 = (self._shortest_B[live.sentences_B] > length)[:, None]
            log_p_BWV[..., self._end_id].masked_fill_(too_short_B1, NEVER)

    def _maximum_length(self, log_p_BWV: Tensor, live: Live) -> None:
        """Only `</s>` at the longest length of a sentence: so every hypothesis is finished, with a
        true log P."""
        length = live.history_BWT.shape[-1] + 1
        # the whole vocabulary is rewritten, so only if some sentence needs it
        if length in self.limits.longest:
            at_limit_B = self._longest_B[live.sentences_B] == length
            not_end_V = torch.arange(log_p_BWV.shape[-1], device=log_p_BWV.device) != self._end_id
            log_p_BWV.masked_fill_(at_limit_B[:, None, None] & not_end_V, NEVER)

    def _no_repeat(self, log_p_BWV: Tensor, live: Live) -> None:
        """No sequence of n tokens occurs twice."""
        history_BWT = live.history_BWT
        before = self._ngram - 1
        if history_BWT.shape[-1] > before:
            ngrams_BWMK = history_BWT.unfold(-1, self._ngram, 1)
            last_BW1K = history_BWT[..., None, history_BWT.shape[-1] - before :]
            again_BWM = (ngrams_BWMK[..., :before] == last_BW1K).all(-1)
            never_BWM = torch.zeros_like(again_BWM, dtype=log_p_BWV.dtype).masked_fill_(
                again_BWM, NEVER
            )
            log_p_BWV.scatter_add_(
                -1, ngrams_BWMK[..., before], never_BWM
            )  # the same token may stand there twice

    def _prefix(self, like_BWV: Tensor, live: Live) -> tuple[Tensor, Tensor] | None:
        """Which sentences are inside their prefix, and all tokens but its next one; None if all are
        after theirs."""
        written = live.history_BWT.shape[-1]
        if written >= self._prefixes_BT.shape[1]:
            return None
        token_B11 = self._prefixes_BT[live.sentences_B, written][:, None, None]
        return token_B11 != NO_TOKEN, token_B11 != torch.arange(
            like_BWV.shape[-1], device=like_BWV.device
        )

    def rule_out(self, log_p_BWV: Tensor, live: Live) -> Tensor:
        """log P with NEVER for tokens that may not come next. Overwrites its input."""
        prefix = self._prefix(log_p_BWV, live)
        prefix_BWV = None if prefix is None else log_p_BWV.masked_fill(prefix[1], NEVER)
        for forbid in self._rules.values():
            forbid(log_p_BWV, live)
        return (
            log_p_BWV
            if prefix is None or prefix_BWV is None
            else torch.where(prefix[0], prefix_BWV, log_p_BWV)
        )

    def reasons(self, like_BWV: Tensor, live: Live) -> Tensor:
        """Why each token may not come next: 1 + the index in `names` of the first rule against it;
        0 if it may."""
        reasons_BWV = torch.zeros_like(like_BWV, dtype=torch.long)
        for number, forbid in enumerate(self._rules.values(), start=1):
            probe_BWV = torch.zeros_like(like_BWV)
            forbid(probe_BWV, live)
            reasons_BWV.masked_fill_((probe_BWV == NEVER) & (reasons_BWV == 0), number)
        if (prefix := self._prefix(like_BWV, live)) is None:
            return reasons_BWV
        return torch.where(prefix[0], prefix[1] * len(self.names), reasons_BWV)
