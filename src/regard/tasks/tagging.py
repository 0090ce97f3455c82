"""Tagging: a tag for every word of a sentence, and the entities that the tags mark.

Entities are counted as conlleval counts them: one is right if its type and both its ends are (Tjong
Kim Sang & De Meulder 2003, arXiv:cs/0306050, section 2.4, equation 1: F = 2 P R / (P + R)).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional as F

from regard.data import conll
from regard.data.batches import NO_TAG, LabelledBatch
from regard.data.config import as_list
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset, Encoding, Where
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.framing import Framed, labelled_batch, windows
from regard.data.prepare import Prepared, read_corpora
from regard.data.readers import Reader
from regard.data.store import Integers
from regard.errors import MAX_NAMED_PROBLEMS, ConfigError, DataError, InputError, Problem
from regard.layers.crf import CRF
from regard.models.headed import HeadConfig, Headed, TokenHead
from regard.models.ngrams import WindowModel
from regard.objectives.labels import TagCrossEntropy, TagSequenceLoss
from regard.tasks import baseline
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.examples import EncodedExample, ExampleAnswers
from regard.tasks.headed import (
    FITTING_TOKENS,
    TOKEN_MODELS,
    HeadedMetrics,
    HeadedNetwork,
    HeadedRecipe,
    Heads,
    LabelNames,
    Line,
    Measure,
    complete_headed,
    framing_of,
    head_vectors,
    loss_options,
    section,
    token_logits,
    unknown_texts,
    with_head,
)
from regard.tasks.occlusion import check_word_count
from regard.tasks.raw import spelling_options
from regard.tasks.reading import nothing_known, problem_in_text
from regard.tasks.task import Start, Task
from regard.tasks.views import Views, WordFalls
from regard.text.normalise import Span, joined_words, word_spans
from regard.text.spelling import Token, ids_of
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

LogProbabilities = NDArray[np.float32]


class TagHeadConfig(HeadConfig):
    """A head that chooses a tag for each word."""

    labels: LabelNames = None
    """The tags in their order. Default: all tags that the entities of the training data can have;
    the run keeps them."""
    crf: bool = False
    """Choose the tags of a sentence jointly with a CRF, which has a score for each pair of
    neighbouring tags."""
    linear: int = Field(0, ge=0)
    """Rows of the table of a linear model over windows of words, their affixes and the shapes of
    their letters, for a model that reads characters. It is fitted on the training data before the
    network is trained, and the scores of both are averaged. Features share rows by their hash. 0
    has no linear model."""


class Tagging(Task):
    """Tagged sentences, measured by the F1 of entities as conlleval counts them, and by the
    accuracy of tags."""

    name = "tagging"
    data = conll.TaggingData
    head = TagHeadConfig
    models = TOKEN_MODELS
    start = Start(completes_model=True)
    vocabularies = ("text",)
    higher_is_better = ("accuracy", "precision", "recall", "f1")
    unit = "words"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        encoding = self.make_encoding(recipe, tokenizers)
        answers = TagAnswers(encoding)
        names = (*self.lower_is_better, *self.higher_is_better)
        self.inputs = conll.TaggedInputs(self.name, self.corpora, recipe.data.encoding, ("text",))
        self.encoding = encoding
        self.network = HeadedNetwork(recipe, tokenizers, TagHeads(encoding))
        self.answers = answers
        self.metrics = HeadedMetrics(recipe, answers, TagMeasure(encoding, self.inputs), names)
        self.views = Views(
            vectors=head_vectors(recipe, tokenizers),
            occlude_words=partial(occlude_words_of_tags, answers),
        )

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """The best checkpoint is that with the best F1 of entities, or accuracy of tags if these
        mark none."""
        tree = complete_headed(tree, cls.data)
        training = tree.get("training")
        if not isinstance(training, dict) or "best" in training:
            return tree
        corpora = as_list(section(tree, "data").get("train"))
        plain = any(
            isinstance(corpus, dict) and corpus.get("scheme") == "plain" for corpus in corpora or ()
        )
        return tree | {"training": {**training, "best": "accuracy" if plain else "f1"}}

    @classmethod
    def learn_tokenizers(
        cls, recipe: Any, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        sentences = [" ".join(json.loads(words)) for words in train["tokens"]]
        return train_tokenizers(recipe.tokenizer, {"text": sentences}, base)

    @classmethod
    def settle(cls, recipe: Any, train: Mapping[str, Sequence[str]], where: Where) -> Any:
        return with_tags(recipe, train)

    @classmethod
    def make_encoding(cls, recipe: Any, tokenizers: Tokenizers) -> TagEncoding:
        return TagEncoding(recipe, tokenizers)

    def objective(self, model: Headed) -> TagCrossEntropy:
        smoothing = self.recipe.training.label_smoothing
        loss = TagSequenceLoss if self.recipe.head.crf else TagCrossEntropy
        return loss(model, smoothing=smoothing, **loss_options(self.recipe))

    def read(self, corpora: Sequence[conll.TaggedText], part: Part, base: Path) -> Dataset:
        if has_plain_tags(self.recipe):  # an imported run has no corpora that say so
            corpora = [corpus.model_copy(update={"scheme": "plain"}) for corpus in corpora]
        return read_corpora(self.encoding, self.recipe, corpora, part, base)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        return ("" if self.recipe.data.by_character else " ").join(json.loads(row["tokens"]))


# Tags


def has_plain_tags(recipe: HeadedRecipe) -> bool:
    """Whether tags mark no entities; for an imported run the labels tell."""
    labels = recipe.head.labels
    return bool(recipe.data.plain or (labels and not all(map(conll.is_chunk_tag, labels))))


def learned_tags(recipe: HeadedRecipe, row: str) -> list[str]:
    """The tags of a sentence in the scheme that is learned."""
    tags: list[str] = json.loads(row)
    if has_plain_tags(recipe):
        return tags
    return conll.tags_of(conll.entities_in(tags), len(tags), recipe.data.learned)


def with_tags(recipe: HeadedRecipe, train: Mapping[str, Sequence[str]]) -> Any:
    """The recipe with all tags that the training sentences allow: those of their types in the
    scheme, or those that occur; and with `words: characters` if each word is one, since no typed
    text is split at signs like that."""
    if recipe.head.labels:
        return recipe
    recipe = _by_character(recipe, {word for row in train["tokens"] for word in json.loads(row)})
    tags = {tag for row in train["tags"] for tag in learned_tags(recipe, row)}
    if len(tags) == 1:
        what = f"every tag is {next(iter(tags))!r}"
        hint = "two tags at the least: is it the right column? data.train.tags names it"
        raise DataError(what, where="data.train", hint=hint)
    if has_plain_tags(recipe):
        return with_head(recipe, labels=sorted(tags))
    types = {tag[2:] for tag in tags if tag != conll.OUTSIDE}
    return with_head(recipe, labels=conll.labels_of(types, recipe.data.learned))


def _by_character(recipe: HeadedRecipe, words: set[str]) -> Any:
    """The recipe of training sentences with these words, which may all be single characters."""
    data = recipe.data
    by_character = "characters_and_blanks" if any(map(str.isspace, words)) else "characters"
    splits = data.words in ("punctuation", "characters") and data.words != by_character
    if not splits or {*map(len, words)} != {1}:
        return recipe
    return recipe.model_copy(update={"data": data.model_copy(update={"words": by_character})})


class TagEncoding(Encoding):
    """Sentences whose words have tags."""

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        self.labels = tuple(recipe.head.labels or ())
        self.framing = framing_of(recipe, tokenizers)

    def settings(self) -> list[Any]:
        data = self.recipe.data
        return [list(self.labels), data.learned, has_plain_tags(self.recipe), not data.by_character]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        """`tokens` has those of all words, `sizes` how many each word has, `labels` the numbers of
        the tags."""
        sentences = [json.loads(words) for words in texts["tokens"]]
        encoded = self.encode_words(sentences)
        columns = {
            "tokens": [ids_of([token for word in words for token in word]) for words in encoded],
            "sizes": [[len(word) for word in words] for words in encoded],
        }
        if "tags" in texts:
            tags = [learned_tags(self.recipe, row) for row in texts["tags"]]
            self._refuse_unknown(sentences, tags, where)
            numbers = {name: number for number, name in enumerate(self.labels)}
            columns["labels"] = [[numbers[tag] for tag in row] for row in tags]
        return columns

    def _refuse_unknown(
        self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], where: Where
    ) -> None:
        """Refuse tags that are not among the labels, each at its first place."""
        first: dict[str, Problem] = {}
        types = (
            self.labels
            if has_plain_tags(self.recipe)
            else {label[2:] for label in self.labels if label != conll.OUTSIDE}
        )
        for row, (words, own) in enumerate(zip(sentences, tags, strict=True)):
            for word, tag in zip(words, own, strict=True):
                if tag not in self.labels and tag not in first:
                    what = (
                        f"the tag {tag!r} of {word!r} is not in the training sentences or "
                        "head.labels"
                    )
                    first[tag] = Problem(
                        where(row), what, f"there are {', '.join(sorted(types))[:200]}"
                    )
        if first:
            raise DataError(problems=list(first.values())[:MAX_NAMED_PROBLEMS])

    def tokenizer_of(self, column: str) -> Tokenizer | None:
        return self.tokenizers["text"] if column == "tokens" else None

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[list[list[Token]]]:
        """The tokens of each word, at least one, as they would be in a text with a space between
        any two words.

        In vocabularies of bytes and characters a space is a token, or part of one; tagged syllables
        have none between.
        """
        tokenizer = self.framing.tokenizer
        separates = tokenizer.encode("a a") != tokenizer.encode("a") * 2
        before = " " if not self.recipe.data.by_character and separates else ""
        spelt = [
            [word if number == 0 else before + word for number, word in enumerate(words)]
            for words in sentences
        ]
        distinct = list(dict.fromkeys(word for words in spelt for word in words))
        encoded = tokenizer.encode_spelled(distinct, self.framing.letters)
        known = {word: ids or [tokenizer.unk] for word, ids in zip(distinct, encoded, strict=True)}
        return [[known[word] for word in words] for words in spelt]

    def rows(self, words: Sequence[Sequence[Token]]) -> list[Marked]:
        """One row, or several if the sentence is too long: each word is tagged in the row with the
        most text around it.

        A word is tagged at its first token, or at its last one if a model has read all of it only
        there.
        """
        sizes = np.array([len(ids) for ids in words])
        carriers = np.cumsum(sizes) - (1 if self.recipe.model.causal else sizes)
        ids = [token for word in words for token in word]
        parts = windows(len(ids), self.framing.room, self.framing.stride)
        inside = [slice(*np.searchsorted(carriers, part)) for part in parts]
        chosen_W = np.zeros(len(words), dtype=np.int64)
        most_W = np.full(len(words), -1)
        for number, ((start, stop), own) in enumerate(zip(parts, inside, strict=True)):
            around = np.minimum(carriers[own] - start, stop - 1 - carriers[own])
            chosen_W[own] = np.where(around > most_W[own], number, chosen_W[own])
            most_W[own] = np.maximum(around, most_W[own])
        rows = []
        for number, ((start, stop), own) in enumerate(zip(parts, inside, strict=True)):
            tagged = own.start + np.flatnonzero(chosen_W[own] == number)
            places = (self.framing.before(1) + carriers[tagged] - start).tolist()
            rows.append(Marked(self.framing.frame(ids[start:stop]), places, tagged.tolist()))
        return rows

    def words(self, examples: Dataset, row: int) -> list[list[Token]]:
        """The tokens of each word of an example."""
        ids = examples.columns["tokens"][row]
        if self.framing.letters is not None and self.framing.tokenizer.unk in ids:
            return self.encode_words([json.loads(examples.texts["tokens"][row])])[0]
        ends = np.cumsum(examples.columns["sizes"][row])[:-1]
        return [part.tolist() for part in np.split(ids, ends)]

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """All rows of a sentence together."""
        lengths, places = np.unique(examples.columns["tokens"].lengths, return_inverse=True)
        return np.array(
            [
                self.framing.positions(length, self.framing.special(1))
                for length in lengths.tolist()
            ],
            dtype=np.int32,
        )[places]

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> LabelledBatch:
        """Rows of tokens, with the label of each word at the token that carries it."""
        column = examples.columns["labels"]
        places = tuple(rows.tolist())
        read = [self.rows(self.words(examples, row)) for row in places]
        framed = [[marked.row for marked in own] for own in read]
        batch = labelled_batch(framed, torch.empty(0), self.framing.tokenizer.pad, places)
        labels_BL = torch.full_like(batch.text.ids_BL, NO_TAG)
        marks = (
            (marked, column[row]) for row, own in zip(places, read, strict=True) for marked in own
        )
        for labels_L, (marked, labels) in zip(labels_BL, marks, strict=True):
            labels_L[marked.places] = torch.from_numpy(labels[marked.words].astype(np.int64))
        return replace(batch, labels=labels_BL, tokens=int(column.lengths[rows].sum()))

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        return examples.columns["labels"].counts(len(self.labels))

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        return dict(zip(self.labels, self.frequencies(examples).tolist(), strict=True))

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        return {**super().pieces(examples, row), "tags": self.expected(examples, row)}

    def expected(self, examples: Dataset, row: int) -> list[str]:
        return [self.labels[number] for number in examples.columns["labels"][row].tolist()]

    def fields_of(self, examples: Dataset, row: int) -> list[tuple[str, list[int]]]:
        return [(examples.texts["text"][row], examples.columns["tokens"][row].tolist())]

    def split(self, given: Example) -> tuple[str, list[Span]]:
        """The text of an input, and where its words stand in it."""
        words = self.recipe.data.words
        if "tokens" not in given.columns:
            return given.text, word_spans(given.text, words)
        text, spans = joined_words(given.several("tokens"))
        if words != "characters_and_blanks":
            spans = [span for span in spans if text[slice(*span)].strip()]
        return text, spans

    def names(self, tags: Tags) -> list[str]:
        """The names of the tags of a sentence."""
        return [self.labels[tag] for tag in tags.best]


# The model


class TagHeads(Heads):
    """A head that gives a tag for each word."""

    by_token = True

    def __init__(self, encoding: TagEncoding) -> None:
        self.recipe = encoding.recipe
        self.encoding = encoding

    def make(self, width: int) -> TokenHead:
        head = self.recipe.head
        pooler = self.recipe.model.head_layer(width, None)
        labels = len(self.encoding.labels)
        return TokenHead(width, labels, dropout=head.dropout, pooler=pooler, crf=head.crf)

    def make_linear(self) -> WindowModel | None:
        rows = self.recipe.head.linear
        spelling = spelling_options(self.recipe.model, self.encoding.tokenizers["text"])
        if not rows or not spelling:
            return None
        return WindowModel(rows, len(self.encoding.labels), **spelling)

    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        if model.linear is None:
            return
        batches = [
            self.encoding.collate(train, rows, 0, 0)
            for rows in fixed_batches(train, FITTING_TOKENS)
        ]
        labels = torch.cat([batch.labels[batch.labels != NO_TAG] for batch in batches])
        model.linear.fit(batches, labels, partial(F.cross_entropy, reduction="sum"), 0.2)

    def check(self, data: Prepared[Dataset]) -> None:
        recipe = self.recipe
        if recipe.head.linear and recipe.model.letters is None:
            what = "the linear model reads the letters of words, and this model does not"
            hint = "set it to 0, or model.characters of bilstm to a width"
            raise ConfigError(what, where="head.linear", hint=hint)
        if recipe.data.plain and recipe.training.best not in ("loss", "accuracy"):
            what = f"plain tags mark no entities, so that there is no {recipe.training.best}"
            raise ConfigError(what, where="training.best", hint="allowed: loss, accuracy")


# Answers and their metrics


class TagAnswers(ExampleAnswers[TagEncoding]):
    """A tag for every word."""

    def encoded_texts(self, given: Example) -> dict[str, str]:
        InputError.raise_if([problem_in_text(given.text, given.place)])
        text, spans = self.encoding.split(given)
        return {"text": text, "tokens": json.dumps([text[slice(*span)] for span in spans])}

    def encoded_problems(self, examples: Dataset, row: int) -> list[Problem]:
        """Whether the tokenizer drops all of a text, so that `encode_words` has put `<unk>` for
        each word."""
        tokenizer = self.encoding.framing.tokenizer
        ids = examples.columns["tokens"][row]
        words = json.loads(examples.texts["tokens"][row])
        dropped = (ids == tokenizer.unk).all() and not tokenizer.encode(" ".join(words))
        return [nothing_known(examples.texts["text"][row], examples.where(row))] if dropped else []

    def results(self, model: Headed, examples: Dataset, progress: Done = ignore) -> list[Tags]:
        return self.tag_words(
            model, [self.encoding.words(examples, row) for row in range(len(examples))], progress
        )

    def tag_words(
        self, model: Headed, sentences: Sequence[Sequence[Sequence[Token]]], progress: Done = ignore
    ) -> list[Tags]:
        """The tags of each sentence, from the tokens of each word."""
        rows = [
            (number, marked)
            for number, words in enumerate(sentences)
            for marked in self.encoding.rows(words)
        ]
        log_p = [
            np.zeros((len(words), len(self.encoding.labels)), dtype=np.float32)
            for words in sentences
        ]
        left = np.bincount([number for number, _ in rows], minlength=len(sentences))
        for row, logits_LY in token_logits(
            model, [marked.row for _, marked in rows], self.encoding.framing.tokenizer.pad
        ):
            sentence, marked = rows[row]
            log_p[sentence][marked.words] = logits_LY.log_softmax(-1).numpy()[marked.places]
            left[sentence] -= 1
            progress(int(left[sentence] == 0))
        head = model.head
        assert isinstance(head, TokenHead)
        return [Tags.of(log_p_WY, head.crf) for log_p_WY in log_p]

    def prediction(self, given: Example, examples: Dataset, row: int, result: Tags) -> TaggedInput:
        return tag_text(
            self.encoding,
            *self.encoding.split(given),
            self.encoding.names(result),
            result.probabilities,
        )

    def notes(
        self, encoded: EncodedInputs[EncodedExample], predictions: Sequence[Prediction]
    ) -> list[Note]:
        return unknown_texts(encoded, self.encoding.fields_of, self.encoding.framing)


class TagMeasure(Measure):
    """The accuracy of tags, and the F1 of entities."""

    def __init__(self, encoding: TagEncoding, inputs: conll.TaggedInputs) -> None:
        self.encoding = encoding
        self.inputs = inputs

    def scores(self, examples: Dataset, results: Sequence[Tags]) -> dict[str, Any]:
        """The mean loss of a tag, the share of right ones, and those of entities, type by type,
        where tags mark any."""
        labels = [examples.columns["labels"][row] for row in range(len(examples))]
        losses = [
            -np.take_along_axis(of.log_p_WY, own[:, None], -1)
            for of, own in zip(results, labels, strict=True)
        ]
        expected = [self.encoding.expected(examples, row) for row in range(len(examples))]
        predicted = [*map(self.encoding.names, results)]
        metrics = {
            "loss": float(np.concatenate(losses).mean()),
            "accuracy": accuracy(expected, predicted),
        }
        return metrics | (
            {} if has_plain_tags(self.encoding.recipe) else entity_scores(expected, predicted)
        )

    def line(self, examples: Dataset, row: int, result: Tags) -> Line:
        tokens: list[str] = json.loads(examples.texts["tokens"][row])
        expected = self.encoding.expected(examples, row)
        predicted = self.encoding.names(result)
        text, spans = self.encoding.split(self.inputs.of_words(tokens, examples.where(row)))
        return {
            "input": text,
            "output": tag_text(self.encoding, text, spans, predicted).output,
            "expected": tag_text(self.encoding, text, spans, expected).output,
            "right": predicted == expected,
            "tokens": tokens,
            "tags": predicted,
            "expected_tags": expected,
        }

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        words = [*map(json.loads, train.texts["tokens"])]
        others = [*map(json.loads, examples.texts["tokens"])]
        labels = [train.columns["labels"][row] for row in range(len(train))]
        for name, results in baseline.tags(words, labels, others, len(self.encoding.labels)):
            yield name, [Tags.of(log_p_WY) for log_p_WY in results]


def tag_text(
    encoding: TagEncoding,
    text: str,
    spans: Sequence[Span],
    tags: Sequence[str],
    p_W: Sequence[float] = (),
) -> TaggedInput:
    """A text with the tags of its words, and their probabilities."""
    words = zip(spans, tags, p_W or [1.0] * len(tags), strict=True)
    return TaggedInput(
        text,
        tuple(TaggedWord(*word) for word in words),
        finds_entities=not has_plain_tags(encoding.recipe),
    )


def occlude_words_of_tags(answers: TagAnswers, model: Headed, given: Example) -> WordFalls:
    """How much the tag of every word depends on each word."""
    text, spans = answers.encoding.split(given)
    words = [text[slice(*span)] for span in spans]
    check_word_count(len(words))
    sentences = [
        words,
        *(words[:out] + words[out + 1 :] for out in range(len(words)) if len(words) > 1),
    ]
    whole, *without = answers.tag_words(model, answers.encoding.encode_words(sentences))
    p_without = [np.exp(shortened.log_p_WY) for shortened in without]
    tags = np.array(whole.best)
    values = np.array(whole.probabilities)
    falls_WA = np.zeros((len(words), len(words)))
    for out, p in enumerate(p_without):
        others = np.delete(np.arange(len(words)), out)
        falls_WA[out, others] = values[others] - p[np.arange(len(others)), tags[others]]
    names = answers.encoding.names(whole)
    named = tuple(f"{word}/{name}" for word, name in zip(words, names, strict=True))
    kept = len(p_without)
    return WordFalls(named, tuple(map(float, values)), tuple(words[:kept]), falls_WA[:kept])


class Tags(NamedTuple):
    """The tags of a sentence."""

    best: list[int]
    log_p_WY: LogProbabilities
    """Log P of every tag of each word."""

    @classmethod
    def of(cls, log_p_WY: LogProbabilities, crf: CRF | None = None) -> Tags:
        """The likeliest tag of each word; with a CRF, whose scores these are then, the likeliest
        tags together."""
        if crf is None or not len(log_p_WY):
            return cls(log_p_WY.argmax(-1).tolist(), log_p_WY)
        with torch.inference_mode():
            P_WY = torch.from_numpy(log_p_WY).to(crf.A.device)
            return cls(crf.best(P_WY), crf.log_marginals(P_WY).cpu().numpy())

    @property
    def probabilities(self) -> list[float]:
        """P of each tag."""
        return [
            float(np.exp(log_p_Y[tag]))
            for tag, log_p_Y in zip(self.best, self.log_p_WY, strict=True)
        ]


class Marked(NamedTuple):
    """A row of tokens: the places in it that carry the tags of words, and which words of the
    sentence these are."""

    row: Framed
    places: list[int]
    words: list[int]


class TaggedWord(NamedTuple):
    """A word of a text, and its tag."""

    span: Span
    tag: str
    probability: float


@dataclass(frozen=True)
class TaggedInput(Prediction):
    """A text, the tags of its words, and the entities that these make."""

    words: tuple[TaggedWord, ...]
    finds_entities: bool

    @property
    def entities(self) -> list[dict[str, Any]]:
        """In their order, each with the probability of all its tags; none where tags mark none."""
        entities = []
        for type, first, last in (
            conll.entities_in([word.tag for word in self.words]) if self.finds_entities else ()
        ):
            words = self.words[first:last]
            span = Span(words[0].span.start, words[-1].span.end)
            place = {"type": type, **span._asdict(), "text": self.input[slice(*span)]}
            entities.append({**place, "probability": prod(word.probability for word in words)})
        return entities

    @property
    def output(self) -> str:
        """`[PER Anna Kim] lives in [LOC Oslo].`; if tags mark no entities, a tag behind each
        word."""
        if not self.finds_entities:
            return " ".join(f"{self.input[slice(*word.span)]}/{word.tag}" for word in self.words)
        parts = []
        done = 0
        for entity in self.entities:
            parts += [self.input[done : entity["start"]], f"[{entity['type']} {entity['text']}]"]
            done = entity["end"]
        return "".join([*parts, self.input[done:]])

    def content(self) -> dict[str, Any]:
        words = [
            {
                "text": self.input[slice(*span)],
                **span._asdict(),
                "tag": tag,
                "probability": probability,
            }
            for span, tag, probability in self.words
        ]
        entities = {"entities": self.entities} if self.finds_entities else {}
        return {"input": self.input, "output": self.output, **entities, "words": words}

    def lines(self, nbest: int) -> Iterator[str]:
        yield self.output


def accuracy(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of words whose tag is the right one."""
    pairs = [
        pair for rows in zip(expected, predicted, strict=True) for pair in zip(*rows, strict=True)
    ]
    return sum(ours == theirs for ours, theirs in pairs) / max(len(pairs), 1)


def entity_scores(
    expected: Sequence[Sequence[str]], output: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """`precision`, `recall` and `f1` over all entities, and the same of each type under `types`."""
    there = Counter[str]()
    predicted = Counter[str]()
    right = Counter[str]()
    for ours, theirs in zip(expected, output, strict=True):
        gold = set(conll.entities_in(ours))
        guessed = set(conll.entities_in(theirs))
        there.update(entity.type for entity in gold)
        predicted.update(entity.type for entity in guessed)
        right.update(entity.type for entity in gold & guessed)
    types = {
        type: {**_scores(right[type], predicted[type], there[type]), "entities": there[type]}
        for type in sorted({*there, *predicted})
    }
    return {**_scores(right.total(), predicted.total(), there.total()), "types": types}


def _scores(right: int, predicted: int, there: int) -> dict[str, float]:
    f1 = 2 * right / (predicted + there) if right else 0.0
    return {
        "precision": right / predicted if predicted else 0.0,
        "recall": right / there if there else 0.0,
        "f1": f1,
    }
