"""The shared equations against the same equations in plain loops (tests/plain.py)."""

import ast
import copy
import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import plain
from model_cases import (
    CASES,
    SOURCES,
    batch_of,
    build,
    close,
    randn,
    tokens_of,
    with_weights_that_matter,
)
from places import ROOT
from regard.data.dataset import Dataset
from regard.engine import machine, products
from regard.engine.dropout import MIN_ELEMENTS
from regard.engine.packing import PackedSentences, PackedVisible
from regard.engine.products import (
    MIN_TRAINED_ROWS,
    MIN_WEIGHT_OF_SINGLE_ROW,
    ROWS_OF_TRANSPOSED_PRODUCT,
    multiply_small_matrices,
)
from regard.engine.recurrence import time_segments
from regard.errors import DecodeError
from regard.layers.attention import MultiHeadAttention, Visible, attend, recording
from regard.layers.embeddings import Embedding, Positions, Readout, sinusoidal_positions
from regard.layers.linear import ACTIVATIONS, Dropout, Linear
from regard.layers.recurrence import RecurrentEncoder, fed_step, word_gates
from regard.models.bahdanau import BahdanauConfig
from regard.models.luong import LuongConfig
from regard.models.self_attention import (
    PlainAttention,
    ProjectedAttention,
    SelfAttention,
    SelfAttentionConfig,
)
from regard.models.transformer import EncoderBlock, TransformerConfig
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from task_cases import make_task


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# Attention


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    causal=st.booleans(),
    scaled=st.booleans(),
    written_out=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_dot_product_attention(
    lengths: list[int], causal: bool, scaled: bool, written_out: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    longest = max(lengths)
    q_BHQE, k_BHKE, v_BHKE = (randn(len(lengths), 2, longest, 3) for _ in range(3))
    visible = Visible(torch.tensor(lengths), causal=causal)
    with recording() if written_out else nullcontext():
        context_BHQE = attend(q_BHQE, k_BHKE, v_BHKE, visible, owner=nn.Identity(), scaled=scaled)
    for b, length in enumerate(lengths):
        for h in range(2):
            keys, values = k_BHKE[b, h].tolist(), v_BHKE[b, h].tolist()
            for i in range(length):
                sees = lambda j, n=length, i=i: j < n and (j <= i or not causal)  # noqa: E731
                expected = plain.attention(q_BHQE[b, h, i].tolist(), keys, values, sees, scaled)
                close(context_BHQE[b, h, i], expected)


@pytest.mark.engine
def test_several_causal_queries_stand_last_and_the_kernel_is_not_asked() -> None:
    last_two = Visible(causal=True).matrix_BQK(2, 3, torch.device("cpu"))
    assert last_two.tolist() == [[[True, True, False], [True, True, True]]]
    with pytest.raises(AssertionError, match="aligns queries with the first keys"):
        attend(
            randn(1, 1, 2, 3),
            randn(1, 1, 3, 3),
            randn(1, 1, 3, 3),
            Visible(causal=True),
            owner=nn.Identity(),
        )


@pytest.mark.parametrize("written_out", [False, True])
def test_attention_dropout_drops_weights_and_scales_the_rest(written_out: bool) -> None:
    """With the unit vectors as values the output is the weights themselves."""
    q_BHQE, k_BHKE = randn(1, 8, 20, 4), randn(1, 8, 10, 4)
    v_BHKE = torch.eye(10, dtype=torch.float64).expand(1, 8, 10, 10)
    whole = attend(q_BHQE, k_BHKE, v_BHKE, Visible(), owner=nn.Identity())
    with recording() if written_out else nullcontext() as recorded:
        dropped = attend(q_BHQE, k_BHKE, v_BHKE, Visible(), owner=nn.Identity(), dropout=0.25)
    if recorded is not None:
        close(recorded.calls[0][1], whole)
    kept = dropped != 0
    close(dropped[kept], whole[kept] / 0.75)
    expected, deviation = 0.75 * whole.numel(), (0.75 * 0.25 * whole.numel()) ** 0.5
    assert abs(kept.sum() - expected) < 4 * deviation


def test_attention_dropout_is_off_in_evaluation() -> None:
    attention = with_weights_that_matter(MultiHeadAttention(6, 3, dropout=0.5).double())
    x_BLD = randn(2, 4, 6)
    first, second = (attention(x_BLD, *attention.keys_values(x_BLD), Visible()) for _ in range(2))
    assert torch.equal(first, second)
    attention.train()
    assert not torch.allclose(attention(x_BLD, *attention.keys_values(x_BLD), Visible()), first)


def test_recordings_do_not_mix() -> None:
    attention = MultiHeadAttention(4, 2)
    x_BLD = torch.randn(1, 3, 4)
    with recording() as outer:
        with recording() as inner:
            attention(x_BLD, *attention.keys_values(x_BLD), Visible())
        assert (len(outer.calls), len(inner.calls)) == (0, 1)
        attention(x_BLD, *attention.keys_values(x_BLD), Visible())
    assert (len(outer.calls), len(inner.calls)) == (1, 1)
    with pytest.raises(KeyError), recording():
        raise KeyError
    attention(x_BLD, *attention.keys_values(x_BLD), Visible())
    assert len(outer.calls) == 1


# Positions and embeddings


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions(width: int) -> None:
    expected = torch.tensor([plain.position(pos, width) for pos in range(50)])
    torch.testing.assert_close(sinusoidal_positions(50, width), expected)


@pytest.mark.parametrize("longest", [2, 10], ids=["beyond the table", "within"])
def test_positions_are_added_to_padded_and_packed_texts(longest: int) -> None:
    packing, x_BLD = PackedSentences.of(tokens_of([[4, 5, 6], [7, 8]])), randn(2, 3, 6)
    expected = torch.tensor([plain.position(pos, 6) for pos in range(3)], dtype=torch.float64)
    waves, learned, none = (
        Positions(kind, 6, longest).double() for kind in ("sinusoidal", "learned", "none")
    )
    close(waves(x_BLD) - x_BLD, expected.expand(2, 3, 6), 1e-6)
    packed = packing.arrange(x_BLD)
    close(waves(packed, packing) - packed, expected[[0, 1, 2, 0, 1]][None], 1e-6)
    assert torch.equal(none(x_BLD), x_BLD)
    if longest < 3:
        with pytest.raises(DecodeError, match="3 tokens, but the model learned 2 positions"):
            learned(x_BLD)
    else:
        close(learned(x_BLD), x_BLD + learned.learned.weight[:3])


def test_embeddings_begin_at_a_length_of_about_one() -> None:
    norms = Embedding(500, 64).weight.detach().norm(dim=-1)
    assert norms.mean().item() == pytest.approx(1.0, abs=0.05)


# Recurrence


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_encoder_reads_both_ways_and_stops_where_a_sentence_ends(cell: str) -> None:
    encoder = with_weights_that_matter(RecurrentEncoder(cell, 3, 4).double())  # type: ignore[arg-type]
    x_BSD, lengths = randn(2, 5, 3), [5, 3]
    h_BSD, last = encoder(x_BSD, tokens_of([[4] * length for length in lengths]))
    weights = plain.lists_of(encoder.rnn)
    for b, length in enumerate(lengths):
        finals = []
        ways = ("", range(length), slice(0, 4)), ("_reverse", reversed(range(length)), slice(4, 8))
        for suffix, order, half in ways:
            own = {
                name: weights[f"{name}_l0{suffix}"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            carry: plain.Matrix = [[0.0] * 4] * len(last)
            for j in order:
                carry = plain.CELLS[cell](own, x_BSD[b, j].tolist(), carry)  # type: ignore[operator]
                close(h_BSD[b, j, half], carry[0])
            finals.append(carry)
        for part, forward, backward in zip(last, *finals, strict=True):
            close(part[0, b], [*forward, *backward])
    assert torch.all(h_BSD[1, 3:] == 0)


@pytest.mark.parametrize(
    "case",
    [
        "bahdanau-plain",
        "bahdanau-gru",
        "bahdanau-lstm",
        "bahdanau-gru-concat",
        "bahdanau-gru-fully-connected",
    ],
)
def test_a_step_of_bahdanaus_decoder(case: str) -> None:
    model = build(CASES[case])
    config = model.config
    cell = plain.CELLS[config.cell]
    _, memory = model.encode(tokens_of(SOURCES[:2]))
    carry = tuple(randn(2, 12) for _ in range(2 if case == "bahdanau-lstm" else 1))
    y_BD = randn(2, 10)
    step = fed_step(config.cell, model.cell, model.encoder.width)
    new_carry, c_BD = model.step_over(step, memory)(word_gates(model.cell, y_BD), carry)
    hidden_BD = model.deep_output(new_carry[0], y_BD, c_BD)
    for b, source in enumerate(SOURCES[:2]):
        y, h = y_BD[b].tolist(), memory.h_BSD[b, : len(source)].tolist()
        _, c = plain.scored_attention(
            config.score, plain.lists_of(model.attention), carry[0][b].tolist(), h
        )
        new = cell(plain.lists_of(model.cell), [*y, *c], [part[b].tolist() for part in carry])  # type: ignore[operator]
        for part, expected in zip(new_carry, new, strict=True):
            close(part[b], expected)
        deep = plain.linear(
            [*new[0], *y, *c], model.UVC_o.weight.tolist(), model.UVC_o.bias.tolist()
        )
        close(hidden_BD[b], plain.maxout(deep))


# Blocks


@pytest.mark.parametrize("written_out", [False, True])
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "plain"])
def test_self_attention_with_one_head(projected: bool, scaled: bool, written_out: bool) -> None:
    """softmax(X X^T) X without parameters, or with three matrices; with scaled scores or not."""
    attention = (
        with_weights_that_matter(ProjectedAttention(4, scaled=scaled).double())
        if projected
        else PlainAttention(scaled=scaled)
    )
    weights, x_BSD, length = plain.lists_of(attention), randn(1, 5, 4), 3
    assert set(weights) == ({"W_Q.weight", "W_K.weight", "W_V.weight"} if projected else set())
    with recording() if written_out else nullcontext():
        attended = attention(x_BSD, *attention.keys_values(x_BSD), Visible(torch.tensor([length])))
    matrices = [weights.get(f"W_{kind}.weight", torch.eye(4).tolist()) for kind in "QKV"]
    queries, keys, values = (
        [plain.linear(x, matrix) for x in x_BSD[0].tolist()] for matrix in matrices
    )
    for query, result in zip(queries, attended[0], strict=True):
        close(result, plain.attention(query, keys, values, lambda j: j < length, scaled))


@pytest.mark.parametrize("encoder", ["plain", "plain_scaled", "projected", "multi_head"])
def test_a_self_attention_encoder_is_attention_and_a_norm_without_parameters(encoder: str) -> None:
    sizes: dict[str, Any] = {
        "width": 6,
        "heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "dropout": 0.0,
    }
    config = SelfAttentionConfig(**sizes, encoder=encoder, norm="post")  # type: ignore[arg-type]
    model = with_weights_that_matter(SelfAttention(config, 9, 9).double())
    parameters = {"plain": 0, "plain_scaled": 0, "projected": 216, "multi_head": 336}[encoder]
    assert sum(p.numel() for p in model.encoder.parameters()) == parameters
    source = tokens_of([[4, 5, 6], [7, 8]])
    x_BSD, visible = model.embed_source(source), Visible(source.lengths_B)
    for layer in model.encoder:
        attended_BSD = layer.self_attention(
            x_BSD, *layer.self_attention.keys_values(x_BSD), visible
        )
        rows = [
            plain.layer_norm(x, [1.0] * 6, [0.0] * 6)
            for x in (x_BSD + attended_BSD).flatten(0, 1).tolist()
        ]
        x_BSD = torch.tensor(rows, dtype=torch.float64).view_as(x_BSD)
    close(model.encode(model.embed_source(source), visible), x_BSD)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["post", "pre", "none"])
def test_an_encoder_block(norm: str, residual: bool, scaled: bool) -> None:
    """x + Sublayer(x) with the norm after the sum, before the sub-layer, or nowhere."""
    options: dict[str, Any] = {"norm": norm, "residual": residual, "scaled": scaled}
    block = with_weights_that_matter(
        EncoderBlock(
            TransformerConfig(width=6, heads=2, feed_forward=8, dropout=0.0, **options)
        ).double()
    )
    w, x_BSD, length = plain.lists_of(block), randn(1, 4, 6), 3

    def normed(x: plain.Vector, around: str) -> list[float]:
        return plain.layer_norm(x, w[f"{around}.norm.weight"], w[f"{around}.norm.bias"])

    def before(x: plain.Vector, around: str) -> plain.Vector:
        return normed(x, around) if norm == "pre" else x

    def after(x: plain.Vector, out: plain.Vector, around: str) -> plain.Vector:
        total = plain.add(x, out) if residual else out
        return normed(total, around) if norm == "post" else total

    own, inner, x = (
        plain.lists_of(block.self_attention),
        plain.lists_of(block.feed_forward),
        x_BSD[0].tolist(),
    )
    read = [before(row, "around_attention") for row in x]
    attended = plain.multi_head(own, 2, read, read, lambda i, j: j < length, scaled)
    x = [after(row, out, "around_attention") for row, out in zip(x, attended, strict=True)]
    outputs = [plain.feed_forward(inner, before(row, "around_feed_forward")) for row in x]
    expected = [after(row, out, "around_feed_forward") for row, out in zip(x, outputs, strict=True)]
    close(block(x_BSD, Visible(torch.tensor([length])))[0], expected)


def test_every_axis_letter_stands_in_the_legend() -> None:
    """The letters at the end of the names of variables and arguments; parameters keep their paper's
    names."""
    legend = set(
        re.findall(
            r"^\| `(.)` ", (ROOT / "docs" / "axes.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    names = set[str]()
    for folder in ("layers", "models", "objectives", "search"):
        for path in (ROOT / "src" / "regard" / folder).glob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names |= {node.id for node in nodes if isinstance(node, ast.Name)}
            names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    suffixes = {
        name.rpartition("_")[2] for name in names if re.fullmatch(r"[a-z]\w*_[A-Z0-9]+", name)
    }
    used = {letter for suffix in suffixes if not suffix.isdigit() for letter in suffix}
    assert used
    assert used <= legend


@pytest.mark.engine
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(0, 3))
def test_every_step_of_every_sentence_is_computed_once_and_in_order(
    lengths: list[int], extra: int
) -> None:
    width = max(lengths) + extra
    places: list[int] = []
    rows, after = list(range(len(lengths))), 0
    for segment in time_segments(torch.tensor(lengths), width, torch.device("cpu")):
        assert segment.steps.start == after < segment.steps.stop
        rows = [rows[kept] for kept in segment.kept_R.tolist()]
        assert segment.rows_R.tolist() == rows
        assert all(lengths[row] > after for row in rows), "a finished row is still there"
        places += segment.places_P.tolist()
        after = segment.steps.stop
    real = {row * width + t for row, length in enumerate(lengths) for t in range(length)}
    assert len(places) == len(set(places))
    assert real <= set(places)
    assert len(places) <= 2 * len(real) + width, "little padding is computed"


# Linear layers on a CPU


@pytest.mark.engine
def test_packed_weights_give_what_torch_gives_and_follow_the_weight() -> None:
    layer, x_BLD = Linear(256, 300).eval(), torch.randn(3, 14, 512)[:, ::2, :256]  # not contiguous
    with torch.inference_mode():
        for x in (x_BLD, x_BLD[0, 0], x_BLD[:0], x_BLD[:1, :1]):
            torch.testing.assert_close(
                layer(x), F.linear(x, layer.weight, layer.bias), rtol=1e-5, atol=1e-5
            )
        for name, activation in ACTIVATIONS.items():
            expected = activation(F.linear(x_BLD, layer.weight, layer.bias))
            torch.testing.assert_close(layer(x_BLD, name), expected, rtol=1e-4, atol=1e-5)
        assert layer.weight in products._packed_weights
    copied = copy.deepcopy(layer)
    nn.init.ones_(layer.weight)
    with torch.inference_mode():
        torch.testing.assert_close(
            layer(x_BLD), x_BLD.sum(-1, keepdim=True) + layer.bias, rtol=1e-4, atol=1e-4
        )
        torch.testing.assert_close(
            copied(x_BLD), F.linear(x_BLD, copied.weight, layer.bias), rtol=1e-5, atol=1e-5
        )
    layer.train()(x_BLD).sum().backward()
    assert layer.weight.grad is not None
    products.forget_packed_weights()
    assert layer.weight not in products._packed_weights


def graph_of(y: torch.Tensor) -> list[str]:
    """The names of the operations that computed y, as autograd has them."""
    names, waiting, seen = [], [y.grad_fn], set()
    while waiting:
        if (node := waiting.pop()) is not None and node not in seen:
            seen.add(node)
            names.append(node.name())
            waiting += [before for before, _ in node.next_functions]
    return names


@pytest.mark.engine
@pytest.mark.parametrize("then", ["none", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(11, MIN_TRAINED_ROWS // 11 + 1), (MIN_TRAINED_ROWS + 1,)])
def test_training_by_onednn_is_the_equation(
    then: str, bias: bool, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "made_by_intel", lambda: False)
    layer = Linear(257, 301, bias=bias)
    x = torch.randn(*shape, 2 * 257)[..., ::2].requires_grad_()  # not contiguous
    exact, x_64 = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    y = layer(x, then)
    assert "TrainedProductBackward" in graph_of(y)
    y_64 = ACTIVATIONS[then](x_64 @ exact.weight.t() + (exact.bias if bias else 0))
    dy = torch.randn_like(y)
    found = torch.autograd.grad(y, [x, *layer.parameters()], dy, retain_graph=True)
    expected = torch.autograd.grad(y_64, [x_64, *exact.parameters()], dy.double())
    for one, other in zip((y, *found), (y_64, *expected), strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() < 1e-5 * other.norm()
    again = torch.autograd.grad(layer(x, then), [x, *layer.parameters()], dy)
    assert all(map(torch.equal, found, again)), "resuming is exact"
    layer.weight.requires_grad_(False)
    assert torch.equal(torch.autograd.grad(layer(x, then), x, dy)[0], found[0])


@pytest.mark.engine
def test_few_rows_small_weights_and_other_numbers_are_trained_by_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "made_by_intel", lambda: False)
    layer, x_RD = Linear(256, 256), torch.randn(MIN_TRAINED_ROWS, 256)
    half = torch.autocast("cpu", torch.bfloat16)

    def uses_onednn(layer: Linear, x: torch.Tensor) -> bool:
        return "TrainedProductBackward" in graph_of(layer(x))

    assert uses_onednn(layer, x_RD)
    assert not uses_onednn(layer, x_RD[1:])
    assert not uses_onednn(Linear(256, 255), x_RD)
    assert not uses_onednn(copy.deepcopy(layer).double(), x_RD.double())
    with half:
        assert not uses_onednn(layer, x_RD)
    with torch.no_grad():
        assert not uses_onednn(layer, x_RD)
    monkeypatch.setattr(machine, "made_by_intel", lambda: True)
    assert not uses_onednn(layer, x_RD)


@pytest.mark.engine
@pytest.mark.parametrize("kind", [BahdanauConfig, LuongConfig])
def test_the_steps_of_a_recurrent_model_are_trained_by_torch(
    kind: type[BahdanauConfig | LuongConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN made them fifty times slower; only what reads all steps at once may use it."""
    monkeypatch.setattr(machine, "made_by_intel", lambda: False)
    model = build(
        kind(embedding=256, hidden=256, attention=256, dropout=0.0), dtype=torch.float32
    ).train()
    steps, sentences = 20, MIN_TRAINED_ROWS // 20 + 1
    hidden_BTD = model(
        batch_of([[5] * steps] * sentences, [[4] * (steps + 1)] * sentences)
    ).hidden_BTD
    assert graph_of(hidden_BTD).count("TrainedProductBackward") < steps / 2


@pytest.mark.engine
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_of_many_numbers_has_the_rate_and_is_drawn_anew(
    p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "made_by_intel", lambda: False)
    dropout, x_LD = Dropout(p), torch.ones(MIN_ELEMENTS // 256 + 1, 257, requires_grad=True)
    before = torch.get_rng_state()
    y_LD = dropout(x_LD)
    kept_LD = y_LD != 0
    torch.testing.assert_close(
        y_LD[kept_LD], torch.full_like(y_LD[kept_LD], 1 / (1 - p)), rtol=2e-5, atol=0
    )
    deviation = (p * (1 - p) / x_LD.numel()) ** 0.5
    assert abs(kept_LD.float().mean() - (1 - p)) < 5 * deviation
    beside = (kept_LD[:, 1:] & kept_LD[:, :-1]).float().mean()
    assert abs(beside - (1 - p) ** 2) < 10 * deviation, "neighbours are independent"
    assert torch.equal(torch.autograd.grad(y_LD.sum(), x_LD)[0], y_LD)
    assert not torch.equal(dropout(x_LD), y_LD)
    torch.set_rng_state(before)
    assert torch.equal(dropout(x_LD), y_LD), "resuming is exact"
    assert torch.equal(dropout.eval()(x_LD), x_LD)


@pytest.mark.engine
@pytest.mark.parametrize(("count", "intel"), [(MIN_ELEMENTS - 1, False), (MIN_ELEMENTS, True)])
def test_dropout_of_fewer_numbers_is_torchs(
    count: int, intel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "made_by_intel", lambda: intel)
    found = Dropout(0.1)(torch.ones(count))
    torch.manual_seed(0)
    assert torch.equal(found, nn.Dropout(0.1)(torch.ones(count)))


@pytest.mark.engine
@pytest.mark.parametrize("queries", [1, 4, 5])
def test_few_queries_on_a_cpu_attend_as_written(queries: int) -> None:
    q, k, v = torch.randn(16, 2, queries, 8), torch.randn(16, 2, 6, 8), torch.randn(16, 2, 6, 8)
    visible, owner = Visible(torch.tensor([6, 1, 3, 5] * 4)), nn.Identity()
    found = attend(q, k, v, visible, owner=owner)
    with recording():
        as_written = attend(q, k, v, visible, owner=owner)
    torch.testing.assert_close(found, as_written)
    with torch.inference_mode():
        torch.testing.assert_close(attend(q, k, v, visible, owner=owner), as_written)


@pytest.mark.engine
@pytest.mark.parametrize("intel", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_small_products_are_those_of_torch(
    intel: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "made_by_intel", lambda: intel)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    cache_BHKE = torch.randn(3, 2, 8, 16, dtype=dtype)[:, :, :5]  # the filled part
    x_BHQE, broken_BHQE = (
        torch.randn(3, 2, 4, 16, dtype=dtype),
        torch.full((3, 2, 4, 16), torch.nan, dtype=dtype),
    )
    with torch.inference_mode():
        found = multiply_small_matrices(x_BHQE, cache_BHKE.transpose(-2, -1))
        torch.testing.assert_close(found, x_BHQE @ cache_BHKE.transpose(-2, -1))
        assert multiply_small_matrices(broken_BHQE, cache_BHKE.transpose(-2, -1)).isnan().all()


@pytest.mark.engine
@pytest.mark.parametrize("rows", [*ROWS_OF_TRANSPOSED_PRODUCT, ROWS_OF_TRANSPOSED_PRODUCT.stop, 20])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("width", "out"), [(7, 3), (64, MIN_WEIGHT_OF_SINGLE_ROW // 64 + 1)])
def test_few_rows_give_what_torch_gives(rows: int, bias: bool, width: int, out: int) -> None:
    torch.manual_seed(rows)
    ours, theirs = Linear(width, out, bias=bias).double(), nn.Linear(width, out, bias=bias).double()
    theirs.load_state_dict(ours.state_dict())
    turned = (
        torch.randn(width, rows).double().t()
    )  # column by column, like the output of such a layer
    for x in (turned, turned[:, None], turned[None]):
        with torch.inference_mode():
            found = ours(x)
        assert found.shape == theirs(x).shape
        torch.testing.assert_close(found.clone(), theirs(x).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="the kernel for packed sentences needs a GPU"
)
@pytest.mark.parametrize("causal", [False, True])
def test_the_packed_kernel_equals_the_equation_on_a_gpu(causal: bool) -> None:
    queries = PackedSentences.of(tokens_of([[5, 6, 3], [7, 3], [8, 9, 4, 3]]).to("cuda"))
    keys = (
        queries
        if causal
        else PackedSentences.of(tokens_of([[5, 3], [7, 6, 5, 3], [8, 3]]).to("cuda"))
    )
    q, k, v = (
        torch.randn(1, 2, size, 16, device="cuda")
        for size in (9, 9 if causal else 8, 9 if causal else 8)
    )
    visible = PackedVisible.between(queries, keys, causal=causal)
    expected = attend(q, k, v, visible, owner=nn.Identity())
    halves = (x.bfloat16() for x in (q, k, v))
    torch.testing.assert_close(
        attend(*halves, visible, owner=nn.Identity()).float(), expected, atol=0.03, rtol=0.03
    )


def test_the_bias_is_the_log_of_the_smoothed_frequencies_of_target_tokens() -> None:
    """The end of each example is counted with them."""
    tokenizer = Tokenizer.train(TokenizerConfig(kind="character"), ["ab"])
    texts = {"source": ["a", "b"], "target": ["aab", "a"]}
    task = make_task("translation", Tokenizers({"source": tokenizer, "target": tokenizer}))
    dataset = Dataset.of(task.encoding, texts, str)
    model = build(CASES["luong-fed"])
    model.output = Readout(2, tokenizer.size, None)
    task.network.set_first_weights(model, dataset)
    [a], [b] = tokenizer.encode("a"), tokenizer.encode("b")
    smoothed = (
        4 + 2 + 3 + (tokenizer.size - 3)
    )  # three a, one b, two </s>, and one more for each token
    bias = model.output.linear.bias.exp().tolist()
    expected = {
        a: 4 / smoothed,
        b: 2 / smoothed,
        tokenizer.end: 3 / smoothed,
        tokenizer.pad: 1 / smoothed,
    }
    assert {token: bias[token] for token in expected} == pytest.approx(expected)


def test_gelu_in_compiled_code_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    x_L = torch.linspace(-12, 12, 2001, dtype=torch.float64, requires_grad=True)
    expected_L = ACTIVATIONS["gelu_tanh"](x_L)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    found_L = ACTIVATIONS["gelu_tanh"](x_L)
    torch.testing.assert_close(found_L, expected_L)
    torch.testing.assert_close(
        *(torch.autograd.grad(y_L.sum(), x_L)[0] for y_L in (found_L, expected_L))
    )
