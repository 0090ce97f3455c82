"""The LSTM language model: its layer in plain loops, the state that is carried on, the dropouts, the autoencoder."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import plain
from language_model_cases import CASES, LSTM, SIZE, TEXTS, build, text_batch
from model_cases import close, each_real, randn, tokens_of
from regard.layers.recurrence import LSTMLayer, contiguous_weights
from regard.models.lstm_lm import LockedDropout, LSTMLanguageModel, LSTMLanguageModelConfig, without_last
from regard.objectives.language_model import CarriedNextToken, NextToken, SequenceAutoencoder

LSTM_CASES = [name for name in CASES if name.startswith("lstm_lm")]


def layer(**options: float) -> LSTMLayer:
    torch.manual_seed(0)
    return LSTMLayer(3, 5, **options).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("projection", [None, 2])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_the_layer_in_plain_loops(projection: int | None, clip: float | None) -> None:
    lstm = layer(projection=projection, clip=clip)
    x_BLD, first_h_BD, first_c_BD = 3 * randn(2, 6, 3), randn(2, lstm.width), randn(2, 5).clamp(-0.1, 0.1)
    h_BLD, (h_BD, c_BD) = lstm(x_BLD, (first_h_BD, first_c_BD))
    w = {name: parameter.tolist() for name, parameter in lstm.named_parameters()}
    cell = {"weight_ih": w["W_ih"], "weight_hh": w["W_hh"], "bias_ih": w["b_ih"], "bias_hh": w["b_hh"]}
    clipped = 0
    for b in range(2):
        h, c = first_h_BD[b].tolist(), first_c_BD[b].tolist()
        for t, x in enumerate(x_BLD[b].tolist()):
            h, c = plain.lstm_cell(cell, x, [h, c], clip or math.inf)
            h = plain.linear(h, w["W_hr"]) if projection else h
            clipped += sum(abs(memory) == clip for memory in c)
            assert h_BLD[b, t].tolist() == pytest.approx(h)
        assert h_BD[b].tolist() == pytest.approx(h)
        assert c_BD[b].tolist() == pytest.approx(c)
    assert (clipped > 10) == (clip is not None)


def test_each_of_unequal_texts_remembers_its_own_end() -> None:
    lstm, text = layer(), tokens_of(TEXTS, extra=2)
    x_BLD, h_BD, c_BD = randn(4, 10, 3), randn(4, 5), randn(4, 5)
    h_BLD, (last_h_BD, last_c_BD) = lstm.read(x_BLD, text, (h_BD, c_BD))
    for row, one in enumerate(TEXTS):
        alone, (h_1D, c_1D) = lstm(x_BLD[row : row + 1, : len(one)], (h_BD[row : row + 1], c_BD[row : row + 1]))
        close(h_BLD[row, : len(one)], alone[0])
        close(last_h_BD[row], h_1D[0])
        close(last_c_BD[row], c_1D[0])
        assert not h_BLD[row, len(one) :].any()


@pytest.mark.parametrize("projection", [None, 2])
def test_weights_side_by_side_are_the_weights(projection: int | None) -> None:
    """In one piece of memory, the matrices before the biases, and gradients go back to each."""
    lstm = layer(projection=projection)
    weights = [parameter for _, parameter in lstm.named_parameters()]
    together = contiguous_weights(weights)
    assert all(torch.equal(one, other) for one, other in zip(together, weights, strict=True))
    assert len({one.untyped_storage().data_ptr() for one in together}) == 1
    places = sorted((one.storage_offset(), one.dim(), one.numel()) for one in together)
    assert [dim for _, dim, _ in places] == sorted((one.dim() for one in weights), reverse=True)
    assert all(place + size == after for (place, _, size), (after, _, _) in itertools.pairwise(places))
    sum(number * one.sum() for number, one in enumerate(together, 1)).backward()  # type: ignore[union-attr]
    assert [float(one.grad.mean()) for one in weights if one.grad is not None] == list(range(1, len(weights) + 1))


# The state that is carried on


@pytest.mark.parametrize("case", LSTM_CASES)
def test_carried_state_equals_one_long_pass(case: str) -> None:
    """Blocks of unequal width, each beginning with the last token of the block before, for two streams at once."""
    model = build(CASES[case])
    streams = torch.randint(4, SIZE, (2, 20), generator=torch.Generator().manual_seed(0)).tolist()
    whole = model(text_batch(streams)).hidden_BTD
    objective, total = CarriedNextToken(model), torch.zeros(2, dtype=torch.float64)
    carry, parts = None, []
    for first, last in ((0, 6), (6, 7), (7, 19)):
        batch = text_batch([stream[first : last + 1] for stream in streams], carries=first > 0)
        parts.append(model(batch, carry).hidden_BTD)
        loss_2, carry = objective(batch, carry)
        total += loss_2.detach()
    close(torch.cat(parts, 1), whole)
    close(total, NextToken(model)(text_batch(streams)))
    forgotten = model(text_batch([stream[7:] for stream in streams])).hidden_BTD
    assert (forgotten - parts[2]).abs().max() > 1e-3, "the state matters"


def test_a_batch_that_does_not_carry_on_begins_from_nothing() -> None:
    objective = CarriedNextToken(build(CASES["lstm_lm"]))
    first, carry = objective(text_batch([TEXTS[0]]))
    close(objective(text_batch([TEXTS[0]]), carry)[0], first)
    assert (objective(text_batch([TEXTS[0]], carries=True), carry)[0] - first).abs().min() > 1e-3


def test_no_gradient_goes_back_into_the_batch_before() -> None:
    model = build(CASES["lstm_lm"])
    _, carry = CarriedNextToken(model)(text_batch([TEXTS[0]]))
    assert not any(part.requires_grad for layer_carry in carry for part in layer_carry)
    assert model(text_batch([TEXTS[0]])).carry[0][0].requires_grad, "the model itself does not cut it"


# Dropout


def dropped(**rates: float) -> LSTMLanguageModel:
    return build(LSTMLanguageModelConfig(**{**LSTM, **rates})).train()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "rate", ["word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout"]
)
def test_each_dropout_is_drawn_in_training_only(rate: str) -> None:
    model, batch = dropped(**{rate: 0.5}), text_batch()
    assert not torch.equal(model(batch).hidden_BTD, model(batch).hidden_BTD)
    model.eval()
    close(model(batch).hidden_BTD, dropped()(batch).hidden_BTD)


def test_whole_words_are_dropped_wherever_they_stand() -> None:
    model, ids_BL = dropped(word_dropout=0.5), torch.arange(SIZE).repeat(40, 2)
    x_BLD, vectors_VD = model.embed(ids_BL), model.embedding.weight
    kept_BL = x_BLD.abs().amax(-1) > 0
    assert torch.equal(kept_BL, kept_BL[:1, :SIZE].repeat(40, 2)), "all rows and places of a word alike"
    assert 0 < int(kept_BL[0].sum()) < 2 * SIZE
    close(x_BLD[kept_BL], 2 * vectors_VD[ids_BL[kept_BL]])


def test_locked_dropout_is_one_mask_a_row() -> None:
    torch.manual_seed(0)
    x_BLD = LockedDropout(0.25)(torch.ones(300, 5, 20))
    assert torch.equal(x_BLD, x_BLD[:, :1].expand(-1, 5, -1))
    assert x_BLD.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert abs(float((x_BLD[:, 0] == 0).double().mean()) - 0.25) < 4 * (0.25 * 0.75 / 6000) ** 0.5


def test_dropped_weights_are_those_of_the_state_and_the_same_at_all_steps() -> None:
    """With one weight dropped or doubled by hand the result is one of those that training gives."""
    lstm = LSTMLayer(1, 1, weight_dropout=0.5).double().train()
    x_BLD = torch.randn(1, 6, 1, dtype=torch.float64)

    def with_factors(factors: tuple[float, ...]) -> Tensor:
        by_hand = LSTMLayer(1, 1).double()
        by_hand.load_state_dict(lstm.state_dict())
        with torch.no_grad():
            by_hand.W_hh.mul_(torch.tensor(factors, dtype=torch.float64)[:, None])
        return by_hand(x_BLD)[0].detach()

    possible = [with_factors(factors) for factors in torch.cartesian_prod(*[torch.tensor([0.0, 2.0])] * 4).tolist()]
    found = set()
    for _ in range(60):
        actual = lstm(x_BLD)[0].detach()
        [number] = [number for number, one in enumerate(possible) if torch.allclose(one, actual, atol=1e-12)]
        found.add(number)
    assert len(found) > 8


# The sequence autoencoder


@pytest.mark.parametrize("case", LSTM_CASES)
def test_the_autoencoder_writes_from_what_it_has_read(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=9)
    logits = model.readout(model.reconstruct(batch).hidden_BTD)
    total = 0.0
    for text, actual in zip(TEXTS, each_real(logits, TEXTS), strict=True):
        _, memory = model.read(tokens_of([text]))
        expected = model.readout(model.read(without_last(tokens_of([text])), memory)[0][-1])[0]
        close(actual, expected)
        total += plain.smoothed_loss(expected.tolist(), text[1:], 0.0)
    assert SequenceAutoencoder(model)(batch)[1].item() == pytest.approx(total)
