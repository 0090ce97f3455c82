"""The shared equations against the same equations in plain loops (tests/plain.py)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import plain
from model_cases import CASES, SOURCES, build, close, tokens_of
from regard.layers.attention import AdditiveAttention, MultiHeadAttention, attend, recording
from regard.layers.embeddings import Embedding, Readout
from regard.layers.positions import Positions, sinusoidal_positions
from regard.layers.recurrence import Bridge, RecurrentEncoder
from regard.layers.visibility import Visibility
from regard.models.transformer import EncoderBlock, TransformerConfig

ROOT = Path(__file__).parent.parent


def lists_of(module: nn.Module) -> plain.Weights:
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def shaken(module: nn.Module) -> nn.Module:
    """In double precision, with every parameter moved away from where it begins."""
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return module.eval()


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# Visibility


def test_visibility_by_hand() -> None:
    device = torch.device("cpu")
    yes, no = True, False
    assert Visibility().matrix_BQK(2, 3, device).tolist() == [[[yes, yes, yes], [yes, yes, yes]]]
    lengths_B = torch.tensor([1, 3])
    padded = Visibility(lengths_B).matrix_BQK(2, 3, device)
    assert padded.tolist() == [[[yes, no, no]] * 2, [[yes, yes, yes]] * 2]
    causal = Visibility(causal=True).matrix_BQK(3, 3, device)
    assert causal.tolist() == [[[yes, no, no], [yes, yes, no], [yes, yes, yes]]]
    both = Visibility(lengths_B, causal=True).matrix_BQK(3, 3, device)
    assert both.tolist() == [[[yes, no, no]] * 3, [[yes, no, no], [yes, yes, no], [yes, yes, yes]]]
    last_two = Visibility(causal=True).matrix_BQK(2, 3, device)
    assert last_two.tolist() == [[[yes, yes, no], [yes, yes, yes]]]
    assert Visibility().keys_BK(3) is None
    assert Visibility(lengths_B).keys_BK(4).tolist() == [[yes, no, no, no], [yes, yes, yes, no]]  # type: ignore[union-attr]


# Attention


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    causal=st.booleans(),
    scaled=st.booleans(),
    written_out=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_dot_product_attention(lengths: list[int], causal: bool, scaled: bool, written_out: bool, seed: int) -> None:
    torch.manual_seed(seed)
    longest = max(lengths)
    q_BHQE, k_BHKE, v_BHKE = (randn(len(lengths), 2, longest, 3) for _ in range(3))
    visible = Visibility(torch.tensor(lengths), causal=causal)

    def run() -> Tensor:
        return attend(q_BHQE, k_BHKE, v_BHKE, visible, owner=nn.Identity(), scaled=scaled)

    if written_out:
        with recording():
            context_BHQE = run()
    else:
        context_BHQE = run()
    for b, length in enumerate(lengths):
        for h in range(2):
            keys, values = k_BHKE[b, h].tolist(), v_BHKE[b, h].tolist()
            for i in range(length):
                expected = plain.attention(
                    q_BHQE[b, h, i].tolist(),
                    keys,
                    values,
                    lambda j, n=length, i=i: j < n and (j <= i or not causal),
                    scaled,
                )
                close(context_BHQE[b, h, i], torch.tensor(expected, dtype=torch.float64))


def test_a_single_causal_query_stands_last() -> None:
    q_BHQE, k_BHKE, v_BHKE = randn(1, 1, 1, 3), randn(1, 1, 4, 3), randn(1, 1, 4, 3)
    fast = attend(q_BHQE, k_BHKE, v_BHKE, Visibility(causal=True), owner=nn.Identity())
    with recording():
        close(attend(q_BHQE, k_BHKE, v_BHKE, Visibility(causal=True), owner=nn.Identity()), fast)


def test_the_kernel_is_not_asked_what_it_would_answer_otherwise() -> None:
    x_BHQE, x_BHKE = randn(1, 1, 2, 3), randn(1, 1, 4, 3)
    with pytest.raises(AssertionError, match="from the first key"):
        attend(x_BHQE, x_BHKE, x_BHKE, Visibility(causal=True), owner=nn.Identity())


@pytest.mark.parametrize("written_out", [False, True])
def test_attention_dropout_drops_weights_and_scales_the_rest(written_out: bool) -> None:
    """With the unit vectors as values the output is the weights themselves."""
    q_BHQE, k_BHKE = randn(1, 8, 20, 4), randn(1, 8, 10, 4)
    v_BHKE = torch.eye(10, dtype=torch.float64).expand(1, 8, 10, 10)
    whole = attend(q_BHQE, k_BHKE, v_BHKE, Visibility(), owner=nn.Identity())
    if written_out:
        with recording() as recorded:
            dropped = attend(q_BHQE, k_BHKE, v_BHKE, Visibility(), owner=nn.Identity(), dropout=0.25)
        close(recorded.calls[0][1], whole)
    else:
        dropped = attend(q_BHQE, k_BHKE, v_BHKE, Visibility(), owner=nn.Identity(), dropout=0.25)
    kept = dropped != 0
    close(dropped[kept], whole[kept] / 0.75)
    expected, deviation = 0.75 * whole.numel(), (0.75 * 0.25 * whole.numel()) ** 0.5
    assert abs(kept.sum() - expected) < 4 * deviation


@pytest.mark.parametrize("scaled", [True, False])
def test_multi_head_attention(scaled: bool) -> None:
    attention = shaken(MultiHeadAttention(6, 3, scaled=scaled))
    x_BQD, memory_BKD = randn(2, 4, 6), randn(2, 5, 6)
    lengths = [3, 5]
    attended = attention(x_BQD, *attention.keys_values(memory_BKD), Visibility(torch.tensor(lengths)))
    for b, length in enumerate(lengths):
        expected = plain.multi_head(
            lists_of(attention), 3, x_BQD[b].tolist(), memory_BKD[b].tolist(), lambda i, j, n=length: j < n, scaled
        )
        close(attended[b], torch.tensor(expected, dtype=torch.float64))


def test_attention_dropout_is_off_in_evaluation() -> None:
    attention = shaken(MultiHeadAttention(6, 3, dropout=0.5))
    x_BLD = randn(2, 4, 6)
    first, second = (attention(x_BLD, *attention.keys_values(x_BLD), Visibility()) for _ in range(2))
    assert torch.equal(first, second)
    attention.train()
    assert not torch.allclose(attention(x_BLD, *attention.keys_values(x_BLD), Visibility()), first)


def test_additive_attention() -> None:
    attention = shaken(AdditiveAttention(3, 4, 5))
    s_BQD, h_BSD, lengths = randn(2, 2, 3), randn(2, 4, 4), [4, 2]
    visible_BS = Visibility(torch.tensor(lengths)).keys_BK(4)
    with recording() as recorded:
        c_BQD = attention(s_BQD, attention.keys(h_BSD), h_BSD, visible_BS)
    ((owner, alpha_BHQS),) = recorded.calls
    assert owner is attention
    for b, length in enumerate(lengths):
        for i in range(2):
            alpha, c = plain.additive_attention(lists_of(attention), s_BQD[b, i].tolist(), h_BSD[b, :length].tolist())
            close(alpha_BHQS[b, 0, i], torch.tensor([*alpha, *[0.0] * (4 - length)], dtype=torch.float64))
            close(c_BQD[b, i], torch.tensor(c, dtype=torch.float64))
    everywhere = torch.ones(2, 4, dtype=torch.bool)
    unmasked = attention(s_BQD, attention.keys(h_BSD), h_BSD, None)
    close(unmasked, attention(s_BQD, attention.keys(h_BSD), h_BSD, everywhere))


def test_recordings_do_not_mix() -> None:
    attention = MultiHeadAttention(4, 2)
    x_BLD = torch.randn(1, 3, 4)
    with recording() as outer:
        with recording() as inner:
            attention(x_BLD, *attention.keys_values(x_BLD), Visibility())
        assert (len(outer.calls), len(inner.calls)) == (0, 1)
        attention(x_BLD, *attention.keys_values(x_BLD), Visibility())
    assert (len(outer.calls), len(inner.calls)) == (1, 1)
    with pytest.raises(KeyError), recording():
        raise KeyError
    attention(x_BLD, *attention.keys_values(x_BLD), Visibility())
    assert len(outer.calls) == 1


# Positions and embeddings


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions(width: int) -> None:
    expected = torch.tensor([plain.position(pos, width) for pos in range(50)])
    torch.testing.assert_close(sinusoidal_positions(50, width), expected)
    torch.testing.assert_close(sinusoidal_positions(10, width, first=40), expected[40:])


def test_positions_are_added_from_where_the_text_goes_on() -> None:
    x_BLD = randn(2, 3, 6)
    waves = Positions("sinusoidal", 6, 10)
    expected = torch.tensor([plain.position(pos, 6) for pos in (4, 5, 6)], dtype=torch.float64)
    close(waves(x_BLD, first=4) - x_BLD, expected.expand(2, 3, 6), 1e-6)
    learned = Positions("learned", 6, 10).double()
    close(learned(x_BLD, first=7), x_BLD + learned.learned.weight[7:10])
    assert torch.equal(Positions("none", 6, 10)(x_BLD, first=7), x_BLD)


def test_a_readout_is_linear_and_tied_to_the_embeddings_it_is_given() -> None:
    embedding = Embedding(7, 4)
    tied = Readout(4, 7, embedding)
    hidden = torch.randn(4)
    nn.init.normal_(tied.linear.bias)
    expected = plain.linear(hidden.tolist(), embedding.weight.tolist(), tied.linear.bias.tolist())
    close(tied(hidden), torch.tensor(expected), 1e-5)
    assert Readout(4, 7, None).linear.weight is not embedding.weight


def test_embeddings_begin_at_a_length_of_about_one() -> None:
    norms = Embedding(500, 64).weight.detach().norm(dim=-1)
    assert norms.mean().item() == pytest.approx(1.0, abs=0.05)


# Recurrence


def test_the_bridge_is_tanh_of_one_matrix_for_each_part() -> None:
    bridge = shaken(Bridge("lstm", 4, 3))
    parts = randn(2, 4), randn(2, 4)
    for number, (part, result) in enumerate(zip(parts, bridge(parts), strict=True)):
        weight, bias = (lists_of(bridge)[f"W_s.{number}.{kind}"] for kind in ("weight", "bias"))
        expected = [[plain.math.tanh(value) for value in plain.linear(row, weight, bias)] for row in part.tolist()]
        close(result, torch.tensor(expected, dtype=torch.float64))
    assert len(Bridge("gru", 4, 3).W_s) == len(Bridge("rnn", 4, 3).W_s) == 1


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_encoder_reads_both_ways_and_stops_where_a_sentence_ends(cell: str) -> None:
    encoder = shaken(RecurrentEncoder(cell, 3, 4, 1, bidirectional=True, dropout=0.0))  # type: ignore[arg-type]
    x_BSD, lengths = randn(2, 5, 3), [5, 3]
    h_BSD, last = encoder(x_BSD, torch.tensor(lengths))
    weights = lists_of(encoder.rnn)
    for b, length in enumerate(lengths):
        finals = []
        for suffix, order, half in (
            ("", range(length), slice(0, 4)),
            ("_reverse", reversed(range(length)), slice(4, 8)),
        ):
            own = {name: weights[f"{name}_l0{suffix}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            carry: plain.Matrix = [[0.0] * 4] * len(last)
            for j in order:
                carry = plain.CELLS[cell](own, x_BSD[b, j].tolist(), carry)  # type: ignore[operator]
                close(h_BSD[b, j, half], torch.tensor(carry[0], dtype=torch.float64))
            finals.append(carry)
        for part, forward, backward in zip(last, *finals, strict=True):
            close(part[0, b], torch.tensor([*forward, *backward], dtype=torch.float64))
    assert torch.all(h_BSD[1, 3:] == 0)


@pytest.mark.parametrize("case", ["bahdanau-plain", "bahdanau-gru", "bahdanau-lstm"])
def test_a_step_of_bahdanaus_decoder(case: str) -> None:
    model = build(CASES[case])
    cell = plain.CELLS[CASES[case].cell]  # type: ignore[attr-defined]
    _, memory = model.encode(tokens_of(SOURCES[:2]))
    carry = tuple(randn(2, 12) for _ in range(2 if case == "bahdanau-lstm" else 1))
    y_BD = randn(2, 10)
    new_carry, c_BD = model.recur(y_BD, carry, memory)
    hidden_BD = model.deep_output(new_carry[0], y_BD, c_BD)
    for b, source in enumerate(SOURCES[:2]):
        y, h = y_BD[b].tolist(), memory.h_BSD[b, : len(source)].tolist()
        _, c = plain.additive_attention(lists_of(model.attention), carry[0][b].tolist(), h)
        new = cell(lists_of(model.cell), [*y, *c], [part[b].tolist() for part in carry])  # type: ignore[operator]
        for part, expected in zip(new_carry, new, strict=True):
            close(part[b], torch.tensor(expected, dtype=torch.float64))
        deep = plain.linear([*new[0], *y, *c], model.UVC_o.weight.tolist(), model.UVC_o.bias.tolist())
        close(hidden_BD[b], torch.tensor(plain.maxout(deep), dtype=torch.float64))


# Blocks


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["post", "pre", "none"])
def test_an_encoder_block(norm: str, residual: bool) -> None:
    """x + Sublayer(x) with the norm after the sum, before the sub-layer, or nowhere."""
    config = TransformerConfig(width=6, heads=2, feed_forward=8, dropout=0.0, norm=norm, residual=residual)  # type: ignore[arg-type]
    block = shaken(EncoderBlock(config))
    w, x_BSD, length = lists_of(block), randn(1, 4, 6), 3

    def normed(x: plain.Vector, around: str) -> list[float]:
        return plain.layer_norm(x, w[f"{around}.norm.weight"], w[f"{around}.norm.bias"])

    def before(x: plain.Vector, around: str) -> plain.Vector:
        return normed(x, around) if norm == "pre" else x

    def after(x: plain.Vector, out: plain.Vector, around: str) -> plain.Vector:
        total = plain.add(x, out) if residual else out
        return normed(total, around) if norm == "post" else total

    own, inner = lists_of(block.self_attention), lists_of(block.feed_forward)
    x = x_BSD[0].tolist()
    read = [before(row, "around_attention") for row in x]
    attended = plain.multi_head(own, 2, read, read, lambda i, j: j < length)
    x = [after(row, out, "around_attention") for row, out in zip(x, attended, strict=True)]
    expected = [
        after(row, plain.feed_forward(inner, before(row, "around_feed_forward")), "around_feed_forward") for row in x
    ]
    close(block(x_BSD, Visibility(torch.tensor([length])))[0], torch.tensor(expected, dtype=torch.float64))


# Names


def legend() -> set[str]:
    return set(re.findall(r"^\| `(.)` ", (ROOT / "docs" / "axes.md").read_text(encoding="utf-8"), re.MULTILINE))


def axes_in(path: Path) -> set[str]:
    """The letters at the end of the names of variables, arguments and fields; parameters keep their paper's names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    suffixes = [name.rpartition("_")[2] for name in names if re.fullmatch(r"[a-z]\w*_[A-Z0-9]+", name)]
    return {letter for suffix in suffixes if not suffix.isdigit() for letter in suffix}


def test_every_axis_letter_stands_in_the_legend() -> None:
    used = {
        letter
        for folder in ("layers", "models", "objectives", "search")
        for path in (ROOT / "src" / "regard" / folder).glob("*.py")
        for letter in axes_in(path)
    }
    assert used
    assert used <= legend()
