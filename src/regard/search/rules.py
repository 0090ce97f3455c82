"""What may be written where: each rule rules out candidates before anything is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.search.banned import NOTHING, Banned, forbid_tokens
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Live
from regard.search.limits import ANY_WORDING, Limits, Wording
from regard.text.vocabularies import BEGIN, END, PAD, UNK


class Rule(Protocol):
    """One reason why a token may not come next."""

    name: str

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        """Set to NEVER, in place, what may not come next."""
        ...


class NeverWritten:
    """Tokens that are no part of a text: `<pad>`, `<s>`, and `<unk>` unless it is asked for."""

    name = "never written"

    def __init__(self, tokens: Sequence[int], device: torch.device) -> None:
        self._tokens = torch.tensor(sorted(tokens), dtype=torch.long, device=device)

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        log_p_BWV.index_fill_(-1, self._tokens, NEVER)


class NotTooShort:
    """`</s>` may not come before the shortest length of a sentence."""

    name = "minimum length"

    def __init__(self, shortest: Sequence[int], end_id: int, device: torch.device) -> None:
        self._latest = max(shortest)
        self._shortest_B = torch.tensor(shortest, device=device)
        self._end_id = end_id

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        length = live.history_BWT.shape[-1] + 1
        if length < self._latest:
            too_short_B1 = (self._shortest_B[live.sentences_B] > length)[:, None]
            log_p_BWV[..., self._end_id].masked_fill_(too_short_B1, NEVER)


class NotTooLong:
    """At its limit a sentence may only end, so that every hypothesis is a finished sequence with a true log P."""

    name = "maximum length"

    def __init__(self, limits: Sequence[int], end_id: int, device: torch.device) -> None:
        self._limits = frozenset(limits)
        self._limits_B = torch.tensor(limits, device=device)
        self._end_id = end_id

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        length = live.history_BWT.shape[-1] + 1
        if length in self._limits:  # a pass over the whole vocabulary, so only where some sentence needs it
            at_limit_B = self._limits_B[live.sentences_B] == length
            goes_on_V = torch.arange(log_p_BWV.shape[-1], device=log_p_BWV.device) != self._end_id
            log_p_BWV.masked_fill_(at_limit_B[:, None, None] & goes_on_V, NEVER)


class NoRepeat:
    """No sequence of n tokens comes twice."""

    name = "repeated n-gram"

    def __init__(self, n: int) -> None:
        self._n = n

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        history_BWT, before = live.history_BWT, self._n - 1
        if history_BWT.shape[-1] < self._n:
            return
        ngrams_BWMK = history_BWT.unfold(-1, self._n, 1)
        last_BW1K = history_BWT[..., None, history_BWT.shape[-1] - before :]
        again_BWM = (ngrams_BWMK[..., :before] == last_BW1K).all(-1)
        forbid_tokens(log_p_BWV, ngrams_BWMK[..., before], again_BWM)


class Prefixes:
    """What each sentence begins with: where its prefix has a token, no other rule counts."""

    name = "prefix"

    def __init__(self, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        self._longest = max((len(ids) for ids in prefixes), default=0)
        padded = [[*ids, *[NOTHING] * (self._longest - len(ids))] for ids in prefixes]
        self._tokens_BT = torch.tensor(padded, dtype=torch.long, device=device)

    def due(self, live: Live) -> Tensor | None:
        """The token that each sentence must go on with, NOTHING behind its prefix; None if all are behind theirs."""
        written = live.history_BWT.shape[-1]
        return self._tokens_BT[live.sentences_B, written][:, None, None] if written < self._longest else None


class Rules:
    """All the rules of a search together."""

    def __init__(self, limits: Limits, rules: Sequence[Rule], prefixes: Prefixes) -> None:
        self.limits = limits
        self.names = (*(rule.name for rule in rules), prefixes.name)
        self._rules, self._prefixes = rules, prefixes

    def rule_out(self, log_p_BWV: Tensor, live: Live) -> Tensor:
        """NEVER for what may not come next. Overwrites what it is given."""
        due_B11 = self._prefixes.due(live)
        own_BWV = None if due_B11 is None else log_p_BWV.clone()
        for rule in self._rules:
            rule.forbid(log_p_BWV, live)
        if due_B11 is None or own_BWV is None:
            return log_p_BWV
        prefix_BWV = own_BWV.masked_fill_(~_is_token(due_B11, own_BWV), NEVER)
        return torch.where(due_B11 == NOTHING, log_p_BWV, prefix_BWV)

    def reasons(self, like_BWV: Tensor, live: Live) -> Tensor:
        """Why a token may not come next: 1 + the number of the first rule that says so in `names`; 0 where it may."""
        reasons_BWV = torch.zeros_like(like_BWV, dtype=torch.long)
        for number, rule in enumerate(self._rules, start=1):
            probe_BWV = torch.zeros_like(like_BWV)
            rule.forbid(probe_BWV, live)
            reasons_BWV.masked_fill_((probe_BWV == NEVER) & (reasons_BWV == 0), number)
        if (due_B11 := self._prefixes.due(live)) is None:
            return reasons_BWV
        return torch.where(due_B11 == NOTHING, reasons_BWV, ~_is_token(due_B11, like_BWV) * len(self.names))


def _is_token(tokens_B11: Tensor, like_BWV: Tensor) -> Tensor:
    """Whether each place of the vocabulary is the token."""
    return tokens_B11 == torch.arange(like_BWV.shape[-1], device=like_BWV.device)


def rules_for(
    source: Tokens,
    config: SearchConfig,
    wording: Wording = ANY_WORDING,
    *,
    begin_id: int = BEGIN,
    end_id: int = END,
    pad_id: int | None = PAD,
    unknown_id: int | None = UNK,
) -> Rules:
    """The rules of a search; those that would rule nothing out are left out."""
    limits, device = Limits.of(source.host_lengths_B.tolist(), config, wording), source.ids_BL.device
    never = {begin_id, pad_id, None if config.unknown else unknown_id} - {end_id, None}
    rules: list[Rule] = [
        NeverWritten([token for token in never if token is not None], device),
        NotTooLong(limits.longest, end_id, device),
    ]
    if max(limits.shortest) > 1:
        rules.append(NotTooShort(limits.shortest, end_id, device))
    if wording.banned is not None:
        rules.append(Banned(wording.banned, wording.begun, device))
    if config.no_repeat_ngram is not None:
        rules.append(NoRepeat(config.no_repeat_ngram))
    return Rules(limits, rules, Prefixes(wording.prefixes, device))
