"""Token cross-entropy and scheduled sampling."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import plain
from contract_cases import ROWS, WRITERS
from language_model_cases import TEXTS
from model_cases import CASES, SOURCES, TARGETS, batch_of, build, each_real, logits_of
from regard.data.batches import Batch
from regard.engine import losses
from regard.objectives.cross_entropy import TokenCrossEntropy, scheduled_sample
from regard.text.vocabularies import BEGIN, END

ONE_OF_EACH = [
    "rnn-lstm",
    "bahdanau-gru",
    "luong-fed-local-p",
    "self-attention-plain",
    "transformer",
]


def plain_loss(
    logits: Sequence[Tensor], targets: Sequence[Sequence[int]] = TARGETS, epsilon: float = 0.0
) -> float:
    pairs = zip(logits, targets, strict=True)
    return math.fsum(
        plain.smoothed_loss(logits_TV.tolist(), target[1:], epsilon) for logits_TV, target in pairs
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    "name", [*ONE_OF_EACH, *(name for name in WRITERS if name.startswith(("lstm_lm", "gpt")))]
)
def test_the_loss_in_plain_loops(name: str, smoothing: float) -> None:
    case = WRITERS[name]
    model, batch, targets = (
        case.build(),
        case.batch(extra=2, filler=7),
        TARGETS if name in CASES else TEXTS,
    )
    logits, objective = case.outputs(model, batch), case.objective(model, smoothing)
    smoothed, expected = (
        plain_loss(logits, targets[: len(ROWS)], epsilon) for epsilon in (smoothing, 0.0)
    )
    assert objective.train()(batch).tolist() == pytest.approx([smoothed, expected], rel=1e-10)
    assert objective.eval()(batch).tolist() == pytest.approx([expected] * 2, rel=1e-10)


def test_the_loss_of_low_precision_logits_is_summed_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the logits that the loss read: others, from products of another shape, round differently."""
    model, logits = build(CASES["rnn-lstm"], dtype=torch.bfloat16), list[Tensor]()
    readout = model.readout

    def recorded(hidden_PD: Tensor) -> Tensor:
        logits.append(readout(hidden_PD))
        return logits[-1]

    monkeypatch.setattr(model, "readout", recorded)
    loss = TokenCrossEntropy(model).eval()(batch_of())
    assert loss.dtype == torch.float32
    [logits_PV] = logits
    labels_P = torch.tensor([token for target in TARGETS for token in target[1:]])
    expected = cross_entropy(logits_PV.double(), labels_P, reduction="sum").item()
    assert loss[0].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.engine
def test_no_more_logits_than_allowed_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(CASES["rnn-lstm"])
    objective, seen = TokenCrossEntropy(model).train(), []
    readout = model.readout
    monkeypatch.setattr(
        model, "readout", lambda hidden: seen.append(len(hidden)) or readout(hidden)
    )
    vocabulary = model.output.linear.weight.shape[0]
    monkeypatch.setattr(losses, "MAX_LOGITS_ON_CPU", 2 * vocabulary)
    objective(batch_of(SOURCES, TARGETS))[0].backward()
    assert max(seen) == 2
    assert sum(seen) == batch_of(SOURCES, TARGETS).tokens


# Scheduled sampling


def own_words(batch: Batch, case: str) -> Tensor:
    """What the model would write after each reference word."""
    return logits_of(build(CASES[case]), batch).argmax(-1)


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_teacher_forcing_reads_the_reference_and_none_the_models_own_words(case: str) -> None:
    batch = batch_of(extra=2, filler=9)
    assert torch.equal(
        scheduled_sample(build(CASES[case]), batch, 1.0).target.ids_BL, batch.target.ids_BL
    )
    mixed = scheduled_sample(build(CASES[case]), batch, 0.0)
    own_BT = own_words(batch, case)
    for b, target in enumerate(TARGETS):
        last = len(target) - 1
        read = mixed.target.ids_BL[b].tolist()
        assert read[0] == BEGIN
        assert read[1:last] == own_BT[b, : last - 1].tolist()
        assert read[last:] == batch.target.ids_BL[b, last:].tolist(), "the end and the padding stay"
    assert torch.equal(mixed.target.lengths_B, batch.target.lengths_B)
    assert mixed.source is batch.source
    assert mixed.tokens == batch.tokens


@pytest.mark.parametrize("teacher_forcing", [0.8, 0.3])
def test_the_share_of_own_words_is_what_was_asked(teacher_forcing: float) -> None:
    torch.manual_seed(0)
    words = torch.randint(4, 11, (100, 20)).tolist()
    batch = batch_of([SOURCES[0]] * 100, [[BEGIN, *sentence, END] for sentence in words])
    differs_BT = own_words(batch, "transformer")[:, :-1] != batch.target.ids_BL[:, 1:-1]
    mixed = scheduled_sample(build(CASES["transformer"]), batch, teacher_forcing)
    replaced_BT = mixed.target.ids_BL[:, 1:-1] != batch.target.ids_BL[:, 1:-1]
    assert torch.all(differs_BT | ~replaced_BT)
    chances, share = int(differs_BT.sum()), 1 - teacher_forcing
    assert chances > 1000
    assert abs(int(replaced_BT.sum()) - share * chances) < 4 * math.sqrt(
        chances * share * (1 - share)
    )
    by_position_T = replaced_BT.sum(0)
    assert by_position_T.min() > 0, "every position takes part"


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_the_loss_is_that_of_the_reference_after_mixed_words(case: str) -> None:
    batch = batch_of()
    model = build(CASES[case])
    objective = TokenCrossEntropy(model, teacher_forcing=0.0).train()
    read = scheduled_sample(model, batch, 0.0)
    assert not torch.equal(read.target.ids_BL, batch.target.ids_BL)
    assert objective(batch)[0].item() == pytest.approx(
        plain_loss(each_real(logits_of(model, read))), rel=1e-10
    )
    forced = TokenCrossEntropy(model).eval()(batch)[0].item()
    assert objective.eval()(batch)[0].item() == pytest.approx(forced), (
        "validation always reads the reference"
    )
