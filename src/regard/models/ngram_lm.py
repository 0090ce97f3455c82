"""Markov chains of words: n-gram language models, which count instead of computing.

Chen & Goodman 1999, "An empirical study of smoothing techniques for language modeling", Computer
Speech & Language 13(4); sections 2.1 (additive), 2.3 (Jelinek-Mercer) and 3 (interpolated
Kneser-Ney).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Padded, TextBatch
from regard.errors import ConfigError
from regard.layers.sized_by_text import SizedByText, values_of
from regard.models.base import LanguageModel, ModelConfig, Output, Presets

LARGEST_KEY = 2**63
MIN_DISCOUNT = 0.05
MAX_DISCOUNT = 0.95
FIRST_K = 0.1
"""k before the training."""


class NgramConfig(ModelConfig):
    """N-gram language model with smoothing (Chen & Goodman 1999)."""

    PRESETS: ClassVar[Presets] = {"base": {}}
    reads = "text"
    represents = None
    generates = True
    pretraining = "next_token"
    causal = True
    local = True
    layers: ClassVar[int] = 0

    kind: Literal["ngram"] = "ngram"
    preset: Literal["base"] = "base"
    """The only one: the size is that of the training text."""
    order: int = Field(3, ge=1, le=5)
    """Tokens of an n-gram: the last one is predicted from the others. 2 is a Markov chain whose state
    is a token."""
    smoothing: Literal["add_k", "interpolation", "kneser_ney"] = "kneser_ney"
    """What n-grams get that the training text does not have. `add_k`: as if each had been seen k times
    more; `interpolation`: a share of the probability of shorter n-grams; `kneser_ney`: the same, from
    what a discount takes of every count, and shorter n-grams count by how many words they follow."""

    @property
    def learning_rate(self) -> float:
        return 0.1


class Seen(NamedTuple):
    """What one order of n-grams says after the contexts h. Axes of words may be missing, or 1."""

    c: Tensor  # c(h w): how often the words follow the contexts
    total: Tensor  # c(h)
    types: Tensor  # N(h): how many different words follow


class CountTable(SizedByText):
    """The n-grams of one order with their counts, sorted by key: the context's key times the base,
    plus the word."""

    grams_G: Tensor
    counts_G: Tensor
    contexts_C: Tensor
    totals_C: Tensor
    types_C: Tensor

    def __init__(self, base: int) -> None:
        super().__init__()
        self.base = base
        for name in ("grams_G", "contexts_C"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.long))
        for name in ("counts_G", "totals_C", "types_C"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.int32))

    def fit(self, keys_N: Tensor, counts_N: Tensor) -> None:
        """Count the n-grams with these keys, each so often."""
        self.grams_G, rows_N = torch.unique(keys_N, return_inverse=True)
        self.counts_G = _sums(rows_N, counts_N, len(self.grams_G))
        self.contexts_C, rows_G = torch.unique(self.grams_G // self.base, return_inverse=True)
        self.totals_C = _sums(rows_G, self.counts_G, len(self.contexts_C))
        self.types_C = rows_G.bincount(minlength=len(self.contexts_C)).int()

    def after(self, contexts_P: Tensor, words_P: Tensor) -> Seen:
        """The counts of one word after each context, [P]."""
        c_P = values_of(self.grams_G, contexts_P * self.base + words_P, self.counts_G)
        total_P, types_P = (
            values_of(self.contexts_C, contexts_P, own_C) for own_C in (self.totals_C, self.types_C)
        )
        return Seen(c_P, total_P, types_P)

    def after_all(self, contexts_P: Tensor, words: int) -> Seen:
        """The counts of so many words after each context: c [P, V], the others [P, 1]."""
        starts_P = torch.searchsorted(self.grams_G, contexts_P * self.base)
        ends_P = torch.searchsorted(self.grams_G, (contexts_P + 1) * self.base)
        sizes_P = ends_P - starts_P
        rows_K = torch.arange(len(contexts_P), device=sizes_P.device).repeat_interleave(sizes_P)
        firsts_P = sizes_P.cumsum(0) - sizes_P
        places_K = torch.arange(len(rows_K), device=rows_K.device) + (starts_P - firsts_P)[rows_K]
        c_PV = self.counts_G.new_zeros(len(contexts_P), words)
        c_PV[rows_K, self.grams_G[places_K] % self.base] = self.counts_G[places_K]
        total_P1 = values_of(self.contexts_C, contexts_P, self.totals_C)[:, None]
        return Seen(c_PV, total_P1, sizes_P[:, None])


def _sums(rows_N: Tensor, counts_N: Tensor, rows: int) -> Tensor:
    return torch.zeros(rows, dtype=torch.long).index_add(0, rows_N, counts_N.long()).int()


@dataclass(frozen=True)
class NgramState:
    """The last tokens of each row, which are all that the next one depends on."""

    contexts_RN: Tensor
    is_new: bool
    """Whether there was no step yet."""

    def select(self, rows_BW: Tensor) -> NgramState:
        return replace(self, contexts_RN=self.contexts_RN.index_select(0, rows_BW.flatten()))


class NgramLanguageModel(LanguageModel):
    """The next token from the n - 1 tokens before it, the context h, by counts of the training text.

    With c(h w) the number of times that w follows h, c(h) = sum_w c(h w), h' the context without its
    first token, and V tokens in the vocabulary:

        add_k           p(w | h) = (c(h w) + k) / (c(h) + k V)
        interpolation   p(w | h) = sum_j lambda_j c(h_j w) / c(h_j)  +  lambda_0 / V
                        h_j the last j - 1 tokens, the sum over the h_j that were seen, lambda divided by its sum
        kneser_ney      p(w | h) = max(c(h w) - D, 0) / c(h)  +  (D N(h) / c(h)) p(w | h')
                        N(h) the number of different words after h; p(w | h) = p(w | h') if h was not seen;
                        p(w | no context') = 1 / V

    For kneser_ney, c of an n-gram shorter than n is the number of different words before it; at the
    beginning of a text, where there is none, it is the count. Before the text stands a filler.

    The tables are counted before the first step. What is then learned is k, the lambda_j (a softmax of
    a), or a discount D for each order (a sigmoid of a), which begins at n_1 / (n_1 + 2 n_2) with n_1
    and n_2 the numbers of n-grams that were counted once and twice (Chen & Goodman 1999, equation 28).
    In training each token is predicted from the counts of all others: with its own, k and all D would
    become 0 (`leaving one out`, Ney, Essen & Kneser 1994).
    """

    config: NgramConfig

    def __init__(self, config: NgramConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = max(1, config.order - 1)
        self.depth = 0
        self.vocabulary_size = vocabulary_size
        self.base = vocabulary_size + 1
        if self.base**config.order >= LARGEST_KEY:
            what = f"n-grams of {config.order} tokens out of {vocabulary_size:,} are too many to number"
            raise ConfigError(what, where="model.order", hint="lower it or tokenizer.vocabulary")
        self.output = None
        of_interpolation = config.order + 1
        sizes = {"add_k": 1, "interpolation": of_interpolation, "kneser_ney": config.order}
        self.a = nn.Parameter(torch.zeros(sizes[config.smoothing]))
        orders = range(1, config.order + 1)
        self.tables = nn.ModuleDict({f"order_{n}": CountTable(self.base) for n in orders})

    # Counting

    @torch.no_grad()
    def count(self, texts: Iterable[Padded]) -> None:
        """Count the n-grams of the training texts."""
        order = self.config.order
        keys_N = torch.cat(
            [self._keys(*text.predicted(self.contexts(text.inputs))) for text in texts]
        )
        for n in range(order, 0, -1):
            grams_G, counts_G = torch.unique(keys_N % self.base**n, return_counts=True)
            if self.config.smoothing == "kneser_ney" and n < order:
                grams_G, counts_G = self._continuations(keys_N % self.base ** (n + 1), n)
            self._table(n).fit(grams_G, counts_G)
        self.a.copy_(self._first_values())

    def _keys(self, contexts_PN: Tensor, words_P: Tensor) -> Tensor:
        return self._context_keys(contexts_PN.long(), self.config.order) * self.base + words_P

    def _continuations(self, longer_N: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """N-grams out of those with one token more: each counts once, or as often as it begins a
        text."""
        longer_G, counts_G = torch.unique(longer_N, return_counts=True)
        begins_G = longer_G // self.base**n == self.vocabulary_size
        return longer_G % self.base**n, torch.where(begins_G, counts_G, 1)

    def _first_values(self) -> Tensor:
        """a before the training."""
        if self.config.smoothing == "add_k":
            return torch.full_like(self.a, FIRST_K).log()
        if self.config.smoothing == "interpolation":
            return torch.zeros_like(self.a)
        discounts = []
        for n in range(1, self.config.order + 1):
            once, twice = ((self._table(n).counts_G == count).sum() for count in (1, 2))
            discounts.append((once / (once + 2 * twice).clamp(min=1)).float())
        return torch.stack(discounts).clamp(MIN_DISCOUNT, MAX_DISCOUNT).logit().to(self.a)

    def _table(self, n: int) -> CountTable:
        table = self.tables[f"order_{n}"]
        assert isinstance(table, CountTable)
        return table

    # Probabilities

    def contexts(self, text: Padded) -> Tensor:
        """The last tokens up to each position, [B, L, N], with fillers before the text. As float64, a
        hidden state like those of other models."""
        ids_BL = text.ids_BL
        filler_BN = ids_BL.new_full((len(ids_BL), self.width - 1), self.vocabulary_size)
        return torch.cat([filler_BN, ids_BL], 1).unfold(1, self.width, 1).double()

    def _context_keys(self, contexts_PN: Tensor, n: int) -> Tensor:
        """The number of the last n - 1 tokens: 0 if there are none."""
        keys_P = torch.zeros_like(contexts_PN[:, 0])
        for tokens_P in contexts_PN.unbind(1)[self.width - (n - 1) :]:
            keys_P = keys_P * self.base + tokens_P
        return keys_P

    def probabilities(
        self, contexts_PN: Tensor, words_P: Tensor, *, leave_one_out: bool = False
    ) -> Tensor:
        """p(w | h) for one word after each context, [P]. `leave_one_out`: from the counts without this
        occurrence."""
        seen = []
        removed_P = torch.full_like(words_P, int(leave_one_out), dtype=torch.int32)
        for n in range(self.config.order, 0, -1):
            keys_P = self._context_keys(contexts_PN.long(), n)
            c, total, types = self._table(n).after(keys_P, words_P)
            is_gone_P = removed_P * (c == removed_P)
            seen.append(Seen(c - removed_P, total - removed_P, types - is_gone_P))
            # a shorter one counts the longer ones once, except at the beginning of a text
            if self.config.smoothing == "kneser_ney" and n > 1:
                begins_P = contexts_PN[:, self.width - (n - 1)] == self.vocabulary_size
                removed_P = torch.where(begins_P, removed_P, is_gone_P)
        return self.combine(seen[::-1])

    def combine(self, counted: Sequence[Seen]) -> Tensor:
        """p(w | h) from the counts of each order, the shortest first."""
        uniform = 1 / self.vocabulary_size
        a = self.a.to(torch.promote_types(self.a.dtype, torch.float32))
        seen = [Seen(*(count.to(a.dtype) for count in counts)) for counts in counted]
        if self.config.smoothing == "add_k":
            c, total, _ = seen[-1]
            k = a.exp()
            return (c + k) / (total + k * self.vocabulary_size)
        if self.config.smoothing == "interpolation":
            weights = a.softmax(0)
            p = weights[0] * uniform
            shares = weights[0]
            for weight, (c, total, _) in zip(weights[1:], seen, strict=True):
                p = p + weight * c / total.clamp(min=1)
                shares = shares + weight * (total > 0)
            return p / shares
        p = torch.full_like(seen[0].c, uniform)
        for discount, (c, total, types) in zip(a.sigmoid(), seen, strict=True):
            own = (c - discount).clamp(min=0) + discount * types * p
            p = torch.where(total > 0, own / total.clamp(min=1), p)
        return p

    def readout(self, hidden: Tensor) -> Tensor:
        """log p(w | h) for all words: [..., N] -> [..., V]."""
        contexts_PN = hidden.reshape(-1, self.width).long()
        seen = [
            self._table(n).after_all(self._context_keys(contexts_PN, n), self.vocabulary_size)
            for n in range(1, self.config.order + 1)
        ]
        return self.combine(seen).log().view(*hidden.shape[:-1], self.vocabulary_size)

    def forward(self, batch: TextBatch) -> Output:
        """The contexts of the tokens `text[:, 1:]`, in the place of hidden states."""
        return Output(self.contexts(batch.text.inputs))

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        """The contexts up to each token."""
        return [self.contexts(batch.text)]

    # Writing

    def begin(self, source: Padded, rows: int, max_length: int) -> NgramState:
        places_B = source.lengths_B - 1
        contexts_BLN = self.contexts(source)
        numbers_B = torch.arange(len(source), device=contexts_BLN.device)
        return NgramState(contexts_BLN[numbers_B, places_B].repeat_interleave(rows, 0), True)

    def step(self, tokens_R: Tensor, state: NgramState) -> tuple[Tensor, NgramState]:
        contexts_RN = state.contexts_RN
        if not state.is_new:
            contexts_RN = torch.cat([contexts_RN[:, 1:], tokens_R[:, None].double()], 1)
        return self.readout(contexts_RN), NgramState(contexts_RN, False)
