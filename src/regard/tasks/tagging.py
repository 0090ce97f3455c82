"""Tagging: a tag for every word of a sentence, and the entities that the tags mark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator

from regard.data.config import as_list
from regard.data.conll import TaggedText, TaggingData, open_tagged
from regard.data.corpora import Part
from regard.data.file_inputs import FileInput
from regard.data.prepare import Prepared
from regard.data.schemes import entities_in, is_chunk_tag
from regard.data.tagged import Marking, TaggedExamples, prepare_tagged, read_tagged
from regard.data.untagged import untagged_inputs
from regard.errors import ConfigError
from regard.models.headed import HeadConfig, TokenHead
from regard.objectives.labels import TagCrossEntropy
from regard.tasks.classification import as_texts
from regard.tasks.entity_scores import accuracy, entity_scores
from regard.tasks.headed import HeadedTask
from regard.tasks.inputs import encode_inputs, only_file, problem_in_text
from regard.tasks.tagger import LogProbabilities, TaggedInput, Tagger, bracketed, tag_words, tagged_inputs
from regard.tasks.task import Progress
from regard.text.files import TextFile
from regard.text.offsets import Span, word_spans
from regard.text.tokenizers import Tokenizer, Tokenizers


class TagHeadConfig(HeadConfig):
    """A head that chooses a tag for each word."""

    labels: Annotated[list[str] | None, BeforeValidator(as_texts)] = None
    """The tags in their order. Default: all that the entities of the training data can have; the run keeps them."""


class Tagging(HeadedTask):
    """Tagged sentences, measured by the F1 of entities as conlleval counts them, and by the accuracy of tags."""

    name = "tagging"
    data = TaggingData
    head = TagHeadConfig
    by_token = True
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False, "accuracy": True, "precision": True, "recall": True, "f1": True,
    }  # fmt: skip

    @classmethod
    def filled(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """The best checkpoint is that with the best F1 of entities, or accuracy of tags where these mark none."""
        tree = super().filled(tree)
        data, training = tree.get("data"), tree.get("training")
        if not isinstance(training, dict) or "best" in training:
            return tree
        corpora = as_list(data.get("train")) if isinstance(data, dict) else ()
        plain = any(isinstance(one, dict) and one.get("scheme") == "plain" for one in corpora or ())
        return tree | {"training": {**training, "best": "accuracy" if plain else "f1"}}

    @classmethod
    def check(cls, recipe: Any, data: Prepared[TaggedExamples]) -> None:
        super().check(recipe, data)
        if recipe.data.plain and recipe.training.best not in ("loss", "accuracy"):
            what = f"plain tags mark no entities, so that there is no {recipe.training.best}"
            raise ConfigError(what, where="training.best", hint="allowed: loss, accuracy")

    @classmethod
    def marking(cls, recipe: Any, tokenizer: Tokenizer) -> Marking:
        """A model that reads from left to right knows a word only at its last token."""
        spaced, last = recipe.data.words != "characters", recipe.model.causal
        return Marking(cls.framing(recipe, tokenizer), spaced, last)

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[TaggedExamples]:
        return prepare_tagged(
            recipe.data,
            recipe.tokenizer,
            lambda tokenizer: cls.marking(recipe, tokenizer),
            recipe.head.labels,
            base=base,
            seed=recipe.training.seed,
            tokenizers=tokenizers,
            progress=progress,
        )

    @classmethod
    def settled(cls, tree: dict[str, Any], data: Prepared[TaggedExamples]) -> dict[str, Any]:
        return tree | {"head": tree["head"] | {"labels": list(data.train.names)}}

    @classmethod
    def labels_of(cls, recipe: Any) -> tuple[str, ...]:
        return tuple(recipe.head.labels or ())

    @classmethod
    def make_head(cls, width: int, recipe: Any) -> TokenHead:
        return TokenHead(width, len(cls.labels_of(recipe)), dropout=recipe.head.dropout)

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Tagger:
        tokenizer = tokenizers["text"]
        model = Tagger(cls.base(recipe, tokenizer), recipe.head, lambda width: cls.make_head(width, recipe))
        model.labels, model.words = cls.labels_of(recipe), recipe.data.words
        model.framing, model.marking = cls.framing(recipe, tokenizer), cls.marking(recipe, tokenizer)
        return model

    @classmethod
    def objective(cls, model: Tagger, recipe: Any) -> TagCrossEntropy:
        return TagCrossEntropy(model, recipe.training.label_smoothing, recipe.head.auxiliary)

    @classmethod
    def validate(cls, model: Tagger, recipe: Any, data: Prepared[TaggedExamples]) -> dict[str, Any]:
        examples = data.validation
        found = scores(examples, tag_all(model, examples))
        return {name: found[name] for name in cls.higher_is_better if name in found}

    @classmethod
    def read(
        cls, recipe: Any, corpora: Sequence[TaggedText], part: Part, base: Path, tokenizers: Tokenizers
    ) -> TaggedExamples:
        if not all(map(is_chunk_tag, cls.labels_of(recipe))):  # an imported run has no corpora that say so
            corpora = [corpus.model_copy(update={"scheme": "plain"}) for corpus in corpora]
        readers = [open_tagged(corpus, base, part) for corpus in corpora]
        return read_tagged(readers, recipe.data, recipe.head.labels, cls.marking(recipe, tokenizers["text"]))

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[TaggedText], file: TextFile) -> Iterator[FileInput] | None:
        return untagged_inputs(file, cls.corpus_of([file.name], own))

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[TaggedText]) -> TaggedText:
        file = only_file(files)
        is_json = ".jsonl" in Path(file).suffixes
        like = [corpus for corpus in own if corpus.file and (".jsonl" in Path(corpus.file).suffixes) == is_json]
        plain = TaggedText(file=file, scheme="plain" if own[0].scheme == "plain" else "auto")
        return like[0].model_copy(update={"file": file, "size": None}) if like else plain

    @classmethod
    def evaluate(
        cls,
        model: Tagger,
        recipe: Any,
        examples: TaggedExamples,
        tokenizers: Tokenizers,
        progress: Callable[[int], None],
    ) -> dict[str, Any]:
        """Entities as conlleval counts them, type by type; the share of right tags; every sentence."""
        log_p = tag_all(model, examples, progress)
        told = [_told(examples, row, one, model.finds_entities) for row, one in enumerate(log_p)]
        return {"sentences": len(examples), **scores(examples, log_p), "predictions": told}

    @classmethod
    def check_texts(cls, model: Tagger, texts: Sequence[str], places: Sequence[str]) -> None:
        read = [
            text
            if problem_in_text(text, place)
            else " ".join(text[slice(*span)] for span in word_spans(text, model.words))
            for text, place in zip(texts, places, strict=True)
        ]
        framing = model.framing
        encode_inputs(framing.tokenizer, read, places, longest=None, letters=framing.letters, unknown=True)

    @classmethod
    def answers(
        cls, model: Tagger, texts: Sequence[str], places: Sequence[str], nbest: int, progress: Callable[[int], None]
    ) -> list[TaggedInput]:
        cls.check_texts(model, texts, places)
        return tagged_inputs(model, texts, progress)


def tag_all(
    model: Tagger, examples: TaggedExamples, progress: Callable[[int], None] = lambda done: None
) -> list[LogProbabilities]:
    """log P of every tag for each word of all sentences."""
    return tag_words(model, [examples.words(row) for row in range(len(examples))], progress)


def scores(examples: TaggedExamples, log_p: Sequence[LogProbabilities]) -> dict[str, Any]:
    """The mean loss of a tag, the share of right ones, and those of entities where tags mark any."""
    labels = [examples.labels[row] for row in range(len(examples))]
    losses = [-np.take_along_axis(one, own[:, None], -1) for one, own in zip(log_p, labels, strict=True)]
    expected = [examples.expected(row) for row in range(len(examples))]
    found = [_likeliest(examples, one) for one in log_p]
    measured = {"loss": float(np.concatenate(losses).mean()), "accuracy": accuracy(expected, found)}
    return measured | (entity_scores(expected, found) if examples.finds_entities else {})


def _likeliest(examples: TaggedExamples, log_p_WY: LogProbabilities) -> list[str]:
    return [examples.names[tag] for tag in log_p_WY.argmax(-1).tolist()]


def _told(examples: TaggedExamples, row: int, log_p_WY: LogProbabilities, finds_entities: bool) -> dict[str, Any]:
    """A line of the file of predictions."""
    tokens: list[str] = json.loads(examples.tokens[row])
    expected, found = examples.expected(row), _likeliest(examples, log_p_WY)
    return {
        "where": examples.where(row),
        "input": " ".join(tokens),
        "output": _shown(tokens, found, finds_entities),
        "expected": _shown(tokens, expected, finds_entities),
        "right": found == expected,
        "tokens": tokens,
        "tags": found,
        "expected_tags": expected,
    }


def _shown(tokens: Sequence[str], tags: Sequence[str], finds_entities: bool) -> str:
    """A sentence as `predict` shows it."""
    if not finds_entities:
        return " ".join(f"{token}/{tag}" for token, tag in zip(tokens, tags, strict=True))
    ends = np.cumsum([len(token) + 1 for token in tokens])
    starts = ends - [len(token) + 1 for token in tokens]
    spans = [(one.type, Span(int(starts[one.start]), int(ends[one.end - 1]) - 1)) for one in entities_in(tags)]
    return bracketed(" ".join(tokens), spans)
