"""Our search against beam search of `transformers`, on a Marian model with the same weights.

Where the semantics agree, outputs and scores must; where they are known to differ, a test is named for the difference.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from model_cases import SOURCES, batch_of, tokens_of
from regard.models.transformer import Transformer
from regard.search import BannedTexts, Constraints, Hypothesis, SearchConfig, score, search
from regard.text.vocabularies import BEGIN, END, PAD, UNK

pytest.importorskip("transformers")

from test_against_transformers import VOCABULARY, models_with_the_same_weights  # noqa: F401

LIMIT = 4
WORDS = (4, 5, 6, 7, 8)
OTHERS = [token for token in range(VOCABULARY) if token not in (*WORDS, END)]
SPACE = sum(len(WORDS) ** n for n in range(LIMIT))
"""How many outputs there are of at most LIMIT tokens."""
NEVER = -1e8
"""Below it are the scores of what `transformers` fills a beam with that is wider than the space."""
Found = list[tuple[tuple[int, ...], float]]


@pytest.fixture(scope="module", name="pair", params=range(3))
def lively_models(models: tuple[Transformer, nn.Module], request: pytest.FixtureRequest) -> tuple[Transformer, Any]:
    """The two models in float64 with biases that let them end, and hold them back from one word for ever."""
    ours, theirs = models[0].double(), models[1].double()
    torch.manual_seed(request.param)
    bias_V = torch.randn(VOCABULARY, dtype=torch.float64)
    bias_V[END] = 2.5
    with torch.no_grad():
        ours.source_embedding.weight.mul_(0.9)  # tied to the readout, so that logits differ from one seed to the next
        theirs.model.shared.weight.mul_(0.9)
        ours.output.linear.bias.copy_(bias_V)
        theirs.final_logits_bias.copy_(bias_V)
    return ours, theirs


def generated(theirs: Any, *, beam: int, nbest: int = 1, limit: int = LIMIT, **options: Any) -> list[Found]:
    """What `transformers` writes for each source, with its scores."""
    source = tokens_of(SOURCES)
    visible_BS = torch.arange(source.ids_BL.shape[1]) < source.lengths_B[:, None]
    given = {
        "num_beams": beam, "num_return_sequences": nbest, "max_new_tokens": limit, "suppress_tokens": OTHERS,
        "do_sample": False, "output_scores": True, "return_dict_in_generate": True,
    } | options | ({} if beam == 1 else {"early_stopping": "never"})  # fmt: skip
    out = theirs.generate(input_ids=source.ids_BL, attention_mask=visible_BS.long(), **given)
    sequences = [tuple(row[1:]) for row in out.sequences.tolist()]
    cut = [ids[: ids.index(END) + 1] if END in ids else ids for ids in sequences]
    scores = [0.0] * len(cut) if beam == 1 else out.sequences_scores.tolist()
    rows = list(zip(cut, scores, strict=True))
    return [rows[b * nbest : (b + 1) * nbest] for b in range(len(SOURCES))]


def written(
    ours: Transformer, *, limit: int = LIMIT, prefixes: Any = (), banned: Any = (), **options: Any
) -> list[list[Hypothesis]]:
    """What we write for each source, of the same words."""
    wording = Constraints(prefixes, BannedTexts.of_tokens([*((token,) for token in OTHERS), *banned]))
    return search(ours, tokens_of(SOURCES), SearchConfig(max_length=limit, **options), constraints=wording)


def log_p(ours: Transformer, b: int, ids: tuple[int, ...]) -> list[float]:
    [found] = score(ours, batch_of([SOURCES[b]], [[BEGIN, *ids]]))
    return found


def ended(found: Found) -> Found:
    return [one for one in found if one[0][-1] == END]


# Where the semantics agree


def test_greedy_search_writes_the_same(pair: tuple[Transformer, Any]) -> None:
    ours, theirs = pair
    found = [several[0].tokens for several in written(ours, beam=1, limit=12, no_repeat_ngram=2)]
    expected = [several[0][0] for several in generated(theirs, beam=1, limit=12, no_repeat_ngram_size=2)]
    assert all(ids[-1] == END and len(ids) < 12 for ids in expected)
    assert found == expected


@pytest.mark.parametrize("beam", [2, 4])
def test_a_narrow_beam_writes_the_same_where_nothing_longer_wins(pair: tuple[Transformer, Any], beam: int) -> None:
    ours, theirs = pair
    found = written(ours, beam=beam, limit=9, no_repeat_ngram=1)
    for several, [(ids, value)] in zip(
        found, generated(theirs, beam=beam, limit=9, no_repeat_ngram_size=1, length_penalty=1.0), strict=True
    ):
        assert several[0].tokens == ids
        assert several[0].objective == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_as_wide_as_the_space_ranks_and_scores_the_same(pair: tuple[Transformer, Any], alpha: float) -> None:
    """`length_penalty` is the same exponent of the same length, `</s>` counted."""
    ours, theirs = pair
    found = written(ours, beam=SPACE, nbest=20, length_penalty=alpha)
    for several, expected in zip(
        found, generated(theirs, beam=4 * SPACE, nbest=SPACE, length_penalty=alpha), strict=True
    ):
        same = ended(expected)[:20]
        assert len(same) == 20
        assert [one.tokens for one in several] == [ids for ids, _ in same]
        assert [one.objective for one in several] == pytest.approx([value for _, value in same], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "theirs_call_it"),
    [
        ({"no_repeat_ngram": 1}, {"no_repeat_ngram_size": 1}),
        ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        ({"min_length": 4}, {"min_new_tokens": 3}),
        ({"banned": [(4,), (5, 6), (6, 6, 7)]}, {"bad_words_ids": [[4], [5, 6], [6, 6, 7]]}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_rules_rule_out_the_same(
    pair: tuple[Transformer, Any], options: dict[str, Any], theirs_call_it: dict[str, Any]
) -> None:
    """Their `min_new_tokens` does not count `</s>`, our `min_length` does."""
    ours, theirs = pair
    found = written(ours, beam=SPACE, nbest=10, length_penalty=1.0, **options)
    expected = generated(theirs, beam=4 * SPACE, nbest=SPACE, length_penalty=1.0, **theirs_call_it)
    for several, others in zip(found, expected, strict=True):
        finite = [one for one in ended(others) if one[1] > NEVER][:10]
        assert [one.tokens for one in several][: len(finite)] == [ids for ids, _ in finite]
        assert len(finite) >= 5


# Known differences


def test_known_difference_their_forced_end_costs_nothing_where_ours_costs_its_log_p(
    pair: tuple[Transformer, Any],
) -> None:
    """At the limit both end; they set log P of `</s>` to 0, which is the model's own for no output."""
    ours, theirs = pair
    options: dict[str, Any] = {"length_penalty": 0.0}
    forced = generated(theirs, beam=4 * SPACE, nbest=4 * SPACE, forced_eos_token_id=END, **options)
    for b, several in enumerate(written(ours, beam=SPACE, nbest=SPACE, **options)):
        theirs_at_limit = {ids: value for ids, value in ended(forced[b]) if len(ids) == LIMIT and value > NEVER}
        ours_at_limit = {one.tokens: one.score for one in several if len(one.tokens) == LIMIT}
        assert len(theirs_at_limit.keys() & ours_at_limit.keys()) > 20
        for ids in theirs_at_limit.keys() & ours_at_limit.keys():
            tokens = log_p(ours, b, ids)
            assert ours_at_limit[ids] == pytest.approx(sum(tokens), abs=1e-9)
            assert theirs_at_limit[ids] == pytest.approx(sum(tokens[:-1]), abs=1e-5)


def test_known_difference_they_may_give_an_output_that_never_ended_and_ours_always_ends(
    pair: tuple[Transformer, Any],
) -> None:
    ours, theirs = pair
    assert any(ids[-1] != END for several in generated(theirs, beam=8, nbest=8, limit=2) for ids, _ in several)
    assert all(one.tokens[-1] == END for several in written(ours, beam=8, nbest=8, limit=2) for one in several)


def plain_beam(ours: Transformer, source: list[int], beam: int, alpha: float, *, refill: bool) -> tuple[int, ...]:
    """The best output that holds no word twice; what has ended leaves its slot to the next best, or keeps it."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, len(WORDS) + 2):
        candidates = []
        for ids, total in live:
            with torch.no_grad():
                hidden_D = ours(batch_of([source], [[BEGIN, *ids, PAD]])).hidden_BTD[0, -1]
            log_p_V = ours.readout(hidden_D).log_softmax(-1).tolist()
            candidates += [(total + log_p_V[token], (*ids, token)) for token in (*WORDS, END) if token not in ids]
        candidates.sort(reverse=True)
        taken = candidates[: beam if refill else beam - len(finished)]
        finished += [(total / length**alpha, ids) for total, ids in taken if ids[-1] == END]
        live = [(ids, total) for total, ids in (candidates if refill else taken) if ids[-1] != END][:beam]
    return max(finished)[1]


@pytest.mark.parametrize("beam", [2, 3])
def test_known_difference_they_refill_the_slot_of_what_has_ended_and_ours_is_taken_for_good(
    pair: tuple[Transformer, Any], beam: int
) -> None:
    """Each does what a plain loop of its own semantics does; a large alpha makes it show."""
    ours, theirs = pair
    found = written(ours, beam=beam, limit=9, no_repeat_ngram=1, length_penalty=3.0)
    others = generated(theirs, beam=beam, limit=9, no_repeat_ngram_size=1, length_penalty=3.0)
    for b, source in enumerate(SOURCES):
        assert found[b][0].tokens == plain_beam(ours, source, beam, 3.0, refill=False)
        assert others[b][0][0] == plain_beam(ours, source, beam, 3.0, refill=True)
        assert found[b][0].tokens != others[b][0][0]


def test_known_difference_their_score_holds_the_repetition_penalty_and_ours_is_log_p(
    pair: tuple[Transformer, Any],
) -> None:
    ours, theirs = pair
    options: dict[str, Any] = {"length_penalty": 0.0, "repetition_penalty": 2.0}
    found = written(ours, beam=SPACE, nbest=SPACE, **options)
    repeated = 0
    for b, others in enumerate(generated(theirs, beam=4 * SPACE, nbest=SPACE, **options)):
        by_tokens = {one.tokens: one for one in found[b]}
        for ids, value in ended(others):
            tokens = log_p(ours, b, ids)
            assert by_tokens[ids].score == pytest.approx(sum(tokens), abs=1e-9)
            assert by_tokens[ids].objective == pytest.approx(value, abs=1e-5)
            repeated += value < sum(tokens) - 1e-3
    assert repeated > 20


def test_known_difference_their_score_leaves_the_prefix_out_and_ours_holds_its_log_p(
    pair: tuple[Transformer, Any],
) -> None:
    ours, theirs = pair
    prefix = (7, 5)
    prompt = torch.tensor([[BEGIN, *prefix]] * len(SOURCES))
    others = generated(
        theirs, beam=4 * SPACE, nbest=SPACE, limit=LIMIT - 2, length_penalty=0.0, decoder_input_ids=prompt
    )
    found = written(ours, beam=SPACE, nbest=5, normalisation="none", prefixes=[prefix] * len(SOURCES))
    for b, several in enumerate(found):
        same = ended(others[b])[: len(several)]
        assert [one.tokens for one in several[: len(same)]] == [ids for ids, _ in same]
        for one, (ids, value) in zip(several, same, strict=False):
            tokens = log_p(ours, b, ids)
            assert one.score == pytest.approx(sum(tokens), abs=1e-9)
            assert value == pytest.approx(sum(tokens[len(prefix) :]), abs=1e-5)


def test_known_difference_they_write_special_tokens_unless_told_and_ours_never_does(
    pair: tuple[Transformer, Any],
) -> None:
    ours, theirs = pair
    special = {PAD, UNK, BEGIN}
    others = generated(theirs, beam=200, nbest=200, limit=3, suppress_tokens=None)
    assert any(special & set(ids) for several in others for ids, _ in several)
    found = search(ours, tokens_of(SOURCES), SearchConfig(beam=200, nbest=100, max_length=3))
    assert not any(special & set(one.tokens) for several in found for one in several)
