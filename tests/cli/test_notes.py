"""What a user is told beside the result: of unknown words, of a checkpoint that was not measured,
of dropout."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from command_line import succeed

LATER = "step-00000025"


def test_a_translation_says_which_words_are_unknown(tiny_run: Path, tmp_path: Path) -> None:
    found = succeed("predict", tiny_run, "a % b", "a b")
    assert (
        found.err
        == "note: input 1 has 1 token that is not in the vocabulary ('%'): the model reads <unk> "
        "there\n"
    )
    (file := tmp_path / "inputs.txt").write_text("a%b Q\n%a\na b\n")
    assert succeed("predict", tiny_run, "--file", file).err == (
        f"note: {file}:1 has 2 tokens that are not in the vocabulary ('a%b', 'Q'): the model reads "
        "<unk> there, "
        "and so for 1 more\n"
    )
    written = succeed("predict", tiny_run, "--file", file, "--out", tmp_path / "out.txt")
    assert "2 tokens that are not in the vocabulary ('a%b', 'Q')" in written.err
    assert succeed("predict", tiny_run, "a b").err == ""


@pytest.fixture(name="interrupted")
def made_interrupted(tiny_run: Path, tmp_path: Path) -> Path:
    """A run as an interrupt leaves it: the last checkpoint has not been validated."""
    run = shutil.copytree(tiny_run, tmp_path / "interrupted")
    last = (run / "last").read_text().strip()
    shutil.copytree(run / "checkpoints" / last, run / "checkpoints" / LATER)
    file = run / "checkpoints" / LATER / "checkpoint.json"
    facts = json.loads(file.read_text()) | {"step": 25}
    del facts["checksum"]
    file.write_text(json.dumps(facts))
    (run / "last").write_text(f"{LATER}\n")
    return run


def test_evaluate_says_that_a_later_step_was_saved(interrupted: Path, tiny_run: Path) -> None:
    best = int((interrupted / "best").read_text().strip().removeprefix("step-"))
    note = (
        f"the best checkpoint, step {best}, is measured; step 25 was saved later and not "
        "validated: "
        "--checkpoint last measures it"
    )
    assert succeed("evaluate", interrupted, "--json").json["note"].endswith(note)
    assert (
        "checkpoint"
        not in succeed("evaluate", interrupted, "--json", "--checkpoint", "last").json["note"]
    )
    assert "checkpoint" not in succeed("evaluate", tiny_run, "--json").json["note"]


@pytest.mark.parametrize(("pairs", "dropout"), [(300, 0.3), (4_600, 0.3), (60_000, 0.2)])
def test_the_proposed_dropout_follows_its_comment(
    pairs: int, dropout: float, tmp_path: Path
) -> None:
    """0.3 for little data."""
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "".join(
            f"{number} little dogs sat there.\t개 {number}마리가 앉았다.\n"
            for number in range(pairs)
        )
    )
    succeed("check", file, "--out", tmp_path / "mine.yaml")
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["model"]["dropout"] == dropout
    assert "# 0.3 for little data" in text


def test_measures_on_a_file_say_which_words_are_unknown(tiny_run: Path, tmp_path: Path) -> None:
    """Of the inputs only: no note says that a reference has words which the model cannot write."""
    (file := tmp_path / "pairs.tsv").write_text("source\ttarget\na %\ta\nQ a %\ta\na b\tQ\n")
    note = "Inputs with words that are not in the vocabulary: 2 of 3 ('%', 'Q')"
    assert succeed("evaluate", tiny_run, "--file", file, "--json").json["note"] == note
    assert note in succeed("diagnose", tiny_run, "--file", file, "--no-sweep").out
    assert succeed("diagnose", tiny_run, "--file", file, "--no-sweep", "--json").json["unknown"]
    assert note in succeed("compare", tiny_run, tiny_run, "--file", file).out
    assert "vocabulary" not in succeed("evaluate", tiny_run, "--json").json.get("note", "")
