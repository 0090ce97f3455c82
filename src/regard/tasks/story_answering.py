"""Question answering over stories: sentences and a question in, one word out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard.config import Config
from regard.data.babi import Stories, StoryData, open_stories
from regard.data.corpora import Part
from regard.data.file_inputs import FileInput
from regard.data.memories import Memory, StoryExamples, prepare_stories, read_stories
from regard.data.prepare import Prepared
from regard.errors import ConfigError, DecodeError, Problem
from regard.models import any_config, build_model
from regard.models.memory_network import MemoryNetwork
from regard.objectives.labels import AnswerCrossEntropy
from regard.search import SearchConfig
from regard.tasks.answering import (
    AT_ONCE,
    Answer,
    error_by_task,
    likeliest_answers,
    mean_facts_found,
    refuse_long_stories,
    sample,
    share,
    tallied,
    too_long_a_story,
    typed_examples,
    unknown_words,
)
from regard.tasks.inputs import Inputs, only_file, refuse
from regard.tasks.metrics import perplexity
from regard.tasks.task import Progress, Task
from regard.tasks.typed import Typed, asked_in, object_inputs, typed_in
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizers


class NoStoryEvaluation(Config):
    """There is nothing to choose: answers are right or wrong."""


class StoryAnswering(Task):
    """Stories with questions, measured by the share of wrong answers: task by task, and their mean."""

    name = "story_answering"
    unit = "questions"
    searches = False
    columns = ("text",)
    data = StoryData
    evaluation = NoStoryEvaluation
    model = any_config(lambda config: config.reads == "story")
    higher_is_better: ClassVar[Mapping[str, bool]] = {"loss": False, "perplexity": False, "error": False}
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tokenizer": {"kind": "word", "lowercase": True},
        "training": {
            "batch_tokens": 32, "label_smoothing": 0.0, "precision": "fp32",
            "optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.32, "schedule": "linear", "clip": 1.25,
        },
    }  # fmt: skip
    """The paper's batches of 32 questions (`batch_tokens` counts answers), and its descent."""

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[StoryExamples]:
        if recipe.tokenizer.kind != "word":
            what = f"answers are words, so that a tokenizer of kind {recipe.tokenizer.kind!r} cannot name them"
            raise ConfigError(what, where="tokenizer.kind", hint="allowed: word")
        model = recipe.model
        return prepare_stories(
            recipe.data,
            recipe.tokenizer,
            Memory(model.sentences, model.time_noise if model.temporal else 0.0, model.linear_start),
            base=base,
            seed=recipe.training.seed,
            tokenizers=tokenizers,
            progress=progress,
        )

    @classmethod
    def check(cls, recipe: Any, data: Prepared[StoryExamples]) -> None:
        for examples in (data.train, data.validation, data.test):
            if examples is not None:
                refuse_long_stories(examples, recipe.model, option="")

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> MemoryNetwork:
        model: MemoryNetwork = build_model(recipe.model, tokenizers["text"].size)
        return model

    @classmethod
    def objective(cls, model: MemoryNetwork, recipe: Any) -> AnswerCrossEntropy:
        return AnswerCrossEntropy(model, recipe.training.label_smoothing)

    @classmethod
    def validate(cls, model: MemoryNetwork, recipe: Any, data: Prepared[StoryExamples]) -> dict[str, Any]:
        """Every restart is measured; from here on the best of them by `training.best` answers."""
        examples = data.validation
        tally = tallied(model, examples)
        loss_I = tally.losses_BI.mean(0).nan_to_num(nan=math.inf)
        error_I = error_by_task(tally.wrong_BI, examples).mean(0)
        best = sorted(
            range(len(loss_I)), key=lambda i: (float(error_I[i]) * (recipe.training.best == "error"), loss_I[i])
        )
        model.winner.fill_(best[0])
        loss = float(loss_I[best[0]])
        samples = [sample(model, examples, row) for row in range(min(recipe.training.samples, len(examples)))]
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "error": share(error_I[best[0]]),
            "restart": best[0] + 1,
            "errors": [share(error) for error in error_I.tolist()],
            "samples": samples,
        }

    @classmethod
    def read(
        cls, recipe: Any, corpora: Sequence[Stories], part: Part, base: Path, tokenizers: Tokenizers
    ) -> StoryExamples:
        readers = [open_stories(corpus, base, part) for corpus in corpora]
        drop = recipe.data.bad_lines == "drop"
        examples = read_stories(readers, tokenizers["text"], Memory(recipe.model.sentences), drop=drop)
        refuse_long_stories(examples, recipe.model)
        return examples

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[Stories]) -> Stories:
        """A file, or a pattern of files: a task each."""
        file = only_file(files, hint="one, or a pattern in quotes such as 'babi/*_test.txt'")
        like = next((corpus for corpus in own if corpus.file is not None), Stories(file=file))
        return like.model_copy(update={"file": file, "size": None})

    @classmethod
    def evaluate(
        cls,
        model: MemoryNetwork,
        recipe: Any,
        examples: StoryExamples,
        tokenizers: Tokenizers,
        progress: Callable[[int], None],
    ) -> dict[str, Any]:
        """The share of wrong answers, task by task and as their mean; how many of the known facts were looked at."""
        tally, winner = tallied(model, examples.to_measure(), progress), int(model.winner)
        errors = [share(one) for one in error_by_task(tally.wrong_BI, examples)[:, winner].tolist()]
        found: dict[str, Any] = {
            "questions": len(examples),
            "error": share(float(np.mean(errors))),
            "loss": float(tally.losses_BI[:, winner].mean()),
            **mean_facts_found(tally.looked_BN, examples),
        }
        if forgotten := examples.forgotten("questions"):
            found["memory"] = forgotten
        return found | {"tasks": dict(zip(examples.names, errors, strict=True))}

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Stories], file: TextFile) -> Iterator[FileInput] | None:
        return object_inputs(file, cls.corpus_of([file.name], own).keys) if file.suffixes[0] == ".jsonl" else None

    @classmethod
    def gather(cls, texts: Sequence[str], places: Sequence[str]) -> tuple[list[str], list[str]]:
        """Lines of stories and questions -> a text for each question, with the story before it.

        What cannot be answered is handed on, for `check_inputs` to refuse it.
        """
        asked = list(asked_in(zip(texts, places, strict=True)))
        if not asked:
            raise DecodeError("there is no question", where=places[0], hint="a question ends in '?'")
        return [one.text for one in asked], [one.place for one in asked]

    @classmethod
    def check_inputs(cls, model: MemoryNetwork, tokenizers: Tokenizers, inputs: Inputs, config: SearchConfig) -> None:
        typed = _typed(inputs)
        refuse([too_long_a_story(len(one.story), one.place, model.config) for one in typed])
        sentences = model.config.sentences
        refuse([problem for one in typed for problem in unknown_words(tokenizers["text"], one, sentences)])

    @classmethod
    def predict(
        cls,
        model: MemoryNetwork,
        tokenizers: Tokenizers,
        inputs: Inputs,
        config: SearchConfig,
        *,
        record: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Answer]:
        cls.check_inputs(model, tokenizers, inputs, config)
        typed = _typed(inputs)
        examples = typed_examples(typed, tokenizers["text"], model.config)
        answers: list[Answer] = []
        for start in range(0, len(typed), AT_ONCE):
            rows = np.arange(start, min(start + AT_ONCE, len(typed)))
            for row, likeliest in zip(
                rows.tolist(), likeliest_answers(model, examples, rows, config.nbest), strict=True
            ):
                story, kept = typed[row].story, int(examples.stories.lengths[row])
                answers.append(Answer(inputs.texts[row], likeliest, len(story), kept))
            progress(len(rows))
        return answers


def _typed(inputs: Inputs) -> list[Typed]:
    """The questions that were typed, or one DecodeError for all that cannot be answered."""
    read = [typed_in(text, place) for text, place in zip(inputs.texts, inputs.places, strict=True)]
    refuse([one for one in read if isinstance(one, Problem)])
    return [one for one in read if isinstance(one, Typed)]
