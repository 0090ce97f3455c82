"""Answers that several routes give: errors in the language of the request, and events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import create_model
from starlette.exceptions import HTTPException as AnyHTTPException

from regard.config import problems_in
from regard.errors import ConfigError, Problem, RegardError
from regard.language import shown

NO_ROUTE = (
    "there is no such route: those of a run are /runs/NAME/predict and the like, GET "
    "/openapi.json lists all"
)
FASTAPI_BODY_ERROR = "There was an error parsing the body"  # as FastAPI says it
NOT_JSON = "the body is not JSON in UTF-8, or is nested too deeply"
SAFE_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def event(kind: str, content: Mapping[str, Any]) -> str:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"


def error_json(error: RegardError | OSError) -> dict[str, Any]:
    """An error in the language of the request. Options of a command are called by their names in a
    body."""
    if isinstance(error, OSError):
        return {"error": str(error)}
    problems = []
    for problem in error.problems:
        where = re.sub(r"^--([\w-]+)$", lambda name: name[1].replace("-", "_"), problem.where)
        problems.append(Problem(where, shown(problem.what), shown(problem.hint)))
    return {"error": str(problems[0]), "problems": [asdict(problem) for problem in problems]}


def answer_errors(api: FastAPI, public: Callable[[Any], Any]) -> None:
    """Answer every error with JSON of one sentence; `public` gives it without the server's
    paths."""

    @api.exception_handler(RegardError)
    async def refused(_: object, error: RegardError) -> Response:
        return JSONResponse(public(error_json(error)), 422)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        field = request.scope["route"].body_field
        given = {"body": error.body, "query": dict(request.query_params)}
        kind = create_model("Request", body=(field.field_info.annotation if field else Any, ...))
        return JSONResponse(
            error_json(ConfigError(problems=problems_in(error.errors(), kind, given))), 422
        )

    @api.exception_handler(AnyHTTPException)
    async def stated(_: object, error: AnyHTTPException) -> Response:
        allowed = (error.headers or {}).get("Allow")
        plain = {
            "Not Found": NO_ROUTE,
            "Method Not Allowed": f"this route answers {allowed} only",
            FASTAPI_BODY_ERROR: NOT_JSON,
        }
        return JSONResponse(
            {"error": shown(plain.get(error.detail, error.detail))},
            error.status_code,
            error.headers,
        )

    @api.exception_handler(Exception)
    async def failed(_: object, error: Exception) -> Response:
        return JSONResponse({"error": "the server failed; its log says why"}, 500, SAFE_HEADERS)
