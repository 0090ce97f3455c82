"""Train a unigram vocabulary (Kudo 2018, arXiv:1804.10959), the same for the same text.

The trainer of the `tokenizers` library iterates over a hash map that is seeded anew in each
process, so two runs over one text end in different scores; SentencePiece's scores depend on its
number of threads. Here the library only segments; everything else is integers and sorted lists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain

import numpy as np
from tokenizers import (
    Tokenizer,
    models,
)

LONGEST_PIECE = 16
MAX_WORDS = 200_000
"""The vocabulary is estimated on at most this many words, the most frequent ones, which bounds time
and memory."""
CANDIDATES_PER_PIECE = 10  # candidates at the start, for each piece of the final vocabulary
PRUNING_SHARE = 0.75  # of the pieces stay after a round of pruning, as in SentencePiece
LogProbabilities = dict[str, float]


def train_unigram(
    words: Mapping[str, int], alphabet: frozenset[str], size: int
) -> LogProbabilities:
    """At most `size` pieces with their log probabilities, likeliest first; each letter of the
    alphabet is one of them.

    Kudo 2018, arXiv:1804.10959, section 3.2: start from the frequent substrings; alternate between
    estimating p(x) by EM and dropping the pieces whose loss lowers the likelihood of the text
    least. EM counts only the best segmentation x*:
        p(x)    = count(x) / sum_y count(y)
        loss(x) = count(x) (log p(x) - log p(the best way to write x with other pieces))
    """
    counted = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    known = {word: count for word, count in counted[:MAX_WORDS] if alphabet.issuperset(word)}
    scores = _candidates(known, alphabet, CANDIDATES_PER_PIECE * size)
    while True:
        counts = _count_pieces(known, scores)
        counts = _count_pieces(known, _estimate(counts, alphabet))
        scores = _estimate(counts, alphabet)
        if len(scores) <= size:
            return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        scores = _prune(counts, scores, alphabet, max(size, int(PRUNING_SHARE * len(scores))))


def _candidates(words: Mapping[str, int], alphabet: frozenset[str], most: int) -> LogProbabilities:
    """The alphabet and at most `most` substrings that occur more than once, those that cover the
    most text first."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                counts[word[start:end]] += count
    longer = [piece for piece, count in counts.items() if count > 1 and len(piece) > 1]
    longer.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    return _estimate(
        {piece: counts[piece] for piece in [*sorted(alphabet), *longer[:most]]}, alphabet
    )


def _count_pieces(words: Mapping[str, int], scores: LogProbabilities) -> dict[str, int]:
    """How often each piece occurs in the best segmentations of the words."""
    pieces = list(scores)
    model = Tokenizer(models.Unigram(list(scores.items()), unk_id=None))
    rows = [encoding.ids for encoding in model.encode_batch_fast(list(words))]
    weights = np.repeat(list(words.values()), [len(row) for row in rows])
    # Sums of integers below 2^53 are exact in any order.
    times = np.bincount(
        np.fromiter(chain.from_iterable(rows), np.int64), weights, len(pieces)
    ).astype(np.int64)
    return dict(zip(pieces, times.tolist(), strict=True))


def _estimate(counts: Mapping[str, int], alphabet: frozenset[str]) -> LogProbabilities:
    """Log probabilities of the pieces. Unused pieces are dropped; an unused letter counts 0.5."""
    used = {piece: max(count, 0.5) for piece, count in counts.items() if count or piece in alphabet}
    total = sum(used.values())
    return {piece: round(math.log(count / total), 6) for piece, count in used.items()}


def _prune(
    counts: Mapping[str, int], scores: LogProbabilities, alphabet: frozenset[str], size: int
) -> LogProbabilities:
    """The alphabet, and the other pieces whose removal would cost most, `size` in all."""
    longer = [piece for piece in scores if piece not in alphabet]
    loss = {
        piece: counts[piece] * (scores[piece] - _score_without(piece, scores)) for piece in longer
    }
    kept = sorted(loss, key=lambda piece: (-loss[piece], piece))[: max(0, size - len(alphabet))]
    return {piece: scores[piece] for piece in [*sorted(alphabet), *kept]}


def _score_without(piece: str, scores: LogProbabilities) -> float:
    """The log probability of the best way to write a piece with others (Viterbi)."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            if end - start < len(piece) and (score := scores.get(piece[start:end])) is not None:
                best[end] = max(best[end], best[start] + score)
    return best[-1]
