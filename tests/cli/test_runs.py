"""The run folder: whole or not there, movable, readable for years, and clear about what is wrong
with it."""

import json
import os
import shutil
import stat
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import succeed
from places import GOLDEN
from regard.api import evaluate, predict, score
from regard.config import apply_overrides, read_yaml
from regard.errors import CheckpointError, ConfigError, DataError
from regard.recipes.loading import load_recipe, load_tree
from regard.recipes.recipe import leaves, recipe_of
from regard.recipes.stored import REMOVED, read_stored
from regard.runs import Run
from regard.runs.checkpoints import average_weights, save_checkpoint
from regard.runs.folder import FORMAT
from regard.runs.metrics_log import read_metrics
from regard.search.config import LARGEST_VALUES
from regard.training.train import train

Tree = dict[str, Any]


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Run:
    """A copy of the tiny run, to damage at will."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return Run.open(tmp_path / "run")


# What is in it


def test_a_run_folder_holds_the_resolved_recipe_and_its_surroundings(
    tiny_recipe: Tree, tiny_run: Path
) -> None:
    run = Run.open(tiny_run)
    asked, _ = load_recipe(
        tiny_recipe, ["training.compile=false", "training.fill=false"]
    )  # what auto is on a CPU
    assert run.recipe.model_dump() == asked.model_dump()
    assert predict(tiny_run, "a b") == predict(tiny_run, ["a b"]), "one text is one input"
    text = (tiny_run / "recipe.yaml").read_text()
    assert all(f"  {field}:" in text for field in type(asked.training).model_fields)
    assert run.environment["format"] == FORMAT
    assert run.environment["torch"] == version("torch")
    assert {path.name for path in tiny_run.iterdir()} >= {
        "recipe.yaml",
        "environment.json",
        "tokenizer.json",
        "metrics.jsonl",
        "checkpoints",
        "best",
        "last",
    }
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tiny_run.rglob("*") if path.is_file()}
    assert modes == {stat.S_IMODE((tiny_run / "recipe.yaml").stat().st_mode)}, (
        "all are as readable as the recipe"
    )


def test_paths_of_a_recipe_from_anywhere(
    tiny_recipe: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{'ab' * n}\t{'ba' * n}\n" for n in range(1, 41)))
    tiny_recipe["data"]["train"] = {"file": "pairs.tsv", "source": 0, "target": 1}
    tiny_recipe["training"] |= {"steps": 2, "decode": 0}
    (tmp_path / "recipe.yaml").write_text(json.dumps(tiny_recipe))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = train("../recipe.yaml", out="run", quiet=True)
    assert run.recipe.data.train[0].file == str(tmp_path / "pairs.tsv")
    monkeypatch.chdir("/")
    train(
        tmp_path / "recipe.yaml",
        ["training.steps=4"],
        out=tmp_path / "elsewhere" / "run",
        resume=True,
        quiet=True,
    )
    assert Run.open(tmp_path / "elsewhere" / "run").checkpoint("last").name == "step-00000004"


def test_a_moved_run_predicts_the_same(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a b c", "j i"]
    before = predict(tiny_run, texts)
    shutil.copytree(tiny_run, tmp_path / "a" / "b")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "empty"))
    monkeypatch.chdir(tmp_path / "a")
    after = succeed("predict", "b", *texts, "--json").jsons
    assert [one["tokens"] for one in after] == [list(one.nbest[0].tokens) for one in before]
    assert [one["score"] for one in after] == pytest.approx(
        [one.nbest[0].score for one in before], rel=1e-6
    )


# Old runs stay readable


def test_a_frozen_run_predicts_and_scores_as_ever() -> None:
    folder, expected = (
        GOLDEN / "run-format-1",
        json.loads((GOLDEN / "run-format-1.json").read_text(encoding="utf-8")),
    )
    found = predict(folder, [one["input"] for one in expected["predict"]], beam=3, nbest=2)
    for one, wanted in zip(found, expected["predict"], strict=True):
        assert [output.output for output in one.nbest] == [
            output["output"] for output in wanted["nbest"]
        ]
        assert [list(output.tokens) for output in one.nbest] == [
            output["tokens"] for output in wanted["nbest"]
        ]
        scores = pytest.approx([output["score"] for output in wanted["nbest"]], abs=1e-4)
        assert [output.score for output in one.nbest] == scores
    for wanted in expected["score"]:
        target = wanted["target"] if wanted["tokens"][-1] == "</s>" else wanted["tokens"]
        again = score(folder, wanted["source"], target)
        assert again["tokens"] == wanted["tokens"]
        assert again["token_scores"] == pytest.approx(wanted["token_scores"], abs=1e-4)


def test_a_frozen_run_with_the_checksums_of_its_time(tmp_path: Path) -> None:
    """Sums of words, which format 3 has replaced by a hash: they are still compared."""
    shutil.copytree(GOLDEN / "run-format-2", tmp_path / "run")
    again = score(tmp_path / "run", "a b c", "c b a")
    expected = [-2.217828, -0.228375, -1.864832, -0.289242, -2.363636, -2.237678]
    assert again["token_scores"] == pytest.approx(expected, abs=1e-4)
    [weights] = tmp_path.glob("run/checkpoints/step-00000020/model.safetensors")
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: the file is damaged"):
        score(tmp_path / "run", "a b c", "c b a")
    weights.write_bytes(data)
    train(
        tmp_path / "run" / "recipe.yaml",
        ["training.steps=22"],
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    assert Run(tmp_path / "run").checkpoint("last").name == "step-00000022"


@pytest.mark.parametrize("path", REMOVED)
def test_fields_of_earlier_versions_are_left_out_of_stored_recipes_only(
    run: Run, tmp_path: Path, path: str
) -> None:
    tree = apply_overrides(read_yaml(run.folder / "recipe.yaml"), [f"{path}=1"])
    for folder in (run.folder, tmp_path):
        (folder / "recipe.yaml").write_text(json.dumps(tree))
    assert path not in leaves(read_stored(run.folder / "recipe.yaml"))
    assert path in leaves(load_tree(tmp_path / "recipe.yaml")[0])
    if path.count(".") == 1:
        read = load_recipe(run.folder / "recipe.yaml")[0].model_dump()
        assert Run(run.folder).recipe.model_dump() == read == run.recipe.model_dump()
        with pytest.raises(ConfigError, match=rf"{path}: unknown key"):
            load_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize(("name", "most"), LARGEST_VALUES.items())
def test_a_stored_search_is_read_within_the_limits_of_today(
    run: Run, tmp_path: Path, name: str, most: float
) -> None:
    given = ["search.sample=true", "search.beam=1", f"search.{name}={most * 1000:.0f}"]
    tree = apply_overrides(read_yaml(run.folder / "recipe.yaml"), given)
    for folder in (run.folder, tmp_path):
        (folder / "recipe.yaml").write_text(json.dumps(tree))
    assert getattr(Run(run.folder).recipe.search, name) == most
    with pytest.raises(
        ConfigError, match=rf"search.{name}: should be less than or equal to {most:.0f}, not"
    ):
        load_recipe(tmp_path / "recipe.yaml")


def test_a_frozen_run_can_be_gone_on_with(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "run-format-1", tmp_path / "run")
    train(
        tmp_path / "run" / "recipe.yaml",
        ["training.steps=602"],
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    log = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert [(line["event"], line["step"]) for line in log[-4:]] == [
        ("validation", 600),
        ("train", 602),
        ("timing", 602),
        ("validation", 602),
    ]
    assert log[-1]["loss"] == pytest.approx(log[-4]["loss"], rel=0.05)


# Which folder, which checkpoint


@pytest.mark.parametrize("resume", [False, True])
def test_an_empty_folder(
    tiny_recipe: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    """It stays the same folder, since it may be a mounted one, or the one where the command is
    typed."""
    tiny_recipe["training"] |= {"steps": 2, "decode": 0}
    monkeypatch.chdir(tmp_path)
    folder = tmp_path.stat().st_ino
    train(tiny_recipe, out=Path("."), resume=resume, quiet=True)
    assert tmp_path.stat().st_ino == folder
    assert Run.open(tmp_path).checkpoint("last").name == "step-00000002"
    assert not list(tmp_path.glob("*.partial"))


def test_a_begun_run_with_files_of_the_users_is_left_alone(run: Run, tiny_recipe: Tree) -> None:
    """Without a checkpoint a run would be begun anew, but not over what is not its own."""
    for name in ("best", "last"):
        (run.folder / name).unlink()
    shutil.rmtree(run.checkpoints)
    recipe = (run.folder / "recipe.yaml").read_text()
    for name in ("notes.txt", "tokenizer.ko.json", "recipe.yaml"):
        (run.folder / name).write_text(f"# mine\n{recipe}")
        with pytest.raises(CheckpointError, match=r"the run folder exists already.*--resume"):
            train(tiny_recipe, out=run.folder, quiet=True)
        assert (run.folder / name).read_text() == f"# mine\n{recipe}"
        (run.folder / name).unlink()
    (run.folder / "recipe.yaml").write_text(recipe)
    train(tiny_recipe, ["training.steps=2"], out=run.folder, quiet=True)
    assert run.checkpoint("last").name == "step-00000002"


@pytest.mark.parametrize("resume", [False, True])
def test_a_log_of_the_users_beside_a_begun_run_is_not_overwritten(
    run: Run, tiny_recipe: Tree, resume: bool
) -> None:
    """The run's own log, of a training that was killed before its first checkpoint, is begun
    anew."""
    for name in ("best", "last"):
        (run.folder / name).unlink()
    shutil.rmtree(run.checkpoints)
    log = run.folder / "metrics.jsonl"
    own = log.read_text()
    for mine in ('{"loss": 1}\n', own + '{"loss": 1}\n', "mine"):
        log.write_text(mine)
        with pytest.raises(
            CheckpointError, match=r"metrics\.jsonl: this is not the log of a training, which would"
        ):
            train(tiny_recipe, out=run.folder, resume=resume, quiet=True)
        assert log.read_text() == mine
    log.write_text(own[:-20])
    (run.folder / ".best.4194999.partial").write_text(
        "half"
    )  # no system has so many processes by default
    train(tiny_recipe, ["training.steps=2"], out=run.folder, quiet=True)
    assert [line["step"] for line in read_metrics(log)][-1] == 2
    assert not list(run.folder.glob("*.partial"))


def test_bad_lines_may_be_treated_otherwise_on_resume(run: Run, tiny_recipe: Tree) -> None:
    """Runs of earlier versions say `error`, which was the default."""
    run.store_recipe(
        recipe_of(
            {**run.recipe.model_dump(), "data": {**tiny_recipe["data"], "bad_lines": "error"}}
        )
    )
    train(tiny_recipe, ["training.steps=42"], out=run.folder, resume=True, quiet=True)
    assert Run.open(run.folder).recipe.data.bad_lines == "auto"


@pytest.mark.parametrize(
    "names",
    [
        ["recipe.yaml"],
        ["tokenizer.ko.json"],
        ["metrics.jsonl"],
        ["tensorboard/events"],
        [".mine.partial"],
        ["checkpoints/.mine"],
        ["environment.json"],
        ["environment.json", "recipe.yaml", "tokenizer.json"],
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_files_named_as_in_a_run(
    tiny_recipe: Tree, tmp_path: Path, names: list[str], resume: bool
) -> None:
    """Only a run's own environment.json proves that a folder is a run that was begun."""
    mine = dict.fromkeys(names, '{"files": {}}')
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError):
        train(tiny_recipe, out=tmp_path, resume=resume, quiet=True)
    found = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == mine


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.hidden=17", "model.hidden: the run was started with 16, this recipe says 17"),
        ("training.seed=2", "training.seed: the run was started with 1, this recipe says 2"),
        (
            "data.train.size=301",
            "data.train.0.size: the run was started with 300, this recipe says 301",
        ),
        ("training.learning_rate=0.5", "training.learning_rate: the run was started with 0.01"),
        (
            "model={kind: rnn, preset: tiny}",
            "model.kind: the run was started with 'bahdanau', this recipe says 'rnn'",
        ),
    ],
)
def test_another_recipe_is_refused_by_its_path(
    run: Run, tiny_recipe: Tree, override: str, said: str
) -> None:
    text = (run.folder / "recipe.yaml").read_bytes()
    with pytest.raises(ConfigError) as caught:
        train(tiny_recipe, [override, "training.steps=30"], out=run.folder, resume=True, quiet=True)
    assert (
        str(caught.value).count("the run was started with") == 1
    )  # another kind alone: its fields differ too
    assert said in str(caught.value)
    assert "training.steps" not in str(caught.value)
    assert "cannot be resumed with another recipe" in str(caught.value)
    assert (run.folder / "recipe.yaml").read_bytes() == text


def test_data_that_has_changed_is_neither_measured_on_nor_trained_on(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    """Another share would be drawn, with pairs that were trained on; files of their own are what
    they are, but losses of other validation data are not ranked together."""
    pairs = [f"{'ab' * n}\t{'ba' * n}\n" for n in range(1, 41)]
    file, own = tmp_path / "pairs.tsv", tmp_path / "own.tsv"
    for path in (file, own):
        path.write_text("".join(pairs))
    columns = {"source": 0, "target": 1}
    tiny_recipe["data"] |= {
        "train": {"file": str(file), **columns},
        "test": {"file": str(own), **columns},
    }
    tiny_recipe["training"] |= {"steps": 2, "decode": 0}
    run = train(tiny_recipe, out=tmp_path / "run", quiet=True)
    before = evaluate(run, split="validation")
    # the second: of the same lengths
    for changed in (pairs[:15], [f"{'ab' * n}\t{'ab' * n}\n" for n in range(1, 41)]):
        file.write_text("".join(changed))
        evaluate(run, split="test")
        with pytest.raises(
            DataError,
            match=r"data\.validation: the data has changed since .* trained on \(.*--file\)",
        ):
            evaluate(run, split="validation")
        with pytest.raises(
            CheckpointError, match="the training data has changed since the run began"
        ):
            train(tiny_recipe, ["training.steps=4"], out=run.folder, resume=True, quiet=True)
    file.write_text("".join(pairs))
    assert evaluate(run, split="validation") == before
    (run.checkpoint("last") / "training.pt").unlink()
    file.write_text("".join(pairs[:15]))
    evaluate(run, split="validation")
    tiny_recipe["data"]["validation"] = {"file": str(own), **columns}
    run = train(tiny_recipe, out=tmp_path / "other", quiet=True)
    own.write_text("".join(f"{'ab' * n}\t{'ab' * n}\n" for n in range(1, 41)))
    with pytest.raises(
        CheckpointError, match="the validation data has changed since the run began"
    ):
        train(tiny_recipe, ["training.steps=4"], out=run.folder, resume=True, quiet=True)


def test_checkpoints_by_name_and_what_to_do_where_one_is_damaged(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    tiny_recipe["training"] |= {"average": 2, "decode": 0}
    run = train(tiny_recipe, out=tmp_path / "run", quiet=True)
    assert run.checkpoint("last") == run.checkpoint("20") == run.checkpoint("step-00000020")
    assert run.checkpoint("average").name == "average"
    with pytest.raises(CheckpointError, match=r"no such checkpoint.*did you mean 'step-00000020'"):
        run.checkpoint("30")
    for size in (100, 0):
        os.truncate(run.checkpoint("last") / "training.pt", size)
        assert len(predict(run.folder, ["a"], checkpoint="last")) == 1
        with pytest.raises(
            CheckpointError,
            match=r"training.pt: .*other checkpoints here: step-00000010; .* `last`",
        ):
            train(tiny_recipe, out=run.folder, resume=True, quiet=True)
    (run.folder / "last").write_text("step-00000010\n")
    train(tiny_recipe, out=run.folder, resume=True, quiet=True)
    assert run.checkpoint("last").name == "step-00000020"
    (run.folder / "best").write_text("step-00000020\n")
    os.truncate(run.checkpoint("last") / "model.safetensors", 100)
    with pytest.raises(
        CheckpointError, match=r"other checkpoints here: step-00000010; --checkpoint uses one"
    ):
        predict(run.folder, ["a"])
    assert len(predict(run.folder, ["a"], checkpoint="10")) == 1
    best = (run.folder / "best").read_text()
    (run.folder / "best").unlink()
    with pytest.raises(
        CheckpointError, match=r"the file 'best', .* missing \(.* --checkpoint step-00000020 uses"
    ):
        predict(run.folder, ["a"])
    (run.folder / "best").write_text(best)
    shutil.rmtree(run.checkpoints / "step-00000010")
    with pytest.raises(
        CheckpointError, match=r"copy the checkpoint back from elsewhere, or train anew"
    ):
        predict(run.folder, ["a"])
    shutil.rmtree(run.checkpoints)
    with pytest.raises(
        CheckpointError,
        match=r"no such checkpoint \(the run has none: copy it back from elsewhere, or",
    ):
        predict(run.folder, ["a"])
    (run.folder / "best").unlink()
    with pytest.raises(CheckpointError, match="the run has no checkpoint yet"):
        run.load_model()


# The log, and weights


def test_checkpoints_that_a_user_copied_are_not_removed(run: Run) -> None:
    step = run.checkpoint("last")
    mine = {f"{step.name}-mine", f"{step.name}.bak", "step-best", ".git", f".{step.name}"}
    for name in (*mine, f".{step.name}.partial", f".{step.name}.removed", "step-00000007"):
        shutil.copytree(step, run.checkpoints / name)
    run.remove_all_but({step.name})
    assert {path.name for path in run.checkpoints.iterdir()} == {step.name, *mine}


def test_a_torn_last_line_of_a_log_is_not_read(tmp_path: Path) -> None:
    """How a log goes on after a checkpoint is in test_resume.py."""
    (tmp_path / "metrics.jsonl").write_text(
        '{"event": "average", "step": 1, "text": "하나"}\n{"step": 3, "te'
    )
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1]
    assert list(read_metrics(tmp_path / "none.jsonl")) == []


def test_average_is_the_mean_in_the_kind_of_the_weights(tmp_path: Path) -> None:
    values = [1.0, 2.0, 4.0]
    for number, value in enumerate(values):
        weights = {
            "w": torch.full((2, 3), value),
            "half": torch.full((2,), value, dtype=torch.bfloat16),
        }
        save_checkpoint(tmp_path / str(number), weights, {"tokenizer": ""})
    averaged = average_weights([tmp_path / str(number) for number in range(3)])
    torch.testing.assert_close(averaged["w"], torch.full((2, 3), 7 / 3), rtol=0, atol=0)
    assert averaged["half"].dtype == torch.bfloat16
