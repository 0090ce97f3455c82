"""The interfaces of all models: configs, batch -> output, begin / step / select, and vectors of
single texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.config import Config
from regard.data.batches import Padded, TextBatch, real_positions
from regard.errors import DecodeError
from regard.layers.embeddings import Embedding, Tie, tied_embeddings
from regard.layers.linear import ACTIVATIONS
from regard.layers.recurrence import Bridge, Carry, CellKind, RecurrentEncoder
from regard.layers.scores import Memory
from regard.text.vectors import VectorsConfig

Presets = Mapping[str, Mapping[str, Any]]  # preset name -> values of fields
Pooling = Literal["mean", "first", "last"]
"""One vector for a text: the mean of its token vectors, or that of its first or last token."""
HeadPooling = Literal["first", "last", "mean", "max"]
"""One vector for a text under a head: as `Pooling`, or the largest value of each dimension."""


TOKENS_PER_READOUT = 1024
"""Positions whose logits are computed together when a model is measured: logits need far more memory
than hidden states."""


class ModelConfig(Config):
    """The base of every model's config: its presets, and what the model can do.

    The class variables say what a kind of model can do, so that other code does not have to ask for
    its class.
    """

    PRESETS: ClassVar[Presets] = {}

    reads: ClassVar[Literal["source", "image", "story", "text"]]
    """The contents of a batch: a source and a target, an image and a caption, a story and a
    question, or single texts."""
    # whether it can read single texts under a head, too, though it reads a source and a target
    reads_texts: ClassVar[bool] = False
    # whether it writes text token by token, with `begin` and `step`
    generates: ClassVar[bool] = False
    pretraining: ClassVar[
        Literal["next_token", "both_directions", "masked", "surrounding"] | None
    ] = None
    """The objective of pre-training on raw text; None if the model is not pre-trained."""
    # whether the state of a token depends only on this token and those before it
    causal: ClassVar[bool] = False
    # whether the state of a token depends only on a few tokens around it
    local: ClassVar[bool] = False
    # whether it reads two texts as two segments: [CLS] first [SEP] second [SEP]
    segments: ClassVar[bool] = False
    represents: ClassVar[Literal["tokens", "texts"] | None] = "tokens"
    """What it has vectors for: every token, or only a text as a whole; None if it has none."""
    equal_layers: ClassVar[bool] = False
    """Whether the embeddings and all layers have one width, so that a head can mix them."""
    # how a head makes one vector of a text, unless the recipe says so
    head_pooling: ClassVar[HeadPooling] = "max"
    head_defaults: ClassVar[
        Mapping[str, Any]
    ] = {}  # defaults of the recipe's section `head` for this model
    attends: ClassVar[bool] = False  # whether it has attention, besides what `alignment` names
    # a pattern for the names of its attentions over the source; empty if it has none
    alignment: ClassVar[str] = ""

    vectors: VectorsConfig | None = None
    """Word vectors from files that the embeddings begin with."""
    kind: str
    preset: str

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        preset = tree.get("preset", cls.model_fields["preset"].default)
        return {**cls.PRESETS.get(str(preset), {}), **tree}

    @property
    def learning_rate(self) -> float:
        """The highest learning rate of Adam for such a model from scratch, unless the recipe gives
        one."""
        return 1e-3

    @property
    def letters(self) -> int | None:
        """How many characters the model reads of a word outside the vocabulary, including two
        markers for its ends; None if it reads such a word as `<unk>`."""
        return None

    @property
    def loops(self) -> bool:
        """Whether training loops over time, so that a GPU captures its steps, including the padding
        (engine/shapes.py)."""
        return False

    @property
    def packs(self) -> bool:
        """Whether the model computes on packed sentences, in rows of fixed size, when it is
        trained."""
        return False

    def head_layer(self, width: int, pooling: HeadPooling | None) -> nn.Module | None:
        """The layer of a head between vectors of this width and its last layer, as the paper has
        it; None if there is none. `pooling` is None if the head answers for each token."""
        return None

    def check_data(self, longest_source: int, longest_target: int = 0) -> None:
        """Raise a ConfigError if the model cannot be trained on texts of up to this many tokens,
        including `</s>`."""


class Kind(NamedTuple):
    """A kind of model: its config, which declares what it can do, and the model's class or what
    calls it."""

    config: type[ModelConfig]
    model: Callable[..., Any]
    text_model: Callable[..., Any] | None = None
    """What reads single texts under a head, if the model itself reads a source and a target."""

    def build_base(self, config: ModelConfig, vocabulary_size: int, **options: Any) -> Any:
        """The model of single texts below a head, with new weights."""
        kind = self._replace(model=self.text_model or self.model)
        return kind.build(config, vocabulary_size, **options)

    def build(self, config: ModelConfig, *sizes: int, **options: Any) -> Any:
        """The model that a config describes, with new weights from torch's random generator.

        `sizes` are those of its vocabularies: source and target, or the only one. ELMo takes
        `characters_VC`, the spelling of its vocabulary.
        """
        model = self.model(config, *sizes, **options)
        if config.vectors is not None and config.vectors.freeze:
            for column in config.vectors.files:
                if column in model.embeddings:
                    model.embeddings[column].requires_grad_(False)
        return model


def rate_of_recurrence(hidden: int) -> float:
    """The highest learning rate of Adam for recurrent states of this width: 5e-3 up to 200, 2e-3
    for 512.

    The best rate of Adam falls in inverse proportion to the width (Yang et al. 2022,
    arXiv:2203.03466, table 3); what it is for one width was measured: docs/defaults.md.
    """
    return min(5e-3, 1.0 / hidden)


def rate_of_blocks(width: int, *, pre_norm: bool) -> float:
    """The highest learning rate of Adam for Transformer blocks of this width: 3e-3 up to 133,
    7.8e-4 for 512.

    With LayerNorm after the sub-layers a third of 0.4 / width, since a higher one diverges.
    """
    return min(3e-3, (0.4 if pre_norm else 0.4 / 3) / width)


def check_heads(heads: int, width: int) -> None:
    if width % heads:
        fitting = [str(number) for number in range(1, min(width, 64) + 1) if width % number == 0]
        raise ValueError(
            f"{heads} heads do not divide the width {width} (heads that do: {', '.join(fitting)})"
        )


class HeadsConfig(ModelConfig):
    """The base of configs for models made of blocks with attention heads."""

    attends = True

    if TYPE_CHECKING:  # each model declares these fields, in its own order
        width: int
        heads: int
        attention_dropout: float

    @property
    def learning_rate(self) -> float:
        return rate_of_blocks(self.width, pre_norm=getattr(self, "norm", "post") == "pre")

    @property
    def packs(self) -> bool:
        """The kernel for rows of fixed size supports only wide heads without dropout."""
        return self.width // self.heads >= 16 and self.attention_dropout == 0

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        check_heads(self.heads, self.width)
        return self


class RecurrentConfig(ModelConfig):
    """The base of configs for recurrent encoder-decoders."""

    reads = "source"
    generates = True

    cell: CellKind = "lstm"
    """The recurrent cell: plain RNN, GRU or LSTM."""
    embedding: int = Field(256, ge=1)
    """Width of the token embeddings."""
    hidden: int = Field(512, ge=1)
    """Width of the recurrent state, of each encoder direction and of the decoder."""

    if TYPE_CHECKING:  # each model declares these fields, in its own order
        layers: int
        bidirectional: bool
        dropout: float
        tie: Tie

    @property
    def learning_rate(self) -> float:
        return rate_of_recurrence(self.hidden)


class BlocksConfig(HeadsConfig):
    """The base of the configs of GPT and BERT: the sizes of a stack of Transformer blocks over one
    text."""

    reads = "text"
    equal_layers = True

    layers: int = Field(6, ge=1)
    """Blocks."""
    width: int = Field(512, ge=1)
    """Width of the embeddings and of all layers."""
    heads: int = Field(8, ge=1)
    """Attention heads; each gets an equal share of the width."""
    feed_forward: int = Field(2048, ge=1)
    """Width inside the feed-forward layers."""
    max_positions: int = Field(512, ge=1)
    """Number of learned positions: no text may be longer."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings and on the output of every sub-layer."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the attention weights. The paper's is 0.1; without it a GPU is faster if lengths
    differ."""


@dataclass(frozen=True)
class Output:
    """The result of a forward pass; `readout(hidden)` computes logits where the objective needs
    them."""

    hidden_BTD: Tensor
    attended_BS: Tensor | None = field(default=None, kw_only=True)
    """The summed attention to each source position, if the model was trained with a penalty on
    it."""


# Models that write text


MemoryT = TypeVar("MemoryT", Memory, Tensor, None)


@dataclass(frozen=True)
class RecurrentState(Generic[MemoryT]):
    """The state of a recurrent decoder: per row its carry, per source what it reads of the source
    in each step."""

    carry: Carry  # each part [..., R, D]
    memory: MemoryT

    def select(self, rows_BW: Tensor) -> Self:
        """The state of these rows, in this order, as every state of a `Generator` gives it.

        `rows_BW[b, w]` is the old row that the new row b * W + w continues. All rows of a group
        come from one source. Groups keep their order: those that are not named are dropped with
        their source, so as many groups as before are the same ones. W may change.
        """
        memory = self.memory
        rows_R = rows_BW.flatten()
        if memory is not None and len(memory) != len(rows_BW):
            memory = memory[rows_BW[:, 0] // (self.carry[0].shape[-2] // len(memory))]
        return replace(
            self, carry=tuple(part.index_select(-2, rows_R) for part in self.carry), memory=memory
        )


class Generator(nn.Module):
    """A model that writes text: the interface for training, search and scoring.

    The whole state of decoding is a value with `select`. Its rows come in groups of W, one group
    per source: row r belongs to source r // W.
    """

    config: ModelConfig
    source_embedding: Embedding
    target_embedding: Embedding
    output: Any  # the module that `readout` runs
    # the most tokens that it can read or write; None if unlimited
    longest: int | None = None

    @property
    def alignment(self) -> str:
        """A pattern for the names of the attentions over the source; empty if there are none."""
        return self.config.alignment

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The embeddings of both sides; the same module if they are tied."""
        return {"source": self.source_embedding, "target": self.target_embedding}

    def forward(self, batch: Any) -> Output:
        """Teacher forcing: hidden states that predict `target[:, 1:]` from `source` and `target[:,
        :-1]`. The batch has the types that the model reads (data/batches.py)."""
        raise NotImplementedError

    def readout(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] -> logits [..., V]."""
        return self.output(hidden)

    def begin(self, source: Any, rows: int, max_length: int) -> Any:
        """Read the sources, `Padded` or `Images`; a state with `rows` hypotheses of at most
        `max_length` tokens for each source."""
        raise NotImplementedError

    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one token per row (`<s>` first); logits_RV of the next one. The old state must not
        be used again."""
        raise NotImplementedError


class RecurrentGenerator(Generator):
    """The base of recurrent encoder-decoders: embeddings, an encoder, and a bridge from its last
    state to the decoder."""

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_embedding, self.target_embedding = tied_embeddings(
            source_size, target_size, config.embedding, config.tie
        )
        self.encoder = RecurrentEncoder(
            config.cell,
            config.embedding,
            config.hidden,
            config.layers,
            config.bidirectional,
            config.dropout,
        )
        self.bridge = Bridge(config.cell, self.encoder.width, config.hidden)
        self.dropout = nn.Dropout(config.dropout)


def group_rows(x_RD: Tensor, sources: int) -> Tensor:
    """Rows by source: [B * W, D] -> [B, W, D]."""
    return x_RD.view(sources, -1, x_RD.shape[-1])


# Models of single texts


class Contextual(nn.Module):
    """A model whose hidden states represent tokens in their context."""

    config: ModelConfig
    width: int  # the width of the last layer
    depth: int  # the number of layers above the embeddings
    output: Any  # the module that `readout` runs; None under a head that does not need it
    next_sentence: Any  # BERT's head for next-sentence prediction; None under another head
    by_token: bool = False  # whether the head above it has an answer for each token

    def prepare_for_head(self, *, keep_readout: bool, by_token: bool) -> None:
        """Drop the modules that only pre-training needs. `by_token`: whether the head above has an
        answer for each token."""
        self.by_token = by_token
        self.next_sentence = None
        if not keep_readout:
            self.output = None

    def count(self, texts: Iterable[Padded]) -> None:
        """Take what the model needs to know of the training texts, before the first step. Most models
        need nothing."""

    def depth_of(self, name: str) -> int:
        """The layer of a weight: 0 for the embeddings, 1 for the first layer; the last for weights
        after all layers."""
        if match := re.match(r"(?:blocks|layers|forward_layers|backward_layers)\.(\d+)\.", name):
            return int(match[1]) + 1
        return 0 if name.startswith(("embedding", "positions")) else self.depth

    def readout(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] -> logits [..., V]."""
        return self.output(hidden)

    def states(self, batch: Any) -> Tensor:
        """The vectors of the last layer, [B, L, D]. Values on padding are arbitrary."""
        return self.layers_of(batch)[-1]

    def first_states(self, batch: Any) -> Tensor:
        """The vectors of the first tokens in the last layer, [B, 1, D]."""
        return self.states(batch)[:, :1]

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The embeddings that word vectors can initialise, by column."""
        embedding = self.get_submodule("embedding")
        return {"text": embedding} if isinstance(embedding, Embedding) else {}

    @property
    def has_word_vectors(self) -> bool:
        """Whether each token has a vector without a context."""
        return "embedding" in dict(self.named_children())

    @torch.inference_mode()
    def static_vectors(self, ids_P: Tensor) -> Tensor:
        """The vectors of tokens without a context, [P, D], of a model that has some."""
        vectors_1PD: Tensor = self.get_submodule("embedding")(ids_P[None].to(device_of(self)))
        return vectors_1PD[0].float()

    def layers_of(self, batch: Any) -> list[Tensor]:
        """The vectors of all layers, embeddings first, each [B, L, D]. Values on padding are
        arbitrary."""
        raise NotImplementedError


class MaskedModel(Contextual):
    """A model that reads in both directions and predicts masked tokens: BERT and what came after
    it."""

    longest: int

    @property
    def masked_model(self) -> MaskedModel:
        """The model that predicts masked tokens: this one, or the generator of ELECTRA."""
        return self

    def forward(self, batch: Any) -> Output:
        """The hidden states of the last layer, [B, L, D]."""
        return Output(self.states(batch))

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits of the tokens, [..., D] -> [..., V]. It is expensive: call it for masked positions
        only."""
        if self.output is None:
            what = "the model was imported without a masked-LM head: it cannot predict [MASK]"
            raise DecodeError(
                what, where="model.masked_head", hint="predict --features gives its vectors"
            )
        return super().readout(hidden)


class LanguageModel(Contextual, Generator):
    """A model that continues a text. The source of a search is the beginning of the text, `<s>`
    included: `begin` reads it, and the first `step` returns the logits after it, whatever token it
    is given."""

    def forward(self, batch: TextBatch) -> Output:
        """Hidden states that predict `text[:, 1:]`, each from the tokens before."""
        raise NotImplementedError


def pool(x_BLD: Tensor, text: Padded, pooling: HeadPooling) -> Tensor:
    """One vector per text, [B, D], without padding."""
    if pooling == "first":
        return x_BLD[:, 0]
    if pooling == "last":
        return last_of(x_BLD, text)
    real_BL1 = real_BL(text)[..., None]
    if pooling == "mean":
        return (x_BLD * real_BL1).sum(1) / text.lengths_B[:, None]
    return x_BLD.masked_fill(~real_BL1, -torch.inf).amax(1)


def refused_pooling(config: ModelConfig, pooling: HeadPooling | None) -> str:
    """Why the vector of a text's first or last token, a special one, says nothing about the text;
    empty if it does."""
    if config.causal and pooling == "first":
        return "a model that reads from left to right has the same first vector for every text"
    if config.represents == "texts" and pooling != "first":
        return f"{config.kind} has one vector for a text, which pooling: first takes"
    if config.local and pooling in ("first", "last"):
        return (
            f"{config.kind} reads only a few tokens around each, so its {pooling} vector "
            "does not represent a text"
        )
    return ""


def real_BL(text: Padded) -> Tensor:
    """True for tokens that are not padding."""
    return real_positions(text.lengths_B, text.ids_BL.shape[1])


def last_of(x_BLD: Tensor, text: Padded) -> Tensor:
    """The vector of the last token of each text, [B, D]."""
    return x_BLD[torch.arange(len(text), device=x_BLD.device), text.lengths_B - 1]


class Pooler(nn.Linear):
    """f(W c + b), between the vector of a text and the last layer of a head (Devlin et al. 2019: f
    is tanh)."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__(width, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, c: Tensor) -> Tensor:
        return self.activation(super().forward(c))


def count_parameters(model: nn.Module) -> int:
    """Trainable parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
