"""Long verbs over HTTP: `evaluate`, `diagnose`, `compare` and `check` as jobs.

Files of a request are written to a temporary folder under fixed names; no text of a request is used
as a path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fastapi import Depends, FastAPI
from fastapi.responses import Response, StreamingResponse
from pydantic import Field, model_validator

from regard.api import Loaded, compare, diagnose, evaluate
from regard.config import parse_yaml
from regard.errors import ConfigError, DataError
from regard.recipes.search_options import SearchOptions
from regard.runs.examples import ReportProgress, examples_of
from regard.studio.checker import Checker
from regard.studio.jobs import Job, Jobs
from regard.studio.recipe_form import FORM_FIELDS, setting_overrides
from regard.studio.requests import Body
from regard.studio.runs import Runs
from regard.studio.sent import begins_with, refuse_large, refuse_large_files
from regard.studio.sent_files import SentFile, private_folder, without_folder
from regard.studio.served import ServedRun
from regard.tasks.answers import summed
from regard.views.report import Result

CHECK_SECONDS = 300.0
"""Seconds that a check may take."""
DIAGNOSED_SENTENCES = 1_000
"""Sentences that are diagnosed unless a request says how many."""


class MeasureBody(Body):
    """Which examples, and by which search: a split of the run, or rows with its columns."""

    split: Literal["train", "validation", "test"] | None = None
    rows: list[dict[str, Any]] | None = Field(None, min_length=1, max_length=10_000)
    beam: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = Field(None, ge=0, le=10)

    @property
    def search_options(self) -> SearchOptions:
        return SearchOptions(self.beam, 1, self.length_penalty)

    @contextmanager
    def options(self) -> Iterator[dict[str, Any]]:
        """The options as arguments of the verbs; rows are a file in a folder of their own, which no
        message names."""
        options = self.model_dump(include={"split", "beam", "length_penalty"})
        if self.rows is None:
            yield options
            return
        with private_folder() as folder:
            lines = [json.dumps(row, ensure_ascii=False) for row in self.rows]
            (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            yield {**options, "files": [str(folder / "rows.jsonl")]}

    @staticmethod
    def confined(run: Loaded, options: Mapping[str, Any]) -> Loaded:
        """A copy of the run, for which rows that are sent name no files of this machine, such as
        images."""
        own = run.copy()
        if "files" not in options:
            return own
        return own.under(
            own.recipe.model_copy(update={"within": str(Path(options["files"][0]).parent)})
        )


class DiagnoseBody(MeasureBody):
    limit: int = Field(DIAGNOSED_SENTENCES, ge=1, le=10_000)
    sweep: list[int] = Field([], max_length=6)
    """Other beams to try."""

    @model_validator(mode="after")
    def _widths(self) -> DiagnoseBody:
        if not all(1 <= width <= 64 for width in self.sweep):
            raise ValueError("a beam is 1 to 64 wide")
        return self


class CompareBody(MeasureBody):
    runs: list[str] = Field(min_length=2, max_length=8)
    baseline: str | None = None


class CheckBody(Body):
    """A recipe as YAML and the files that it names, or data files alone, for which a recipe is
    proposed."""

    recipe: str | None = Field(None, max_length=100_000)
    settings: dict[str, str | int | float | None] = Field({}, max_length=len(FORM_FIELDS))
    """Settings of the form, by their paths, that replace those of the recipe."""
    files: list[SentFile] = Field([], max_length=8)


def _answer_of(result: Result, **others: Any) -> dict[str, Any]:
    """The `result` is what the command prints with `--json`; the report is for people."""
    return {"result": result.to_json(), "report": result.report(), **others}


def _evaluation(run: ServedRun, body: MeasureBody, progress: ReportProgress) -> dict[str, Any]:
    """The metrics, and `predictions`, or how well each example is predicted; nothing is left in the
    run folder."""
    moved = partial(progress, "examples")
    with body.options() as options:
        own = body.confined(run.run, options)
        metrics = evaluate(own, predictions=False, progress=moved, **options)
        predictions = metrics.pop("predictions", None)
        if (
            predictions is None and own.task.views.targets is None
        ):  # those are decoded by `diagnose`
            examples = examples_of(own, body.split, options.get("files", ()))
            with suppress(DataError):  # some models cannot say
                predictions = own.task.metrics.by_unit(
                    own.load_model(), examples, summed(moved, len(examples))
                )
    others = {name: value for name, value in metrics.items() if name not in ("errors", "files")}
    return {"result": others, "report": None, "predictions": predictions}


def _diagnosis(run: ServedRun, body: DiagnoseBody, progress: ReportProgress) -> dict[str, Any]:
    """The diagnosis, and every sentence that was judged."""
    with body.options() as options:
        progress("scoring", 0, 0)
        result = diagnose(
            body.confined(run.run, options),
            limit=body.limit,
            sweep=body.sweep,
            progress=progress,
            **options,
        )
    return _answer_of(
        result, sentences=[{**judged.to_json(), "error": judged.error} for judged in result.judged]
    )


def _comparison(
    runs: Sequence[ServedRun], body: CompareBody, progress: ReportProgress
) -> dict[str, Any]:
    with body.options() as options:
        copies = [body.confined(run.run, options) for run in runs]
        return _answer_of(compare(copies, baseline=body.baseline, progress=progress, **options))


def _check(
    body: CheckBody, overrides: Sequence[str], checker: Checker, progress: ReportProgress
) -> dict[str, Any]:
    """The result of `check`, which runs in a process of its own."""
    progress("reading", 0, 0)
    with private_folder() as folder:
        for file in body.files:
            (folder / file.name).write_text(file.text, encoding="utf-8")
        out: Path | None = None
        if body.recipe is not None:
            recipe = folder / "recipe.yaml"
            recipe.write_text(body.recipe, encoding="utf-8")
            first = str(recipe)
            others = [*overrides]
        else:
            first, *others = [str(folder / file.name) for file in body.files]
            out = folder / "proposal.yaml"  # its paths are relative to it
        result, sentences = checker.check(
            first, others, folder, out, partial(progress, "reading", 0, 0)
        )
        text = without_folder(folder, json.dumps(result, ensure_ascii=False))
        known = json.loads(text)
        return {
            "result": known,
            "report": None,
            "proposal": known.get("proposal"),
            "notes": _notes_of(known),
            "mistakes": _mistakes_of(known),
            "columns": _columns_of(result.get("proposal")),
            "text": [without_folder(folder, line) for line in sentences],
        }


def _notes_of(result: dict[str, Any]) -> list[str]:
    """What `check` has noticed in the data."""
    data = result.get("data") or {}
    noticed = [*(data.get("notes") or []), *(data.get("findings") or [])]
    return [one if isinstance(one, str) else one.get("what", "") for one in noticed]


def _mistakes_of(result: dict[str, Any]) -> list[list[str]]:
    """The problems that `check` has found, each as its place, what is wrong, and a hint."""
    problems = result.get("problems") or []
    return [[one["where"], one["what"], one.get("hint") or ""] for one in problems]


def _columns_of(proposal: str | None) -> Any:
    """What the columns of the data were taken for: the training data of a proposed recipe."""
    return None if proposal is None else parse_yaml(proposal, where="recipe")["data"]["train"]


def _overrides_of(body: CheckBody, folder_of: Callable[[str], Path | None]) -> list[str]:
    """The overrides for what is sent to be checked; what is too large, or cannot be meant, is
    refused."""
    files = {file.name: file.text for file in body.files}
    if body.recipe is not None:
        overrides = [*setting_overrides(body.settings), *begins_with(body.recipe, folder_of)]
        refuse_large(body.recipe, overrides, files)
        return overrides
    if not files:
        raise ConfigError("there is nothing to check", where="body", hint="send a recipe, or files")
    if Path(next(iter(files))).suffix.lower() in ("", ".yaml", ".yml"):
        raise ConfigError(
            "this is not a file of data", where=next(iter(files)), hint="send a recipe as `recipe`"
        )
    refuse_large_files(files)
    return []


def add_long_verbs(api: FastAPI, runs: Runs) -> Jobs:
    """Add the routes."""
    jobs = Jobs(runs.public)

    @api.post("/runs/{name}/evaluate", status_code=202)
    def evaluate_run(body: MeasureBody, run: ServedRun = Depends(runs.named)) -> Response:
        """A job that computes the task's metrics."""
        run.refuse_rows(body.rows or (), body.search_options)
        return jobs.submit(Job("evaluate", [run.name]), partial(_evaluation, run, body))

    @api.post("/runs/{name}/diagnose", status_code=202)
    def diagnose_run(body: DiagnoseBody, run: ServedRun = Depends(runs.named)) -> Response:
        """A job that tells search errors from model errors."""
        for beam in (body.beam, *body.sweep):
            run.refuse_rows(body.rows or (), SearchOptions(beam, 1, body.length_penalty))
        return jobs.submit(Job("diagnose", [run.name]), partial(_diagnosis, run, body))

    @api.post("/compare", status_code=202)
    def compare_runs(body: CompareBody) -> Response:
        """A job that compares runs of one task."""
        compared = [*map(runs.named, body.runs)]
        for run in compared:
            run.refuse_rows(body.rows or (), body.search_options)
        return jobs.submit(Job("compare", body.runs), partial(_comparison, compared, body))

    @api.post("/check", status_code=202)
    def check_recipe(body: CheckBody) -> Response:
        """A job that validates a recipe and its data, or proposes one for the files."""
        overrides = _overrides_of(body, runs.folder_of)
        job = Job("check", [], CHECK_SECONDS)
        return jobs.submit(job, partial(_check, body, overrides, jobs.checker))

    @api.get("/jobs/{job}")
    def show_job(job: Job = Depends(jobs.find)) -> Response:
        """How far a job is, and what came of it."""
        return jobs.answer(job)

    @api.get("/jobs/{job}/events")
    async def follow_job(job: Job = Depends(jobs.find)) -> Response:
        """How far a job is, as server-sent events, and what came of it."""
        return StreamingResponse(jobs.events_of(job), media_type="text/event-stream")

    @api.delete("/jobs/{job}")
    def cancel_job(job: Job = Depends(jobs.find)) -> Response:
        """Cancel a job."""
        job.cancelled.set()
        return jobs.answer(job)

    return jobs
