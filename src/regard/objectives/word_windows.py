"""WordPredictions of words from the words around them, and the two losses that replace a softmax over
the vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.batches import TextBatch
from regard.layers.huffman import HuffmanTree
from regard.layers.neighbours import WordCounts
from regard.models.base import real_BL
from regard.models.fasttext import FastText
from regard.models.word2vec import WindowConfig, Word2Vec
from regard.objectives.cross_entropy import Objective
from regard.objectives.hierarchical_softmax import hierarchical_softmax_loss
from regard.objectives.negative_sampling import negative_sampling_loss


class WordPredictions(NamedTuple):
    """P words that are predicted from Q vectors h."""

    h_QD: Tensor
    rows_P: Tensor
    """The row of h for each predicted word."""
    words_P: Tensor


def neighbours_BLK(
    ids_BL: Tensor, real_BL: Tensor, counts: WordCounts, config: WindowConfig, *, training: bool
) -> Tensor:
    """Whether the word at K is a neighbour of the word at L.

    In training the reach of each word is drawn from 1 to `window`, and frequent words are skipped as
    Mikolov et al. 2013, arXiv:1310.4546, equation 5 says. Otherwise it is `window`, and all words
    count.
    """
    counted_BL = real_BL
    reach_BL = torch.full_like(ids_BL, config.window)
    if training:
        chance_BL = counts.kept_V(config.subsampling)[ids_BL]
        counted_BL = counted_BL & (torch.rand(ids_BL.shape, device=ids_BL.device) < chance_BL)
        reach_BL = torch.randint_like(ids_BL, 1, config.window + 1)
    place_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
    distance_LK = (place_L[:, None] - place_L).abs()
    near_BLK = (distance_LK > 0) & (distance_LK <= reach_BL[..., None])
    return near_BLK & counted_BL[..., None] & counted_BL[:, None]


class WindowLoss(Objective):
    """The loss of a model that learns a word from the words around it: batch -> [2], the same sum
    twice."""

    is_cross_entropy = False
    model: Word2Vec | FastText

    def __init__(self, model: Word2Vec | FastText) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: TextBatch) -> Tensor:
        config = self.model.config
        output = self.model.output
        near_BLK = neighbours_BLK(
            batch.text.ids_BL, real_BL(batch.text), output, config, training=self.training
        )
        predictions = self.predictions(batch.text.ids_BL, self.model(batch).hidden_BTD, near_BLK)
        if isinstance(output, HuffmanTree):
            loss = hierarchical_softmax_loss(output, *predictions)
        else:
            loss = negative_sampling_loss(
                output, *predictions, config.negatives, drawn=self.training
            )
        return torch.stack([loss, loss.detach()])

    def predictions(self, ids_BL: Tensor, v_BLD: Tensor, near_BLK: Tensor) -> WordPredictions:
        """Which words are predicted from what."""
        raise NotImplementedError
