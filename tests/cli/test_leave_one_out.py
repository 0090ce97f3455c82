"""`explain` by leaving words out: what a label, number, choice, tag or answer loses without each word."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import regard as api
from command_line import fail, succeed
from raw_cases import Runs, Tree
from regard.runs import Run
from regard.tasks.task import inputs_of
from regard.text.normalise import word_spans
from regard.views.explain import MOST_WORDS, Occlusion, without
from regard.views.report import Bars, Table
from texts import TEXTS

MODELS = [f"{kind}-classifier" for kind in ("bilstm", "elmo", "bert")]


def occluded(run: Path, text: str) -> Occlusion:
    found = api.explain(run, tuple(text.split("\t")), view="occlusion")
    assert found.occlusion is not None
    return found.occlusion


@given(TEXTS)
def test_what_is_left_are_the_other_words(text: str) -> None:
    spans = word_spans(text, "whitespace")
    words = [text[slice(*span)] for span in spans]
    for number, span in enumerate(spans):
        left = without(text, span)
        assert left.split() == " ".join(words[:number] + words[number + 1 :]).split()
        assert len(text) - len(left) in (len(words[number]), len(words[number]) + 1)


PLOT = [
    "plot was  superb, again.", "The was  superb, again.", "The plot  superb, again.", "The plot was , again.",
    "The plot was  superb again.", "The plot was  superb,.", "The plot was  superb, again",
]  # fmt: skip
PET = ["big cat\tdog", "a cat\tdog", "a big\tdog"]  # without "dog" no text is left
CHOICES = ["cat\tb dog\tc dog", "a\tb dog\tc dog", "a cat\tdog\tc dog", "a cat\tb\tc dog", "a cat\tb dog\tdog",
           "a cat\tb dog\tc"]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words", "shorter"), [
    *((name, "The plot was  superb, again.", "The plot was superb , again .", PLOT) for name in MODELS),
    ("regression", "a big cat\tdog", "a big cat", PET),
    ("choices", "a cat\tb dog\tc dog", "a cat b dog c dog", CHOICES),
])  # fmt: skip
def test_a_text_without_a_word(runs: Runs, name: str, text: str, words: str, shorter: list[str]) -> None:
    found = occluded(runs[name], text)
    given = [tuple(one.split("\t")) for one in (text, *shorter)]
    whole, *others = [one.to_json() for one in api.predict(runs[name], given)]
    answer = "the number" if name == "regression" else f"P({whole['output']})"

    def value(prediction: Tree) -> float:
        return float(prediction["output"] if name == "regression" else prediction["probabilities"][whole["output"]])

    assert (found.answers, found.words) == ((answer,), tuple(words.split()))
    assert found.values == pytest.approx((value(whole),), abs=1e-6)
    assert found.falls_WA[:, 0].tolist() == pytest.approx([value(whole) - value(one) for one in others], abs=1e-6)
    assert np.abs(found.falls_WA).max() > 0


def test_tags_without_each_other_word(runs: Runs) -> None:
    words, run = ["Anna", "moved", "to", "Oslo"], Run.open(runs["tagging"])
    found, model, task = occluded(runs["tagging"], " ".join(words)), run.load_model(), run.task
    [whole] = task.tag_words(model, task.encode_words([words]))
    tags = whole.argmax(-1)
    assert found.answers == tuple(f"{word}/{task.labels[tag]}" for word, tag in zip(words, tags, strict=True))
    for out in range(4):
        [log_p] = task.tag_words(model, task.encode_words([words[:out] + words[out + 1 :]]))
        p = [math.exp(log_p[place - (place > out), tags[place]]) for place in range(4) if place != out]
        p.insert(out, found.values[out])  # the fall of a word's own tag is 0
        assert found.falls_WA[out] == pytest.approx(np.array(found.values) - p, abs=1e-6)


CONTEXT = "Ben lives in New York. Anna Kim is a baker."


@pytest.mark.parametrize("threshold", [1000.0, -1000.0])
def test_an_answer_to_a_question_without_each_word(runs: Runs, threshold: float) -> None:
    """The answer moves with what is left out before it; its own words stay. A threshold makes the model silent."""
    run = Run.open(runs["questions"])
    evaluation = run.recipe.evaluation.model_copy(update={"threshold": threshold})
    run = run.under(run.recipe.model_copy(update={"evaluation": evaluation}))
    text = f"Where does Ben live?\t{CONTEXT}"
    found = api.explain(run, tuple(text.split("\t"))).occlusion
    assert found is not None
    model = run.load_model()
    task = run.task.with_search(run.recipe.search.model_copy(update={"nbest": 10_000}))
    [whole] = task.predict(model, inputs_of([text]))
    silent = threshold < 0
    assert whole.none is silent
    start, end = (0, 0) if silent else whole.answers[0][0]
    asked = ["Where", "does", "Ben", "live", "?"]
    about = [span for span in word_spans(CONTEXT, "punctuation") if silent or not start <= span.start < end]
    assert found.words == (*asked, *(CONTEXT[slice(*span)] for span in about))
    assert found.answers == ("P(no answer)" if silent else f"P({whole.output})",)
    for row, span in enumerate(about, len(asked)):
        left = without(CONTEXT, span)
        moved = len(CONTEXT) - len(left) if span.start < start else 0
        [other] = task.predict(model, inputs_of([f"Where does Ben live?\t{left}"]))
        scores = {tuple(place): score for place, score in other.answers}
        score = other.log_p_none if silent else scores.get((start - moved, end - moved), -math.inf)
        assert found.values[0] - found.falls_WA[row, 0] == pytest.approx(math.exp(score), abs=1e-6)


@pytest.mark.parametrize("name", ["bilstm-classifier", "tagging"])
def test_every_format(runs: Runs, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    text = "Anna moved to Oslo" if name == "tagging" else "The plot was superb."
    shown = succeed("explain", runs[name], text, "--json").json["occlusion"]
    assert np.array(shown["falls"]).shape == (len(shown["words"]), len(shown["answers"]))
    lines = succeed("explain", runs[name], text).out.splitlines()
    first = shown["answers"] if name == "tagging" else shown["words"]
    numbered = [line.split()[0] for line in lines[1:] if re.search(r"-?\d\.\d{3}", line)]
    assert [one for one in numbered if one not in ("positive", "negative")] == first
    assert {"positive", "negative"} & {*numbered} == (set() if name == "tagging" else {"positive", "negative"})
    for suffix in (".svg", ".html"):
        succeed("explain", runs[name], text, "--out", tmp_path / f"a{suffix}")
        assert shown["words"][0] in (tmp_path / f"a{suffix}").read_text(encoding="utf-8")


def test_bars_are_as_long_as_the_falls_and_a_tenth_of_the_value_at_least() -> None:
    found = Occlusion(("P(good)",), (0.9,), ("not", "영화", "a"), np.array([[0.8], [-0.4], [-0.0001]]))
    [bars] = found.parts("a text")
    assert isinstance(bars, Bars)
    assert bars.title == "how much P(good) = 0.900 falls without each word · a text"
    assert (bars.categories, bars.longest) == (["not", "영화", "a"], 0.8)
    assert [f"{fall:.3f}" for fall in bars.series["fall"]] == ["0.800", "-0.400", "0.000"]
    [bars] = Occlusion(("P(good)",), (0.9,), ("a", "film"), np.array([[0.009], [0.0]])).parts("")
    assert isinstance(bars, Bars)
    assert bars.longest == pytest.approx(0.09)


def test_tags_are_listed_with_the_words_that_they_depend_on_most() -> None:
    falls_WA = np.array([[0.0, 0.2], [0.3, 0.0], [0.0001, 0.4]])
    table, _ = Occlusion(("Kim/PER", "lives/O"), (0.9, 0.8), ("Kim", "lives", "here"), falls_WA).parts("")
    assert isinstance(table, Table)
    assert table.rows == [["Kim/PER", "0.900", "lives +0.300"], ["lives/O", "0.800", "here +0.400  Kim +0.200"]]


def test_it_is_a_view_of_models_with_attention_and_of_elmo(runs: Runs) -> None:
    text, bert = "The plot was superb.", runs["bert-classifier"]
    for options in ({}, {"view": "occlusion"}):
        first, second = api.explain(bert, text, **options).report().sections
        bars, table = first.parts
        assert isinstance(bars, Bars)
        assert isinstance(table, Table)
        assert (table.columns, {row[0] for row in table.rows}) == (["label", "probability"], {"positive", "negative"})
        assert second.heading == "Attention"
    assert "occlusion" not in succeed("explain", bert, text, "--view", "encoder", "--json").json
    assert "occlusion" not in succeed("explain", bert, "superb", "--json").json, "there is only one word"
    shown = succeed("explain", bert, text, "--head", "1").out
    assert shown == succeed("explain", bert, text, "--head", "1", "--view", "encoder").out
    assert "gamma" in succeed("explain", runs["elmo-classifier"], "superb").out
    assert succeed("explain", runs["elmo-classifier"], "so superb", "--view", "occlusion").out.startswith("how much P(")


@pytest.mark.parametrize(("arguments", "message"), [
    (["superb"], "explain: without its only word the text is empty (give two words or more"),
    (["good " * (MOST_WORDS + 1)],
     f"explain: the text has {MOST_WORDS + 1} words, each of which would be left out once (at most {MOST_WORDS}: "),
    (["so good", "--head", "1"], "--head: it does not change occlusion (it changes alignment, "),
])  # fmt: skip
def test_what_cannot_be_left_out(runs: Runs, arguments: list[str], message: str) -> None:
    assert fail("explain", runs["bilstm-classifier"], *arguments)[0].startswith(message)
