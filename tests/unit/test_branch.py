"""Outputs token by token: the probabilities are those of `score`, and the run completes what begins
with other tokens."""

import math
from pathlib import Path

import pytest

import regard
from regard.errors import RegardError
from regard.runs import Run
from regard.views.branch import Branch, branch

TEXT = "a b c"


def spelt(found: Branch) -> list[str]:
    return [step.chosen.token for step in found.steps]


def test_the_probabilities_are_those_of_score(tiny_run: Path) -> None:
    run = Run.open(tiny_run)
    found = branch(run, TEXT)
    scored = regard.score(run, TEXT, spelt(found))
    logs = [math.log(step.chosen.probability) for step in found.steps]
    assert logs == pytest.approx(scored["tokens"] and scored["token_scores"], abs=1e-4)
    assert found.score == pytest.approx(scored["score"], abs=1e-4)
    assert found.next == ()
    assert found.output == regard.predict(run, [TEXT])[0].output


def test_another_token_is_taken_and_the_search_goes_on(tiny_run: Path) -> None:
    run = Run.open(tiny_run)
    first = branch(run, TEXT)
    taken = first.steps[0].chosen.token
    other = next(one.token for one in first.steps[0].candidates if one.token not in (taken, "</s>"))
    forced = branch(run, TEXT, [other])
    assert spelt(forced)[0] == other
    assert spelt(forced)[-1] == "</s>"
    begun = branch(run, TEXT, [other], goes_on=False)
    assert spelt(begun) == [other]
    for one, same in zip(begun.next, forced.steps[1].candidates, strict=True):
        assert one.token == same.token
        assert one.probability == pytest.approx(same.probability, abs=1e-6)
    assert begun.attention is not None
    assert len(begun.attention.rows) == 2, "the token, and the one that comes next"
    for step in forced.steps:
        shares = [one.probability for one in step.candidates]
        assert shares == sorted(shares, reverse=True)
        assert step.chosen.probability <= shares[0]


def test_tokens_that_cannot_begin_an_output_are_refused(tiny_run: Path) -> None:
    run = Run.open(tiny_run)
    with pytest.raises(RegardError, match="is not a token of this vocabulary"):
        branch(run, TEXT, ["no such token"])
    with pytest.raises(RegardError, match="one input is continued, but there are 0"):
        branch(run, [])
    with pytest.raises(RegardError, match="nothing follows the end of an output"):
        branch(run, TEXT, ["</s>", "a"])
