"""Several test sets in one report."""

import json
from pathlib import Path

import pytest

import regard
from command_line import fail, succeed


@pytest.fixture(name="sets")
def two_sets(tmp_path: Path) -> dict[str, list[str]]:
    (tmp_path / "news.tsv").write_text("source\ttarget\na b c\tc b a\nb c\tc b\n")
    (tmp_path / "talk.en").write_text("c a\na b\nb\n")
    (tmp_path / "talk.fr").write_text("a c\nb a\nb\n")
    talk = [str(tmp_path / f"talk.{side}") for side in ("en", "fr")]
    return {"news": [str(tmp_path / "news.tsv")], "talk": talk}


def test_each_set_is_measured_as_alone(tiny_run: Path, sets: dict[str, list[str]]) -> None:
    runs = [tiny_run, tiny_run]
    options = [f"--test-set={name}={','.join(files)}" for name, files in sets.items()]
    together = succeed("compare", *runs, *options, "--json").json["test_sets"]
    for name, files in sets.items():
        alone = regard.compare(runs, files=files).to_json()
        assert together[name]["significance"] == json.loads(json.dumps(alone["significance"]))
        assert together[name]["sentences"] == alone["sentences"]
    table = regard.compare_sets(runs, sets).report().sections[0].parts[0]
    assert [row[0] for row in table.rows] == ["news", "news", "talk", "talk"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--test-set", "news"], "'news' does not name a test set"),
        (["--test-set", "=a.tsv"], "'=a.tsv' does not name a test set"),
        (["--test-set", "a=1,2,3"], "'a=1,2,3' does not name a test set"),
        (["--test-set", "a=1", "--test-set", "a=2"], "the name 'a' is given twice"),
        (["--test-set", "a=1", "--split", "test"], "--test-set names several"),
        (["--test-set", "a=1", "--file", "b"], "--test-set names several"),
    ],
)
def test_what_is_refused(tiny_run: Path, options: list[str], message: str) -> None:
    assert message in fail("compare", tiny_run, tiny_run, *options)[0]
