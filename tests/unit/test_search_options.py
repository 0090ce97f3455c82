"""Normalisations, penalties and rules of the search, in float64; over real models see test_search_models.py.

The reference is plain loops, or worked out by hand; never the search's own code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import batch_of, close
from regard.config import validate
from regard.errors import ConfigError, DecodeError
from regard.search import BannedTexts, Constraints, SearchConfig, score, search
from regard.search.hypotheses import MIN_COVERAGE, Ranking, coverage
from regard.search.rules import Limits
from regard.text.vocabularies import BEGIN, END, PAD, UNK
from search_cases import Ids, assert_same, plain_objective
from toy_models import Toy, table_toy
from toy_models import tokens_of as toy_tokens

A, B, C, D = 4, 5, 6, 7


# Any beam, against plain loops


def plain_beam(
    model: Toy, source: list[int], config: SearchConfig, prefix: Ids, banned: Sequence[Ids]
) -> list[tuple[Ids, float, float]]:
    """DESIGN.md's semantics, one sentence, always on to the limit: candidates rank by the penalise_repetition log P."""
    (limit,) = Limits.of([len(source)], config).longest
    live: list[tuple[Ids, list[float], float]] = [((), [], 0.0)]
    finished: list[tuple[Ids, float, float]] = []
    for _ in range(limit):
        candidates = []
        for row, (ids, _, ranked_by) in enumerate(live):
            hidden_D = model(batch_of([source], [[BEGIN, *ids, PAD]])).hidden_BTD[0, -1]
            for token, p in enumerate(model.readout(hidden_D).log_softmax(-1).tolist()):
                penalty = config.repetition_penalty if token in ids else 1.0
                if may_follow(config, (*ids, token), source, limit, prefix, banned):
                    candidates.append((-ranked_by - penalty * p, row, token, p))
        taken = sorted(candidates)[: config.beam - len(finished)]
        continued = [((*live[row][0], token), [*live[row][1], p], -minus) for minus, row, token, p in taken]
        for ids, log_p, _ in continued:
            if ids[-1] == END:
                finished.append((ids, sum(log_p), plain_objective(config, ids, log_p)))
        live = [one for one in continued if one[0][-1] != END]
    return sorted(finished, key=lambda one: -one[2])[: config.nbest]


def may_follow(
    config: SearchConfig, ids: Ids, source: Sequence[int], limit: int, prefix: Ids, banned: Sequence[Ids]
) -> bool:
    if len(ids) <= len(prefix):
        return ids[-1] == prefix[len(ids) - 1]
    if ids[-1] in (PAD, UNK, BEGIN) or (len(ids) == limit and ids[-1] != END):
        return False
    if ids[-1] == END and len(ids) < max(config.min_length, math.ceil(config.min_length_ratio * len(source))):
        return False
    n = config.no_repeat_ngram
    if n and any(ids[s - n : s] == ids[-n:] for s in range(n, len(ids))):
        return False
    return not any(ids[-len(word) :] == word for word in banned)


WORDS = st.integers(END + 1, 8)
SEVERAL_WORDS = st.lists(WORDS, min_size=1, max_size=3).map(tuple)


@settings(max_examples=120)
@given(
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.3, 1.0, 3.0]),
    beam=st.integers(1, 5),
    options=st.fixed_dictionaries(
        {
            "normalisation": st.sampled_from(["none", "mean", "wu", "reward"]),
            "length_penalty": st.sampled_from([0.0, 0.4, 1.0, 2.5]),
            "repetition_penalty": st.sampled_from([1.0, 1.3, 3.0]),
            "no_repeat_ngram": st.sampled_from([None, 1, 2, 3]),
            "min_length": st.integers(0, 3),
            "min_length_ratio": st.sampled_from([0.0, 0.7, 1.0]),
            "max_length_offset": st.integers(1, 4),
        }
    ),
    sources=st.lists(st.lists(WORDS, max_size=4).map(lambda ids: [*ids, END]), min_size=1, max_size=4),
    banned=st.lists(SEVERAL_WORDS, max_size=3),
    prefixes=st.lists(st.lists(WORDS, max_size=1).map(tuple), min_size=4, max_size=4),
    data=st.data(),
)
def test_any_beam_with_any_options_against_plain_loops(
    seed: int,
    sharpness: float,
    beam: int,
    options: dict[str, Any],
    sources: list[list[int]],
    banned: list[Ids],
    prefixes: list[Ids],
    data: st.DataObject,
) -> None:
    """The reference sees one sentence and runs to the limit: neither neighbours nor stopping early change anything."""
    nbest = data.draw(st.integers(1, beam))
    config = SearchConfig(beam=beam, nbest=nbest, max_length_ratio=1.0, **options)
    model, wording = (
        Toy(9, seed, sharpness=sharpness),
        Constraints(prefixes[: len(sources)], BannedTexts.of_tokens(banned) if banned else None),
    )
    pairs = zip(sources, wording.prefixes, strict=True)
    expected = [plain_beam(model, source, config, tuple(prefix), banned) for source, prefix in pairs]
    if not all(expected):
        with pytest.raises(DecodeError, match="every output that the rules allow has probability 0"):
            search(model, toy_tokens(sources), config, constraints=wording)
        return
    for found, one in zip(search(model, toy_tokens(sources), config, constraints=wording), expected, strict=True):
        assert_same(found, one)


# Samples


def test_samples_obey_the_rules_and_keep_their_true_score() -> None:
    model = Toy(9, seed=4)
    config = SearchConfig(
        sample=True, nbest=40, repetition_penalty=1.5, no_repeat_ngram=2, min_length=3, max_length=7, banned=["x"]
    )
    wording = Constraints([(B,), ()], BannedTexts.of_tokens([(A,), (C, D)]))
    sources = [[A, B, END], [C, END]]
    for source, prefix, found in zip(
        sources, wording.prefixes, search(model, toy_tokens(sources), config, constraints=wording), strict=True
    ):
        assert len({one.tokens for one in found}) > 5
        for one in found:
            assert all(
                may_follow(config, one.tokens[:t], source, 7, tuple(prefix), [(A,), (C, D)])
                for t in range(1, len(one.tokens) + 1)
            )
            [log_p] = score(model, batch_of([source], [[BEGIN, *one.tokens]]))
            assert one.score == pytest.approx(sum(log_p), abs=1e-9)


# By hand


def test_objectives_by_hand() -> None:
    log_p = torch.tensor([-6.0, -8.0], dtype=torch.float64)
    length = torch.tensor([4, 7])
    assert Ranking("none", 0.7)(log_p, length).tolist() == [-6.0, -8.0]
    assert Ranking("mean", 1.0)(log_p, length).tolist() == [-1.5, -8 / 7]
    close(Ranking("wu", 1.0)(log_p, length), torch.tensor([-6 / 1.5, -8 / 2.0], dtype=torch.float64))
    close(Ranking("wu", 0.5)(log_p, length), torch.tensor([-6 / 1.5**0.5, -8 / 2**0.5], dtype=torch.float64))
    assert Ranking("reward", 0.5)(log_p, length).tolist() == [-4.0, -4.5]
    covered = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    assert Ranking("reward", 0.5, beta=0.25)(log_p, length, covered).tolist() == [-4.25, -5.0]


def test_coverage_by_hand() -> None:
    """Attention of 0.5 counts log 0.5, of 1 and more nothing, none at all as MIN_COVERAGE; padding does not count."""
    attended_BWS = torch.tensor([[[0.5, 1.7, 0.0], [1.0, 1.0, 0.25]], [[0.5, 0.125, 0.0], [1.0, 1.0, 0.0]]]).double()
    found = coverage(attended_BWS, torch.tensor([3, 2]))
    expected = [[math.log(0.5) + math.log(MIN_COVERAGE), math.log(0.25)], [math.log(0.5 * 0.125), 0.0]]
    close(found, torch.tensor(expected, dtype=torch.float64))


@given(
    normalisation=st.sampled_from(["none", "mean", "wu", "reward"]),
    alpha=st.floats(0, 10),
    beta=st.floats(0, 5),
    log_p=st.floats(-300, 0),
    falls=st.floats(-50, 0),
    covered=st.floats(-50, 0),
    length=st.integers(1, 60),
    more=st.integers(0, 60),
)
def test_no_continuation_gets_beyond_its_reach(
    normalisation: Any, alpha: float, beta: float, log_p: float, falls: float, covered: float, length: int, more: int
) -> None:
    """Whatever a live hypothesis still writes: log P falls, its length stays in the limit, coverage is at most 0."""
    objective = Ranking(normalisation, alpha, beta)
    now, later = torch.tensor([log_p, log_p + falls], dtype=torch.float64)
    cover = torch.tensor(covered, dtype=torch.float64)
    reached = objective(later, length, cover)
    bound = objective(now, torch.tensor(float(length + more), dtype=torch.float64))
    assert reached <= bound + 1e-9 * abs(bound)


def test_a_reward_lets_a_longer_output_win() -> None:
    """</s> has 0.5; A B </s> has 0.5 * 0.6 * 0.9 = 0.27, and 2 x 0.4 of reward are more than log(0.5 / 0.27) = 0.62."""
    model = table_toy(6, {A: 0.5, END: 0.5}, (A, {B: 0.6, END: 0.4}), (B, {END: 0.9, A: 0.1}))
    by_reward = {"normalisation": "reward", "beam": 3, "max_length": 4}
    for reward, expected in ((0.0, (END,)), (0.3, (END,)), (0.4, (A, B, END))):
        config = SearchConfig(**by_reward, length_penalty=reward)  # type: ignore[arg-type]
        [[found]] = search(model, toy_tokens([[A, END]]), config)
        assert found.tokens == expected
        p = {(END,): 0.5, (A, B, END): 0.27}[expected]
        assert found.objective == pytest.approx(math.log(p) + reward * len(expected))


def test_a_repetition_is_ranked_lower_and_scored_truly() -> None:
    """Greedy search writes A A </s>. With theta 30 the second A ranks as 0.9^30 = 0.04: B </s>, 0.2, is first."""
    model = table_toy(6, {A: 0.6, B: 0.4}, (A, {A: 0.9, END: 0.1}), (B, {END: 0.5, B: 0.5}))
    config = SearchConfig(beam=1, normalisation="none", max_length=3)
    [[plain]] = search(model, toy_tokens([[A, END]]), config)
    assert plain.tokens == (A, A, END)
    assert plain.score == plain.objective == pytest.approx(math.log(0.6 * 0.9 * 0.1))
    wide = config.model_copy(update={"beam": 4, "nbest": 4, "repetition_penalty": 30.0})
    [found] = search(model, toy_tokens([[A, END]]), wide)
    repeated = next(one for one in found if one.tokens == (A, A, END))
    assert repeated.score == pytest.approx(math.log(0.6 * 0.9 * 0.1))
    assert repeated.objective == pytest.approx(math.log(0.6 * 0.9**30 * 0.1))
    assert found[0].tokens == (B, END)


def test_a_prefix_costs_what_the_model_thinks_of_it() -> None:
    model = table_toy(6, {A: 0.9, B: 0.1}, (A, {END: 1.0}), (B, {A: 0.25, END: 0.75}))
    config = SearchConfig(beam=3, nbest=2, normalisation="none")
    [found] = search(model, toy_tokens([[A, END]]), config, constraints=Constraints(prefixes=[(B,)]))
    assert_same(found, [((B, END), math.log(0.075), math.log(0.075)), ((B, A, END), math.log(0.025), math.log(0.025))])
    assert model.rows == [3, 1, 1], "while there is only the prefix, there is only one hypothesis"


def test_a_prefix_is_exempt_from_the_rules() -> None:
    config = SearchConfig(beam=2, no_repeat_ngram=1, max_length=6)
    [[found]] = search(Toy(9, seed=1), toy_tokens([[A, END]]), config, constraints=Constraints(prefixes=[(B, B, B)]))
    assert found.tokens[:3] == (B, B, B)
    assert B not in found.tokens[3:]


def test_limits_by_hand() -> None:
    config = SearchConfig(min_length_ratio=0.5, min_length=2)
    assert Limits.of([1, 4, 5, 12], config).shortest == [2, 2, 3, 6]
    assert Limits.of([1, 9], SearchConfig()).shortest == [1, 1]


# What users can get wrong


@pytest.mark.parametrize(
    ("tree", "where", "words"),
    [
        ({"normalisation": "sum"}, "normalisation", "mean"),
        ({"coverage_penalty": -0.1}, "coverage_penalty", "greater than or equal to 0"),
        ({"repetition_penalty": 0.9}, "repetition_penalty", "greater than or equal to 1"),
        ({"no_repeat_ngram": 0}, "no_repeat_ngram", "greater than or equal to 1"),
        ({"min_length_ratio": 60.0}, "min_length_ratio", "more than max_length_ratio and max_length_offset allow"),
        ({"banned": ["Haus", " "]}, "banned", "every output contains it"),
        ({"prefix": " "}, "prefix", "the prefix is empty"),
    ],
)
def test_options_that_cannot_be_meant(tree: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(SearchConfig, tree)
    (problem,) = caught.value.problems
    assert problem.where == where
    assert words in str(problem)


def test_limits_that_leave_nothing_for_a_source_are_named() -> None:
    model, sources = Toy(9), toy_tokens([[A, END], [A, B, C, D, A, B, C, END]])
    with pytest.raises(DecodeError, match=r"a source of 8 tokens needs an output of at least 8, but at most 5"):
        search(model, sources, SearchConfig(min_length_ratio=1.0, max_length=5))
    with pytest.raises(DecodeError, match=r"search.prefix: a prefix of 3 tokens and the end do not fit into the 3"):
        search(model, sources, SearchConfig(max_length=3), constraints=Constraints(prefixes=[(), (A, B, C)]))
    search(model, sources, SearchConfig(max_length=4), constraints=Constraints(prefixes=[(), (A, B, C)]))


def test_rules_that_leave_no_output_are_named() -> None:
    config = SearchConfig(beam=2, no_repeat_ngram=1, min_length=9, max_length=12)
    with pytest.raises(DecodeError, match=r"every output that the rules allow .* relax the rules"):
        search(Toy(8), toy_tokens([[A, END]]), config)
