"""Messages are English in the code; messages.ko.yaml has their Korean, and a text that it lacks is
shown in English. scripts/untranslated lists these: here nothing has to be translated."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import regard
from command_line import fail, succeed
from places import ROOT
from regard import language
from regard.language import (
    PARTICLES,
    REPORT_SECTIONS,
    korean,
    particle_after,
    shown,
    shown_comments,
    with_values,
)
from regard.views.labels import Metrics
from regard.views.report import (
    Cell,
    Curves,
    HeatMap,
    HeatMaps,
    Report,
    Section,
    Series,
    Table,
    in_language,
)

PACKAGE = Path(regard.__file__).parent
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "untranslated"))
CATALOGUE = SCRIPT["CATALOGUE"]
TEXTS: dict[str, dict[str, str]] = CATALOGUE["texts"]
KOREAN = {english: text for section in TEXTS.values() for english, text in section.items()}
FROM_CODE = ("commands", "messages", "reports", "recipes")
"""Sections whose English is found in the code; the code composes the others of parts, or libraries
write them."""


def test_every_entry_belongs_to_a_text_of_the_code() -> None:
    """A rewording needs no Korean: delete the old entry, or rename its key if the Korean still
    says the same."""
    english = SCRIPT["english_messages"]()
    entries = [*CATALOGUE["as_written"], *(text for name in FROM_CODE for text in TEXTS[name])]
    assert [text for text in entries if text not in english] == [], (
        "delete these lines of messages.ko.yaml, or rename them with their text"
    )
    assert [text for text in TEXTS["fields"] if text not in SCRIPT["field_texts"]()] == []


def test_a_contributor_needs_no_korean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new message is listed with its place, and nothing fails before a release."""
    source = tmp_path / "messages.py"
    source.write_text(
        '"""A docstring is not a message."""\n'
        "def check(count, path):\n"
        '    raise DataError(f"only {count:,} rows in {path!r}", hint="write more of them")\n',
        encoding="utf-8",
    )
    functions = SCRIPT["untranslated"].__globals__
    monkeypatch.setitem(functions, "PACKAGE", tmp_path)
    nodes = [*SCRIPT["message_nodes"](source)]
    assert [(node.lineno, SCRIPT["template"](node)) for node in nodes] == [
        (3, "only {#} rows in {}"),
        (3, "write more of them"),
    ]
    found = [SCRIPT["Untranslated"]("src/regard/messages.py:3", "write more of them")]
    monkeypatch.setitem(functions, "untranslated", lambda: found)
    SCRIPT["main"]()
    monkeypatch.setattr(sys, "argv", ["untranslated", "--release"])
    with pytest.raises(SystemExit, match="1"):
        SCRIPT["main"]()
    monkeypatch.setitem(functions, "untranslated", list)
    SCRIPT["main"]()


def test_translated_documents_are_compared_with_their_originals(tmp_path: Path) -> None:
    page, translation = tmp_path / "data.md", tmp_path / "data.ko.md"
    page.write_text("# Data\n\n- [A](#a)\n\n## A\n\n| a |\n|---|\n", encoding="utf-8")
    assert [*SCRIPT["differences"](page, translation)] == ["the document is not translated"]
    translation.write_text("# 데이터\n\n- [가](#가)\n\n## 가\n\n| 가 |\n|---|\n", encoding="utf-8")
    assert [*SCRIPT["differences"](page, translation)] == []
    translation.write_text("# 데이터\n\n## 가\n\n| 가 |\n|---|\n", encoding="utf-8")
    assert [*SCRIPT["differences"](page, translation)] == ["0 items of lists, but 1 in data.md"]


@pytest.fixture
def untranslated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who asks for Korean, of which there is none yet."""
    monkeypatch.setenv("REGARD_LANG", "ko")
    monkeypatch.setattr(language, "catalogue", lambda names=(): ({}, []))


@pytest.mark.usefixtures("untranslated")
def test_texts_without_korean_are_shown_in_english(tiny_run: Path) -> None:
    assert shown("there is no column 'b'; allowed: a.\nNext: c") == (
        "there is no column 'b'; allowed: a.\nNext: c"
    )
    recipe = (PACKAGE / "recipes" / "dates.yaml").read_text(encoding="utf-8")
    assert shown_comments(recipe) == recipe
    report = Report("Title", [Section("Quality", [Table(["loss"], [[Cell("worse", ours=True)]])])])
    in_korean: Any = in_language(report)
    assert (in_korean.title, in_korean.sections[0].heading) == ("Title", "Quality")
    assert in_korean.sections[0].parts[0].columns == ["loss"]
    assert in_korean.sections[0].parts[0].cells[0][0].text == "worse"
    assert fail("predict", "none") == [
        "none: there is no such run folder (make one with 'regard train RECIPE --out RUN')"
    ]
    assert not re.search("[가-힣]", succeed("compare", tiny_run, tiny_run).out)
    assert recipe.splitlines()[0].removeprefix("# ") in succeed("recipes", "dates").out


def test_no_text_is_entered_twice() -> None:
    entries = [*CATALOGUE["as_written"], *(text for section in TEXTS.values() for text in section)]
    assert sorted(text for text in {*entries} if entries.count(text) > 1) == []


def test_values_of_the_korean_are_those_of_the_english() -> None:
    slots = re.compile(r"\{(\d)t?([가-힣]*)\}")
    for english, text in KOREAN.items():
        count = len(re.findall(r"\{#?\}", english))
        assert all(
            int(number) < count and (not end or end in PARTICLES)
            for number, end in slots.findall(text)
        ), text


def test_each_text_finds_its_own_korean() -> None:
    """A shorter pattern must not take what a longer one is for."""
    others = []
    for section, entries in TEXTS.items():
        for english, text in entries.items():
            values = iter(
                given := [
                    "7" if value == "{#}" else "x" for value in re.findall(r"\{#?\}", english)
                ]
            )
            example = re.sub(r"\{#?\}", lambda _, values=values: next(values), english)
            if korean(
                example, REPORT_SECTIONS if section in REPORT_SECTIONS else ()
            ) != with_values(text, given):
                others.append(english)
    assert others == []


@pytest.mark.parametrize(
    ("word", "particle", "expected"),
    [
        ("문장", "은", "은"),
        ("토큰", "을", "을"),
        ("파일", "으로", "로"),
        ("쌍", "으로", "으로"),
        ("예제", "이", "가"),
        ("'예제'", "과", "와"),
        ("3", "이", "이"),
        ("1", "으로", "로"),
        ("12", "을", "를"),
        ("loss", "을", "을(를)"),
        ("--out", "으로", "(으)로"),
        ("[UNK]", "으로", "로"),
        ("chrF", "을", "를"),
        ("LSTM", "은", "은"),
    ],
)
def test_particles_fit_the_last_letter(word: str, particle: str, expected: str) -> None:
    assert particle_after(word, particle) == expected


SHOWN = {
    "there is no column 'b'": "열 'b'이(가) 없습니다",
    "allowed: 0 to 3, for example data.train.0.file": "가능한 값: 0~3. 예: data.train.0.file",
    "dropped 3 of 10 training pairs: 1 with an empty side (first: a:1), 2 seen before (first: "
    "a:4)": "학습 쌍 10개 중 3개를 제외했습니다: 한쪽이 빈 것 1개 (첫째: a:1), 앞에 이미 나온 것 "
    "2개 (첫째: a:4)",
    "step 50/100  epoch 2  loss 1.234  5,678 tokens/s  about 3 min "
    "left": "스텝 50/100  에포크 2  손실 1.234  5,678 토큰/초  약 3분 남음",
    "step 50/100  epoch 2  loss 1.234  5,678 tokens/s  about 80 s to 2 min "
    "left": "스텝 50/100  에포크 2  손실 1.234  5,678 토큰/초  약 80초~2분 남음",
    "warning    model.dropout=0.9 leaves out 90 % of the values at every step, the model will "
    "hardly learn: 0.1 to 0.5 "
    "is usual": "경고       model.dropout=0.9은 스텝마다 값의 90 %를 빼므로 모델이 거의 학습되지 "
    "않습니다. 보통 0.1~0.5입니다",
    "dropped 1 of 3 training pairs: 1 longer than data.max_length=50 tokens (first: "
    "a:2)": "학습 쌍 3개 중 1개를 제외했습니다: data.max_length=50토큰을 초과한 것 1개 (첫째: a:2)",
    "Proposed by `regard check` for a.en and a.ko: 3 pairs. Made from the recipe "
    "`bahdanau`.": "a.en, a.ko에 대해 `regard check`가 제안한 레시피: 3쌍. `bahdanau` "
    "레시피를 바탕으로 했습니다.",
    "4 texts have several labels in the training data (first: a.tsv:3 and "
    "a.tsv:7)": "학습 데이터의 텍스트 4개에 레이블이 여러 개입니다 (첫째: a.tsv:3, a.tsv:7)",
    "too rare to be in every part: the label 'a' (1), 'b' (1), 96 "
    "more": "너무 드물어 어떤 분할에는 없는 레이블: 'a' (1), 'b' (1), 그 밖에 96개",
    "the label '높음' is not a number": "레이블 '높음'은 수가 아닙니다",
    "how much the number = 4.546 falls without each "
    "word · a": "단어를 하나씩 뺄 때 예측한 수 4.546이 줄어드는 정도 · a",
    "standard input:3": "표준 입력:3",
    "column 'a' is taken for the label; others that may be: b "
    "(label=COLUMN)": "'a' 열을 레이블로 삼았습니다. 다른 후보: b (label=열)",
    "cannot be read as a recipe: it is not text in "
    "UTF-8": "레시피로 읽을 수 없습니다: UTF-8로 된 텍스트가 아닙니다",
    "6 errors are the model's only by the length normalisation, since the model gives the "
    "reference the higher log P: "
    "try a lower "
    "--length-penalty.": "오류 6개는 길이 정규화 때문에 모델 오류가 된 것입니다(log P만 보면 참조 "
    "문장이 더 높습니다). "
    "--length-penalty를 낮춰 보십시오.",
    "60 % model errors, 1 of them because the reference contains unknown tokens, which no search "
    "could write: use a larger vocabulary, or one of sub-words or bytes. No beam, however wide, "
    "would prefer these references.": "오류의 60 %가 모델 오류입니다. 그중 1개는 참조 문장에 모르는 토큰이 있어 "
    "모델 오류가 된 것입니다"
    "(어떤 탐색으로도 생성할 수 없습니다). 더 큰 어휘나 서브워드, 바이트 어휘를 쓰십시오. "
    "빔을 아무리 넓혀도 이 참조 문장을 고르지 않습니다.",
    "note: no such text of ours": "참고: no such text of ours",
    "first\nthe file is empty": "first\n파일이 비어 있습니다",
}


@pytest.mark.parametrize(("english", "expected"), SHOWN.items())
def test_texts_are_shown_in_the_users_language(
    english: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(english) == english
    monkeypatch.setenv("REGARD_LANG", "ko")
    assert shown(english) == expected


def test_only_the_comments_of_a_recipe_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_LANG", "ko")
    for path in sorted((PACKAGE / "recipes").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert yaml.safe_load(shown_comments(text)) == yaml.safe_load(text)
        assert shown_comments(text) != text


def test_of_a_report_only_our_own_texts_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens and names of the data stay, also where the catalogue has such a word."""
    heat_map = HeatMap(
        ["loss", "layer 1, head 2"],
        ["step", "there is no input"],
        np.eye(2),
        "layer 1 · put it back",
    )
    rows = [["loss", Cell("worse", ours=True)], [Cell("worse"), "better"]]
    table = Table(["loss", "put it back"], rows, title="Tests")
    curves = Curves(
        [Series("loss", [0.0], [0.0])],
        "training step",
        "validation BLEU",
        x_ticks=[(0.0, "layer 0")],
    )
    section = Section("Quality", [HeatMaps([heat_map]), table, curves])
    report = Report("put it back", [section], "12 sentences of the test set")
    assert in_language(report) == replace(report, language="en")
    monkeypatch.setenv("REGARD_LANG", "ko")
    found = in_language(report)
    maps, cells, drawn = found.sections[0].parts
    assert (found.language, found.title, found.opening) == (
        "ko",
        "put it back",
        "테스트 데이터 12문장",
    )
    assert found.sections[0].heading == "품질"
    assert isinstance(maps, HeatMaps)
    assert (maps.maps[0].rows, maps.maps[0].columns) == (
        ["loss", "층 1, 헤드 2"],
        ["step", "there is no input"],
    )
    assert maps.maps[0].title == "층 1 · put it back"
    assert isinstance(cells, Table)
    assert [cells.title, *cells.columns] == ["검정", "손실", "put it back"]
    assert [[cell.text for cell in row] for row in cells.cells] == [
        ["loss", "나쁨"],
        ["worse", "better"],
    ]
    classes = Metrics(
        {"classes": {"loss": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "examples": 2}}}
    ).report()
    [measured] = in_language(classes).sections[0].parts
    assert isinstance(measured, Table)
    assert (measured.columns, measured.cells[0][0].text) == (
        ["클래스", "정밀도", "재현율", "F1", "예제"],
        "loss",
    )
    assert isinstance(drawn, Curves)
    assert (drawn.x_label, drawn.y_label, drawn.x_ticks) == (
        "학습 스텝",
        "검증 BLEU",
        [(0.0, "층 0")],
    )


def test_commands_speak_korean_and_write_json_in_english(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help is shown in a process of its own: typer's panels keep the language in which they were
    first drawn."""

    def run(*words: str, columns: int = 100) -> str:
        given = {**os.environ, "REGARD_LANG": "", "LC_ALL": "ko_KR.UTF-8", "COLUMNS": str(columns)}
        command = [sys.executable, "-m", "regard", *words]
        done = subprocess.run(command, capture_output=True, env=given, encoding="utf-8")
        return done.stdout + done.stderr

    help_text = run("train", "--help")
    assert all(
        text in help_text
        for text in ("사용법: ", "옵션", "중단된 학습을 계속합니다.", "[필수]", "이 도움말을")
    )
    assert "…" not in run("--help", columns=80)  # no line is cut
    monkeypatch.setenv("REGARD_LANG", "")
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    assert fail("predict", "none") == [
        "none: 그런 실행 폴더가 없습니다 ('regard train RECIPE --out RUN'으로 만드십시오)"
    ]
    monkeypatch.setenv("REGARD_LANG", "ko")
    assert re.search("[가-힣]", succeed("compare", tiny_run, tiny_run).out)
    assert not re.search("[가-힣]", succeed("compare", tiny_run, tiny_run, "--json").out)
