"""Texts that no output may contain, however they are split into tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.search.hypotheses import NEVER, Live

NO_TOKEN = -1
"""Pads lists of tokens."""
WIDE = 1 << 32
"""More than any vocabulary size: state * WIDE + token is a unique key."""


class Transition(NamedTuple):
    """The state after reading the symbols of a token, and whether they complete a banned text."""

    state: int
    completes: bool


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
        return Transition(state, completes)


class BannedTexts:
    """The banned texts of a search as tables over the vocabulary.

    Texts and tokens are sequences of symbols, for example bytes of UTF-8. A token is ruled out where it would complete
    a text, whichever tokens wrote the beginning of that text.
    """

    def __init__(self, texts: Sequence[Sequence[int]], pieces: Mapping[int, Sequence[int]]) -> None:
        """`pieces` has the symbols that each token writes."""
        self._automaton, self._pieces = Automaton(texts), pieces
        rows = self._rows()
        moves = sorted((state * WIDE + token, move.state) for state, row in rows.items() for token, move in row.items())
        self.keys, self.states = (torch.tensor(column) for column in zip((-1, 0), *moves, strict=True))
        """state * WIDE + token, sorted, and the next state; a missing key behaves as in state 0, or leads to 0. Tokens
        that complete a text have entries too: a prefix may force them, and other texts may go on from there."""
        completing = {state: [token for token, move in row.items() if move.completes] for state, row in rows.items()}
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
            row = (rows[suffix] if suffix else {}) | dict.fromkeys(by_first.get(NO_TOKEN, ()), Transition(state, False))
            own = {token: self._automaton.read(state, self._pieces[token]) for token in extending}
            rows[state] = row | {token: move for token, move in own.items() if move != from_empty[token]}
        return rows

    def state_after(self, tokens: Iterable[int]) -> int:
        """The state after these tokens."""
        state = 0
        for token in tokens:
            state = self._automaton.read(state, self._pieces.get(token, ())).state
        return state


class NoBannedText:
    """A rule: tokens that would complete a banned text are ruled out."""

    name = "banned"

    def __init__(self, banned: BannedTexts, contexts: Sequence[Sequence[int]], device: torch.device) -> None:
        self._max_history, self._always = banned.max_history, banned.always.to(device)
        self._keys, self._states = banned.keys.to(device), banned.states.to(device)
        self._completing_SM = banned.completing_SM.to(device)
        states = [banned.state_after(tokens) for tokens in contexts]
        self._context_B = torch.tensor(states, device=device) if contexts else None

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        log_p_BWV.index_fill_(-1, self._always, NEVER)
        if self._completing_SM.shape[1]:
            tokens_BWM = self._completing_SM[self._state(live)]
            forbid_tokens(log_p_BWV, tokens_BWM.clamp(min=0), tokens_BWM != NO_TOKEN)

    def _state(self, live: Live) -> Tensor:
        """The automaton's state after each hypothesis, [B, W]."""
        history_BWT, state_BW = live.history_BWT, torch.zeros_like(live.total_BW, dtype=torch.long)
        if self._max_history is not None and history_BWT.shape[-1] > self._max_history:
            history_BWT = history_BWT[..., history_BWT.shape[-1] - self._max_history :]
        elif self._context_B is not None:
            state_BW += self._context_B[live.sentences_B][:, None]
        for tokens_BW in history_BWT.permute(2, 0, 1).contiguous():
            own_BW, from_empty_BW = self._lookup(state_BW * WIDE + tokens_BW), self._lookup(tokens_BW)
            state_BW = torch.where(own_BW == NO_TOKEN, from_empty_BW, own_BW).clamp_(min=0)
        return state_BW

    def _lookup(self, key_BW: Tensor) -> Tensor:
        index_BW = torch.searchsorted(self._keys, key_BW).clamp_(max=len(self._keys) - 1)
        return torch.where(self._keys[index_BW] == key_BW, self._states[index_BW], NO_TOKEN)


def forbid_tokens(log_p_BWV: Tensor, tokens_BWM: Tensor, forbidden_BWM: Tensor) -> None:
    """Rule out tokens where `forbidden_BWM` is True; a token that is listed twice is ruled out if either entry is."""
    never_BWM = torch.zeros_like(tokens_BWM, dtype=log_p_BWV.dtype).masked_fill_(forbidden_BWM, NEVER)
    log_p_BWV.scatter_add_(-1, tokens_BWM, never_BWM)
