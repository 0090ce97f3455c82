"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 and of KorQuAD count them.

An answer is compared with each of those that people gave, and the best comparison counts. F1 is over the words of both,
in KorQuAD over their characters. Where a question has no answer, only none is right.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

from regard.text.normalise import fold_white_space

Script = Literal["squad", "korquad"]
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_BRACKETS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalised(text: str, script: Script) -> str:
    """Lower case, without punctuation and more than one space; English without articles."""
    if script == "korquad":
        return fold_white_space(text.translate(_BRACKETS).lower().translate(_PUNCTUATION))
    return fold_white_space(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)))


def exact_match(answer: str, expected: Sequence[str], script: Script = "squad") -> float:
    """1 if the answer is one of those expected."""
    return _best(lambda ours, theirs: float(ours == theirs), answer, expected, script)


def f1(answer: str, expected: Sequence[str], script: Script = "squad") -> float:
    """2 P R / (P + R) of the words, or characters, each counted as often as both have it."""

    def overlap(ours: str, theirs: str) -> float:
        parts = [Counter(side.replace(" ", "") if script == "korquad" else side.split()) for side in (ours, theirs)]
        if not all(parts):  # where one side is no answer, only equals agree
            return float(ours == theirs)
        return 2 * (parts[0] & parts[1]).total() / (parts[0].total() + parts[1].total())

    return _best(overlap, answer, expected, script)


def _best(compare: Callable[[str, str], float], answer: str, expected: Sequence[str], script: Script) -> float:
    """As in the script of SQuAD 2.0, an expected answer of which nothing is left does not count."""
    there = [one for one in (normalised(text, script) for text in expected) if one] or [""]
    ours = normalised(answer, script)
    return max(compare(ours, theirs) for theirs in there)


def best_threshold(
    no_answer: Sequence[float], scores: Sequence[float], unanswered: Sequence[bool]
) -> tuple[float, float]:
    """The threshold above which not to answer that gives the highest mean score, and that mean.

    `scores` are of the answers, `no_answer` says how much likelier none is; as find_best_thresh of SQuAD 2.0 does it,
    but half-way to the next question.
    """
    gains = defaultdict[float, float](float)
    for value, score, none in zip(no_answer, scores, unanswered, strict=True):
        gains[value] += score - none
    values = sorted(gains)
    total = best = float(sum(unanswered))
    threshold = values[0] - 1.0
    for value, above in zip(values, [*values[1:], values[-1] + 2.0], strict=True):
        total += gains[value]
        if total > best:
            best, threshold = total, (value + above) / 2
    return threshold, best / len(scores)
