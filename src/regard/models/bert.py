"""Devlin et al. 2019, "BERT: Pre-training of deep bidirectional Transformers", arXiv:1810.04805: an
encoder only."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data.batches import LabelledBatch, MaskedBatch, Tokens
from regard.engine.attention import Visibility
from regard.engine.packing import packed_if_faster
from regard.engine.shapes import PackedMaskedBatch
from regard.layers.attention import FeedForward, MultiHeadAttention, Visible, visible_between
from regard.layers.embeddings import Embedding, Positions, Readout
from regard.layers.linear import ACTIVATIONS, Dropout, Linear
from regard.models.base import (
    BlocksConfig,
    HeadPooling,
    MaskedModel,
    Output,
    Pooler,
    Presets,
)

Segmented = MaskedBatch | LabelledBatch
"""Batches of texts with one or two segments."""


BASE = {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072}
ROBERTA = {"next_sentence": False, "segment_vectors": 1, "first_position": 2}
ELECTRA_SMALL = {
    "layers": 12,
    "width": 256,
    "heads": 4,
    "feed_forward": 1024,
    "embedding_width": 128,
}
ELECTRA = {"next_sentence": False, "replaced_head": True, "pooler": "gelu"}


class BERTConfig(BlocksConfig):
    """Bidirectional Transformer encoder (Devlin 2019)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"layers": 2, "width": 128, "heads": 2, "feed_forward": 512},
        "mini": {"layers": 4, "width": 256, "heads": 4, "feed_forward": 1024},
        "small": {"layers": 4, "width": 512, "heads": 8, "feed_forward": 2048},
        "medium": {"layers": 8, "width": 512, "heads": 8, "feed_forward": 2048},
        "base": BASE,
        "large": {"layers": 24, "width": 1024, "heads": 16, "feed_forward": 4096},
        "roberta_base": {**BASE, **ROBERTA},
        "electra_small": {**ELECTRA_SMALL, **ELECTRA, "generator_size": 1 / 4},
        "electra_base": {**BASE, **ELECTRA, "generator_size": 1 / 3},
    }
    pretraining = "masked"
    segments = True
    head_pooling = "first"

    kind: Literal["bert"] = "bert"
    preset: Literal[
        "tiny",
        "mini",
        "small",
        "medium",
        "base",
        "large",
        "roberta_base",
        "electra_small",
        "electra_base",
    ] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` and `large` are the
    paper's; `tiny` to `medium` are those of Turc et al. 2019, arXiv:1908.08962; the last three are
    RoBERTa and ELECTRA, whose pre-training differs too (recipes `tales-roberta` and
    `tales-electra`)."""
    layers: int = Field(4, ge=1)
    """Blocks."""
    next_sentence: bool = True
    """Whether the model also learns next-sentence prediction: does the second segment follow the
    first?"""
    masked_head: bool = True
    """Whether the model has the masked-LM head, which predicts masked tokens; an imported model may
    lack it."""
    replaced_head: bool = False
    """Whether the model has ELECTRA's head, which tells for each token whether a generator replaced
    it."""
    generator_size: float | None = Field(None, gt=0, le=1)
    """Size of ELECTRA's generator, which only pre-training needs: its heads, width and feed-forward
    width are this share of the model's (1/4 for ELECTRA small, 1/3 for base). It shares the
    embeddings and has the masked-LM head. null: no generator."""
    embedding_width: int | None = Field(None, ge=1)
    """Width of the embeddings, which a matrix then projects to `width` (ELECTRA small: 128); null:
    `width`, without a projection."""
    first_position: int = Field(0, ge=0)
    """Row of the position table that the first token gets. RoBERTa's is 2: no token uses the rows
    before it."""
    segment_vectors: Literal[0, 1, 2] = 2
    """Vectors that tell the segments apart: BERT has two; RoBERTa has one, which every token gets;
    DistilBERT has none."""
    pooler: Literal["tanh", "gelu", "relu"] = "tanh"
    """Activation of the layer between the first token and the head of a task: tanh in BERT and
    RoBERTa, GELU in ELECTRA, ReLU in DistilBERT."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """Activation of the feed-forward layers: the paper's exact GELU, its approximation by a tanh,
    or ReLU."""
    epsilon: float = Field(1e-12, gt=0)
    """Added to the variance in every LayerNorm; the default is that of the paper's code."""

    @model_validator(mode="after")
    def _generator_fits(self) -> Self:
        if self.generator_size is not None and (self.next_sentence or not self.replaced_head):
            raise ValueError(
                "generator_size is for ELECTRA, which needs replaced_head: true and "
                "next_sentence: false"
            )
        return self

    def head_layer(self, width: int, pooling: HeadPooling | None) -> Pooler | None:
        return Pooler(width, self.pooler) if pooling == "first" else None

    def of_generator(self) -> BERTConfig:
        """The config of ELECTRA's generator (section 3.2): narrower, with embeddings of the same
        width."""
        assert self.generator_size is not None
        heads = max(1, round(self.heads * self.generator_size))
        width = heads * (self.width // self.heads)
        embedding = self.embedding_width or self.width
        changes = {
            "heads": heads,
            "width": width,
            "feed_forward": max(1, round(self.feed_forward * self.generator_size)),
            "embedding_width": None if embedding == width else embedding,
            "masked_head": True,
            "replaced_head": False,
            "generator_size": None,
        }
        return self.model_copy(update=changes)


class BERTEmbedding(nn.Module):
    """x = Dropout(LayerNorm(token + segment + position)).

    The sum is figure 2, the dropout section A.2; the LayerNorm is only in the paper's code. If the
    embeddings are narrower than the model: x = W Dropout(...) + b, as in ELECTRA.
    """

    def __init__(self, config: BERTConfig, vocabulary_size: int) -> None:
        super().__init__()
        width = config.embedding_width or config.width
        self.tokens = Embedding(vocabulary_size, width)
        self.segments = Embedding(config.segment_vectors, width) if config.segment_vectors else None
        self.positions = Positions(
            "learned", width, config.max_positions, first=config.first_position
        )
        self.norm = nn.LayerNorm(width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)
        self.projection = None if config.embedding_width is None else Linear(width, config.width)

    def forward(self, text: Tokens, segments: Tensor) -> Tensor:
        """The text and its segments have one layout, padded or packed."""
        x = self.tokens(text.ids)
        if self.segments is not None:
            x = x + self.segments(segments.clamp(max=self.segments.num_embeddings - 1))
        x = self.dropout(self.norm(self.positions(x, text)))
        return x if self.projection is None else self.projection(x)


class Block(nn.Module):
    """Self-attention, then feed-forward with GELU, each as LayerNorm(x + Dropout(Sublayer(x)))
    (sections 3 and A.2)."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.width, config.heads, dropout=config.attention_dropout
        )
        self.feed_forward = FeedForward(config.width, config.feed_forward, config.activation)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BQD: Tensor, visible: Visibility, text_BKD: Tensor | None = None) -> Tensor:
        """The new states of all tokens of a text; or of some, x, which attend to the whole text."""
        if text_BKD is None:
            attended_BQD = self.self_attention.attend_to_self(x_BQD, visible)
        else:
            keys_values = self.self_attention.keys_values(text_BKD)
            attended_BQD = self.self_attention(x_BQD, *keys_values, visible)
        x_BQD = self.attention_norm(x_BQD + self.dropout(attended_BQD))
        return self.feed_forward_norm(x_BQD + self.dropout(self.feed_forward(x_BQD)))


class HeadSizes(Protocol):
    """The fields of a config that a masked-LM head needs."""

    @property
    def width(self) -> int: ...
    @property
    def activation(self) -> str: ...
    @property
    def epsilon(self) -> float: ...


class MaskedHead(nn.Module):
    """Predicts the token at a masked position (section 3.1, task 1; the dense layer as in the
    paper's code):

    logits = LayerNorm(GELU(W h + c)) E^T + b, E the embeddings
    """

    def __init__(self, config: HeadSizes, vocabulary_size: int, tied: Embedding) -> None:
        super().__init__()
        width = tied.embedding_dim
        self.W = Linear(config.width, width)
        self.norm = nn.LayerNorm(width, eps=config.epsilon)
        self.output = Readout(width, vocabulary_size, tied)
        self.activation = ACTIVATIONS[config.activation]

    def initialise_bias(self, counts_V: Tensor) -> None:
        self.output.initialise_bias(counts_V)

    def last_layer(self, hidden: Tensor) -> tuple[Tensor, Linear]:
        """The layer that computes the logits, and its input."""
        return self.norm(self.activation(self.W(hidden))), self.output.linear

    def forward(self, hidden: Tensor) -> Tensor:
        x, linear = self.last_layer(hidden)
        return linear(x)


class NextSentenceHead(nn.Module):
    """Predicts whether the second segment follows the first (section 3.1, task 2), from the first
    token, [CLS]:

    C = tanh(W_p h_[CLS] + b_p)                 the pooler, which fine-tuning uses too
    logits = W_n C + b_n                        class 0: it follows; class 1: it does not, as in the published weights
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pooler = Linear(width, width)
        self.output = Linear(width, 2)

    def pool(self, hidden_BLD: Tensor) -> Tensor:
        """One vector per text, [B, D]."""
        return torch.tanh(self.pooler(hidden_BLD[:, 0]))

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        return self.output(self.pool(hidden_BLD))


class ReplacedHead(nn.Module):
    """Tells for each token whether a generator put it there.

    Clark et al. 2020, "ELECTRA", arXiv:2003.10555, section 2 (the dense layer as in the paper's code):
        D(x, t) = sigmoid(w^T h_D(x)_t),  h_D = GELU(W h + c)
    The logit is what sigmoid is applied to.
    """

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.W = Linear(config.width, config.width)
        self.output = Linear(config.width, 1)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Logits [B, L]: above 0 if the token is more likely replaced than original."""
        return self.output(self.activation(self.W(hidden_BLD))).squeeze(-1)


def initialise(model: nn.Module) -> None:
    """Weights from N(0, 0.02) and biases of 0, as in the paper's code."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class BERT(MaskedModel):
    """The Transformer encoder alone, which predicts masked tokens from the context on both sides.

    Devlin et al. 2019, section 3 and figure 2; dropout and GELU in section A.2:
        h_0 = Dropout(LayerNorm(token + segment + position))
        h_l = Block_l(h_{l-1})                                  for all l in [1, L]
    `MaskedHead` and `NextSentenceHead` read h_L.

    Later papers keep this model without next-sentence prediction, and change fields of its config:
        RoBERTa, Liu et al. 2019, arXiv:1907.11692       segment_vectors: 1, first_position: 2
        DistilBERT, Sanh et al. 2019, arXiv:1910.01108   segment_vectors: 0, pooler: relu
        ELECTRA, Clark et al. 2020, arXiv:2003.10555     replaced_head, generator_size, embedding_width,
                                                         pooler: gelu; objectives/replaced_tokens.py
    """

    config: BERTConfig

    def __init__(self, config: BERTConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.longest = config.max_positions
        self.width = config.width
        self.depth = config.layers
        self.embedding = BERTEmbedding(config, vocabulary_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        has_generator = config.generator_size is not None
        self.output = (
            MaskedHead(config, vocabulary_size, self.embedding.tokens)
            if config.masked_head and not has_generator
            else None
        )
        self.next_sentence = NextSentenceHead(config.width) if config.next_sentence else None
        self.replaced = ReplacedHead(config) if config.replaced_head else None
        self.generator = self._make_generator(vocabulary_size) if has_generator else None
        initialise(self)

    def _make_generator(self, vocabulary_size: int) -> BERT:
        """ELECTRA's generator, whose embeddings are those of this model."""
        generator = BERT(self.config.of_generator(), vocabulary_size)
        theirs = generator.embedding
        theirs.tokens = self.embedding.tokens
        theirs.positions = self.embedding.positions
        theirs.segments = self.embedding.segments
        theirs.norm = self.embedding.norm
        assert generator.output is not None
        generator.output.output.linear.weight = self.embedding.tokens.weight
        return generator

    def prepare_for_head(self, *, keep_readout: bool, by_token: bool) -> None:
        super().prepare_for_head(keep_readout=keep_readout, by_token=by_token)
        self.replaced = None
        self.generator = None

    @property
    def masked_model(self) -> BERT:
        return self if self.generator is None else self.generator

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.embedding.tokens}

    def forward(self, batch: Segmented | PackedMaskedBatch) -> Output:
        """The hidden states of the last layer, [B, L, D]."""
        x_BLD, visible, text = self.before_last_block(batch)
        return Output(text.restore(self.blocks[-1](x_BLD, visible)))

    def before_last_block(
        self, batch: Segmented | PackedMaskedBatch
    ) -> tuple[Tensor, Visibility, Tokens]:
        """The input of the last block, who may look at whom, and the text in the layout that is
        computed."""
        text = packed_if_faster(batch.text, self, self.config)
        if isinstance(batch, PackedMaskedBatch):
            x_BLD = self.embedding(text, batch.segments_1P)
        else:
            x_BLD = self.embedding(text, text.arrange(batch.segments_BL))
        visible = visible_between(text, text)
        for block in list(self.blocks)[:-1]:
            x_BLD = block(x_BLD, visible)
        return x_BLD, visible, text

    def states(self, batch: Segmented) -> Tensor:
        return self.forward(batch).hidden_BTD

    def first_states(self, batch: Segmented) -> Tensor:
        """The states of the first tokens. Only for speed: the last block computes no others."""
        x_BLD, _, text = self.before_last_block(batch)
        x_BLD = text.restore(x_BLD)
        first_B1D: Tensor = self.blocks[-1](x_BLD[:, :1], Visible(batch.text.lengths_B), x_BLD)
        return first_B1D

    def layers_of(self, batch: Segmented) -> list[Tensor]:
        visible = Visible(batch.text.lengths_B)
        layers = [self.embedding(batch.text, batch.segments_BL)]
        for block in self.blocks:
            layers.append(block(layers[-1], visible))
        return layers
