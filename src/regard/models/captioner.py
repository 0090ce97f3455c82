"""The image captioner: translation decoders with the regions of an image as the source.

Vinyals et al. 2015, "Show and tell", arXiv:1411.4555: an LSTM that reads the image once. Xu et al.
2015, "Show, attend and tell", arXiv:1502.03044: an LSTM that attends to the regions for every word.
Vaswani et al. 2017, arXiv:1706.03762: the Transformer decoder over the same regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data.batches import Batch, Images, real_positions
from regard.data.images import ImagesConfig, Reading
from regard.layers.attention import Visible
from regard.layers.embeddings import Embedding, Positions, Readout, sinusoidal_positions
from regard.layers.linear import Linear
from regard.layers.recurrence import Bridge, Carry, as_torch, fed_step, word_gates
from regard.layers.scores import AdditiveAttention, Memory
from regard.models.base import (
    Generator,
    ModelConfig,
    Output,
    Presets,
    RecurrentState,
    check_heads,
    group_rows,
    rate_of_blocks,
)
from regard.models.transformer import (
    DecoderBlock,
    TransformerConfig,
    TransformerDecoder,
    TransformerState,
)


class CaptionerConfig(ModelConfig):
    """Image captioner (Vinyals 2015, Xu 2015)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"channels": [16, 32, 64], "width": 64, "attention": 64},
        "small": {"channels": [32, 64, 128], "width": 256, "attention": 256},
        "base": {"channels": [64, 128, 256, 512], "width": 512, "attention": 512},
    }
    reads = "image"
    generates = True

    kind: Literal["captioner"] = "captioner"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it."""
    encoder: Literal["convolution", "features"] = "convolution"
    """Where the regions come from: a convolutional network that is trained with the decoder, or
    .npy files with the features of any other network, named instead of the images."""
    images: ImagesConfig = ImagesConfig()
    """How images are read, with `encoder: convolution`."""
    channels: list[int] = Field([32, 64, 128], min_length=1, max_length=6)
    """Channels of the convolutions. Each halves both sides of the image: three make 8 x 8 regions
    of 64 x 64 pixels."""
    feature_width: int | None = Field(None, ge=1)
    """With `encoder: features`, the numbers per region in the files."""
    decoder: Literal["plain", "attention", "transformer"] = "attention"
    """An LSTM that reads the image once (Vinyals), an LSTM that attends to the regions for every
    word (Xu), or a Transformer decoder."""
    width: int = Field(256, ge=2)
    """Width of the regions, the word embeddings and the decoder states."""
    attention: int = Field(256, ge=1)
    """Width of the attention's hidden layer, with `decoder: attention`."""
    gated: bool = True
    """With `decoder: attention`, whether a gate scales the context vector for each word (Xu,
    section 4.2.1)."""
    doubly_stochastic: float = Field(1.0, ge=0)
    """With `decoder: attention`, the weight lambda of the penalty for regions that get too little
    or too much attention (Xu, equation 14). It spreads the attention; a smaller value lets each
    word concentrate. 0 is off."""
    layers: int = Field(2, ge=1)
    """Blocks, with `decoder: transformer`."""
    heads: int = Field(4, ge=1)
    """Attention heads, with `decoder: transformer`."""
    feed_forward: int = Field(512, ge=1)
    """Width inside the feed-forward layers, with `decoder: transformer`."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on regions, words and before the readout."""

    @property
    def learning_rate(self) -> float:
        return rate_of_blocks(self.width, pre_norm=True)

    @model_validator(mode="after")
    def _sizes_fit(self) -> CaptionerConfig:
        if (self.encoder == "features") != (self.feature_width is not None):
            raise ValueError("'encoder: features' and 'feature_width: ...' must be given together")
        if self.encoder == "convolution" and not self.reading.columns:
            raise ValueError(
                f"{len(self.channels)} channels leave no region of {self.images.size} pixels"
            )
        if self.decoder == "transformer":
            check_heads(self.heads, self.width)
        return self

    @property
    def reading(self) -> Reading:
        """How an image becomes regions."""
        side = self.images.size >> len(self.channels)  # each stage halves, and drops an odd row
        return Reading(self.images, side, side, self.feature_width)

    @property
    def alignment(self) -> str:  # type: ignore[override]  # it depends on the decoder
        return {"plain": "", "attention": "attention", "transformer": "decoder.*.cross_attention"}[
            self.decoder
        ]


class Convolution(nn.Module):
    """A convolution (LeCun et al. 1989), LayerNorm over the channels of each position, and ReLU.

    Ba et al. 2016, arXiv:1607.06450. GroupNorm, over the whole image, or BatchNorm, over the images
    of a batch, would leak information between regions: no word would need to attend to the right
    one.
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, kernel, stride, padding=1)
        self.norm = nn.LayerNorm(after)

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, height, width], before and after."""
        channels_last = self.norm(self.convolution(x).permute(0, 2, 3, 1))
        return torch.relu(channels_last).permute(0, 3, 1, 2)


class Convolutions(nn.Module):
    """Pixels -> a grid of regions; each region sees its own part of the image and a little around
    it.

    A stage halves both sides by a 4 x 4 kernel with stride 2, which unlike a 3 x 3 kernel is
    centred on the 2 x 2 pixels that it merges. A last 3 x 3 kernel reads the neighbours.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        halving = [Convolution(before, after, 4, 2) for before, after in pairwise([3, *channels])]
        self.stages = nn.Sequential(*halving, Convolution(channels[-1], channels[-1], 3, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Bytes [B, height, width, 3] -> regions [B, S, D], row by row from the top left."""
        levels = pixels.permute(0, 3, 1, 2).to(next(self.parameters()).dtype) / 127.5 - 1
        return self.stages(levels).flatten(2).transpose(1, 2)


def add_grid_positions(x_BSD: Tensor, columns_B: Tensor) -> Tensor:
    """Add a position encoding to each region of grids with `columns_B` columns: half of the width
    encodes its row, half its column.

    Parmar et al. 2018, arXiv:1802.05751, section 3.1, with sinusoidal encodings. No parameters, and
    any grid.
    """
    places, width = x_BSD.shape[1:]
    place_S = torch.arange(places, device=x_BSD.device)
    row_BS, column_BS = place_S // columns_B[:, None], place_S % columns_B[:, None]
    halves = (width - width // 2, width // 2)
    rows_SD, columns_SD = (sinusoidal_positions(places, half).to(x_BSD) for half in halves)
    return x_BSD + torch.cat([rows_SD[row_BS], columns_SD[column_BS]], dim=-1)


class ImageEncoder(nn.Module):
    """An image as annotation vectors a_i, one per region, with its position:

        a_i = LayerNorm(W x_i) + position_i

    x_i is the output of the convolutions for region i, or its features from a file.
    """

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.convolutions = (
            Convolutions(config.channels) if config.encoder == "convolution" else nn.Identity()
        )
        self.W = Linear(config.feature_width or config.channels[-1], config.width)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, source: Images) -> Tensor:
        """Pixels as bytes [B, size, size, 3], or features [B, S, D] -> a_BSD."""
        x_BSD = self.convolutions(source.shown).to(self.W.weight)
        return self.dropout(add_grid_positions(self.norm(self.W(x_BSD)), source.columns_B))


class Captioner(Generator):
    """The base of the three captioners: image encoder, word embeddings and readout."""

    config: CaptionerConfig

    def __init__(self, config: CaptionerConfig, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.image_encoder = ImageEncoder(config)
        self.target_embedding = Embedding(target_size, config.width)
        self.output = Readout(config.width, target_size, None)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"target": self.target_embedding}


class PlainCaptioner(Captioner):
    """An LSTM that reads the image once, as its first input.

    Vinyals et al. 2015, equations 10 to 12:
        x_{-1} = CNN(I)        CNN(I) = max_i max(0, W_I a_i)
        x_t    = W_e S_t
        p_{t+1} = softmax(LSTM(x_t))
    """

    def __init__(self, config: CaptionerConfig, target_size: int) -> None:
        super().__init__(config, target_size)
        self.W_I = Linear(config.width, config.width)
        self.decoder = nn.LSTM(config.width, config.width, batch_first=True)

    def encode(self, source: Images) -> Carry:
        """The recurrent state after the image."""
        regions_BSD = torch.relu(self.W_I(self.image_encoder(source)))
        real_BS = real_positions(source.lengths_B, regions_BSD.shape[1])
        image_BD = regions_BSD.masked_fill(~real_BS[..., None], 0).amax(1)
        return tuple(self.decoder(image_BD[:, None])[1])

    def decode(self, tokens_BT: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        x_BTD = self.dropout(self.target_embedding(tokens_BT))
        states_BTD, after = self.decoder(x_BTD, as_torch(carry))
        return self.dropout(states_BTD), after

    def forward(self, batch: Batch[Images]) -> Output:
        return Output(self.decode(batch.target.inputs.ids_BL, self.encode(batch.source))[0])

    def begin(self, source: Images, rows: int, max_length: int) -> RecurrentState[None]:
        return RecurrentState(
            tuple(part.repeat_interleave(rows, dim=1) for part in self.encode(source)), None
        )

    def step(
        self, tokens_R: Tensor, state: RecurrentState[None]
    ) -> tuple[Tensor, RecurrentState[None]]:
        hidden_R1D, carry = self.decode(tokens_R[:, None], state.carry)
        return self.readout(hidden_R1D[:, 0]), RecurrentState(carry, None)


class AttentiveCaptioner(Captioner):
    """An LSTM that attends to the regions of the image before each word.

    Xu et al. 2015, sections 3.1.2 and 4.2, with soft attention:
        c_0, h_0 = tanh(W_c mean_i a_i), tanh(W_h mean_i a_i)
        alpha_ti = softmax_i(v . tanh(W h_{t-1} + U a_i))
        z_t      = beta_t sum_i alpha_ti a_i            beta_t = sigmoid(W_beta h_{t-1})
        h_t      = LSTM([E y_{t-1} ; z_t], h_{t-1})
        p(y_t)   = softmax(L_o (E y_{t-1} + L_h h_t + L_z z_t))
    """

    def __init__(self, config: CaptionerConfig, target_size: int) -> None:
        super().__init__(config, target_size)
        width = config.width
        self.bridge = Bridge("lstm", width, width)
        self.attention = AdditiveAttention(width, width, config.attention)
        self.W_beta = Linear(width, 1) if config.gated else None
        self.cell = nn.LSTMCell(2 * width, width)
        self.L_h = Linear(width, width)
        self.L_z = Linear(width, width)

    def encode(self, source: Images) -> tuple[Carry, Memory]:
        memory = self.attention.memory(self.image_encoder(source), source.lengths_B)
        total_BD = memory.h_BSD.masked_fill(~memory.visible_BS[..., None], 0).sum(1)
        mean_BD = total_BD / memory.lengths_B[:, None]
        return self.bridge((mean_BD, mean_BD)), memory

    def recur(
        self, words_RG: Tensor, carry: Carry, memory: Memory
    ) -> tuple[Carry, Tensor, Tensor | None]:
        """One step: alpha_t and z_t from h_{t-1}, then h_t."""
        h_BQD = group_rows(carry[0], len(memory))
        # The penalty of training needs the weights; `explain` hooks into the call of the module.
        alpha_BQS = self.attention.weights(h_BQD, memory) if torch.is_grad_enabled() else None
        z_BQD = self.attention(h_BQD, memory) if alpha_BQS is None else alpha_BQS @ memory.h_BSD
        gate = 1.0 if self.W_beta is None else torch.sigmoid(self.W_beta(h_BQD))
        z_RD = (gate * z_BQD).flatten(0, 1)
        return fed_step("lstm", self.cell, z_RD.shape[-1])(words_RG, z_RD, carry), z_RD, alpha_BQS

    def deep_output(self, y: Tensor, h: Tensor, z: Tensor) -> Tensor:
        return self.dropout(y + self.L_h(self.dropout(h)) + self.L_z(z))

    def forward(self, batch: Batch[Images]) -> Output:
        """As written, for each t: z_t = attend(h_{t-1}), then h_t = LSTM([E y_{t-1} ; z_t], h_{t-1}).

        Here the products of the LSTM with all words (`word_gates`) are computed before the loop, and
        the output layer after it; nothing else differs.
        """
        carry, memory = self.encode(batch.source)
        target = batch.target.inputs
        y_BTD = self.dropout(self.target_embedding(target.ids_BL))
        states: list[Tensor] = []
        contexts: list[Tensor] = []
        attended_BS: Tensor | None = None
        for step, words_BG in enumerate(word_gates(self.cell, y_BTD).unbind(1)):
            carry, z_BD, alpha_B1S = self.recur(words_BG, carry, memory)
            states.append(carry[0])
            contexts.append(z_BD)
            if alpha_B1S is not None:
                real_B1 = (target.lengths_B > step)[:, None]
                step_BS = alpha_B1S[:, 0].masked_fill(~real_B1, 0)
                attended_BS = step_BS if attended_BS is None else attended_BS + step_BS
        hidden_BTD = self.deep_output(y_BTD, torch.stack(states, 1), torch.stack(contexts, 1))
        return Output(hidden_BTD, attended_BS=attended_BS)

    def begin(self, source: Images, rows: int, max_length: int) -> RecurrentState[Memory]:
        carry, memory = self.encode(source)
        return RecurrentState(tuple(part.repeat_interleave(rows, dim=0) for part in carry), memory)

    def step(
        self, tokens_R: Tensor, state: RecurrentState[Memory]
    ) -> tuple[Tensor, RecurrentState[Memory]]:
        y_RD = self.target_embedding(tokens_R)
        carry, z_RD, _ = self.recur(word_gates(self.cell, y_RD), state.carry, state.memory)
        return self.readout(self.deep_output(y_RD, carry[0], z_RD)), RecurrentState(
            carry, state.memory
        )


class TransformerCaptioner(Captioner, TransformerDecoder):
    """Vaswani et al. 2017, section 3.1: the decoder, with regions instead of encoder states."""

    def __init__(self, config: CaptionerConfig, target_size: int) -> None:
        super().__init__(config, target_size)
        sizes = config.model_dump(include={"width", "heads", "feed_forward", "dropout"})
        block = TransformerConfig(**sizes, norm="pre", decoder_layers=config.layers)
        self.positions = Positions("sinusoidal", config.width, block.max_positions)
        self.embedding_norm = nn.Identity()
        self.decoder = nn.ModuleList(DecoderBlock(block) for _ in range(config.layers))
        self.decoder_norm = nn.LayerNorm(config.width)

    def forward(self, batch: Batch[Images]) -> Output:
        target = batch.target.inputs
        memory_BSD = self.image_encoder(batch.source)
        x_BTD = self.embed_target(target)
        own = Visible(target.lengths_B, causal=True)
        return Output(self.decode(x_BTD, memory_BSD, own, Visible(batch.source.lengths_B)))

    def begin(self, source: Images, rows: int, max_length: int) -> TransformerState:
        return self.begin_with(
            self.image_encoder(source), Visible(source.lengths_B), rows, max_length
        )


def build_captioner(config: CaptionerConfig, target_size: int) -> Captioner:
    decoders = {
        "plain": PlainCaptioner,
        "attention": AttentiveCaptioner,
        "transformer": TransformerCaptioner,
    }
    return decoders[config.decoder](config, target_size)
