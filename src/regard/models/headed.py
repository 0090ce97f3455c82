"""A model of texts under a head: what is fine-tuned, with the base whole, in part or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.config import Config
from regard.errors import ConfigError
from regard.layers.embeddings import Embedding
from regard.layers.layer_mix import LayerMix
from regard.layers.recurrence import RecurrentEncoder
from regard.models.bert import BERT, BERTConfig
from regard.models.bilstm import BiLSTM, BiLSTMConfig
from regard.models.cnn import CNN, CNNConfig
from regard.models.contextual import Contextual, LanguageModel
from regard.models.elmo import ELMo, ELMoConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.heads import Pooling
from regard.models.language_models import build
from regard.models.lstm_lm import LSTMLanguageModelConfig

AnyTextConfig = Annotated[
    LSTMLanguageModelConfig | ELMoConfig | GPTConfig | BERTConfig | BiLSTMConfig | CNNConfig,
    Field(discriminator="kind"),
]
"""The models that can stand under a head."""
CAUSAL = ("lstm_lm", "gpt")
"""Those that see only what stands before a token, and so have a language model's loss."""
POOLING: dict[str, Pooling] = {
    "lstm_lm": "last", "elmo": "max", "gpt": "last", "bert": "first", "bilstm": "max", "cnn": "max",
}  # fmt: skip
"""What one vector for a text is made of, model by model, unless it is said."""
HEAD_DEFAULTS: dict[str, dict[str, Any]] = {
    "elmo": {"features": "mix", "freeze": "all", "bilstm": 128},
    "cnn": {"dropout": 0.5},
    "bilstm": {"dropout": 0.3},
}
"""What suits a model better than the defaults of the section `head`: ELMo's frozen features, Kim's dropout."""


class HeadConfig(Config):
    """What stands above the model, and how much of the model itself learns."""

    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout before the head's last layer."""
    freeze: Literal["all"] | Annotated[int, Field(ge=0)] = 0
    """What of the model stays as it is: 0 nothing, k the embeddings and the first k layers, all everything (frozen
    features). Default: 0; all for elmo."""
    features: Literal["last", "mix"] = "last"
    """What the head reads: the last layer, or a mix of all layers whose weights are learned (ELMo's way). Default:
    last; mix for elmo."""
    bilstm: int | None = Field(None, ge=1)
    """Width of each direction of an LSTM between the model and the head; null has none. Default: null; 128 for elmo,
    whose frozen features need something that learns."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """What the learning rate is multiplied by from one layer to the one below: 1 is the same for all; 0.9 lets what
    is pre-trained and general change less than what is new."""
    auxiliary: float = Field(0.0, ge=0)
    """Weight of the language model's own loss beside the task's; 0.5 in GPT's paper. Only for lstm_lm and gpt."""


class Headed(nn.Module):
    """A base and a head above it. Weights are named `base.*`, `mix.*`, `bilstm.*` and `head.*`."""

    def __init__(self, base: Contextual, config: HeadConfig, head: Callable[[int], nn.Module]) -> None:
        """`head` is made for the width of what it reads."""
        super().__init__()
        self.base, self.config = base, config
        self.mix = _mix_of(base) if config.features == "mix" else None
        width = base.width
        self.bilstm = None
        if config.bilstm is not None:
            self.bilstm = RecurrentEncoder("lstm", width, config.bilstm, 1, bidirectional=True, dropout=0.0)
            width = 2 * config.bilstm
        self.head = head(width)
        for name, parameter in base.named_parameters():
            if self._is_frozen(base.depth_of(name)):
                parameter.requires_grad_(False)

    def _is_frozen(self, depth: int) -> bool:
        freeze = self.config.freeze
        return freeze == "all" or (freeze > 0 and depth <= freeze)

    def train(self, mode: bool = True) -> Self:
        """A base that is frozen as a whole neither learns nor draws dropout."""
        super().train(mode)
        if self.config.freeze == "all":
            self.base.eval()
        return self

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The base's tables of word vectors."""
        return self.base.embeddings

    def states(self, batch: Any) -> Tensor:
        """What the head reads: [B, L, D]. What stands on padding means nothing."""
        learns = torch.is_grad_enabled() and self.config.freeze != "all"
        with torch.set_grad_enabled(learns):
            layers = [self.base.states(batch)] if self.mix is None else self.base.layers_of(batch)
        h_BLD: Tensor = layers[-1] if self.mix is None else self.mix(layers)
        return h_BLD if self.bilstm is None else self.bilstm(h_BLD, batch.text)[0]

    def forward(self, batch: Any) -> Tensor:
        """What the head says: [B, Y] of rows, [B, L, Y] of tokens."""
        logits: Tensor = self.head(self.states(batch), batch)
        return logits

    def rate_of(self, name: str) -> float:
        """The share of the learning rate that a weight has: layer_decay to the power of the layers above it."""
        top = self.base.depth + 1
        depth = self.base.depth_of(name.removeprefix("base.")) if name.startswith("base.") else top
        return self.config.layer_decay ** (top - depth)


def _mix_of(base: Contextual) -> LayerMix:
    if not isinstance(base, ELMo | GPT | BERT):
        what = "the layers of this model differ in width, so that they cannot be mixed"
        raise ConfigError(what, where="head.features", hint="set it to last, or take elmo, gpt or bert")
    return LayerMix(base.depth + 1)


def build_base(
    config: Any, vocabulary_size: int, characters_VC: Tensor | None, *, keep_readout: bool, by_token: bool = False
) -> Contextual:
    """The model under a head with fresh weights, without what only pre-training needs.

    `by_token`: whether the head has an answer for each token.
    """
    if isinstance(config, BiLSTMConfig | CNNConfig):
        base: Contextual = (
            CNN(config, vocabulary_size, by_token=by_token)
            if isinstance(config, CNNConfig)
            else BiLSTM(config, vocabulary_size)
        )
        if config.vectors is not None and config.vectors.freeze:
            base.embeddings["text"].requires_grad_(False)
        return base
    base = build(config, vocabulary_size, characters_VC)
    assert not keep_readout or isinstance(base, LanguageModel)
    base.forget_pretraining(keep_readout=keep_readout)
    return base


def weights_for(model: Headed, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A run's weights under the names that they have here, less those that have no place.

    A pre-trained model becomes the base; BERT's pooler, which next-sentence prediction has trained, goes to the head.
    """
    if not any(name.startswith("base.") for name in theirs):
        theirs = {_name_here(name): tensor for name, tensor in theirs.items()}
    own = model.state_dict()
    return {name: tensor for name, tensor in theirs.items() if name in own}


def _name_here(name: str) -> str:
    pooler = "next_sentence.pooler."
    return f"head.pooler.{name.removeprefix(pooler)}" if name.startswith(pooler) else f"base.{name}"
