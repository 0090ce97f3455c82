"""The unigram tokenizer's vocabulary, trained so that the same text always gives the same pieces.

The library's own trainer walks its words in the order of a hash map that is seeded anew in each process, so two runs
over one text end in different scores. Here segmentation is the library's, the rest is whole numbers and sorted lists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain

import numpy as np
import tokenizers

LONGEST_PIECE = 16
MOST_WORDS = 200_000
"""The vocabulary is estimated on this many words, the most frequent ones, to bound time and memory."""
SEEDS = 10
"""Candidates at the start, for each piece of the vocabulary."""
KEPT = 0.75
"""What a round of pruning leaves, as SentencePiece does."""

Scores = dict[str, float]


def train_unigram(words: Mapping[str, int], alphabet: frozenset[str], size: int) -> Scores:
    """At most `size` pieces with their log probabilities, likeliest first; each letter of the alphabet is one of them.

    Kudo 2018, arXiv:1804.10959, section 3.2: start from the frequent substrings; in turn estimate p(x) by EM and drop
    the pieces whose loss costs the likelihood of the text least. EM counts the best segmentation x* only:
        p(x)    = count(x) / sum_y count(y)
        loss(x) = count(x) (log p(x) - log p(the best way to write x with other pieces))
    """
    counted = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    known = {word: count for word, count in counted[:MOST_WORDS] if alphabet.issuperset(word)}
    scores = _seeds(known, alphabet, SEEDS * size)
    while True:
        counts = _count(known, scores)
        counts = _count(known, _estimate(counts, alphabet))
        scores = _estimate(counts, alphabet)
        if len(scores) <= size:
            return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        scores = _prune(counts, scores, alphabet, max(size, int(KEPT * len(scores))))


def _seeds(words: Mapping[str, int], alphabet: frozenset[str], most: int) -> Scores:
    """The substrings that stand more than once, the ones that cover most text first, and the alphabet."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                counts[word[start:end]] += count
    longer = [piece for piece, count in counts.items() if count > 1 and len(piece) > 1]
    longer.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    return _estimate({piece: counts[piece] for piece in [*sorted(alphabet), *longer[:most]]}, alphabet)


def _count(words: Mapping[str, int], scores: Scores) -> dict[str, int]:
    """How often each piece stands in the best segmentations of the words."""
    pieces = list(scores)
    model = tokenizers.Tokenizer(tokenizers.models.Unigram(list(scores.items()), unk_id=None))
    rows = [encoding.ids for encoding in model.encode_batch_fast(list(words))]
    weights = np.repeat(list(words.values()), [len(row) for row in rows])
    # Sums of whole numbers below 2^53 are exact in any order.
    times = np.bincount(np.fromiter(chain.from_iterable(rows), np.int64), weights, len(pieces)).astype(np.int64)
    return dict(zip(pieces, times.tolist(), strict=True))


def _estimate(counts: Mapping[str, int], alphabet: frozenset[str]) -> Scores:
    """Log probabilities; a piece that is never used goes, a letter stays as if half used."""
    used = {piece: max(count, 0.5) for piece, count in counts.items() if count or piece in alphabet}
    total = sum(used.values())
    return {piece: round(math.log(count / total), 6) for piece, count in used.items()}


def _prune(counts: Mapping[str, int], scores: Scores, alphabet: frozenset[str], size: int) -> Scores:
    """The alphabet, and of the other pieces those whose loss would cost most."""
    loss = {
        piece: counts[piece] * (score - _score_without(piece, scores))
        for piece, score in scores.items()
        if piece not in alphabet
    }
    kept = sorted(loss, key=lambda piece: (-loss[piece], piece))[: max(0, size - len(alphabet))]
    return {piece: scores[piece] for piece in [*sorted(alphabet), *kept]}


def _score_without(piece: str, scores: Scores) -> float:
    """The log probability of the best way to write a piece with others (Viterbi)."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            if end - start < len(piece) and (score := scores.get(piece[start:end])) is not None:
                best[end] = max(best[end], best[start] + score)
    return best[-1]
