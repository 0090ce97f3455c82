"""Defaults that depend on the model and the length of the training, former defaults, and another
kind of model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from places import GOLDEN
from regard.config import Tree, read_yaml, write_yaml
from regard.data.config import TrainingConfig
from regard.models import MODELS
from regard.models.base import count_parameters
from regard.recipes.loading import load_recipe, load_tree
from regard.recipes.recipe import leaves, recipe_of
from regard.recipes.resuming import with_defaults_of_run
from regard.recipes.shipped import shipped, shipped_text
from regard.recipes.stored import read_stored
from regard.recipes.switching import switched_model
from regard.runs import Run
from regard.training.check import check
from regard.training.notes import longer_training_note
from regard.training.optimiser import schedule_factor, warmup_steps
from regard.training.train import train

DATA: Tree = {
    "train": {"corpus": "reverse", "size": 100},
    "validation": {"corpus": "reverse", "size": 10},
}


def recipe(model: Tree, task: str = "translation", **training: Any) -> Tree:
    """A recipe that says no more than it must."""
    data = {"train": {"corpus": "reviews-en"}} if task == "classification" else DATA
    return {"task": task, "data": data, "model": model, "training": {"steps": 10, **training}}


# The learning rate


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ({"kind": "transformer", "preset": "tiny"}, 3e-3),
        ({"kind": "transformer"}, 1.6e-3),  # 0.4 / 256
        ({"kind": "transformer", "norm": "post"}, 5.2e-4),  # a third
        ({"kind": "transformer", "width": 512, "heads": 8}, 7.8e-4),  # 0.4 / 512
        ({"kind": "transformer", "preset": "base"}, 2.6e-4),  # the paper's, with its norm
        ({"kind": "self_attention", "preset": "tiny"}, 3e-3),
        ({"kind": "bahdanau", "preset": "tiny"}, 5e-3),
        ({"kind": "rnn"}, 2e-3),  # 1 / 512
        ({"kind": "luong", "hidden": 1000}, 1e-3),
    ],
)
def test_the_learning_rate_suits_the_model(model: Tree, rate: float) -> None:
    assert recipe_of(recipe(model)).training.learning_rate == pytest.approx(rate)
    assert recipe_of(recipe(model, learning_rate=0.5)).training.learning_rate == 0.5
    assert recipe_of(recipe(model, optimizer="sgd")).training.learning_rate == 0.1


def test_a_model_that_goes_on_has_a_tenth_of_the_rate_and_a_head_on_bert_that_of_the_paper() -> (
    None
):
    assert (
        recipe_of(
            recipe({"kind": "transformer", "preset": "tiny"}, init="x")
        ).training.learning_rate
        == 3e-4
    )
    bert = {"kind": "bert", "preset": "tiny"}
    assert recipe_of(recipe(bert, "classification")).training.learning_rate == 1e-3
    assert recipe_of(recipe(bert, "classification", init="x")).training.learning_rate == 5e-5
    assert (
        recipe_of(recipe({"kind": "lstm_lm"}, "classification", init="x")).training.learning_rate
        == 1e-3
    )


# Schedule and warm-up


def test_the_default_schedule_by_hand() -> None:
    """20 steps: 2 of warm-up, and the last 4 lead to zero, which step 21 would have."""
    config = TrainingConfig(steps=20)
    factors = [schedule_factor(config, step, 20) for step in range(1, 22)]
    assert factors == pytest.approx([0.5, *[1.0] * 15, 0.8, 0.6, 0.4, 0.2, 0.0])


@pytest.mark.parametrize(("steps", "expected"), [(3, 0), (10, 1), (250, 25), (100_000, 4000)])
def test_the_default_warmup_is_a_tenth_up_to_the_papers(steps: int, expected: int) -> None:
    assert warmup_steps(TrainingConfig(steps=steps), steps) == expected


TINY: Tree = {"kind": "rnn", "preset": "tiny", "embedding": 8, "hidden": 8}
QUICK: Tree = {"batch_tokens": 256, "device": "cpu", "decode": 0, "samples": 0}


def test_a_run_has_the_number_of_its_warmup_and_keeps_it_when_resumed(tmp_path: Path) -> None:
    """100 pairs are so many batches an epoch that 20 epochs have this many steps."""
    tree = recipe(TINY, steps=None, epochs=20, **QUICK)
    run = train(tree, out=tmp_path / "run", quiet=True)
    steps = [line["step"] for line in run.events()][-1]
    assert read_yaml(run.folder / "recipe.yaml")["training"]["warmup"] == steps // 10 > 0
    rates = {
        line["step"]: line["learning_rate"] for line in run.events() if line["event"] == "train"
    }
    train(tree, ["training.epochs=40"], out=run.folder, resume=True, quiet=True)
    resumed = Run.open(run.folder)
    assert resumed.recipe.training.warmup == steps // 10
    assert resumed.recipe.training.epochs == 40
    assert rates


# The hint after a training whose loss was still falling


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (
            1.0,
            "the validation loss was still falling: --resume with training.steps=400 trains twice "
            "as long",
        ),
        (
            0.05,
            "the validation loss was still falling, but --resume would continue at a learning rate "
            "of 5e-05: a new run "
            "with training.steps=400 learns more",
        ),
    ],
)
def test_the_hint_does_not_resume_a_dead_learning_rate(factor: float, expected: str) -> None:
    assert (
        longer_training_note(TrainingConfig(steps=200, learning_rate=1e-3), 200, factor) == expected
    )


def test_a_resumed_default_schedule_is_planned_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last steps of 20 lead to zero; of 60 they are far from the end, so the rate is the
    highest again."""
    tree = recipe(TINY, steps=20, learning_rate=0.01, log_every=1, **QUICK)
    run = train(tree, out=tmp_path / "run")
    assert [line["learning_rate"] for line in run.events() if line["event"] == "train"][-1] < 0.003
    train(tree, ["training.steps=60"], out=run.folder, resume=True)
    rates = {
        line["step"]: line["learning_rate"] for line in run.events() if line["event"] == "train"
    }
    assert rates[21] == rates[40] == 0.01
    assert rates[60] < 0.001
    assert (
        "the wsd schedule now covers 60 steps: the learning rate continues at 0.01"
        in capsys.readouterr().err
    )


# Runs of earlier versions


def test_a_stored_recipe_without_a_field_has_its_former_default(tmp_path: Path) -> None:
    tree = recipe({"kind": "transformer", "preset": "tiny"})
    (tmp_path / "recipe.yaml").write_text(write_yaml(tree), encoding="utf-8")
    stored = recipe_of(read_stored(tmp_path / "recipe.yaml"))
    assert stored.model.norm == "post"
    training = stored.training
    assert (training.schedule, training.warmup, training.learning_rate) == ("inverse_sqrt", 0, 1e-3)
    now = recipe_of(tree)
    assert (now.model.norm, now.training.schedule, now.training.warmup) == ("pre", "wsd", "auto")


def test_a_stored_recipe_keeps_what_it_has() -> None:
    """The frozen run has every field."""
    stored = GOLDEN / "run-format-1" / "recipe.yaml"
    before, now = read_yaml(stored)["training"], recipe_of(read_stored(stored)).training
    assert {name: getattr(now, name) for name in ("schedule", "warmup", "learning_rate")} == {
        name: before[name] for name in ("schedule", "warmup", "learning_rate")
    }


def test_a_run_of_an_earlier_version_is_resumed_with_its_short_recipe() -> None:
    """Such a recipe does not name what has another default now; what it names is compared as
    always."""
    tree = recipe({"kind": "transformer", "preset": "tiny"})
    former = {"schedule": "inverse_sqrt", "warmup": 0, "learning_rate": 1e-3}
    run = recipe_of(
        {**tree, "model": {**tree["model"], "norm": "post"}, "training": {"steps": 10, **former}}
    )
    assert with_defaults_of_run(recipe_of(tree), tree, run) == run
    named = {**tree, "training": {"steps": 10, "learning_rate": 0.5}}
    assert with_defaults_of_run(recipe_of(named), named, run).training.learning_rate == 0.5


@pytest.mark.usefixtures("imported_translator")
def test_recipes_that_ship_name_what_their_numbers_rest_on() -> None:
    """None of them moves with a default of the learning rate, the schedule or the norm."""
    for name in shipped():
        tree = load_tree(name)[0]
        named, resolved = leaves(tree), leaves(recipe_of(tree).model_dump())
        if tree["task"] != "story_answering":
            assert {
                "training.learning_rate",
                "training.schedule",
                "training.warmup",
            } <= named.keys(), name
        assert "model.norm" in named or "model.norm" not in resolved, name
        assert "auto" not in shipped_text(name).partition("warmup:")[2][:8]


# Another kind of model


SWITCHES = [
    (
        "model.kind=bahdanau",
        {"preset": "tiny", "dropout": 0.3, "tie": "all"},
        ("norm: pre", "width: 64", "heads: 2"),
    ),
    (
        "model={kind: bahdanau}",
        {"preset": "tiny", "dropout": 0.3, "tie": "all"},
        ("norm: pre", "width: 64", "heads: 2"),
    ),
    (
        "model={kind: bahdanau, tie: none}",
        {"preset": "tiny", "dropout": 0.3, "tie": "none"},
        ("norm: pre",),
    ),
    ("model.kind=self_attention", {"preset": "tiny", "width": 64, "heads": 2, "norm": "pre"}, ()),
]


@pytest.mark.parametrize(("override", "kept", "dropped"), SWITCHES)
def test_another_kind_keeps_what_it_has_too(
    override: str, kept: Tree, dropped: tuple[str, ...]
) -> None:
    model = {
        "kind": "transformer",
        "preset": "tiny",
        "norm": "pre",
        "dropout": 0.3,
        "tie": "all",
        "width": 64,
        "heads": 2,
    }
    typed = load_recipe(recipe(model), [override])[0].model
    assert {name: getattr(typed, name) for name in kept} == kept
    switch = switched_model(recipe(model), [override])
    assert switch is not None
    assert switch.other.model.kind == "transformer"
    assert {*dropped} <= {*switch.dropped}
    assert (switch.dropped == ()) == (dropped == ())


def test_a_preset_that_the_new_kind_does_not_have_is_left_out() -> None:
    tree = recipe({"kind": "transformer", "preset": "big", "norm": "none"})
    assert load_recipe(tree, ["model.kind=rnn"])[0].model.preset == "small"
    switch = switched_model(tree, ["model.kind=rnn"])
    assert switch is not None
    assert switch.dropped == ("preset: big", "norm: none")


def test_the_same_kind_is_replaced_as_before_and_an_unknown_one_is_refused() -> None:
    tree = recipe({"kind": "transformer", "preset": "tiny", "dropout": 0.3})
    replaced = load_recipe(tree, ["model={kind: transformer}"])[0].model
    assert (replaced.preset, replaced.dropout) == ("small", 0.1)
    assert switched_model(tree, ["model.dropout=0.2"]) is None
    assert [
        problem.what for problem in check(tree, ["model.kind=bahdanu"], quiet=True).problems
    ] == ["unknown kind 'bahdanu'"]


def test_check_shows_both_sizes_and_what_is_left_out() -> None:
    model = {
        "kind": "transformer",
        "preset": "tiny",
        "encoder_layers": 1,
        "decoder_layers": 1,
        "norm": "pre",
    }
    found = check(recipe(model, device="cpu"), ["model.kind=rnn"], quiet=True)
    [sizes, dropped] = [
        note for note in found.data["findings"] if note.startswith("model.kind=rnn")
    ]
    vocabulary = found.data["vocabulary"]
    with torch.device("meta"):
        built = MODELS["transformer"].build(
            load_recipe(recipe(model))[0].model, vocabulary["source"], vocabulary["target"]
        )
    expected = (
        f"{found.model['parameters']:,} parameters; the recipe's transformer has "
        f"{count_parameters(built):,}"
    )
    assert sizes == f"model.kind=rnn: {expected}"
    assert dropped.endswith(
        "left out, since rnn does not have them: encoder_layers: 1, decoder_layers: 1, norm: pre"
    )


def test_both_sizes_include_a_head_for_the_labels_of_the_data() -> None:
    whole = check("names", quiet=True)
    switched = check("names", ["model.kind=cnn"], quiet=True)
    [sizes] = [note for note in switched.data["findings"] if note.startswith("model.kind=cnn")]
    assert sizes.endswith(f"the recipe's bilstm has {whole.model['parameters']:,}")
