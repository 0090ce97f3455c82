"""Model -> text: greedy and beam search, sampling, and the score of a given target."""

from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import Hypothesis
from regard.search.scoring import score

__all__ = ["Hypothesis", "SearchConfig", "score", "search"]
