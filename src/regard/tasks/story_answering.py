"""Question answering over stories: sentences and a question in, one word out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import StoryBatch
from regard.data.config import Recipe
from regard.data.dataset import ColumnReport, Columns, Dataset, Encoding, Where
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.prepare import Prepared, Progress, prepare
from regard.data.readers import Reader
from regard.data.store import Integers
from regard.data.stories import UNKNOWN, Question, StoryData, StoryInputs
from regard.errors import ConfigError, InputError, Problem
from regard.models import MODELS, any_config
from regard.models.base import device_of
from regard.models.memory_network import MemoryNetwork
from regard.objectives.cross_entropy import perplexity
from regard.objectives.labels import AnswerCrossEntropy, answer_losses
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.examples import EncodedExample, ExampleAnswers
from regard.tasks.reading import problem_in_text
from regard.tasks.task import Metrics, Network, Task, set_first_bias
from regard.tasks.views import Views
from regard.text.tokenizers import Tokenizer, Tokenizers, tokenizer_named
from regard.text.vocabularies import PAD, PUNCTUATION, UNK, train_story_words

QUESTIONS_PER_BATCH = 256
NAMED_ANSWERS = 5
"""How many answers are named with their probabilities."""


class StoryAnswering(Task):
    """Stories with questions, measured by the share of wrong answers: task by task, and their
    mean."""

    name = "story_answering"
    data = StoryData
    models = any_config(lambda config: config.reads == "story")
    vocabularies = ("text",)
    lower_is_better = ("loss", "perplexity", "error")
    unit = "questions"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tokenizer": {"kind": "word", "lowercase": True},
        "training": {
            "batch_tokens": 32,
            "label_smoothing": 0.0,
            "precision": "fp32",
            "optimizer": "sgd",
            "momentum": 0.0,
            "learning_rate": 0.32,
            "schedule": "linear",
            "warmup": 0,
            "clip": 1.25,
        },
    }
    """The paper's batches of 32 questions (`batch_tokens` counts answers), and its optimiser."""

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        columns = ("story", "question")
        encoding = self.make_encoding(recipe, tokenizers)
        answers = StoryAnswers(encoding)
        self.inputs = StoryInputs(self.name, self.corpora, recipe.data.encoding, columns)
        self.encoding = encoding
        self.network = StoryNetwork(recipe, encoding)
        self.answers = answers
        self.metrics = StoryMetrics(encoding, answers)
        self.views = Views(stories=answers)

    @classmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> StoryEncoding:
        return StoryEncoding(recipe, tokenizers)

    def objective(self, model: MemoryNetwork) -> AnswerCrossEntropy:
        return AnswerCrossEntropy(model, self.recipe.training.label_smoothing)

    @classmethod
    def learn_tokenizers(
        cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        config = recipe.tokenizer
        if isinstance(config.file, str):
            return Tokenizers({"text": tokenizer_named(config.file, base)})
        texts = (
            line
            for name in ("story", "question", "answer")
            for text in train[name]
            for line in text.split("\n")
        )
        return Tokenizers(
            {"text": Tokenizer(train_story_words(texts, config.vocabulary, config.lowercase))}
        )

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        base: Path,
        tokenizers: Tokenizers | None = None,
        progress: Progress | None = None,
    ) -> Prepared[Dataset]:
        if recipe.tokenizer.kind != "word":
            what = (
                f"answers are words, so that a tokenizer of kind {recipe.tokenizer.kind!r} "
                "cannot name them"
            )
            raise ConfigError(what, where="tokenizer.kind", hint="allowed: word")
        prepared = prepare(cls, recipe, base, tokenizers, progress)
        notes = list[str]()
        splits = {
            "training": prepared.train,
            "validation": prepared.validation,
            "test": prepared.test,
        }
        for name, examples in splits.items():
            if examples is not None:
                notes += long_stories(examples, recipe.model.sentences, f"{name} questions")
        return prepared.with_notes(notes)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        return f"{row['story']}\n{row['question']}"


class StoryEncoding(Encoding):
    """Stories with questions: the sentences that the memory holds."""

    def settings(self) -> list[Any]:
        return [self.recipe.model.sentences]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        """`story` has the words of the last sentences, as many as the memory holds, `sizes` how
        many words each has; an answer that is not a word of the training stories is `<unk>`."""
        tokenizer = self.tokenizers["text"]
        stories = [story.split("\n")[-self.recipe.model.sentences :] for story in texts["story"]]
        distinct = list(dict.fromkeys(sentence for story in stories for sentence in story))
        words = dict(zip(distinct, tokenizer.encode_batch(distinct), strict=True))
        return {
            "story": [
                [word for sentence in story for word in words[sentence]] for story in stories
            ],
            "sizes": [[len(words[sentence]) for sentence in story] for story in stories],
            "question": tokenizer.encode_batch(texts["question"]),
            "answer": [(ids or [UNK])[:1] for ids in tokenizer.encode_batch(texts["answer"])],
        }

    def tokenizer_of(self, column: str) -> Tokenizer | None:
        return None if column == "sizes" else self.tokenizers["text"]

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """The words of what is kept of each story."""
        return {"story": super().column_reports(examples)["story"]}

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """One answer a question: `batch_tokens` counts questions."""
        return np.ones(len(examples), dtype=np.int32)

    def longest_example(self, examples: Dataset) -> int:
        return int(np.argmax(examples.columns["sizes"].lengths))

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> StoryBatch:
        """A batch to train on: empty memories are inserted by seed and epoch, the first epochs go
        without softmax."""
        model = self.recipe.model
        bits = None
        if model.temporal and model.time_noise:
            bits = np.random.PCG64(np.random.SeedSequence([seed, epoch, *map(int, rows)]))
        return self.batch(examples, rows, bits, linear=epoch < model.linear_start)

    def batch(
        self,
        examples: Dataset,
        rows: Integers,
        noise: np.random.PCG64 | None = None,
        *,
        linear: bool = False,
    ) -> StoryBatch:
        """Some examples as tensors; without `noise`, as they are measured."""
        sizes_BS, counts_B = examples.columns["sizes"].padded(rows, begin=None, end=None, pad=0)
        times_BS = np.maximum(counts_B[:, None] - np.arange(sizes_BS.shape[1]), 0)
        if noise is not None:
            times_BS = with_time_gaps(times_BS, self.recipe.model.time_noise, noise)
        story_BSL = np.full((*sizes_BS.shape, max(int(sizes_BS.max()), 1)), PAD, dtype=np.int64)
        words = np.concatenate([examples.columns["story"][int(row)] for row in rows])
        story_BSL[np.arange(story_BSL.shape[2]) < sizes_BS[..., None]] = words
        question_BL, _ = examples.columns["question"].padded(rows, begin=None, end=None, pad=PAD)
        if not question_BL.shape[1]:
            question_BL = np.full((len(rows), 1), PAD, dtype=np.int64)
        answers_B, _ = examples.columns["answer"].padded(rows, begin=None, end=None, pad=PAD)
        return StoryBatch(
            torch.from_numpy(story_BSL),
            torch.from_numpy(times_BS),
            torch.from_numpy(question_BL),
            torch.from_numpy(answers_B[:, 0]),
            linear=linear,
            examples=tuple(rows.tolist()),
            tokens=len(rows),
        )

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        return examples.columns["answer"].counts(self.tokenizers["text"].size)

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        """The sentences as they are read, the question and the answer."""
        tokenizer = self.tokenizers["text"]
        columns = examples.columns
        sentences = np.split(columns["story"][row], np.cumsum(columns["sizes"][row])[:-1])
        return {
            "story": [" ".join(tokenizer.pieces(words.tolist())) for words in sentences],
            "question": tokenizer.pieces(columns["question"][row].tolist()),
            "answer": tokenizer.pieces(columns["answer"][row].tolist()),
        }

    def kept_facts(self, examples: Dataset, row: int) -> tuple[int, ...] | None:
        """The supporting facts as numbers among the sentences that the memory holds; the others are
        left out."""
        facts = examples.texts["facts"][row]
        gone = (
            examples.texts["story"][row].count("\n")
            + 1
            - int(examples.columns["sizes"].lengths[row])
        )
        return (
            None
            if facts == UNKNOWN
            else tuple(int(fact) - gone for fact in facts.split() if int(fact) >= gone)
        )


class StoryNetwork(Network):
    """An end-to-end memory network."""

    def __init__(self, recipe: Recipe, encoding: StoryEncoding) -> None:
        self.recipe = recipe
        self.encoding = encoding

    def build(self) -> Any:
        size = self.encoding.tokenizers["text"].size
        return MODELS[self.recipe.model.kind].build(self.recipe.model, size)

    def set_first_weights(self, model: Any, train: Dataset) -> None:
        set_first_bias(model, self.encoding, train)

    def check(self, data: Prepared[Dataset]) -> None:
        """Every memory network can read every story."""


class StoryAnswers(ExampleAnswers[StoryEncoding]):
    """The likeliest words."""

    def __init__(self, encoding: StoryEncoding) -> None:
        super().__init__(encoding)
        self.tokenizer = encoding.tokenizers["text"]
        self.recipe = encoding.recipe

    def encoded_texts(self, given: Example) -> dict[str, str]:
        InputError.raise_if([problem_in_text(given.text, given.place)])
        question = Question.of(given)
        return {
            "story": "\n".join(question.story),
            "question": question.question,
            "answer": question.answer or "",
            "facts": " ".join(map(str, question.facts)) if question.facts else UNKNOWN,
        }

    def encoded_problems(self, examples: Dataset, row: int) -> list[Problem]:
        """The words that the model has never seen, in the question and in what is remembered of its
        story."""
        tokenizer = self.tokenizer
        if not any(tokenizer.unk in examples.columns[name][row] for name in ("story", "question")):
            return []
        size = sum(not word.startswith("<") for word in tokenizer.tokens(range(tokenizer.size)))
        sentences = examples.texts["story"][row].split("\n")[-self.recipe.model.sentences :]
        problems = []
        for word in " ".join([*sentences, examples.texts["question"][row]]).split():
            if tokenizer.unk in tokenizer.encode(word):
                plain = word.strip(PUNCTUATION)
                hint = f"the run knows the {size:,} words of its stories"
                problems.append(
                    Problem(examples.where(row), f"the word {plain!r} is unknown", hint)
                )
        return problems

    @torch.inference_mode()
    def results(
        self, model: MemoryNetwork, examples: Dataset, progress: Done = ignore
    ) -> Iterator[dict[str, float]]:
        """The likeliest answers to each question with their probabilities, best first."""
        for rows in fixed_batches(examples, QUESTIONS_PER_BATCH):
            logits_BIV = model(self.encoding.batch(examples, rows).to(device_of(model))).logits_BIV
            p_BV = logits_BIV[:, model.winner].float().softmax(-1)
            top = p_BV.topk(min(max(self.recipe.search.nbest, NAMED_ANSWERS), p_BV.shape[1]))
            for ids, p in zip(top.indices.tolist(), top.values.tolist(), strict=True):
                yield dict(zip(self.tokenizer.tokens(ids), p, strict=True))
            progress(len(rows))

    def prediction(
        self, given: Example, examples: Dataset, row: int, result: dict[str, float]
    ) -> Answer:
        sentences = examples.texts["story"][row].count("\n") + 1
        return Answer(
            given.text,
            result,
            sentences=sentences,
            remembered=int(examples.columns["sizes"].lengths[row]),
        )

    def notes(
        self, encoded: EncodedInputs[EncodedExample], predictions: Sequence[Any]
    ) -> list[Note]:
        what = "the memory holds the last {:,} of the story's {:,} sentences"
        counts = [(answer.remembered, answer.sentences) for answer in predictions]
        return [Note("length", what.format(kept, total)) for kept, total in counts if kept < total]


class StoryMetrics(Metrics):
    """The share of wrong answers."""

    def __init__(self, encoding: StoryEncoding, answers: StoryAnswers) -> None:
        self.encoding = encoding
        self.answers = answers
        self.recipe = encoding.recipe

    def validate(self, model: MemoryNetwork, examples: Dataset) -> dict[str, Any]:
        """Every restart is measured; from here on the best of them by `training.best` answers."""
        training = self.recipe.training
        losses_BI, wrong_BI, _ = self.tally(model, examples)
        loss_I = losses_BI.mean(0).nan_to_num(nan=math.inf)
        error_I = torch.stack(list(error_by_task(wrong_BI, examples).values())).mean(0)
        best = min(
            range(len(loss_I)),
            key=lambda i: (float(error_I[i]) * (training.best == "error"), loss_I[i]),
        )
        model.winner.fill_(best)
        loss = float(loss_I[best])
        samples = []
        for row, answers in zip(
            range(training.samples), self.answers.results(model, examples), strict=False
        ):
            story = examples.texts["story"][row].split("\n")
            shown = " ".join(
                [*(["..."] if story[3:] else []), *story[-3:], examples.texts["question"][row]]
            )
            samples.append(
                {
                    "source": shown,
                    "output": next(iter(answers)),
                    "target": examples.texts["answer"][row],
                }
            )
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "error": share(error_I[best]),
            "restart": best + 1,
            "errors": [share(error) for error in error_I.tolist()],
            "samples": samples,
        }

    def evaluate(self, model: MemoryNetwork, examples: Dataset, progress: Done) -> dict[str, Any]:
        """The share of wrong answers, by task and as their mean; how many of the known facts were
        attended to."""
        losses_BI, wrong_BI, looked_BN = self.tally(model, examples, progress)
        winner = int(model.winner)
        errors = {
            task: share(error_I[winner])
            for task, error_I in error_by_task(wrong_BI, examples).items()
        }
        metrics: dict[str, Any] = {
            "questions": len(examples),
            "error": share(float(np.mean(list(errors.values())))),
            "loss": float(losses_BI[:, winner].mean()),
        }
        known = (
            (row, facts)
            for row in range(len(examples))
            if (facts := self.encoding.kept_facts(examples, row))
        )
        if shares := [facts_found(looked_BN[row].tolist(), facts) for row, facts in known]:
            metrics["facts_found"] = share(float(np.mean(shares)))
        for note in long_stories(examples, self.recipe.model.sentences, "questions"):
            metrics["memory"] = note
        return metrics | {"tasks": errors}

    def by_unit(
        self, model: MemoryNetwork, examples: Dataset, progress: Done
    ) -> list[dict[str, Any]]:
        """Each question after its story, with the right answer and the model's."""
        _, wrong_BI, _ = self.tally(model, examples)
        wrong_B = wrong_BI[:, model.winner]
        lines = list[dict[str, Any]]()
        for row, answers in enumerate(self.answers.results(model, examples)):
            story, question, label = (
                examples.texts[name][row] for name in ("story", "question", "answer")
            )
            line = {"input": f"{story}\n{question}", "label": label, "output": next(iter(answers))}
            lines.append({**line, "right": not wrong_B[row], "probabilities": answers})
        return lines

    @torch.inference_mode()
    def tally(
        self, model: MemoryNetwork, examples: Dataset, progress: Done = ignore
    ) -> list[Tensor]:
        """For each question and restart the loss, losses_BI, and whether the answer is wrong,
        wrong_BI; and where each hop of the winner looked most, looked_BN."""
        parts = []
        for rows in fixed_batches(examples, QUESTIONS_PER_BATCH):
            batch = self.encoding.batch(examples, rows).to(device_of(model))
            answered = model(batch)
            wrong_BI = answered.logits_BIV.argmax(-1) != batch.answers_B[:, None]
            unknown_B1 = (batch.answers_B == self.encoding.tokenizers["text"].unk)[
                :, None
            ]  # the answer of no training question
            looked_BN = answered.p_NBIS[:, :, model.winner].argmax(-1).T
            parts.append(
                (answer_losses(answered, batch.answers_B), wrong_BI | unknown_B1, looked_BN)
            )
            progress(len(rows))
        return [torch.cat(part).cpu() for part in zip(*parts, strict=True)]


@dataclass(frozen=True)
class Answer(Prediction):
    """One question and its likeliest answers, best first."""

    probabilities: dict[str, float]
    sentences: int
    """The sentences of the story."""
    remembered: int
    """The last sentences, as many as the memory holds."""

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def content(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "output": self.output,
            "score": math.log(max(self.probabilities[self.output], 1e-45)),
            "probabilities": self.probabilities,
            "sentences": self.sentences,
            "remembered": self.remembered,
        }

    def lines(self, nbest: int) -> Iterator[str]:
        if nbest == 1:
            yield self.output
        else:
            yield from (f"{p:.4f}\t{word}" for word, p in list(self.probabilities.items())[:nbest])


def with_time_gaps(
    times_BS: NDArray[np.int64], share: float, bits: np.random.PCG64
) -> NDArray[np.int64]:
    """Times of the sentences once empty memories stand among them, `share` of their number, rounded
    up.

    Random noise, Sukhbaatar et al. 2015, section 4.1. An empty memory takes up a time and nothing
    else: as in the authors' program, there is nothing in it to look at.
    """
    sentences_B = times_BS.max(axis=1)
    gaps_B = np.ceil(sentences_B * share).astype(np.int64)
    drawn = bits.random_raw(len(times_BS) * int(gaps_B.max())).reshape(len(times_BS), -1)
    uniform = (drawn >> np.uint64(11)) * 2.0**-53
    after_BX = (uniform * (sentences_B[:, None] + 1)).astype(np.int64)
    after_BX[np.arange(after_BX.shape[1]) >= gaps_B[:, None]] = np.iinfo(np.int64).max
    earlier_BS = (after_BX[:, None, :] < times_BS[:, :, None]).sum(axis=-1)
    return np.where(times_BS > 0, times_BS + earlier_BS, 0)


def error_by_task(wrong_BI: Tensor, examples: Dataset) -> dict[str, Tensor]:
    """The share of wrong answers of each task (each file is one), for each restart."""
    tasks = np.array(list(examples.texts["task"]))
    return {
        str(task): wrong_BI[torch.from_numpy(tasks == task)].double().mean(0)
        for task in dict.fromkeys(tasks)
    }


def share(part: float | Tensor) -> float:
    """A share as it is reported: 2 of 500 is 0.004, without the rounding error of a sum."""
    return round(float(part), 12)


def facts_found(looked: Sequence[int], facts: Sequence[int]) -> float:
    """The share of the supporting facts at which some hop looked most."""
    return len(set(facts) & set(looked)) / len(set(facts))


def long_stories(examples: Dataset, sentences: int, what: str) -> list[str]:
    """A note if some of the questions, which are called `what`, are about stories that the memory
    does not hold."""
    longer = [
        row for row, count in enumerate(examples.texts["sentences"]) if int(count) > sentences
    ]
    return [
        f"{len(longer):,} of {len(examples):,} {what} are about stories longer than the memory, "
        "which reads only their "
        f"last {sentences:,} sentences (first: {examples.where(row)})"
        for row in longer[:1]
    ]
