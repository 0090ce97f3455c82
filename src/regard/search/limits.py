"""How long the output for each source may be, and what it must and must not say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.errors import DecodeError
from regard.search.banned import Ban
from regard.search.config import SearchConfig


@dataclass(frozen=True)
class Wording:
    """`SearchConfig.prefix` and `SearchConfig.banned` as tokens."""

    prefixes: Sequence[Sequence[int]] = ()
    """What each sentence's output begins with, `()` for anything; none at all: all may begin as they like."""
    banned: Ban | None = None
    """What no output holds."""
    begun: Sequence[Sequence[int]] = ()
    """The tokens that each output is read on from, as the beginning of the same text; none at all: it stands alone."""

    def of(self, sentences: Sequence[int]) -> Wording:
        """The wording of these sentences."""
        prefixes, begun = (
            [each[number] for number in sentences] if each else () for each in (self.prefixes, self.begun)
        )
        return Wording(prefixes, self.banned, begun)


ANY_WORDING = Wording()


@dataclass(frozen=True)
class Limits:
    """Fewest and most tokens for each sentence, `</s>` included; a sentence's neighbours have no say in it."""

    shortest: list[int]
    longest: list[int]

    @staticmethod
    def of(source_lengths: Sequence[int], config: SearchConfig, wording: Wording) -> Limits:
        """The limits for sources of these lengths, or a DecodeError where they leave no output."""
        limits = Limits(shortest_lengths(source_lengths, config), length_limits(source_lengths, config))
        for source, least, most in zip(source_lengths, limits.shortest, limits.longest, strict=True):
            if least > most:
                what = (
                    f"a source of {source} tokens needs an output of at least {least}, but at most {most} are allowed"
                )
                hint = "lower it, or raise search.max_length or search.max_length_ratio"
                raise DecodeError(what, where="search.min_length_ratio", hint=hint)
        for prefix, most in zip(wording.prefixes, limits.longest, strict=False):
            if len(prefix) >= most:
                what = f"a prefix of {len(prefix)} tokens and the end do not fit into the {most} that are allowed"
                hint = "shorten it, or raise search.max_length or search.max_length_offset"
                raise DecodeError(what, where="search.prefix", hint=hint)
        return limits


def shortest_lengths(source_lengths: Iterable[int], config: SearchConfig) -> list[int]:
    """Fewest tokens that may be written for each source."""
    return [max(1, config.min_length, math.ceil(config.min_length_ratio * length)) for length in source_lengths]


def length_limits(source_lengths: Iterable[int], config: SearchConfig) -> list[int]:
    """Most tokens that may be written for each source; `min_length` may raise what the source's length allows."""
    ceiling = math.inf if config.max_length is None else config.max_length
    floor = max(1, config.min_length)
    limits = (int(config.max_length_ratio * length + config.max_length_offset) for length in source_lengths)
    return [max(floor, int(min(ceiling, limit))) for limit in limits]
