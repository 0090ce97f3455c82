"""The course in the studio: its chapters, computed one at a time by a process, and shown when they
are."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from fastapi import FastAPI, HTTPException
from pydantic import Field

from regard.course import LANGUAGES, Chapter, chapters
from regard.course.findings import FINDINGS_FOLDER, file_name
from regard.course.in_studio import OPENINGS, Opening, run_of
from regard.course.lab import Lesson
from regard.course.topics import topics
from regard.course.unfilled import unfilled
from regard.language import default_language
from regard.studio.requests import Body
from regard.studio.runs import Runs
from regard.studio.shown_chapters import (
    origin_of,
    own_lesson,
    packaged_chapter,
    packaged_page,
    shown_chapter,
)
from regard.views.page import page

State = Literal["none", "computing", "failed", "computed"]
WAIT_SECONDS = 10.0
"""Seconds that a process has to end before it is killed."""


class ComputeBody(Body):
    """How a chapter is computed."""

    quick: bool = False
    """Whether only a tenth of the steps is trained, with one seed."""


class OpenBody(Body):
    """A figure whose run is to be opened."""

    figure: str = Field(max_length=100)


@dataclass(eq=False)
class Courses:
    """The chapters, and the process that computes one. Its results are those of `regard course`,
    beside the folder of the runs."""

    folder: Path
    runs: Runs
    _process: subprocess.Popen[bytes] | None = None
    _computing: int | None = None
    """The chapter that the process computes, or has computed last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_routes(self, api: FastAPI) -> None:
        api.get("/course")(self.list_chapters)
        api.get("/course/{number}")(self.show_chapter)
        api.get("/course/{number}/page")(self.page_of)
        api.post("/course/{number}", status_code=201)(self.compute)
        api.post("/course/{number}/stop")(self.stop)
        api.post("/course/{number}/open")(self.open_figure)

    def list_chapters(self) -> list[dict[str, Any]]:
        """The chapters, with how far each is."""
        return [self._summary(chapter) for chapter in chapters(default_language())]

    def show_chapter(self, number: int) -> dict[str, Any]:
        """A chapter: its report with what was computed here, or else with the findings of the
        package; without either its text."""
        chapter = self._found(number)
        language = default_language()
        told = self._result(number)
        if told:
            report = told[language]
        elif own := self._own_lesson(chapter):
            report = shown_chapter(own)
        else:
            report = packaged_chapter(chapter.name, language)
        return {
            **self._summary(chapter),
            "report": report,
            "sections": [] if report else unfilled(chapter),
            "openings": self._openings(chapter),
            "topics": [
                {"name": topic.name(language), "means": topic.means[language]}
                for topic in topics()
                if topic.chapter == number
            ],
        }

    def page_of(self, number: int) -> dict[str, str]:
        """The chapter as one page that works from a file."""
        chapter = self._found(number)
        language = default_language()
        path = self.folder / f"{number}.{language}.html"
        if self._result(number) and path.exists():
            html: str | None = path.read_text(encoding="utf-8")
        elif own := self._own_lesson(chapter):
            html = page(own.report())
        else:
            html = packaged_page(chapter.name, language)
        if html is None:
            raise HTTPException(404, "this chapter is not computed yet")
        return {"name": f"chapter-{path.name}", "html": html}

    def compute(self, number: int, body: ComputeBody) -> dict[str, Any]:
        """Compute a chapter."""
        chapter = self._found(number)
        with self._lock:
            if self._runs():
                what = f"chapter {self._computing} is being computed: wait for it, or stop it"
                raise HTTPException(503, what, {"Retry-After": "60"})
            self.folder.mkdir(parents=True, exist_ok=True)
            extent = "quick" if body.quick else "whole"
            command = [sys.executable, "-m", "regard.studio.course_process", str(number)]
            with (self.folder / f"{number}.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, str(self.folder.absolute()), extent], stdout=log, stderr=log
                )
            self._computing = number
        return self._summary(chapter)

    def stop(self, number: int) -> dict[str, Any]:
        """Stop the computation; what is trained already is used again."""
        with self._lock:
            if self._computing != number or not self._runs():
                raise HTTPException(409, "this chapter is not being computed")
            self.close()
            self._computing = None
        return self._summary(self._found(number))

    def open_figure(self, number: int, body: OpenBody) -> dict[str, str]:
        """The run and the input of a figure, which then is among the studio's runs; or an example
        of the package that shows much the same."""
        opening = OPENINGS.get(self._found(number).name, {}).get(body.figure)
        folder = opening and run_of(opening, self.folder / "runs")
        if opening and folder:
            self.runs.added[folder.name] = folder
            return {"run": folder.name, "view": opening.view, "text": opening.text}
        if opening and opening.example in self.runs.examples:
            return {"run": opening.example, "view": opening.view, "text": ""}
        raise HTTPException(404, "the run of this figure is not here: compute the chapter")

    def _openings(self, chapter: Chapter) -> dict[str, str]:
        """What each figure opens: `run`, its own; the name of an example; or nothing yet."""

        def opened(opening: Opening) -> str:
            if run_of(opening, self.folder / "runs"):
                return "run"
            return opening.example if opening.example in self.runs.examples else ""

        return {figure: opened(one) for figure, one in OPENINGS.get(chapter.name, {}).items()}

    def close(self) -> None:
        """End the process, if there is one, and those of its seeds."""
        if not self._runs() or self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.terminate()
        self._process.terminate()
        try:
            self._process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _found(self, number: int) -> Chapter:
        for chapter in chapters(default_language()):
            if chapter.number == number:
                return chapter
        raise HTTPException(404, "there is no such chapter")

    def _summary(self, chapter: Chapter) -> dict[str, Any]:
        state = self._state(chapter)
        opening = chapter.text.partition("\n")[2].strip().partition("\n\n")[0]
        told = self._result(chapter.number) if state == "computed" else None
        lines = self._log(chapter.number) if state in ("computing", "failed") else []
        return {
            "number": chapter.number,
            "name": chapter.name,
            "title": chapter.title,
            "opening": opening if "{{" not in opening else "",
            "state": state,
            "quick": bool(told and told["quick"]),
            "packaged": None if state == "computed" else origin_of(chapter.name),
            "trained": sum(line.startswith("training the run") for line in lines),
            "message": lines[-1] if lines else "",
        }

    def _state(self, chapter: Chapter) -> State:
        if self._computing == chapter.number and self._process is not None:
            code = self._process.poll()
            if code is None:
                return "computing"
            if code:
                return "failed"
        known = self._result(chapter.number) or self._own_lesson(chapter)
        return "computed" if known else "none"

    def _own_lesson(self, chapter: Chapter) -> Lesson | None:
        """The chapter with what `regard course` has found in this folder."""
        path = self.folder / "runs" / FINDINGS_FOLDER / file_name(chapter)
        if not path.is_file():
            return None
        return own_lesson(path, path.stat().st_mtime_ns, chapter.name, default_language())

    def _result(self, number: int) -> dict[str, Any] | None:
        path = self.folder / f"{number}.json"
        if not path.exists():
            return None
        told: dict[str, Any] = json.loads(path.read_bytes())
        return told if {*LANGUAGES} <= {*told} else None

    def _log(self, number: int) -> list[str]:
        path = self.folder / f"{number}.log"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        printed: list[str] = self.runs.public([line for line in lines if line.strip()])
        return printed
