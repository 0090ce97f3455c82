"""Denoising: raw text in, a Transformer that restores a text from what noise has left of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator

from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.noise import Noise, NoisyTexts
from regard.data.prepare import Prepared
from regard.data.raw import RawData, RawInputs, RawText, RawTokens
from regard.data.readers import Reader
from regard.errors import DataError, RegardError
from regard.models import MODELS
from regard.models.base import Generator, device_of
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.tasks.answers import Done
from regard.tasks.masked_language_modeling import GAP, with_gaps
from regard.tasks.pairs import (
    SOURCE_MODELS,
    TargetTexts,
    loss_metrics,
    source_states,
    token_loss,
)
from regard.tasks.raw import RawEncoding, learn_text_tokenizer, read_documents
from regard.tasks.reading import READ_TOKENS, encode_each
from regard.tasks.sources import TextSources
from regard.tasks.task import Metrics, Network, Start, Task, set_first_bias
from regard.tasks.views import TextVectors, Views
from regard.tasks.written import Source
from regard.text.normalise import Sentences, fold_white_space
from regard.text.tokenizers import Tokenizer, Tokenizers
from regard.text.vocabularies import MASKING_NAMES

SIDES = ("source", "target")


class DenoisingData(RawData):
    """Raw text, and the noise that is added to it."""

    infilling: float = Field(0.3, ge=0, lt=1)
    """Share of the tokens that are in spans which one [MASK] each replaces (text infilling)."""
    span: float = Field(3.0, ge=0.5, le=20)
    """Mean length of a span of infilling, drawn from a Poisson distribution; one of length 0 inserts
    a [MASK]."""
    permutation: float = Field(1.0, ge=0, le=1)
    """Share of the texts whose sentences are shuffled (sentence permutation)."""
    masking: float = Field(0.0, ge=0, lt=1)
    """Share of the tokens that become [MASK] each (token masking)."""
    deletion: float = Field(0.0, ge=0, lt=1)
    """Share of the tokens that are removed without a trace (token deletion)."""
    rotation: float = Field(0.0, ge=0, le=1)
    """Share of the texts that begin with a random token, after which the rest follows in a circle
    (document rotation)."""
    sentences: Sentences = "punctuation"
    """How sentences are found. `punctuation`: a sentence ends with . ! ? or …; `lines`: every line
    is a sentence."""

    @model_validator(mode="after")
    def _has_noise(self) -> Self:
        kinds = ("infilling", "permutation", "masking", "deletion", "rotation")
        if not any(getattr(self, kind) for kind in kinds):
            raise ValueError(f"all noise is 0: raise one of {', '.join(kinds)}")
        return self


class Denoising(Task):
    """Raw text, measured by the perplexity of the text given what noise has left of it."""

    name = "denoising"
    data = DenoisingData
    models = SOURCE_MODELS
    vocabularies = SIDES
    lower_is_better = ("loss", "perplexity")
    writes = "targets"
    has_flat_batches = True
    start = Start(completes_model=True, continues=True)
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0, "decode": 0},
    }

    encoding: RawEncoding

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        sources = TextsWithGaps(recipe, tokenizers)
        targets = TargetTexts(recipe, tokenizers, sources)
        longest = recipe.data.max_length
        vectors = TextVectors(
            tokenizers["source"], source_states, longest=longest, source=sources.first
        )
        self.inputs = RawInputs(self.name, self.corpora, recipe.data.encoding, ("text",))
        self.encoding = self.make_encoding(recipe, tokenizers)
        self.network = DenoisingNetwork(recipe, self.encoding)
        self.answers = targets
        self.metrics = DenoisingMetrics()
        self.views = Views(vectors=vectors, written=targets, restores=targets, unit="documents")

    @classmethod
    def learn_tokenizers(
        cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        """One tokenizer for both sides."""
        text = learn_text_tokenizer(recipe, train, base, special=MASKING_NAMES)["text"]
        return Tokenizers(dict.fromkeys(SIDES, text))

    @classmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> RawEncoding:
        cut = partial(noisy_texts, recipe)
        sentences = recipe.data.sentences
        return RawEncoding(recipe, tokenizers, cut, sentences, noise_counts, side="target")

    def objective(self, model: Generator) -> TokenCrossEntropy:
        return token_loss(model, self.recipe)

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> NoisyTexts:
        documents = read_documents(self.encoding, corpora, part, base)
        return noisy_texts(self.recipe, self.encoding.raw_tokens(documents), part)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        """A text with a gap in the place of some words."""
        words = row["text"][:400].split()[:20]
        middle = len(words) // 2
        return " ".join([*words[:middle], GAP, *words[middle + 2 :]])


def noisy_texts(recipe: Recipe, text: RawTokens, part: str) -> NoisyTexts:
    """The texts of a split, and their noise."""
    data = recipe.data
    if text.tokenizer.mask is None:
        hint = "add one to the file, or leave tokenizer.file out to train a vocabulary that has it"
        place = f"{recipe.tokenizer.file or 'tokenizer'}"
        raise DataError("the vocabulary has no [MASK] token", where=place, hint=hint)
    noise = Noise(
        text.tokenizer.mask,
        permutation=data.permutation,
        rotation=data.rotation,
        infilling=data.infilling,
        span=data.span,
        deletion=data.deletion,
        masking=data.masking,
    )
    return NoisyTexts(text, noise, data.max_length)


def noise_counts(examples: NoisyTexts) -> dict[str, int]:
    """How many tokens of the first texts are read unchanged, removed, and stand in as [MASK]."""
    kept = removed = masks = 0
    for example in range(min(1000, len(examples))):
        original = Counter(examples.target(example))
        read = Counter(examples.source(example))
        masks += read.pop(examples.noise.mask, 0)
        kept += (original & read).total()
        removed += (original - read).total()
    return {"kept": kept, "removed": removed, "[MASK]": masks}


class DenoisingNetwork(Network):
    """An encoder-decoder with one vocabulary."""

    def __init__(self, recipe: Recipe, encoding: RawEncoding) -> None:
        self.recipe = recipe
        self.encoding = encoding

    def build(self) -> Any:
        config = self.recipe.model
        size = self.encoding.tokenizer.size
        return MODELS[config.kind].build(config, size, size)

    def set_first_weights(self, model: Any, train: NoisyTexts) -> None:
        set_first_bias(model, self.encoding, train)

    def check(self, data: Prepared[NoisyTexts]) -> None:
        longest = self.recipe.data.max_length
        self.recipe.model.check_data(longest, longest)


class TextsWithGaps(TextSources):
    """Texts in which [MASK] may stand for any number of words."""

    def read(self, inputs: Sequence[Example]) -> Sequence[Source | RegardError]:
        tokenizer: Tokenizer = self.tokenizer
        plain = encode_each(tokenizer, inputs)
        return [
            row
            if isinstance(row, RegardError)
            else [*with_gaps(tokenizer, fold_white_space(given.text)), tokenizer.end]
            for row, given in zip(plain, inputs, strict=True)
        ]


class DenoisingMetrics(Metrics):
    """Loss and perplexity of texts given what noise has left of them; the noise is the same each
    time."""

    def validate(self, model: Generator, examples: NoisyTexts) -> dict[str, Any]:
        objective = TokenCrossEntropy(model).eval()
        total = 0.0
        tokens = 0
        with torch.inference_mode():
            for rows in fixed_batches(examples, READ_TOKENS):
                batch = examples.batch(rows)
                total += float(objective(batch.to(device_of(model)))[1])
                tokens += batch.tokens
        return loss_metrics(total, tokens)

    def evaluate(self, model: Generator, examples: NoisyTexts, progress: Done) -> dict[str, Any]:
        counts = {"documents": len(examples.text), "examples": len(examples)}
        return counts | self.validate(model, examples)
