"""What the search promises, over every model that writes: of texts, of images, and as language
models; in float64.

The reference is an exhaustive enumeration by forward passes; never the search's own code.
"""

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import build, tokens_of
from regard.errors import DecodeError
from regard.models.transformer import TransformerConfig
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import Hypothesis
from regard.search.rules import Constraints
from regard.search.scoring import as_hypotheses
from regard.text.vocabularies import END
from search_cases import (
    EVERY_CASE,
    EVERY_KIND,
    NUMBERS,
    Ids,
    allowed,
    assert_same,
    plain_objective,
    writer,
)
from toy_models import ban_tokens

A, B, C, D = 4, 5, 6, 7
LIMIT = 3


@cache
def enumerated(case: str) -> dict[Ids, list[list[float]]]:
    """log P of each token of every output of at most LIMIT tokens, for each of the first two
    sources."""
    words = range(END + 1, writer(case).size)
    outputs = [(*ids, END) for n in range(LIMIT) for ids in itertools.product(words, repeat=n)]
    by_source = [writer(case).log_p(number, outputs) for number in (0, 1)]
    return dict(zip(outputs, map(list, zip(*by_source, strict=True)), strict=True))


SEARCHES: dict[str, tuple[dict[str, Any], list[Ids], list[Ids]]] = {
    "none": ({"normalisation": "none"}, [], []),
    "mean": ({"normalisation": "mean", "length_penalty": 0.6}, [], []),
    "wu": ({"normalisation": "wu", "length_penalty": 0.6}, [], []),
    "reward": ({"normalisation": "reward", "length_penalty": 1.5}, [], []),
    "coverage": ({"normalisation": "wu", "length_penalty": 1.0, "coverage_penalty": 0.7}, [], []),
    "repetition": ({"normalisation": "reward", "repetition_penalty": 1.7}, [], []),
    "prefix": ({"normalisation": "mean"}, [(B,), (C, A)], []),
    "banned": ({"normalisation": "none"}, [], [(A,), (B, C), (D, D)]),
    "no-repeat": ({"normalisation": "reward", "no_repeat_ngram": 1}, [], []),
    "min-length": ({"normalisation": "wu", "min_length": 2, "min_length_ratio": 0.5}, [], []),
    "together": (
        {"normalisation": "mean", "no_repeat_ngram": 1, "min_length": 3},
        [(B,), ()],
        [(C,), (B, A)],
    ),
}
"""Options, prefixes, banned sequences of tokens."""


def wording(prefixes: Sequence[Ids], banned: Sequence[Ids]) -> Constraints:
    return Constraints(prefixes, ban_tokens(banned) if banned else None)


def assert_best(
    found: Sequence[Hypothesis], outputs: Sequence[tuple[Ids, float, float]], count: int
) -> None:
    """So many of the outputs, which are in their order; of equal ones, which an n-gram model has
    many of, any may come first."""
    values = {ids: (total, value) for ids, total, value in outputs}
    assert len({one.tokens for one in found}) == len(found) == min(count, len(outputs))
    assert [one.objective for one in found] == pytest.approx(
        [value for _, _, value in outputs[: len(found)]], abs=1e-9
    )
    for one in found:
        assert (one.score, one.objective) == pytest.approx(values[one.tokens], abs=1e-9)


def check_exhaustive(
    case: str, options: dict[str, Any], prefixes: list[Ids], banned: list[Ids]
) -> None:
    found_by, log_p = writer(case), enumerated(case)
    config = SearchConfig(beam=len(log_p), nbest=len(log_p), max_length=LIMIT, **options)
    words = wording(prefixes, banned)
    found = search(found_by.model, found_by.case.sources([0, 1]), config, constraints=words)
    for row in (0, 1):
        length, prefix = found_by.length(row), prefixes[row] if prefixes else ()
        outputs = [ids for ids in log_p if allowed(config, ids, length, prefix, banned)]
        assert outputs
        covered = (
            found_by.coverage(row, outputs) if config.coverage_penalty else [0.0] * len(outputs)
        )
        expected = [
            (ids, sum(log_p[ids][row]), plain_objective(config, ids, log_p[ids][row], cover))
            for ids, cover in zip(outputs, covered, strict=True)
        ]
        expected.sort(key=lambda one: -one[2])
        assert_best(found[row], expected, len(expected))
        for nbest in (1, 3):  # now the search may stop early, and must not lose by it
            fewer = config.model_copy(update={"nbest": nbest})
            [best] = search(
                found_by.model, found_by.case.sources([row]), fewer, constraints=words.of([row])
            )
            assert_best(best, expected, nbest)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_beam_as_wide_as_the_space_is_exhaustive_under_every_objective_and_rule(
    name: str,
) -> None:
    """Of one model: a search sees no more of it than its log P and where it looks. All beams:
    unit/test_search.py."""
    check_exhaustive("transformer", *SEARCHES[name])


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_beam_as_wide_as_the_space_is_exhaustive_for_every_variant(case: str) -> None:
    options = {"normalisation": "wu", "repetition_penalty": 1.3, "no_repeat_ngram": 2}
    options |= {"coverage_penalty": 0.7} if writer(case).model.alignment else {}
    check_exhaustive(case, options, [(), (B,)], [(A, A)])


HARD = {
    "normalisation": "wu",
    "repetition_penalty": 1.4,
    "no_repeat_ngram": 2,
    "min_length_ratio": 0.5,
}
LONGER_WORDING = wording([(A,), (), (B, C), ()], [(D,), (A, B)])
ROOM = {"max_length_ratio": 1.0, "max_length_offset": 4, "beam": 4, "nbest": 3}


def searched(
    case: str,
    order: Sequence[int],
    extra: int = 0,
    words: Constraints = LONGER_WORDING,
    **options: Any,
) -> list[list[Hypothesis]]:
    found_by = writer(case)
    covering = {"coverage_penalty": 0.3} if found_by.model.alignment else {}
    config = SearchConfig(**ROOM | HARD | covering | options)  # type: ignore[arg-type]
    return search(
        found_by.model, found_by.case.sources(order, extra), config, constraints=words.of(order)
    )


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_score_is_log_p_of_the_tokens_whatever_the_batch_and_the_padding(case: str) -> None:
    """The search steps with a cache, the score comes from one forward pass over other batches."""
    found_by = writer(case)
    config = SearchConfig(**{"coverage_penalty": 0.3 if found_by.model.alignment else 0.0} | HARD)  # type: ignore[arg-type]
    for order in ([0, 1, 2, 3], [2]):
        for number, found in zip(order, searched(case, order), strict=True):
            outputs = [one.tokens for one in found]
            scores = found_by.scored([(number, ids) for ids in outputs], extra=2)
            for one, token_log_p, covered in zip(
                found, scores, found_by.coverage(number, outputs), strict=True
            ):
                assert len(token_log_p) == len(one.tokens)
                assert sum(token_log_p) == pytest.approx(one.score, abs=1e-9)
                expected = plain_objective(config, one.tokens, token_log_p, covered)
                assert one.objective == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40)
@given(
    case=st.sampled_from(EVERY_KIND),
    order=st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=5),
    extra=st.integers(0, 3),
    beam=st.integers(1, 5),
    sample=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "normalisation": st.sampled_from(["none", "mean", "wu", "reward"]),
            "length_penalty": st.sampled_from([0.0, 0.6, 1.0]),
            "repetition_penalty": st.sampled_from([1.0, 1.4]),
            "no_repeat_ngram": st.sampled_from([None, 1, 2]),
            "min_length": st.integers(0, 3),
            "min_length_ratio": st.sampled_from([0.0, 0.5]),
            "unknown": st.booleans(),
        }
    ),
    banned=st.lists(st.lists(st.integers(A, 10), min_size=1, max_size=2).map(tuple), max_size=3),
)
def test_no_batch_and_no_options_change_an_output_or_make_its_score_untrue(
    case: str,
    order: list[int],
    extra: int,
    beam: int,
    sample: bool,
    options: dict[str, Any],
    banned: list[Ids],
) -> None:
    options |= {"sample": sample, "beam": 1 if sample else beam, "nbest": beam}
    words = wording([], banned)
    try:
        alone = {number: searched(case, [number], words=words, **options)[0] for number in order}
    except DecodeError:  # rules that leave nothing
        with pytest.raises(DecodeError):
            searched(case, order, extra, words, **options)
        return
    for number, found in zip(order, searched(case, order, extra, words, **options), strict=True):
        assert_same(found, [(one.tokens, one.score, one.objective) for one in alone[number]])
        scores = writer(case).log_p(number, [one.tokens for one in found])
        assert [one.score for one in found] == pytest.approx(
            [sum(log_p) for log_p in scores], abs=1e-9
        )


@pytest.mark.parametrize("case", [case for case in EVERY_KIND if not writer(case).reads_prompts])
def test_given_targets_are_judged_as_the_search_judges_them(case: str) -> None:
    found_by = writer(case)
    config = SearchConfig(**{"coverage_penalty": 0.3 if found_by.model.alignment else 0.0} | HARD)  # type: ignore[arg-type]
    found = [
        (number, one) for number, several in enumerate(searched(case, NUMBERS)) for one in several
    ]
    given_targets = found_by.case.continued([(number, one.tokens) for number, one in found])
    judged = as_hypotheses(found_by.model, given_targets, config)
    assert_same(judged, [(one.tokens, one.score, one.objective) for _, one in found])


@pytest.mark.parametrize("case", [case for case in EVERY_KIND if not writer(case).model.alignment])
def test_coverage_needs_a_model_that_looks_at_the_source(case: str) -> None:
    found_by = writer(case)
    with pytest.raises(
        DecodeError, match=r"search.coverage_penalty: .* has no attention over the source"
    ):
        search(found_by.model, found_by.case.sources(NUMBERS), SearchConfig(coverage_penalty=0.2))
    if not found_by.reads_prompts:
        with pytest.raises(DecodeError, match="has no attention over the source"):
            as_hypotheses(
                found_by.model,
                found_by.case.continued([(0, (A, END))]),
                SearchConfig(coverage_penalty=0.2),
            )


def test_learned_positions_limit_the_output() -> None:
    """A hypothesis that does not end must end at the last position, not in an error that aborts a
    training."""
    model = build(TransformerConfig(preset="tiny", positions="learned", max_positions=5)).eval()
    found = search(model, tokens_of([[A, B, END]]), SearchConfig(beam=2, nbest=2, min_length=5))
    assert [len(hypothesis.tokens) for hypothesis in found[0]] == [5, 5]
