"""Every task of labelled texts above every model of texts: the cells of that table that no other
file looks at."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import succeed, write
from labelled_cases import MODELS, QUESTIONS, TAGGING, labelled_batch_of, pretraining, weights_of
from regard.config import kinds_in
from regard.data.dataset import Dataset
from regard.engine.graphs import CapturedLoss
from regard.engine.shapes import with_rounded_shapes
from regard.objectives.labels import (
    ClassCrossEntropy,
    SpanCrossEntropy,
    SquaredError,
    TagCrossEntropy,
)
from regard.recipes.recipe import recipe_of
from regard.runs import Run
from regard.tasks import TASKS
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.training.train import train

KINDS = (
    "word2vec",
    "glove",
    "fasttext",
    "lstm_lm",
    "elmo",
    "gpt",
    "bert",
    "mpnet",
    "deberta",
    "modernbert",
    "bilstm",
    "cnn",
    "transformer",
)
TEXT = "Ben lives in New York. Ben was born in 1990. Ben has a dog."
LEARNED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gpt": ({**QUESTIONS["model"], "kind": "gpt", "norm": "post"}, []),
    "lstm_lm": (
        {
            "kind": "lstm_lm",
            "embedding": 64,
            "hidden": 64,
            "layers": 1,
            "input_dropout": 0.0,
            "output_dropout": 0.0,
        },
        ["training.epochs=6", "training.learning_rate=0.01"],
    ),
    "cnn": ({"kind": "cnn", "preset": "tiny"}, ["training.epochs=2"]),
}
"""Models that answer questions, with what suits them better than the recipe for BERT."""


@pytest.mark.parametrize(
    "task", ["classification", "regression", "multiple_choice", "tagging", "question_answering"]
)
def test_every_task_takes_every_model(task: str) -> None:
    of_texts = set() if task in ("tagging", "question_answering") else {"bag_of_words"}
    assert kinds_in(TASKS[task].models) == set(KINDS) | of_texts


@pytest.fixture(scope="module")
def answerers(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("answerers")
    for kind, (model, overrides) in LEARNED.items():
        recipe = write(folder / f"{kind}.yaml", json.dumps({**QUESTIONS, "model": model}))
        apart = "data.stride=128"  # windows begin where such small models have learned to read
        succeed("train", recipe, *overrides, apart, "--out", folder / kind, "--json")
    return {kind: folder / kind for kind in LEARNED}


@pytest.mark.parametrize("kind", LEARNED)
def test_questions_are_answered_or_left_without_an_answer(
    answerers: dict[str, Path], kind: str
) -> None:
    run = answerers[kind]
    found = succeed("evaluate", run, "--json").json
    assert found["questions"] == 200
    assert found["answerable_exact_match"] > 0.85
    assert found["unanswerable_right"] > 0.6
    asked = [
        f"{question}\t{TEXT}" for question in ("Where does Ben live?", "What does Ben work as?")
    ]
    answered, unanswered = succeed("predict", run, *asked, "--json").jsons
    assert (answered["output"], answered["start"], answered["end"]) == ("New York", 13, 21)
    assert answered["no_answer"] < 0 < unanswered["no_answer"]
    assert (unanswered["output"], unanswered["start"]) == ("", None)


@pytest.mark.parametrize("kind", LEARNED)
def test_a_long_text_is_read_in_windows(answerers: dict[str, Path], kind: str) -> None:
    """The answer stands in the last of several; those before say that they hold none."""
    before = "Ben was born in 1990. Ben has a dog. " * 8
    [found] = succeed(
        "predict", answerers[kind], f"Where does Ben live?\t{before}{TEXT}", "--json"
    ).jsons
    task: Any = Run.open(answerers[kind]).task
    examples = Dataset.of(
        task.encoding, {"context": [before + TEXT], "question": ["Where does Ben live?"]}, str
    )
    windows = task.encoding.windows(examples, 0)
    assert len(windows) > 1
    places = [0 if kind == "cnn" else len(window.row.ids) - 1 for window in windows]
    assert [window.no_answer for window in windows] == places
    assert (found["output"], found["start"]) == ("New York", len(before) + 13)


@pytest.mark.parametrize("kind", LEARNED)
def test_an_answer_is_explained(answerers: dict[str, Path], kind: str) -> None:
    """What the answer loses without a word is what `predict` says of it with and without that
    word."""
    question = f"Where does Ben live?\t{TEXT}"
    answers = succeed(
        "predict", answerers[kind], question, question.replace(" dog", ""), "--json"
    ).jsons
    assert [answer["output"] for answer in answers] == ["New York"] * 2
    p = [math.exp(answer["score"]) for answer in answers]
    explained = succeed("explain", answerers[kind], question, "--view", "occlusion", "--json").json
    occlusion = explained["occlusion"]
    assert (explained["output"], occlusion["answers"]) == ("New York", ["P(New York)"])
    assert occlusion["values"] == pytest.approx([p[0]], abs=1e-4)
    assert occlusion["falls"][occlusion["words"].index("dog")] == pytest.approx(
        [p[0] - p[1]], abs=1e-4
    )


def test_convolutions_find_names(tmp_path: Path) -> None:
    recipe = write(
        tmp_path / "r.yaml", json.dumps({**TAGGING, "model": {"kind": "cnn", "preset": "tiny"}})
    )
    succeed("train", recipe, "training.epochs=3", "--out", tmp_path / "run", "--json")
    assert succeed("evaluate", tmp_path / "run", "--json").json["f1"] > 0.9
    found = succeed("predict", tmp_path / "run", "Anna Kim lives in Paris.").out
    assert found == "[PER Anna Kim] lives in [LOC Paris].\n"


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_answers_are_learned_above_a_language_model(name: str, tmp_path: Path) -> None:
    """Weights are taken over, the first layer stays, the second learns more slowly than the
    head."""
    train(pretraining(MODELS[name]), out=tmp_path / "base", quiet=True)
    tree = {
        name: section for name, section in QUESTIONS.items() if name not in ("model", "tokenizer")
    }
    head = {"freeze": 1, "layer_decay": 0.5, "auxiliary": 0.5}
    tree |= {"data": {**QUESTIONS["data"], "max_length": 48}, "head": head}
    tree["training"] = {
        "init": str(tmp_path / "base"),
        "steps": 2,
        "batch_tokens": 512,
        "device": "cpu",
    }
    recipe = write(tmp_path / "r.yaml", json.dumps(tree))
    printed = succeed("train", recipe, "--out", tmp_path / "run").err
    assert f"weights: those of {tmp_path / 'base'}, step-00000003; new: head.linear\n" in printed
    before, after = weights_of(tmp_path / "base", "best"), weights_of(tmp_path / "run")
    unchanged = {
        key for key in after if key.startswith("base.") and torch.equal(after[key], before[key[5:]])
    }
    first, second = (
        ("base.blocks.0.", "base.blocks.1.")
        if name == "gpt"
        else ("base.layers.0.", "base.layers.1.")
    )
    assert {key for key in after if key.startswith((first, "base.embedding"))} <= unchanged
    assert not [key for key in unchanged if key.startswith(second) and key.endswith("weight")]
    model = Run.open(tmp_path / "run").load_model("last")
    assert {model.rate_of(key) for key in after if key.startswith((second, "head."))} == {0.5, 1.0}


CLASSES = {
    "task": "classification",
    "data": {"train": {"corpus": "reviews-en"}},
    "training": {"steps": 1},
}
ROWS = [[3, 4, 5, 6, 3], [3, 5, 3]]
LABELS: dict[str, Any] = {
    "classification": [0, 1],
    "question_answering": [[1, 2], [0, 0]],
    "tagging": [[-100, 1, 2, 0, -100], [-100, 0, -100, -100, -100]],
}
"""By task: what the rows are."""


def built(task: str, kind: str, **head: Any) -> tuple[Any, Any]:
    """A small model of the task under its objective."""
    tree = {"classification": CLASSES, "question_answering": QUESTIONS, "tagging": TAGGING}[task]
    model = {"kind": kind, "preset": "tiny"} | ({"words": "tokens"} if kind == "elmo" else {})
    labels = {"classification": ["a", "b"], "tagging": ["O", "B-X", "I-X"]}
    head |= {"labels": labels[task]} if task in labels else {}
    recipe = recipe_of({**tree, "model": model, "head": head})
    tokenizer = Tokenizer.train(TokenizerConfig(kind="character"), ["abc"])
    torch.manual_seed(0)
    built_task = TASKS[task](recipe, Tokenizers({"text": tokenizer}))
    built_model = built_task.network.build()
    return built_model, built_task.objective(built_model)


@pytest.mark.parametrize(
    ("task", "kind", "features"),
    [
        *((task, kind, "last") for task in LABELS for kind in KINDS),
        *(("classification", kind, "mix") for kind in ("elmo", "gpt", "bert")),
    ],
)
def test_every_weight_that_learns_has_a_gradient(task: str, kind: str, features: str) -> None:
    """So that several processes, which wait for all gradients, can train together."""
    auxiliary = {"auxiliary": 0.5} if kind in ("lstm_lm", "gpt") and features == "last" else {}
    model, objective = built(task, kind, freeze=0, bilstm=None, features=features, **auxiliary)
    objective.train()(labelled_batch_of(ROWS, LABELS[task]))[0].backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("kind", ["gpt", "lstm_lm"])
def test_the_auxiliary_loss_is_that_of_a_classifier_for_each_answer(kind: str) -> None:
    """L_3 = L_2 + lambda L_1 (Radford et al. 2018, equation 5): a row is an answer of spans, a word
    one of tags."""
    losses = {
        "classification": ClassCrossEntropy,
        "question_answering": SpanCrossEntropy,
        "tagging": TagCrossEntropy,
    }
    for task, loss in losses.items():
        answers = 4 if task == "tagging" else 2
        model, _ = built(task, kind, auxiliary=0.5)
        batch = labelled_batch_of(ROWS, LABELS[task])
        log_p_BLV = model.base.eval().readout(model.states(batch)).log_softmax(-1)
        log_p = [log_p_BLV[0, place, token] for place, token in enumerate([4, 5, 6, 3])]
        log_p += [log_p_BLV[1, place, token] for place, token in enumerate([5, 3])]
        model.head.eval()
        own, both = loss(model), loss(model, auxiliary=0.5)
        both.training, own.training = True, True
        added = -0.5 * answers * torch.stack(log_p).mean()
        torch.testing.assert_close(
            both(batch) - own(batch), torch.stack([added, torch.zeros_like(added)])
        )
        torch.testing.assert_close(both.eval()(batch), own.eval()(batch))


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["gpt", "bert"])
@pytest.mark.parametrize("task", [*LABELS, "weighted", "windows", "numbers"])
def test_filler_changes_neither_the_loss_nor_a_gradient(task: str, kind: str) -> None:
    """A GPU computes rounded batches. Examples that are added have no label; numbers get none."""
    rows = [[3, *[4 + (row + place) % 3 for place in range(row)], 3] for row in range(9)]
    classes = [row % 2 for row in range(9)]
    labels: Any = {
        "question_answering": [[0, min(row, 1)] for row in range(9)],
        "tagging": [[0, 1, *[-100] * 8] for _ in rows],
        "numbers": [0.5 * row for row in range(9)],
    }.get(task, classes)
    owners = None
    if task == "windows":
        rows, owners = rows * 2, [row // 2 for row in range(18)]
    batch = labelled_batch_of(rows, labels, owners)
    model, objective = built(task if task in LABELS else "classification", kind, bilstm=None)
    if task == "weighted":
        objective = ClassCrossEntropy(model, torch.tensor([1.0, 3.0]))
    if task == "numbers":
        objective = SquaredError(model)
    objective.double().eval()
    losses = []
    for shaped in (batch, with_rounded_shapes(batch, 11)):
        objective.zero_grad()
        loss_2 = objective(shaped)
        loss_2[0].backward()
        gradients = [
            weight.grad.clone() for weight in objective.parameters() if weight.grad is not None
        ]
        losses.append((loss_2, gradients))
    assert shaped.keeps_shape
    assert not batch.keeps_shape
    added = 0 if task == "numbers" else 2 if task == "windows" else 1
    assert shaped.text.ids_BL.shape == (len(rows) + added, 10)
    torch.testing.assert_close(*losses)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["gpt", "bert"])
@pytest.mark.parametrize("task", LABELS)
def test_a_captured_step_under_a_head_has_the_gradients_of_a_plain_one(
    task: str, kind: str
) -> None:
    model, objective = built(task, kind, bilstm=None)
    objective.cuda().eval()

    def loss(batch: Any, factor: Any) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            sums_2: torch.Tensor = objective(batch.unnamed())
        (sums_2[0] * factor).backward()
        return sums_2.detach()

    captured = CapturedLoss(loss, objective.parameters())
    for rows in (ROWS, [[3, 4, 5, 6, 3], [3, 6, 5, 4, 3]], ROWS):
        batch = with_rounded_shapes(labelled_batch_of(rows, LABELS[task]), 64).to("cuda")
        objective.zero_grad(set_to_none=False)
        found = captured(batch, 0.5)
        gradients = [
            weight.grad.clone() for weight in model.parameters() if weight.grad is not None
        ]
        objective.zero_grad(set_to_none=False)
        torch.testing.assert_close(found, loss(batch, 0.5))
        plain = [weight.grad for weight in model.parameters() if weight.grad is not None]
        torch.testing.assert_close(gradients, plain, rtol=2e-2, atol=2e-2)
    assert sum(graph is not None for graph in captured.graphs.values()) == 1
