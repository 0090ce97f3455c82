"""Stories -> memories: words as tokens, sentences as rows of a table, and batches of both."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.babi import COLUMNS, StoryData, StoryReader, facts_in
from regard.data.batch import StoryBatch
from regard.data.dataset import Examples
from regard.data.prepare import Prepared
from regard.data.report import SPLITS, ColumnReport, Histogram, Report
from regard.data.store import Integers, TokenColumn
from regard.data.texts import Progress, Texts, prepare_texts
from regard.errors import DataError, first_of
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers, tokenizer_named
from regard.text.vocabularies import PAD, UNK

Facts = tuple[int, ...] | None


@dataclass(frozen=True)
class Memory:
    """What training does to the memories of a story."""

    sentences: int
    """How many are kept: the last ones."""
    time_noise: float = 0.0
    """Empty memories that are put among them, as a share."""
    linear_start: int = 0
    """Epochs whose hops go without softmax."""


@dataclass(frozen=True, eq=False)
class StoryTexts:
    """Questions as text."""

    stories: Sequence[str]
    """The sentences of each, one a line."""
    questions: Sequence[str]
    answers: Sequence[str]
    facts: Sequence[Facts]
    sentences: Sequence[int]
    """How many each story has, of which only the last may be among `stories`."""

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[str]]) -> StoryTexts:
        """The columns of a StoryReader."""
        facts, sentences = map(facts_in, columns["facts"]), map(int, columns["sentences"])
        return cls(columns["story"], columns["question"], columns["answer"], list(facts), list(sentences))


@dataclass(frozen=True, eq=False)
class StoryExamples(Examples):
    """Questions about stories. A sentence that stands in many stories is held once."""

    texts: StoryTexts
    tokenizer: Tokenizer
    memory: Memory
    table_NL: NDArray[np.int64]
    """The words of all sentences and questions, each once; row 0 is empty."""
    stories: TokenColumn
    """The rows of the sentences that are kept of each story."""
    questions: Integers
    answers: Integers
    corpora: Integers
    weights: tuple[float, ...]
    tasks: Integers
    """The number of the task that each question belongs to."""
    names: tuple[str, ...]
    """What the tasks are called."""
    place: Callable[[int], str]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """One answer a question: `batch_tokens` counts questions."""
        return np.ones(len(self), dtype=np.int32)

    def where(self, example: int) -> str:
        return self.place(example)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> StoryBatch:
        """Stories as they are remembered; where empty memories are put hangs on the seed, the epoch and the batch."""
        rows_BS, counts_B = self.stories.padded(examples, begin=None, end=None, pad=0)
        times_BS = np.maximum(counts_B[:, None] - np.arange(rows_BS.shape[1]), 0)
        if self.memory.time_noise:
            bits = np.random.PCG64(np.random.SeedSequence([seed, epoch, *map(int, examples)]))
            times_BS = with_gaps(times_BS, self.memory.time_noise, bits)
        story_BSL, question_BL = _trimmed(self.table_NL[rows_BS]), _trimmed(self.table_NL[self.questions[examples]])
        return StoryBatch(
            torch.from_numpy(story_BSL),
            torch.from_numpy(times_BS),
            torch.from_numpy(question_BL),
            torch.from_numpy(self.answers[examples]),
            linear=epoch < self.memory.linear_start,
            examples=tuple(examples.tolist()),
            tokens=len(examples),
        )

    def frequencies(self) -> NDArray[np.int64]:
        return np.bincount(self.answers, minlength=self.tokenizer.size)

    def pieces(self, example: int) -> dict[str, list[str]]:
        """The sentences as they are read, the question and the answer."""
        sentences = [self.tokenizer.pieces(_words(self.table_NL[row])) for row in self.stories[example]]
        return {
            "story": [" ".join(words) for words in sentences],
            "question": self.tokenizer.pieces(_words(self.table_NL[self.questions[example]])),
            "answer": self.tokenizer.pieces([int(self.answers[example])]),
        }

    def kept_facts(self, example: int) -> Facts:
        """The supporting facts as numbers among the sentences that are kept; those that are not are left out."""
        facts = self.texts.facts[example]
        gone = self.texts.stories[example].count("\n") + 1 - int(self.stories.lengths[example])
        return None if facts is None else tuple(fact - gone for fact in facts if fact >= gone)

    def to_measure(self) -> StoryExamples:
        """Without the noise and the linear start that only training has."""
        return replace(self, memory=Memory(self.memory.sentences))

    def forgotten(self, what: str) -> str | None:
        """How many of the questions, which are called `what`, are about stories that the memory does not hold."""
        longer = np.flatnonzero(np.array(self.texts.sentences) > self.memory.sentences)
        if not len(longer):
            return None
        return (
            f"{len(longer):,} of {len(self):,} {what} are about stories longer than the memory, which reads only their "
            f"last {self.memory.sentences:,} sentences (first: {self.where(int(longer[0]))})"
        )

    def longest_example(self) -> int:
        return int(np.argmax(self.stories.lengths))

    def fingerprint(self) -> int:
        return zlib.crc32(self.stories.lengths.tobytes(), zlib.crc32(self.answers.tobytes()))


def with_gaps(times_BS: NDArray[np.int64], share: float, bits: np.random.PCG64) -> NDArray[np.int64]:
    """Times of the sentences once empty memories stand among them, `share` of their number, rounded up.

    Random noise, Sukhbaatar et al. 2015, section 4.1. An empty memory takes up a time and nothing else: as in the
    authors' program, there is nothing in it to look at.
    """
    sentences_B = times_BS.max(axis=1)
    gaps_B = np.ceil(sentences_B * share).astype(np.int64)
    drawn = bits.random_raw(len(times_BS) * int(gaps_B.max())).reshape(len(times_BS), -1)
    uniform = (drawn >> np.uint64(11)) * 2.0**-53
    after_BX = (uniform * (sentences_B[:, None] + 1)).astype(np.int64)
    after_BX[np.arange(after_BX.shape[1]) >= gaps_B[:, None]] = np.iinfo(np.int64).max
    earlier_BS = (after_BX[:, None, :] < times_BS[:, :, None]).sum(axis=-1)
    return np.where(times_BS > 0, times_BS + earlier_BS, 0)


def _trimmed(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Without the columns that are padding in all rows."""
    used = int((ids != PAD).any(axis=tuple(range(ids.ndim - 1))).sum())
    return np.ascontiguousarray(ids[..., : max(used, 1)])


def _words(row_L: NDArray[np.int64]) -> list[int]:
    return [int(token) for token in row_L if token != PAD]


def story_examples(
    texts: StoryTexts,
    tokenizer: Tokenizer,
    memory: Memory,
    *,
    corpora: Integers,
    weights: tuple[float, ...],
    tasks: tuple[Integers, tuple[str, ...]],
    place: Callable[[int], str],
) -> StoryExamples:
    """Questions that are ready for batches; an answer that is no word of the training stories is `<unk>`."""
    kept = [story.split("\n")[-memory.sentences :] for story in texts.stories]
    numbers: dict[str, int] = {}
    stories = [[numbers.setdefault(sentence, len(numbers) + 1) for sentence in story] for story in kept]
    questions = np.array([numbers.setdefault(question, len(numbers) + 1) for question in texts.questions])
    encoded = TokenColumn.of([[], *tokenizer.encode_batch(list(numbers))])
    table_NL, _ = encoded.padded(np.arange(len(encoded)), begin=None, end=None, pad=PAD)
    answers = np.array([(ids or [UNK])[0] for ids in tokenizer.encode_batch(list(texts.answers))])
    return StoryExamples(
        texts, tokenizer, memory, table_NL, TokenColumn.of(stories), questions, answers, corpora, weights, *tasks, place
    )


def prepare_stories(
    data: StoryData,
    config: TokenizerConfig,
    memory: Memory,
    *,
    base: Path,
    seed: int,
    tokenizers: Tokenizers | None = None,
    progress: Progress | None = None,
) -> Prepared[StoryExamples]:
    """Read, check and split the stories, and find their words; only training has noise and a linear start."""
    found = prepare_texts(data, base=base, seed=seed, progress=progress or (lambda step, done: None))
    train = found.splits["train"].columns
    if tokenizers is None:
        text = (one for name in ("story", "question", "answer") for story in train[name] for one in story.split("\n"))
        trained = (
            tokenizer_named(config.file, base)
            if isinstance(config.file, str)
            else Tokenizer.train_story_words(config, text)
        )
        tokenizers = Tokenizers({"text": trained})
    plain = Memory(memory.sentences)
    splits = {
        name: _examples(texts, tokenizers["text"], memory if name == "train" else plain)
        for name, texts in found.splits.items()
    }
    reports = {name: replace(found.report[name], columns=_columns(splits[name])) for name in found.splits}
    forgotten = (examples.forgotten(f"{SPLITS[name]} {data.UNIT}") for name, examples in splits.items())
    notes = tuple(note for note in forgotten if note)
    report = Report(reports, {"over_long_line": data.max_characters}, data.UNIT, notes)
    return Prepared(splits["train"], splits["validation"], splits.get("test"), tokenizers, report)


def _examples(texts: Texts, tokenizer: Tokenizer, memory: Memory) -> StoryExamples:
    as_text = StoryTexts.of({name: list(column) for name, column in texts.columns.items()})
    readers = [reader for reader in texts.readers if isinstance(reader, StoryReader)]
    corpora = texts.corpora[texts.rows]
    return story_examples(
        as_text,
        tokenizer,
        memory,
        corpora=corpora,
        weights=tuple(reader.corpus.weight for reader in readers),
        tasks=_tasks(readers, corpora, texts.lines[texts.rows]),
        place=texts.where,
    )


def _tasks(readers: Sequence[StoryReader], corpora: Integers, lines: Integers) -> tuple[Integers, tuple[str, ...]]:
    """The number of each row's task, and the names; files of one name in two corpora are one task."""
    rows = zip(corpora.tolist(), lines.tolist(), strict=True)
    tasks = [readers[corpus].tasks[readers[corpus].task_of(line)] for corpus, line in rows]
    known = dict.fromkeys(name for reader in readers for name in reader.tasks)
    there = set(tasks)
    numbers = {name: number for number, name in enumerate(name for name in known if name in there)}
    return np.array([numbers[task] for task in tasks], dtype=np.int64), tuple(numbers)


def read_stories(
    readers: Sequence[StoryReader], tokenizer: Tokenizer, memory: Memory, *, drop: bool = False
) -> StoryExamples:
    """Corpora as they are, to measure a run on; or without what cannot be read, if that is to `drop`."""
    read = [(number, row) for number, reader in enumerate(readers) for row in reader.rows()]
    faults = [row.fault for _, row in read if row.fault is not None]
    rows = [(number, row) for number, row in read if row.fault is None]
    if faults and not (drop and rows):
        raise DataError(problems=first_of(list(dict.fromkeys(faults))))
    columns = dict(zip(COLUMNS, zip(*(row.values for _, row in rows), strict=True), strict=True))
    corpora, lines = np.array([number for number, _ in rows]), np.array([row.line for _, row in rows])
    return story_examples(
        StoryTexts.of(columns),
        tokenizer,
        memory,
        corpora=corpora,
        weights=(1.0,) * len(readers),
        tasks=_tasks(readers, corpora, lines),
        place=lambda row: readers[int(corpora[row])].where(int(lines[row])),
    )


def _columns(examples: StoryExamples) -> dict[str, ColumnReport]:
    """The words of what is kept of each story."""
    words_N, unknown_N = (examples.table_NL != PAD).sum(1), (examples.table_NL == UNK).sum(1)
    stories = [examples.stories[example] for example in range(len(examples))]
    words_B = np.array([words_N[rows].sum() for rows in stories], dtype=np.int32)
    unknown = sum(int(unknown_N[rows].sum()) for rows in stories) / max(int(words_B.sum()), 1)
    return {"story": ColumnReport(int(words_B.sum()), unknown, Histogram.of(words_B))}
