"""`explain` for models of one text: GPT, BERT, ELMo, LSTM, and a model under a head, also by
leaving words out: what a label, number, choice, tag or answer loses without each word."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

import regard as api
from command_line import succeed
from raw_cases import Runs, Tree
from regard.layers.attention import recording
from regard.runs import Run
from regard.tasks.occlusion import without
from regard.text.normalise import word_spans
from regard.views.explanation import ViewOptions
from regard.views.occlusion import Occlusion
from regard.views.report import Bars, Table
from texts import TEXTS

TEXT = "The old fox saw the mouse."
GAPS = "The [MASK] saw the [MASK]."


def explained(run: Path, text: Any = TEXT, **options: Any) -> Any:
    return api.explain(run, text, **options)


@pytest.mark.parametrize("name", ["gpt", "gpt-pre", "bert"])
def test_every_attention_by_layer_and_head(runs: Runs, name: str) -> None:
    found = explained(runs[name], padding=2)
    with torch.inference_mode(), recording() as recorded:
        found.model.states(found.batch)
    weights = recorded.by_name(found.model)
    attentions = found.of_kind("encoder" if name == "bert" else "decoder")
    assert [attention.layer for attention in attentions] == [1, 2]
    real = len(attentions[0].keys.texts) - 2
    for attention in attentions:
        assert np.array_equal(attention.weights, weights[attention.name][0].numpy())
        assert attention.weights.shape == (2, real + 2, real + 2)
        seen = [
            [k < real and (name == "bert" or k <= q) for k in range(real + 2)] for q in range(real)
        ]
        assert attention.visible[:real].tolist() == seen


@pytest.mark.parametrize("name", ["gpt", "lstm", "elmo"])
def test_next_tokens_are_those_that_the_language_model_expects(runs: Runs, name: str) -> None:
    found, tokenizer = explained(runs[name]), Run.open(runs[name]).tokenizers["text"]
    ids = tokenizer.encode(TEXT)
    assert list(found.target.texts) == tokenizer.pieces([*ids, tokenizer.end])
    with torch.inference_mode():
        states_LD = (
            found.model(found.batch).hidden_BTD[0]
            if name == "elmo"
            else found.model.states(found.batch)[0]
        )
        logits = found.model.readout(states_LD).double().tolist()
    for step, row, token in zip(found.steps, logits, [*ids, tokenizer.end], strict=True):
        exponentials = [math.exp(value) for value in row]
        assert step.probability == pytest.approx(exponentials[token] / sum(exponentials), rel=1e-4)
        assert step.rank == 1 + sum(value > row[token] for value in row)


def test_what_a_masked_model_expects_in_the_gaps_is_what_predict_fills_in(runs: Runs) -> None:
    found = explained(runs["bert"], GAPS)
    [filled] = succeed("predict", runs["bert"], GAPS, "--json").jsons
    assert found.output == filled["output"]
    assert [step.token for step in found.steps] == [gap["tokens"][0] for gap in filled["masks"]]
    expected = [gap["probabilities"][0] for gap in filled["masks"]]
    assert [step.probability for step in found.steps] == pytest.approx(expected, rel=1e-4)
    assert explained(runs["bert"]).steps == ()
    found = explained(runs["bert"], ("The fox saw.", "It ran."))  # two segments
    tokens = found.source.texts
    first = tokens.index("[SEP]") + 1
    assert found.batch.segments_BL[0].tolist() == [0] * first + [1] * (len(tokens) - first)
    assert tokens.count("[SEP]") == 2


@pytest.mark.parametrize(("name", "place"), [("bert", 0), ("gpt", -1)])
def test_heads_are_the_rows_of_one_token(runs: Runs, name: str, place: int) -> None:
    found = explained(runs[name])
    [picture] = found.select(ViewOptions("heads")).heat_maps()
    first, second = found.attentions.values()
    assert picture.rows == [
        "layer 1, head 1",
        "layer 1, head 2",
        "layer 2, head 1",
        "layer 2, head 2",
    ]
    assert picture.values.tolist() == [
        *first.weights[:, place].tolist(),
        *second.weights[:, place].tolist(),
    ]
    [third] = found.select(ViewOptions("heads", layer=2, step=3)).heat_maps()
    assert third.values.tolist() == second.weights[:, 2].tolist()
    [merged] = found.select(ViewOptions("heads", words=True)).heat_maps()
    assert merged.values.shape == (4, len(first.keys.starts))
    assert merged.values.sum(1) == pytest.approx(np.ones(4), abs=1e-5)


def test_a_rollout_of_one_stack(runs: Runs) -> None:
    """Abnar & Zuidema 2020: R_2 = (A_2 + I) / 2 (A_1 + I) / 2."""
    for found in (explained(runs["gpt"]), explained(runs["bert"])):
        first, second = (one.weights.mean(0, dtype=np.float64) for one in found.attentions.values())
        identity = np.eye(len(first))
        [rolled] = found.select(ViewOptions(found.view, rollout=True)).heat_maps()
        assert rolled.values == pytest.approx(
            (second + identity) / 2 @ (first + identity) / 2, abs=1e-7
        )


@pytest.mark.parametrize("name", ["gpt", "gpt-pre", "bert"])
def test_the_numbers_are_what_the_next_layer_reads(runs: Runs, name: str) -> None:
    found = explained(runs[name])
    worked = found.select(ViewOptions(layer=1, head=2, step=3)).worked()
    recorded = found.attentions["blocks.0.self_attention"].weights[1, 2]
    assert worked.weights_K.tolist() == pytest.approx(recorded.tolist(), abs=1e-6)
    block, read = found.model.get_submodule("blocks.0"), list[torch.Tensor]()
    before = block.feed_forward_norm if name == "gpt-pre" else block.feed_forward
    hook = before.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    with torch.inference_mode(), recording():
        found.model.states(found.batch)
    hook.remove()
    torch.testing.assert_close([*worked.after.values()][-1], read[0][0, 2], rtol=1e-5, atol=1e-6)
    assert (worked.step is None) == (name == "bert")
    (x_D, *_), (that_D, total_D, *_) = worked.query.values(), worked.after.values()
    assert [*worked.after][1].startswith("x + that")
    torch.testing.assert_close(total_D, x_D + that_D)
    assert ("LayerNorm(x), what looks" in worked.query) == (name == "gpt-pre")


def test_the_mix_of_layers_by_hand(runs: Runs) -> None:
    """gamma * sum_j softmax(w)_j h_j of one token; a classifier answers otherwise when a layer is
    left out."""
    for name in ("elmo", "elmo-classifier"):
        found = explained(runs[name]).select(ViewOptions("mix", step=2))
        worked, changed = found.worked(), found.worked([1.0, None, 0.5])
        base = found.model.base if name == "elmo-classifier" else found.model
        with torch.inference_mode():
            h_ND = torch.stack(base.layers_of(found.batch))[:, 0, 1]
        gamma = found.mix["gamma"]
        e = [math.exp(1.0), 0.0, math.exp(0.5)]
        assert changed.weights_K.tolist() == pytest.approx([one / sum(e) for one in e])
        for one in (worked, changed):
            [by_model_D] = one.after.values()
            assert by_model_D.tolist() == pytest.approx(
                (gamma * one.weights_K @ h_ND).tolist(), abs=1e-5
            )
        if name == "elmo-classifier":
            assert worked.outcome[0].probability == pytest.approx(
                max(found.prediction["probabilities"].values())
            )
            assert changed.outcome[0].probability != pytest.approx(
                worked.outcome[0].probability, abs=1e-7
            )


def test_a_bare_elmo_mixes_its_layers_evenly_and_a_task_learns_how(runs: Runs) -> None:
    out = succeed("explain", runs["elmo"], TEXT).out
    assert "gamma 1.000; even, since no task has learned it" in out
    assert out.count("0.333") == 3
    even = dict.fromkeys(("embeddings", "layer 1", "layer 2"), pytest.approx(1 / 3))
    assert explained(runs["elmo"]).mix == {"shares": even, "gamma": 1.0, "learned": False}
    learned = explained(runs["elmo-classifier"])
    e = [math.exp(value) for value in learned.model.mix.s.tolist()]
    assert [*learned.mix["shares"].values()] == pytest.approx([one / sum(e) for one in e])
    assert (learned.mix["gamma"], learned.mix["learned"]) == (
        pytest.approx(learned.model.mix.gamma.item()),
        True,
    )


def test_how_a_language_model_goes_on_is_explained_too(runs: Runs) -> None:
    given = explained(runs["gpt"], "The old fox", target="saw the mouse.")
    assert given.target == explained(runs["gpt"]).target
    prompt, longer = (
        explained(runs["gpt"], "The old", beam=beam).target.texts for beam in (None, 2)
    )
    assert longer[: len(prompt) - 1] == prompt[:-1]
    assert len(longer) > len(prompt)


@pytest.mark.parametrize("name", ["bert-classifier", "gpt-classifier"])
def test_a_classifier_is_explained_with_its_answer(runs: Runs, name: str) -> None:
    text = "The film was good."
    found = succeed("explain", runs[name], text, "--json").json
    [predicted] = succeed("predict", runs[name], text, "--json").jsons
    assert found["output"] == predicted["output"]
    assert found["probabilities"] == pytest.approx(predicted["probabilities"], abs=1e-4)
    assert len(found["attentions"]) == 2
    assert " by head" in succeed("explain", runs[name], text, "--view", "heads").out
    assert (
        "LayerNorm(x + that)"
        in succeed("explain", runs[name], text, "--numbers", "--step", "3").out
    )


# Words left out

CLASSIFIERS = [f"{kind}-classifier" for kind in ("bilstm", "elmo", "bert")]


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
    "plot was  superb, again.",
    "The was  superb, again.",
    "The plot  superb, again.",
    "The plot was , again.",
    "The plot was  superb again.",
    "The plot was  superb,.",
    "The plot was  superb, again",
]
PET = ["big cat\tdog", "a cat\tdog", "a big\tdog"]  # without "dog" no text is left
CHOICES = [
    "cat\tb dog\tc dog",
    "a\tb dog\tc dog",
    "a cat\tdog\tc dog",
    "a cat\tb\tc dog",
    "a cat\tb dog\tdog",
    "a cat\tb dog\tc",
]


@pytest.mark.parametrize(
    ("name", "text", "words", "shorter"),
    [
        *(
            (name, "The plot was  superb, again.", "The plot was superb , again .", PLOT)
            for name in CLASSIFIERS
        ),
        ("regression", "a big cat\tdog", "a big cat", PET),
        ("choices", "a cat\tb dog\tc dog", "a cat b dog c dog", CHOICES),
    ],
)
def test_a_text_without_a_word(
    runs: Runs, name: str, text: str, words: str, shorter: list[str]
) -> None:
    found = occluded(runs[name], text)
    given = [tuple(one.split("\t")) for one in (text, *shorter)]
    whole, *others = [one.to_json() for one in api.predict(runs[name], given)]
    answer = "the number" if name == "regression" else f"P({whole['output']})"

    def value(prediction: Tree) -> float:
        return float(
            prediction["output"]
            if name == "regression"
            else prediction["probabilities"][whole["output"]]
        )

    assert (found.answers, found.words) == ((answer,), tuple(words.split()))
    assert found.values == pytest.approx((value(whole),), abs=1e-6)
    assert found.falls_WA[:, 0].tolist() == pytest.approx(
        [value(whole) - value(one) for one in others], abs=1e-6
    )
    assert np.abs(found.falls_WA).max() > 0


def test_tags_without_each_other_word(runs: Runs) -> None:
    words, run = ["Anna", "moved", "to", "Oslo"], Run.open(runs["tagging"])
    found, model = occluded(runs["tagging"], " ".join(words)), run.load_model()
    task: Any = run.task
    [whole] = task.answers.tag_words(model, task.encoding.encode_words([words]))
    tags = whole.best
    assert found.answers == tuple(
        f"{word}/{task.encoding.labels[tag]}" for word, tag in zip(words, tags, strict=True)
    )
    for out in range(4):
        [rest] = task.answers.tag_words(
            model, task.encoding.encode_words([words[:out] + words[out + 1 :]])
        )
        p = [
            math.exp(rest.log_p_WY[place - (place > out), tags[place]])
            for place in range(4)
            if place != out
        ]
        p.insert(out, found.values[out])  # the fall of a word's own tag is 0
        assert found.falls_WA[out] == pytest.approx(np.array(found.values) - p, abs=1e-6)


CONTEXT = "Ben lives in New York. Anna Kim is a baker."


@pytest.mark.parametrize("threshold", [1000.0, -1000.0])
def test_an_answer_to_a_question_without_each_word(runs: Runs, threshold: float) -> None:
    """The answer moves with what is left out before it; its own words stay. A threshold makes the
    model silent."""
    run = Run.open(runs["questions"])
    evaluation = run.recipe.evaluation.model_copy(update={"threshold": threshold})
    run = run.under(run.recipe.model_copy(update={"evaluation": evaluation}))
    text = f"Where does Ben live?\t{CONTEXT}"
    found = api.explain(run, tuple(text.split("\t"))).occlusion
    assert found is not None
    model = run.load_model()
    search = run.recipe.search.model_copy(update={"nbest": 10_000})
    task: Any = run.under(run.recipe.model_copy(update={"search": search})).task
    [whole] = task.predict(model, task.inputs.typed_lines([text]))
    silent = threshold < 0
    assert whole.none is silent
    start, end = (0, 0) if silent else whole.answers[0][0]
    asked = ["Where", "does", "Ben", "live", "?"]
    about = [
        span
        for span in word_spans(CONTEXT, "punctuation")
        if silent or not start <= span.start < end
    ]
    assert found.words == (*asked, *(CONTEXT[slice(*span)] for span in about))
    assert found.answers == ("P(no answer)" if silent else f"P({whole.output})",)
    for row, span in enumerate(about, len(asked)):
        left = without(CONTEXT, span)
        moved = len(CONTEXT) - len(left) if span.start < start else 0
        [other] = task.predict(model, task.inputs.typed_lines([f"Where does Ben live?\t{left}"]))
        scores = {tuple(place): score for place, score in other.answers}
        score = other.log_p_none if silent else scores.get((start - moved, end - moved), -math.inf)
        assert found.values[0] - found.falls_WA[row, 0] == pytest.approx(math.exp(score), abs=1e-6)


@pytest.mark.parametrize("name", ["bilstm-classifier", "tagging"])
def test_every_format(runs: Runs, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    text = "Anna moved to Oslo" if name == "tagging" else "The plot was superb."
    shown = succeed("explain", runs[name], text, "--json").json[
        "occlusion"
    ]  # the view of a model without attention
    assert np.array(shown["falls"]).shape == (len(shown["words"]), len(shown["answers"]))
    for suffix in (".svg", ".html"):
        out = succeed("explain", runs[name], text, "--out", tmp_path / f"a{suffix}").out
        assert out == f"drawn: {tmp_path / f'a{suffix}'}\n", "the picture is in the file alone"
        assert shown["words"][0] in (tmp_path / f"a{suffix}").read_text(encoding="utf-8")


def test_bars_are_as_long_as_the_falls_and_a_tenth_of_the_value_at_least() -> None:
    found = Occlusion(
        ("P(good)",), (0.9,), ("not", "영화", "a"), np.array([[0.8], [-0.4], [-0.0001]])
    )
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
    table, _ = Occlusion(
        ("Kim/PER", "lives/O"), (0.9, 0.8), ("Kim", "lives", "here"), falls_WA
    ).parts("")
    assert isinstance(table, Table)
    texts = [[cell.text for cell in row] for row in table.cells]
    assert texts == [
        ["Kim/PER", "0.900", "lives +0.300"],
        ["lives/O", "0.800", "here +0.400  Kim +0.200"],
    ]


@pytest.mark.parametrize(("name", "text"), [("bilstm-classifier", "superb"), ("tagging", "Anna")])
def test_a_single_word_has_its_answer_and_no_fall(runs: Runs, name: str, text: str) -> None:
    found = succeed("explain", runs[name], text, "--json").json
    assert (found["occlusion"]["words"], found["occlusion"]["falls"]) == ([], [])
    shown = succeed("explain", runs[name], text).out
    assert "There is no word that can be left out: the text would be empty without it." in shown
    values = found["probabilities"] if name != "tagging" else {found["occlusion"]["answers"][0]: 1}
    for answer in values:
        assert re.search(rf"{answer}\W+ 0\.\d\d\d", shown)


def test_it_is_a_view_of_models_with_attention_and_of_elmo(runs: Runs) -> None:
    text, bert = "The plot was superb.", runs["bert-classifier"]
    for options in ({}, {"view": "occlusion"}):
        first, second = api.explain(bert, text, **options).report().sections
        bars, table = first.parts
        assert isinstance(bars, Bars)
        assert isinstance(table, Table)
        assert (table.columns, {row[0] for row in table.rows}) == (
            ["label", "probability"],
            {"positive", "negative"},
        )
        assert second.heading == "Attention"
    assert "occlusion" not in succeed("explain", bert, text, "--view", "encoder", "--json").json
    assert "occlusion" not in succeed("explain", bert, "superb", "--json").json, (
        "there is only one word"
    )
    shown = succeed("explain", bert, text, "--head", "1").out
    assert shown == succeed("explain", bert, text, "--head", "1", "--view", "encoder").out
    assert "gamma" in succeed("explain", runs["elmo-classifier"], "superb").out
    assert succeed(
        "explain", runs["elmo-classifier"], "so superb", "--view", "occlusion"
    ).out.startswith("how much P(")
