"""Texts that may not be written, however they are cut into tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.search.hypotheses import NEVER, Live

NOTHING = -1
"""Fills a list of tokens."""
WIDE = 1 << 32
"""More than there are tokens."""


class Read(NamedTuple):
    """Where a piece leads, and whether it completes one of the texts."""

    state: int
    held: bool


class Automaton:
    """Reads symbols, and knows after each the longest end of what it has read with which one of the texts begins.

    Aho and Corasick 1975, doi:10.1145/360825.360855. A state is such a beginning, 0 the empty one.
    """

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        self.nexts: list[dict[int, int]] = [{}]
        """The symbols that go on with each state, and where they lead."""
        self._holds = [False]
        for text in texts:
            state = 0
            for symbol in text:
                if symbol not in self.nexts[state]:
                    self.nexts[state][symbol] = len(self.nexts)
                    self.nexts.append({})
                    self._holds.append(False)
                state = self.nexts[state][symbol]
            self._holds[state] = True
        self.shorter = [0] * len(self.nexts)
        """The longest end of each state that is a state itself."""
        self.states = [0]
        """All of them, shorter ones first."""
        for state in self.states:  # which grows meanwhile
            for symbol, longer in self.nexts[state].items():
                self.shorter[longer] = self._step(self.shorter[state], symbol) if state else 0
                self._holds[longer] |= self._holds[self.shorter[longer]]
                self.states.append(longer)

    def _step(self, state: int, symbol: int) -> int:
        while state and symbol not in self.nexts[state]:
            state = self.shorter[state]
        return self.nexts[state].get(symbol, 0)

    def read(self, state: int, piece: Sequence[int]) -> Read:
        """The state once a piece is read, and whether a text was complete on the way."""
        held = False
        for symbol in piece:
            state = self._step(state, symbol)
            held |= self._holds[state]
        return Read(state, held)


class Ban:
    """The texts of a search that may not be written, worked out for a vocabulary.

    Texts and what each token writes are sequences of symbols: bytes of UTF-8, say. A token is ruled out where it would
    complete a text, whichever tokens wrote the beginning of it.
    """

    def __init__(self, texts: Sequence[Sequence[int]], pieces: Mapping[int, Sequence[int]]) -> None:
        self._automaton, self._pieces = Automaton(texts), pieces
        rows = self._rows()
        moves = sorted((state * WIDE + token, read.state) for state, row in rows.items() for token, read in row.items())
        self.keys, self.states = (torch.tensor(column) for column in zip((-1, 0), *moves, strict=True))
        """state * WIDE + token, and where it leads; what is not here leads where it does from state 0, or to 0. Tokens
        that complete a text are there, too: a prefix may force them, and what goes on from there completes another."""
        held = {state: [token for token, read in row.items() if read.held] for state, row in rows.items()}
        self.always = torch.tensor(held.pop(0), dtype=torch.long)
        """The tokens that hold a text by themselves."""
        self.completing_SM = torch.full((len(self._automaton.nexts), max(map(len, held.values()), default=0)), NOTHING)
        """The others that are ruled out in each state."""
        for state, tokens in held.items():
            self.completing_SM[state, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        silent = any(not piece for piece in pieces.values())
        self.reach = None if silent else max(map(len, texts)) - 1
        """How many tokens back the beginning of a text may stand; None: any number, since some write nothing."""

    @staticmethod
    def of_tokens(sequences: Sequence[Sequence[int]]) -> Ban:
        """Of sequences of tokens, each of which writes itself."""
        return Ban(sequences, {token: (token,) for tokens in sequences for token in tokens})

    def _rows(self) -> dict[int, dict[int, Read]]:
        """What tokens do in each state, where it is something else than in state 0.

        A token that does not go on with a state does there what it does in the next shorter one: so little is left to
        work out, even for many texts and a large vocabulary.
        """
        by_first: dict[int, list[int]] = defaultdict(list)
        for token, piece in self._pieces.items():
            by_first[piece[0] if len(piece) else NOTHING].append(token)
        from_nothing = {token: self._automaton.read(0, piece) for token, piece in self._pieces.items()}
        rows = {0: {token: read for token, read in from_nothing.items() if read != (0, False)}}
        for state in self._automaton.states[1:]:
            going_on = (token for symbol in self._automaton.nexts[state] for token in by_first.get(symbol, ()))
            shorter = self._automaton.shorter[state]
            row = (rows[shorter] if shorter else {}) | dict.fromkeys(by_first.get(NOTHING, ()), Read(state, False))
            own = {token: self._automaton.read(state, self._pieces[token]) for token in going_on}
            rows[state] = row | {token: read for token, read in own.items() if read != from_nothing[token]}
        return rows

    def after(self, tokens: Iterable[int]) -> int:
        """The state once these are written, whatever they hold of the texts."""
        state = 0
        for token in tokens:
            state = self._automaton.read(state, self._pieces.get(token, ())).state
        return state


class Banned:
    """A text of a ban may not be written: the token that would complete it is ruled out."""

    name = "banned"

    def __init__(self, ban: Ban, begun: Sequence[Sequence[int]], device: torch.device) -> None:
        self._reach, self._always = ban.reach, ban.always.to(device)
        self._keys, self._states = ban.keys.to(device), ban.states.to(device)
        self._completing_SM = ban.completing_SM.to(device)
        self._begun_B = torch.tensor([ban.after(tokens) for tokens in begun], device=device) if begun else None

    def forbid(self, log_p_BWV: Tensor, live: Live) -> None:
        log_p_BWV.index_fill_(-1, self._always, NEVER)
        if self._completing_SM.shape[1]:
            tokens_BWM = self._completing_SM[self._read(live)]
            forbid_tokens(log_p_BWV, tokens_BWM.clamp(min=0), tokens_BWM != NOTHING)

    def _read(self, live: Live) -> Tensor:
        """The state of each hypothesis; what was written long ago no longer tells."""
        history_BWT, state_BW = live.history_BWT, torch.zeros_like(live.total_BW, dtype=torch.long)
        if self._reach is not None and history_BWT.shape[-1] > self._reach:
            history_BWT = history_BWT[..., history_BWT.shape[-1] - self._reach :]
        elif self._begun_B is not None:
            state_BW += self._begun_B[live.sentences_B][:, None]
        for tokens_BW in history_BWT.permute(2, 0, 1).contiguous():
            own_BW, from_nothing_BW = self._looked_up(state_BW * WIDE + tokens_BW), self._looked_up(tokens_BW)
            state_BW = torch.where(own_BW == NOTHING, from_nothing_BW, own_BW).clamp_(min=0)
        return state_BW

    def _looked_up(self, key_BW: Tensor) -> Tensor:
        place_BW = torch.searchsorted(self._keys, key_BW).clamp_(max=len(self._keys) - 1)
        return torch.where(self._keys[place_BW] == key_BW, self._states[place_BW], NOTHING)


def forbid_tokens(log_p_BWV: Tensor, tokens_BWM: Tensor, forbidden_BWM: Tensor) -> None:
    """Rule out tokens where they are forbidden; one that is named twice and forbidden once is forbidden."""
    never_BWM = torch.zeros_like(tokens_BWM, dtype=log_p_BWV.dtype).masked_fill_(forbidden_BWM, NEVER)
    log_p_BWV.scatter_add_(-1, tokens_BWM, never_BWM)
