"""Search against plain loops and hand-worked numbers, in float64; over real models see
contract/test_search_models.py.

The reference is never the search's own code.
"""

import gc
import math
import weakref
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import batch_of, close, tokens_of
from regard.data.batches import Padded
from regard.errors import DecodeError
from regard.search.config import SearchConfig
from regard.search.decode import draw_index, search, truncated
from regard.search.hypotheses import MIN_COVERAGE, NEVER, Hypothesis, best, coverage, objective_of
from regard.search.rules import SPECIAL_TOKENS, Constraints, Limits, Rules, SpecialTokens
from regard.search.scoring import log_probabilities, token_scores
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.text.vocabularies import BEGIN, END, PAD
from search_cases import Ids, allowed, assert_same, may_follow, plain_objective
from task_cases import make_task
from toy_models import TableToy, Toy, ban_tokens, table_toy

A, B, C, D = 4, 5, 6, 7
SOURCES = [[A, B, END], [C, END], [B, B, A, C, END], [A, END], [C, B, A, END]]
ONE = tokens_of([[A, END]])


# Any beam, against plain loops


def plain_beam(
    model: Toy,
    source: list[int],
    config: SearchConfig,
    prefix: Ids = (),
    banned: Any = (),
    special: SpecialTokens = SPECIAL_TOKENS,
) -> list[tuple[Ids, float, float]]:
    """DESIGN.md's semantics, one sentence, always on to the limit: candidates rank by log P,
    repetitions penalised."""
    (limit,) = Limits.of([len(source)], config).longest
    live: list[tuple[Ids, list[float], float]] = [((), [], 0.0)]
    finished: list[tuple[Ids, float, float]] = []
    for _ in range(limit):
        candidates = []
        for row, (ids, _, ranked_by) in enumerate(live):
            hidden_D = model(batch_of([source], [[special.begin, *ids, PAD]])).hidden_BTD[0, -1]
            for token, p in enumerate(model.readout(hidden_D).log_softmax(-1).tolist()):
                penalty = config.repetition_penalty if token in ids else 1.0
                if may_follow(config, (*ids, token), len(source), prefix, banned, special):
                    candidates.append((-ranked_by - penalty * p, row, token, p))
        taken = sorted(candidates)[: config.beam - len(finished)]
        continued = [
            ((*live[row][0], token), [*live[row][1], p], -minus) for minus, row, token, p in taken
        ]
        for ids, log_p, _ in continued:
            if ids[-1] == special.end:
                finished.append((ids, sum(log_p), plain_objective(config, ids, log_p)))
        live = [one for one in continued if one[0][-1] != special.end]
    return sorted(finished, key=lambda one: -one[2])[: config.nbest]


WORDS = st.integers(END + 1, 8)
SEVERAL_WORDS = st.lists(WORDS, min_size=1, max_size=3).map(tuple)


OPTIONS = {
    "normalisation": st.sampled_from(["none", "mean", "wu", "reward"]),
    "length_penalty": st.sampled_from([0.0, 0.4, 1.0, 2.5]),
    "repetition_penalty": st.sampled_from([1.0, 1.3, 3.0]),
    "no_repeat_ngram": st.sampled_from([None, 1, 2, 3]),
    "min_length": st.integers(0, 3),
    "min_length_ratio": st.sampled_from([0.0, 0.7, 1.0]),
    "max_length_offset": st.integers(1, 4),
    "unknown": st.booleans(),
    "beam": st.integers(1, 5),
}


@settings(max_examples=120)
@given(
    model=st.builds(
        Toy, st.just(9), st.integers(0, 10_000), sharpness=st.sampled_from([0.3, 1.0, 3.0])
    ),
    options=st.fixed_dictionaries(OPTIONS),
    sources=st.lists(
        st.lists(WORDS, max_size=4).map(lambda ids: [*ids, END]), min_size=1, max_size=4
    ),
    banned=st.lists(SEVERAL_WORDS, max_size=3),
    prefixes=st.lists(st.lists(WORDS, max_size=1).map(tuple), min_size=4, max_size=4),
    data=st.data(),
)
def test_any_beam_with_any_options_against_plain_loops(
    model: Toy,
    options: Any,
    sources: list[list[int]],
    banned: list[Ids],
    prefixes: list[Ids],
    data: st.DataObject,
) -> None:
    """The reference sees one sentence and runs to the limit: neither neighbours nor stopping early
    change anything."""
    nbest = data.draw(st.integers(1, options["beam"]))
    config = SearchConfig(nbest=nbest, max_length_ratio=1.0, **options)
    wording = Constraints(prefixes[: len(sources)], ban_tokens(banned) if banned else None)
    pairs = zip(sources, wording.prefixes, strict=True)
    expected = [
        plain_beam(model, source, config, tuple(prefix), banned) for source, prefix in pairs
    ]
    if not all(expected):
        with pytest.raises(
            DecodeError, match="every output that the rules allow has probability 0"
        ):
            search(model, tokens_of(sources), config, constraints=wording)
        return
    for found, one in zip(
        search(model, tokens_of(sources), config, constraints=wording), expected, strict=True
    ):
        assert_same(found, one)


def test_other_special_tokens() -> None:
    """Some imported models begin with their `</s>`; it must stay possible to end."""
    model, config, special = (
        Toy(8, seed=3),
        SearchConfig(beam=3, nbest=3, max_length=5),
        SpecialTokens(2, 2, 0, None),
    )
    found = search(model, tokens_of(SOURCES), config, special=special)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert_same(hypotheses, plain_beam(model, source, config, special=special))


# By hand


def test_an_end_takes_its_slot_for_good() -> None:
    """Beam 2: A 0.5 and </s> 0.3 are taken, B 0.2 is not; the one slot that is left then goes on
    alone."""
    model = table_toy(
        7, {A: 0.5, END: 0.3, B: 0.2}, (A, {B: 0.6, END: 0.4}), (B, {END: 0.9, A: 0.1})
    )
    (found,) = search(model, ONE, SearchConfig(beam=2, nbest=2, length_penalty=0.0))
    assert_same(
        found,
        [((END,), math.log(0.3), math.log(0.3)), ((A, B, END), math.log(0.27), math.log(0.27))],
    )
    assert model.rows == [2, 1, 1]


def test_equals_go_by_lowest_row_then_lowest_token() -> None:
    model = TableToy(torch.zeros(8, 8))
    (found,) = search(model, ONE, SearchConfig(beam=3, nbest=3, length_penalty=0.0, max_length=5))
    uniform = -math.log(8)
    expected = [((END,), uniform), ((A, END), 2 * uniform), ((A, A, END), 3 * uniform)]
    assert_same(found, [(tokens, total, total) for tokens, total in expected])


def check_best(scores: torch.Tensor, count: int) -> None:
    """The first of equals comes first; of what may not be chosen, only the value matters."""
    values, places = best(scores.clone(), count)
    for row, row_values, row_places in zip(
        scores.tolist(), values.tolist(), places.tolist(), strict=True
    ):
        expected = sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]
        assert row_values == [row[place] for place in expected]
        possible = sum(value > NEVER for value in row_values)
        assert row_places[:possible] == expected[:possible]


ROW = st.lists(st.sampled_from([0.0, 1.0, 2.0, NEVER]), min_size=16, max_size=16)


@given(scores=st.lists(ROW, min_size=1, max_size=4), count=st.integers(1, 16))
def test_best_among_many_equals(scores: list[list[float]], count: int) -> None:
    check_best(torch.tensor(scores), count)


@pytest.mark.parametrize("count", [1, 4, 20, 64, 80])
def test_best_of_a_large_vocabulary(count: int) -> None:
    """Blocks of 64 and a rest; few values, so that equals are in several blocks."""
    torch.manual_seed(3)
    scores = torch.randint(0, 400, (3, 64 * 200 + 7)).float()
    scores[0, -3:] = 500.0
    check_best(scores, count)


@pytest.mark.parametrize(
    ("normalisation", "alpha", "beta", "expected"),
    [
        ("none", 0.7, 0.0, [-6.0, -8.0]),
        ("mean", 1.0, 0.0, [-1.5, -8 / 7]),
        ("wu", 1.0, 0.0, [-6 / 1.5, -8 / 2.0]),
        ("wu", 0.5, 0.0, [-6 / 1.5**0.5, -8 / 2**0.5]),
        ("reward", 0.5, 0.0, [-4.0, -4.5]),
        ("reward", 0.5, 0.25, [-4.25, -5.0]),
    ],
)
def test_objectives_by_hand(
    normalisation: Any, alpha: float, beta: float, expected: list[float]
) -> None:
    config = SearchConfig(normalisation=normalisation, length_penalty=alpha, coverage_penalty=beta)
    log_p, covered = torch.tensor([[-6.0, -8.0], [-1.0, -2.0]], dtype=torch.float64)
    close(objective_of(config, log_p, torch.tensor([4, 7]), covered), expected)


def test_coverage_by_hand() -> None:
    """Attention of 0.5 counts log 0.5, of 1 and more nothing, none at all as MIN_COVERAGE; padding
    does not count."""
    attended_BWS = torch.tensor(
        [[[0.5, 1.7, 0.0], [1.0, 1.0, 0.25]], [[0.5, 0.125, 0.0], [1.0, 1.0, 0.0]]]
    ).double()
    expected = [
        [math.log(0.5) + math.log(MIN_COVERAGE), math.log(0.25)],
        [math.log(0.5 * 0.125), 0.0],
    ]
    close(coverage(attended_BWS, torch.tensor([3, 2])), expected)


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
    normalisation: Any,
    alpha: float,
    beta: float,
    log_p: float,
    falls: float,
    covered: float,
    length: int,
    more: int,
) -> None:
    """Whatever a live hypothesis still writes: log P falls, its length stays in the limit, coverage
    is at most 0."""
    config = SearchConfig(normalisation=normalisation, length_penalty=alpha, coverage_penalty=beta)
    now, later, cover = torch.tensor([log_p, log_p + falls, covered], dtype=torch.float64)
    reached = objective_of(config, later, length, cover)
    bound = objective_of(config, now, torch.tensor(float(length + more), dtype=torch.float64))
    assert reached <= bound + 1e-9 * abs(bound)


def test_a_prefix_costs_what_the_model_thinks_of_it() -> None:
    model = table_toy(6, {A: 0.9, B: 0.1}, (A, {END: 1.0}), (B, {A: 0.25, END: 0.75}))
    config = SearchConfig(beam=3, nbest=2, normalisation="none")
    [found] = search(model, ONE, config, constraints=Constraints(prefixes=[(B,)]))
    assert_same(
        found,
        [
            ((B, END), math.log(0.075), math.log(0.075)),
            ((B, A, END), math.log(0.025), math.log(0.025)),
        ],
    )
    assert model.rows == [3, 1, 1], "while there is only the prefix, there is only one hypothesis"


def test_a_prefix_is_exempt_from_the_rules() -> None:
    config, prefix = (
        SearchConfig(beam=2, no_repeat_ngram=1, max_length=6),
        Constraints(prefixes=[(B, B, B)]),
    )
    [[found]] = search(Toy(9, seed=1), ONE, config, constraints=prefix)
    assert found.tokens[:3] == (B, B, B)
    assert B not in found.tokens[3:]


@pytest.mark.parametrize(
    ("lengths", "options", "shortest", "longest"),
    [
        ([1, 10, 40], {}, [1, 1, 1], [52, 70, 130]),
        ([1, 10, 40], {"max_length": 60}, [1, 1, 1], [52, 60, 60]),
        ([1, 3], {"max_length_ratio": 1.5, "max_length_offset": 0}, [1, 1], [1, 4]),
        ([1, 3], {"max_length_ratio": 0.1, "max_length_offset": 0}, [1, 1], [1, 1]),
        (
            [1, 9],
            {"min_length": 5, "max_length_ratio": 1.0, "max_length_offset": 0},
            [5, 5],
            [5, 9],
        ),
        ([1, 4, 5, 12], {"min_length_ratio": 0.5, "min_length": 2}, [2, 2, 3, 6], [52, 58, 60, 74]),
    ],
)
def test_limits_by_hand(
    lengths: list[int], options: dict[str, Any], shortest: list[int], longest: list[int]
) -> None:
    assert Limits.of(lengths, SearchConfig(**options)) == Limits(shortest, longest)


def test_score_by_hand_and_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = table_toy(6, {A: 0.5, B: 0.25, END: 0.25}, (A, {END: 0.125, B: 0.875}))
    batch = batch_of([[A, END], [B, END]], [[BEGIN, A, B, END], [BEGIN, END]], extra=2)
    expected = [[math.log(0.5), math.log(0.875), math.log(0.25)], [math.log(0.25)]]
    for rows in (1024, 3, 1):
        monkeypatch.setattr("regard.search.scoring.TOKENS_PER_READOUT", rows)
        for found, row in zip(token_scores(model, batch), expected, strict=True):
            assert found == pytest.approx(row, abs=1e-12)


def test_half_precision_logits_are_normalised_in_float32() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert log_probabilities(logits).dtype == torch.float32
    torch.testing.assert_close(
        log_probabilities(logits).double(), logits.double().log_softmax(-1), rtol=0, atol=1e-6
    )
    assert log_probabilities(logits.double()).dtype == torch.float64


# Cost


def test_an_empty_batch_gives_nothing() -> None:
    assert search(Toy(9), Padded.of(ONE.ids_BL[:0], ONE.lengths_B[:0]), SearchConfig()) == []


def never_ending() -> TableToy:
    """Ends only where it must."""
    log_p_VV = torch.zeros(9, 9)
    log_p_VV[:, END] = -50.0
    return TableToy(log_p_VV)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("beam", "sources", "rows"),
    [
        (2, [[A, B, END], [A, A, B, B, A, END]], [4, 4, 4, 2, 2, 2]),
        (
            1,
            [[A] * n + [END] for n in range(8)],
            [8, 8, 6, 6, 4, 3, 2, 1],
        ),  # copied only when a quarter is done
    ],
    ids=["beam", "greedy"],
)
def test_finished_sentences_leave_the_batch(
    beam: int, sources: list[list[int]], rows: list[int]
) -> None:
    model = never_ending()
    search(
        model,
        tokens_of(sources),
        SearchConfig(beam=beam, max_length_ratio=1.0, max_length_offset=0),
    )
    assert model.rows == rows
    assert beam > 1 or model.selects == 5


def test_search_stops_when_nothing_can_win() -> None:
    """After `</s>` with P = 0.9 the rest holds 0.1: with alpha 0 it can never win."""
    for nbest, steps in ((1, 1), (3, 2)):
        model = table_toy(6, {END: 0.9, A: 0.06, B: 0.04})
        search(model, ONE, SearchConfig(beam=3, nbest=nbest, length_penalty=0.0))
        assert len(model.rows) == steps


def test_a_language_model_never_writes_its_start_token() -> None:
    """It begins with `</s>` and has never read `<s>`, to which it may still give probability."""
    tokenizer = Tokenizer.train(TokenizerConfig(kind="character"), ["ab"])
    task = make_task(
        "language_modeling",
        Tokenizers({"text": tokenizer}),
        model={"kind": "gpt", "preset": "tiny"},
    )
    special = task.answers.special
    model = table_toy(6, {BEGIN: 0.9, A: 0.06, END: 0.04})
    [[hypothesis]] = search(model, ONE, SearchConfig(beam=1, max_length=3), special=special)
    assert list(hypothesis.tokens) == [A, A, END]


# Sampling


def sampled(model: Toy, **options: object) -> list[Hypothesis]:
    config = SearchConfig.model_validate({"sample": True, "nbest": 4000, "max_length": 3} | options)
    (found,) = search(model, ONE, config)
    return found


def assert_frequencies(counts: Counter[int], expected: dict[int, float]) -> None:
    total = counts.total()
    assert set(counts) <= set(expected)
    for token, p in expected.items():
        assert abs(counts[token] / total - p) <= 4.5 * math.sqrt(p * (1 - p) / total)


SKEWED = ((A, {A: 0.1, B: 0.2, END: 0.7}), (B, {C: 0.9, END: 0.1}), (C, {END: 1.0}))
FIRST = {A: 0.4, B: 0.3, C: 0.2, END: 0.1}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, FIRST),
        ({"temperature": 0.5}, {token: p * p / 0.30 for token, p in FIRST.items()}),
        ({"top_k": 2}, {A: 4 / 7, B: 3 / 7}),
        ({"top_p": 0.65}, {A: 4 / 7, B: 3 / 7}),
        ({"top_p": 0.75}, {A: 4 / 9, B: 3 / 9, C: 2 / 9}),
        ({"top_p": 0.01}, {A: 1.0}),
        (
            {"top_k": 3, "top_p": 0.7},
            {A: 4 / 7, B: 3 / 7},
        ),  # after top-k the shares are 4/9, 3/9, 2/9
        ({"top_k": 2, "top_p": 0.5}, {A: 1.0}),
    ],
)
def test_frequencies_of_samples_and_their_scores(
    options: dict[str, object], kept: dict[int, float]
) -> None:
    """A temperature sharpens the draw and leaves the score."""
    found = sampled(table_toy(8, FIRST, *SKEWED), **options)
    assert_frequencies(Counter(h.tokens[0] for h in found), kept)
    scores = {h.tokens: h.score for h in found}
    assert scores[A, END] == pytest.approx(math.log(0.4 * 0.7), abs=1e-12)
    if not options:
        assert_frequencies(
            Counter(h.tokens[1] for h in found if h.tokens[0] == A), {A: 0.1, B: 0.2, END: 0.7}
        )
        assert_frequencies(
            Counter(h.tokens[1] for h in found if h.tokens[0] == B), {C: 0.9, END: 0.1}
        )
    if "temperature" in options:
        assert scores[B, C, END] == pytest.approx(math.log(0.3 * 0.9), abs=1e-12)


@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=8).map(
        lambda ws: sorted(ws, reverse=True)
    ),
    top_p=st.floats(0.01, 1.0),
)
def test_top_p_keeps_the_smallest_set(weights: list[int], top_p: float) -> None:
    p = [weight / sum(weights) for weight in weights]
    smallest = next(n for n in range(1, len(p) + 1) if sum(p[:n]) >= top_p - 1e-9)
    largest = next((n for n in range(1, len(p) + 1) if sum(p[:n]) >= top_p + 1e-9), len(p))
    kept = truncated(torch.tensor(p, dtype=torch.float64).log(), 1.0, None, top_p)
    count = int((kept > 0).sum())
    assert smallest <= count <= largest
    assert (kept[:count] > 0).all()


def test_draw_by_hand() -> None:
    p = torch.tensor([0.5, 0.25, 0.25, 0.0, 0.0]).expand(6, 5)
    noise = torch.tensor([0.0, 0.49, 0.5, 0.74, 0.75, 1 - 2**-24])
    assert draw_index(p, noise).tolist() == [0, 0, 1, 1, 2, 2]
    assert draw_index(p / 8, noise).tolist() == [0, 0, 1, 1, 2, 2]


def test_the_seed_decides_the_samples() -> None:
    configs = [SearchConfig(sample=True, nbest=5, seed=seed) for seed in (7, 7, 8)]
    first, again, other = (search(Toy(9, seed=2), tokens_of(SOURCES), config) for config in configs)
    assert first == again
    assert first != other
    assert len({hypothesis.tokens for hypothesis in first[0]}) > 1


def test_samples_obey_the_rules_and_keep_their_true_score() -> None:
    model, sources, lengths = (
        Toy(9, seed=4),
        [[A, B, END], [C, END]],
        {"min_length": 3, "max_length": 7},
    )
    config = SearchConfig(
        sample=True, nbest=40, repetition_penalty=1.5, no_repeat_ngram=2, banned=["x"], **lengths
    )
    wording = Constraints([(B,), ()], ban_tokens([(A,), (C, D)]))
    samples = search(model, tokens_of(sources), config, constraints=wording)
    for source, prefix, found in zip(sources, wording.prefixes, samples, strict=True):
        assert len({one.tokens for one in found}) > 5
        for one in found:
            assert allowed(config, one.tokens, len(source), tuple(prefix), [(A,), (C, D)])
            [log_p] = token_scores(model, batch_of([source], [[BEGIN, *one.tokens]]))
            assert one.score == pytest.approx(sum(log_p), abs=1e-9)


# What users can get wrong


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"sample": True, "nbest": 2}])
def test_broken_models_are_named(options: dict[str, object]) -> None:
    config = SearchConfig.model_validate({"max_length": 4} | options)
    with pytest.raises(DecodeError, match="are NaN"):
        search(TableToy(torch.full((8, 8), math.nan)), tokens_of(SOURCES), config)
    with pytest.raises(DecodeError, match="probability 0"):
        search(table_toy(8, {A: 0.5, B: 0.5}), tokens_of(SOURCES), config)


def test_limits_that_leave_nothing_for_a_source_are_named() -> None:
    model, sources = Toy(9), tokens_of([[A, END], [A, B, C, D, A, B, C, END]])
    with pytest.raises(
        DecodeError, match=r"a source of 8 tokens needs an output of at least 8, but at most 5"
    ):
        search(model, sources, SearchConfig(min_length_ratio=1.0, max_length=5))
    with pytest.raises(
        DecodeError, match=r"search.prefix: a prefix of 3 tokens and the end do not fit into the 3"
    ):
        search(
            model,
            sources,
            SearchConfig(max_length=3),
            constraints=Constraints(prefixes=[(), (A, B, C)]),
        )
    search(
        model,
        sources,
        SearchConfig(max_length=4),
        constraints=Constraints(prefixes=[(), (A, B, C)]),
    )


def test_the_tables_of_the_rules_go_with_their_search() -> None:
    """Not when the garbage is collected: they may be on a GPU."""
    config = SearchConfig(min_length=2, no_repeat_ngram=2)
    rules = Rules(ONE, config, Constraints(banned=ban_tokens([[A]])))
    kept = weakref.ref(rules)
    gc.disable()
    del rules
    gc.enable()
    assert kept() is None
