"""Linear models over n-grams, or over windows of words, which are fitted before the network beside
them is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import NO_TAG, LabelledBatch, Padded
from regard.models.base import real_BL
from regard.models.elmo import distinct_words
from regard.text.spelling import WORD_BEGINS

NGRAM_LENGTHS = (1, 2, 3)  # tokens of an n-gram
HASH_FACTOR = 1_000_003
HASH_MODULUS = 2**31 - 1
AFFIX_LENGTHS = (1, 2, 3, 4, 6)  # bytes at the beginning or at the end of a word
LBFGS_ITERATIONS = 100
LBFGS_HISTORY = 5
Compared = Literal["classes", "similarity"]
"""How two texts are compared: for classes, what is in one of them alone has weights of its own for
each of the two."""
Loss = Callable[[Tensor, Tensor], Tensor]


class Grams(NamedTuple):
    """The distinct n-grams of each text and what each weighs; 0 for padding."""

    keys_BK: Tensor  # order and row of the table in one number
    values_BK: Tensor


class WordSeparators(NamedTuple):
    """The tokens that separate words, so that no n-gram reaches from one word into the next."""

    space: int
    special: frozenset[int]  # tokens around a text, such as <s>


def ngram_hashes(ids_BL: Tensor, n: int) -> Tensor:
    """The hash of the n-gram from each position on; beyond the end it reads zeros: [B, L].

    key = (key * 1000003 + token) mod (2**31 - 1), from n on.
    """
    key_BL = torch.full_like(ids_BL, n)
    for offset in range(n):
        key_BL = (key_BL * HASH_FACTOR + F.pad(ids_BL, (0, offset))[:, offset:]) % HASH_MODULUS
    return key_BL


def word_hashes(ids_BL: Tensor, is_space_BL: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """At the last token of each word the hash of the word, that of the word before and itself, and
    whether there is a word and a pair of words: each [B, L]."""
    word_B = before_B = torch.zeros_like(ids_BL[:, 0])
    words = []
    pairs = []
    ends_BL = ~is_space_BL & F.pad(is_space_BL, (0, 1), value=True)[:, 1:]
    for ids_B, is_space_B, is_end_B in zip(
        ids_BL.unbind(1), is_space_BL.unbind(1), ends_BL.unbind(1), strict=True
    ):
        word_B = torch.where(is_space_B, 0, (word_B * HASH_FACTOR + ids_B) % HASH_MODULUS)
        words.append(word_B)
        pairs.append(torch.where(before_B > 0, (before_B * HASH_FACTOR + word_B) % HASH_MODULUS, 0))
        before_B = torch.where(is_end_B, word_B, before_B)
    pairs_BL = torch.stack(pairs, 1)
    return torch.stack(words, 1), pairs_BL, ends_BL, ends_BL & (pairs_BL > 0)


def summed_by_key(keys_BK: Tensor, *values_BK: Tensor) -> tuple[Tensor, ...]:
    """Each distinct key of a row once, with the sums of its values; rows end with zeros."""
    keys_BK, order_BK = keys_BK.sort(dim=1)
    is_new_BK = F.pad(keys_BK[:, 1:] != keys_BK[:, :-1], (1, 0))
    place_BK = is_new_BK.cumsum(1)
    sums = [
        torch.zeros_like(own).scatter_add(1, place_BK, own.gather(1, order_BK)) for own in values_BK
    ]
    return torch.zeros_like(keys_BK).scatter(1, place_BK, keys_BK), *sums


class LinearModel(nn.Module):
    """logits = W x + b for sparse vectors x, fitted before the network that it is averaged with is
    trained."""

    W: Tensor
    b_Y: Tensor

    def __init__(self, columns: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("W", torch.zeros(columns, outputs))
        self.register_buffer("b_Y", torch.zeros(outputs))

    def features(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """The rows of W and their factors in x, each [..., K]."""
        raise NotImplementedError

    def fitted_features(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """`features` of the vectors that have a label, each [P, K]."""
        return self.features(batch)

    def forward(self, batch: LabelledBatch) -> Tensor:
        """[..., Y] for each vector."""
        places_BK, values_BK = self.features(batch)
        return (
            torch.einsum("...ky,...k->...y", self.W[places_BK], values_BK.to(self.W.dtype))
            + self.b_Y
        )

    @torch.no_grad()
    def fit(
        self, batches: Sequence[LabelledBatch], targets: Tensor, loss: Loss, strength: float
    ) -> None:
        """Minimise the loss + strength / 2 sum W^2, in at most 100 steps of L-BFGS.

        `loss` maps the outputs [B, Y] for all vectors of the batches and their targets to a sum.
        """
        x = Vectors([self.fitted_features(batch) for batch in batches])
        w = torch.zeros(len(x.columns), self.W.shape[1], requires_grad=True)
        b = torch.zeros(self.W.shape[1], requires_grad=True)
        optimiser = torch.optim.LBFGS(
            [w, b],
            max_iter=LBFGS_ITERATIONS,
            history_size=LBFGS_HISTORY,
            line_search_fn="strong_wolfe",
            tolerance_change=1e-5,
        )

        def closure() -> Tensor:
            with torch.enable_grad():
                outputs = (x.rows_first @ w.detach() + b.detach()).requires_grad_()
                total = loss(outputs, targets)
                [gradient] = torch.autograd.grad(total, outputs)
            w.grad = x.columns_first @ gradient + strength * w.detach()
            b.grad = gradient.sum(0)
            return total + 0.5 * strength * w.square().sum()

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        self.W[x.columns] = w.detach()
        self.b_Y.copy_(b.detach())


class NgramModel(LinearModel):
    """A linear model over n-grams of 1 to 3 tokens and, for two texts of characters, over words and
    pairs of words.

    N-grams of characters do not reach from one word into the next. The vector of a text, with n_k
    the number of its n-grams k, N_k that of the N training texts that have k (Salton & Buckley
    1988, "Term-weighting approaches in automatic text retrieval"), of characters and of words each
    for itself:
        idf_k = 1 + ln((1 + N) / (1 + N_k))
        x_k   = (1 + ln n_k) idf_k            divided by the root of sum_k x_k^2
        logits = W x + b
    N-grams share rows of W by their hash (Weinberger et al. 2009, arXiv:0902.2206).

    Two texts with the vectors u and v, and for each kind n of n-grams the cosine c_n:
        x = [|u - v|; u * v; c_1 ... c_5; c_1^2 ... c_5^2]                                     for a similarity
        x = [|u - v|; u * v; max(u - v, 0); max(v - u, 0); c_1 ... c_5; c_1^2 ... c_5^2]       for classes
    """

    idf_R: Tensor

    def __init__(
        self, rows: int, outputs: int, words: WordSeparators | None, compared: Compared | None
    ) -> None:
        """`compared`: how two texts are compared; None for a single text."""
        blocks = {None: 1, "similarity": 2, "classes": 4}[compared]
        kinds = len(NGRAM_LENGTHS) + (0 if words is None or compared is None else 2)
        super().__init__(blocks * rows + (0 if compared is None else 2 * kinds), outputs)
        self.rows = rows
        self.words = words
        self.compared = compared
        self.blocks = blocks
        self.kinds = kinds
        self.register_buffer("idf_R", torch.ones(rows))

    def grams(self, text: Padded) -> Grams:
        """The n-grams of each text, and how often each occurs."""
        ids_BL = text.ids_BL
        words = self.words
        place_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        space = -1 if words is None else words.space
        if words is not None:
            special = torch.tensor(sorted(words.special), device=ids_BL.device)
            ids_BL = ids_BL.masked_fill(torch.isin(ids_BL, special), space)
        keys = []
        is_whole = []
        for n in NGRAM_LENGTHS:
            keys.append(ngram_hashes(ids_BL, n))
            is_whole.append(place_L <= text.lengths_B[:, None] - n)
            for offset in range(1, n - 1):
                is_whole[-1] = is_whole[-1] & (F.pad(ids_BL, (0, offset))[:, offset:] != space)
        if words is not None and self.compared is not None:
            is_space_BL = (ids_BL == space) | ~real_BL(text)
            *of_words, are_words_BL, are_pairs_BL = word_hashes(ids_BL, is_space_BL)
            keys += of_words
            is_whole += [are_words_BL, are_pairs_BL]
        keys_BK = torch.cat(
            [own % self.rows + order * self.rows for order, own in enumerate(keys)], 1
        )
        return Grams(*summed_by_key(keys_BK, torch.cat(is_whole, 1).float()))

    def weighted(self, text: Padded) -> Grams:
        """The vector of each text before it is divided by its length."""
        keys_BK, counts_BK = self.grams(text)
        tf_BK = torch.where(counts_BK > 0, 1 + counts_BK.clamp(min=1).log(), 0.0)
        return Grams(keys_BK, tf_BK * self.idf_R[keys_BK % self.rows])

    def features(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """[B, K] for single texts, [X, K] for two."""
        keys_BK, values_BK = self.weighted(batch.text)
        if self.compared is None:
            return keys_BK % self.rows, self.normalised(keys_BK, values_BK)
        zeros_BK = torch.zeros_like(values_BK)
        first_B = (torch.arange(len(values_BK), device=values_BK.device) % 2 == 0)[:, None]
        pairs_XJ = keys_BK.reshape(len(keys_BK) // 2, -1)
        sides = [
            torch.where(own, values_BK, zeros_BK).reshape(pairs_XJ.shape)
            for own in (first_B, ~first_B)
        ]
        pairs_XJ, u_XJ, v_XJ = summed_by_key(pairs_XJ, *sides)
        kinds = [pairs_XJ // self.rows == kind for kind in range(self.kinds)]
        c_XN = torch.stack(
            [F.cosine_similarity(u_XJ * own_XJ, v_XJ * own_XJ) for own_XJ in kinds], 1
        )
        u_XJ, v_XJ = (self.normalised(pairs_XJ, own_XJ) for own_XJ in (u_XJ, v_XJ))
        parts = [u_XJ * v_XJ, (u_XJ - v_XJ).abs()]
        if self.compared == "classes":
            parts += [(u_XJ - v_XJ).clamp(min=0), (v_XJ - u_XJ).clamp(min=0)]
        places = [pairs_XJ % self.rows + block * self.rows for block in range(self.blocks)]
        dense_N = self.blocks * self.rows + torch.arange(2 * self.kinds, device=pairs_XJ.device)
        places.append(dense_N.expand(len(pairs_XJ), -1))
        return torch.cat(places, 1), torch.cat([*parts, c_XN, c_XN**2], 1)

    def normalised(self, keys_BK: Tensor, values_BK: Tensor) -> Tensor:
        """Vectors of n-grams of tokens and vectors of words, both of length 1."""
        is_word_BK = keys_BK >= len(NGRAM_LENGTHS) * self.rows
        return F.normalize(values_BK * is_word_BK, dim=1) + F.normalize(
            values_BK * ~is_word_BK, dim=1
        )

    @torch.no_grad()
    def fit(
        self, batches: Sequence[LabelledBatch], targets: Tensor, loss: Loss, strength: float
    ) -> None:
        texts_R = torch.zeros_like(self.idf_R)
        rows = sum(len(batch.text) for batch in batches)
        for batch in batches:
            keys_BK, counts_BK = self.grams(batch.text)
            texts_R += torch.bincount((keys_BK % self.rows)[counts_BK > 0], minlength=self.rows)
        self.idf_R.copy_(1 + ((1 + rows) / (1 + texts_R)).log())
        super().fit(batches, targets, loss, strength)


class WindowModel(LinearModel):
    """A linear model over the words around each word, and over the letters of that word.

    Its features, each 1 if it applies: the words from 3 before to 3 after in lower case, pairs and
    triples of these, the word in its original case, its first and last bytes, and the shape of its
    letters and of its neighbours'. Features share rows of W by their hash.
    """

    characters_VC: Tensor

    def __init__(self, rows: int, outputs: int, characters_VC: Tensor) -> None:
        """`characters_VC`: the spelling of the vocabulary."""
        super().__init__(rows, outputs)
        self.register_buffer("characters_VC", characters_VC, persistent=False)

    def features(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """[B, L, K]."""
        text = batch.text
        characters_PC, index_BL = distinct_words(self.characters_VC, text.ids_BL, text.spelling)
        lower_P = hash_of(lower(characters_PC))
        shape_P = hash_of(shapes(characters_PC))
        real_BL_ = real_BL(text)
        lower_BL = lower_P[index_BL] * real_BL_
        shape_BL = shape_P[index_BL] * real_BL_
        around = {offset: shifted(lower_BL, offset) for offset in range(-3, 4)}
        keys = [*around.values()]
        keys += [
            hash_of(torch.stack([around[offset], around[offset + 1]], -1))
            for offset in range(-2, 2)
        ]
        keys += [
            hash_of(torch.stack([around[offset + by] for by in range(3)], -1))
            for offset in range(-2, 1)
        ]
        keys += [shifted(shape_BL, offset) for offset in (-1, 0, 1)]
        keys += [
            own_P[index_BL] for own_P in (hash_of(characters_PC), *affixes(lower(characters_PC)))
        ]
        numbers_K = torch.arange(1, len(keys) + 1, device=text.ids_BL.device)
        keys_BLK = (
            (torch.stack(keys, -1) * HASH_FACTOR + numbers_K * 7919) % HASH_MODULUS % len(self.W)
        )
        return keys_BLK, torch.ones_like(keys_BLK, dtype=self.W.dtype)

    def fitted_features(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        has_label_BL = batch.labels != NO_TAG
        keys_BLK, values_BLK = self.features(batch)
        return keys_BLK[has_label_BL], values_BLK[has_label_BL]


def hash_of(values_PC: Tensor) -> Tensor:
    """One number for each row of numbers, without the zeros that end it: [..., C] -> [...].

    key = (key * 1000003 + number) mod (2**31 - 1), from 1 on.
    """
    key_P = torch.ones_like(values_PC[..., 0])
    for value_P in values_PC.unbind(-1):
        key_P = torch.where(value_P > 0, (key_P * HASH_FACTOR + value_P) % HASH_MODULUS, key_P)
    return key_P


def shifted(values_BL: Tensor, by: int) -> Tensor:
    """At each position the value `by` positions after it; 0 beyond the ends."""
    length = values_BL.shape[1]
    return F.pad(values_BL, (3, 3))[:, 3 + by : 3 + by + length]


def lower(characters_PC: Tensor) -> Tensor:
    """The letters A to Z in lower case."""
    is_upper_PC = (characters_PC > ord("A")) & (
        characters_PC <= ord("Z") + 1
    )  # bytes are numbered from 1
    return torch.where(is_upper_PC, characters_PC + 32, characters_PC)


def shapes(characters_PC: Tensor) -> Tensor:
    """The kinds of the letters of each word, repeated ones once: upper case, digit, lower case or
    not ASCII, others."""
    is_upper_PC = (characters_PC > ord("A")) & (characters_PC <= ord("Z") + 1)
    is_digit_PC = (characters_PC > ord("0")) & (characters_PC <= ord("9") + 1)
    is_letter_PC = ((characters_PC > ord("a")) & (characters_PC <= ord("z") + 1)) | (
        (characters_PC > 128) & (characters_PC < WORD_BEGINS)
    )
    kinds_PC = torch.where(is_letter_PC, 300, characters_PC)
    kinds_PC = torch.where(is_digit_PC, 301, torch.where(is_upper_PC, 302, kinds_PC))
    is_new_PC = F.pad(kinds_PC[:, 1:] != kinds_PC[:, :-1], (1, 0), value=True)
    return torch.cat([kinds_PC * is_new_PC], -1)


def affixes(characters_PC: Tensor) -> list[Tensor]:
    """The ngram_hashes of the first and of the last bytes of each word, for each of AFFIX_LENGTHS; 0 if it has
    no more bytes."""
    bytes_P = (characters_PC > 0).sum(1) - 2
    found = []
    for size in AFFIX_LENGTHS:
        is_longer_P = bytes_P > size
        place_P1 = (
            (bytes_P - size).clamp(min=0)[:, None]
            + 1
            + torch.arange(size, device=characters_PC.device)
        )
        last_PC = characters_PC.gather(1, place_P1.clamp(max=characters_PC.shape[1] - 1))
        found += [
            hash_of(part_PC) * is_longer_P for part_PC in (characters_PC[:, 1 : 1 + size], last_PC)
        ]
    return found


class Sparse(NamedTuple):
    """A sparse matrix: its numbers row by row, where each row starts, and the column of each
    number."""

    columns_P: Tensor
    values_P: Tensor
    starts_B: Tensor

    @classmethod
    def of(cls, rows_P: Tensor, columns_P: Tensor, values_P: Tensor, rows: int) -> Sparse:
        order_P = rows_P.argsort(stable=True)
        starts_B = rows_P.bincount(minlength=rows).cumsum(0)
        return cls(columns_P[order_P], values_P[order_P], F.pad(starts_B[:-1], (1, 0)))

    def __matmul__(self, dense: Tensor) -> Tensor:
        return F.embedding_bag(
            self.columns_P, dense, self.starts_B, mode="sum", per_sample_weights=self.values_P
        )


class Vectors:
    """Sparse vectors as a matrix of the columns that occur, and its transpose."""

    def __init__(self, features: Sequence[tuple[Tensor, Tensor]]) -> None:
        start = 0
        rows = []
        columns = []
        values = []
        for places_BK, values_BK in features:
            row_P, column_P = (values_BK != 0).nonzero(as_tuple=True)
            rows.append(row_P + start)
            columns.append(places_BK[row_P, column_P])
            values.append(values_BK[row_P, column_P])
            start += len(places_BK)
        self.columns, columns_P = torch.unique(torch.cat(columns), return_inverse=True)
        rows_P = torch.cat(rows)
        values_P = torch.cat(values)
        self.rows_first = Sparse.of(rows_P, columns_P, values_P, start)
        self.columns_first = Sparse.of(columns_P, rows_P, values_P, len(self.columns))
