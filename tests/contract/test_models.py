"""The contract of every model, whatever its equations: parametrised over all kinds in MODELS and
their variants."""

import gc
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import model_cases
from contract_cases import CASES, ROWS, WRITERS, SourceCase, TextCase
from model_cases import SOURCES, TARGETS, TIED_CASES, batch_of, close, logits_of
from regard.engine import losses
from regard.layers.attention import recording
from regard.models import MODELS
from regard.models.base import Pooling, count_parameters, pool
from regard.objectives.cross_entropy import TokenCrossEntropy, VocabularyLoss
from regard.runs.checkpoints import load_weights, save_checkpoint
from regard.runs.weights import put_weights, stored_weights
from regard.text.vocabularies import BEGIN, END

FIRST_OF_KIND = {case.kind: name for name, case in reversed(CASES.items())}
"""One case for each kind."""
SOURCE_CASES = [name for name, case in CASES.items() if case.config.reads == "source"]
TEXT_CASES = [
    name
    for name, case in CASES.items()
    if isinstance(case, TextCase) and case.config.represents == "tokens"
]
RANDOM_CASES = [name for name, case in CASES.items() if case.kind != "ngram"]
"""Those that begin with random weights, and learn what they are shown: n-grams are counted."""
ATTENDING = [
    name
    for name, case in CASES.items()
    if case.config.alignment or (case.config.reads == "text" and case.config.attends)
]
every_case = pytest.mark.parametrize("name", CASES)
every_source_case = pytest.mark.parametrize("name", SOURCE_CASES)
every_writer = pytest.mark.parametrize("name", WRITERS)
every_attending_case = pytest.mark.parametrize("name", ATTENDING)


def test_the_cases_cover_every_kind() -> None:
    assert set(FIRST_OF_KIND) == set(MODELS)
    generating = {kind for kind, model in MODELS.items() if model.config.generates}
    assert {case.kind for case in WRITERS.values()} == generating


# Padding and neighbours


@every_case
def test_neither_padding_nor_neighbours_change_an_output(name: str) -> None:
    case = CASES[name]
    model = case.build()
    together = case.outputs(model, case.batch())
    padded = case.outputs(model, case.batch(extra=3, filler=9))
    for row, expected, actual in zip(ROWS, together, padded, strict=True):
        close(actual, expected)
        close(case.outputs(model, case.batch([row]), [row])[0], expected)


@pytest.mark.parametrize("name", TEXT_CASES)
def test_every_layer_of_a_text_ignores_padding_and_neighbours(name: str) -> None:
    case = CASES[name]
    model, batch = case.build(), case.batch(extra=3, filler=9)
    layers = model.layers_of(batch)
    assert len(layers) == model.depth + 1
    for layer, x_BLD in enumerate(layers):
        pooled = {pooling: pool(x_BLD, batch.text, pooling) for pooling in get_args(Pooling)}
        for row, length in enumerate(batch.text.lengths_B.tolist()):
            close(model.layers_of(case.batch([row]))[layer][0], x_BLD[row, :length])
            mean = [
                sum(column) / length for column in zip(*x_BLD[row, :length].tolist(), strict=True)
            ]
            assert pooled["mean"][row].tolist() == pytest.approx(mean)
            assert torch.equal(pooled["last"][row], x_BLD[row, length - 1])
        assert torch.equal(pooled["first"], x_BLD[:, 0])


# The loss


@every_case
def test_the_loss_of_a_batch_is_the_sum_over_its_examples(name: str) -> None:
    """Up to what is not part of the plain loss: BERT's next sentence, a captioner's penalty."""
    case = CASES[name]
    objective = case.objective(case.build(), 0.1)
    parts = [objective(case.batch([row])) for row in ROWS]
    close(torch.stack(parts).sum(0)[1], objective(case.batch(extra=2, filler=9))[1])


@pytest.mark.parametrize("name", [*TIED_CASES, *TEXT_CASES])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_loss_in_parts_is_the_loss(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    objective = case.objective(case.build(), 0.1)
    assert isinstance(objective, VocabularyLoss)
    objective.training = True  # the objective smooths, but the model has no dropout

    def loss_and_gradients() -> list[Tensor]:
        objective.zero_grad()
        loss_2 = objective(case.batch())
        (0.25 * loss_2[0]).backward()
        return [
            loss_2.detach(),
            *(p.grad.clone() for p in objective.parameters() if p.grad is not None),
        ]

    whole = loss_and_gradients()
    vocabulary = max(parameter.shape[0] for parameter in objective.model.output.parameters())
    monkeypatch.setattr(losses, "MAX_LOGITS_ON_CPU", rows * vocabulary)
    for actual, expected in zip(loss_and_gradients(), whole, strict=True):
        close(actual, expected, 1e-9)
    with torch.no_grad():
        close(objective(case.batch()), whole[0], 1e-9)


# Learning


@every_case
def test_every_parameter_gets_a_gradient(name: str) -> None:
    case = CASES[name]
    model = case.build()
    case.objective(model, 0.1).train()(case.batch())[0].backward()
    without = [
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0
    ]
    assert without == []


# Without residual connections a deep stack hardly learns, which is what that ablation shows.
@pytest.mark.parametrize("name", [name for name in RANDOM_CASES if "no-residual" not in name])
def test_it_can_overfit_one_batch(name: str) -> None:
    case = CASES[name]
    objective = case.objective(case.build(dtype=torch.float32)).train()
    optimiser, batch = torch.optim.Adam(objective.parameters(), lr=0.015), case.distinct_batch()
    for _ in range(250):
        optimiser.zero_grad()
        loss_2 = objective(batch) / batch.tokens
        loss_2[0].backward()
        optimiser.step()
        if loss_2[1] < 0.25:
            return
    pytest.fail(f"the loss of one batch stays at {loss_2[1]:.3f}")


@pytest.mark.parametrize("name", RANDOM_CASES)
def test_same_seed_same_weights(name: str) -> None:
    first, same, other = (CASES[name].build(seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    "kind", [kind for kind in MODELS if "dropout" in MODELS[kind].config.model_fields]
)
def test_dropout_is_active_in_training_only(kind: str) -> None:
    case = CASES[FIRST_OF_KIND[kind]]
    model, batch = case.build(dropout=0.3), case.batch()
    expected = case.outputs(case.build(), batch)
    for first, second, plain in zip(
        case.outputs(model, batch), case.outputs(model, batch), expected, strict=True
    ):
        assert torch.equal(first, second)
        close(first, plain)
    model.train()
    assert not torch.allclose(case.outputs(model, batch)[0], case.outputs(model, batch)[0])


def new_tensors(step: Callable[[], Tensor]) -> int:
    """How many more tensors there are after some steps than after the first, without the garbage
    collector."""
    live = lambda: sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())  # noqa: E731
    gc.disable()
    # what there is already is not counted, which takes a second where other tests have left much
    gc.freeze()
    try:
        step().backward()
        before = live()
        for _ in range(3):
            step().backward()
        return live() - before
    finally:
        gc.unfreeze()
        gc.enable()


@every_case
def test_a_training_step_leaks_no_tensor(name: str) -> None:
    """A graph and its tensors that refer to each other would never be freed."""
    case = CASES[name]
    objective, batch = case.objective(case.build(dtype=torch.float32), 0.1), case.batch()
    assert new_tensors(lambda: objective(batch)[0]) == 0


# Saving


@every_case
def test_saved_and_loaded_gives_the_same_outputs(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model, other, batch = case.build(seed=1), case.build(seed=2), case.batch()
    save_checkpoint(tmp_path / "step-1", stored_weights(model), {"tokenizer": ""})
    put_weights(other, load_weights(tmp_path / "step-1"), tmp_path)
    for loaded, saved in zip(case.outputs(other, batch), case.outputs(model, batch), strict=True):
        assert torch.equal(loaded, saved)
    assert torch.equal(case.objective(other)(batch), case.objective(model)(batch))


@pytest.mark.parametrize("name", TIED_CASES)
def test_tied_weights_are_stored_once_and_stay_tied(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model, other, tie = case.build(seed=1), case.build(seed=2), case.config.tie  # type: ignore[attr-defined]
    stored = stored_weights(model)
    assert "output.linear.weight" not in stored
    assert ("target_embedding.weight" in stored) == (tie == "target")
    assert sum(tensor.numel() for tensor in stored.values()) == count_parameters(model)
    save_checkpoint(tmp_path / "step-1", stored, {"tokenizer": ""})
    put_weights(other, load_weights(tmp_path / "step-1"), tmp_path)
    assert other.output.linear.weight is other.target_embedding.weight
    assert (other.source_embedding.weight is other.target_embedding.weight) == (tie == "all")


# begin / step / select


def write(
    case: SourceCase,
    model: Any,
    sources: Sequence[int],
    outputs_RT: Tensor,
    *,
    room: int = 12,
    extra: int = 0,
) -> tuple[Tensor, Any]:
    """Write the outputs, one per row, step by step: the logits [R, T + 1, V] of each step, and the
    last state."""
    rows = len(outputs_RT)
    with torch.no_grad():
        state = model.begin(case.sources(sources, extra), rows // len(sources), room)
        logits_RV, state = model.step(torch.full((rows,), BEGIN), state)
        steps = [logits_RV]
        for tokens_R in outputs_RT.unbind(1):
            logits_RV, state = model.step(tokens_R, state)
            steps.append(logits_RV)
    return torch.stack(steps, 1), state


def forward(case: SourceCase, model: Any, sources: Sequence[int], outputs_RT: Tensor) -> Tensor:
    """The same logits from forward passes over whole sequences, one by one."""
    rows, found = len(outputs_RT) // len(sources), []
    for number, ids in enumerate(outputs_RT.tolist()):
        source = sources[number // rows]
        logits_BTV = logits_of(model, case.continued([(source, [*ids, END])]))
        found.append(logits_BTV[0, case.before(source) :])
    return torch.stack(found)


def random_outputs(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(4, 11, (rows, length), generator=torch.Generator().manual_seed(seed))


@every_writer
@pytest.mark.parametrize(("rows", "extra"), [(1, 0), (3, 3)])
def test_step_by_step_is_forward(name: str, rows: int, extra: int) -> None:
    case = WRITERS[name]
    model, sources, outputs_RT = case.build(), range(4), random_outputs(4 * rows, 5)
    stepped, _ = write(case, model, sources, outputs_RT, extra=extra)
    close(stepped, forward(case, model, sources, outputs_RT))


SELECTIONS = {
    "reorder inside": [[1, 0], [3, 3], [4, 5], [7, 6]],
    "drop sources": [[3, 2], [7, 7]],
    "one row each": [[1], [2], [5], [6]],
    "more rows, fewer sources": [[1, 0, 1, 1], [5, 4, 4, 5]],
}


@every_writer
@pytest.mark.parametrize("written", [0, 2])
def test_select_continues_as_if_written_from_scratch(name: str, written: int) -> None:
    case, before_RT = WRITERS[name], random_outputs(8, written)
    model = case.build()
    for rows_BW in map(torch.tensor, SELECTIONS.values()):
        after_RT = random_outputs(rows_BW.numel(), 3, seed=1)
        whole_RT = torch.cat([before_RT[rows_BW.flatten()], after_RT], dim=1)
        expected, _ = write(case, model, [row // 2 for row in rows_BW[:, 0].tolist()], whole_RT)
        state = write(case, model, range(4), before_RT)[1].select(rows_BW)
        turned_BW = torch.arange(rows_BW.numel()).view(rows_BW.shape).flip(1)
        with torch.no_grad():
            for step, tokens_R in enumerate(after_RT.unbind(1), written + 1):
                logits_RV, state = model.step(tokens_R, state)
                close(logits_RV, expected[:, step])
                state = state.select(turned_BW).select(turned_BW)  # turn every group round and back


@every_writer
def test_select_before_the_first_step(name: str) -> None:
    case = WRITERS[name]
    model = case.build()
    state = model.begin(case.sources(range(4)), 1, 3).select(torch.tensor([[0, 0], [2, 2]]))
    with torch.no_grad():
        logits_RV, _ = model.step(torch.full((4,), BEGIN), state)
    close(logits_RV[:, None], write(case, model, [0, 2], torch.empty(4, 0, dtype=torch.long))[0])


# What depends on what


@every_writer
def test_nothing_leaks_from_the_future(name: str) -> None:
    case = WRITERS[name]
    model, ids = case.build(), [4, 5, 6, 7, END]
    before = logits_of(model, case.continued([(0, ids)]))[0, case.before(0) :]
    for changed in range(len(ids) - 1):
        other = [*ids[:changed], 10, *ids[changed + 1 :]]
        after = logits_of(model, case.continued([(0, other)]))[0, case.before(0) :]
        close(after[: changed + 1], before[: changed + 1], 1e-13)
        moved_T = (after[changed + 1 :] - before[changed + 1 :]).abs().amax(-1)
        if not case.config.local:
            assert moved_T.min() > 1e-11, f"token {changed} does not reach everything after it"


@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_looking_ahead_leaks_from_the_future(name: str) -> None:
    case = WRITERS[name]
    model, batches = (
        case.build(look_ahead=True),
        [case.continued([(0, [4, 5, word, END])]) for word in (6, 7)],
    )
    before, after = (logits_of(model, batch)[0] for batch in batches)
    assert (after - before).abs().amax(-1).min() > 1e-6
    if name == "gpt":
        before, after = (model.layers_of(batch)[-1][0] for batch in batches)
        assert (after - before).abs().amax(-1).min() > 1e-6


@every_source_case
def test_every_source_token_matters_at_every_position(name: str) -> None:
    model, source = CASES[name].build(), [5, 6, 7, 8, END]
    before = logits_of(model, batch_of([source], [TARGETS[0]]))[0]
    for changed in range(len(source)):
        other = [*source[:changed], 9, *source[changed + 1 :]]
        after = logits_of(model, batch_of([other], [TARGETS[0]]))[0]
        assert (after - before).abs().amax(-1).min() > 1e-11, (
            f"source token {changed} is not seen everywhere"
        )


@pytest.mark.parametrize(
    ("name", "knows_order"),
    [("transformer", True), ("transformer-learned", True), ("transformer-no-positions", False)],
)
def test_a_transformer_knows_the_order_of_the_source_only_from_positions(
    name: str, knows_order: bool
) -> None:
    model = CASES[name].build()
    sources = ([4, 5, 6, END], [6, 4, 5, END])
    straight, turned = (logits_of(model, batch_of([source], [TARGETS[0]])) for source in sources)
    assert torch.allclose(straight, turned, atol=1e-10) is not knows_order


def test_a_reversed_source_is_the_sentence_written_backwards() -> None:
    case = CASES["rnn-gru-reversed"]
    backwards = batch_of([source[::-1] for source in SOURCES])
    close(
        logits_of(case.build(), batch_of()), logits_of(case.build(reverse_source=False), backwards)
    )


# Attention


def attended(name: str, attention: str) -> tuple[list[int], list[int], bool]:
    """The real queries and keys of an attention in each row of a case's batch, and whether it is
    causal."""
    case = CASES[name]
    sources = case.batch().source.host_lengths_B.tolist() if case.config.reads != "text" else []
    targets = [case.length(row) for row in ROWS]
    if attention.startswith("encoder"):
        return sources, sources, False
    if attention.endswith("self_attention"):
        return targets, targets, case.config.generates and name != "transformer-look-ahead"
    return targets, sources, False


@every_attending_case
def test_attention_weights_are_distributions_over_visible_keys(name: str) -> None:
    case = CASES[name]
    model = case.build()
    with recording() as recorded:
        case.outputs(model, case.batch(extra=2))
    weights, visible, alignments = (
        recorded.by_name(model),
        recorded.by_name(model, visible=True),
        set(),
    )
    assert weights
    for attention, weights_BHQK in weights.items():
        queries, keys, causal = attended(name, attention)
        alignments |= (
            {attention}
            if attention == "attention" or attention.endswith("cross_attention")
            else set()
        )
        for weights_HQK, visible_1QK, query, key in zip(
            weights_BHQK, visible[attention], queries, keys, strict=True
        ):
            real_HQK, visible_QK = weights_HQK[:, :query], visible_1QK[0, :query]
            if "local-p" in name:
                assert real_HQK.sum(-1).max() < 1
            else:
                close(real_HQK.sum(-1), torch.ones_like(real_HQK[..., 0]))
            assert not real_HQK[:, ~visible_QK].any()
            assert not visible_QK[:, key:].any()
            if "local" not in name:
                assert (real_HQK[:, visible_QK] > 0).all()
                local = name == "modernbert" and attention.startswith("blocks.1.")
                near = case.config.window // 2 if local else max(query, key)
                seen_QK = torch.ones(query, key).tril(0 if causal else near).triu(-near)
                assert visible_QK[:, :key].tolist() == seen_QK.bool().tolist()
    assert {
        attention for attention in weights if fnmatch(attention, case.config.alignment)
    } == alignments


@every_attending_case
def test_recording_changes_no_output(name: str) -> None:
    case = CASES[name]
    model, batch = case.build(), case.batch(extra=2)
    fast = case.outputs(model, batch)
    with recording() as recorded:
        written_out = case.outputs(model, batch)
    assert recorded.calls
    for expected, actual in zip(fast, written_out, strict=True):
        close(actual, expected)


@pytest.mark.parametrize(
    "name", [name for name in ATTENDING if name in WRITERS and CASES[name].config.alignment]
)
def test_recording_step_by_step_gives_what_forward_gives(name: str) -> None:
    case, outputs_RT = WRITERS[name], random_outputs(4, 3)
    model = case.build()
    with recording() as stepped:
        write(case, model, range(4), outputs_RT)
    with recording() as at_once:
        logits_of(
            model,
            case.continued([(row, [*ids, END]) for row, ids in enumerate(outputs_RT.tolist())]),
        )
    expected = at_once.by_name(model)
    for attention, weights_BHQK in stepped.by_name(model).items():
        close(weights_BHQK, expected[attention])


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(("transformer", "gpt", "bert"))]
)
def test_packed_equals_padded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    model, batch = case.build(), case.batch(extra=2, filler=9)
    with torch.no_grad(), recording():
        padded = model(batch).hidden_BTD
    monkeypatch.setattr("regard.engine.packing.has_packed_kernel", lambda *_: True)
    monkeypatch.setattr("regard.engine.attention.has_packed_kernel", lambda *_: False)
    packed = model(batch).hidden_BTD
    for row in ROWS:
        close(packed[row, : case.length(row)], padded[row, : case.length(row)], 1e-12)
        assert not packed[row, case.length(row) :].any()


# Positions beyond the table


def test_sinusoidal_positions_continue_beyond_the_table() -> None:
    """Two models that differ in the table alone; and after validation without gradients, training
    continues."""
    case, long = WRITERS["transformer"], [5] * 40 + [END]
    small, large = (case.build(max_positions=size) for size in (4, 100))
    outputs_RT = random_outputs(1, 29)
    batch = batch_of([long], [[BEGIN, *outputs_RT[0].tolist(), END]])
    with torch.inference_mode():
        logits_of(small, batch)
    close(logits_of(small, batch), logits_of(large, batch))
    state, steps = small.begin(model_cases.tokens_of([long]), 1, 30), []
    with torch.no_grad():
        for token in (BEGIN, *outputs_RT[0].tolist()):
            logits_RV, state = small.step(torch.tensor([token]), state)
            steps.append(logits_RV)
    close(torch.stack(steps, 1), logits_of(large, batch))
    assert TokenCrossEntropy(small).train()(batch)[0].requires_grad
