"""A run that is served: what requests to it contain, the queue that they wait in, and how each is
computed."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.api import Loaded, Skipped
from regard.data import shapes
from regard.data.images import HELD, MAX_PIXELS, pixel_count, too_many_pixels
from regard.errors import DecodeError, InputError, Problem, RegardError
from regard.language import shown
from regard.models.base import Pooling
from regard.recipes.search_options import SearchOptions, with_search
from regard.search.config import SearchConfig
from regard.search.decode import reporting
from regard.search.stopping import StoppedError, stop_if_given_up, stoppable
from regard.tasks.task import LONGEST
from regard.text.files import FileInput
from regard.views.explanation import Explanation, View, ViewOptions
from regard.views.render import json_line
from regard.views.report import in_language, plain
from regard.views.search_record import follow_reference

T = TypeVar("T")
TEXT, EXPLAINED, INPUTS = 20_000, 4_000, 256
"""Most characters of an input, and of one to explain, whose answer grows with its square; most
inputs of a request."""
WRITTEN = 500_000
"""Most tokens that the search of a request may write: the beam times the longest output, summed
over the inputs."""
WRITTEN_BY_JOBS = 50_000_000
"""The same for the rows of a job, which takes longer."""
NUMBERS = 10_000_000
"""Most weights of attention that an answer explains, and most numbers of the vectors that it
has."""
LEFT = 499
"""The status, as nginx has it, of a request whose client has left: nobody reads it but the log and
/metrics."""
LOCAL = ("127.0.0.1", "localhost", "::1")
SHORTEST_TOKEN = 16
"""Fewest characters of a token."""


@dataclass(frozen=True)
class Settings:
    """How the server is reached, and what it takes on."""

    host: str = LOCAL[0]
    port: int = 8000
    token: str | None = None
    """What requests must carry as `Authorization: Bearer TOKEN`; without one only this machine is
    served."""
    window: float = 0.003
    """Seconds that a request waits for others to be computed with it."""
    batch: int = 64
    """Most inputs that are computed at once."""
    queue: int = 1024
    """Most inputs of a run that may wait."""
    timeout: float = 60.0
    """Seconds until a request that has no answer is given up."""
    body: int = 8_000_000
    """Most bytes of a request."""
    grace: float = 5.0
    """Seconds that requests have to be answered after SIGTERM or Ctrl-C."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            what = (
                f"a token of {len(self.token)} character{'s'[: len(self.token) != 1]} can "
                "be guessed"
            )
            hint = f"give at least {SHORTEST_TOKEN}: 'openssl rand -hex 32' makes one"
            raise RegardError(what, where="--token or REGARD_TOKEN", hint=hint)
        if self.host not in LOCAL and not self.token:
            what, hint = (
                f"whoever reaches {self.host} could use the runs",
                "give --token, or set REGARD_TOKEN",
            )
            raise RegardError(what, where="--host", hint=hint)


# What requests contain

Input = str | list[str] | dict[str, str | list[str]]
"""A text, the texts that an input consists of, or the run's columns; for a run that reads images: a
`data:` URL."""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, tree: object) -> object:
        """JSON can spell halves of surrogate pairs, which no answer could repeat."""
        if isinstance(tree, bytes):
            raise ValueError("send JSON, with Content-Type: application/json")
        try:
            json.dumps(tree, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no character") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return tree

    def given(self) -> list[Input]:
        """All inputs that it has."""
        single = [getattr(self, name) for name in ("source", "input") if hasattr(self, name)]
        return [*single, *getattr(self, "inputs", ()), *getattr(self, "others", ())]


class PredictBody(Body):
    inputs: list[Input] = Field(min_length=1, max_length=INPUTS)
    beam: int | None = Field(None, ge=1, le=64)
    nbest: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = Field(None, ge=0, le=10)
    prefix: str | None = Field(None, max_length=1_000)
    sample: bool | None = None
    temperature: float | None = Field(None, gt=0, le=100)
    top_k: int | None = Field(None, ge=1, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    skip_bad: bool = False
    """Whether an input that cannot be read is answered with the reason, instead of failing the
    request."""
    stream: bool = False
    """Whether the best output so far is sent, as server-sent events, whenever it changes.
    For one input."""

    def search_options(self) -> SearchOptions:
        sampling = self.model_dump(
            include={"sample", "temperature", "top_k", "top_p", "seed"}, exclude_none=True
        )
        overrides = tuple(f"search.{name}={json.dumps(value)}" for name, value in sampling.items())
        return SearchOptions(self.beam, self.nbest, self.length_penalty, self.prefix, overrides)


def refuse_many(count: int, where: str) -> None:
    """Refuse an answer that would be too long."""
    if count > NUMBERS:
        hint = f"at most {NUMBERS:,}: shorter or fewer texts"
        raise DecodeError(f"the answer would have {count:,} numbers", where=where, hint=hint)


def unless_given_up(parts: Iterable[str]) -> Iterator[str]:
    """The parts of an answer, until nobody waits for it any more."""
    for part in parts:
        stop_if_given_up()
        yield part


# Requests that are computed alone. `answer` is what can be sent as JSON, or a response; the
# docstring says what it is.


class ScoreBody(Body):
    """log P(target | source), token by token, as `regard score --json` prints it."""

    source: Input
    target: str | list[str] = Field(max_length=TEXT)

    def answer(self, served: Served) -> dict[str, Any]:
        return served.run.score(self.source, self.target)


class ExplainBody(Body):
    """What the model attended to, as `regard explain --json` prints it."""

    input: Input
    target: str | None = Field(None, max_length=EXPLAINED)
    beam: int | None = Field(None, ge=1, le=64)
    view: View | None = None
    layer: int | str = Field("mean")
    head: int | str = Field("mean")
    rollout: bool = False
    words: bool = False
    step: int | None = Field(None, ge=1)
    padding: int | None = Field(None, ge=0, le=64)
    question: int | None = Field(None, ge=1)
    numbers: bool = False

    def explanation(self, served: Served) -> Explanation:
        chosen = ViewOptions(
            self.view, str(self.layer), str(self.head), self.rollout, self.words, self.step
        )
        options = self.model_dump(include={"target", "beam", "view", "padding", "question"})
        return served.run.explain([self.input], **options).select(chosen)

    def answer(self, served: Served) -> Any:
        explanation = self.explanation(served)
        explanation.refuse_without_effect(padding=self.padding, numbers=self.numbers)
        explanation.heat_maps()  # refuses a layer or head that is not there
        if not self.numbers:
            weights = sum(attention.weights.size for attention in explanation.attentions.values())
            refuse_many(weights, "input")
        parts = json_line(explanation.worked() if self.numbers else explanation)
        return Response("".join(unless_given_up(parts)), media_type="application/json")


class StepsBody(ExplainBody):
    """One attention worked out, with its equations and code; `scores` changes them."""

    scores: list[float | None] | None = Field(None, max_length=EXPLAINED)
    """What a reader has made of the scores, null for a key that is hidden; the rest follows from
    them."""

    def answer(self, served: Served) -> dict[str, Any]:
        explanation = self.explanation(served)
        worked = explanation.worked(self.scores)
        texts = {"input": explanation.input, "output": explanation.output}
        answer: dict[str, Any] = plain({**texts, **worked.to_json(), **worked.details()})
        named = {
            part: {shown(name): values for name, values in answer[part].items()}
            for part in ("query", "after")
        }
        return (
            answer
            | named
            | {"equations": {part: shown(text) for part, text in answer["equations"].items()}}
        )


class SearchBody(Body):
    """The record of a search and its tree; with `reference`, where that left the beam."""

    input: Input
    beam: int | None = Field(None, ge=1, le=16)
    length_penalty: float | None = Field(None, ge=0, le=10)
    normalisation: Literal["none", "mean", "wu", "reward"] | None = None
    reference: str | None = Field(None, max_length=EXPLAINED)
    """A text that the search might have given: the answer says where it left the beam."""

    def answer(self, served: Served) -> dict[str, Any]:
        """The record is that of docs/search-record.md."""
        overrides = ["search.sample=false"]
        if self.normalisation:
            overrides.append(f"search.normalisation={self.normalisation}")
        options = SearchOptions(
            self.beam, self.beam, self.length_penalty, overrides=tuple(overrides)
        )
        run = served.run.under(with_search(served.run.recipe, options))
        record = run.predict([self.input], record=True).record
        assert record is not None
        if self.reference is not None:
            if run.task.writes != "target":
                what = "the run writes no texts that have a reference"
                raise DecodeError(what, where="reference", hint="leave it out")
            text = record.inputs[0]["input"]
            record = replace(
                record, reference=follow_reference(run, run.load_model(), text, self.reference)
            )
        report = in_language(record.report()).to_json()
        answer: dict[str, Any] = plain({**record.to_json(), "run": served.name, "report": report})
        return answer


class FeaturesBody(Body):
    """Vectors of texts or tokens, as `regard predict --features` writes them."""

    inputs: list[Input] = Field(min_length=1, max_length=INPUTS)
    layer: int = -1
    pooling: Pooling | None = None
    normalize: bool = False

    def answer(self, served: Served) -> dict[str, Any]:
        features = served.run.features(**self.model_dump()).arrays()
        refuse_many(sum(array.size for array in features.values()), "inputs")
        return {name: array.tolist() for name, array in features.items()}


class VectorsBody(Body):
    """One word in several texts, as `regard vectors --json` prints it."""

    inputs: list[Input] = Field(min_length=1, max_length=INPUTS)
    word: str = Field(min_length=1, max_length=100)
    others: list[Input] = Field([], max_length=INPUTS)
    """More texts, whose words can be neighbours."""
    layer: int = -1

    def answer(self, served: Served) -> dict[str, Any]:
        return served.run.vectors(**self.model_dump()).to_json()


VERBS: dict[str, type[Body]] = {
    "score": ScoreBody,
    "explain": ExplainBody,
    "steps": StepsBody,
    "search": SearchBody,
    "features": FeaturesBody,
    "vectors": VectorsBody,
}


# Requests of many clients, computed together


@dataclass(eq=False)
class Job:
    """One request: its inputs, and the function that has one answer for each of a list of
    inputs."""

    inputs: Sequence[Any]
    compute: Callable[[list[Any]], Sequence[Any]]
    kind: Hashable = None
    """Jobs of one kind are computed together: their functions do the same. None: computed alone."""
    length: int = 0
    """Of its longest input."""
    answers: Future[list[Any]] = field(default_factory=Future)
    given_up: bool = False
    """Whether nobody waits for the answers any more."""

    @property
    def size(self) -> int:
        """About how much there is to compute: inputs times characters."""
        return len(self.inputs) * max(1, self.length)

    def give_up(self) -> None:
        """Stop what is computed of it, and do not begin what waits."""
        self.given_up = True
        self.answers.cancel()


class Batcher:
    """Answers jobs in a thread of its own, the oldest first, together with waiting jobs of its
    kind."""

    def __init__(self, *, window: float, most: int, room: int) -> None:
        self.window, self.most, self.room = window, most, room
        """Seconds that a job waits for others; inputs computed at once; inputs that may wait."""
        self.batches = self.inputs = 0
        """Computed so far."""
        self._waiting: list[Job] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[list[Any]]:
        """An answer for each of its inputs, in their order, if there is room for them."""
        with self._changed:
            self._waiting = [waiting for waiting in self._waiting if not waiting.given_up]
            if self._closed or len(self) + len(job.inputs) > self.room:
                raise HTTPException(503, "the queue is full: try again later", {"Retry-After": "1"})
            self._waiting.append(job)
            self._changed.notify()
        return job.answers

    def __len__(self) -> int:
        """Inputs that wait."""
        return sum(len(job.inputs) for job in self._waiting)

    def close(self) -> None:
        """Take no more jobs, and return when those that wait are answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            self._answer([job for job in jobs if job.answers.set_running_or_notify_cancel()])

    def _next(self) -> list[Job] | None:
        """The oldest job, and those of its kind that are nearest to it in length; None when there
        will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            oldest = self._waiting[0]
            if oldest.kind is not None:
                self._changed.wait_for(lambda: self._closed or len(self) >= self.most, self.window)
            alike = [job for job in self._waiting[1:] if job.kind == oldest.kind is not None]
            jobs, count = [oldest], len(oldest.inputs)
            for job in sorted(alike, key=lambda job: abs(job.length - oldest.length)):
                if (count := count + len(job.inputs)) > self.most:
                    break
                jobs.append(job)
            taken = set(map(id, jobs))
            self._waiting = [job for job in self._waiting if id(job) not in taken]
            return jobs

    def _answer(self, jobs: list[Job]) -> None:
        """Compute jobs together. If that fails they are computed one by one, so that only those at
        fault fail.

        If clients give up the larger part of the work, it stops, and what others wait for is
        computed without it.
        """
        jobs = [job for job in jobs if not job.given_up]
        if not jobs:
            return
        inputs = [one for job in jobs for one in job.inputs]
        try:
            with stoppable(
                lambda: (
                    2 * sum(job.size for job in jobs if job.given_up)
                    > sum(job.size for job in jobs)
                )
            ):
                answers = iter(jobs[0].compute(inputs))
                parts = [[next(answers) for _ in job.inputs] for job in jobs]
        except StoppedError:
            self._answer(jobs)
            return
        except BaseException as error:
            for job in jobs if len(jobs) > 1 else []:
                self._answer([job])
            if len(jobs) == 1:
                jobs[0].answers.set_exception(error)
            return
        self.batches, self.inputs = self.batches + 1, self.inputs + len(inputs)
        for job, part in zip(jobs, parts, strict=True):
            job.answers.set_result(part)


class Served:
    """A loaded run, and the queue of requests to it."""

    def __init__(self, name: str, run: Loaded, settings: Settings) -> None:
        self.name, self.run, self.timeout = name, run, settings.timeout
        self._reads_images = run.recipe.model.reads == "image"
        if self._reads_images and run.recipe.model.reading.feature_width is not None:
            raise RegardError(
                "it reads features of images, which a request cannot hold", where=name
            )
        self.last: tuple[str, Explanation] | None = None
        """The last request of the page for an attention: it asks for one map after the other."""
        self.queue = Batcher(window=settings.window, most=settings.batch, room=settings.queue)

    def check(self, body: Body) -> None:
        """Refuse inputs that are too long, images of too many pixels, and what would name a
        file."""
        pixels, most = (
            0,
            TEXT if isinstance(body, PredictBody | ScoreBody | FeaturesBody) else EXPLAINED,
        )
        for number, given in enumerate(body.given(), 1):
            texts = [given] if isinstance(given, str) else given
            length = sum(
                map(
                    len, texts if isinstance(texts, list) else json.dumps(texts, ensure_ascii=False)
                )
            )
            if self._reads_images and not (
                isinstance(given, str) and given.startswith((HELD, shapes.PREFIX))
            ):
                hint = f'as a text: "{HELD}png;base64,..."'
                raise InputError("an image is expected", where=f"input {number}", hint=hint)
            pixels += (
                pixel_count(given, Path()) if self._reads_images and isinstance(given, str) else 0
            )
            if pixels > MAX_PIXELS:
                raise InputError(problems=[too_many_pixels(f"input {number}")])
            if not self._reads_images and length > most:
                raise InputError(
                    f"it has {length:,} characters",
                    where=f"input {number}",
                    hint=f"at most {most:,}",
                )

    async def computed(self, job: Job, request: Request) -> list[Any]:
        """The answers to a job, which is given up when they are late or the client has left."""
        try:
            return await self.awaited(asyncio.wrap_future(self.queue.submit(job)), request)
        finally:
            job.give_up()

    async def awaited(self, answer: Awaitable[T], request: Request) -> T:
        """An answer, unless it is late or the client leaves."""
        waiting, left = asyncio.ensure_future(answer), asyncio.create_task(_has_left(request))
        try:
            await asyncio.wait(
                (waiting, left), timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if waiting.done():
                return waiting.result()
            raise (
                HTTPException(LEFT, "the client has left")
                if left.done()
                else HTTPException(504, _late(self.timeout))
            )
        finally:
            waiting.cancel()
            left.cancel()

    async def alone(self, compute: Callable[[], Any], request: Request) -> Any:
        context, job = (
            copy_context(),
            Job([None], lambda _: []),
        )  # the context has the language of the request

        def answer() -> Any:
            with stoppable(lambda: job.given_up):
                return compute()

        job.compute = lambda _: [context.run(answer)]
        [answered] = await self.computed(job, request)
        return answered

    def predict_job(self, body: PredictBody) -> Job:
        """Requests with the same options are computed together; what cannot be read fails alone."""
        self.check(body)
        inputs = list(self.run.task.gather(self.run.task.given_inputs(body.inputs)))
        options = body.search_options()
        run = self.run.under(with_search(self.run.recipe, options))
        self._refuse_much_to_write(inputs, run.recipe.search)
        length = max((len(given.text) for given in inputs), default=0)
        return Job(inputs, partial(run.predict, skip_bad=True), options, length)

    def _refuse_much_to_write(self, inputs: Sequence[FileInput], search: SearchConfig) -> None:
        """Refuse a search that may write too much, by its beam and the longest output that it
        allows for each input."""
        run = self.run
        if run.task.writes is None:
            return
        lengths = self._regions_of(len(inputs))
        if lengths is None:
            tokenizer = run.tokenizers[run.task.vocabularies[0]]
            lengths = [len(row) for row in tokenizer.encode_batch([given.text for given in inputs])]
        self.refuse_much_to_write(lengths, search, "inputs", WRITTEN)

    def refuse_rows(
        self, rows: Sequence[Mapping[str, Any]], beam: int | None, length_penalty: float | None
    ) -> None:
        """The same for rows of a job, whose characters are counted as tokens."""
        if self.run.task.writes is None or not rows:
            return
        search = with_search(self.run.recipe, SearchOptions(beam, 1, length_penalty)).search
        characters = [
            sum(len(text) for text in row.values() if isinstance(text, str)) for row in rows
        ]
        self.refuse_much_to_write(
            self._regions_of(len(rows)) or characters, search, "rows", WRITTEN_BY_JOBS
        )

    def refuse_much_to_write(
        self, lengths: Sequence[int], search: SearchConfig, where: str, most: int
    ) -> None:
        """`lengths` are the tokens of each source; those with more than any may have are refused
        when they are read."""
        longest = sum(self._longest_output(min(length, LONGEST), search) for length in lengths)
        rows = search.nbest if search.sample else search.beam
        if (written := rows * longest) > most:
            what = (
                f"its search may write {written:,} tokens: {rows:,} times up to {longest:,} "
                "of all its outputs"
            )
            raise DecodeError(
                what,
                where=where,
                hint=f"at most {most:,}: fewer or shorter inputs, or a smaller beam",
            )

    def _regions_of(self, images: int) -> list[int] | None:
        """The length of each image as a source; None for a run that reads texts."""
        if not self._reads_images:
            return None
        reading = self.run.recipe.model.reading
        return [reading.rows * reading.columns] * images

    def _longest_output(self, length: int, search: SearchConfig) -> int:
        longest_of_model = getattr(self.run.predictor(), "longest", None)
        longest = search.max_length_ratio * length + search.max_length_offset
        limits = [limit for limit in (search.max_length, longest_of_model) if limit is not None]
        return max(search.min_length, int(min([longest, *limits])))


async def _has_left(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def predicted(served: Served, body: PredictBody, request: Request) -> Response:
    job = await asyncio.to_thread(served.predict_job, body)  # which counts tokens
    if body.stream:
        return await _streamed(served, body, job, request)
    answers = await served.computed(job, request)
    return JSONResponse({"predictions": _readable(answers, skip_bad=body.skip_bad)})


def _readable(answers: list[Any], *, skip_bad: bool) -> list[dict[str, Any]]:
    """The predictions of a request, or one error with the inputs that cannot be read."""
    if not skip_bad and (
        problems := [answer.problem for answer in answers if isinstance(answer, Skipped)]
    ):
        raise InputError(problems=problems)
    return [answer.to_json() for answer in answers]


# Tokens as they are written


async def _streamed(served: Served, body: PredictBody, job: Job, request: Request) -> Response:
    """Server-sent events: `output` with the best output so far, then `prediction`, or `error`. What
    fails before the first of them is an error of the request."""
    texts: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    if len(job.inputs) != 1:
        raise DecodeError(f"one input is streamed, not {len(job.inputs)}", where="stream")

    def tell(text: str | None) -> None:
        loop.call_soon_threadsafe(texts.put_nowait, text)

    def compute(inputs: list[Any]) -> Sequence[Any]:
        with reporting(tell):
            return job.compute(inputs)

    streamed = Job(job.inputs, compute, length=job.length)
    future = served.queue.submit(streamed)
    future.add_done_callback(lambda _: tell(None))

    async def written() -> AsyncIterator[str]:
        end = loop.time() + served.timeout
        try:
            while (text := await asyncio.wait_for(texts.get(), end - loop.time())) is not None:
                yield event("output", {"output": text})
            [prediction] = _readable(future.result(), skip_bad=body.skip_bad)
            yield event("prediction", prediction)
        except TimeoutError:
            raise HTTPException(504, _late(served.timeout)) from None
        finally:
            streamed.give_up()

    events = written()
    first = await served.awaited(anext(events), request)

    async def sent() -> AsyncIterator[str]:
        yield first
        try:
            async for one in events:
                yield one
        except RegardError as error:
            yield event("error", told(error))
        except HTTPException as error:
            yield event("error", {"error": error.detail})

    return StreamingResponse(sent(), media_type="text/event-stream")


def event(kind: str, content: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"


def told(error: RegardError | OSError) -> dict[str, Any]:
    """In the language of the request, with the options of a command called by their names in a
    body."""
    if isinstance(error, OSError):
        return {"error": str(error)}
    problems = []
    for problem in error.problems:
        where = re.sub(r"^--([\w-]+)$", lambda name: name[1].replace("-", "_"), problem.where)
        problems.append(Problem(where, shown(problem.what), shown(problem.hint)))
    return {"error": str(problems[0]), "problems": [asdict(problem) for problem in problems]}


def _late(seconds: float) -> str:
    return f"there is no answer after {seconds:g} seconds"
