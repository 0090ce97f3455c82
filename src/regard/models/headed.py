"""A model of single texts with a head for a task: fine-tuned whole, in part, or only the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import Config
from regard.data.batches import LabelledBatch
from regard.engine.packing import computes_first_only
from regard.errors import ConfigError
from regard.layers.crf import CRF
from regard.layers.embeddings import Embedding
from regard.layers.recurrence import RecurrentEncoder
from regard.models import MODELS
from regard.models.base import Contextual, HeadPooling, ModelConfig, pool, real_BL
from regard.models.ngrams import LinearModel


class HeadConfig(Config):
    """The head above the model, and which part of the model is trained."""

    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout before the head's last layer."""
    freeze: Literal["all"] | Annotated[int, Field(ge=0)] = 0
    """The weights that are not trained: 0 none, k those of the embeddings and the first k layers,
    all the whole model (frozen features). Default: 0; all for elmo."""
    features: Literal["last", "mix"] = "last"
    """The input of the head: the last layer, or a mix of all layers with learned weights (as in
    ELMo). Default: last; mix for elmo."""
    bilstm: int | None = Field(None, ge=1)
    """Width of each direction of an LSTM between the model and the head; null has none. Default:
    null; 128 for elmo, whose frozen features need layers that are trained."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Factor of the learning rate from one layer to the layer below: 1 is the same rate for all;
    with 0.9 lower, pre-trained layers change less than the new head."""
    auxiliary: float = Field(0.0, ge=0)
    """Weight of the language-model loss that is added to the task's loss; 0.5 in GPT's paper. Only
    for lstm_lm and gpt."""
    consistency: float = Field(0.0, ge=0)
    """Weight of R-Drop: each step reads its texts twice, with different dropout, and is also
    penalised for the divergence of both outputs; it takes twice as long. 1 to 5 is usual, 0 reads
    once. For classes, choices, and tags without a CRF."""


class LayerMix(nn.Module):
    """A weighted mean of all layers; the weights are learned for the task.

    Peters et al. 2018, arXiv:1802.05365, equation 1:
        ELMo_k = gamma * sum_j softmax(s)_j h_kj
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights_N(self) -> Tensor:
        return self.s.softmax(0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return self.gamma * torch.einsum("n,n...->...", self.weights_N, torch.stack(list(layers)))


class Headed(nn.Module):
    """A base model and a head. Weights are named `base.*`, `mix.*`, `bilstm.*`, `head.*` and
    `linear.*`.

    With `linear`, a linear model that was fitted before training, both learn separately, as in an
    ensemble. In training the output is the head's alone, afterwards
        scale (share head(h) + (1 - share) linear(x))
    with the share and the scale that validate best (Guo et al. 2017, arXiv:1706.04599, section 4.2:
    1 / temperature).
    """

    share: Tensor
    scale: Tensor

    def __init__(
        self,
        base: Contextual,
        config: HeadConfig,
        head: Callable[[int], Head],
        linear: LinearModel | None = None,
    ) -> None:
        """`head` builds the head for the width of its input."""
        super().__init__()
        self.base = base
        self.config = config
        self.linear = linear
        if linear is not None:
            self.register_buffer("share", torch.tensor(0.5))
            self.register_buffer("scale", torch.tensor(1.0))
        if config.features == "mix" and not base.config.equal_layers:
            what = "the layers of this model have different widths and cannot be mixed"
            raise ConfigError(
                what, where="head.features", hint="set it to last, or use elmo, gpt or bert"
            )
        self.mix = LayerMix(base.depth + 1) if config.features == "mix" else None
        self.bilstm = (
            None if config.bilstm is None else RecurrentEncoder("lstm", base.width, config.bilstm)
        )
        self.head = head(base.width if self.bilstm is None else self.bilstm.width)
        reads_last_layer = self.mix is None and self.bilstm is None
        self.reads_first_token = reads_last_layer and self.head.pooling == "first"
        freeze = config.freeze
        for name, parameter in base.named_parameters():
            if freeze == "all" or (freeze > 0 and base.depth_of(name) <= freeze):
                parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """A base that is frozen as a whole has no dropout either."""
        super().train(mode)
        if self.config.freeze == "all":
            self.base.eval()
        return self

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return self.base.embeddings

    def states(self, batch: Any) -> Tensor:
        """The input of the head, [B, L, D], or [B, 1, D] if it reads the first tokens only.

        Values on padding are arbitrary.
        """
        trained = torch.is_grad_enabled() and self.config.freeze != "all"
        with torch.set_grad_enabled(trained):
            if self.mix is not None:
                layers = self.base.layers_of(batch)
            elif self.reads_first_token and computes_first_only(batch.text):
                layers = [self.base.first_states(batch)]
            else:
                layers = [self.base.states(batch)]
        h_BLD: Tensor = layers[-1] if self.mix is None else self.mix(layers)
        return h_BLD if self.bilstm is None else self.bilstm(h_BLD, batch.text)[0]

    def forward(self, batch: Any) -> Tensor:
        """The output of the head: [X, Y] for examples, [B, L, Y] for tokens."""
        output: Tensor = self.head(self.states(batch), batch)
        if self.linear is None or self.training:
            return output
        own = self.linear(batch)
        own = own if own.dim() == 3 else by_example(own, batch)
        return self.scale * (self.share * output + (1 - self.share) * own)

    def rate_of(self, name: str) -> float:
        """The factor of the learning rate for a weight: layer_decay to the power of the number of
        layers above it."""
        top = self.base.depth + 1
        depth = self.base.depth_of(name.removeprefix("base.")) if name.startswith("base.") else top
        return self.config.layer_decay ** (top - depth)


def build_base(
    config: ModelConfig,
    vocabulary_size: int,
    *,
    keep_readout: bool,
    by_token: bool = False,
    **options: Any,
) -> Contextual:
    """The model below a head, with new weights and without the modules that only pre-training
    needs.

    `by_token`: whether the head has an answer for each token.
    """
    base: Contextual = MODELS[config.kind].build_base(config, vocabulary_size, **options)
    assert config.causal or not keep_readout
    base.prepare_for_head(keep_readout=keep_readout, by_token=by_token)
    return base


def weights_for(model: Headed, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a run under the names of this model, without those that it does not have.

    A pre-trained model becomes the base; BERT's pooler, trained by next-sentence prediction,
    becomes the head's.
    """
    if not any(name.startswith("base.") for name in weights):
        pooler = "next_sentence.pooler."
        weights = {
            f"head.pooler.{name.removeprefix(pooler)}"
            if name.startswith(pooler)
            else f"base.{name}": tensor
            for name, tensor in weights.items()
        }
    own = model.state_dict()
    return {name: tensor for name, tensor in weights.items() if name in own}


# Heads: hidden states -> one answer for a text, or one for each token


class Head(nn.Module):
    """Dropout and a linear layer, with weights from N(0, 0.02) as in BERT and GPT."""

    pooling: HeadPooling | None = None
    """How the head makes one vector of a text; None if it reads all tokens."""

    def __init__(
        self, width: int, outputs: int, *, dropout: float, pooler: nn.Module | None = None
    ) -> None:
        """`pooler`: the layer before the dropout (`ModelConfig.head_layer`)."""
        super().__init__()
        self.pooler = pooler
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class TextHead(Head):
    """An answer for each example, [X, Y], from one vector for each of its rows; with `choices` each
    row is one of them.

    c = pool(h)                                   the first token for BERT, the last for GPT, the maximum for a CNN
    c = f(W_p c + b_p)                            with a pooler, which BERT has from its pre-training; f is tanh there
    logits = W dropout(c) + b                     Devlin et al. 2019, arXiv:1810.04805, section 4.1
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        pooling: HeadPooling,
        pooler: nn.Module | None,
        dropout: float,
        choices: bool = False,
    ) -> None:
        super().__init__(width, outputs, dropout=dropout, pooler=pooler)
        self.pooling: HeadPooling = pooling
        self.choices = choices

    def forward(self, h_BLD: Tensor, batch: LabelledBatch) -> Tensor:
        c_BD = pool(h_BLD, batch.text, self.pooling)
        logits_BY = self.linear(self.dropout(c_BD if self.pooler is None else self.pooler(c_BD)))
        if self.choices:  # Radford et al. 2018, section 3.3: each is scored separately
            return logits_BY.view(len(batch.labels), -1)
        return by_example(logits_BY, batch)


def by_example(logits_BY: Tensor, batch: LabelledBatch) -> Tensor:
    """The mean over the rows of each example: [B, Y] -> [X, Y].

    Rows are the windows of a long text, or both orders of two texts. GPT adds up the vectors of
    both orders (Radford et al. 2018, section 3.3), which is the same up to a factor.
    """
    examples = len(batch.labels)
    if examples == len(logits_BY):
        return logits_BY
    sums_XY = logits_BY.new_zeros(examples, logits_BY.shape[1]).index_add(
        0, batch.owners_B, logits_BY
    )
    # not bincount, which would wait for a GPU
    ones_B = torch.ones_like(batch.owners_B)
    rows_X = ones_B.new_zeros(examples).index_add(0, batch.owners_B, ones_B)
    return sums_XY / rows_X[:, None]


class ApartHead(Head):
    """An answer for two texts that were read separately, [X, Y], from their vectors u and v; their
    rows alternate.

    Reimers & Gurevych 2019, arXiv:1908.10084, section 3:
        logits = W dropout([u; v; |u - v|]) + b             for classes
        number = w cos(u, v) + b                            for a similarity
    """

    def __init__(
        self, width: int, outputs: int, *, pooling: HeadPooling, dropout: float, number: bool
    ) -> None:
        super().__init__(1 if number else 3 * width, outputs, dropout=dropout)
        self.pooling: HeadPooling = pooling
        self.number = number

    def forward(self, h_BLD: Tensor, batch: LabelledBatch) -> Tensor:
        c_BD = pool(h_BLD, batch.text, self.pooling)
        u_XD, v_XD = c_BD.view(-1, 2, c_BD.shape[-1]).unbind(1)
        if self.number:
            return self.linear(F.cosine_similarity(u_XD, v_XD)[:, None])
        return self.linear(self.dropout(torch.cat([u_XD, v_XD, (u_XD - v_XD).abs()], dim=1)))


class TokenHead(Head):
    """An answer for each token: logits = W dropout(h) + b, [B, L, Y]; with `crf` they are the
    scores P of a CRF."""

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        dropout: float,
        pooler: nn.Module | None = None,
        crf: bool = False,
    ) -> None:
        super().__init__(width, outputs, dropout=dropout, pooler=pooler)
        self.crf = CRF(outputs) if crf else None

    def forward(self, h_BLD: Tensor, batch: LabelledBatch) -> Tensor:
        return self.linear(self.dropout(h_BLD if self.pooler is None else self.pooler(h_BLD)))


class QuestionHead(Head):
    """An answer for each token of a question and a text, for models in which no token state has
    read both.

    Chen et al. 2017, arXiv:1704.00051, section 3.2, with a question vector as Kim 2014 makes a
    sentence vector:
        q = max_i h_i                                  over the question
        logits = (W q + w) . dropout(h)                for every token; w does not depend on the question
    """

    def __init__(self, width: int, outputs: int, *, dropout: float) -> None:
        super().__init__(width, outputs * width, dropout=dropout)

    def forward(self, h_BLD: Tensor, batch: LabelledBatch) -> Tensor:
        question_BL1 = (real_BL(batch.text) & (batch.segments_BL == 0))[..., None]
        q_BD = h_BLD.masked_fill(~question_BL1, -torch.inf).amax(1)
        w_BYD = self.linear(q_BD).view(len(q_BD), -1, h_BLD.shape[-1])
        return torch.einsum("bld,byd->bly", self.dropout(h_BLD), w_BYD)
