"""Masked language modeling: raw text in, a model that finds hidden words again, and tells what follows what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field

from regard.data.config import Split
from regard.data.corpora import Part
from regard.data.documents import RawData, RawText
from regard.data.file_inputs import FileInput
from regard.data.masking import Masking, Whole
from regard.data.prepare import Prepared
from regard.data.raw import RawTokens, prepare_raw
from regard.data.segments import MORE_DOCUMENTS, Segments, SentencePairs, SingleSegments
from regard.errors import ConfigError, DataError
from regard.models import any_config, build_model
from regard.models.base import device_of
from regard.models.bert import BERT
from regard.objectives.language_model import MaskedSums, MaskedTokens, masked_sums
from regard.search import SearchConfig
from regard.tasks.filling import Filled, encode_gaps, filled
from regard.tasks.inputs import Inputs
from regard.tasks.language_modeling import SCORE_TOKENS, NoEvaluation
from regard.tasks.metrics import perplexity
from regard.tasks.raw import check_max_length, corpus_of_files, read_documents, texts_in
from regard.tasks.task import Progress, Task
from regard.text.files import TextFile
from regard.text.sentences import Sentences
from regard.text.tokenizers import Tokenizers
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


class MaskedLanguageModeling(Task):
    """Raw text, measured by how many hidden tokens are found again, and how many pairs of sentences are told."""

    name = "masked_language_modeling"
    searches = False
    unit = "masked tokens"
    columns = ("text",)
    data = MaskedData
    evaluation = NoEvaluation
    model = any_config(lambda config: config.pretraining == "masked")
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

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Segments]:
        found = prepare_raw(
            recipe.data,
            recipe.tokenizer,
            base=base,
            seed=recipe.training.seed,
            tokenizers=tokenizers,
            progress=progress,
            sentences=recipe.data.sentences if recipe.model.next_sentence else None,
            special=MASKING,
        )
        splits = {name: cls._examples(text, recipe, name) for name, text in found.splits.items()}
        return Prepared(splits["train"], splits["validation"], splits.get("test"), found.tokenizers, found.report)

    @classmethod
    def _masking(cls, text: RawTokens, recipe: Any) -> Masking:
        return Masking(text.tokenizer, recipe.data.mask_rate, recipe.data.whole_words)

    @classmethod
    def _examples(cls, text: RawTokens, recipe: Any, name: str) -> Segments:
        masking = cls._masking(text, recipe)
        if not recipe.model.next_sentence:
            return SingleSegments(text, masking, recipe.data.max_length)
        part, hint = getattr(recipe.data, name, None), MORE_DOCUMENTS
        if isinstance(part, Split):
            hint = f"raise data.{name}.split, which is {part.split:g}, or give data.{name} a text of its own"
        return SentencePairs(text, masking, recipe.data.max_length, f"data.{name}", hint, recipe.data.sentences)

    @classmethod
    def check(cls, recipe: Any, data: Prepared[Segments]) -> None:
        check_max_length(recipe.data.max_length, recipe.model.max_positions, recipe.training.init)
        if not recipe.model.masked_head:
            what = "a model without the head that finds hidden tokens again cannot learn to"
            raise ConfigError(what, where="model.masked_head", hint="leave it at true")
        if recipe.training.best.startswith("next_sentence") and not recipe.model.next_sentence:
            raise ConfigError("model.next_sentence is off", where="training.best", hint="choose another metric")

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Any:
        return build_model(recipe.model, tokenizers["text"].size)

    @classmethod
    def objective(cls, model: BERT, recipe: Any) -> MaskedTokens:
        return MaskedTokens(model, recipe.training.label_smoothing)

    @classmethod
    def loss(cls, model: BERT, examples: Segments, progress: Callable[[int], None]) -> dict[str, Any]:
        """Means over all examples; the same tokens are hidden whenever they are measured."""
        tallies: list[MaskedSums] = []
        with torch.inference_mode():
            for rows in examples.measured(SCORE_TOKENS):
                tallies.append(masked_sums(model, examples.batch(rows).to(device_of(model))))
                progress(len(rows))
        masked, pairs = sum(one.masked for one in tallies), sum(one.pairs for one in tallies)
        loss = sum(one.loss for one in tallies) / masked
        found = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "masked_accuracy": sum(one.correct for one in tallies) / masked,
        }
        if pairs:
            found |= {"next_sentence_loss": sum(one.next_loss for one in tallies) / pairs}
            found |= {"next_sentence_accuracy": sum(one.next_correct for one in tallies) / pairs}
        return found

    @classmethod
    def validate(cls, model: BERT, recipe: Any, data: Prepared[Segments]) -> dict[str, Any]:
        return cls.loss(model, data.validation, lambda done: None)

    @classmethod
    def read(cls, recipe: Any, corpora: Sequence[RawText], part: Part, base: Path, tokenizers: Tokenizers) -> Segments:
        sentences = recipe.data.sentences if recipe.model.next_sentence else None
        text = read_documents(recipe.data, corpora, part, base, tokenizers["text"], sentences=sentences)
        try:
            return cls._examples(text, recipe, part)
        except DataError:  # too few documents to pair sentences of: what is masked in them can be measured all the same
            return SingleSegments(text, cls._masking(text, recipe), recipe.data.max_length)

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[RawText]) -> RawText:
        return corpus_of_files(files, own)

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput] | None:
        return texts_in(own, file)

    @classmethod
    def evaluate(
        cls, model: BERT, recipe: Any, examples: Segments, tokenizers: Tokenizers, progress: Callable[[int], None]
    ) -> dict[str, Any]:
        found = {"documents": len(examples.text), "examples": len(examples), **cls.loss(model, examples, progress)}
        return found | ({"note": NO_PAIRS} if recipe.model.next_sentence and "next_sentence_loss" not in found else {})

    @classmethod
    def check_inputs(cls, model: BERT, tokenizers: Tokenizers, inputs: Inputs, config: SearchConfig) -> None:
        encode_gaps(model, tokenizers["text"], inputs.texts, inputs.places)

    @classmethod
    def predict(
        cls,
        model: BERT,
        tokenizers: Tokenizers,
        inputs: Inputs,
        config: SearchConfig,
        *,
        record: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Filled]:
        """Each text with every [MASK] filled, and the `config.nbest` most probable tokens for each of them."""
        found = filled(model, tokenizers["text"], inputs.texts, inputs.places, config.nbest)
        progress(len(inputs))
        return found
