"""Model -> text: greedy and beam search, sampling, and the score of a given target."""

from regard.search.banned import Ban
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import Hypothesis
from regard.search.limits import Wording
from regard.search.scoring import as_hypotheses, score, score_texts
from regard.search.watch import Watch

__all__ = ["Ban", "Hypothesis", "SearchConfig", "Watch", "Wording", "as_hypotheses", "score", "score_texts", "search"]
