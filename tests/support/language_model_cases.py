"""Every model of one text in small, in each variant that takes another path through its code, and
batches for it."""

from collections.abc import Sequence

import torch
from torch import nn

from model_cases import tokens_of
from regard.data.batches import MaskedBatch, TextBatch
from regard.models.base import ModelConfig
from regard.models.bert import BERTConfig
from regard.models.deberta import DeBERTaConfig
from regard.models.elmo import ELMoConfig
from regard.models.gpt import GPTConfig
from regard.models.lstm_lm import LSTMLanguageModelConfig
from regard.models.memory_lm import MemoryLanguageModelConfig
from regard.models.modernbert import ModernBERTConfig
from regard.models.mpnet import MPNetConfig
from regard.models.ngram_lm import NgramConfig
from regard.objectives.cross_entropy import VocabularyLoss
from regard.objectives.language_model import (
    BothDirections,
    LeavingOneOut,
    MaskedTokens,
    NextToken,
)
from regard.text.vocabularies import BEGIN, END, PAD

DROPOUTS = ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout")
LSTM = {"embedding": 10, "hidden": 12, **dict.fromkeys(DROPOUTS, 0.0)}
ELMO = {"width": 8, "hidden": 12, "characters": 5, "filters": 64, "dropout": 0.0}
TRANSFORMER = {
    "layers": 2,
    "width": 16,
    "heads": 4,
    "feed_forward": 24,
    "dropout": 0.0,
    "max_positions": 20,
}

CASES: dict[str, ModelConfig] = {
    "lstm_lm": LSTMLanguageModelConfig(**LSTM, layers=2),
    "lstm_lm-one-layer": LSTMLanguageModelConfig(**{**LSTM, "hidden": 10}, layers=1),
    "lstm_lm-untied": LSTMLanguageModelConfig(**LSTM, layers=3, tie=False),
    "ngram": NgramConfig(),
    "ngram-interpolation": NgramConfig(smoothing="interpolation"),
    "ngram-add_k": NgramConfig(order=2, smoothing="add_k"),
    "memory_lm": MemoryLanguageModelConfig(width=10, hops=3, memory=20),
    "memory_lm-short": MemoryLanguageModelConfig(width=10, hops=2, memory=3),
    "elmo": ELMoConfig(**ELMO),
    "elmo-clipped": ELMoConfig(**ELMO, cell_clip=0.5, highway=2),
    "elmo-tokens": ELMoConfig(**ELMO, words="tokens", layers=3),
    "gpt": GPTConfig(**TRANSFORMER, norm="post"),
    "gpt-pre": GPTConfig(**TRANSFORMER, norm="pre"),
    "bert": BERTConfig(**TRANSFORMER),
    "bert-masked-only": BERTConfig(**TRANSFORMER, next_sentence=False),
    "bert-as-roberta": BERTConfig(
        **TRANSFORMER, next_sentence=False, first_position=2, segment_vectors=1
    ),
    "bert-as-electra": BERTConfig(**TRANSFORMER, next_sentence=False, embedding_width=10),
    "bert-as-distilbert": BERTConfig(**TRANSFORMER, next_sentence=False, segment_vectors=0),
    "mpnet": MPNetConfig(**TRANSFORMER, buckets=8),
    "deberta": DeBERTaConfig(**TRANSFORMER, buckets=4),
    "modernbert": ModernBERTConfig(**TRANSFORMER, window=4, global_every=2),
}

TEXTS = [
    [BEGIN, 4, 5, 6, 7, END],
    [BEGIN, 8, 9, END],
    [BEGIN, 12, 11, 10, 9, 8, 7, END],
    [BEGIN, 6, 6, END],
]
CLS, SEP, MASK = 4, 5, 6
"""What stands in for BERT's special tokens here."""
PAIRS = [
    [CLS, 7, MASK, 9, SEP, 10, 11, SEP],
    [CLS, 8, SEP, MASK, SEP],
    [CLS, 12, 11, SEP, 7, MASK, SEP],
]
SEGMENTS = [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1]]
PLACES = [[2, 6], [3], [1, 5]]
"""Masked, or to be predicted though it was left as it was."""
LABELS = [[8, 11], [10], [12, 9]]
FOLLOWS = [1, 0, 1]


def text_batch(
    texts: Sequence[Sequence[int]] = TEXTS,
    *,
    extra: int = 0,
    filler: int = PAD,
    carries: bool = False,
) -> TextBatch:
    predicted = sum(len(text) - 1 for text in texts)
    return TextBatch(
        tokens_of(texts, extra=extra, filler=filler), tokens=predicted, carries=carries
    )


def masked_batch(
    rows: Sequence[int] = (0, 1, 2), *, extra: int = 0, filler: int = PAD
) -> MaskedBatch:
    """Some of the pairs."""
    text = tokens_of([PAIRS[row] for row in rows], extra=extra, filler=filler)
    segments_BL, width = (
        tokens_of([SEGMENTS[row] for row in rows], extra=extra).ids_BL,
        text.ids_BL.shape[1],
    )
    places = [number * width + place for number, row in enumerate(rows) for place in PLACES[row]]
    labels, follows = (
        [label for row in rows for label in LABELS[row]],
        [FOLLOWS[row] for row in rows],
    )
    return MaskedBatch(
        text, segments_BL, *map(torch.tensor, (places, labels, follows)), tokens=len(places)
    )


def objective_for(case: str, model: nn.Module, smoothing: float = 0.0) -> VocabularyLoss:
    if CASES[case].pretraining == "masked":
        return MaskedTokens(model, smoothing)
    if case.startswith("ngram"):
        return LeavingOneOut(model)
    return (
        BothDirections(model, smoothing) if case.startswith("elmo") else NextToken(model, smoothing)
    )
