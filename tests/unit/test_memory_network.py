"""The memory network against the paper's equations in plain loops, and what its restarts
promise."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import plain
from model_cases import close
from regard.data.batches import StoryBatch
from regard.models.memory_network import MemoryNetwork, MemoryNetworkConfig
from regard.objectives.labels import AnswerCrossEntropy
from regard.tasks.story_answering import with_time_gaps

V = 11
CASES: list[dict[str, Any]] = [
    {"hops": 1},
    {"hops": 3},
    {"hops": 3, "tie": "layer_wise"},
    {"hops": 2, "words": "bag"},
    {"hops": 2, "temporal": False},
    {"hops": 6, "restarts": 3},
    {"hops": 2, "tie": "layer_wise", "restarts": 2, "words": "bag"},
]


def model_of(**fields: Any) -> MemoryNetwork:
    torch.manual_seed(3)
    config = MemoryNetworkConfig(kind="memory_network", width=5, sentences=6, **fields)
    model = MemoryNetwork(config, V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)  # so that the softmax is far from flat
    return model


def batch_of(linear: bool = False) -> StoryBatch:
    story = [[[4, 5, 6], [7, 5, 8], [4, 9, 0]], [[10, 5, 0], [0, 0, 0], [0, 0, 0]]]
    times, question, answers = [[4, 2, 1], [1, 0, 0]], [[6, 4], [9, 0]], [7, 10]
    return StoryBatch(
        *map(torch.tensor, (story, times, question, answers)), linear=linear, tokens=2
    )


def plain_answer(
    model: MemoryNetwork, batch: StoryBatch, b: int, i: int
) -> tuple[list[float], list[list[float]]]:
    """Logits and the weights of each hop, written out as the paper does; tying is spelt out once
    more here."""
    config, d, K = model.config, model.config.width, model.config.hops
    tables = {name: table[:, i].tolist() for name, table in model.tables.items()}
    times = {name: table[:, i].tolist() for name, table in model.times.items()}
    if config.tie == "adjacent":
        A = ["A1", *(f"C{hop}" for hop in range(1, K))]
        C, B, W = [f"C{hop}" for hop in range(1, K + 1)], "A1", f"C{K}"
    else:
        A, C, B, W = ["A"] * K, ["C"] * K, "B", "W"

    def vector(table: str, words: list[int]) -> list[float]:
        words = [word for word in words if word != 0]
        total = [0.0] * d
        for j, word in enumerate(words, 1):
            for k in range(1, d + 1):
                weight = 2 * ((1 - j / len(words)) - (k / d) * (1 - 2 * j / len(words)))
                total[k - 1] += tables[table][word][k - 1] * (
                    1 if config.words == "bag" else weight
                )
        return total

    def memory(table: str, words: list[int], time: int) -> list[float]:
        sentence = vector(table, words)
        return plain.add(sentence, times[table][time - 1]) if config.temporal else sentence

    sentences = zip(batch.story_BSL[b].tolist(), batch.times_BS[b].tolist(), strict=True)
    story = [(words, time) for words, time in sentences if time > 0]
    u, weights = vector(B, batch.question_BL[b].tolist()), []
    for hop in range(K):
        scores = [plain.dot(u, memory(A[hop], *sentence)) for sentence in story]
        empty = [0.0] * (config.sentences - len(story))
        p = scores if batch.linear else plain.softmax(scores + empty)[: len(story)]
        o = plain.average(p, [memory(C[hop], *sentence) for sentence in story])
        u = plain.add(o, u if model.H_DID is None else plain.linear(u, model.H_DID[:, i].tolist()))
        weights.append(p)
    return plain.linear(u, tables[W]), weights


@pytest.mark.parametrize("fields", CASES, ids=str)
@pytest.mark.parametrize("linear", [False, True], ids=["softmax", "linear start"])
def test_equations_in_plain_loops(fields: dict[str, Any], linear: bool) -> None:
    model, batch = model_of(**fields).double(), batch_of(linear)
    answered = model(batch)
    for b in range(2):
        for i in range(model.config.restarts):
            logits, looks = plain_answer(model, batch, b, i)
            close(
                answered.logits_BIV[b, i], logits, 1e-5
            )  # the position weights are single precision
            for hop, p in enumerate(looks):
                close(answered.p_NBIS[hop, b, i], [*p, *[0.0] * (3 - len(p))], 1e-5)


def alone(model: MemoryNetwork, i: int) -> MemoryNetwork:
    """One restart as a model of its own."""
    single, weights = (
        MemoryNetwork(model.config.model_copy(update={"restarts": 1}), V),
        model.state_dict(),
    )
    single.load_state_dict(
        {name: one[:, i : i + 1] if one.ndim else one for name, one in weights.items()}
    )
    return single


def trained(model: MemoryNetwork, steps: int, limit: float) -> MemoryNetwork:
    optimiser = torch.optim.SGD(model.parameters(), 0.3)
    for _ in range(steps):
        optimiser.zero_grad()
        (AnswerCrossEntropy(model)(batch_of())[0] / 2).backward()
        model.clip_gradients(limit)
        optimiser.step()
    return model


def test_restarts_side_by_side_are_the_same_trainings_as_alone() -> None:
    """Neither the loss nor the clipping lets one restart touch another."""
    model = model_of(restarts=3)
    singles = [trained(alone(model, i), 8, 0.5) for i in range(3)]
    trained(model, 8, 0.5)
    for i, single in enumerate(singles):
        for name, tensor in single.state_dict().items():
            torch.testing.assert_close(alone(model, i).state_dict()[name], tensor, msg=name)


def test_clipping_shortens_each_restart_to_the_limit() -> None:
    model = model_of(restarts=3)
    AnswerCrossEntropy(model)(batch_of())[0].backward()

    def norms() -> Tensor:
        squares = [p.grad.square().sum((0, 2)) for p in model.parameters() if p.grad is not None]
        return torch.stack(squares).sum(0).sqrt()

    before = norms()
    limit = float(before.median())
    model.clip_gradients(limit)
    torch.testing.assert_close(norms(), before.clamp(max=limit))


def test_the_loss_is_the_mean_over_restarts() -> None:
    """The gradient of the sum is what test_restarts_side_by_side_are_the_same_trainings_as_alone
    needs."""
    model, batch = model_of(restarts=2), batch_of()
    logits_PV = model(batch).logits_BIV.flatten(0, 1).tolist()
    expected = [
        plain.smoothed_loss(logits_PV, [7, 7, 10, 10], epsilon) / 2 for epsilon in (0.2, 0.0)
    ]
    assert AnswerCrossEntropy(model, smoothing=0.2)(batch).tolist() == pytest.approx(
        expected, rel=1e-5
    )


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.floats(0.05, 1.0),
    st.integers(0, 2**32),
)
def test_empty_memories_keep_the_order_and_their_number(
    counts: list[int], share: float, seed: int
) -> None:
    times_BS = np.array(
        [[max(count - place, 0) for place in range(max(counts))] for count in counts]
    )
    found = with_time_gaps(times_BS, share, np.random.PCG64(seed))
    assert ((found == 0) == (times_BS == 0)).all()
    for row, count in zip(found, counts, strict=True):
        told = row[:count]
        assert (np.diff(told) < 0).all()
        assert told[-1] >= 1
        assert told[0] <= count + math.ceil(count * share)


def test_empty_memories_are_put_everywhere() -> None:
    """One gap among nine sentences: each of the ten places is as likely, within five standard
    deviations."""
    times_BS = np.tile(np.arange(9, 0, -1), (10_000, 1))
    found = with_time_gaps(times_BS, 0.1, np.random.PCG64(1))
    shifted = (found - times_BS).sum(axis=1)
    shares = np.bincount(shifted, minlength=10) / 10_000
    assert np.abs(shares - 0.1).max() < 5 * math.sqrt(0.1 * 0.9 / 10_000)
