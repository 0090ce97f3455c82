"""Keys and values of the tokens so far, so that a step computes only those of the newest tokens.

`regard/engine` has faster caches; with REGARD_ENGINE=plain the one below is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.engine import first_that_applies
from regard.engine.caches import EMPTY_CACHES, Cache
from regard.engine.step_graphs import StepRunner
from regard.layers.attention import Visible


@dataclass
class KeyValueCache:
    """The keys and values of each row (a hypothesis) in every block of a decoder.

    A row's tokens fill it from the start on without gaps, also after prompts of different lengths.
    Steps write into the tensors: after `step` or `select`, use only the cache that they return.
    """

    own_N2RHME: Tensor
    """Keys, then values, of each of the N blocks, with space for M positions."""
    places: Tensor
    """The place of the next token of each row, [R]: so many tokens it has."""
    longest: int
    """At least the largest of `places`, known without waiting for a GPU; a longer row may have been
    dropped."""
    runner: StepRunner = field(default_factory=StepRunner)

    queries_share_keys = False

    @property
    def visible(self) -> Visible:
        """Each row attends to its own tokens, the newest included."""
        return Visible(self.places + 1)

    def add(self, block: int, k_RH1E: Tensor, v_RH1E: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of the next token of each row -> all of them."""
        rows_R = torch.arange(len(self.places), device=self.places.device)
        k_RHME, v_RHME = self.own_N2RHME[block]
        k_RHME[rows_R, :, self.places] = k_RH1E[:, :, 0]
        v_RHME[rows_R, :, self.places] = v_RH1E[:, :, 0]
        return k_RHME, v_RHME

    def add_prompts(self, block: int, k_BHLE: Tensor, v_BHLE: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of each prompt in all of its rows -> those of the prompts,
        which attend to themselves."""
        prompts_2BHLE = torch.stack([k_BHLE, v_BHLE])
        rows = len(self.places) // len(k_BHLE)
        self.own_N2RHME[block, ..., : k_BHLE.shape[2], :] = prompts_2BHLE.repeat_interleave(rows, 1)
        return k_BHLE, v_BHLE

    def first(self, positions: int) -> KeyValueCache:
        """The part of the cache that a step attends to; what it writes is written here too."""
        return replace(self, own_N2RHME=self.own_N2RHME[..., :positions, :])

    def step(
        self, tokens_R: Tensor, advance: Callable[[Tensor, KeyValueCache], Tensor]
    ) -> tuple[Tensor, KeyValueCache]:
        """The logits of `advance(tokens, cache)` for one more token per row, and the cache after
        it."""

        def compute(tokens_R: Tensor, positions: int) -> Tensor:
            logits_RV = advance(tokens_R, self.first(positions))
            self.places.add_(1)
            return logits_RV

        logits_RV = self.runner.run(compute, tokens_R, self.longest, self.own_N2RHME.shape[4])
        return logits_RV, replace(self, longest=self.longest + 1)

    def select(self, rows_BW: Tensor, sources_B: Tensor | None) -> KeyValueCache:
        """The cache of these rows; `sources_B` are the sources that remain, None if all do."""
        rows_R = rows_BW.flatten()
        filled = self.own_N2RHME[..., : self.longest, :].index_select(2, rows_R)
        if sources_B is None and len(rows_R) == len(self.places):
            # in place: rows of one source have equally many tokens
            self.own_N2RHME[..., : self.longest, :] = filled
            return self
        own_N2RHME = filled.new_zeros(*filled.shape[:4], *self.own_N2RHME.shape[4:])
        own_N2RHME[..., : self.longest, :] = filled
        places_R = self.places.index_select(0, rows_R)
        return KeyValueCache(own_N2RHME, places_R, self.longest, self.runner.renewed())


def empty_cache(source_N2BHSE: Tensor, rows: int, max_length: int) -> Cache:
    """A cache for `rows` hypotheses per source, given the keys and values of the sources."""
    if empty := first_that_applies(EMPTY_CACHES, source_N2BHSE):
        return empty(source_N2BHSE, rows, max_length)
    layers, _, sources, heads, _, head_width = source_N2BHSE.shape
    own_N2RHME = source_N2BHSE.new_zeros(layers, 2, sources * rows, heads, max_length, head_width)
    places_R = torch.zeros(sources * rows, dtype=torch.long, device=source_N2BHSE.device)
    return KeyValueCache(own_N2RHME, places_R, 0)
