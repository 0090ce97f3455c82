"""Batches in rows of fixed size: the same loss and gradients as of padded batches."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from model_cases import CASES, SOURCE_SIZE, TARGET_SIZE, build
from regard.data.batches import AnyBatch, Batch, MaskedBatch, Padded, TextBatch
from regard.data.epochs import RowSizes
from regard.data.tiles import TILE
from regard.engine.graphs import CapturedLoss
from regard.engine.packing import visible_tiles
from regard.engine.shapes import pack, packed_row, with_rounded_shapes
from regard.models import MODELS as KINDS
from regard.models.bert import BERTConfig
from regard.models.gpt import GPTConfig
from regard.models.self_attention import SelfAttentionConfig
from regard.models.transformer import TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.objectives.language_model import MaskedTokens, NextToken

SIZES: dict[str, Any] = {"width": 32, "heads": 2, "feed_forward": 24, "dropout": 0.0}
VOCABULARY = 20
ONE, FEW, MANY = [1], [5, 1, 130, 7], [9, 2, 40, 3, 17] * 9
"""One token; odd lengths, one over a tile; more sentences than the row was planned for."""

pytestmark = pytest.mark.engine  # only the engine packs batches


def tokens(lengths: list[int], vocabulary: int = VOCABULARY) -> Padded:
    lengths_B = torch.tensor(lengths)
    ids_BL = torch.randint(5, vocabulary, (len(lengths), max(lengths)))
    return Padded.of(
        ids_BL.masked_fill(torch.arange(max(lengths)) >= lengths_B[:, None], 0), lengths_B
    )


def pairs(lengths: list[int], vocabulary: int = VOCABULARY) -> Batch:
    return Batch(
        tokens(lengths, vocabulary),
        tokens([length + 1 for length in reversed(lengths)], vocabulary),
    )


def masked(lengths: list[int]) -> MaskedBatch:
    text = tokens(lengths)
    places_P = torch.arange(len(lengths)) * max(lengths) + torch.tensor(lengths) - 1
    segments_BL = (torch.arange(max(lengths)) > 2).long().expand_as(text.ids_BL)
    return MaskedBatch(
        text, segments_BL, places_P, text.ids_BL.flatten()[places_P], torch.arange(len(lengths)) % 2
    )


MODELS: dict[str, Any] = {
    "transformer": lambda: TransformerConfig(encoder_layers=1, decoder_layers=1, **SIZES),
    "look-ahead": lambda: TransformerConfig(
        encoder_layers=1, decoder_layers=1, look_ahead=True, **SIZES
    ),
    "self-attention": lambda: SelfAttentionConfig(encoder_layers=1, decoder_layers=1, **SIZES),
    "gpt": lambda: GPTConfig(layers=1, max_positions=140, **SIZES),
    "bert": lambda: BERTConfig(layers=1, max_positions=140, **SIZES),
}


def case(kind: str, lengths: list[int]) -> tuple[torch.nn.Module, AnyBatch]:
    config = MODELS[kind]()
    if kind == "gpt":
        return NextToken(KINDS[config.kind].build(config, VOCABULARY), 0.1), TextBatch(
            tokens([length + 1 for length in lengths])
        )
    if kind == "bert":
        return MaskedTokens(KINDS[config.kind].build(config, VOCABULARY)), masked(lengths)
    return TokenCrossEntropy(KINDS[config.kind].build(config, VOCABULARY, VOCABULARY), 0.1), pairs(
        lengths
    )


def sums_and_gradients(
    objective: torch.nn.Module, call: Any, batch: AnyBatch
) -> tuple[Tensor, list[Tensor]]:
    objective.zero_grad()
    sums_2 = call(batch.unnamed())
    sums_2[0].backward()
    return sums_2.detach(), [
        weight.grad for weight in objective.parameters() if weight.grad is not None
    ]


@pytest.mark.parametrize("kind", MODELS)
def test_a_packed_batch_has_the_loss_and_gradients_of_a_padded_one(kind: str) -> None:
    """All batches with the same compiled graph, since their shapes do not depend on what they
    hold."""
    torch.manual_seed(3)
    torch.compiler.reset()
    objective = case(kind, ONE)[0].double().train()
    compiled = torch.compile(objective, backend="eager", dynamic=False, fullgraph=True)
    shapes = []
    for batch in (case(kind, lengths)[1] for lengths in (ONE, FEW, MANY)):
        expected, gradients = sums_and_gradients(objective, objective, batch)
        packed = pack(batch, RowSizes(256, 384, 64, 8))
        shapes.append(pack(batch, RowSizes(256, 384, 256, 8)).signature())
        for call in (objective, compiled):
            found, of_packed = sums_and_gradients(objective, call, packed)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
            for one, other in zip(of_packed, gradients, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert shapes[0] == shapes[1], (
        "else each number of sentences would be captured, or compiled, anew"
    )


@pytest.mark.parametrize("causal", [False, True])
def test_the_tiles_cover_what_is_visible(causal: bool) -> None:
    """Those of each query hold all its keys, those of each key all its queries, and the mask is the
    whole matrix."""
    torch.manual_seed(3)
    lengths = torch.randint(1, 60, (40,)).tolist()
    sizes = RowSizes(2048, 1536, 64, 64)
    own = packed_row(tokens(lengths), sizes.first, sizes)
    other = (
        own
        if causal
        else packed_row(tokens([max(1, n // 2) for n in lengths]), sizes.second, sizes)
    )
    visible_PP = own.sentences_P[:, None] == other.sentences_P
    visible_PP = visible_PP.tril() if causal else visible_PP
    tiles = visible_tiles(own, other, causal)
    seen_TT = visible_PP.view(len(visible_PP) // TILE, TILE, -1, TILE).any(3).any(1)
    for seen, counts, indices in (
        (seen_TT, tiles.kv_num_blocks, tiles.kv_indices),
        (seen_TT.t(), tiles.q_num_blocks, tiles.q_indices),
    ):
        for row, count, listed in zip(
            seen, counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True
        ):
            assert set(row.nonzero()[:, 0].tolist()) <= set(listed[:count])
            assert len(set(listed[:count])) == count <= row.sum() + 1, "each once, and hardly more"
    q_P, k_P = map(torch.arange, visible_PP.shape)
    assert torch.equal(tiles.mask_mod(q_P[:1], q_P[:1], q_P[:, None], k_P), visible_PP)
    if os.environ.get("REGARD_SLOW"):  # compiling takes longer than all other tests of this file
        torch.compiler.reset()
        q, k, v = torch.randn(1, 2, 2048, 16), *torch.randn(2, 1, 2, visible_PP.shape[1], 16)
        fast = torch.compile(lambda: flex_attention(q, k, v, block_mask=tiles))
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=visible_PP)
        torch.testing.assert_close(fast(), expected, rtol=1e-4, atol=1e-5)


def test_masked_batches_have_one_shape_however_many_tokens_are_masked() -> None:
    """As in `row_sizes`; the last batch of an epoch has fewer."""
    shapes = {
        pack(masked(lengths), RowSizes(2048, 2048, 128, 128, masked=256)).signature()
        for lengths in ([9] * 20, [9] * 60, [3] * 120)
    }
    assert len(shapes) == 1
    beyond = pack(masked([3] * 300), RowSizes(2048, 2048, 128, 384, masked=256))
    assert len(beyond.places_P) == 384


RECURRENT = [name for name in CASES if name.startswith(("rnn", "bahdanau", "luong"))]


@pytest.mark.parametrize("lengths", [ONE, FEW, MANY], ids=["one-token", "few", "many"])
@pytest.mark.parametrize("name", RECURRENT)
def test_computing_padding_like_words_changes_nothing(name: str, lengths: list[int]) -> None:
    objective = TokenCrossEntropy(build(CASES[name]), 0.1).train()
    torch.manual_seed(3)
    batch = pairs([min(length, 20) for length in lengths], min(SOURCE_SIZE, TARGET_SIZE))
    expected, gradients = sums_and_gradients(objective, objective, batch)
    found, of_rounded = sums_and_gradients(objective, objective, with_rounded_shapes(batch))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for one, other in zip(of_rounded, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["transformer", "gpt", "bert"])
def test_the_kernels_of_a_gpu_are_within_bf16_of_the_equation(kind: str) -> None:
    """The norm of the difference of all gradients is within 3 % of the norm of the gradients."""
    torch.manual_seed(3)
    objective = case(kind, FEW)[0].cuda().train()
    fast = torch.compile(objective, dynamic=False, fullgraph=True)
    for lengths in (FEW, ONE):
        batch = case(kind, lengths)[1]
        expected, gradients = sums_and_gradients(objective, objective, batch.to("cuda"))
        packed, flat = (
            pack(batch, RowSizes(256, 256, 256, 8)).to("cuda"),
            torch.cat([g.flatten() for g in gradients]),
        )
        for call in (objective, fast):
            with torch.autocast("cuda", torch.bfloat16):
                found, of_packed = sums_and_gradients(objective, call, packed)
            torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)
            assert (torch.cat([g.flatten() for g in of_packed]) - flat).norm() < 0.03 * flat.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("name", "adds"), [("transformer", False), ("transformer", True), ("bahdanau-gru", True)]
)
def test_a_captured_step_has_the_gradients_of_a_plain_one(name: str, adds: bool) -> None:
    objective = TokenCrossEntropy(build(CASES[name], dtype=torch.float32), 0.1).cuda().train()
    batches = [
        pairs(lengths, min(SOURCE_SIZE, TARGET_SIZE))
        for lengths in ([5, 1, 12, 7], [3, 12, 2, 9], [12, 4, 1, 1])
    ]
    shaped = [
        pack(b, RowSizes(128, 128, 128, 8)) if name == "transformer" else with_rounded_shapes(b)
        for b in batches
    ]

    def loss(batch: AnyBatch, factor: float | Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            sums_2: Tensor = objective(batch.unnamed())
        (sums_2[0] * factor).backward()
        return sums_2.detach()

    captured = CapturedLoss(loss, objective.parameters())
    for batch in shaped:
        objective.zero_grad(set_to_none=not adds)
        found = captured(batch.to("cuda"), 0.5)
        gradients = [
            weight.grad.clone() for weight in objective.parameters() if weight.grad is not None
        ]
        objective.zero_grad(set_to_none=not adds)
        expected = loss(batch.to("cuda"), 0.5)
        torch.testing.assert_close(found, expected)
        for weight, gradient in zip(objective.parameters(), gradients, strict=True):
            torch.testing.assert_close(weight.grad, gradient, rtol=2e-2, atol=2e-2)
    assert sum(graph is not None for graph in captured.graphs.values()) == 1
