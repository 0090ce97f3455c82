"""The drawing of every kind of model: its boxes are the run's layers, positions and heads, its numbers
those that the model computes, and its equations those of the code."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import regard
from command_line import fail, succeed
from regard.data.corpora import generate
from regard.models import MODELS
from regard.views.diagrams import DIAGRAMS, diagram, diagram_of_vectors, explains_nothing
from regard.views.diagrams.diagram import Diagram
from regard.views.diagrams.svg import svg_file
from regard.views.explanation import Explanation

BLOCKS = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 16}
SIDES = {"encoder_layers": 3, "decoder_layers": 2, "width": 8, "heads": 2, "feed_forward": 16}
BPE = {"kind": "bpe", "vocabulary": 400, "joint": False}
WORD = {"kind": "word", "vocabulary": 300}
PAIRS = ("translation", "phrases-en-ko", BPE)
TEXTS = ("language_modeling", "tales-en", WORD)
MASKED = ("masked_language_modeling", "tales-en", WORD)
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "rnn": (*PAIRS, {"kind": "rnn", "cell": "gru", "embedding": 8, "hidden": 12, "layers": 2}),
    "rnn-both-ways": (
        *PAIRS,
        {
            "kind": "rnn",
            "embedding": 8,
            "hidden": 12,
            "bidirectional": True,
            "context": "every_step",
        },
    ),
    "bahdanau": (*PAIRS, {"kind": "bahdanau", "embedding": 8, "hidden": 12, "attention": 10}),
    "luong": (*PAIRS, {"kind": "luong", "embedding": 8, "hidden": 12, "score": "scaled_dot"}),
    "self_attention": (*PAIRS, {"kind": "self_attention", "encoder": "plain", **SIDES}),
    "transformer": (*PAIRS, {"kind": "transformer", "norm": "post", **SIDES}),
    "captioner": (
        "captioning",
        "shapes",
        WORD,
        {"kind": "captioner", "width": 8, "images": {"size": 16}},
    ),
    "captioner-plain": (
        "captioning",
        "shapes",
        WORD,
        {"kind": "captioner", "decoder": "plain", "width": 8, "images": {"size": 16}},
    ),
    "captioner-transformer": (
        "captioning",
        "shapes",
        WORD,
        {
            "kind": "captioner",
            "decoder": "transformer",
            "images": {"size": 16},
            **BLOCKS,
        },
    ),
    "memory_network": (
        "story_answering",
        "stories-en",
        {},
        {"kind": "memory_network", "width": 8, "hops": 2},
    ),
    "memory_lm": (*TEXTS, {"kind": "memory_lm", "width": 8, "hops": 2, "memory": 4}),
    "lstm_lm": (*TEXTS, {"kind": "lstm_lm", "embedding": 8, "hidden": 12, "layers": 2}),
    "elmo": (*TEXTS, {"kind": "elmo", "words": "tokens", "width": 8, "hidden": 12, "layers": 2}),
    "gpt": (*TEXTS, {"kind": "gpt", **BLOCKS}),
    "word2vec": (*TEXTS, {"kind": "word2vec", "width": 8, "window": 2}),
    "glove": (*TEXTS, {"kind": "glove", "width": 8, "window": 2}),
    "fasttext": (
        *TEXTS,
        {"kind": "fasttext", "width": 8, "buckets": 50, "loss": "hierarchical_softmax"},
    ),
    "bert": (*MASKED, {"kind": "bert", **BLOCKS, "layers": 7}),
    "mpnet": (*MASKED, {"kind": "mpnet", **BLOCKS}),
    "deberta": (*MASKED, {"kind": "deberta", **BLOCKS}),
    "modernbert": (*MASKED, {"kind": "modernbert", **BLOCKS}),
    "bag_of_words": ("classification", "reviews-en", WORD, {"kind": "bag_of_words"}),
    "bag_of_counts": (
        "classification",
        "reviews-en",
        WORD,
        {"kind": "bag_of_words", "weights": "counts"},
    ),
    "ngram": (*TEXTS, {"kind": "ngram", "order": 3}),
    "unigram": (*TEXTS, {"kind": "ngram", "order": 1, "smoothing": "add_k"}),
    "bilstm": (
        "classification",
        "reviews-en",
        WORD,
        {"kind": "bilstm", "embedding": 8, "hidden": 6},
    ),
    "cnn": (
        "classification",
        "reviews-en",
        WORD,
        {"kind": "cnn", "embedding": 8, "maps": 4, "widths": [2, 3]},
    ),
}
TEXT_OF_TASK = {
    "translation": "How are you?",
    "captioning": next(iter(generate("shapes", 1, 1, "test")))[0],
    "story_answering": "Sandra grabbed the book.\nDaniel went back to the hallway.\nWhere is Daniel?",
    "language_modeling": "The fox saw the dog",
    "masked_language_modeling": "The fox saw the [MASK]",
    "classification": "the film was good , but the music was bad .",
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Diagram]]:
    """Each kind, trained for one step: its explanation, or its model, and its drawing."""
    root = tmp_path_factory.mktemp("drawn")
    found = {}
    for name, (task, corpus, tokenizer, model) in CASES.items():
        recipe: dict[str, Any] = {
            "task": task,
            "data": {"train": {"corpus": corpus, "size": 60}, "validation": {"split": 0.1}},
            "model": model,
            "training": {"steps": 1, "device": "cpu", "decode": 0, "samples": 0, "seed": 3},
            **({"tokenizer": tokenizer} if tokenizer else {}),
        }
        regard.train(recipe, out=root / name, quiet=True)
        run = regard.load(root / name)
        text = TEXT_OF_TASK[task]
        if explains_nothing(run):
            found[name] = (run.load_model(), diagram_of_vectors(run, text))
        else:
            explanation = run.explain(text)
            found[name] = (explanation, diagram(explanation))
    return found


def states(drawing: Diagram, component: str) -> list[Any]:
    return [block for block in drawing.blocks if block.component == component]


def rows(drawing: Diagram, prefix: str) -> dict[str, int]:
    """How many boxes each row has whose component begins so."""
    names = [block.component for block in drawing.blocks if block.component.startswith(prefix)]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def test_every_model_of_the_line_is_drawn() -> None:
    assert {*MODELS} == {*DIAGRAMS}
    assert {model["kind"] for *_, model in CASES.values()} == {*DIAGRAMS}


@pytest.mark.parametrize("name", CASES)
def test_a_drawing_holds_together(drawn: dict[str, tuple[Any, Diagram]], name: str) -> None:
    """Everything is inside of it, nothing has two names, boxes do not cover each other, each has a
    component with code, and the film reaches everything."""
    drawing = drawn[name][1]
    keys = [block.key for block in drawing.blocks]
    assert len(keys) == len({*keys})
    for block in drawing.blocks:
        assert block.width / 2 <= block.x <= drawing.width - block.width / 2
        assert block.height / 2 <= block.y <= drawing.height - block.height / 2
        assert drawing.components[block.component].functions
        assert 0 <= block.step < len(drawing.moments)
        for other in drawing.blocks:
            apart = abs(block.x - other.x) >= (block.width + other.width) / 2 - 1
            above = abs(block.y - other.y) >= (block.height + other.height) / 2 - 1
            assert apart or above or block is other, (block.key, other.key)
    for word in drawing.words:
        assert 0 <= word.x <= drawing.width
        assert 0 <= word.y <= drawing.height
    for moment in drawing.moments:
        assert {*moment.looks, moment.block} <= {*keys, ""}
        assert moment.claims
    assert {line.query for line in drawing.lines if line.weight is not None} <= {*keys}
    tree = ElementTree.fromstring(svg_file(drawing))
    assert len(tree.findall(".//{*}g")) == len(drawing.blocks)
    for component in drawing.to_json()["components"].values():
        for code in component["code"]:
            lines = (
                Path(regard.__file__).parent.parent.joinpath(code["file"]).read_text().splitlines()
            )
            assert lines[code["first"] - 1].strip() == code["text"].splitlines()[0].strip()


@pytest.mark.parametrize("name", CASES)
def test_a_drawing_has_an_equation(drawn: dict[str, tuple[Any, Diagram]], name: str) -> None:
    components = drawn[name][1].components.values()
    assert sum(bool(component.equations) for component in components) >= 2
    assert all("=" in line or "(" in line for one in components for line in one.equations)


@pytest.mark.parametrize(
    ("name", "query", "kind"),
    [
        ("bahdanau", "c-0", "alignment"),
        ("luong", "c-0", "alignment"),
        ("transformer", "encoder-2-1", "encoder"),
        ("self_attention", "encoder-1-0", "encoder"),
        ("gpt", "text-2-3", "decoder"),
        ("bert", "text-7-1", "encoder"),
        ("deberta", "text-1-2", "encoder"),
    ],
)
def test_lines_are_the_weights_of_the_run(
    drawn: dict[str, tuple[Any, Diagram]], name: str, query: str, kind: Any
) -> None:
    explanation, drawing = drawn[name]
    *_, layer, place = [0, *map(int, re.findall(r"\d+", query))]
    attention = explanation.of_kind(kind)[max(0, layer - 1)]
    weights = attention.weights.mean(0)[place]
    lines = [line.weight for line in drawing.lines if line.query == query and line.weight]
    assert lines == pytest.approx([float(weight) for weight in weights if weight >= 0.03])


def test_states_are_those_of_the_model(drawn: dict[str, tuple[Any, Diagram]]) -> None:
    """The Transformer's last decoder row is what the readout reads (post-norm has no norm after
    it), and c is the last state of the RNN's encoder."""
    explanation, drawing = drawn["transformer"]
    with torch.inference_mode():
        hidden_TD = explanation.forward()[0].numpy()
    values = np.array([block.values for block in states(drawing, "decoder-2")])
    np.testing.assert_allclose(values, hidden_TD[: len(values)], rtol=1e-4, atol=1e-6)
    explanation, drawing = drawn["rnn"]
    [c] = states(drawing, "c")
    assert c.values == pytest.approx(states(drawing, "encoder-2-0")[-1].values)
    assert len(c.values) == 12


def test_rows_and_columns_are_those_of_the_config(drawn: dict[str, tuple[Any, Diagram]]) -> None:
    explanation, drawing = drawn["transformer"]
    words, written = len(explanation.source.texts), len(explanation.steps)
    assert rows(drawing, "encoder-") == {f"encoder-{n}": words for n in range(4)}
    assert rows(drawing, "decoder-") == {f"decoder-{n}": written for n in range(3)}
    labels = {frame.label for frame in drawing.frames}
    assert labels == {"encoder block × 3", "decoder block × 2"}
    inside = [block.key for block in drawing.blocks if block.key.startswith("in-encoder")]
    assert [key.removeprefix("in-encoder-") for key in inside] == [
        "self_attention",
        "self_attention-norm",
        "feed_forward",
        "feed_forward-norm",
    ]
    explanation, drawing = drawn["bert"]  # seven layers: two at each end are drawn
    count = len(explanation.source.texts)
    assert rows(drawing, "text-") == {f"text-{n}": count for n in (0, 1, 2, 6, 7)}
    explanation, drawing = drawn["rnn-both-ways"]
    assert [*rows(drawing, "encoder-")] == ["encoder-1-0", "encoder-1-1"]
    explanation, drawing = drawn["memory_network"]
    assert [block.key for block in states(drawing, "hop")] == ["hop-1", "hop-2"]
    assert [*rows(drawn["cnn"][1], "filters-")] == ["filters-1", "filters-2"]


def test_pre_norm_has_the_norm_first(drawn: dict[str, tuple[Any, Diagram]]) -> None:
    drawing = drawn["gpt"][1]
    keys = [block.key for block in drawing.blocks if block.key.startswith("in-block")]
    assert keys == [
        "in-block-self_attention-norm",
        "in-block-self_attention",
        "in-block-feed_forward-norm",
        "in-block-feed_forward",
    ]


def test_the_film_writes_word_by_word(drawn: dict[str, tuple[Any, Diagram]]) -> None:
    """First the source is read, then one token after the other is written."""
    explanation, drawing = drawn["bahdanau"]
    count = len(explanation.source.texts)
    roles = [moment.role for moment in drawing.moments]
    assert roles == ["source"] * count + ["target"] * len(explanation.steps)
    contexts = states(drawing, "c")
    assert [block.step for block in contexts] == [*range(count, count + len(contexts))]
    for moment, step in zip(drawing.moments[count:], explanation.steps, strict=True):
        assert f"{step.probability:.2f}" in moment.claims[0]
        assert [p for _, p in moment.candidates] == [p for _, p in step.candidates]


def test_an_explanation_in_korean(
    drawn: dict[str, tuple[Any, Diagram]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_LANG", "ko")
    for name, (explanation, drawing) in drawn.items():
        told = drawing.to_json()
        texts = [moment["claim"] for moment in told["moments"]]
        texts += [component["title"] for component in told["components"].values()]
        assert [text for text in texts if not re.search("[가-힣]", text)] == [], name
        assert isinstance(explanation, Explanation) == (
            name not in ("word2vec", "glove", "fasttext")
        )


def test_the_command_draws_a_file(tiny_run: Path, tmp_path: Path) -> None:
    """As a picture of its own, or as a page with the film; a figure of another kind is refused."""
    for name in ("model.svg", "model.html"):
        out = tmp_path / name
        assert succeed("explain", tiny_run, "a b", "--view", "diagram", "--out", out).out == (
            f"drawn: {out}\n"
        )
        text = out.read_text(encoding="utf-8")
        assert text.count("data-key") > 5
        assert "http://" not in re.sub(r"http://www\.w3\.org/[\w/]+", "", text)
    ElementTree.parse(tmp_path / "model.svg")
    [problem] = fail("explain", tiny_run, "a b", "--view", "diagram")
    assert problem.startswith("--view diagram: a drawing needs a file")
