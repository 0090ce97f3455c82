"""data.unescape and data.detokenise: what check and evaluate say, and that all texts are cleaned in
the same way."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import succeed
from regard.data.prepare import prepare_texts
from regard.recipes.recipe import recipe_of
from regard.tasks.pairs import decoded_inputs
from regard.tasks.translation import EvaluationConfig, translation_scores
from regard.training.train import train
from tiny import TINY

NAMES, THINGS = ("Anna", "Ben", "Carla", "David", "Emma"), ("dog", "cat", "book", "lamp", "house")
SPLIT = [
    (f"{name} &apos;s {thing} is old .", f"l&apos; ami de {name} a un {thing} .")
    for name in NAMES
    for thing in THINGS
]
PLAIN = [
    (f"{name}'s {thing} is old.", f"l'ami de {name} a un {thing}.")
    for name in NAMES
    for thing in THINGS
]


def written(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text(
        "source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in pairs),
        encoding="utf-8",
    )
    return path


def recipe(folder: Path, **settings: Any) -> dict[str, Any]:
    tree = copy.deepcopy(TINY)
    file = written(folder / "split.tsv", SPLIT)
    data = {
        "train": {"file": str(file), "source": "source", "target": "target"},
        "validation": {"split": 0.2},
    }
    tree["data"] = {**data, "max_length": 60, **settings}
    tree["training"] |= {"steps": 4, "validate_every": 4}
    return tree


@pytest.fixture(scope="module", name="folder")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the text as it is, and one of the clean text."""
    folder = tmp_path_factory.mktemp("cleaning")
    train(recipe(folder), out=folder / "as-it-is", quiet=True)
    train(recipe(folder, unescape=True, detokenise=True), out=folder / "clean", quiet=True)
    return folder


def check_notes(*arguments: object) -> list[str]:
    lines = succeed("check", *arguments).out.splitlines()
    return [
        line.removeprefix("note").strip()
        for line in lines
        if line.startswith("note") and "texts of" in line
    ]


def test_check_says_what_it_finds_and_what_helps(tmp_path: Path) -> None:
    (file := tmp_path / "recipe.yaml").write_text(json.dumps(recipe(tmp_path)))
    entities = "have HTML entities, such as '&apos;': data.unescape=true reads them as characters"
    assert check_notes(file) == [
        f"25 of 25 texts of the source {entities}",
        '25 of 25 texts of the source are split into tokens, such as "Anna \'s": '
        "data.detokenise=true joins them",
        f"25 of 25 texts of the target {entities}",
        '25 of 25 texts of the target are split into tokens, such as "l\' ami": '
        "data.detokenise=true joins them",
    ]
    assert check_notes(file, "data.unescape=true", "data.detokenise=true") == []


def test_training_reads_clean_text(folder: Path, tmp_path: Path) -> None:
    """The settings belong to the key of the prepared data."""
    keys = set()
    for settings in (
        {},
        {"unescape": True},
        {"detokenise": True},
        {"unescape": True, "detokenise": True},
    ):
        texts = prepare_texts(
            recipe_of(recipe(tmp_path, **settings)).data,
            base=tmp_path,
            seed=1,
            progress=lambda step, count: None,
        )
        keys.add(texts.key)
    assert len(keys) == 4
    assert set(texts.splits["train"].columns["source"]) < {source for source, _ in PLAIN}
    assert "&" not in regard.Run.open(folder / "clean").tokenizers["source"].to_json()


def test_predictions_clean_their_inputs(folder: Path) -> None:
    split, plain = succeed("predict", folder / "clean", SPLIT[0][0], PLAIN[0][0], "--json").jsons
    assert (split["input"], plain["input"]) == (SPLIT[0][0], PLAIN[0][0])
    assert (split["tokens"], split["score"]) == (plain["tokens"], plain["score"])
    scores = [
        regard.score(folder / "clean", text, "l'ami")["score"]
        for text in (SPLIT[0][0], PLAIN[0][0])
    ]
    assert scores[0] == scores[1]


def test_evaluate_measures_clean_text(folder: Path, tmp_path: Path) -> None:
    files = [
        written(tmp_path / name, pairs) for name, pairs in (("a.tsv", SPLIT), ("b.tsv", PLAIN))
    ]
    split, plain = (
        succeed("evaluate", folder / "clean", "--file", file, "--json").json for file in files
    )
    assert {**split, "files": None} == {**plain, "files": None}
    assert "note" not in split


def test_evaluate_says_that_its_references_are_not_plain(folder: Path, tmp_path: Path) -> None:
    note = succeed(
        "evaluate", folder / "as-it-is", "--file", written(tmp_path / "a.tsv", SPLIT), "--json"
    ).json["note"]
    assert (
        "25 of 25 texts of the target have HTML entities, such as '&apos;': data.unescape=true"
        in note
    )
    assert (
        '25 of 25 texts of the target are split into tokens, such as "l\' ami": '
        "data.detokenise=true" in note
    )


def test_tokenised_outputs_give_no_warning_of_sacrebleu(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["A dog runs ."] * 200
    scores = translation_scores(texts, [[text] for text in texts], EvaluationConfig())
    assert scores["bleu"] == pytest.approx(100)
    assert not caplog.records


def test_a_validation_decodes_a_sample_and_not_the_first_inputs() -> None:
    inputs = [[row] for row in range(1_000)]
    chosen = [row for [row] in decoded_inputs(inputs, 200)]
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 200
    # the mean of 200 of 0 to 999 is 499.5, with a standard deviation of 18.3
    assert sum(chosen) / 200 == pytest.approx(499.5, abs=4 * 18.3)
    assert [[row] for row in chosen] == decoded_inputs(inputs, 200)
    assert decoded_inputs(inputs, 5_000) == inputs
    assert decoded_inputs(inputs, 0) == []
