"""Model -> text: greedy and beam search, sampling, and the score of a given target."""

from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import Hypothesis, Observer, as_hypotheses, score, score_texts
from regard.search.rules import BannedTexts, Constraints

__all__ = [
    "BannedTexts", "Constraints", "Hypothesis", "Observer", "SearchConfig", "as_hypotheses", "score", "score_texts",
    "search",
]  # fmt: skip
