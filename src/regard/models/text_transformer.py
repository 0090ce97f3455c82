"""Lewis et al. 2020, "BART", arXiv:1910.13461: an encoder-decoder that reads one text under a head."""

from __future__ import annotations

import re

from torch import Tensor

from regard.data.batches import LabelledBatch, TextBatch
from regard.layers.attention import visible_between
from regard.layers.embeddings import Embedding
from regard.models.base import Contextual, Output
from regard.models.transformer import Transformer, TransformerConfig


class TextTransformer(Contextual, Transformer):
    """A Transformer whose encoder and decoder both read the text; the decoder's states are the
    text's.

    Lewis et al. 2020, section 3.1: the same text goes into the encoder and the decoder. A
    classifier reads the decoder's state of the last token, which has seen all others; a tagger
    reads the state of each token.
        memory = Encoder(<s> x_1 ... x_n </s>)
        h      = Decoder(<s> x_1 ... x_n </s>, memory)
    """

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size, vocabulary_size)
        self.width = config.width
        self.depth = config.layers

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.source_embedding}

    def depth_of(self, name: str) -> int:
        """The encoder's layers are below those of the decoder."""
        if match := re.match(r"(encoder|decoder)\.(\d+)\.", name):
            below = self.config.encoder_layers if match[1] == "decoder" else 0
            return below + int(match[2]) + 1
        return 0 if "embedding" in name or "positions" in name else self.depth

    def forward(self, batch: LabelledBatch | TextBatch) -> Output:  # type: ignore[override]
        return Output(self.states(batch))

    def layers_of(self, batch: LabelledBatch | TextBatch) -> list[Tensor]:
        """The decoder's layers: the heads read nothing of the encoder."""
        text = batch.text
        own = visible_between(text, text, causal=True)
        visible = visible_between(text, text)
        memory_BSD = self.encode(self.embed_source(text), visible)
        layers = [self.embed_target(text)]
        for block in self.decoder:
            layers.append(block(layers[-1], memory_BSD, own, visible))
        return [*layers[:-1], self.decoder_norm(layers[-1])]
