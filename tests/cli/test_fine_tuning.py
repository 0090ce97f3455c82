"""Trainings that begin with another run's weights, and models under a head: what is taken over,
what stays frozen, how fast each layer learns, which loss."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard as api
from command_line import fail, refusal, regard, succeed, write
from labelled_cases import MODELS, SIZES, TRAINING, pretraining, weights_of
from labelled_cases import labelled_batch_of as batch_of
from regard.config import write_yaml
from regard.data.config import TrainingConfig
from regard.engine import plain
from regard.errors import ConfigError
from regard.layers.attention import recording
from regard.models.bert import BERTConfig
from regard.models.gpt import GPTConfig
from regard.models.headed import HeadConfig, Headed, QuestionHead, TextHead, build_base, pool
from regard.models.text_classifiers import CNN, CNNConfig
from regard.objectives.labels import ClassCrossEntropy, SquaredError
from regard.recipes.loading import load_recipe
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.runs.metrics_log import read_metrics
from regard.search.config import SearchConfig
from regard.training.optimiser import parameter_groups
from regard.training.train import train

Tree = dict[str, Any]


def classification(init: Path | None = None, head: Tree | None = None, **training: Any) -> Tree:
    data: Tree = {
        part: {"corpus": "reviews-en", "size": size}
        for part, size in (("train", 60), ("validation", 20))
    }
    begun = {"init": str(init)} if init is not None else {}
    sections = {
        "data": data | {"max_length": 40},
        "head": head or {},
        "training": TRAINING | training | begun,
    }
    return copy.deepcopy({"task": "classification", **sections})


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    """One pre-trained run of each, only read."""
    folder = tmp_path_factory.mktemp("pretrained")
    for name, model in MODELS.items():
        train(pretraining(model), out=folder / name, quiet=True)
    return {name: folder / name for name in MODELS}


def headed(kind: str = "bert", **head: Any) -> Headed:
    config = {"bert": BERTConfig, "gpt": GPTConfig}[kind](**SIZES)
    base = build_base(config, 20, keep_readout=kind == "gpt")

    def made(width: int) -> TextHead:
        pooler = base.config.head_layer(width, "first")
        return TextHead(width, 3, pooling="first", pooler=pooler, dropout=0.0)

    return Headed(base, HeadConfig(**head), made)


@pytest.mark.parametrize("lengths", [(7, 6, 6, 7), (7, 1, 2, 1)])  # padded, packed
def test_a_head_on_the_first_token_needs_only_that_of_the_last_layer(
    lengths: tuple[int, ...],
) -> None:
    torch.manual_seed(3)
    model, batch = (
        headed(),
        batch_of([range(5, 5 + length) for length in lengths], [0] * len(lengths)),
    )
    found: list[list[Tensor]] = []
    model.eval()
    for is_plain in (False, True):
        with plain(is_plain):
            logits_XY = model(batch)
            states = model.states(batch)
        found.append(
            [
                logits_XY,
                *torch.autograd.grad(
                    logits_XY.square().sum(), model.parameters(), allow_unused=True
                ),
            ]
        )
        assert states.shape[1] == (7 if is_plain else 1)
    torch.testing.assert_close(*found)
    assert headed(bilstm=4).reads_first_token is headed(features="mix").reads_first_token is False
    with recording() as recorded:
        model(batch)
    assert {weights_BHQK.shape[2] for _, weights_BHQK, _ in recorded.calls} == {7}


# Taken over


@pytest.mark.parametrize("name", MODELS)
def test_a_run_begins_with_the_base_of_another(
    pretrained: dict[str, Path], name: str, tmp_path: Path
) -> None:
    """With a learning rate of next to nothing the base stays that of the run that it was taken
    from."""
    recipe = write(
        tmp_path / "r.yaml",
        write_yaml(classification(pretrained[name], learning_rate=1e-9, steps=1)),
    )
    said = succeed("train", recipe, "--out", tmp_path / "run").err
    new = {"plain-bert": "head.pooler, head.linear", "elmo": "mix, bilstm.rnn, head.linear"}.get(
        name, "head.linear"
    )
    assert f"weights: those of {pretrained[name]}, step-00000003; new: {new}\n" in said
    before, after = weights_of(pretrained[name], "best"), weights_of(tmp_path / "run")
    shared = [key for key in after if key.startswith("base.")]
    assert len(shared) > 5
    for key in shared:
        torch.testing.assert_close(after[key], before[key.removeprefix("base.")], atol=1e-7, rtol=0)
    if name == "bert":
        pooler = before["next_sentence.pooler.weight"]
        torch.testing.assert_close(after["head.pooler.weight"], pooler, atol=1e-7, rtol=0)
    resolved = Run.open(tmp_path / "run").recipe
    assert resolved.model == Run.open(pretrained[name]).recipe.model
    assert resolved.head.labels == ["negative", "positive"]


def test_a_finished_run_needs_nothing_of_the_one_it_came_from(
    pretrained: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(pretrained["bert"], tmp_path / "base")
    train(classification(tmp_path / "base"), out=tmp_path / "run", quiet=True)
    before = api.predict(tmp_path / "run", ["The plot was dull."])
    shutil.rmtree(tmp_path / "base")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert api.predict(tmp_path / "moved", ["The plot was dull."]) == before
    assert api.evaluate(tmp_path / "moved")["examples"] == 20


def test_a_run_of_the_same_task_is_taken_over_as_a_whole(
    pretrained: dict[str, Path], tmp_path: Path
) -> None:
    train(classification(pretrained["bert"]), out=tmp_path / "one", quiet=True)
    again = write(
        tmp_path / "r.yaml",
        write_yaml(classification(tmp_path / "one", learning_rate=1e-9, steps=1)),
    )
    assert "; new" not in succeed("train", again, "--out", tmp_path / "two").err
    one, two = weights_of(tmp_path / "one", "best"), weights_of(tmp_path / "two")
    assert one.keys() == two.keys()
    assert all(torch.allclose(one[key], two[key], atol=1e-7) for key in one)
    other = classification(tmp_path / "one", {"labels": ["negative", "positive", "neither"]})
    said = succeed("train", write(again, write_yaml(other)), "--out", tmp_path / "three").err
    assert "; new: head.linear\n" in said


REFUSED = [
    ("bert", ["model={kind: gpt}"], "model.kind: {run} is a bert, this recipe asks for gpt"),
    (
        "bert",
        ["model={kind: bert, width: 32}"],
        "model.width: 32 does not fit the weights of {run} (that run has 16)",
    ),
    (
        "bert",
        ["model={layers: 5, dropout: 0.3}"],
        "model.layers: 5 does not fit the weights of {run} (that run has 2)",
    ),
    (
        "bert",
        ["model={layers: 1}"],
        "model.layers: 1 does not fit the weights of {run} (that run has 2)",
    ),
    (
        "bert",
        ["model={heads: 4}"],
        "model.heads: 4 does not fit the weights of {run} (that run has 2)",
    ),
    (
        "bert",
        ["model={epsilon: 0.1}"],
        "model.epsilon: 0.1 does not fit the weights of {run} (that run has 1e-12)",
    ),
    (
        "bert",
        ["model={kind: cnn, preset: tiny}"],
        "training.init: {run} is a bert, this recipe asks for cnn",
    ),
    ("bert", ["training.init=nowhere"], "training.init: nowhere is not a run folder"),
    (
        "bert",
        ["training.init=nowhere", "model={kind: bert}"],
        "training.init: nowhere: there is no such run folder ("
        "make one with 'regard train RECIPE --out RUN'; training.init=null trains without one)",
    ),
    (
        "bert",
        ["data.max_length=600"],
        "data.max_length: texts of 600 tokens are longer than the model's 64 posi",
    ),
    ("bert", ["tokenizer.file={gpt}/tokenizer.json"], "training.init: {run} has another tokenizer"),
    (
        "bert",
        ["tokenizer={kind: bpe}"],
        "tokenizer.kind: {run} has wordpiece, this recipe asks for bpe (leave the",
    ),
    (
        "bert",
        ["tokenizer={vocabulary: 500}"],
        "tokenizer.vocabulary: {run} has 200, this recipe asks for 500 (",
    ),
    (
        "bert",
        ["training.teacher_forcing=0.5"],
        "training.teacher_forcing: a model for classification never reads its",
    ),
    ("bert", ["head={freeze: 3}"], "head.freeze: the model has 2 layers (0 to 2, or all)"),
    (
        "bert",
        ["head={auxiliary: 0.5}"],
        "head.auxiliary: bert is no language model that reads from left to right",
    ),
    (
        "gpt",
        ["head={auxiliary: 0.5, freeze: all}"],
        "head.auxiliary: the language model's loss needs a head right ab",
    ),
    (
        "gpt",
        ["head={pooling: first}"],
        "head.pooling: a model that reads from left to right has the same first vector "
        "for every text (allowed: last, mean, max)",
    ),
    (
        "bert",
        [
            "training.init=null",
            "tokenizer={kind: word}",
            "model={kind: cnn, preset: tiny}",
            "head={pooling: last}",
        ],
        "head.pooling: cnn reads only a few tokens around each, so its last vector does not "
        "represent a text (allowed: "
        "mean, max)",
    ),
    (
        "lstm",
        ["head={features: mix}"],
        "head.features: the layers of this model have different widths",
    ),
    (
        "bert",
        ["tokenizer={knid: bpe}"],
        "tokenizer.knid: unknown key 'knid' (did you mean 'kind'?)",
    ),
    ("bert", ["head={layer_decay: 1.5}"], "head.layer_decay: should be less than or equal to 1"),
    ("bert", ["head={frezee: 1}"], "head.frezee: unknown key 'frezee' (did you mean 'freeze'?)"),
    ("bert", ["head={class_weights: {bad: 2.0}}"], "head.class_weights: there is no label 'bad'"),
    ("bert", ["head={both_orders: true}"], "head.both_orders: there is only one text"),
]


@pytest.mark.parametrize(
    ("name", "overrides", "message"), REFUSED, ids=[message for _, _, message in REFUSED]
)
def test_refusals(
    pretrained: dict[str, Path], name: str, overrides: list[str], message: str, tmp_path: Path
) -> None:
    """More layers would begin at random, fewer would throw some away, other heads would cut the
    weights elsewhere; a tokenizer would not be used, and recipe.yaml would say that it was."""
    recipe = write(tmp_path / "r.yaml", write_yaml(classification(pretrained[name])))
    values = {"{run}": str(pretrained[name]), "{gpt}": str(pretrained["gpt"])}
    for key, value in values.items():
        overrides, message = (
            [one.replace(key, value) for one in overrides],
            message.replace(key, value),
        )
    assert refusal("check", recipe, *overrides).startswith(message)


def test_defaults_hang_on_the_model(pretrained: dict[str, Path]) -> None:
    def loaded(name: str | None, **model: Any) -> Any:
        tree = classification(pretrained[name] if name else None)
        tree["training"] = {"steps": 1} | ({"init": str(pretrained[name])} if name else {})
        return api.load_recipe(tree | ({"model": model} if model else {}))[0]

    bert, elmo, cnn = loaded("bert"), loaded("elmo"), loaded(None, kind="cnn")
    assert (bert.training.learning_rate, bert.training.optimizer, bert.head.pooling) == (
        5e-5,
        "adamw",
        "first",
    )
    assert (elmo.head.freeze, elmo.head.features, elmo.head.bilstm, elmo.head.pooling) == (
        "all",
        "mix",
        128,
        "max",
    )
    assert (elmo.training.learning_rate, cnn.training.learning_rate) == (1e-3, 3e-3)
    assert bert.training.schedule == elmo.training.schedule == "linear"
    assert (cnn.head.dropout, cnn.training.schedule) == (0.5, "wsd")
    tree = classification(pretrained["bert"])
    del tree["data"]["max_length"]
    assert api.load_recipe(tree)[0].data.max_length == 64 == bert.model.max_positions
    again = ["tokenizer={kind: wordpiece, vocabulary: 200}"]  # as that run has it
    assert api.load_recipe(tree, again)[0].tokenizer == api.load_recipe(tree)[0].tokenizer


# Frozen, and how fast the others learn


@pytest.mark.parametrize("freeze", [0, 1, "all"])
def test_what_is_frozen_does_not_change(
    pretrained: dict[str, Path], freeze: Any, tmp_path: Path
) -> None:
    train(classification(pretrained["bert"], {"freeze": freeze}), out=tmp_path / "run", quiet=True)
    before, after = weights_of(pretrained["bert"], "best"), weights_of(tmp_path / "run")
    changed = {
        key
        for key in after
        if key.startswith("base.") and not torch.equal(after[key], before[key[5:]])
    }
    layers = {key.split(".")[2] if "blocks" in key else "embedding" for key in changed}
    assert layers == {0: {"embedding", "0", "1"}, 1: {"1"}, "all": set()}[freeze]
    assert not torch.equal(after["head.pooler.weight"], before["next_sentence.pooler.weight"])


def test_a_mix_of_frozen_layers_is_learned(pretrained: dict[str, Path], tmp_path: Path) -> None:
    train(classification(pretrained["elmo"]), out=tmp_path / "run", quiet=True)
    before, after = weights_of(pretrained["elmo"], "best"), weights_of(tmp_path / "run")
    assert all(torch.equal(after[key], before[key[5:]]) for key in after if key.startswith("base."))
    assert after["mix.s"].shape == (2,)
    assert after["mix.s"].abs().min() > 0
    assert after["mix.gamma"] != 1


def test_learning_rates_fall_from_layer_to_layer() -> None:
    """Two layers and a decay of 0.5, by hand."""
    model = headed(layer_decay=0.5)
    groups = {
        group["rate"]: group
        for group in parameter_groups(model, TrainingConfig(steps=1, learning_rate=0.08))
    }
    assert {rate: group["lr"] for rate, group in groups.items()} == {
        1: 0.08,
        0.5: 0.04,
        0.25: 0.02,
        0.125: 0.01,
    }
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    members = {rate: {names[id(one)] for one in group["params"]} for rate, group in groups.items()}
    assert members[1] == {name for name in names.values() if name.startswith("head.")}
    assert members[0.5] == {name for name in names.values() if name.startswith("base.blocks.1.")}
    assert members[0.25] == {name for name in names.values() if name.startswith("base.blocks.0.")}
    assert members[0.125] == {name for name in names.values() if name.startswith("base.embedding.")}
    assert {group["rate"] for group in parameter_groups(headed(), TrainingConfig(steps=1))} == {1.0}
    assert sum(map(len, members.values())) == len(names)


def test_one_step_goes_as_far_as_the_layers_learning_rate(
    pretrained: dict[str, Path], tmp_path: Path
) -> None:
    """Adam's first step moves a weight by the learning rate, whatever the gradient."""
    recipe = classification(
        pretrained["bert"], {"layer_decay": 0.5}, steps=1, optimizer="adam", learning_rate=0.008
    )
    train(recipe, out=tmp_path / "run", quiet=True)
    before, after = weights_of(pretrained["bert"], "best"), weights_of(tmp_path / "run")
    for number, rate in enumerate((0.002, 0.004)):
        name = f"blocks.{number}.feed_forward.W_2.weight"
        assert float((after[f"base.{name}"] - before[name]).abs().max()) == pytest.approx(
            rate, rel=1e-3
        )


def test_a_training_with_layer_decay_resumes_exactly(
    pretrained: dict[str, Path], tmp_path: Path
) -> None:
    head = {"layer_decay": 0.7, "freeze": 1, "class_weights": "balanced"}
    train(
        classification(pretrained["bert"], head, steps=4, checkpoint_every=2),
        out=tmp_path / "whole",
        quiet=True,
    )
    train(
        classification(pretrained["bert"], head, steps=2, checkpoint_every=2),
        out=tmp_path / "parts",
        quiet=True,
    )
    again = classification(pretrained["bert"], head, steps=4, checkpoint_every=2)
    train(again, out=tmp_path / "parts", resume=True, quiet=True)
    whole, parts = weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts")
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_a_task_without_a_head_has_no_such_section(tmp_path: Path) -> None:
    recipe = write(tmp_path / "r.yaml", write_yaml(pretraining(MODELS["gpt"]) | {"head": {}}))
    assert regard("check", recipe).err.startswith("regard: head: unknown key 'head'")


# Losses


class Fixed(torch.nn.Module):
    """A head that says what it is told."""

    def __init__(self, logits_BY: Tensor) -> None:
        super().__init__()
        self.logits_BY = logits_BY

    def forward(self, h_BLD: Tensor, batch: Any) -> Tensor:
        return self.logits_BY


class Said(torch.nn.Module):
    """A head that says one thing after another."""

    def __init__(self, answers: Iterator[Tensor]) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, h_BLD: Tensor, batch: Any) -> Tensor:
        return next(self.answers)


def test_class_weights_by_hand() -> None:
    """p = 3/4 and 1/4 for two classes; the first example is of the first, the others of the second
    class."""
    model = headed()
    model.head = Fixed(torch.tensor([[3.0, 1.0]]).log().expand(3, 2))
    batch = batch_of([[5, 6]] * 3, [0, 1, 1])
    loss, plain = ClassCrossEntropy(model, torch.tensor([2.0, 0.5]))(batch).tolist()
    assert plain == pytest.approx(-np.log(3 / 4) - 2 * np.log(1 / 4))
    assert loss == pytest.approx(-2 * np.log(3 / 4) - 0.5 * 2 * np.log(1 / 4))


def test_consistency_against_plain_loops() -> None:
    """Liang et al. 2021, equations 2 and 3, halved; the head says something else each time."""
    first_BY = [[0.2, 1.0, -0.5], [2.0, 0.0, 0.3], [0.1, 0.1, 0.1]]
    second_BY = [[0.4, 0.7, -0.1], [1.0, 0.5, 0.3], [0.0, 2.0, 0.0]]
    answers = iter([torch.tensor(first_BY), torch.tensor(second_BY)])
    model = headed()
    model.head = Said(answers)
    loss, plain = ClassCrossEntropy(model, consistency=2.0)(
        batch_of([[5, 6]] * 3, [1, 0, -100])
    ).tolist()
    expected = apart = 0.0
    for one, other, label in zip(first_BY[:2], second_BY[:2], [1, 0], strict=True):
        p, q = (np.exp(row) / np.exp(row).sum() for row in (one, other))
        expected += -(np.log(p[label]) + np.log(q[label])) / 2
        for y in range(3):
            apart += p[y] * np.log(p[y] / q[y]) + q[y] * np.log(q[y] / p[y])
    assert plain == pytest.approx(expected)
    assert loss == pytest.approx(expected + 2.0 / 4 * apart)
    model.head = Said(iter([torch.tensor(first_BY)]))
    objective = ClassCrossEntropy(model, consistency=2.0).eval()
    assert len(objective(batch_of([[5, 6]] * 3, [1, 0, -100]))) == 2, "one reading suffices"


def test_rows_of_an_example_are_averaged() -> None:
    """Of a head that adds nothing; its choices stand beside each other instead."""
    values_B11 = torch.tensor([1.0, 3.0, 5.0, -5.0]).view(4, 1, 1)
    batch = batch_of([[5]] * 4, [1.0, 3.0], owners=[0, 0, 1, 1])
    for choices, expected in ((False, [[2.0], [0.0]]), (True, [[1.0, 3.0], [5.0, -5.0]])):
        head = TextHead(1, 1, pooling="first", pooler=None, dropout=0.0, choices=choices)
        torch.nn.init.ones_(head.linear.weight)
        assert head(values_B11, batch).tolist() == expected
    model = headed()
    model.head = Fixed(torch.tensor([[2.0], [5.0]]))
    assert SquaredError(model)(batch).tolist() == [(2 - 1) ** 2 + (5 - 3) ** 2] * 2


# Equations


def test_the_cnn_against_plain_loops() -> None:
    """Kim 2014, equations 2 to 4; one text is shorter than the widest filter."""
    torch.manual_seed(0)
    model = CNN(CNNConfig(embedding=4, widths=[2, 3], maps=5), 11).double().requires_grad_(False)
    texts = [[3, 4, 5, 6, 7], [8, 9], [10]]
    batch = batch_of(texts, [0, 0, 0])
    found = pool(model.states(batch), batch.text, "max")
    for text, vector in zip(texts, found, strict=True):
        expected = []
        for convolution, h in zip(model.convolutions, [2, 3], strict=True):
            x = [model.embedding.weight[token] for token in text]
            x += [torch.zeros(4, dtype=torch.double)] * (h - len(x))
            for filter_EH, b in zip(convolution.weight, convolution.bias, strict=True):
                seen = range(len(x) - h + 1)
                c = [
                    max(0.0, float(sum(filter_EH[:, j] @ x[i + j] for j in range(h)) + b))
                    for i in seen
                ]
                expected.append(max(c))
        assert vector.tolist() == pytest.approx(expected)


def test_the_ngrams_of_a_cnn_against_plain_loops() -> None:
    """Joulin et al. 2017, with the sum over the root of the number; the table is zero before
    training."""
    model = (
        CNN(CNNConfig(embedding=4, widths=[2], maps=3, ngrams=50), 11)
        .double()
        .requires_grad_(False)
    )
    texts = [[3, 4, 5, 3, 4], [8, 9], [10]]
    batch = batch_of(texts, [0, 0, 0])
    assert not model.states(batch)[..., 3:].any()
    torch.nn.init.normal_(model.ngrams.weight)
    for by_token, poolings in ((False, ("max", "mean", "last")), (True, ("mean",))):
        model.by_token = by_token
        states_BLD = model.states(batch)
        assert states_BLD.shape == (3, 5, model.width)
        for text, *vectors in zip(
            texts, *(pool(states_BLD, batch.text, pooling) for pooling in poolings), strict=True
        ):
            rows = []
            for n in (1, 2, 3):
                for start in range(len(text) - n + 1):
                    key = n
                    for token in text[start : start + n]:
                        key = (key * 1_000_003 + token) % (2**31 - 1)
                    rows.append(model.ngrams.weight[key % 50])
            expected = (sum(rows) / len(rows) ** 0.5).tolist()
            assert all(vector[3:].tolist() == pytest.approx(expected) for vector in vectors)


def test_the_cnn_around_each_token_against_plain_loops() -> None:
    """Collobert et al. 2011, section 3.2.1: a window around each token, with nothing beyond the
    ends of the text."""
    torch.manual_seed(0)
    widths = [1, 2, 3, 4]
    model = CNN(CNNConfig(embedding=4, widths=widths, maps=2), 11).double().requires_grad_(False)
    model.by_token = True
    with torch.no_grad():
        model.embedding.weight[0] = 100.0  # padding would be seen
    texts = [[3, 4, 5, 6, 7], [8, 9], [10]]
    found_BLD = model.states(batch_of(texts, [0, 0, 0]))
    assert found_BLD.shape == (3, 5, 8)
    for text, found_LD in zip(texts, found_BLD, strict=True):
        x = {place: model.embedding.weight[token] for place, token in enumerate(text)}
        for i in x:
            expected = []
            for convolution, h in zip(model.convolutions, widths, strict=True):
                seen = [(j, x[i - (h - 1) // 2 + j]) for j in range(h) if i - (h - 1) // 2 + j in x]
                for filter_EH, b in zip(convolution.weight, convolution.bias, strict=True):
                    expected.append(
                        max(0.0, float(sum(filter_EH[:, j] @ x_j for j, x_j in seen) + b))
                    )
            assert found_LD[i].tolist() == pytest.approx(expected)


def test_the_head_of_a_question_against_plain_loops() -> None:
    """Chen et al. 2017, section 3.2: (W q + w) . h of every token, with q the largest values over
    the question."""
    torch.manual_seed(0)
    head = QuestionHead(3, 2, dropout=0.5).double().eval().requires_grad_(False)
    head.linear.bias.normal_()
    h_BLD = torch.randn(2, 5, 3, dtype=torch.double)
    batch = batch_of([[3, 4, 5, 6, 3], [3, 5, 3]], [0, 0])
    batch.segments_BL[0, 3:] = 1
    batch.segments_BL[1, 1:3] = 1  # padding has segment 0, and is no part of the question
    W_YDD, w_YD = head.linear.weight.view(2, 3, 3), head.linear.bias.view(2, 3)
    for h_LD, asked, found_LY in zip(h_BLD, (3, 1), head(h_BLD, batch), strict=True):
        q = [max(float(h_LD[place, d]) for place in range(asked)) for d in range(3)]
        for h_D, found_Y in zip(h_LD.tolist(), found_LY.tolist(), strict=True):
            for y in (0, 1):
                asks = [
                    sum(float(W_YDD[y, d, e]) * q[e] for e in range(3)) + float(w_YD[y, d])
                    for d in range(3)
                ]
                assert found_Y[y] == pytest.approx(
                    sum(a * h for a, h in zip(asks, h_D, strict=True))
                )


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_pooling_leaves_padding_out(pooling: Any) -> None:
    h_BLD = torch.tensor(
        [[[1.0], [4.0], [2.0], [9.0]], [[-3.0], [-1.0], [8.0], [8.0]], [[0.0]] * 4]
    )
    text = batch_of([[5, 5, 5], [5, 5], [5] * 4], [0] * 3).text
    expected = {"first": [1, -3], "last": [2, -1], "mean": [7 / 3, -2], "max": [4, -1]}[pooling] + [
        0
    ]
    assert pool(h_BLD, text, pooling).flatten().tolist() == pytest.approx(expected)


# Runs of translation


def validation_loss(run: Run) -> float:
    return next(
        float(line["loss"])
        for line in read_metrics(run.folder / "metrics.jsonl")
        if line["event"] == "validation"
    )


@pytest.fixture
def recipe(tiny_recipe: Tree, tiny_run: Path, tmp_path: Path) -> Path:
    """The recipe of the tiny run, which begins with the weights of a copy of it."""
    shutil.copytree(tiny_run, tmp_path / "before")
    tiny_recipe["training"] |= {"init": "before", "steps": 4, "validate_every": 2}
    return write(tmp_path / "recipe.yaml", write_yaml(tiny_recipe))


def test_it_begins_where_the_best_checkpoint_of_the_other_ended(
    recipe: Path, tmp_path: Path
) -> None:
    before = Run.open(tmp_path / "before")
    still = ["training.learning_rate=1e-12", "training.steps=1", "training.validate_every=1"]
    run = train(recipe, still, out=tmp_path / "run", quiet=True)
    theirs, ours = (load_weights(one.checkpoint("best")) for one in (before, run))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    losses = [
        line
        for line in read_metrics(before.folder / "metrics.jsonl")
        if line["event"] == "validation"
    ]
    assert validation_loss(run) == pytest.approx(min(line["loss"] for line in losses), rel=1e-6)
    plain = train(recipe, [*still, "training.init=null"], out=tmp_path / "plain", quiet=True)
    assert validation_loss(plain) > validation_loss(run) + 0.3
    assert Run.open(run.folder).recipe.training.init == str(before.folder)


def test_a_section_that_is_null_is_left_out(recipe: Path, tmp_path: Path) -> None:
    """The model is then that of the run to begin with, the search what it is by default."""
    found, _ = load_recipe(recipe, ["model=null", "search=null"])
    assert found.model == Run.open(tmp_path / "before").recipe.model
    assert (found.model.hidden, found.search.beam) == (16, SearchConfig().beam)
    assert load_recipe(recipe)[0].search.beam == 2 != SearchConfig().beam
    with pytest.raises(ConfigError, match="model: this key is required"):
        load_recipe(recipe, ["model=null", "training.init=null"])


def test_a_resumed_run_does_not_need_the_other_any_more(recipe: Path, tmp_path: Path) -> None:
    """Nor does one that was killed before its first checkpoint need anything but the other: both
    end alike."""
    best = Run.open(tmp_path / "before").checkpoint("best").name
    assert (
        f"weights: those of before, {best}\n"
        in succeed("train", recipe, "--out", tmp_path / "at_once").err
    )
    expected = Run.open(tmp_path / "at_once")
    shutil.copytree(
        expected.folder,
        tmp_path / "killed",
        ignore=shutil.ignore_patterns("checkpoints", "best", "last"),
    )
    killed = train(recipe, out=tmp_path / "killed", resume=True, quiet=True)
    train(recipe, ["training.steps=2"], out=tmp_path / "run", quiet=True)
    shutil.rmtree(tmp_path / "before")
    resumed = train(recipe, out=tmp_path / "run", resume=True, quiet=True)
    saved = [run.checkpoint("last") / "model.safetensors" for run in (expected, killed, resumed)]
    assert len({file.read_bytes() for file in saved}) == 1


def refused(recipe: Path, *overrides: str) -> str:
    """The one message of `train` and `check`; no run is made."""
    [message] = fail("train", recipe, *overrides, "--out", recipe.parent / "run")
    assert fail("check", recipe, *overrides) == [message]
    assert not (recipe.parent / "run").exists()
    return message


def test_other_weights_or_none(recipe: Path, tmp_path: Path) -> None:
    size = Run.open(tmp_path / "before").tokenizers["source"].size
    assert refused(recipe, "model={kind: rnn, preset: tiny}") == (
        "training.init: before is a bahdanau, this recipe asks for rnn "
        "(leave the section model out, to use that run's model)"
    )
    assert refused(recipe, "model.tie=target").startswith(
        "training.init: the weights of before do not fit this recipe's model: "
        f"output.linear.weight is {size} x 16 there, missing here ("
    )
    shutil.rmtree(tmp_path / "before" / "checkpoints")
    (tmp_path / "before" / "best").unlink()
    assert "the run has no checkpoint yet" in refused(recipe)


@pytest.mark.parametrize(
    ("joint", "files"),
    [
        ("true", "{NAME}/tokenizer.json"),
        ("false", "{source: {NAME}/tokenizer.source.json, target: {NAME}/tokenizer.target.json}"),
    ],
)
def test_another_tokenizer_and_how_to_take_the_same(
    recipe: Path, tmp_path: Path, joint: str, files: str
) -> None:
    name, apart = ("before", "") if joint == "true" else ("apart", ", tokenizer.joint: false")
    if apart:
        train(
            recipe, ["tokenizer.joint=false", "training.init=null"], out=tmp_path / name, quiet=True
        )
    files = files.replace("{NAME}", name)
    other = [f"training.init={name}", "data.train={corpus: dates, size: 300}"]
    assert refused(recipe, *other) == (
        f"training.init: {name} has another tokenizer, so its embeddings are those of other tokens "
        f"(use that one: tokenizer.file: {files}{apart})"
    )
    options = [*other, f"tokenizer.file={files}", f"tokenizer.joint={joint}"]
    run = train(recipe, options, out=tmp_path / "reused", quiet=True)
    assert run.tokenizers.fingerprint == Run.open(tmp_path / name).tokenizers.fingerprint
