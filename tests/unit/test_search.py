"""Search against plain loops, exhaustive enumeration and hand-worked numbers, all in float64."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import Config, validate
from regard.data.batches import Batch, Tokens
from regard.errors import ConfigError, DecodeError
from regard.search import Hypothesis, SearchConfig, Special, score, search
from regard.search.decode import best, draw, truncated
from regard.search.hypotheses import NEVER, log_probabilities
from regard.search.rules import Limits
from regard.text.vocabularies import BEGIN, END, PAD, UNK
from toy_models import TableToy, Toy, table_toy, tokens_of

torch.set_num_threads(1)
A, B, C, D = 4, 5, 6, 7
SOURCES = [[A, B, END], [C, END], [B, B, A, C, END], [A, END], [C, B, A, END]]

Plain = list[tuple[tuple[int, ...], float, float]]


def next_log_p(model: Toy, source: list[int], written: tuple[int, ...], begin_id: int = BEGIN) -> list[float]:
    """log P of every next token, by a forward pass over all that was written."""
    target = tokens_of([[begin_id, *written, PAD]])
    hidden_D = model(Batch(tokens_of([source]), target)).hidden_BTD[0, -1]
    return model.readout(hidden_D).log_softmax(-1).tolist()


def plain_beam(model: Toy, source: list[int], config: SearchConfig, begin_id: int = BEGIN, end_id: int = END) -> Plain:
    """DESIGN.md's semantics as Python loops, one sentence, always on to the limit."""
    (limit,) = Limits.of([len(source)], config).longest
    never = {PAD, begin_id} | (set() if config.unknown else {UNK})
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: Plain = []
    for length in range(1, limit + 1):
        candidates = []
        for row, (written, total) in enumerate(live):
            for token, log_p in enumerate(next_log_p(model, source, written, begin_id)):
                too_short = token == end_id and length < config.min_length
                too_long = token != end_id and length == limit
                if not too_short and not too_long and (token == end_id or token not in never):
                    candidates.append((-total - log_p, row, token))
        taken = sorted(candidates)[: config.beam - len(finished)]
        ended = [(live[row][0], -minus) for minus, row, token in taken if token == end_id]
        finished += [((*written, end_id), total, total / length**config.length_penalty) for written, total in ended]
        live = [((*live[row][0], token), -minus) for minus, row, token in taken if token != end_id]
    return sorted(finished, key=lambda hypothesis: -hypothesis[2])[: config.nbest]


def assert_same(found: list[Hypothesis], expected: Plain) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _, _ in expected]
    assert [h.score for h in found] == pytest.approx([total for _, total, _ in expected], abs=1e-10)
    assert [h.objective for h in found] == pytest.approx([objective for _, _, objective in expected], abs=1e-10)


# Beam and greedy search


@pytest.mark.parametrize("seed", range(5))
def test_beam_1_is_greedy(seed: int) -> None:
    model, config = Toy(9, seed), SearchConfig(beam=1, max_length_ratio=1.0, max_length_offset=6)
    for source, found in zip(SOURCES, search(model, tokens_of(SOURCES), config), strict=True):
        written: tuple[int, ...] = ()
        total = 0.0
        limit = len(source) + 6
        while END not in written:
            log_p = next_log_p(model, source, written)
            allowed = [END] if len(written) == limit - 1 else [END, *range(4, 9)]
            token = max(allowed, key=lambda token: log_p[token])
            written, total = (*written, token), total + log_p[token]
        assert_same(found, [(written, total, total / len(written))])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_beam_as_wide_as_the_space_is_exhaustive(seed: int, alpha: float) -> None:
    model, limit = Toy(7, seed), 4
    config = SearchConfig(beam=64, nbest=40, length_penalty=alpha, max_length=limit)
    for source, found in zip(SOURCES[:2], search(model, tokens_of(SOURCES[:2]), config), strict=True):
        everything = []
        for words in itertools.chain(*(itertools.product([A, B, C], repeat=n) for n in range(limit))):
            tokens = (*words, END)
            total = sum(next_log_p(model, source, tokens[:i])[token] for i, token in enumerate(tokens))
            everything.append((tokens, total, total / len(tokens) ** alpha))
        assert len(everything) == 1 + 3 + 9 + 27
        assert_same(found, sorted(everything, key=lambda hypothesis: -hypothesis[2]))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    min_length=st.integers(0, 4),
    offset=st.integers(0, 4),
    unknown=st.booleans(),
    sharpness=st.sampled_from([0.3, 1.0, 3.0]),
    data=st.data(),
)
def test_beam_against_plain_loops(
    seed: int,
    beam: int,
    alpha: float,
    min_length: int,
    offset: int,
    unknown: bool,
    sharpness: float,
    data: st.DataObject,
) -> None:
    """The reference runs to the limit, so this is also: stopping early changes nothing."""
    config = SearchConfig(
        beam=beam,
        nbest=data.draw(st.integers(1, beam)),
        length_penalty=alpha,
        min_length=min_length,
        max_length_ratio=1.0,
        max_length_offset=offset,
        unknown=unknown,
    )
    model = Toy(data.draw(st.integers(5, 9)), seed, sharpness=sharpness)
    words = st.integers(END + 1, len(model.E) - 1)
    sources = data.draw(st.lists(st.lists(words, max_size=4).map(lambda ids: [*ids, END]), min_size=1, max_size=4))
    found = search(model, tokens_of(sources), config)
    for source, hypotheses in zip(sources, found, strict=True):
        assert_same(hypotheses, plain_beam(model, source, config))


def test_other_special_tokens() -> None:
    """Some imported models begin with their `</s>`; it must stay possible to end."""
    model, config = Toy(8, seed=3), SearchConfig(beam=3, nbest=3, max_length=5, unknown=True)
    found = search(model, tokens_of(SOURCES), config, special=Special(2, 2, 0, None))
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert_same(hypotheses, plain_beam(model, source, config, begin_id=2, end_id=2))


def test_a_wider_beam_leaves_the_garden_path() -> None:
    """Greedy takes A (0.6) and then can do no better than 0.6 * 0.3; B (0.4) ends for sure."""
    model = table_toy(7, {A: 0.6, B: 0.4}, (A, {END: 0.3, A: 0.25, B: 0.25, C: 0.2}), (B, {END: 1.0}), (C, {END: 1.0}))
    source = tokens_of([[A, END]])
    (greedy,), (wide,) = (search(model, source, SearchConfig(beam=beam, length_penalty=0.0)) for beam in (1, 2))
    assert_same(greedy, [((A, END), math.log(0.18), math.log(0.18))])
    assert_same(wide, [((B, END), math.log(0.4), math.log(0.4))])


def test_an_end_takes_its_slot_for_good() -> None:
    """Beam 2: A 0.5 and </s> 0.3 are taken, B 0.2 is not; the one slot that is left then goes on alone."""
    model = table_toy(7, {A: 0.5, END: 0.3, B: 0.2}, (A, {B: 0.6, END: 0.4}), (B, {END: 0.9, A: 0.1}))
    (found,) = search(model, tokens_of([[A, END]]), SearchConfig(beam=2, nbest=2, length_penalty=0.0))
    assert_same(found, [((END,), math.log(0.3), math.log(0.3)), ((A, B, END), math.log(0.27), math.log(0.27))])
    assert model.rows == [2, 1, 1]


def test_equals_go_by_lowest_row_then_lowest_token() -> None:
    model = TableToy(torch.zeros(8, 8))
    (found,) = search(model, tokens_of([[A, END]]), SearchConfig(beam=3, nbest=3, length_penalty=0.0, max_length=5))
    uniform = -math.log(8)
    expected = [((END,), uniform), ((A, END), 2 * uniform), ((A, A, END), 3 * uniform)]
    assert_same(found, [(tokens, total, total) for tokens, total in expected])


@given(
    scores=st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, NEVER]), min_size=16, max_size=16), min_size=1, max_size=4
    ),
    count=st.integers(1, 16),
)
def test_best_among_many_equals(scores: list[list[float]], count: int) -> None:
    """The first of equals comes first; of what may not be chosen, only the value matters."""
    values, places = best(torch.tensor(scores), count)
    for row, row_values, row_places in zip(scores, values.tolist(), places.tolist(), strict=True):
        expected = sorted(range(16), key=lambda place: (-row[place], place))[:count]
        assert row_values == [row[place] for place in expected]
        possible = sum(value > NEVER for value in row_values)
        assert row_places[:possible] == expected[:possible]


# Lengths


def test_length_limits_by_hand() -> None:
    assert Limits.of([1, 10, 40], SearchConfig()).longest == [52, 70, 130]
    assert Limits.of([1, 10, 40], SearchConfig(max_length=60)).longest == [52, 60, 60]
    assert Limits.of([1, 3], SearchConfig(max_length_ratio=1.5, max_length_offset=0)).longest == [1, 4]
    assert Limits.of([1, 3], SearchConfig(max_length_ratio=0.1, max_length_offset=0)).longest == [1, 1]
    assert Limits.of([1, 9], SearchConfig(min_length=5, max_length_ratio=1.0, max_length_offset=0)).longest == [5, 9]


@pytest.mark.parametrize(("beam", "sample"), [(1, False), (4, False), (1, True)])
def test_lengths_stay_within_their_bounds(beam: int, sample: bool) -> None:
    config = SearchConfig(
        beam=beam, sample=sample, nbest=4 if sample else beam, min_length=3, max_length_ratio=1.0, max_length_offset=1
    )
    for seed in range(8):
        for source, hypotheses in zip(SOURCES, search(Toy(9, seed), tokens_of(SOURCES), config), strict=True):
            assert len(hypotheses) == config.nbest
            for hypothesis in hypotheses:
                assert 3 <= len(hypothesis.tokens) <= len(source) + 1
                assert hypothesis.tokens.index(END) == len(hypothesis.tokens) - 1
                assert not {PAD, UNK, BEGIN} & set(hypothesis.tokens)


# Scores


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 4}, {"sample": True, "nbest": 3, "top_p": 0.9}])
def test_the_score_reported_is_the_score_recomputed(options: dict[str, object]) -> None:
    model = Toy(9, seed=11)
    config = SearchConfig.model_validate(
        {"max_length_ratio": 1.0, "max_length_offset": 5, "temperature": 1.0} | options
    )
    found = search(model, tokens_of(SOURCES), config)
    pairs = [(source, h) for source, hypotheses in zip(SOURCES, found, strict=True) for h in hypotheses]
    batch = Batch(tokens_of([source for source, _ in pairs]), tokens_of([[BEGIN, *h.tokens] for _, h in pairs]))
    for (source, hypothesis), log_p in zip(pairs, score(model, batch), strict=True):
        assert len(log_p) == len(hypothesis.tokens)
        assert sum(log_p) == pytest.approx(hypothesis.score, abs=1e-10)
        assert hypothesis.objective == pytest.approx(hypothesis.score / len(hypothesis.tokens), abs=1e-10)
        state, total = model.begin(tokens_of([source]), 1, 99), 0.0
        for before, token in itertools.pairwise((BEGIN, *hypothesis.tokens)):
            logits_RV, state = model.step(torch.tensor([before]), state)
            total += logits_RV.log_softmax(-1)[0, token].item()
        assert total == pytest.approx(hypothesis.score, abs=1e-10)


def test_score_by_hand_and_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = table_toy(6, {A: 0.5, B: 0.25, END: 0.25}, (A, {END: 0.125, B: 0.875}))
    batch = Batch(tokens_of([[A, END], [B, END]]), tokens_of([[BEGIN, A, B, END], [BEGIN, END]], extra_padding=2))
    expected = [[math.log(0.5), math.log(0.875), math.log(0.25)], [math.log(0.25)]]
    for rows in (1024, 3, 1):
        monkeypatch.setattr("regard.search.hypotheses.ROWS_AT_ONCE", rows)
        for found, row in zip(score(model, batch), expected, strict=True):
            assert found == pytest.approx(row, abs=1e-12)


def test_half_precision_logits_are_normalised_in_float32() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert log_probabilities(logits).dtype == torch.float32
    torch.testing.assert_close(log_probabilities(logits).double(), logits.double().log_softmax(-1), rtol=0, atol=1e-6)
    assert log_probabilities(logits.double()).dtype == torch.float64


# Batches


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 3}, {"sample": True, "nbest": 3}])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_order_and_padding_change_nothing(options: dict[str, object], seed: int) -> None:
    model, config = Toy(9, seed), SearchConfig.model_validate({"max_length_offset": 6} | options)
    alone = [search(model, tokens_of([source]), config)[0] for source in SOURCES]
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1], [2, 2, 0]):
        batch = tokens_of([SOURCES[i] for i in order], extra_padding=3)
        for i, found in zip(order, search(model, batch, config), strict=True):
            assert_same(found, [(h.tokens, h.score, h.objective) for h in alone[i]])


def test_an_empty_batch_gives_nothing() -> None:
    tokens = tokens_of(SOURCES)
    empty = Tokens.of(tokens.ids_BL[:0], tokens.lengths_B[:0])
    assert search(Toy(9), empty, SearchConfig()) == []


# Cost


def never_ending(vocabulary: int = 9) -> TableToy:
    """Ends only where it must."""
    log_p_VV = torch.zeros(vocabulary, vocabulary)
    log_p_VV[:, END] = -50.0
    return TableToy(log_p_VV)


def test_finished_sentences_leave_the_batch_of_a_beam() -> None:
    model = never_ending()
    config = SearchConfig(beam=2, max_length_ratio=1.0, max_length_offset=0)
    search(model, tokens_of([[A, B, END], [A, A, B, B, A, END]]), config)
    assert model.rows == [4, 4, 4, 2, 2, 2]


def test_greedy_copies_its_state_only_when_a_quarter_is_done() -> None:
    model = never_ending()
    config = SearchConfig(beam=1, max_length_ratio=1.0, max_length_offset=0)
    search(model, tokens_of([[A] * n + [END] for n in range(8)]), config)
    assert model.rows == [8, 8, 6, 6, 4, 3, 2, 1]
    assert model.selects == 5


def test_search_stops_when_nothing_can_win() -> None:
    """After `</s>` with P = 0.9 the rest holds 0.1: with alpha 0 it can never win."""
    model = table_toy(6, {END: 0.9, A: 0.06, B: 0.04})
    source = tokens_of([[A, END]])
    search(model, source, SearchConfig(beam=3, length_penalty=0.0))
    assert len(model.rows) == 1
    model.rows.clear()
    search(model, source, SearchConfig(beam=3, nbest=3, length_penalty=0.0))
    assert len(model.rows) == 2


def test_search_goes_on_while_a_longer_one_could_win() -> None:
    """log 0.4 / 1 is beaten by (log 0.6 + 2 log 0.99) / 3, found two steps later."""
    model = table_toy(6, {A: 0.6, END: 0.4}, (A, {B: 0.99, A: 0.01}), (B, {END: 0.99, B: 0.01}))
    (found,) = search(model, tokens_of([[A, END]]), SearchConfig(beam=2))
    total = math.log(0.6 * 0.99 * 0.99)
    assert_same(found, [((A, B, END), total, total / 3)])


# Sampling


def sampled(model: Toy, **options: object) -> list[Hypothesis]:
    config = SearchConfig.model_validate({"sample": True, "nbest": 4000, "max_length": 3} | options)
    (found,) = search(model, tokens_of([[A, END]]), config)
    return found


def assert_frequencies(counts: Counter[int], expected: dict[int, float]) -> None:
    total = counts.total()
    assert set(counts) <= set(expected)
    for token, p in expected.items():
        assert abs(counts[token] / total - p) <= 4.5 * math.sqrt(p * (1 - p) / total)


SKEWED = ((A, {A: 0.1, B: 0.2, END: 0.7}), (B, {C: 0.9, END: 0.1}), (C, {END: 1.0}))
FIRST = {A: 0.4, B: 0.3, C: 0.2, END: 0.1}


def test_sample_frequencies() -> None:
    found = sampled(table_toy(8, FIRST, *SKEWED))
    assert_frequencies(Counter(h.tokens[0] for h in found), FIRST)
    assert_frequencies(Counter(h.tokens[1] for h in found if h.tokens[0] == A), {A: 0.1, B: 0.2, END: 0.7})
    assert_frequencies(Counter(h.tokens[1] for h in found if h.tokens[0] == B), {C: 0.9, END: 0.1})


def test_temperature_sharpens_the_draw_and_leaves_the_score() -> None:
    found = sampled(table_toy(8, FIRST, *SKEWED), temperature=0.5)
    squares = {token: p * p / 0.30 for token, p in FIRST.items()}
    assert_frequencies(Counter(h.tokens[0] for h in found), squares)
    scores = {h.tokens: h.score for h in found}
    assert scores[A, END] == pytest.approx(math.log(0.4 * 0.7), abs=1e-12)
    assert scores[B, C, END] == pytest.approx(math.log(0.3 * 0.9), abs=1e-12)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, {A: 4 / 7, B: 3 / 7}),
        ({"top_p": 0.65}, {A: 4 / 7, B: 3 / 7}),
        ({"top_p": 0.75}, {A: 4 / 9, B: 3 / 9, C: 2 / 9}),
        ({"top_p": 0.01}, {A: 1.0}),
        ({"top_k": 3, "top_p": 0.7}, {A: 4 / 7, B: 3 / 7}),  # after top-k the shares are 4/9, 3/9, 2/9
        ({"top_k": 2, "top_p": 0.5}, {A: 1.0}),
    ],
)
def test_cut_off_distributions(options: dict[str, object], kept: dict[int, float]) -> None:
    found = sampled(table_toy(8, FIRST, *SKEWED), **options)
    assert_frequencies(Counter(h.tokens[0] for h in found), kept)


@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=8).map(lambda ws: sorted(ws, reverse=True)),
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
    assert draw(p, noise).tolist() == [0, 0, 1, 1, 2, 2]
    assert draw(p / 8, noise).tolist() == [0, 0, 1, 1, 2, 2]


def test_top_k_1_is_greedy() -> None:
    for seed in range(4):
        model = Toy(9, seed)
        greedy = search(model, tokens_of(SOURCES), SearchConfig(beam=1))
        for found, (best_one,) in zip(
            search(model, tokens_of(SOURCES), SearchConfig(sample=True, top_k=1, nbest=2)), greedy, strict=True
        ):
            assert_same(found, [(best_one.tokens, best_one.score, best_one.objective)] * 2)


def test_the_seed_decides_the_samples() -> None:
    model = Toy(9, seed=2)
    first, again, other = (
        search(model, tokens_of(SOURCES), SearchConfig(sample=True, nbest=5, seed=seed)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other
    assert len({hypothesis.tokens for hypothesis in first[0]}) > 1


# What users can get wrong


class Recipe(Config):
    search: SearchConfig = SearchConfig()


@pytest.mark.parametrize(
    ("tree", "where", "words"),
    [
        ({"beam": 0}, "search.beam", "greater than or equal to 1"),
        ({"beam": 1_000_000}, "search.beam", "less than or equal to 1000"),
        ({"sample": True, "nbest": 10_001}, "search.nbest", "less than or equal to 10000"),
        ({"beam": 2, "nbest": 3}, "search.nbest", "raise beam to 3"),
        ({"nbest": 6}, "search.nbest", "a beam of 5 cannot give the best 6"),
        ({"sample": True, "beam": 4}, "search.beam", "set beam: 1"),
        ({"temperature": 0.7}, "search.temperature", "set sample: true"),
        ({"top_k": 10}, "search.top_k", "set sample: true"),
        ({"top_p": 0.9}, "search.top_p", "set sample: true"),
        ({"sample": True, "top_p": 1.5}, "search.top_p", "less than or equal to 1"),
        ({"sample": True, "temperature": 0.0}, "search.temperature", "greater than 0"),
        ({"min_length": 9, "max_length": 8}, "search.max_length", "below min_length, 9"),
        ({"min_length": 99_999}, "search.min_length", "less than or equal to 2048"),
        ({"length_penalty": -1.0}, "search.length_penalty", "greater than or equal to 0"),
        ({"beem": 3}, "search.beem", "unknown key"),
    ],
)
def test_contradictions_are_named_by_their_path(tree: dict[str, object], where: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Recipe, {"search": tree})
    (problem,) = caught.value.problems
    assert problem.where == where
    assert words in problem.what


@pytest.mark.parametrize(
    "tree", [{}, {"sample": True}, {"sample": True, "nbest": 20, "top_k": 5}, {"beam": 3, "nbest": 3}]
)
def test_a_config_written_out_with_all_defaults_reads_back(tree: dict[str, object]) -> None:
    config = validate(SearchConfig, tree)
    assert validate(SearchConfig, config.model_dump()) == config


def test_null_stands_for_no_sampling_and_for_nothing_else() -> None:
    assert validate(SearchConfig, {"temperature": None, "top_k": None, "top_p": None}) == SearchConfig()
    with pytest.raises(ConfigError, match="beam"):
        validate(SearchConfig, {"beam": None})


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"sample": True, "nbest": 2}])
def test_broken_models_are_named(options: dict[str, object]) -> None:
    config = SearchConfig.model_validate({"max_length": 4} | options)
    with pytest.raises(DecodeError, match="are NaN"):
        search(TableToy(torch.full((8, 8), math.nan)), tokens_of(SOURCES), config)
    with pytest.raises(DecodeError, match="probability 0"):
        search(table_toy(8, {A: 0.5, B: 0.5}), tokens_of(SOURCES), config)
