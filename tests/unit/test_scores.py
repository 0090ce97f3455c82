"""Bahdanau's and Luong's scores, Luong's windows and his decoder, against the same equations in
plain loops."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import plain
from model_cases import CASES, SOURCES, TARGETS, batch_of, build, close, logits_of, randn, tokens_of
from regard.layers.attention import recording
from regard.layers.scores import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    Focus,
    FullyConnectedAttention,
    GeneralAttention,
    Memory,
    ScoredAttention,
)
from regard.models.luong import Luong, MonotonicWindow, PredictiveWindow
from regard.text.vocabularies import BEGIN, END


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


ATTENTIONS = {
    "additive": lambda: AdditiveAttention(3, 4, 5),
    "concat": lambda: ConcatAttention(3, 4, 5),
    "fully_connected": lambda: FullyConnectedAttention(3, 4, 5),
    "general": lambda: GeneralAttention(3, 4),
    "dot": lambda: DotAttention(),
    "scaled_dot": lambda: DotAttention(scaled=True),
}


@pytest.mark.parametrize("score", ATTENTIONS)
def test_a_score(score: str) -> None:
    attention: ScoredAttention = ATTENTIONS[score]().double()
    query_width = 4 if "dot" in score else 3
    s_BQD, h_BSD, lengths = randn(2, 2, query_width), randn(2, 4, 4), [4, 2]
    with recording() as recorded:
        c_BQD = attention(s_BQD, attention.memory(h_BSD, torch.tensor(lengths)))
    ((owner, alpha_BHQS, _),) = recorded.calls
    assert owner is attention
    for b, length in enumerate(lengths):
        for i in range(2):
            seen = h_BSD[b, :length].tolist()
            alpha, c = plain.scored_attention(
                score, plain.lists_of(attention), s_BQD[b, i].tolist(), seen
            )
            close(alpha_BHQS[b, 0, i], [*alpha, *[0.0] * (4 - length)])
            close(c_BQD[b, i], c)


# Windows


def memory_of(*lengths: int) -> Memory:
    return DotAttention().memory(randn(len(lengths), max(lengths), 3), torch.tensor(lengths))


def near(focus: Focus, sentence: int) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in focus.near_BQS[sentence]]


def test_a_monotonic_window_walks_along_the_source_and_waits_at_its_end() -> None:
    focus = MonotonicWindow(2)(randn(2, 9, 3), torch.arange(9), memory_of(5, 2))
    assert focus.factor_BQS is None
    inside, waiting = (
        [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 2, 3, 4], [2, 3, 4], [3, 4], [4]],
        [[4], [4]],
    )
    assert near(focus, 0) == inside + waiting
    # The second source has two words; what is near beyond them is padding, which the attention does
    # not see.
    assert [[s for s in row if s < 2] for row in near(focus, 1)] == [
        [0, 1],
        [0, 1],
        [0, 1],
        *[[1]] * 6,
    ]


@pytest.mark.parametrize(
    ("place", "p", "inside"),
    [
        (-50.0, 0.0, [0, 1, 2]),
        (0.0, 2.0, [0, 1, 2, 3]),
        (50.0, 4.0, [2, 3]),
    ],
)
def test_a_predictive_window_by_hand(place: float, p: float, inside: list[int]) -> None:
    """Of a source of 4 words: its beginning, its middle, and just behind its last word. sigma = 2 /
    2."""
    window = PredictiveWindow(3, 2).double()
    with torch.no_grad():
        window.W_p.weight.copy_(torch.eye(3))
        window.v_p.weight.copy_(torch.tensor([[place / math.tanh(1.0), 0.0, 0.0]]))
    focus = window(torch.ones(1, 1, 3, dtype=torch.float64), torch.tensor([7]), memory_of(4))
    assert near(focus, 0) == [inside]
    expected = [math.exp(-((s - p) ** 2) / 2) for s in range(4)]
    assert focus.factor_BQS is not None
    close(focus.factor_BQS[0, 0], expected)


def test_a_predicted_place_is_not_rounded_to_half_precision() -> None:
    window = PredictiveWindow(3, 2).bfloat16()
    focus = window(torch.randn(1, 6, 3, dtype=torch.bfloat16), torch.arange(6), memory_of(300))
    assert focus.factor_BQS is not None
    assert focus.factor_BQS.dtype == torch.float32


# The decoder


def cell_weights(model: Luong, layer: int) -> plain.Weights:
    """A layer's parameters, by the names that the cell alone would give them."""
    weights = plain.lists_of(model.decoder)
    of_cell = f"rest.{layer - 1}." if layer else "first."
    if model.config.input_feeding:
        return {
            name.removeprefix(of_cell): value
            for name, value in weights.items()
            if name.startswith(of_cell)
        }
    return {
        name.removesuffix(f"_l{layer}"): value
        for name, value in weights.items()
        if name.endswith(f"_l{layer}")
    }


def plain_weights(model: Luong, t: int, h_t: plain.Vector, h: plain.Matrix) -> list[float]:
    """a_t, from section 3.1 or 3.2."""
    config = model.config
    energies = [plain.SCORES[config.score](plain.lists_of(model.attention), h_t, h_s) for h_s in h]
    if config.reach == "global":
        return plain.softmax(energies)
    if config.reach == "local_m":
        return plain.local_weights(
            energies, min(t, len(h) - 1 + config.window), config.window, gaussian=False
        )
    window = plain.lists_of(model.window)
    place = plain.dot(
        window["v_p.weight"][0], [math.tanh(x) for x in plain.linear(h_t, window["W_p.weight"])]
    )
    return plain.local_weights(
        energies, len(h) * plain.sigmoid(place), config.window, gaussian=True
    )


def plain_decoder(
    model: Luong, source: list[int], read: list[int]
) -> Iterator[tuple[list[float], list[float]]]:
    """a_t and h~_t for each word read, from the encoder's states on."""
    state = model.begin(tokens_of([source]), 1, 0)
    h = state.memory.h_BSD[0].tolist()
    layers = range(model.config.layers)
    weights = [cell_weights(model, layer) for layer in layers]
    carries = [[part[layer, 0].tolist() for part in state.carry] for layer in layers]
    attentional = [0.0] * model.config.embedding
    for t, word in enumerate(read):
        x = model.target_embedding.weight[word].tolist() + (
            attentional if model.config.input_feeding else []
        )
        for layer in layers:
            carries[layer] = plain.CELLS[model.config.cell](weights[layer], x, carries[layer])  # type: ignore[operator]
            x = carries[layer][0]
        a_t = plain_weights(model, t, x, h)
        total = plain.linear([*plain.average(a_t, h), *x], model.W_c.weight.tolist())
        attentional = [math.tanh(value) for value in total]
        yield a_t, attentional


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("luong")])
def test_luongs_decoder(case: str) -> None:
    """Scores, windows at both edges of a sentence and beyond it, h~ and input feeding, in sentences
    of one batch."""
    model = build(CASES[case])
    assert isinstance(model, Luong)
    sources, targets = SOURCES[:2], [[BEGIN, 4, 5, 6, END], [BEGIN, 7, 8, 9, 10, 4, END]]
    assert CASES[case].window == 1  # type: ignore[attr-defined]
    assert len(targets[1]) - 1 > len(sources[1]) + 1, "else no window leaves its source"
    with recording() as recorded, torch.no_grad():
        hidden_BTD = model(batch_of(sources, targets)).hidden_BTD
    a_BTS = recorded.by_name(model)["attention"][:, 0]
    for b, (source, target) in enumerate(zip(sources, targets, strict=True)):
        for t, (a_t, attentional) in enumerate(plain_decoder(model, source, target[:-1])):
            close(a_BTS[b, t, : len(source)], a_t)
            close(hidden_BTD[b, t], attentional)


def test_without_input_feeding_all_steps_are_one_call() -> None:
    calls: list[tuple[int, ...]] = []
    for case in ("luong-dot", "luong-local-p"):
        model = build(CASES[case])
        for part in (model.decoder, model.attention):
            part.register_forward_hook(
                lambda module, given, result: calls.append(given[0].shape[:2])
            )
        logits_of(model, batch_of())
    assert calls == [(len(TARGETS), max(map(len, TARGETS)) - 1)] * 4


@pytest.mark.parametrize("kind", [AdditiveAttention, ConcatAttention, FullyConnectedAttention])
@pytest.mark.parametrize("queries", [1, 3])
def test_many_looks_have_the_gradients_of_one_look_after_another(kind: type, queries: int) -> None:
    """The chain rule by hand, with all slopes added up in place, against autograd through the plain
    equations."""
    torch.manual_seed(0)
    attention = kind(4, 6, 5).double()
    h_BSD, lengths_B = (
        torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True),
        torch.tensor([7, 2, 4]),
    )
    first_BQD = torch.randn(3, queries, 4, dtype=torch.float64, requires_grad=True)
    narrow = torch.randn(6, 4, dtype=torch.float64)
    wanted = [h_BSD, first_BQD, *attention.parameters()]

    def loop(many: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        memory = attention.memory(h_BSD, lengths_B)
        look = attention.attend_to(memory) if many else lambda s_BQD: attention(s_BQD, memory)
        s_BQD, total = first_BQD, torch.zeros((), dtype=torch.float64)
        for _ in range(4):
            c_BQD = look(s_BQD)
            s_BQD, total = torch.sin(c_BQD @ narrow), total + (c_BQD**2).sum()
        return total, torch.autograd.grad(total, wanted)

    (total, slopes), (expected, expected_slopes) = loop(many=True), loop(many=False)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    for slope, other in zip(slopes, expected_slopes, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-10, atol=1e-12)
