"""Pieces of words, merged into words."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK
from regard.views.heatmap import Numbers


def word_starts(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """The place of each word's first piece. Special tokens, `<unk>` among them, are words of their own.

    A word begins with the mark `▁`, or, in vocabularies that write `##` before what continues a word, without `##`.
    """
    special = tokenizer.special
    decoder = json.loads(tokenizer.to_json())["decoder"] or {}
    continues = decoder.get("prefix") == "##"
    pieces, starts = tokenizer.pieces(ids), []
    for place, piece in enumerate(pieces):
        begins = not piece.startswith("##") if continues else piece.startswith(MARK)
        after_special = place == 0 or ids[place - 1] in special
        if begins or after_special or ids[place] in special:
            starts.append(place)
    return tuple(starts)


def words_of(pieces: Sequence[str], starts: Sequence[int]) -> tuple[str, ...]:
    """The pieces of each word written together, without the marks."""
    if not starts:
        return ()
    ends = [*starts[1:], len(pieces)]
    joined = ["".join(pieces[first:last]) for first, last in zip(starts, ends, strict=True)]
    return tuple(word.replace("##", "").replace("‿", "").strip(MARK) or MARK for word in joined)


def merge_pieces(weights: Numbers, query_starts: Sequence[int], key_starts: Sequence[int]) -> Numbers:
    """Weights [..., Q, K] between words: how much a word is looked at is the sum over its pieces, how a word looks is
    the mean over its pieces. So rows that sum to 1 still do (Clark et al. 2019, arXiv:1906.04341, section 4.1)."""
    looked_at = np.add.reduceat(weights, key_starts, axis=-1)
    pieces_Q1 = np.diff([*query_starts, weights.shape[-2]])[:, None]
    merged: Numbers = np.add.reduceat(looked_at, query_starts, axis=-2) / pieces_Q1
    return merged
