"""Questions about stories, answered: how likely each answer is, how many are wrong, where the hops looked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import fixed_batches
from regard.data.memories import SIGNS, Memory, StoryExamples, StoryTexts, story_examples
from regard.data.store import Integers
from regard.errors import DataError, Problem, did_you_mean, first_of
from regard.models.base import device_of
from regard.models.memory_network import MemoryNetwork, MemoryNetworkConfig
from regard.objectives.labels import answer_losses
from regard.tasks.typed import Typed
from regard.text.tokenizers import Tokenizer

AT_ONCE = 256
"""Questions that are answered at once."""
LIKELIEST = 5
"""How many answers are named with their probabilities."""


@dataclass(frozen=True)
class Answer:
    """One question and what the model answers."""

    input: str
    probabilities: dict[str, float]
    """The likeliest answers, best first."""
    sentences: int
    """Of the story."""
    remembered: int
    """Of these: the last ones, as many as the memory holds."""
    search: None = None

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def to_json(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "output": self.output,
            "score": math.log(max(self.probabilities[self.output], 1e-45)),
            "probabilities": self.probabilities,
            "sentences": self.sentences,
            "remembered": self.remembered,
        }

    @property
    def note(self) -> str | None:
        """What a user should know of the answer, where there is something."""
        if self.remembered == self.sentences:
            return None
        return f"the memory holds the last {self.remembered:,} of the story's {self.sentences:,} sentences"

    def lines(self, nbest: int) -> Iterator[str]:
        """The answer, or the likeliest of them with their probabilities where several were asked for."""
        if nbest == 1:
            yield self.output
        else:
            yield from (f"{p:.4f}\t{word}" for word, p in list(self.probabilities.items())[:nbest])


@dataclass(frozen=True)
class Tally:
    """Losses and mistakes of every restart, question by question; where each hop looked most, for the winner."""

    losses_BI: Tensor
    wrong_BI: Tensor
    looked_BN: Tensor


def typed_examples(typed: Sequence[Typed], tokenizer: Tokenizer, config: MemoryNetworkConfig) -> StoryExamples:
    """What was typed, ready for batches."""
    texts = StoryTexts(
        ["\n".join(one.story) for one in typed],
        [one.question for one in typed],
        [one.answer or "" for one in typed],
        [one.facts for one in typed],
        [len(one.story) for one in typed],
    )
    none = np.zeros(len(typed), dtype=np.int64)
    return story_examples(
        texts,
        tokenizer,
        Memory(config.sentences),
        corpora=none,
        weights=(1.0,),
        tasks=(none, ("typed",)),
        place=lambda row: typed[row].place,
    )


@torch.inference_mode()
def likeliest_answers(
    model: MemoryNetwork, examples: StoryExamples, rows: Integers, least: int = LIKELIEST
) -> list[dict[str, float]]:
    """The winner's likeliest answers to these questions with their probabilities, best first."""
    logits_BIV = model(examples.batch(rows).to(device_of(model))).logits_BIV
    p_BV = logits_BIV[:, model.winner].float().softmax(-1)
    top = p_BV.topk(min(max(least, LIKELIEST), p_BV.shape[1]))
    words = [examples.tokenizer.tokens(ids) for ids in top.indices.tolist()]
    return [dict(zip(named, p, strict=True)) for named, p in zip(words, top.values.tolist(), strict=True)]


@torch.inference_mode()
def tallied(
    model: MemoryNetwork, examples: StoryExamples, progress: Callable[[int], None] = lambda done: None
) -> Tally:
    """All questions answered by all restarts, in their order."""
    parts = []
    for rows in fixed_batches(examples, AT_ONCE):
        batch = examples.batch(rows).to(device_of(model))
        answered = model(batch)
        wrong_BI = answered.logits_BIV.argmax(-1) != batch.answers_B[:, None]
        unheard_B1 = (batch.answers_B == examples.tokenizer.unk)[:, None]  # no training question has this answer
        looked_BN = answered.p_NBIS[:, :, model.winner].argmax(-1).T
        parts.append((answer_losses(answered, batch.answers_B), wrong_BI | unheard_B1, looked_BN))
        progress(len(rows))
    losses_BI, wrong_BI, looked_BN = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
    return Tally(losses_BI, wrong_BI, looked_BN)


def error_by_task(wrong_BI: Tensor, examples: StoryExamples) -> Tensor:
    """The share of wrong answers of each task that has questions, for each restart."""
    tasks_B = torch.from_numpy(examples.tasks)
    return torch.stack([wrong_BI[tasks_B == task].double().mean(0) for task in range(len(examples.names))])


def share(part: float | Tensor) -> float:
    """A share as it is told: 2 of 500 is 0.004, not what the last bits of a sum make of it."""
    return round(float(part), 12)


def facts_found(looked: Sequence[int], facts: Sequence[int]) -> float:
    """The share of the supporting facts at which some hop looked most."""
    return len(set(facts) & set(looked)) / len(set(facts))


def mean_facts_found(looked_BN: Tensor, examples: StoryExamples) -> dict[str, float]:
    known = ((row, facts) for row in range(len(examples)) if (facts := examples.kept_facts(row)))
    shares = [facts_found(looked_BN[row].tolist(), facts) for row, facts in known]
    return {"facts_found": share(float(np.mean(shares)))} if shares else {}


def sample(model: MemoryNetwork, examples: StoryExamples, row: int) -> dict[str, str]:
    story = examples.texts.stories[row].split("\n")
    shown = " ".join([*(["..."] if story[3:] else []), *story[-3:], examples.texts.questions[row]])
    output = next(iter(likeliest_answers(model, examples, np.array([row]))[0]))
    return {"source": shown, "output": output, "target": examples.texts.answers[row]}


def too_long_a_story(sentences: int, place: str, config: MemoryNetworkConfig, option: str = "--set ") -> Problem | None:
    """Why a story cannot be asked about: hardly any of it would be remembered. Overrides stand behind the `option`."""
    if sentences <= config.longest_story:
        return None
    what = f"the story has {sentences:,} sentences, of which the memory would hold the last {config.sentences:,}"
    hint = f"at most {config.longest_story:,}; {option}model.longest_story=N raises that"
    return Problem(place, what, hint)


def refuse_long_stories(examples: StoryExamples, config: MemoryNetworkConfig, option: str = "--set ") -> None:
    """The same for all stories of files."""
    found = (
        too_long_a_story(sentences, examples.where(row), config, option)
        for row, sentences in enumerate(examples.texts.sentences)
    )
    problems = [problem for problem in found if problem]
    if problems:
        raise DataError(problems=first_of(problems))


def unknown_words(tokenizer: Tokenizer, typed: Typed, remembered: int) -> Iterator[Problem]:
    """The words that the model has never seen, in what it reads of a story."""
    vocabulary = [word for word in tokenizer.tokens(range(tokenizer.size)) if not word.startswith("<")]
    unlike = f"it knows {len(vocabulary):,}"
    for sentence in [*typed.story[-remembered:], typed.question]:
        for word in sentence.split():
            if tokenizer.unk in tokenizer.encode(word):
                plain = word.strip(SIGNS)
                near = did_you_mean(plain.lower(), vocabulary)
                hint = f"the run's stories have other words, {near if near.startswith('did') else unlike}"
                yield Problem(typed.place, f"the word {plain!r} is unknown", hint)
