"""The contract that every model keeps, whatever its equations."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model_cases import (
    ATTENDING_CASES,
    CASES,
    CAUSAL_CASES,
    SOURCES,
    TARGETS,
    TIED_CASES,
    batch_of,
    build,
    close,
    each_real,
    logits_of,
    tokens_of,
)
from regard.errors import CheckpointError, DecodeError
from regard.layers.attention import recording
from regard.models import MODELS, Generator
from regard.models.base import count_parameters
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.runs.checkpoints import Checkpoint, load_weights, save_checkpoint
from regard.runs.run import put_weights, stored_weights
from regard.text.vocabularies import BEGIN, END

SOURCE_KINDS = {kind for kind, model in MODELS.items() if model.config.reads == "source"}
every_case = pytest.mark.parametrize("case", CASES)
every_causal_case = pytest.mark.parametrize("case", CAUSAL_CASES)
every_attending_case = pytest.mark.parametrize("case", ATTENDING_CASES)


def test_the_cases_cover_every_model() -> None:
    assert {config.kind for config in CASES.values()} == SOURCE_KINDS


# Padding and neighbours


@every_case
def test_a_sentence_alone_is_the_sentence_in_a_batch(case: str) -> None:
    model = build(CASES[case])
    together = each_real(logits_of(model, batch_of()))
    for source, target, logits_TV in zip(SOURCES, TARGETS, together, strict=True):
        close(logits_of(model, batch_of([source], [target]))[0], logits_TV)


@every_case
def test_what_stands_in_the_padding_and_how_much_changes_nothing(case: str) -> None:
    model = build(CASES[case])
    plain, padded = logits_of(model, batch_of()), logits_of(model, batch_of(extra=3, filler=9))
    for expected, actual in zip(each_real(plain), each_real(padded), strict=True):
        close(actual, expected)


# begin / step / select


def write(
    model: Generator, sources: Sequence[Sequence[int]], histories_RT: Tensor, room: int = 12
) -> tuple[list[Tensor], object]:
    """Step through the histories, one a row, from the sources alone; the logits of each step and the last state."""
    state = model.begin(tokens_of(sources), len(histories_RT) // len(sources), room)
    steps = []
    with torch.no_grad():
        for tokens_R in histories_RT.unbind(1):
            logits_RV, state = model.step(tokens_R, state)
            steps.append(logits_RV)
    return steps, state


def histories_of(rows: int, length: int, seed: int = 0) -> Tensor:
    """Different targets for each row, `<s>` first."""
    words = torch.randint(4, 11, (rows, length - 1), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.full((rows, 1), BEGIN), words], dim=1)


@every_causal_case
@pytest.mark.parametrize("rows", [1, 3])
def test_step_by_step_is_forward(case: str, rows: int) -> None:
    model = build(CASES[case])
    histories_RT = histories_of(len(SOURCES) * rows, 6)
    steps, _ = write(model, SOURCES, histories_RT)
    repeated = [source for source in SOURCES for _ in range(rows)]
    close(torch.stack(steps, 1), logits_of(model, batch_of(repeated, [[*row, END] for row in histories_RT.tolist()])))


SELECTIONS = {
    "reorder inside": [[1, 0], [3, 3], [4, 5], [7, 6]],
    "drop sources": [[3, 2], [7, 7]],
    "one row each": [[1], [2], [5], [6]],
    "more rows, fewer sources": [[1, 0, 1, 1], [5, 4, 4, 5]],
    "drop the first": [[3, 3], [4, 5], [7, 6]],
    "one row of one source": [[7]],
}


@every_causal_case
@pytest.mark.parametrize("selection", SELECTIONS)
def test_select_goes_on_as_if_written_from_scratch(case: str, selection: str) -> None:
    model = build(CASES[case])
    histories_RT = histories_of(2 * len(SOURCES), 3)
    _, state = write(model, SOURCES, histories_RT)
    rows_BW = torch.tensor(SELECTIONS[selection])
    rows_R, new_rows = rows_BW.flatten(), rows_BW.numel()
    state = state.select(rows_BW)  # type: ignore[attr-defined]
    going_on_RT = histories_of(new_rows, 4, seed=1)[:, 1:]
    whole_RT = torch.cat([histories_RT[rows_R], going_on_RT], dim=1)
    expected, _ = write(model, [SOURCES[row // 2] for row in rows_BW[:, 0].tolist()], whole_RT)
    with torch.no_grad():
        for step, tokens_R in enumerate(going_on_RT.unbind(1)):
            logits_RV, state = model.step(tokens_R, state)
            close(logits_RV, expected[histories_RT.shape[1] + step])
            # Turn every group round and go on from there: a select after a select.
            turned_BW = torch.arange(new_rows).view(rows_BW.shape).flip(1)
            state = state.select(turned_BW).select(turned_BW)


@every_causal_case
def test_selecting_before_the_first_step(case: str) -> None:
    model = build(CASES[case])
    state = model.begin(tokens_of(SOURCES), 1, 3).select(torch.tensor([[0, 0], [2, 2]]))
    with torch.no_grad():
        logits_RV, _ = model.step(torch.full((4,), BEGIN), state)
    expected, _ = write(model, [SOURCES[0], SOURCES[2]], torch.full((4, 1), BEGIN))
    close(logits_RV, expected[0])


# What depends on what


@every_causal_case
def test_nothing_leaks_from_the_future(case: str) -> None:
    model = build(CASES[case])
    target = [BEGIN, 4, 5, 6, 7, END]
    before = logits_of(model, batch_of([SOURCES[0]], [target]))[0]
    for changed in range(1, len(target) - 1):
        other = [*target[:changed], 10, *target[changed + 1 :]]
        after = logits_of(model, batch_of([SOURCES[0]], [other]))[0]
        close(after[:changed], before[:changed], 1e-13)
        moved_T = (after[changed:] - before[changed:]).abs().amax(-1)
        assert moved_T.min() > 1e-11, f"position {changed} does not reach everything after it"


def test_looking_ahead_leaks_from_the_future() -> None:
    model = build(CASES["transformer-look-ahead"])
    before, after = (logits_of(model, batch_of([SOURCES[0]], [[BEGIN, 4, 5, word, END]]))[0] for word in (6, 7))
    assert (after - before).abs().amax(-1).min() > 1e-6


@every_case
def test_every_source_token_matters_at_every_position(case: str) -> None:
    model = build(CASES[case])
    source = [5, 6, 7, 8, END]
    before = logits_of(model, batch_of([source], [TARGETS[0]]))[0]
    for changed in range(len(source)):
        other = [*source[:changed], 9, *source[changed + 1 :]]
        after = logits_of(model, batch_of([other], [TARGETS[0]]))[0]
        assert (after - before).abs().amax(-1).min() > 1e-11, f"source token {changed} is not seen everywhere"


@pytest.mark.parametrize(
    ("case", "knows_order"), [("transformer", True), ("transformer-learned", True), ("transformer-no-positions", False)]
)
def test_only_positions_tell_a_transformer_the_order_of_the_source(case: str, knows_order: bool) -> None:
    model = build(CASES[case])
    straight, turned = (
        logits_of(model, batch_of([source], [TARGETS[0]])) for source in ([4, 5, 6, END], [6, 4, 5, END])
    )
    assert torch.allclose(straight, turned, atol=1e-10) is not knows_order


def test_a_reversed_source_is_the_sentence_written_backwards() -> None:
    config = CASES["rnn-gru-reversed"]
    reversing, straight = build(config), build(config.model_copy(update={"reverse_source": False}))
    backwards = batch_of([source[::-1] for source in SOURCES])
    close(logits_of(reversing, batch_of()), logits_of(straight, backwards))


# Learning


@every_case
def test_every_parameter_gets_a_gradient(case: str) -> None:
    model = build(CASES[case])
    TokenCrossEntropy(model, smoothing=0.1).train()(batch_of())[0].backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without == []


# Without residual connections a deep stack hardly learns, which is what that ablation is there to show.
@pytest.mark.parametrize("case", [name for name in CASES if "no-residual" not in name])
def test_it_can_learn_one_batch_by_heart(case: str) -> None:
    objective = TokenCrossEntropy(build(CASES[case], dtype=torch.float32)).train()
    optimiser = torch.optim.Adam(objective.parameters(), lr=0.01)
    batch = batch_of()
    for _ in range(150):
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


@pytest.mark.parametrize("kind", sorted(SOURCE_KINDS))
def test_dropout_is_drawn_in_training_only(kind: str) -> None:
    small = next(config for config in CASES.values() if config.kind == kind)  # type: ignore[attr-defined]
    model, batch = build(small.model_copy(update={"dropout": 0.3})), batch_of()
    assert torch.equal(logits_of(model, batch), logits_of(model, batch))
    close(logits_of(model, batch), logits_of(build(small), batch))
    model.train()
    assert not torch.allclose(logits_of(model, batch), logits_of(model, batch))


# Saving


@every_case
def test_saved_and_loaded_gives_the_same_logits(case: str, tmp_path: Path) -> None:
    model, fresh = build(CASES[case], seed=1), build(CASES[case], seed=2)
    save_checkpoint(tmp_path / "step-1", Checkpoint(stored_weights(model), {}))
    put_weights(fresh, load_weights(tmp_path / "step-1"), tmp_path)
    assert torch.equal(logits_of(fresh, batch_of()), logits_of(model, batch_of()))


@pytest.mark.parametrize("case", TIED_CASES)
def test_tied_weights_are_stored_once_and_stay_tied(case: str, tmp_path: Path) -> None:
    model, fresh = build(CASES[case], seed=1), build(CASES[case], seed=2)
    stored = stored_weights(model)
    assert "output.linear.weight" not in stored
    assert ("target_embedding.weight" in stored) == (CASES[case].tie == "target")  # type: ignore[attr-defined]
    assert sum(tensor.numel() for tensor in stored.values()) == count_parameters(model)
    save_checkpoint(tmp_path / "step-1", Checkpoint(stored, {}))
    put_weights(fresh, load_weights(tmp_path / "step-1"), tmp_path)
    assert fresh.output.linear.weight is fresh.target_embedding.weight
    assert (fresh.source_embedding.weight is fresh.target_embedding.weight) == (CASES[case].tie == "all")  # type: ignore[attr-defined]


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    stored = stored_weights(build(CASES["transformer"]))
    for other in ("transformer-pre", "rnn-lstm"):
        with pytest.raises(CheckpointError, match="do not fit"):
            put_weights(build(CASES[other]), stored, tmp_path)
    short = {**stored, "output.linear.bias": stored["output.linear.bias"][:-1]}
    with pytest.raises(CheckpointError, match=r"output\.linear\.bias"):
        put_weights(build(CASES["transformer"]), short, tmp_path)


# Attention


def expected_names(case: str) -> set[str]:
    if case.startswith(("bahdanau", "luong")):
        return {"attention"}
    decoder = {f"decoder.{layer}.{kind}_attention" for layer in range(2) for kind in ("self", "cross")}
    return decoder | {f"encoder.{layer}.self_attention" for layer in range(2)}


@every_attending_case
def test_recorded_weights_are_a_distribution_over_what_may_be_seen(case: str) -> None:
    model, batch = build(CASES[case]), batch_of()
    with recording() as recorded:
        logits_of(model, batch)
    weights = recorded.by_name(model)
    assert set(weights) == expected_names(case)
    assert {name for name in weights if fnmatch(name, model.alignment)} == {
        name for name in weights if name == "attention" or name.endswith("cross_attention")
    }
    for name, weights_BHQK in weights.items():
        own = name.startswith("decoder") and name.endswith("self_attention")
        queries = SOURCES if name.startswith("encoder") else [target[:-1] for target in TARGETS]
        keys = [target[:-1] for target in TARGETS] if own else SOURCES
        for weights_HQK, query, key in zip(weights_BHQK, queries, keys, strict=True):
            real_HQK = weights_HQK[:, : len(query)]
            if "local-p" in case:
                assert real_HQK.sum(-1).max() < 1
            else:
                close(real_HQK.sum(-1), torch.ones_like(real_HQK[..., 0]))
            assert torch.all(real_HQK[..., len(key) :] == 0)
            assert torch.all(real_HQK[..., : len(key)] > 0) or own or "local" in case
            if own and case != "transformer-look-ahead":
                assert torch.all((real_HQK[..., : len(key)] > 0) == torch.ones(len(query), len(key)).tril().bool())


@every_attending_case
def test_recording_changes_no_output(case: str) -> None:
    model, batch = build(CASES[case]), batch_of()
    fast = logits_of(model, batch)
    with recording() as recorded:
        written_out = logits_of(model, batch)
    assert recorded.calls
    for expected, actual in zip(each_real(fast), each_real(written_out), strict=True):
        close(actual, expected)
    calls = len(recorded.calls)
    assert torch.equal(logits_of(model, batch), fast)
    assert len(recorded.calls) == calls, "recording went on after its end"


@pytest.mark.parametrize("case", [name for name in ATTENDING_CASES if name in CAUSAL_CASES])
def test_recording_step_by_step_gives_what_forward_gives(case: str) -> None:
    model, histories_RT = build(CASES[case]), histories_of(len(SOURCES), 4)
    with recording() as stepped:
        write(model, SOURCES, histories_RT)
    with recording() as at_once:
        logits_of(model, batch_of(SOURCES, [[*row, END] for row in histories_RT.tolist()]))
    expected = at_once.by_name(model)
    for name, weights_BHQK in stepped.by_name(model).items():
        close(weights_BHQK, expected[name])


def test_a_model_without_attention_has_none_to_show() -> None:
    model = build(CASES["rnn-lstm"])
    with recording() as recorded:
        logits_of(model, batch_of())
    assert recorded.by_name(model) == {}
    assert model.alignment == ""


# Positions beyond the table


def test_more_tokens_than_learned_positions_is_the_users_mistake() -> None:
    model = build(CASES["transformer-learned"])
    with pytest.raises(DecodeError, match="21 tokens, but the model learned 20 positions"):
        logits_of(model, batch_of([[5] * 20 + [END]], [TARGETS[0]]))


def test_waves_go_on_beyond_the_table() -> None:
    """Two models that differ in the table alone; and after validation without gradients, training goes on."""
    config = CASES["transformer"]
    short, long = (build(config.model_copy(update={"max_positions": size})) for size in (4, 100))
    histories_RT = histories_of(1, 30)
    batch = batch_of([[5] * 40 + [END]], [[*histories_RT[0].tolist(), END]])
    with torch.inference_mode():
        logits_of(short, batch)
    close(logits_of(short, batch), logits_of(long, batch))
    stepped, _ = write(short, [[5] * 40 + [END]], histories_RT, room=30)
    close(torch.stack(stepped, 1), logits_of(long, batch))
    assert TokenCrossEntropy(short).train()(batch)[0].requires_grad
