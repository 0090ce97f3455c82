"""Findings of the course as files: what was written is read again, and the packaged ones fit their
chapters."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.course import LANGUAGES, chapters, find_chapter
from regard.course import findings as files
from regard.course.findings import PACKAGED, file_name, fingerprint, read, store, with_fingerprint
from regard.course.lab import STORED_NOTICE, packaged_lesson, stored_lesson
from regard.layers.attention import attend
from regard.views.diagrams.diagram import Block, Component, Diagram
from regard.views.report import Cell, Curves, HeatMap, HeatMaps, ImageMap, Series, Table

RUN_AGAIN = "run: regard course {0} && scripts/package_findings course/runs {0}"
MAX_PACKAGED_BYTES = 700_000


def findings_of_one_seed() -> dict[str, Any]:
    return {
        "share": 1 / 3,
        "gone": math.nan,
        "count": 3,
        "holds": True,
        "word": "잘 지내?",
        "table": Table(["name", "p"], [["a", Cell(0.25, ".2f")], ["b", None]], formats=["", ".3f"]),
        "curves": Curves([Series("one", [1.0, 2.0], [0.5, 0.25])], "x", "y", x_ticks=[(1.0, "1")]),
        "maps": HeatMaps(
            [HeatMap(["a"], ["b", "c"], np.array([[0.25, 0.75]]), choice=("left", "1"))],
            ["side", "n"],
        ),
        "picture": ImageMap(
            np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
            (1, 2),
            ["red"],
            np.array([[0.5, 0.5]]),
            ["l", "r"],
        ),
        "drawn": Diagram(
            10,
            20,
            [Block("h", "h_1", "source", 1, 2, 3, 4, "encoder", values=[0.5])],
            [],
            [],
            [],
            [],
            {"encoder": Component("Encoder", functions=[attend])},
        ),
    }


def test_findings_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = findings_of_one_seed()
    path = store(tmp_path, find_chapter("search", "en"), [found, found], [1, 2], 60.4)
    stored = read(path)
    first, second = stored.by_seed
    assert (stored.origin.seeds, stored.origin.seconds, stored.origin.outdated) == (
        (1, 2),
        60,
        False,
    )
    assert first["share"] == pytest.approx(1 / 3, rel=1e-4)
    assert math.isnan(first["gone"])
    assert (first["count"], first["holds"], first["word"]) == (3, True, "잘 지내?")
    for name in ("table", "curves", "maps", "picture", "drawn"):
        assert first[name].to_json() == found[name].to_json(), name
    assert {*first} - {*second} == {"maps", "picture", "drawn"}, "only the first seed's are shown"


def test_the_same_findings_are_the_same_bytes(tmp_path: Path) -> None:
    found, chapter = findings_of_one_seed(), find_chapter("search", "en")
    first = store(tmp_path / "one", chapter, [found], [1], 60).read_bytes()
    assert first == store(tmp_path / "two", chapter, [found], [1], 60).read_bytes()


def test_a_repetition_with_trained_runs_keeps_the_longer_time(tmp_path: Path) -> None:
    chapter = find_chapter("search", "en")
    for seconds in (480, 20):
        path = store(tmp_path, chapter, [{}], [1], seconds)
    assert read(path).origin.seconds == 480


def test_findings_of_another_experiment_are_outdated(tmp_path: Path) -> None:
    path = store(tmp_path, find_chapter("search", "en"), [{"share": 0.5}], [1], 1)
    told = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(told | {"experiment": "0"}).encode()))
    assert read(path).origin.outdated
    path.write_bytes(with_fingerprint(path.read_bytes(), fingerprint("search")))
    assert not read(path).origin.outdated
    assert read(path).by_seed == [{"share": 0.5}]


CODE = {
    "chapter": '''
"""A chapter."""
from regard.course.lab import Lab, shared
STEPS = {steps}
CLAIMS = {{"a": {claim}}}
def experiment(lab):
    """{docstring}"""
    return shared(STEPS)  # {comment}
''',
    "lab": '''
"""Shared."""
def shared(n):
    return n * {factor}
def other(n):
    return {other}
''',
}
BEFORE = {"steps": 1, "claim": 1, "docstring": "a", "comment": "b", "factor": 2, "other": 3}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"steps": 2}, True),
        ({"factor": 3}, True),
        ({"claim": 5}, False),
        ({"docstring": "another", "comment": "another"}, False),
        ({"other": 4}, False),
    ],
)
def test_only_code_that_the_experiment_uses_makes_findings_outdated(
    change: dict[str, Any], differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(values: dict[str, Any]) -> str:
        monkeypatch.setattr(files, "import_module", lambda name: name.rpartition(".")[2])
        monkeypatch.setattr(files.inspect, "getsource", lambda name: CODE[name].format(**values))
        files._shared_definitions.cache_clear()
        return fingerprint("chapter")

    try:
        assert (key(BEFORE) != key(BEFORE | change)) == differs
    finally:
        files._shared_definitions.cache_clear()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("number", [one.number for one in chapters("en")])
def test_packaged_findings_have_what_their_chapter_asks_for(number: int, language: str) -> None:
    """Numbers may be outdated, which the page then says; but none that the text tells is missing."""
    chapter = find_chapter(str(number), language)
    if not (PACKAGED / file_name(chapter)).is_file():
        pytest.skip(f"chapter {number} has no packaged findings; {RUN_AGAIN.format(number)}")
    lesson = packaged_lesson(chapter, language)
    assert lesson is not None, f"chapter {number}: {RUN_AGAIN.format(number)}"
    report = lesson.report()
    assert report.note.startswith(STORED_NOTICE[language].partition("{")[0])
    assert lesson.origin is not None
    assert lesson.origin.seeds == (1, 2, 3)


def test_packaged_findings_are_small() -> None:
    assert sum(path.stat().st_size for path in PACKAGED.glob("*")) <= MAX_PACKAGED_BYTES


def test_a_chapter_whose_findings_lack_a_number_is_shown_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter = find_chapter("search", "en")
    path = store(tmp_path, chapter, [{"share": 0.5}], [1], 1)
    monkeypatch.setattr("regard.course.lab.packaged", lambda _: read(path))
    assert packaged_lesson(chapter, "en") is None
    with pytest.raises(KeyError):
        stored_lesson(chapter, "en", read(path))
