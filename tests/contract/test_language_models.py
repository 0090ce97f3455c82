"""The contract that every model of one text keeps, whatever its equations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import plain
from language_model_cases import (
    ATTENDING,
    CASES,
    GENERATING,
    PAIRS,
    SIZE,
    TEXTS,
    batch_for,
    build,
    each,
    next_logits,
    objective_for,
    text_batch,
)
from model_cases import close, tokens_of
from regard.layers.attention import recording
from regard.models import MODELS
from regard.objectives import cross_entropy
from regard.runs.checkpoints import Checkpoint, load_weights, save_checkpoint
from regard.runs.run import put_weights, stored_weights
from regard.text.vocabularies import BEGIN, END

every_case = pytest.mark.parametrize("case", CASES)
every_generating_case = pytest.mark.parametrize("case", GENERATING)


def test_the_cases_cover_every_model() -> None:
    assert {config.kind for config in CASES.values()} == {
        kind for kind, model in MODELS.items() if model.config.pretraining
    }


# Padding and neighbours


@every_case
def test_neither_padding_nor_neighbours_change_a_vector(case: str) -> None:
    model = build(CASES[case])
    texts = PAIRS if case.startswith("bert") else TEXTS[:3]
    together, padded = (model.layers_of(batch_for(case, extra=extra, filler=9)) for extra in (0, 3))
    assert len(together) == model.depth + 1
    for layer, (plain_BLD, padded_BLD) in enumerate(zip(together, padded, strict=True)):
        for row, (expected, actual) in enumerate(zip(each(plain_BLD, texts), each(padded_BLD, texts), strict=True)):
            close(actual, expected)
            close(model.layers_of(batch_for(case, [row]))[layer][0], expected)


@every_case
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_features_of_tokens_and_texts(case: str, layer: int) -> None:
    model, batch = build(CASES[case]), batch_for(case, extra=2, filler=9)
    features_BLD, layers = model.features(batch, layer), model.layers_of(batch)
    texts = PAIRS if case.startswith("bert") else TEXTS[:3]
    for row, text in enumerate(texts):
        close(features_BLD[row, : len(text)], layers[layer][row, : len(text)])
        assert not features_BLD[row, len(text) :].any()
        mean = [sum(column) / len(text) for column in zip(*features_BLD[row, : len(text)].tolist(), strict=True)]
        assert model.sentence(batch, layer, "mean")[row].tolist() == pytest.approx(mean)
        assert torch.equal(model.sentence(batch, layer, "last")[row], features_BLD[row, len(text) - 1])
    assert torch.equal(model.sentence(batch, layer, "first"), features_BLD[:, 0])
    assert torch.equal(model.sentence(batch, layer), model.sentence(batch, layer, model.pooling))
    assert model.pooling == ("first" if case.startswith("bert") else "mean")


# The loss


@every_case
def test_the_loss_of_a_batch_is_the_sum_over_its_texts(case: str) -> None:
    """Up to the next sentence, which weighs by masked tokens (test_bert)."""
    objective = objective_for(case, build(CASES[case]), 0.1)
    parts = [objective(batch_for(case, [row])) for row in range(3)]
    close(torch.stack(parts).sum(0)[1], objective(batch_for(case, extra=2, filler=9))[1])


@every_case
@pytest.mark.parametrize("rows", [1, 3])
def test_the_loss_in_parts_is_the_loss(case: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss_and_gradients() -> list[Tensor]:
        objective = objective_for(case, build(CASES[case]), 0.1)
        objective.training = True
        loss_2 = objective(batch_for(case))
        loss_2[0].backward()
        return [loss_2.detach(), *(p.grad for p in objective.parameters() if p.grad is not None)]

    whole = loss_and_gradients()
    monkeypatch.setattr(cross_entropy, "LOGITS", dict.fromkeys((True, False), rows * SIZE))
    for actual, expected in zip(loss_and_gradients(), whole, strict=True):
        close(actual, expected, 1e-9)


# Learning


@every_case
def test_every_parameter_gets_a_gradient(case: str) -> None:
    model = build(CASES[case])
    objective_for(case, model, 0.1).train()(batch_for(case))[0].backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without == []


@every_case
def test_it_can_learn_one_batch_by_heart(case: str) -> None:
    torch.manual_seed(0)
    objective = objective_for(case, build(CASES[case], dtype=torch.float32)).train()
    optimiser = torch.optim.Adam(objective.parameters(), lr=0.02)
    # Texts of which no two begin or end alike: what stands there could only be guessed.
    batch = batch_for(case) if case.startswith("bert") else text_batch([[4, 5, 6, 7], [8, 9, 10], [12, 11, 4, 5]])
    for _ in range(200):
        optimiser.zero_grad()
        loss = objective(batch)[0] / batch.tokens
        loss.backward()
        optimiser.step()
        if loss < 0.1:
            return
    pytest.fail(f"the loss of one batch stays at {loss:.3f}")


@every_case
def test_same_seed_same_weights(case: str) -> None:
    first, same, other = (build(CASES[case], seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@every_case
def test_saved_and_loaded_gives_the_same_vectors(case: str, tmp_path: Path) -> None:
    model, fresh, batch = build(CASES[case], seed=1), build(CASES[case], seed=2), batch_for(case)
    save_checkpoint(tmp_path / "step-1", Checkpoint(stored_weights(model), {}))
    put_weights(fresh, load_weights(tmp_path / "step-1"), tmp_path)
    assert torch.equal(fresh(batch).hidden_BTD, model(batch).hidden_BTD)
    assert torch.equal(objective_for(case, fresh)(batch), objective_for(case, model)(batch))


# begin / step / select

PROMPTS = [[BEGIN, 4, 5], [BEGIN], [BEGIN, 12, 11, 10, 9], [BEGIN, 6]]


def write(
    model: Any, prompts: list[list[int]], histories_RT: Tensor, room: int = 8, **padding: int
) -> tuple[list[Tensor], Any]:
    """The logits after each prompt and after each token that is then written, a row each; and the last state."""
    rows = len(histories_RT) // len(prompts)
    with torch.no_grad():
        logits_RV, state = model.step(
            torch.full((len(histories_RT),), BEGIN), model.begin(tokens_of(prompts, **padding), rows, room)
        )
        steps = [logits_RV]
        for tokens_R in histories_RT.unbind(1):
            logits_RV, state = model.step(tokens_R, state)
            steps.append(logits_RV)
    return steps, state


def histories_of(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(4, SIZE, (rows, length), generator=torch.Generator().manual_seed(seed))


def expected_steps(model: Any, prompts: list[list[int]], histories_RT: Tensor) -> list[Tensor]:
    """The same from whole texts, one by one."""
    rows = len(histories_RT) // len(prompts)
    texts = [[*prompts[row // rows], *history, END] for row, history in enumerate(histories_RT.tolist())]
    each_text = [next_logits(model, text_batch([text]))[0, -histories_RT.shape[1] - 1 :] for text in texts]
    return list(torch.stack(each_text, 1))


@every_generating_case
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("extra", [0, 3])
def test_step_by_step_is_forward_for_prompts_of_unequal_length(case: str, rows: int, extra: int) -> None:
    model, histories_RT = build(CASES[case]), histories_of(len(PROMPTS) * rows, 4)
    steps, _ = write(model, PROMPTS, histories_RT, extra=extra, filler=9)
    close(torch.stack(steps), torch.stack(expected_steps(model, PROMPTS, histories_RT)))


SELECTIONS = {
    "reorder inside": [[1, 0], [3, 3], [4, 5], [7, 6]],
    "drop sources": [[3, 2], [7, 7]],
    "one row each": [[1], [2], [5], [6]],
    "more rows, fewer sources": [[1, 0, 1, 1], [5, 4, 4, 5]],
    "one row of one source": [[7]],
}


@every_generating_case
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("written", [0, 2])
def test_select_goes_on_as_if_written_from_scratch(case: str, selection: str, written: int) -> None:
    model, histories_RT = build(CASES[case]), histories_of(2 * len(PROMPTS), written)
    _, state = write(model, PROMPTS, histories_RT)
    rows_BW = torch.tensor(SELECTIONS[selection])
    going_on_RT = histories_of(rows_BW.numel(), 3, seed=1)
    prompts = [PROMPTS[row // 2] for row in rows_BW[:, 0].tolist()]
    whole_RT = torch.cat([histories_RT[rows_BW.flatten()], going_on_RT], dim=1)
    expected = expected_steps(model, prompts, whole_RT)[-3:]
    state = state.select(rows_BW)
    with torch.no_grad():
        for tokens_R, expected_RV in zip(going_on_RT.unbind(1), expected, strict=True):
            logits_RV, state = model.step(tokens_R, state)
            close(logits_RV, expected_RV)
            # Turn every group round and back: a select after a select.
            turned_BW = torch.arange(rows_BW.numel()).view(rows_BW.shape).flip(1)
            state = state.select(turned_BW).select(turned_BW)


@every_generating_case
def test_selecting_before_the_first_step(case: str) -> None:
    model = build(CASES[case])
    state = model.begin(tokens_of(PROMPTS), 1, 3).select(torch.tensor([[0, 0], [2, 2]]))
    with torch.no_grad():
        logits_RV, _ = model.step(torch.full((4,), BEGIN), state)
    close(logits_RV, expected_steps(model, [PROMPTS[0], PROMPTS[2]], torch.empty(4, 0, dtype=torch.long))[0])


@every_generating_case
def test_nothing_leaks_from_the_right(case: str) -> None:
    model, text = build(CASES[case]), [BEGIN, 4, 5, 6, 7, 8, END]
    before = next_logits(model, text_batch([text]))[0]
    for changed in range(1, len(text) - 1):
        after = next_logits(model, text_batch([[*text[:changed], 12, *text[changed + 1 :]]]))[0]
        close(after[:changed], before[:changed], 1e-13)
        assert (after[changed:] - before[changed:]).abs().amax(-1).min() > 1e-9, "it reaches all that comes after"


@every_generating_case
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_next_token_loss_in_plain_loops(case: str, smoothing: float) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=7)
    logits = [logits_TV.tolist() for logits_TV in each(next_logits(model, batch), TEXTS, without=1)]
    expected = [
        sum(plain.smoothed_loss(scores, text[1:], epsilon) for scores, text in zip(logits, TEXTS, strict=True))
        for epsilon in (smoothing, 0.0)
    ]
    assert objective_for(case, model, smoothing).train()(batch).tolist() == pytest.approx(expected, rel=1e-10)


# Attention


@pytest.mark.parametrize("case", ATTENDING)
def test_packed_equals_padded(case: str) -> None:
    """And each text by itself; a batch with little padding is not packed, one with much is."""
    model, rows = build(CASES[case]), []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    much, little = batch_for(case, extra=2, filler=9), batch_for(case, [0, 0])
    with torch.no_grad(), recording():
        padded = model(much).hidden_BTD
    packed, chosen = model.forward_packed(much).hidden_BTD, model(much).hidden_BTD
    close(model.forward_packed(little).hidden_BTD, model(little).hidden_BTD, 1e-12)
    assert rows == [3, 1, 1, 1, 2]
    texts, without = (PAIRS, 0) if case.startswith("bert") else (TEXTS[:3], 1)
    for row, (actual, expected) in enumerate(
        zip(each(packed, texts, without), each(padded, texts, without), strict=True)
    ):
        close(model.readout(actual), model.readout(expected), 1e-12)
        close(model.readout(actual), model.readout(model(batch_for(case, [row])).hidden_BTD[0]), 1e-12)
    assert torch.equal(packed, chosen)


@pytest.mark.parametrize("case", ATTENDING)
def test_recorded_weights_are_a_distribution_over_what_may_be_seen(case: str) -> None:
    model, batch = build(CASES[case]), batch_for(case, extra=2)
    fast = model.layers_of(batch)[-1][:, : None if case.startswith("bert") else -1]
    with recording() as recorded:
        written_out = model(batch).hidden_BTD
    weights, bert = recorded.by_name(model), case.startswith("bert")
    assert set(weights) == {f"blocks.{layer}.self_attention" for layer in range(2)}
    texts = PAIRS if bert else [text[:-1] for text in TEXTS[:3]]
    for weights_BHQK in weights.values():
        for row, text in enumerate(texts):
            close(written_out[row, : len(text)], fast[row, : len(text)])
            real_HQK = weights_BHQK[row, :, : len(text)]
            close(real_HQK.sum(-1), torch.ones_like(real_HQK[..., 0]))
            seen_QK = torch.ones(len(text), len(text)).tril().bool() if not bert else torch.ones(len(text), len(text))
            assert torch.all((real_HQK[..., : len(text)] > 0) == seen_QK.bool())
            assert not real_HQK[..., len(text) :].any()
