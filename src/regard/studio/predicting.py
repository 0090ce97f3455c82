"""`predict` over HTTP: the predictions in one piece, or the output as it is written, in events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from regard.errors import DecodeError, InputError, RegardError
from regard.inference.predictions import Skipped
from regard.search.observers import reporting
from regard.studio.answers import error_json, event
from regard.studio.batching import QueuedRequest
from regard.studio.requests import PredictBody
from regard.studio.served import ServedRun, late_message


async def predict_response(served: ServedRun, body: PredictBody, request: Request) -> Response:
    """The predictions for the inputs of a request."""
    queued = await asyncio.to_thread(served.queued, body)  # which counts tokens
    if body.stream:
        return await _streamed(served, queued, request, skip_bad=body.skip_bad)
    answers = await served.compute(queued, request)
    return JSONResponse({"predictions": _readable(answers, skip_bad=body.skip_bad)})


def _readable(answers: list[Any], *, skip_bad: bool) -> list[dict[str, Any]]:
    """The predictions of a request, or one error with the inputs that cannot be read."""
    problems = [answer.problem for answer in answers if isinstance(answer, Skipped)]
    if problems and not skip_bad:
        raise InputError(problems=problems)
    return [answer.to_json() for answer in answers]


async def _streamed(
    served: ServedRun, queued: QueuedRequest, request: Request, *, skip_bad: bool
) -> Response:
    """Server-sent events: `output` with the best output so far, then `prediction`, or `error`.

    An error before the first event is an error of the request.
    """
    if len(queued.inputs) != 1:
        raise DecodeError(f"one input is streamed, not {len(queued.inputs)}", where="stream")
    events = _events_of(served, queued, skip_bad=skip_bad)
    first = await served.wait_for(anext(events), request)
    return StreamingResponse(_with_errors(first, events), media_type="text/event-stream")


async def _events_of(
    served: ServedRun, queued: QueuedRequest, *, skip_bad: bool
) -> AsyncIterator[str]:
    """The output whenever the search has a better one, and at the end the prediction."""
    outputs: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def report(output: str | None) -> None:
        loop.call_soon_threadsafe(outputs.put_nowait, output)

    def compute(inputs: list[Any]) -> Sequence[Any]:
        with reporting(report):
            return queued.compute(inputs)

    streamed = QueuedRequest(queued.inputs, compute, length=queued.length)
    future = served.queue.submit(streamed)
    future.add_done_callback(lambda _: report(None))
    end = loop.time() + served.timeout
    try:
        while (output := await asyncio.wait_for(outputs.get(), end - loop.time())) is not None:
            yield event("output", {"output": output})
        [prediction] = _readable(future.result(), skip_bad=skip_bad)
        yield event("prediction", prediction)
    except TimeoutError:
        raise HTTPException(504, late_message(served.timeout)) from None
    finally:
        streamed.give_up()


async def _with_errors(first: str, events: AsyncIterator[str]) -> AsyncIterator[str]:
    """All events; an error after the first of them is an event, too."""
    yield first
    try:
        async for one in events:
            yield one
    except RegardError as error:
        yield event("error", error_json(error))
    except HTTPException as error:
        yield event("error", {"error": error.detail})
