"""Rules of a search: which tokens may come next. Rules mask candidates before selection."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.batches import Ragged
from regard.errors import DecodeError
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Live
from regard.text.vocabularies import BEGIN, END, PAD, UNK

NO_TOKEN = -1  # pads lists of tokens


class SpecialTokens(NamedTuple):
    """The tokens of a vocabulary that a search must know; None if it has none."""

    begin: int = BEGIN  # what is read before the first token is written
    end: int = END
    pad: int | None = PAD
    unknown: int | None = UNK
    start: int | None = None
    """`<s>` where texts begin with another token: a language model reads `</s>` first, and never
    learns `<s>`."""


SPECIAL_TOKENS = SpecialTokens()


@dataclass(frozen=True)
class Constraints:
    """`SearchConfig.prefix` and `SearchConfig.banned` as tokens."""

    prefixes: Sequence[Sequence[int]] = ()
    """The beginning of each sentence's output, `()` for none; empty: no output has a prefix."""
    banned: BannedTexts | None = None  # what no output may contain
    contexts: Sequence[Sequence[int]] = ()
    """The tokens before each output if it continues a text; empty if it does not."""

    def of(self, sentences: Sequence[int]) -> Constraints:
        prefixes, contexts = (
            [each[number] for number in sentences] if each else ()
            for each in (self.prefixes, self.contexts)
        )
        return Constraints(prefixes, self.banned, contexts)

    def after(self, first: Sequence[int], sentences: int) -> Constraints:
        """The same for outputs that begin with these tokens."""
        if not first:
            return self
        prefixes = self.prefixes or [()] * sentences
        return replace(self, prefixes=[[*first, *prefix] for prefix in prefixes])


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

    A token completes the text b if it writes b itself, or if it begins with b[i:] after an output
    that ends in b[:i].
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
        """The end of an output -> the tokens that would then complete a banned text."""
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
        special: SpecialTokens = SPECIAL_TOKENS,
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
        """The rules that apply. They are not stored: an object that holds its own methods is freed
        only by the garbage collector, and its tables would stay on the GPU until then."""
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
            )  # scatter_add: an index may occur twice

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
