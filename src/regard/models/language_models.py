"""The models of one text that are pre-trained on it, in the order of the line."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from regard.models.bert import BERT, BERTConfig
from regard.models.contextual import Contextual
from regard.models.elmo import ELMo, ELMoConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.lstm_lm import LSTMLanguageModel, LSTMLanguageModelConfig

LANGUAGE_MODELS: dict[str, type[Any]] = {
    "lstm_lm": LSTMLanguageModel,
    "elmo": ELMo,
    "gpt": GPT,
    "bert": BERT,
}
"""`model.kind` -> model."""

AnyLanguageModelConfig = Annotated[
    LSTMLanguageModelConfig | ELMoConfig | GPTConfig | BERTConfig, Field(discriminator="kind")
]


def build(config: AnyLanguageModelConfig, vocabulary_size: int, characters_VC: Tensor | None = None) -> Contextual:
    """The model that a config describes, with fresh weights from torch's generator.

    `characters_VC` spells the vocabulary (`layers.characters.spelled`), for a model that reads characters.
    """
    if isinstance(config, ELMoConfig):
        model: Contextual = ELMo(config, vocabulary_size, characters_VC)
    else:
        model = LANGUAGE_MODELS[config.kind](config, vocabulary_size)
    if config.vectors is not None and config.vectors.freeze:
        for embedding in model.embeddings.values():
            embedding.requires_grad_(False)
    return model
