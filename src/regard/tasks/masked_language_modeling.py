"""Masked language modeling: raw text in, a model that finds hidden words again, and tells what follows what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field

from regard.data.config import Split
from regard.data.corpora import Part
from regard.data.documents import RawData, RawText
from regard.data.masking import Masking, Whole
from regard.data.prepare import Prepared
from regard.data.raw import RawTokens
from regard.data.segments import MORE_DOCUMENTS, Segments, SentencePairs, SingleSegments
from regard.errors import ConfigError, DataError
from regard.models.base import device_of
from regard.models.bert import BERT, BERTConfig
from regard.models.language_models import build
from regard.objectives.masked_lm import MaskedTallies, MaskedTokens, masked_tallies
from regard.tasks.filling import Filled, encode_gaps, filled
from regard.tasks.inputs import Inputs
from regard.tasks.language_modeling import SCORE_TOKENS
from regard.tasks.metrics import perplexity
from regard.tasks.raw import RawTextTask, check_max_length
from regard.tasks.task import Done, ignore
from regard.text.sentences import Sentences
from regard.text.vocabularies import MASKING

NO_PAIRS = "masked tokens alone were measured: next sentences need two documents of two sentences or more"


class MaskedData(RawData):
    """The raw text of a masked language model, and what is hidden in it."""

    MORE: ClassVar[str] = f"{RawData.MORE}; next-sentence prediction, where it is on, needs two in each split"

    sentences: Sentences = "punctuation"
    """How next-sentence prediction finds sentences. `punctuation`: one ends with . ! ? or … before a blank and what is
    no small letter (in a document without capitals: anything), abbreviations aside; `lines`: every line is one, as in
    the files that BERT's authors read."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are to be predicted. Of these 80 % become [MASK], 10 % another token, 10 % stay."""
    whole_words: Whole = "off"
    """What is hidden together: single tokens (`off`), all pieces of a word (`words`), or all that stands between two
    spaces (`eojeol`, for Korean). A vocabulary of others with ## before the pieces that go on with a word does not tell
    where spaces are: with it both hide a piece and the ## pieces after it, and punctuation stands apart."""


class MaskedLanguageModeling(RawTextTask):
    """Raw text, measured by how many hidden tokens are found again, and how many pairs of sentences are told."""

    name = "masked_language_modeling"
    searches = False
    unit = "masked tokens"
    data = MaskedData
    models = BERTConfig
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False,
        "perplexity": False,
        "masked_accuracy": True,
        "next_sentence_loss": False,
        "next_sentence_accuracy": True,
    }
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0},
        "tokenizer": {"kind": "wordpiece"},
    }

    special = MASKING

    @property
    def sentences(self) -> Sentences | None:
        found: Sentences = self.recipe.data.sentences
        return found if self.recipe.model.next_sentence else None

    def settled(self, train: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Self:
        if self.tokenizers["text"].mask is None:
            hint = "add one to the file, or leave tokenizer.file out to train a vocabulary that has it"
            place = f"{self.recipe.tokenizer.file or 'tokenizer'}"
            raise DataError("the vocabulary has no [MASK] token", where=place, hint=hint)
        return self

    def _masking(self, text: RawTokens) -> Masking:
        return Masking(text.tokenizer, self.recipe.data.mask_rate, self.recipe.data.whole_words)

    def examples(self, text: RawTokens, part: str) -> Segments:
        data, masking = self.recipe.data, self._masking(text)
        if not self.recipe.model.next_sentence:
            return SingleSegments(text, masking, data.max_length)
        split, hint = getattr(data, part, None), MORE_DOCUMENTS
        if isinstance(split, Split):
            hint = f"raise data.{part}.split, which is {split.split:g}, or give data.{part} a text of its own"
        return SentencePairs(text, masking, data.max_length, f"data.{part}", hint, data.sentences)

    def check(self, data: Prepared[Segments]) -> None:
        check_max_length(self.recipe.data.max_length, self.recipe.model.max_positions, self.recipe.training.init)
        if not self.recipe.model.masked_head:
            what = "a model without the head that finds hidden tokens again cannot learn to"
            raise ConfigError(what, where="model.masked_head", hint="leave it at true")
        if self.recipe.training.best.startswith("next_sentence") and not self.recipe.model.next_sentence:
            raise ConfigError("model.next_sentence is off", where="training.best", hint="choose another metric")

    def model(self) -> Any:
        return build(self.recipe.model, self.tokenizers["text"].size)

    def objective(self, model: BERT) -> MaskedTokens:
        return MaskedTokens(model, self.recipe.training.label_smoothing)

    def loss(self, model: BERT, examples: Segments, progress: Done) -> dict[str, Any]:
        """Means over all examples; the same tokens are hidden whenever they are measured."""
        tallies: list[MaskedTallies] = []
        with torch.inference_mode():
            for rows in examples.measured(SCORE_TOKENS):
                tallies.append(masked_tallies(model, examples.batch(rows).to(device_of(model))))
                progress(len(rows))
        masked, pairs = sum(one.masked for one in tallies), sum(one.pairs for one in tallies)
        loss = sum(one.loss for one in tallies) / masked
        found = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "masked_accuracy": sum(one.found for one in tallies) / masked,
        }
        if pairs:
            found |= {"next_sentence_loss": sum(one.next_loss for one in tallies) / pairs}
            found |= {"next_sentence_accuracy": sum(one.told for one in tallies) / pairs}
        return found

    def validate(self, model: BERT, examples: Segments) -> dict[str, Any]:
        return self.loss(model, examples, ignore)

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> Segments:
        text = self.read_documents(corpora, part, base)
        try:
            return self.examples(text, part)
        except DataError:  # too few documents to pair sentences of: masked tokens can be measured all the same
            return SingleSegments(text, self._masking(text), self.recipe.data.max_length)

    def evaluate(self, model: BERT, examples: Segments, progress: Done) -> dict[str, Any]:
        found = {"documents": len(examples.text), "examples": len(examples), **self.loss(model, examples, progress)}
        return found | (
            {"note": NO_PAIRS} if self.recipe.model.next_sentence and "next_sentence_loss" not in found else {}
        )

    def check_inputs(self, model: BERT, inputs: Inputs) -> None:
        encode_gaps(model, self.tokenizers["text"], inputs.texts, inputs.places)

    def predict(
        self,
        model: BERT,
        inputs: Inputs,
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Filled]:
        """Each text with every [MASK] filled, and the `search.nbest` most probable tokens for each."""
        found = filled(model, self.tokenizers["text"], inputs.texts, inputs.places, self.recipe.search.nbest)
        progress(len(inputs))
        return found
