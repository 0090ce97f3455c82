"""BERT: what its masked positions may see, what its two losses weigh, and what is computed for them."""

import math
from dataclasses import replace

import pytest
import torch

import plain
from language_model_cases import CASES, FOLLOWS, LABELS, MASK, PAIRS, PLACES, build, masked_batch
from model_cases import close, logits_of
from regard.data.batches import MaskedBatch, Tokens
from regard.objectives.language_model import MaskedTokens, masked_sums


def planted(batch: MaskedBatch, row: int, place: int, token: int) -> MaskedBatch:
    ids_BL = batch.text.ids_BL.clone()
    ids_BL[row, place] = token
    return replace(batch, text=Tokens.of(ids_BL, batch.text.lengths_B))


def test_a_masked_position_sees_all_of_its_text_and_not_its_answer() -> None:
    model, batch = build(CASES["bert"]), masked_batch()
    before = logits_of(model, batch)
    place = PLACES[0][0]
    assert batch.text.ids_BL[0, place] == MASK
    for other in range(len(PAIRS[0])):
        after = logits_of(model, planted(batch, 0, other, 12))
        assert (after[0, place] - before[0, place]).abs().max() > 1e-6, f"position {other} is not seen"
        close(after[1:], before[1:], 1e-13)
    answered = replace(batch, labels_P=torch.tensor([9, 9, 9, 9, 9]))
    assert torch.equal(logits_of(model, answered), before), "the model reads no labels"


def test_the_loss_reads_nothing_but_the_places_that_were_asked() -> None:
    """Plant a token where nothing is asked: the logits there decide nothing, whatever they are."""
    model, batch = build(CASES["bert-masked-only"]), masked_batch()
    hidden_BLD = model(batch).hidden_BTD.detach().requires_grad_()
    loss = MaskedTokens(model)
    loss.total(hidden_BLD.flatten(0, 1)[batch.places_P], batch.labels_P)[0].backward()
    assert hidden_BLD.grad is not None
    asked = {(row, place) for row, places in enumerate(PLACES) for place in places}
    found = {(row, place) for row, place in (hidden_BLD.grad.abs().amax(-1) > 0).nonzero().tolist()}
    assert found == asked


def test_logits_are_made_for_masked_positions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = build(CASES["bert"]), []
    readout = model.readout
    monkeypatch.setattr(model, "readout", lambda hidden: seen.append(hidden.shape) or readout(hidden))
    MaskedTokens(model)(masked_batch())[0].backward()
    assert seen == [(5, 16)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_two_losses_weigh_by_their_means(smoothing: float) -> None:
    model, batch = build(CASES["bert"]), masked_batch(extra=1, filler=9)
    hidden_BLD = model(batch).hidden_BTD
    next_logits = model.next_sentence(hidden_BLD).tolist()
    next_mean = plain.smoothed_loss(next_logits, [1 - follows for follows in FOLLOWS], 0.0) / 3
    masked = model.readout(hidden_BLD.flatten(0, 1)[batch.places_P]).tolist()
    smoothed, plainly = (
        plain.smoothed_loss(masked, [label for labels in LABELS for label in labels], epsilon)
        for epsilon in (smoothing, 0.0)
    )
    objective = MaskedTokens(model, smoothing).train()
    found = (objective(batch) / batch.tokens).tolist()
    assert found == pytest.approx([smoothed / 5 + next_mean, plainly / 5])
    objective.weight = 0.0
    assert (objective(batch) / batch.tokens).tolist() == pytest.approx([next_mean, plainly / 5])
    objective.weight = 1.0
    unasked = objective(replace(batch, follows_B=None))
    assert (unasked / batch.tokens).tolist() == pytest.approx([smoothed / 5, plainly / 5])


def test_the_first_token_alone_tells_whether_a_sentence_follows() -> None:
    model = build(CASES["bert"])
    hidden_BLD = torch.randn(2, 5, 16, dtype=torch.float64)
    other = hidden_BLD.clone()
    other[:, 1:] = 0
    close(model.next_sentence(hidden_BLD), model.next_sentence(other))
    w = {name: parameter.tolist() for name, parameter in model.next_sentence.named_parameters()}
    pooled = [math.tanh(x) for x in plain.linear(hidden_BLD[0, 0].tolist(), w["pooler.weight"], w["pooler.bias"])]
    assert model.next_sentence.pool(hidden_BLD)[0].tolist() == pytest.approx(pooled)
    expected = plain.linear(pooled, w["output.weight"], w["output.bias"])
    assert model.next_sentence(hidden_BLD)[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("case", ["bert", "bert-masked-only"])
def test_sums_by_hand(case: str) -> None:
    model, batch = build(CASES[case]), masked_batch()
    sums = masked_sums(model, batch)
    logits_BLV = logits_of(model, batch)
    asked = [(row, place, label) for row in range(3) for place, label in zip(PLACES[row], LABELS[row], strict=True)]
    correct = sum(int(logits_BLV[row, place].argmax()) == label for row, place, label in asked)
    assert (sums["masked"], sums["correct"]) == (5, correct)
    assert sums["loss"] == pytest.approx(MaskedTokens(model)(batch)[1].item())
    if case == "bert":
        logits = model.next_sentence(model(batch).hidden_BTD).tolist()
        told = sum((scores[0] > scores[1]) == bool(follows) for scores, follows in zip(logits, FOLLOWS, strict=True))
        assert (sums["pairs"], sums["next_correct"]) == (3, told)
        assert sums["next_loss"] == pytest.approx(plain.smoothed_loss(logits, [1 - one for one in FOLLOWS], 0.0))
    else:
        assert (sums["pairs"], sums["next_correct"], sums["next_loss"]) == (0, 0, 0.0)


def test_a_batch_goes_where_it_is_sent() -> None:
    batch = replace(masked_batch(), examples=(4, 5, 6))
    there = batch.to("meta")
    assert {there.text.ids_BL.device.type, there.segments_BL.device.type, there.places_P.device.type} == {"meta"}
    assert there.follows_B is not None
    assert (there.follows_B.device.type, there.text.host_lengths_B.device.type) == ("meta", "cpu")
    assert (there.examples, there.tokens) == ((4, 5, 6), 5)
    assert (batch.unnamed().examples, batch.unnamed().tokens) == ((), 0)
