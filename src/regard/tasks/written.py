"""What a search writes: predictions made from its hypotheses, and the wording that users ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from regard.data.batches import Ragged
from regard.data.example import Example
from regard.data.images import Picture
from regard.engine.machine import token_budgets
from regard.errors import DecodeError, Problem
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.external import ExternalModel
from regard.search.hypotheses import Hypothesis
from regard.search.observers import BestSoFar, Observer, Recorder, report_to
from regard.search.rules import BannedTexts, Constraints, SpecialTokens
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer

CPU_DECODE_TOKENS = 4_096
"""Padded source tokens times beam that are decoded at once. More of them do not fit into the caches
of a CPU, and it writes up to a third fewer tokens per second."""
GPU_DECODE_TOKENS = 16_384
"""The same on a GPU, which takes more of them if it has the memory (`token_budgets`)."""
Source = list[int] | Picture
"""What a text is written from: tokens up to `</s>`, the beginning of a text, or an image with its
regions."""
SourceBatch = tuple[list[int], Ragged, SearchConfig]
"""Row numbers, their sources on the model's device, and the search for them."""


class Output(NamedTuple):
    """One text the model wrote, and log P of exactly these tokens."""

    output: str
    score: float
    tokens: list[str]


@dataclass(frozen=True)
class Written(Prediction):
    """One input and what the model writes for it."""

    nbest: tuple[Output, ...]

    @property
    def output(self) -> str:
        return self.nbest[0].output

    def content(self) -> dict[str, Any]:
        nbest = [output._asdict() for output in self.nbest]
        return {"input": self.input, **nbest[0], "nbest": nbest}

    def lines(self, nbest: int) -> Iterator[str]:
        if nbest == 1:
            yield self.output
        else:
            yield from (f"{output.score:.4f}\t{output.output}" for output in self.nbest)


class WrittenTexts(ABC):
    """Answers that a search writes: a text for each source, or the continuation of a text."""

    column: ClassVar[Literal["target", "text"]]
    """The tokenizer that spells the outputs."""

    def __init__(self, tokenizer: Tokenizer, search: SearchConfig, special: SpecialTokens) -> None:
        self.tokenizer = tokenizer
        self.config = search
        self.special = special
        self.first: list[int] = []
        """The tokens that every output begins with."""

    @abstractmethod
    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[Any]:
        """The sources and the wording of the outputs."""

    @abstractmethod
    def notes(self, encoded: EncodedInputs[Any], predictions: Sequence[Any]) -> list[Note]:
        """What a user should know about these predictions."""

    @abstractmethod
    def batches(
        self, model: Any, sources: Sequence[Any], config: SearchConfig, wording: Constraints
    ) -> Iterator[SourceBatch]:
        """Sources that are decoded together; limits that leave no output are refused before the
        first batch."""

    @abstractmethod
    def source_tokens(self, source: Any) -> list[str]:
        """How the positions of a source are spelt."""

    @abstractmethod
    def score_text(
        self, model: Any, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        """The tokens of a target, `</s>` last if it is a text, and log P of each."""

    @abstractmethod
    def check(self, validation: Any) -> None:
        """Refuse a search that cannot be run on the validation."""

    def text_of(self, given: str, source: Any, hypothesis: Hypothesis) -> str:
        """The output that a hypothesis stands for."""
        return self.tokenizer.decode(hypothesis.tokens)

    def predict_encoded(
        self,
        model: Any,
        encoded: EncodedInputs[Any],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Written]:
        sources = encoded.readable()
        written: dict[int, Written] = {}
        if isinstance(model, ExternalModel):
            for row, hypotheses in model.search(sources, self.config, self.first):
                text = encoded.inputs[row].text
                written[row] = self._prediction(text, sources[row], hypotheses)
                progress(1)
            return [written[row] for row in range(len(sources))]
        for rows, batch, config in self.batches(model, sources, self.config, encoded.wording):
            recorder = Recorder(batch, config, self.tokenizer, self.special.end) if record else None
            first = rows[0]
            outputs = search(
                model,
                batch,
                config,
                constraints=encoded.wording.of(rows),
                special=self.special,
                observer=self._reporter(batch, config, encoded.inputs[first].text, sources[first])
                or recorder,
            )
            records = recorder.records() if recorder else [None] * len(rows)
            for row, hypotheses, steps in zip(rows, outputs, records, strict=True):
                whole = steps and {"source": self.source_tokens(sources[row]), **steps}
                text = encoded.inputs[row].text
                written[row] = self._prediction(text, sources[row], hypotheses, whole)
            progress(len(rows))
        return [written[row] for row in range(len(sources))]

    def write(self, model: Any, inputs: Sequence[Example]) -> list[Written]:
        """What the model writes for each input; one error names all that cannot be read."""
        return self.predict_encoded(model, self.encode_inputs(model, inputs))

    def _prediction(
        self,
        text: str,
        source: Any,
        hypotheses: Sequence[Hypothesis],
        record: dict[str, Any] | None = None,
    ) -> Written:
        """The prediction for an input, made from its hypotheses."""
        nbest = (
            Output(self.text_of(text, source, one), one.score, self.tokenizer.tokens(one.tokens))
            for one in hypotheses
        )
        return Written(text, tuple(nbest), search=record)

    def _reporter(
        self, batch: Ragged, config: SearchConfig, given: str, source: Any
    ) -> Observer | None:
        """Reports the best output so far of the first source, if somebody waits for it."""
        report = report_to.get()
        if report is None:
            return None
        text_of = partial(self.text_of, given, source)
        return BestSoFar(batch, config, self.special.end, text_of, report)


def decode_tokens(config: SearchConfig, device: torch.device) -> int:
    """Padded source tokens that are decoded at once."""
    rows = config.nbest if config.sample else config.beam
    if device.type == "cpu":
        return max(1, CPU_DECODE_TOKENS // max(2, rows))  # greedy search too: half the padding
    return max(1, token_budgets(device) * GPU_DECODE_TOKENS // rows)


# Wording


def wording_of(
    tokenizer: Tokenizer, config: SearchConfig, inputs: int, prefixes: Sequence[str] | None = None
) -> Constraints:
    """The wording of the outputs for so many inputs. Each has its own of the `prefixes`, empty for
    none; or `config.prefix` is for all."""
    if prefixes is None and config.prefix is None and not config.banned:
        return Constraints()
    texts = [config.prefix or ""] if prefixes is None else prefixes
    encoded = [
        ids if text.strip() else []
        for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)
    ]
    banned = [*filter(None, map(tokenizer.normalised, config.banned))]
    problems = []
    for number, (text, ids) in enumerate(zip(texts, encoded, strict=True), 1):
        where = "search.prefix" if prefixes is None else f"prefix {number}"
        if problem := _problem_in_prefix(tokenizer, text, ids, banned, where):
            problems.append(problem)
    DecodeError.raise_if(problems)
    each = encoded * inputs if prefixes is None else encoded
    return Constraints(each, ban_of(tokenizer, config))


def _problem_in_prefix(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], banned: Sequence[str], where: str
) -> Problem | None:
    """Why no output can begin with a text."""
    if tokenizer.unk in ids:
        hint = "its vocabulary lacks a part of it: use other words"
        return Problem(where, f"the tokenizer cannot write {text!r}", hint)
    if text.strip() and tokenizer.all_unknown(ids):
        return Problem(where, f"there is no token for {text!r}", "use other words")
    if any(nfc(unwanted) in tokenizer.decode(ids) for unwanted in banned):
        what = f"{text!r} holds a text that search.banned rules out"
        return Problem(where, what, "change one of the two")
    return None


def ban_of(tokenizer: Tokenizer, config: SearchConfig) -> BannedTexts | None:
    """The texts of `config.banned`, as outputs spell them, prepared for a vocabulary; None if there
    are none."""
    spelt = [text.encode() for text in map(tokenizer.normalised, config.banned) if text]
    if not spelt:
        return None
    never = {tokenizer.pad, tokenizer.begin, tokenizer.end}
    if not config.unknown:
        never.add(tokenizer.unk)
    pieces = {
        token: piece for token, piece in enumerate(tokenizer.token_bytes()) if token not in never
    }
    return BannedTexts(spelt, pieces)
