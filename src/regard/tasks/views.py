"""What `explain`, `diagnose`, `compare`, `vectors` and `score` may ask of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Example
from regard.models.base import Contextual
from regard.tasks.answers import Note
from regard.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.masked_language_modeling import FilledGaps
    from regard.tasks.pairs import TargetTexts, TextMetrics
    from regard.tasks.story_answering import StoryAnswers
    from regard.tasks.written import WrittenTexts

Unit = Literal["documents", "examples"]


class WordFalls(NamedTuple):
    """The answers to an input, and how much the value of each falls without each of its words."""

    answers: tuple[str, ...]
    values: tuple[float, ...]
    words: tuple[str, ...]
    falls_WA: NDArray[np.float64]


class WordWeights(NamedTuple):
    """What each word of a text adds to the logits of a linear model: W_yv x_v for the word v and the
    class y."""

    words: tuple[str, ...]
    values_W: NDArray[np.float64]
    """x_v, the number of the word in the vector of the text."""
    classes: tuple[str, ...]
    weights_WY: NDArray[np.float64]
    """W_yv."""
    bias_Y: NDArray[np.float64]


@dataclass(frozen=True)
class TextVectors:
    """The vectors that a model has for the tokens of a single text."""

    tokenizer: Tokenizer
    model_in: Callable[[Any], Contextual | None]
    """The part of a task's model that has them; None if there is none."""
    longest: int | None = None
    """The most tokens that are read; None: as many as the model has positions for."""
    source: Sequence[int] | None = None
    """The tokens before a text that is read as a source; None if it is read as a single text."""
    folds: bool = False
    """Whether white space is folded, as it was in training."""
    encode_gaps: Callable[[str], list[int] | None] | None = None
    """The tokens of a text with gaps that the model knows; None if it has none."""
    notes: Callable[[Sequence[Example], Sequence[Sequence[int]]], list[Note]] | None = None
    """What a user should know about texts, given their tokens."""


@dataclass(frozen=True)
class Views:
    """The parts of a task that views call. What is None is not supported."""

    vectors: TextVectors | None = None
    written: WrittenTexts | None = None
    """The texts that a search writes."""
    text_metrics: TextMetrics | None = None
    """The metrics of texts that a search writes for sources, and that have references."""
    restores: TargetTexts | None = None
    """The texts that a search writes for sources, if these are not compared with references."""
    gaps: FilledGaps | None = None
    stories: StoryAnswers | None = None
    occlude_words: Callable[[Any, Example], WordFalls] | None = None
    """How much an answer depends on each word; of a model whose head answers."""
    word_weights: Callable[[Any, Example], WordWeights] | None = None
    """The weights of the words of a text, of a model that is linear in them."""
    classes: Sequence[str] | None = None
    """The classes whose probabilities are predicted."""
    rewrites: bool = False
    """Whether the model writes the text that it has read."""
    unit: Unit = "examples"
    """The things that `compare` counts."""

    @property
    def targets(self) -> TargetTexts | None:
        """The texts that a search writes for sources."""
        return self.restores if self.text_metrics is None else self.text_metrics.targets

    @property
    def target_texts(self) -> TargetTexts:
        """The targets of a task that has them."""
        assert self.targets is not None
        return self.targets

    @property
    def compared_texts(self) -> TextMetrics:
        """The metrics of targets, for a task that has them."""
        assert self.text_metrics is not None
        return self.text_metrics
