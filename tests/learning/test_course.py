"""The course: every chapter's text fits its experiment in both languages, and its claims hold for
three seeds.

`REGARD_SLOW=1 pytest tests/learning/test_course.py` trains what the chapters say; without it they
train a few steps.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jinja2 import meta

from command_line import fail, succeed
from regard.course import LANGUAGES, chapters, find_chapter
from regard.course.lab import FIGURE_PLACE, QUICK_NOTICE, Lab, Lesson, template_environment
from regard.course.seq2seq import word_by_word
from regard.views.page import page
from regard.views.report import Cell

slow = pytest.mark.skipif(not os.environ.get("REGARD_SLOW"), reason="minutes: set REGARD_SLOW=1")
NAMES = [chapter.name for chapter in chapters("en")]
ONLY_FULL = {"one vector, backwards", "words"}
"""Labels of figures that only `--full` has."""
Numbers = Mapping[str, Any]

CLAIMS: dict[str, dict[str, Callable[[Numbers], bool]]] = {
    "seq2seq": {
        "one vector holds short sequences": lambda n: n["plain_short"] > 0.85,
        "but not long ones": lambda n: n["plain_long"] < n["attention_long"] - 0.25,
        "the last letters suffer": lambda n: n["last_letter"] < n["first_letter"] - 0.05,
        "the distance counts": lambda n: (
            n["copy_backwards_loss"] < n["copy_forwards_loss"]
            and n["reverse_forwards_loss"] < n["reverse_backwards_loss"]
        ),
        "teacher forcing learns faster": lambda n: n["faster"] == n["seeds"] == 3,
        "and writes better, though": lambda n: n["rate_1_exact"] > n["rate_0_exact"] + 0.2,
        "a mistake misleads it more": lambda n: (
            n["exposed"] == 3
            and n["rate_1_after_own"] < min(n["rate_0_after_own"], n["rate_1_after_right"]) - 0.1
        ),
        "gradients vanish": lambda n: n["rnn_gradient"] < 1e-6,
        "but not through attention": lambda n: n["attention_gradient"] > 1e6 * n["rnn_gradient"],
        "the vector holds what was read last": lambda n: n["probe_last"] > n["probe_first"],
        "distractors hurt beyond the training": lambda n: n["beyond"] < n["attention_beyond"] - 0.1,
        "attention beats the dictionary": lambda n: (
            n["fr_attention"] > n["fr_word_by_word"] and n["ko_attention"] > n["ko_word_by_word"]
        ),
    },
    "attention": {
        "the recipes translate": lambda n: (
            (n["korean"], n["english"]) == ("잘 지내?", "I am a student")
        ),
        "the worked weights are the softmax": lambda n: n["softmax_error"] < 1e-5,
        "every score learns": lambda n: min(n["left_to_right_exact"], n["both_ways_exact"]) > 0.7,
        "an encoder that reads both ways is looked at where the letter is": lambda n: (
            n["both_ways_right"] > n["both_ways_most_after"]
        ),
        "one that reads left to right after it": lambda n: (
            n["left_to_right_after"] > n["left_to_right_most_right"]
        ),
        "dot is faster": lambda n: min(n["additive_times"], n["additive_times_narrow"]) > 2,
        "Korean changes the order": lambda n: n["ko_order"] < n["fr_order"] - 0.15,
    },
    "search": {
        "the beam finds what greedy search misses": lambda n: n["beam_log_p"] > n["greedy_log_p"],
        "raw log P makes outputs short": lambda n: n["raw_ratio"] < n["mean_ratio"] - 0.1,
        "and worse": lambda n: n["raw_bleu"] < n["mean_bleu"],
        "a beam helps": lambda n: n["beam_helps"] and n["beam_3_bleu"] > n["greedy_bleu"] + 1,
        "wide beams add little": lambda n: abs(n["widest_bleu"] - n["beam_10_bleu"]) < 1,
        "a beam removes search errors": lambda n: n["wider_search_errors"] < n["search_errors"] / 3,
        "training removes model errors": lambda n: (
            n["late_beam_bleu"] > n["wider_bleu"] + 20 and n["late_p"] < 0.01
        ),
    },
    "self_attention": {
        "projections help": lambda n: (
            n["plain_exact"] < n["projected_exact"] - 0.2 and n["multi_head_exact"] > 0.8
        ),
        "scaling helps wide keys": lambda n: n["scaled_loss"] < n["unscaled_loss"] - 0.3,
        "the worked matrix is the model's": lambda n: n["matrix_error"] < 1e-5,
        "a head looks at the mirror": lambda n: n["mirror"] > 0.3,
        "the pronoun is right, and attention does not show why": lambda n: (
            n["pronoun_right"] > 0.9 and n["follows"] < 0.7 and n["first_layer_follows"] == 0
        ),
        "the decoder asks other words than the pronoun": lambda n: (
            n["from_it"] < n["from_nouns"] + n["from_adjective"]
        ),
        "most heads cost little": lambda n: (
            n["cheap_heads"] >= 6 and n["dearest"] < n["before"] - 0.05
        ),
    },
    "transformer": {
        "no order without positions": lambda n: (
            n["reverse_none"] < 0.3 < 0.8 < n["reverse_sinusoidal"]
        ),
        "but sorting needs none": lambda n: n["sort_none"] > n["reverse_none"] + 0.4,
        "translation loses less": lambda n: (
            5 < n["translation_sinusoidal"] - n["translation_none"] < 40
        ),
        "the worked block is the model's": lambda n: n["forward_error"] < 1e-4,
        "looking ahead cheats": lambda n: (
            n["look_ahead_loss"] < 0.05 and n["look_ahead_bleu"] < n["masked_bleu"] - 50
        ),
        "depth needs residuals": lambda n: n["deep_without_residual"] > n["deep_whole"] + 0.5,
        "and norms": lambda n: n["diverged"] or n["deep_without_norm"] > n["deep_whole"] + 0.3,
        "LayerNorm does not mix sentences": lambda n: (
            n["layer_norm_change"] < 1e-6 < 0.1 < n["batch_norm_change"]
        ),
    },
    "memory": {
        "one sentence needs one hop": lambda n: n["where_1"] > 0.85,
        "two need several": lambda n: n["things_3"] > n["things_1"] + 0.15,
        "hops read the facts": lambda n: n["last_hop"] > 0.4,
        "a captioner looks at what it names": lambda n: n["own_thing"] > 2 * n["other_thing"],
        "regions help": lambda n: n["attention_captions"] > n["plain_captions"] + 0.05,
    },
    "words": {
        "static vectors have one meaning": lambda n: (
            max(n["ko_word2vec_before"], n["en_word2vec_before"]) < 0.65
        ),
        "BERT tells meanings apart": lambda n: (
            min(n["ko_bert_before"], n["ko_bert_after"], n["en_bert_after"]) > 0.85
        ),
        "and 배 from 배": lambda n: n["ko_same"] > n["ko_other"] + 0.03,
        "GPT knows what came before": lambda n: min(n["ko_gpt_before"], n["en_gpt_before"]) > 0.85,
        "but not what comes after": lambda n: max(n["ko_gpt_after"], n["en_gpt_after"]) < 0.65,
        "ELMo reads both sides": lambda n: min(n["ko_elmo_after"], n["en_elmo_after"]) > 0.75,
        "neighbours follow the sentence": lambda n: (
            n["ko_bert_nearest"] > n["ko_word2vec_nearest"] + 0.2
        ),
        "a task that needs context mixes layers": lambda n: n["meaning_static"] < n["word_static"],
    },
    "pretraining": {
        "few labels gain most": lambda n: (
            max(n["elmo_few"], n["gpt_few"]) > n["scratch_few"] + 0.03
        ),
        "and more labels catch up": lambda n: n["scratch_many"] > n["scratch_few"],
        "names need both sides": lambda n: (
            max(n["gpt_tuned"], n["lstm_lm_tuned"]) < n["elmo_tuned"] - 0.01
        ),
        "15 %, and 80 % of these": lambda n: (
            abs(n["chosen_share"] - 0.15) < 0.01 and abs(n["mask_share"] - 0.8) < 0.02
        ),
        "unmasked tokens are copied": lambda n: n["all_kept_loss"] < 0.1 < 1 < n["paper_loss"],
        "next sentences alone teach no words": lambda n: n["next_masked"] < n["both_masked"] - 0.2,
        "the store sells milk": lambda n: n["store_milk"] > n["store_monkeys"],
        "looking ahead cheats": lambda n: n["seen_loss"] < 0.1 < n["hidden_loss"],
    },
    "fine_tuning": {
        "tags gain": lambda n: n["tags_tuned"] > n["tags_scratch"] + 0.05,
        "questions gain": lambda n: n["questions_tuned"] > n["questions_scratch"] + 0.05,
        "attention is not what is needed": lambda n: n["correlation"] < 0.7,
        "short filters guess": lambda n: n["short_near"] > 0.9 and n["short_far"] < 0.7,
        "attention reaches far": lambda n: min(n["attention_far"], n["long_far"]) > 0.9,
    },
}


def test_every_chapter_has_claims_in_every_language() -> None:
    numbered = {
        language: [(one.number, one.name) for one in chapters(language)] for language in LANGUAGES
    }
    assert numbered["en"] == numbered["ko"]
    assert [*CLAIMS] == NAMES


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
    numbers = meta.find_undeclared_variables(template_environment().parse(text))
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
        cells = json.loads(Lesson(chapter, "ko", Lab(runs, quick=True), unknown).notebook(runs))[
            "cells"
        ]
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
    return replace(lesson, chapter=chapters("en")[lesson.chapter.number - 1], language="en")


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_fits_its_experiment_in_both_languages(
    name: str, opened: Callable[[str], Opened]
) -> None:
    lesson, _, _ = opened(name)
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
    assert {*lesson.words} <= labels(parts) | ONLY_FULL


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
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_claims_of_a_chapter_hold(
    name: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = Path(os.environ.get("REGARD_COURSE_RUNS") or tmp_path_factory.getbasetemp() / "course")
    numbers = import_module(f"regard.course.{name}").experiment(Lab(runs, seed)).numbers
    assert [claim for claim, holds in CLAIMS[name].items() if not holds(numbers)] == [], dict(
        numbers
    )


def test_the_command_lists_runs_once_and_refuses(
    opened: Callable[[str], Opened], course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the runs of a chapter it trains those that are not there."""
    opened("fine_tuning")
    shutil.rmtree(*course.glob("runs/questions-scratch-*"))
    monkeypatch.chdir(course.parent)
    monkeypatch.setenv("REGARD_LANG", "ko")
    assert succeed("course", "--json").json[0]["title"] == chapters("ko")[0].title
    first = succeed("course", "9", "--quick", "--json")
    assert first.json["quick"]
    assert first.err.count("학습 중: ") == 1
    assert '<html lang="ko">' in Path("course/9.html").read_text(encoding="utf-8")
    again = succeed("course", "9", "--quick", "--lang", "en", "--out", "course/9.ipynb")
    assert "training the run" not in again.err
    assert "numbers mean nothing" in again.out
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
    assert "allowed: 1 (seq2seq)" in fail("course", "10")[0]
