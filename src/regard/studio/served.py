"""A run that is served: which requests it refuses, and the queue that the others wait in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import HTTPException, Request

from regard.api import Loaded
from regard.data import shapes
from regard.data.example import Example
from regard.data.images import DATA_URL, MAX_PIXELS, pixel_count, too_many_pixels
from regard.errors import DecodeError, InputError, RegardError
from regard.recipes.search_options import SearchOptions, with_search
from regard.search.config import SearchConfig
from regard.search.stopping import stoppable
from regard.studio.batching import Batcher, QueuedRequest
from regard.studio.requests import Body, Input, PredictBody
from regard.studio.settings import Settings
from regard.tasks.reading import LONGEST
from regard.views.explanation import Explanation

T = TypeVar("T")
MAX_WRITTEN_TOKENS = 500_000
"""Most tokens that the search of a request may write: the beam times the longest output, summed
over the inputs."""
MAX_WRITTEN_TOKENS_OF_JOB = 50_000_000
"""Most tokens that the search of a job may write for its rows; a job may take longer."""
CLIENT_LEFT_STATUS = 499
"""The status, as nginx has it, of a request whose client has left: nobody reads it but the log and
/metrics."""


class ServedRun:
    """A loaded run, and the queue of requests to it."""

    def __init__(self, name: str, run: Loaded, settings: Settings) -> None:
        self.name = name
        self.run = run
        self.timeout = settings.timeout
        self._reads_images = run.recipe.model.reads == "image"
        if self._reads_images and run.recipe.model.reading.feature_width is not None:
            raise RegardError(
                "it reads features of images, which a request cannot hold", where=name
            )
        self.last: tuple[str, Explanation] | None = None
        """The last request of the page for an attention: it asks for one map after the other."""
        self.queue = Batcher(
            window=settings.window, max_inputs=settings.batch, max_waiting=settings.queue
        )

    def in_languages_of(self, body: Body) -> ServedRun:
        """This run with the languages that a request asks for."""
        if not body.languages:
            return self
        other = copy(self)
        options = SearchOptions(overrides=tuple(body.languages))
        other.run = self.run.under(with_search(self.run.recipe, options))
        return other

    def check(self, body: Body) -> None:
        """Refuse inputs that are too long, images of too many pixels, and what would name a
        file."""
        if self._reads_images:
            self._check_images(body)
        else:
            self._check_texts(body)

    def _check_images(self, body: Body) -> None:
        pixels = 0
        for number, given in enumerate(body.given(), 1):
            if not (isinstance(given, str) and given.startswith((DATA_URL, shapes.PREFIX))):
                hint = f'as a text: "{DATA_URL}png;base64,..."'
                raise InputError("an image is expected", where=f"input {number}", hint=hint)
            pixels += pixel_count(given, Path())
            if pixels > MAX_PIXELS:
                raise InputError(problems=[too_many_pixels(f"input {number}")])

    def _check_texts(self, body: Body) -> None:
        for number, given in enumerate(body.given(), 1):
            length = _characters_of(given)
            if length > body.max_characters:
                raise InputError(
                    f"it has {length:,} characters",
                    where=f"input {number}",
                    hint=f"at most {body.max_characters:,}",
                )

    async def compute(self, queued: QueuedRequest, request: Request) -> list[Any]:
        """The answers to a request, which is given up if they are late or the client leaves."""
        try:
            return await self.wait_for(asyncio.wrap_future(self.queue.submit(queued)), request)
        finally:
            queued.give_up()

    async def wait_for(self, answer: Awaitable[T], request: Request) -> T:
        """An answer, unless it is late or the client leaves."""
        waiting = asyncio.ensure_future(answer)
        left = asyncio.create_task(_has_left(request))
        try:
            await asyncio.wait(
                (waiting, left), timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if waiting.done():
                return waiting.result()
            if left.done():
                raise HTTPException(CLIENT_LEFT_STATUS, "the client has left")
            raise HTTPException(504, late_message(self.timeout))
        finally:
            waiting.cancel()
            left.cancel()

    async def compute_alone(self, function: Callable[[], Any], request: Request) -> Any:
        """Call a function in the queue's thread, and return its result."""
        context = copy_context()  # it has the language of the request

        def stoppable_function() -> Any:
            with stoppable(lambda: queued.given_up):
                return function()

        queued = QueuedRequest([None], lambda _: [context.run(stoppable_function)])
        [answer] = await self.compute(queued, request)
        return answer

    def queued(self, body: PredictBody) -> QueuedRequest:
        """A request for predictions, to be computed together with others that have the same
        options; what cannot be read fails alone."""
        self.check(body)
        reader = self.run.task.inputs
        inputs = list(reader.gathered(reader.given(body.inputs)))
        options = body.search_options
        run = self.run.under(with_search(self.run.recipe, options))
        self._refuse_much_to_write(inputs, run.recipe.search)
        length = max((len(given.text) for given in inputs), default=0)
        return QueuedRequest(inputs, partial(run.predict, skip_bad=True), options, length)

    def _refuse_much_to_write(self, inputs: Sequence[Example], search: SearchConfig) -> None:
        """Refuse a search that may write too much, by its beam and the longest output that it
        allows for each input."""
        run = self.run
        if run.task.views.written is None:
            return
        lengths = self._regions_of(len(inputs))
        if lengths is None:
            tokenizer = run.tokenizers[run.task.vocabularies[0]]
            lengths = [len(row) for row in tokenizer.encode_batch([given.text for given in inputs])]
        self._refuse_lengths(lengths, search, "inputs", MAX_WRITTEN_TOKENS)

    def refuse_rows(self, rows: Sequence[Mapping[str, Any]], options: SearchOptions) -> None:
        """Refuse a search for the rows of a job that may write too much; the characters of a row
        are counted as its tokens."""
        if self.run.task.views.written is None or not rows:
            return
        search = with_search(self.run.recipe, options).search
        characters = [
            sum(len(text) for text in row.values() if isinstance(text, str)) for row in rows
        ]
        self._refuse_lengths(
            self._regions_of(len(rows)) or characters, search, "rows", MAX_WRITTEN_TOKENS_OF_JOB
        )

    def _refuse_lengths(
        self, lengths: Sequence[int], search: SearchConfig, where: str, most: int
    ) -> None:
        """Refuse a search that may write more than `most` tokens for sources of these lengths.

        Sources that are longer than any may be are refused when they are read.
        """
        longest = sum(self._longest_output(min(length, LONGEST), search) for length in lengths)
        rows = search.nbest if search.sample else search.beam
        written = rows * longest
        if written > most:
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


def _characters_of(given: Input) -> int:
    """The length of an input: of its texts, or of its columns as JSON."""
    if isinstance(given, dict):
        return len(json.dumps(given, ensure_ascii=False))
    texts = given if isinstance(given, list) else [given]
    return sum(map(len, texts))


async def _has_left(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def late_message(seconds: float) -> str:
    return f"there is no answer after {seconds:g} seconds"
