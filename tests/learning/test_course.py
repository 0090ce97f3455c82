"""The course: every chapter's text fits its experiment in both languages, and its claims hold with
three seeds.

`REGARD_SLOW=1 pytest tests/learning/test_course.py` trains what the chapters say; without it they
train a few steps.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jinja2 import meta

from command_line import fail, succeed
from regard.course import LANGUAGES, chapters, find_chapter
from regard.course.findings import read, store, without_examples
from regard.course.lab import (
    COMMON_WORDS,
    FIGURE_PLACE,
    QUICK_NOTICE,
    Lab,
    Lesson,
    run,
    stored_lesson,
    template_environment,
)
from regard.course.search import bytes_of
from regard.course.seeds import SEED_CHOOSER, Claim, Findings, Verdict, gathered
from regard.course.seq2seq import word_by_word
from regard.course.transformer import crossover
from regard.views.page import page
from regard.views.report import Cell, Curves, HeatMap, HeatMaps, Series, Table

slow = pytest.mark.skipif(not os.environ.get("REGARD_SLOW"), reason="minutes: set REGARD_SLOW=1")
NAMES = [chapter.name for chapter in chapters("en")]
ONLY_FULL = {
    "one vector, backwards",
    "words",
    "BERT without next sentences",
    "2,000 labels",
    "150,000 labels",
}
"""Labels of figures that only `--full` has."""
NOT_HERE = {
    ("seq2seq", "trained_lstm"),
    ("large_models", "next_pair"),
    ("large_models", "next_single"),
    ("large_models", "direction"),
    ("large_models", "replaced"),
    ("attention", "both_ways"),
    ("attention", "scaled_dot"),
    ("attention", "verb"),
    ("transformer", "norm_trained"),
    ("self_attention", "several"),
    ("self_attention", "viewpoints"),
    ("self_attention", "grammar"),
    ("transformer", "slower_cpu"),
    ("pretraining", "bert_ahead"),
    ("fine_tuning", "reviews"),
}
"""Claims of textbooks that need not hold in our experiments: the pages say what came out."""


def claims_of(name: str) -> dict[str, Claim]:
    claims: dict[str, Claim] = import_module(f"regard.course.{name}").CLAIMS
    return claims


def test_every_chapter_has_claims_in_every_language() -> None:
    numbered = {
        language: [(one.number, one.name) for one in chapters(language)] for language in LANGUAGES
    }
    assert numbered["en"] == numbered["ko"]
    assert all(claims_of(name) for name in NAMES)


def test_a_chapter_without_a_translation_is_shown_in_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"01-first.en.md": "# First", "01-first.ko.md": "# 첫째", "02-second.en.md": "# Second"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr("regard.course.files", lambda _: tmp_path)
    assert [(one.number, one.name, one.title) for one in chapters("ko")] == [
        (1, "first", "첫째"),
        (2, "second", "Second"),
    ]
    assert find_chapter("second", "ko").text == "# Second"


def used(text: str) -> tuple[list[str], set[str], int]:
    """The figures, the numbers and the folded questions of a text."""
    numbers = meta.find_undeclared_variables(template_environment().parse(text)) - {"verdict"}
    return (
        [name for _, name in FIGURE_PLACE.findall(text)],
        numbers,
        len(re.findall("^### ", text, re.MULTILINE)),
    )


Opened = tuple[Lesson, list[str], str]
"""What the cells of a notebook have left in `lesson`, the titles of its figures, and its texts."""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("here") / "course"


@pytest.fixture(scope="module")
def opened(course: Path) -> Callable[[str], Opened]:
    """The notebook of a chapter by its name, in Korean, which trains hardly; chapters share runs.
    It is made before it has run, so that each experiment runs only once."""
    runs = course / "runs"
    runs.mkdir(parents=True)

    def run_cells(name: str) -> Opened:
        chapter = find_chapter(name, "ko")
        unknown = dict.fromkeys(used(chapter.text)[1], 1.0)
        verdicts = dict.fromkeys(claims_of(name), Verdict(1, 1))
        lesson = Lesson(chapter, "ko", Lab(runs, share=0.0), unknown, verdicts)
        cells = json.loads(lesson.notebook(runs))["cells"]
        variables: dict[str, Any] = {"__name__": "__main__"}
        titles = list[str]()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(runs)
            for code in (one["source"] for one in cells if one["cell_type"] == "code"):
                if code.startswith("lesson.figure("):
                    titles += [eval(code, variables).sections[0].parts[0].title]
                else:
                    exec(code, variables)
        texts = "".join(one["source"] for one in cells if one["cell_type"] == "markdown")
        return variables["lesson"], titles, texts

    return cache(run_cells)


def in_english(lesson: Lesson) -> Lesson:
    return replace(lesson, chapter=find_chapter(lesson.chapter.name, "en"), language="en")


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_fits_its_experiment_in_both_languages(
    name: str, opened: Callable[[str], Opened], tmp_path: Path
) -> None:
    lesson, _, _ = opened(name)
    found = {key: value for key, value in lesson.found.items() if key != "claims"}
    stored = stored_lesson(
        lesson.chapter, "ko", read(store(tmp_path, lesson.chapter, [found], [1], 1))
    )
    assert labels(stored.found) == labels(lesson.found), "findings can be stored"
    assert stored.text == lesson.text
    english, korean = used(in_english(lesson).chapter.text), used(lesson.chapter.text)
    assert english == korean
    shown = {
        figure for figure in english[0] if ":" not in figure and not figure.startswith("full_")
    }
    parts = {name: value for name, value in lesson.found.items() if name not in lesson.numbers}
    assert shown == {*parts}
    worked_again = [value for name, value in lesson.numbers.items() if name.endswith("_error")]
    assert all(isinstance(value, float) and value < 1e-4 for value in worked_again), lesson.numbers
    for one in (in_english(lesson), lesson):
        html = page(one.report())
        assert f'<html lang="{one.language}">' in html
        assert "<summary>" in html
        assert ("This figure needs JavaScript" in html) == (
            one.language == "en" and "<noscript>" in html
        )
    assert {*lesson.words} - {*COMMON_WORDS["ko"]} <= labels(parts) | ONLY_FULL
    assert {claim.text for claim in claims_of(name).values()} <= {*lesson.words}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_figures_and_texts_of_its_chapter(
    name: str, opened: Callable[[str], Opened]
) -> None:
    lesson, titles, texts = opened(name)
    captions = [
        caption for caption, figure in FIGURE_PLACE.findall(lesson.text) if ":" not in figure
    ]
    assert [
        found for found, caption in zip(titles, captions, strict=True) if caption not in ("", found)
    ] == []
    assert texts.count("<details>") == len(
        re.findall(r"^### |^!\[.*\]\(code:", lesson.text, re.MULTILINE)
    )
    assert QUICK_NOTICE["ko"] in texts


def labels(value: object) -> set[str]:
    """All texts of the parts."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return labels([*value, *value.values()])
    if isinstance(value, list | tuple):
        return {text for one in value for text in labels(one)}
    return labels([*vars(value).values()]) if hasattr(value, "__dataclass_fields__") else set()


def test_a_dictionary_is_learned_from_pairs() -> None:
    pairs = [
        ("the cat", "die Katze"),
        ("the cup", "die Tasse"),
        ("The cat sleeps.", "die Katze schläft."),
    ]
    assert word_by_word(pairs, ["The cup sleeps!"]) == ["die Tasse schläft !"]


@slow
@pytest.mark.parametrize("name", NAMES)
def test_the_claims_of_a_chapter_hold(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    runs = Path(os.environ.get("REGARD_COURSE_RUNS") or tmp_path_factory.getbasetemp() / "course")
    lesson = run(name, runs=runs)
    missed = {key for key, verdict in lesson.verdicts.items() if not verdict.holds}
    assert {(name, key) for key in missed} <= NOT_HERE, lesson.to_json()


def test_a_crossover_is_where_a_ratio_passes_one() -> None:
    """Halfway between 8 and 32 on a logarithmic axis is 16."""
    assert crossover([8, 32], [0.5, 1.5]) == 16
    assert crossover([8, 32, 128], [0.2, 0.4, 0.9]) == 0


def test_the_memory_of_a_state_counts_each_tensor_once() -> None:
    """6 floats of 4 bytes; the view and the second name of the same tensor add nothing."""
    numbers = torch.zeros(6)
    assert bytes_of({"state": (numbers, numbers[:2]), "again": [numbers]}) == 24
    model = torch.nn.Module()
    model.register_buffer("table", torch.zeros(3))
    assert bytes_of([numbers, model.table[:1]], of=model) == 24


def test_numbers_of_several_seeds_become_means_with_ranges() -> None:
    """Worked by hand: the mean of 1, 2 and 6 is 3. Examples of the first seed stay as they are."""
    found = [
        {
            "share": value / 10,
            "steps": 5,
            "table": Table(["name", "score"], [["one", float(value)], ["two", 1.0]]),
            "curves": Curves([Series("one", [0.0], [float(value)])], "x", "y"),
            "words": Table(["word"], [[f"word {value}"]]),
        }
        for value in (1, 2, 6)
    ]
    found[0]["example"] = "only here"
    claims = {
        "large": Claim("It is large.", lambda n: n["share"] > 0.15),
        "never": Claim("It is huge.", lambda n: n["share"] > 1),
    }
    whole, verdicts = gathered(claims, found)
    assert whole["share"] == pytest.approx(0.3)
    assert whole["share"].by_seed == (0.1, 0.2, 0.6)
    assert (whole["steps"], whole["example"]) == (5, "only here")
    assert [[cell.text for cell in row] for row in whole["table"].cells] == [
        ["one", "3.00 (1.00–6.00)"],
        ["two", "1.00"],
    ]
    [line] = whole["curves"].series
    assert (line.y, line.low, line.high) == ([3.0], [1.0], [6.0])
    assert whole["words"].cells[0][0].text == "word 1", "words have no mean"
    assert verdicts["large"].differs
    assert str(verdicts["large"]) == "this differs by seed: it holds with 2 of 3"
    assert verdicts["never"].fails
    text = template_environment().from_string("{{ share|percent }}, {{ steps }}, {{ share }}")
    assert text.render(whole) == "30 % (10–60), 5, 0.3 (0.1–0.6)"
    words = [row[1].text for row in whole["claims"].cells]
    assert words == ["differs by seed", "does not hold here"]


def test_a_page_with_stored_findings_is_written_without_a_run(
    opened: Callable[[str], Opened], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson, _, _ = opened("search")
    found = {key: value for key, value in lesson.found.items() if key != "claims"}
    stored = read(store(tmp_path, lesson.chapter, [found], [1, 2, 3], 60))
    monkeypatch.setattr("regard.course.lab.packaged", lambda _: stored)
    monkeypatch.chdir(tmp_path)
    printed = succeed("course", "3", "--no-run", "--lang", "ko")
    assert "(시드 1~3)" in printed.out
    html = Path("course/3.html").read_text(encoding="utf-8")
    assert "<code>regard course 3</code>" in html
    assert not Path("course/runs").exists()
    assert "--no-run trains nothing" in fail("course", "3", "--no-run", "--quick")[0]
    monkeypatch.setattr("regard.course.lab.packaged", lambda _: None)
    assert "no findings come with this chapter" in fail("course", "3", "--no-run")[0]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Ctrl-C goes to a group of processes")
def test_a_page_can_be_read_while_its_experiment_runs(tmp_path: Path) -> None:
    """Ctrl-C leaves the page with the findings of the package."""
    command = [sys.executable, "-m", "regard", "course", "3", "--lang", "en"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr
    assert "course/3.html can be read now" in process.stderr.readline()
    assert "training the run" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    html = (tmp_path / "course" / "3.html").read_text(encoding="utf-8")
    assert "Computed with regard" in html


def test_heat_maps_that_are_chosen_by_seed_are_put_together() -> None:
    """Others are the first seed's, and findings leave those of later seeds out."""

    def found(seed: int) -> Findings:
        drawn = HeatMap(["a"], ["b"], np.full((1, 1), float(seed)), choice=(str(seed),))
        return {"each": HeatMaps([drawn], [SEED_CHOOSER]), "first": HeatMaps([drawn])}

    by_seed = [found(1), *(without_examples(found(seed)) for seed in (2, 3))]
    whole, _ = gathered({}, by_seed)
    assert [drawn.choice for drawn in whole["each"].maps] == [("1",), ("2",), ("3",)]
    assert [drawn.values.item() for drawn in whole["first"].maps] == [1.0]


def test_the_command_lists_runs_once_and_refuses(
    opened: Callable[[str], Opened], course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the runs of a chapter it trains those that are not there."""
    opened("fine_tuning")
    shutil.rmtree(*course.glob("runs/questions-scratch-*"))
    monkeypatch.chdir(course.parent)
    monkeypatch.setenv("REGARD_LANG", "ko")
    monkeypatch.setattr("regard.course.lab.QUICK_SHARE", 0.0)
    assert succeed("course", "--json").json[0]["title"] == chapters("ko")[0].title
    first = succeed("course", "9", "--quick", "--json")
    assert first.json["quick"]
    assert first.err.count("학습 중: ") == 1
    assert '<html lang="ko">' in Path("course/9.html").read_text(encoding="utf-8")
    again = succeed("course", "9", "--quick", "--lang", "en", "--out", "course/9.ipynb")
    assert "training the run" not in again.err
    assert "A quick run: one seed" in again.out
    notebook = Path("course/9.ipynb").read_text(encoding="utf-8")
    assert Cell(first.json["numbers"]["correlation"]).text in notebook, (
        "the findings stand in its texts"
    )
    monkeypatch.setenv("REGARD_LANG", "en")
    assert "the file exists already" in fail("course", "9", "--out", "course/9.html")[0]
    assert (
        "there is no such folder"
        in fail("course", "9", "--out", "new/deep/9.html", "--full", "none")[0]
    )
    assert Path("new/deep").is_dir(), "the page's folder is made"
    assert "allowed: 0 (text), 1 (seq2seq)" in fail("course", "11")[0]
