"""Batch -> hidden states: one file per model, its config above it. `MODELS` lists all kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from regard.models.bag_of_words import BagOfWords, BagOfWordsConfig
from regard.models.bahdanau import Bahdanau, BahdanauConfig
from regard.models.base import Kind, ModelConfig
from regard.models.bert import BERT, BERTConfig
from regard.models.captioner import CaptionerConfig, build_captioner
from regard.models.deberta import DeBERTa, DeBERTaConfig
from regard.models.elmo import ELMo, ELMoConfig
from regard.models.fasttext import FastText, FastTextConfig
from regard.models.glove import GloVe, GloVeConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.lstm_lm import LSTMLanguageModel, LSTMLanguageModelConfig
from regard.models.luong import Luong, LuongConfig
from regard.models.memory_lm import MemoryLanguageModel, MemoryLanguageModelConfig
from regard.models.memory_network import MemoryNetwork, MemoryNetworkConfig
from regard.models.modernbert import ModernBERT, ModernBERTConfig
from regard.models.mpnet import MPNet, MPNetConfig
from regard.models.ngram_lm import NgramConfig, NgramLanguageModel
from regard.models.rnn import RNN, RNNConfig
from regard.models.self_attention import SelfAttention, SelfAttentionConfig
from regard.models.text_classifiers import CNN, BiLSTM, BiLSTMConfig, CNNConfig
from regard.models.text_transformer import TextTransformer
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.word2vec import Word2Vec, Word2VecConfig

MODELS: dict[str, Kind] = {
    "bag_of_words": Kind(BagOfWordsConfig, BagOfWords),
    "ngram": Kind(NgramConfig, NgramLanguageModel),
    "word2vec": Kind(Word2VecConfig, Word2Vec),
    "glove": Kind(GloVeConfig, GloVe),
    "fasttext": Kind(FastTextConfig, FastText),
    "rnn": Kind(RNNConfig, RNN),
    "bahdanau": Kind(BahdanauConfig, Bahdanau),
    "luong": Kind(LuongConfig, Luong),
    "self_attention": Kind(SelfAttentionConfig, SelfAttention),
    "transformer": Kind(TransformerConfig, Transformer, TextTransformer),
    "captioner": Kind(CaptionerConfig, build_captioner),
    "memory_network": Kind(MemoryNetworkConfig, MemoryNetwork),
    "memory_lm": Kind(MemoryLanguageModelConfig, MemoryLanguageModel),
    "lstm_lm": Kind(LSTMLanguageModelConfig, LSTMLanguageModel),
    "elmo": Kind(ELMoConfig, ELMo),
    "gpt": Kind(GPTConfig, GPT),
    "bert": Kind(BERTConfig, BERT),
    "mpnet": Kind(MPNetConfig, MPNet),
    "deberta": Kind(DeBERTaConfig, DeBERTa),
    "modernbert": Kind(ModernBERTConfig, ModernBERT),
    "bilstm": Kind(BiLSTMConfig, BiLSTM),
    "cnn": Kind(CNNConfig, CNN),
}
"""`model.kind` -> config and model, in the order of the papers; `MODELS[config.kind].build(config,
...)` makes one."""


def config_of(kind: object) -> type[ModelConfig]:
    """The config class of a kind; for an unknown kind the base class, which declares nothing."""
    return MODELS[kind].config if isinstance(kind, str) and kind in MODELS else ModelConfig


def any_config(serves: Callable[[type[ModelConfig]], bool]) -> Any:
    """The configs that `serves` accepts, as a type for a recipe: a union that pydantic
    distinguishes by `kind`."""
    configs = [kind.config for kind in MODELS.values() if serves(kind.config)]
    if len(configs) == 1:
        return configs[0]
    return Annotated[reduce(or_, configs), Field(discriminator="kind")]
