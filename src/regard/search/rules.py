"""Which tokens may come next: each rule rules out candidates before anything is chosen. Also length limits, prefixes,
and texts that no output may contain."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.batches import Tokens
from regard.errors import DecodeError
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Live
from regard.text.vocabularies import BEGIN, END, PAD, UNK

NO_TOKEN = -1
"""Pads lists of tokens."""
WIDE = 1 << 32
"""More than any vocabulary size: state * WIDE + token is a unique key."""


class Special(NamedTuple):
    """The tokens of a vocabulary that a search must know; None if it has none."""

    begin: int = BEGIN
    """What is read before the first token is written."""
    end: int = END
    pad: int | None = PAD
    unknown: int | None = UNK
    start: int | None = None
    """`<s>` where texts begin with another token: a language model reads `</s>` first, and never learns `<s>`."""


SPECIAL = Special()


@dataclass(frozen=True)
class Constraints:
    """`SearchConfig.prefix` and `SearchConfig.banned` as tokens."""

    prefixes: Sequence[Sequence[int]] = ()
    """The beginning of each sentence's output, `()` for none; empty: no output has a prefix."""
    banned: BannedTexts | None = None
    """What no output may contain."""
    contexts: Sequence[Sequence[int]] = ()
    """The tokens before each output, if it continues a text; empty: outputs stand alone."""

    def of(self, sentences: Sequence[int]) -> Constraints:
        prefixes, contexts = (
            [each[number] for number in sentences] if each else () for each in (self.prefixes, self.contexts)
        )
        return Constraints(prefixes, self.banned, contexts)


UNCONSTRAINED = Constraints()


@dataclass(frozen=True)
class Limits:
    """The fewest and most tokens of each sentence's output, `</s>` included."""

    shortest: list[int]
    longest: list[int]

    @staticmethod
    def of(source_lengths: Sequence[int], config: SearchConfig, constraints: Constraints = UNCONSTRAINED) -> Limits:
        """The limits for sources of these lengths, or a DecodeError if they allow no output.

        `min_length` raises the most tokens if necessary.
        """
        floor, ceiling = max(1, config.min_length), math.inf if config.max_length is None else config.max_length
        most = [int(config.max_length_ratio * length + config.max_length_offset) for length in source_lengths]
        longest = [max(floor, int(min(ceiling, limit))) for limit in most]
        shortest = [max(floor, math.ceil(config.min_length_ratio * length)) for length in source_lengths]
        for source, least, limit in zip(source_lengths, shortest, longest, strict=True):
            if least > limit:
                needs = f"a source of {source} tokens needs an output of at least {least}"
                hint = "lower it, or raise search.max_length or search.max_length_ratio"
                what = f"{needs}, but at most {limit} are allowed"
                raise DecodeError(what, where="search.min_length_ratio", hint=hint)
        for prefix, limit in zip(constraints.prefixes, longest, strict=False):
            if len(prefix) >= limit:
                what = f"a prefix of {len(prefix)} tokens and the end do not fit into the {limit} that are allowed"
                hint = "shorten it, or raise search.max_length or search.max_length_offset"
                raise DecodeError(what, where="search.prefix", hint=hint)
        return Limits(shortest, longest)


# Banned texts


Transition = tuple[int, bool]
"""The state after reading the symbols of a token, and whether they complete a banned text."""


class Automaton:
    """Finds texts in a stream of symbols. Its state is the longest suffix of the input that is a prefix of a text.

    Aho and Corasick 1975, doi:10.1145/360825.360855. State 0 is the empty prefix.
    """

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        self.nexts: list[dict[int, int]] = [{}]
        """For each state: symbol -> state with a prefix that is one symbol longer."""
        self._completes = [False]
        for text in texts:
            state = 0
            for symbol in text:
                if symbol not in self.nexts[state]:
                    self.nexts[state][symbol] = len(self.nexts)
                    self.nexts.append({})
                    self._completes.append(False)
                state = self.nexts[state][symbol]
            self._completes[state] = True
        self.suffix = [0] * len(self.nexts)
        """For each state: the longest shorter suffix of it that is a state too."""
        self.states = [0]
        """All states, shorter prefixes first."""
        for state in self.states:  # the loop appends to it
            for symbol, longer in self.nexts[state].items():
                self.suffix[longer] = self._step(self.suffix[state], symbol) if state else 0
                self._completes[longer] |= self._completes[self.suffix[longer]]
                self.states.append(longer)

    def _step(self, state: int, symbol: int) -> int:
        while state and symbol not in self.nexts[state]:
            state = self.suffix[state]
        return self.nexts[state].get(symbol, 0)

    def read(self, state: int, piece: Sequence[int]) -> Transition:
        """The state after reading a piece, and whether a text was completed on the way."""
        completes = False
        for symbol in piece:
            state = self._step(state, symbol)
            completes |= self._completes[state]
        return state, completes


class BannedTexts:
    """The banned texts of a search as tables over the vocabulary.

    Texts and tokens are sequences of symbols, for example bytes of UTF-8. A token is ruled out where it would complete
    a text, whichever tokens wrote the beginning of that text.
    """

    def __init__(self, texts: Sequence[Sequence[int]], pieces: Mapping[int, Sequence[int]]) -> None:
        """`pieces` has the symbols that each token writes."""
        self._automaton, self._pieces = Automaton(texts), pieces
        rows = self._rows()
        moves = sorted((state * WIDE + token, move[0]) for state, row in rows.items() for token, move in row.items())
        self.keys, self.states = (torch.tensor(column) for column in zip((-1, 0), *moves, strict=True))
        """state * WIDE + token, sorted, and the next state; a missing key behaves as in state 0, or leads to 0. Tokens
        that complete a text have entries too: a prefix may force them, and other texts may go on from there."""
        completing = {state: [token for token, move in row.items() if move[1]] for state, row in rows.items()}
        self.always = torch.tensor(completing.pop(0), dtype=torch.long)
        """The tokens that contain a whole text: ruled out in every state."""
        longest = max(map(len, completing.values()), default=0)
        self.completing_SM = torch.full((len(self._automaton.nexts), longest), NO_TOKEN)
        """The other tokens that are ruled out in each state."""
        for state, tokens in completing.items():
            self.completing_SM[state, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        has_empty_piece = any(not piece for piece in pieces.values())
        self.max_history = None if has_empty_piece else max(map(len, texts)) - 1
        """The last so many tokens determine the state; None: all of them, because some tokens write nothing."""

    @staticmethod
    def of_tokens(sequences: Sequence[Sequence[int]]) -> BannedTexts:
        """Ban sequences of tokens: each token is a symbol."""
        return BannedTexts(sequences, {token: (token,) for tokens in sequences for token in tokens})

    def _rows(self) -> dict[int, dict[int, Transition]]:
        """The transitions of each state that differ from those of state 0.

        A token whose first symbol does not extend a state behaves as in the state of its suffix. So little has to be
        computed, even for many texts and a large vocabulary.
        """
        by_first: dict[int, list[int]] = defaultdict(list)
        for token, piece in self._pieces.items():
            by_first[piece[0] if len(piece) else NO_TOKEN].append(token)
        from_empty = {token: self._automaton.read(0, piece) for token, piece in self._pieces.items()}
        rows = {0: {token: move for token, move in from_empty.items() if move != (0, False)}}
        for state in self._automaton.states[1:]:
            extending = (token for symbol in self._automaton.nexts[state] for token in by_first.get(symbol, ()))
            suffix = self._automaton.suffix[state]
            row = (rows[suffix] if suffix else {}) | dict.fromkeys(by_first.get(NO_TOKEN, ()), (state, False))
            own = {token: self._automaton.read(state, self._pieces[token]) for token in extending}
            rows[state] = row | {token: move for token, move in own.items() if move != from_empty[token]}
        return rows

    def state_after(self, tokens: Iterable[int]) -> int:
        state = 0
        for token in tokens:
            state, _ = self._automaton.read(state, self._pieces.get(token, ()))
        return state

    def to(self, device: torch.device) -> BannedTexts:
        """The same, with its tables on a device."""
        moved = copy(self)
        tables = self.keys, self.states, self.always, self.completing_SM
        moved.keys, moved.states, moved.always, moved.completing_SM = (table.to(device) for table in tables)
        return moved

    def forbid(self, log_p_BWV: Tensor, live: Live, context_B: Tensor | None) -> None:
        """Rule out tokens that would complete a text; `context_B` is `state_after` the tokens before each output."""
        log_p_BWV.index_fill_(-1, self.always, NEVER)
        if self.completing_SM.shape[1]:
            tokens_BWM = self.completing_SM[self._state(live, context_B)]
            forbid_tokens(log_p_BWV, tokens_BWM.clamp(min=0), tokens_BWM != NO_TOKEN)

    def _state(self, live: Live, context_B: Tensor | None) -> Tensor:
        """The automaton's state after each hypothesis, [B, W]."""
        history_BWT, state_BW = live.history_BWT, torch.zeros_like(live.total_BW, dtype=torch.long)
        if self.max_history is not None and history_BWT.shape[-1] > self.max_history:
            history_BWT = history_BWT[..., history_BWT.shape[-1] - self.max_history :]
        elif context_B is not None:
            state_BW += context_B[live.sentences_B][:, None]
        for tokens_BW in history_BWT.permute(2, 0, 1).contiguous():
            own_BW, from_empty_BW = self._lookup(state_BW * WIDE + tokens_BW), self._lookup(tokens_BW)
            state_BW = torch.where(own_BW == NO_TOKEN, from_empty_BW, own_BW).clamp_(min=0)
        return state_BW

    def _lookup(self, key_BW: Tensor) -> Tensor:
        index_BW = torch.searchsorted(self.keys, key_BW).clamp_(max=len(self.keys) - 1)
        return torch.where(self.keys[index_BW] == key_BW, self.states[index_BW], NO_TOKEN)


def forbid_tokens(log_p_BWV: Tensor, tokens_BWM: Tensor, forbidden_BWM: Tensor) -> None:
    """Rule out tokens where `forbidden_BWM` is True; a token that is listed twice is ruled out if either entry is."""
    never_BWM = torch.zeros_like(tokens_BWM, dtype=log_p_BWV.dtype).masked_fill_(forbidden_BWM, NEVER)
    log_p_BWV.scatter_add_(-1, tokens_BWM, never_BWM)


# All rules of a search


Rule = Callable[[Tensor, Live], None]


class Rules:
    """All rules of a search, each a method that sets tokens that may not come next to NEVER, in place.

    Inside the prefix of a sentence's output no other rule applies.
    """

    def __init__(
        self, source: Tokens, config: SearchConfig, constraints: Constraints = UNCONSTRAINED, special: Special = SPECIAL
    ) -> None:
        device, prefixes, banned = source.ids_BL.device, constraints.prefixes, constraints.banned
        self.limits = limits = Limits.of(source.host_lengths_B.tolist(), config, constraints)
        self._shortest_B, self._longest_B = (torch.tensor(x, device=device) for x in (limits.shortest, limits.longest))
        self._end_id, self._ngram = special.end, config.no_repeat_ngram or 0
        unknown = None if config.unknown else special.unknown
        never = {special.begin, special.start, special.pad, unknown} - {special.end}
        self._never_M = torch.tensor([token for token in never if token is not None], dtype=torch.long, device=device)
        self._banned: Rule | None = None
        if banned is not None:
            states = [banned.state_after(tokens) for tokens in constraints.contexts]
            context_B = torch.tensor(states, device=device) if states else None
            self._banned = partial(banned.to(device).forbid, context_B=context_B)
        self.names = (*self._rules, "prefix")
        longest = max((len(ids) for ids in prefixes), default=0)
        padded = [[*ids, *[NO_TOKEN] * (longest - len(ids))] for ids in prefixes]
        self._prefixes_BT = torch.tensor(padded, dtype=torch.long, device=device).view(len(prefixes), longest)

    @property
    def _rules(self) -> dict[str, Rule]:
        """Those that apply. They are not kept: an object that holds its own methods keeps its tables on the GPU until
        the garbage is collected."""
        rules: dict[str, Rule] = {"never written": self._never_written, "maximum length": self._maximum_length}
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
        """Only `</s>` at the longest length of a sentence: so every hypothesis is finished, with a true log P."""
        length = live.history_BWT.shape[-1] + 1
        if length in self.limits.longest:  # the whole vocabulary is rewritten, so only if some sentence needs it
            at_limit_B = self._longest_B[live.sentences_B] == length
            not_end_V = torch.arange(log_p_BWV.shape[-1], device=log_p_BWV.device) != self._end_id
            log_p_BWV.masked_fill_(at_limit_B[:, None, None] & not_end_V, NEVER)

    def _no_repeat(self, log_p_BWV: Tensor, live: Live) -> None:
        """No sequence of n tokens occurs twice."""
        history_BWT, before = live.history_BWT, self._ngram - 1
        if history_BWT.shape[-1] > before:
            ngrams_BWMK = history_BWT.unfold(-1, self._ngram, 1)
            last_BW1K = history_BWT[..., None, history_BWT.shape[-1] - before :]
            again_BWM = (ngrams_BWMK[..., :before] == last_BW1K).all(-1)
            forbid_tokens(log_p_BWV, ngrams_BWMK[..., before], again_BWM)

    def _prefix(self, like_BWV: Tensor, live: Live) -> tuple[Tensor, Tensor] | None:
        """Which sentences are inside their prefix, and all tokens but its next one; None if all are after theirs."""
        written = live.history_BWT.shape[-1]
        if written >= self._prefixes_BT.shape[1]:
            return None
        token_B11 = self._prefixes_BT[live.sentences_B, written][:, None, None]
        return token_B11 != NO_TOKEN, token_B11 != torch.arange(like_BWV.shape[-1], device=like_BWV.device)

    def rule_out(self, log_p_BWV: Tensor, live: Live) -> Tensor:
        """log P with NEVER for tokens that may not come next. Overwrites its input."""
        prefix = self._prefix(log_p_BWV, live)
        prefix_BWV = None if prefix is None else log_p_BWV.masked_fill(prefix[1], NEVER)
        for forbid in self._rules.values():
            forbid(log_p_BWV, live)
        return log_p_BWV if prefix is None or prefix_BWV is None else torch.where(prefix[0], prefix_BWV, log_p_BWV)

    def reasons(self, like_BWV: Tensor, live: Live) -> Tensor:
        """Why each token may not come next: 1 + the index in `names` of the first rule against it; 0 if it may."""
        reasons_BWV = torch.zeros_like(like_BWV, dtype=torch.long)
        for number, forbid in enumerate(self._rules.values(), start=1):
            probe_BWV = torch.zeros_like(like_BWV)
            forbid(probe_BWV, live)
            reasons_BWV.masked_fill_((probe_BWV == NEVER) & (reasons_BWV == 0), number)
        if (prefix := self._prefix(like_BWV, live)) is None:
            return reasons_BWV
        return torch.where(prefix[0], prefix[1] * len(self.names), reasons_BWV)
