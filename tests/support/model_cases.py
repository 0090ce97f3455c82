"""Every model of the line in small, in each variant that takes another path through its code, and
batches for it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Batch, Padded, spelled
from regard.models import MODELS
from regard.models.bahdanau import BahdanauConfig
from regard.models.base import ModelConfig
from regard.models.luong import LuongConfig
from regard.models.rnn import RNNConfig
from regard.models.self_attention import SelfAttentionConfig
from regard.models.transformer import TransformerConfig
from regard.text.vocabularies import BEGIN, END, PAD

torch.set_num_threads(1)

WORDS = [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "a",
    "of",
    "the",
    "고양이",
    "walking",
    "extraordinary",
    "나",
    "ab",
    "ba",
]
SOURCE_SIZE, TARGET_SIZE = len(WORDS), 11
RNN = {"embedding": 10, "hidden": 12, "dropout": 0.0}
BAHDANAU = {"embedding": 10, "hidden": 12, "attention": 8, "dropout": 0.0}
LUONG = {**BAHDANAU, "window": 1}
TRANSFORMER = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "width": 16,
    "heads": 4,
    "feed_forward": 24,
    "dropout": 0.0,
    "max_positions": 20,
}

CASES: dict[str, ModelConfig] = {
    "rnn-plain": RNNConfig(**RNN, cell="rnn"),
    "rnn-gru-2-layers": RNNConfig(**RNN, cell="gru", layers=2),
    "rnn-lstm": RNNConfig(**RNN, cell="lstm"),
    "rnn-lstm-2-layers-bidirectional": RNNConfig(**RNN, cell="lstm", layers=2, bidirectional=True),
    "rnn-gru-every-step": RNNConfig(**RNN, cell="gru", context="every_step", tie="target"),
    "rnn-lstm-2-layers-every-step": RNNConfig(
        **RNN, layers=2, context="every_step", bidirectional=True
    ),
    "rnn-gru-reversed": RNNConfig(**RNN, cell="gru", reverse_source=True, tie="all"),
    "bahdanau-plain": BahdanauConfig(**BAHDANAU, cell="rnn"),
    "bahdanau-gru": BahdanauConfig(**BAHDANAU, cell="gru"),
    "bahdanau-lstm": BahdanauConfig(**BAHDANAU, cell="lstm", tie="target"),
    "bahdanau-gru-2-layers": BahdanauConfig(**BAHDANAU, cell="gru", layers=2),
    "bahdanau-lstm-one-direction": BahdanauConfig(
        **BAHDANAU, cell="lstm", bidirectional=False, tie="all"
    ),
    "bahdanau-gru-concat": BahdanauConfig(**BAHDANAU, score="concat"),
    "bahdanau-gru-fully-connected": BahdanauConfig(**BAHDANAU, score="fully_connected"),
    "luong-dot": LuongConfig(**LUONG, score="dot", input_feeding=False),
    "luong-scaled-dot-gru": LuongConfig(
        **LUONG, score="scaled_dot", cell="gru", input_feeding=False, tie="target"
    ),
    "luong-general-2-layers-both-ways": LuongConfig(
        **LUONG, layers=2, bidirectional=True, input_feeding=False
    ),
    "luong-local-m-plain": LuongConfig(**LUONG, reach="local_m", cell="rnn", input_feeding=False),
    "luong-local-p": LuongConfig(**LUONG, reach="local_p", input_feeding=False),
    "luong-fed": LuongConfig(**LUONG, tie="all"),
    "luong-fed-concat-gru-both-ways": LuongConfig(
        **LUONG, score="concat", cell="gru", bidirectional=True
    ),
    "luong-fed-dot-2-layers-plain": LuongConfig(**LUONG, score="dot", layers=2, cell="rnn"),
    "luong-fed-local-m": LuongConfig(**LUONG, reach="local_m", layers=2),
    "luong-fed-local-p": LuongConfig(**LUONG, reach="local_p"),
    "self-attention-plain": SelfAttentionConfig(**TRANSFORMER, encoder="plain", norm="post"),
    "self-attention-projected": SelfAttentionConfig(
        **TRANSFORMER, encoder="projected", norm="pre", tie="target"
    ),
    "self-attention-multi-head": SelfAttentionConfig(
        **TRANSFORMER, encoder="multi_head", tie="all", norm="post"
    ),
    "transformer": TransformerConfig(**TRANSFORMER, norm="post"),
    "transformer-pre": TransformerConfig(**TRANSFORMER, norm="pre", tie="target"),
    "transformer-no-norm": TransformerConfig(**TRANSFORMER, norm="none"),
    "transformer-learned": TransformerConfig(
        **TRANSFORMER, positions="learned", tie="all", norm="post"
    ),
    "transformer-no-positions": TransformerConfig(**TRANSFORMER, positions="none", norm="post"),
    "transformer-unscaled": TransformerConfig(**TRANSFORMER, scaled=False, norm="post"),
    "transformer-no-residual": TransformerConfig(**TRANSFORMER, residual=False, norm="post"),
    "transformer-pre-no-residual": TransformerConfig(**TRANSFORMER, norm="pre", residual=False),
    "transformer-look-ahead": TransformerConfig(**TRANSFORMER, look_ahead=True, norm="post"),
}
CAUSAL_CASES = [name for name in CASES if name != "transformer-look-ahead"]
TIED_CASES = [name for name, config in CASES.items() if config.tie != "none"]  # type: ignore[attr-defined]

SOURCES = [[5, 6, 7, 8, END], [9, 4, END], [12, 11, 10, 9, 8, 7, END], [6, 6, 5, END]]
TARGETS = [
    [BEGIN, 4, 5, 6, END],
    [BEGIN, 7, 8, 9, 10, 4, END],
    [BEGIN, 5, END],
    [BEGIN, 10, 9, END],
]
"""Sentences of which no source and target are longest together."""


def build(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Any:
    """A model of any kind; of those of single texts all weights are changed."""
    torch.manual_seed(seed)
    target_size = SOURCE_SIZE if getattr(config, "tie", "") == "all" else TARGET_SIZE
    sizes = {"source": (SOURCE_SIZE, target_size), "text": (SOURCE_SIZE,)}.get(
        config.reads, (TARGET_SIZE,)
    )
    options = {"characters_VC": spelled(WORDS, 12)} if config.letters else {}
    model = MODELS[config.kind].build(config, *sizes, **options).to(dtype)
    return with_weights_that_matter(model, only_vectors=config.reads != "text")


def with_weights_that_matter(model: Any, alpha: float = 0.3, *, only_vectors: bool = False) -> Any:
    """A model in evaluation mode with random weights added, or only biases and norms: their first
    values, such as zero and one, could hide mistakes."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and (parameter.dim() == 1 or not only_vectors):
                parameter.add_(torch.randn_like(parameter), alpha=alpha)
    return model.eval()


def tokens_of(sentences: Sequence[Sequence[int]], *, extra: int = 0, filler: int = PAD) -> Padded:
    """Sentences padded on the right, `extra` positions beyond the longest, with `filler`."""
    longest = max(len(sentence) for sentence in sentences) + extra
    ids_BL = torch.tensor(
        [[*sentence, *[filler] * (longest - len(sentence))] for sentence in sentences]
    )
    return Padded.of(ids_BL, torch.tensor([len(sentence) for sentence in sentences]))


def batch_of(
    sources: Sequence[Sequence[int]] = SOURCES,
    targets: Sequence[Sequence[int]] = TARGETS,
    *,
    extra: int = 0,
    filler: int = PAD,
) -> Batch:
    predicted = sum(len(target) - 1 for target in targets)
    source, target = (tokens_of(side, extra=extra, filler=filler) for side in (sources, targets))
    return Batch(source, target, tokens=predicted)


def logits_of(model: Any, batch: Any) -> Tensor:
    with torch.no_grad():
        return model.readout(model(batch).hidden_BTD)


def each_real(
    values_BT: Tensor, texts: Sequence[Sequence[int]] = TARGETS, *, without: int = 1
) -> list[Tensor]:
    """The values at each text's own positions, less the last `without`: by default those that
    predict a token."""
    return [values[: len(text) - without] for values, text in zip(values_BT, texts, strict=True)]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def close(actual: Tensor, expected: Tensor | Sequence[Any], tolerance: float = 1e-10) -> None:
    """Equal up to rounding; `expected` may be lists of numbers."""
    expected = (
        expected if isinstance(expected, Tensor) else torch.tensor(expected, dtype=actual.dtype)
    )
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


IGNORED = -100
"""The label that torch's cross-entropy leaves out."""


def labels_of(batch: Batch) -> Tensor:
    """What is to be predicted, as torch and transformers want it: every target token but `<s>`,
    padding ignored."""
    labels_BT = batch.target.ids_BL[:, 1:]
    real_BT = torch.arange(labels_BT.shape[1]) < batch.target.lengths_B[:, None] - 1
    return labels_BT.masked_fill(~real_BT, IGNORED)
