"""Model -> text: greedy and beam search, sampling, and the score of a given target."""

from regard.search.config import SearchConfig
from regard.search.decode import Observer, Recorder, search
from regard.search.hypotheses import Hypothesis, as_hypotheses, score
from regard.search.rules import BannedTexts, Constraints, Special

__all__ = [
    "BannedTexts", "Constraints", "Hypothesis", "Observer", "Recorder", "SearchConfig", "Special", "as_hypotheses",
    "score", "search",
]  # fmt: skip
