"""The encoder of a trained Transformer as a model of single texts, for the vectors of its sources."""

from __future__ import annotations

from torch import Tensor

from regard.data.batches import TextBatch
from regard.layers.attention import Visible
from regard.layers.embeddings import Embedding
from regard.models.base import Contextual
from regard.models.transformer import Transformer


class SourceStates(Contextual):
    """The states of a source after each block of the encoder."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.longest = model.longest
        self.width = model.config.width
        self.depth = len(model.encoder)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.model.source_embedding}

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        model = self.model
        visible = Visible(batch.text.lengths_B)
        layers = [model.embed_source(batch.text)]
        for block in model.encoder:
            layers.append(block(layers[-1], visible))
        return [*layers[:-1], model.encoder_norm(layers[-1])]
