"""What users get wrong: one clear message (what, where, what is allowed), exit code 2, no traceback, nothing lost."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import regard as api
from command_line import contents, fail, regard, succeed, write
from regard.config import write_yaml
from regard.errors import CheckpointError, ConfigError

SOURCE = "".join(f"{text}\n" for text in ("a b c", "b c d", "c d e", "d e f", "e f g", "f g h") * 10)
TARGET = SOURCE.upper()


class Project:
    """A folder with a recipe and its files, in which one thing is then made wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("train.s", SOURCE)
        self.write("train.t", TARGET)
        tree: dict[str, Any] = {
            "task": "translation",
            "data": {"train": {"source": "train.s", "target": "train.t"}, "deduplicate": False},
            "tokenizer": {"kind": "character"},
            "model": {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8},
            "training": {"steps": 2, "device": "cpu", "batch_tokens": 256, "decode": 2},
        }
        self.recipe = self.write("recipe.yaml", write_yaml(tree))

    def write(self, name: str, content: str | bytes) -> Path:
        return write(self.folder / name, content)

    def refused(self, *overrides: str) -> str:
        """The one message of `train` and of `check`, which leave the folder as it was."""
        before = contents(self.folder)
        [message] = fail("train", self.recipe, *overrides, "--out", self.folder / "run")
        assert fail("check", self.recipe, *overrides) == [message]
        assert contents(self.folder) == before
        assert not (self.folder / "run").exists()
        return message


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


@pytest.fixture
def copied(tiny_run: Path, tmp_path: Path) -> Path:
    """A run of one's own, to break."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def test_without_a_mistake_it_works(project: Project) -> None:
    """What is refused below is refused for the mistake that is made there."""
    succeed("check", project.recipe)
    succeed("train", project.recipe, "--out", project.folder / "run", "--json")
    succeed("predict", project.folder / "run", "a b c")


# Models


@pytest.mark.parametrize("reach", ["local_m", "local_p"])
def test_a_window_larger_than_any_source(project: Project, reach: str) -> None:
    """Sources of 5 characters and their `</s>`."""
    local = f"model={{kind: luong, embedding: 8, hidden: 8, reach: {reach}, window: 20}}"
    assert project.refused(local) == (
        "model.window: 20 positions on each side cover every source: the longest has 6 tokens "
        "(at most 4, or model.reach=global)"
    )
    succeed("check", project.recipe, local, "model.window=4")


def test_a_product_of_states_of_unequal_width(project: Project) -> None:
    message = project.refused("model={kind: luong, score: dot, bidirectional: true}")
    assert message.startswith("model: score: dot multiplies states of equal width")
    assert message.endswith("(allowed with it: general, concat; or set bidirectional: false)")


# Files


def test_unequal_line_counts(project: Project) -> None:
    project.write("train.t", TARGET + "ONE MORE\n")
    assert project.refused() == (
        "train.t:61: train.t has 61 lines, train.s has 60 "
        "(parallel files need the same number of lines; this line has no partner)"
    )


def test_a_wrong_encoding(project: Project) -> None:
    project.write("train.t", TARGET.replace("B C D", "CAFÉ", 1).encode("latin-1"))
    assert project.refused() == (
        "train.t:2: byte 0xc9 at position 4 of the line is not UTF-8 "
        "(convert the file with iconv -f ENCODING -t utf-8; ENCODING may be cp949 (Korean) or latin1 (Western Europe))"
    )


def test_what_is_wrong_with_one_file_does_not_hide_what_is_wrong_with_another(project: Project) -> None:
    project.write("train.t", TARGET.replace("B C D", "", 1))
    project.write("test.t", TARGET.replace("B C D", "CAFÉ", 1).encode("latin-1"))
    test = "data.test={source: train.s, target: test.t}"
    messages = fail("check", project.recipe, test)
    assert [message.split(" (")[0] for message in messages] == [
        "test.t:2: byte 0xc9 at position 4 of the line is not UTF-8",
        "train.t:2: the line is empty",
    ]
    assert fail("train", project.recipe, test, "--out", project.folder / "run") == messages


def test_korean_in_the_encoding_of_windows(project: Project) -> None:
    project.write("train.s", ("안녕하세요\n" + SOURCE.partition("\n")[2]).encode("cp949"))
    message = project.refused()
    assert message.startswith("train.s:1: byte 0xbe at position 1 of the line is not UTF-8")
    assert "cp949 (Korean)" in message


def test_utf_16(project: Project) -> None:
    project.write("train.s", SOURCE.encode("utf-16"))
    assert "ENCODING may be utf-16" in project.refused()


def test_an_empty_file(project: Project) -> None:
    project.write("train.s", "")
    assert project.refused() == "train.s: the file is empty (one example a line is expected)"


def test_an_empty_line(project: Project) -> None:
    project.write("train.s", SOURCE.replace("c d e", "", 1))
    message = "train.s:3: the line is empty (fill it, or data.bad_lines=drop drops such pairs)"
    assert project.refused() == message


def test_empty_lines_are_dropped_and_counted_where_that_is_asked_for(project: Project) -> None:
    project.write("train.s", SOURCE.replace("c d e", " \t", 3))
    found = succeed("check", project.recipe, "data.bad_lines=drop", "--json").json["data"]
    assert found["findings"] == ["dropped 3 of 60 training pairs: 3 with an empty side (first: train.s:3)"]


def test_many_empty_lines_are_counted(project: Project) -> None:
    project.write("train.s", SOURCE.replace("c d e", "").replace("d e f", "").replace("e f g", ""))
    messages = fail("check", project.recipe)
    assert len(messages) == 21
    assert messages[-1] == "and 10 more such lines"


def test_one_line_of_100_000_characters(project: Project) -> None:
    project.write("train.t", TARGET.replace("D E F", "X" * 100_000, 1))
    assert project.refused() == (
        "train.t:4: the line has 100,000 characters, data.max_characters allows 20,000 "
        "(split it, raise the limit, or data.bad_lines=drop drops such pairs)"
    )


def test_an_over_long_line_that_is_dropped_is_named_by_its_own_file(project: Project) -> None:
    project.write("train.t", TARGET.replace("D E F", "X" * 100_000, 1))
    found = succeed("check", project.recipe, "data.bad_lines=drop", "--json").json["data"]
    assert found["findings"] == ["dropped 1 of 60 training pairs: 1 over data.max_characters=20000 (first: train.t:4)"]


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_split_without_a_corpus(project: Project, split: str) -> None:
    message = project.refused(f"data.{split}=[]")
    assert message.startswith(f"data.{split}: ")
    assert "name at least one corpus" in message


def test_a_missing_column_by_number(project: Project) -> None:
    project.write("train.tsv", "a\tA\nb\n")
    message = project.refused("data.train={file: train.tsv, source: 0, target: 1}")
    assert message == "train.tsv:2: there is no column 1 (target) in this row (it has 1, numbered from 0: b)"


def test_a_missing_column_by_name(project: Project) -> None:
    project.write("train.csv", "Q,A\na,b\n")
    message = project.refused("data.train={file: train.csv, source: Q, target: B}")
    assert message == "train.csv:1: there is no column 'B' (the columns are Q, A)"


def test_a_missing_key_in_json(project: Project) -> None:
    project.write("train.jsonl", '{"en": "a", "de": "b"}\n{"en": "a"}\n')
    message = project.refused("data.train={file: train.jsonl, source: en, target: de}")
    assert message == "train.jsonl:2: there is no column 'de' (the columns are en)"


def test_broken_json(project: Project) -> None:
    project.write("train.jsonl", '{"source": "a", "target": "b"}\n{"source": \n')
    message = project.refused("data.train={file: train.jsonl, source: source, target: target}")
    assert message.startswith("train.jsonl:2: not valid JSON: Expecting value")


def test_a_missing_file(project: Project) -> None:
    message = project.refused("data.train.source=tran.s")
    assert message == "tran.s: there is no such file (did you mean 'train.s'?)"


def test_a_folder_in_place_of_a_file(project: Project) -> None:
    (project.folder / "corpus").mkdir()
    assert project.refused("data.train.source=corpus") == "corpus: is a folder, not a file (name a file in it)"


def test_a_binary_file(project: Project) -> None:
    project.write("train.s", bytes(range(256)) * 60)
    assert "is not UTF-8" in project.refused()


def test_a_compressed_file_that_is_cut_off(project: Project) -> None:
    project.write("train.s.gz", gzip.compress(os.urandom(500).hex().encode())[:200])
    message = project.refused("data.train.source=train.s.gz")
    assert message.startswith("train.s.gz:1: the .gz file is broken here")


def test_a_file_of_an_unknown_format(project: Project) -> None:
    project.write("pairs.xlsx", "x")
    message = project.refused("data.train={file: pairs.xlsx, source: 0, target: 1}")
    assert message.startswith("pairs.xlsx: one file with all columns cannot be a .xlsx (allowed: .tsv, .csv, .jsonl")


def test_a_split_and_files(project: Project) -> None:
    assert project.refused("data.validation={source: train.s, target: train.t, split: 0.1}") == (
        "data.validation: a share of the training examples has no files of its own: give split or files, not both"
    )


def test_a_split_that_leaves_nothing(project: Project) -> None:
    message = project.refused("data.validation={split: 0.9999}")
    assert message.startswith("data.train: no training pair is left")


def test_limits_that_leave_nothing(project: Project) -> None:
    message = project.refused("data.max_length=2")
    assert message.startswith("data.train: no training pair is left: dropped")
    assert "longer than data.max_length=2 tokens (first: train.s:" in message


# Recipes


def test_an_unknown_key(project: Project) -> None:
    assert project.refused("training.stesp=5") == "training.stesp: unknown key 'stesp' (did you mean 'steps'?)"


def test_a_negative_size(project: Project) -> None:
    assert project.refused("model.hidden=-8") == "model.hidden: should be greater than or equal to 1, not -8"


def test_a_negative_batch(project: Project) -> None:
    message = "training.batch_tokens: -1 is too small (allowed: 1 and more, or auto)"
    assert project.refused("training.batch_tokens=-1") == message


def test_heads_that_do_not_divide_the_width(project: Project) -> None:
    message = project.refused("model={kind: transformer, width: 10, heads: 4}")
    assert message == "model: 4 heads do not divide the width 10 (heads that do: 1, 2, 5, 10)"


def test_a_folder_named_like_a_recipe_that_ships_is_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    assert succeed("check", "dates", "data.train.size=200", "--json").json["ok"]


def test_a_model_of_transformers_that_is_no_run_yet(tmp_path: Path) -> None:
    write(tmp_path / "config.json", "{}")
    [message] = fail("predict", tmp_path, "a")
    assert f"'regard import {tmp_path} --out RUN'" in message


def test_a_recipe_that_is_a_folder(tmp_path: Path) -> None:
    message = f"{tmp_path}: this is a folder, not a recipe (give a .yaml file)"
    assert fail("check", tmp_path) == [message]
    assert fail("train", tmp_path, "--out", tmp_path / "run") == [message]


def test_a_recipe_that_is_not_there() -> None:
    [message] = fail("train", "daets", "--out", "run")
    assert (
        message == "daets: there is no such recipe (a recipe is a .yaml file, or one that ships; did you mean 'dates'?)"
    )


def test_a_recipe_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = "there is no such file (a recipe is a .yaml file, or one that ships;"
    assert fail("check", "foo.yml") == [f"foo.yml: {said} 'regard recipes' lists those that ship)"]
    assert fail("check", "sentimnt.yaml") == [f"sentimnt.yaml: {said} did you mean 'sentiment'?)"]
    write(tmp_path / "mine.yaml", "task: translation\n")
    assert fail("train", "mine.yml", "--out", "run") == [f"mine.yml: {said} did you mean 'mine.yaml'?)"]


def test_a_recipe_that_is_not_yaml(project: Project) -> None:
    write(project.recipe, "task: translation\ndata: {train\n")
    [message] = fail("check", project.recipe)
    assert message.startswith(f"{project.recipe}:3: not valid YAML: ")


def test_a_recipe_that_is_a_binary_file(project: Project) -> None:
    write(project.recipe, b"\x89PNG\r\n\x1a\n")
    assert fail("check", project.recipe)[0].startswith(f"{project.recipe}: cannot be read as a recipe")


def test_training_without_an_end(project: Project) -> None:
    assert project.refused("training.steps=null") == "training: say when to stop: give steps, epochs, or both"


def test_a_metric_that_is_not_one(project: Project) -> None:
    assert project.refused("training.best=blue") == "training.best: unknown metric 'blue' (did you mean 'bleu'?)"


def test_a_metric_that_is_never_computed(project: Project) -> None:
    message = project.refused("training.best=bleu", "training.decode=0")
    assert message == "training.decode: bleu needs decoded examples (set it above 0)"


def test_one_embedding_for_two_vocabularies(project: Project) -> None:
    """These two have the same size, so that only the recipe can tell."""
    message = "model: tie: all needs one vocabulary for both sides (set tokenizer.joint=true, or tie: target)"
    assert project.refused("model.tie=all", "tokenizer.joint=false") == message


def test_a_vocabulary_that_is_too_small(project: Project) -> None:
    message = project.refused("tokenizer={kind: bpe, vocabulary: 6}")
    assert message.startswith("tokenizer.vocabulary: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there(project: Project, tiny_run: Path) -> None:
    message = project.refused("training.device=cuda")
    assert message.startswith("training.device: there is no cuda on this machine (allowed: auto, cpu")
    [message] = fail("predict", tiny_run, "a", "--device", "cuda")
    assert message.startswith("--device: there is no device 'cuda' here (allowed: auto,")


def test_a_device_that_no_one_has(tiny_run: Path) -> None:
    assert fail("predict", tiny_run, "a", "--device", "meta")[0].startswith("--device: there is no device 'meta' here")


def test_a_tokenizer_file_that_is_not_one(project: Project) -> None:
    project.write("tokenizer.json", "{}")
    message = project.refused("tokenizer={file: tokenizer.json}")
    assert message.startswith(f"{project.folder / 'tokenizer.json'}: cannot be used as a tokenizer")
    message = project.refused("tokenizer={file: tokeniser.json}")
    assert message == "tokenizer.file: tokeniser.json: there is no such file (did you mean 'tokenizer.json'?)"
    (project.folder / "old").mkdir()
    assert project.refused("tokenizer={file: old}") == (
        "tokenizer.file: old is a folder, not a file "
        "(expected is a tokenizer.json of the tokenizers library, or a .model of SentencePiece)"
    )


# Run folders


def test_a_run_folder_that_is_not_one(tmp_path: Path) -> None:
    message = (
        f"{tmp_path}: not a run folder: it has no recipe.yaml "
        "(a run folder is what 'regard train RECIPE --out RUN' makes)"
    )
    for verb in (["predict", tmp_path, "a"], ["evaluate", tmp_path], ["score", tmp_path, "a", "b"]):
        assert fail(*verb) == [message]
    assert fail("explain", tmp_path, "a") == [message]


def test_a_run_folder_that_is_not_there(tiny_run: Path) -> None:
    missing = tiny_run.parent / "tinny"
    assert fail("predict", missing, "a") == [f"{missing}: there is no such run folder (did you mean '{tiny_run}'?)"]
    far = tiny_run.parent / "zzz"
    assert fail("predict", far, "a") == [f"{far}: there is no such run folder (allowed: {tiny_run})"]


def test_a_recipe_in_place_of_a_run(project: Project) -> None:
    [message] = fail("predict", project.recipe, "a")
    assert message == f"{project.recipe}: is a file, not a run folder (make one with 'regard train RECIPE --out RUN')"


def test_an_existing_run_without_resume(copied: Path, project: Project) -> None:
    before = contents(copied)
    message = f"{copied}: the run folder exists already (--resume continues it; give another --out for a new run)"
    assert fail("train", project.recipe, "--out", copied) == [message]
    assert contents(copied) == before


def test_resuming_with_another_recipe(copied: Path, project: Project) -> None:
    before = contents(copied)
    result = regard("train", project.recipe, "--out", copied, "--resume")
    assert result.code == 2
    assert "model.hidden: the run was started with 16, this recipe says 8" in result.err
    assert "cannot be resumed with another recipe (give another --out)" in result.err
    assert contents(copied) == before


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_truncated_checkpoint(copied: Path) -> None:
    best = copied / "checkpoints" / (copied / "best").read_text(encoding="utf-8").strip()
    truncate(best / "model.safetensors")
    before = contents(copied)
    for verb in (
        ["predict", copied, "a b"],
        ["evaluate", copied],
        ["score", copied, "a", "b"],
        ["explain", copied, "a"],
    ):
        [message] = fail(*verb)
        assert message.startswith(f"{best / 'model.safetensors'}: the file is damaged")
    assert contents(copied) == before


def test_a_truncated_training_state(copied: Path, tiny_recipe: dict[str, Any]) -> None:
    last = copied / "checkpoints" / (copied / "last").read_text(encoding="utf-8").strip()
    truncate(last / "training.pt")
    before = contents(copied / "checkpoints")
    with pytest.raises(
        CheckpointError, match=r"training\.pt: the file is damaged: it cannot be read as .* \(copy the"
    ) as said:
        api.train(tiny_recipe, ["training.steps=40"], out=copied, resume=True, quiet=True)
    assert "miniz" not in str(said.value)
    assert contents(copied / "checkpoints") == before


def test_a_checkpoint_that_is_not_there(tiny_run: Path) -> None:
    [message] = fail("predict", tiny_run, "a b", "--checkpoint", "17")
    assert message.startswith(f"{tiny_run / 'checkpoints/step-00000017'}: there is no such checkpoint (did you mean")
    [message] = fail("predict", tiny_run, "a b", "--checkpoint", "first")
    assert message.startswith(f"{tiny_run / 'checkpoints/first'}: there is no such checkpoint (allowed: step-")


def test_a_tokenizer_of_another_run(copied: Path, project: Project) -> None:
    succeed("train", project.recipe, "--out", project.folder / "run", "--json")
    shutil.copy(project.folder / "run" / "tokenizer.json", copied / "tokenizer.json")
    message = (
        f"{copied / 'tokenizer.json'}: the tokenizer is not the one this run was trained with "
        "(put the run's own tokenizer back; another one gives every token another meaning)"
    )
    assert fail("predict", copied, "a b") == [message]
    assert fail("predict", copied, "?") == [message]
    assert fail("evaluate", copied) == [message]
    assert fail("score", copied, "a", "b") == [message]


def test_a_run_without_its_tokenizer(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    [message] = fail("predict", copied, "a b")
    assert message == f"{copied / 'tokenizer.json'}: there is no such tokenizer file"


def test_a_run_whose_recipe_was_edited(copied: Path) -> None:
    text = (copied / "recipe.yaml").read_text(encoding="utf-8")
    write(copied / "recipe.yaml", text.replace("hidden: 16", "hidden: 24"))
    [message] = fail("predict", copied, "a b")
    assert "its weights do not fit the run's recipe" in message
    write(copied / "recipe.yaml", text.replace("hidden: 16", "hiden: 16"))
    [message] = fail("predict", copied, "a b")
    assert message == f"{copied / 'recipe.yaml'}: model.hiden: unknown key 'hiden' (did you mean 'hidden'?)"


def test_an_output_folder_inside_a_file(project: Project) -> None:
    before = contents(project.folder)
    [message] = fail("train", project.recipe, "--out", project.folder / "train.s" / "run")
    assert message.startswith(f"{project.folder / 'train.s' / 'run'}: cannot be written: Not a directory")
    assert contents(project.folder) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_folder_that_may_not_be_written(project: Project) -> None:
    closed = project.folder / "closed"
    closed.mkdir(mode=0o500)
    [message] = fail("train", project.recipe, "--out", closed / "run")
    assert message.startswith(f"{closed / 'run'}: cannot be written: Permission denied")


def test_a_name_that_is_too_long() -> None:
    name = "x" * 5_000
    assert fail("check", name) == [f"{name}: File name too long"]


# Inputs

WAY_OUT = "nothing was written (--skip-bad leaves such lines out, with an empty output for each)"


def test_an_empty_input(tiny_run: Path) -> None:
    message = "input 1: the text is empty (give at least one word)"
    assert fail("predict", tiny_run, "") == [message]
    assert fail("predict", tiny_run, " \t ") == [message]
    assert fail("predict", tiny_run, "a b", "") == [message.replace("1", "2")]
    assert fail("predict", tiny_run, stdin="a b\n\n") == [message.replace("input 1", "standard input:2"), WAY_OUT]
    assert fail("explain", tiny_run, "") == [message.replace("input 1", "input")]
    assert fail("score", tiny_run, "", "a") == [message.replace("input 1", "source")]
    assert fail("score", tiny_run, "a", "") == [message.replace("input 1", "target")]


def test_no_input_at_all(tiny_run: Path) -> None:
    message = "standard input: there is no input (give texts as arguments, or --file)"
    assert fail("predict", tiny_run) == [message]


def test_a_script_the_tokenizer_has_never_seen(tiny_run: Path) -> None:
    message = (
        "input 2: every token of '안녕하세요' is unknown to the tokenizer (it was trained on other words or script)"
    )
    assert fail("predict", tiny_run, "a b", "안녕하세요") == [message]
    assert fail("explain", tiny_run, "안녕하세요") == [message.replace("input 2", "input")]
    assert fail("score", tiny_run, "안녕하세요", "a") == [message.replace("input 2", "source")]
    assert fail("score", tiny_run, "a", "안녕하세요") == [message.replace("input 2", "target")]
    succeed("score", tiny_run, "a", "<unk> </s>", "--tokens")
    succeed("predict", tiny_run, "a 안녕하세요 b")


def test_every_bad_input_is_named_and_a_flood_is_counted(tiny_run: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.txt", "a b\n\n한국어\nb a\n")
    assert [message.partition(": ")[0] for message in fail("predict", tiny_run, "--file", file)] == [
        f"{file}:2",
        f"{file}:3",
        WAY_OUT,
    ]
    write(file, "\n" * 1_000)
    messages = fail("predict", tiny_run, "--file", file)
    assert len(messages) == 22
    assert messages[-2:] == ["and 980 more such problems", WAY_OUT]


def test_bad_lines_of_a_file_can_be_skipped(tiny_run: Path, tmp_path: Path) -> None:
    """Every line keeps its place: an empty output for each that was skipped, null with the reason in JSON."""
    lines = [b"a b c", b"", b"d e", "한국어".encode(), b"caf\xe9", b"b a", b"  "]
    good, file = ["a b c", "d e", "b a"], write(tmp_path / "in.txt", b"\n".join(lines) + b"\n")
    first, second, third = succeed("predict", tiny_run, *good).out.splitlines()
    found = succeed("predict", tiny_run, "--file", file, "--skip-bad")
    assert found.out.split("\n") == [first, "", second, "", "", third, "", ""]
    assert found.err == f"skipped 4 of 7 inputs; the first: {file}:2: the text is empty (give at least one word)\n"
    told = succeed("predict", tiny_run, "--file", file, "--skip-bad", "--json").jsons
    expected = succeed("predict", tiny_run, *good, "--json").jsons
    assert [one for one in told if one["output"] is not None] == expected
    assert [one["problem"]["where"] for one in told if one["output"] is None] == [f"{file}:{n}" for n in (2, 4, 5, 7)]
    assert told[3]["problem"]["what"] == "every token of '한국어' is unknown to the tokenizer"
    assert told[4]["problem"]["what"] == "the text is not valid UTF-8"
    assert succeed("predict", tiny_run, "--skip-bad", stdin="\nb a\n").out == f"\n{third}\n"
    assert succeed("predict", tiny_run, "--file", write(file, "\n\n"), "--skip-bad").out == "\n\n"
    predictions = api.predict(tiny_run, ["", "b a"], skip_bad=True)
    assert [one.to_json()["output"] for one in predictions] == [None, third]
    assert [problem.where for problem in predictions.skipped] == ["input 1"]


def test_skipping_keeps_prefixes_beside_their_inputs(tiny_run: Path, tmp_path: Path) -> None:
    file, prefixes = write(tmp_path / "in.txt", "a b\n\nc d\n"), write(tmp_path / "p.txt", "b\na\nd\n")
    options = ("--prefixes", prefixes, "--skip-bad")
    first, second, third = succeed("predict", tiny_run, "--file", file, *options).out.splitlines()
    assert (first[0], second, third[0]) == ("b", "", "d")
    write(prefixes, "b\na\n한\n")
    [message] = fail("predict", tiny_run, "--file", file, *options)
    assert message.startswith("prefix 3: the tokenizer cannot write '한'"), "that is no reason to skip an input"


def test_only_lines_can_be_skipped(tiny_run: Path) -> None:
    message = "--skip-bad: it is for the lines of --file or standard input (leave it out)"
    assert fail("predict", tiny_run, "a", "", "--skip-bad") == [message]
    message = "--skip-bad: every input needs its vectors (leave it out)"
    assert fail("predict", tiny_run, "--skip-bad", "--features", "a.npz", stdin="a\n") == [message]


def test_an_endless_input(tiny_run: Path) -> None:
    hint = "(at most 2,048: split it into sentences)"
    assert fail("predict", tiny_run, "a b " * 25_000) == [f"input 1: the text has 100,000 tokens {hint}"]
    assert fail("score", tiny_run, "a", "b" * 5_000) == [f"target: the text has 5,001 tokens {hint}"]


def test_input_that_is_not_utf8(tiny_run: Path, tmp_path: Path) -> None:
    content = b"a b\ncaf\xe9\nb a\n"
    file = write(tmp_path / "in.txt", content)
    [message] = fail("predict", tiny_run, "--file", file)
    assert message.startswith(f"{file}:2: byte 0xe9 at position 4 of the line")
    assert "iconv" in message
    assert fail("predict", tiny_run, stdin=content) == [message.replace(str(file), "standard input")]
    skipped = succeed("predict", tiny_run, "--file", file, "--skip-bad").out
    assert succeed("predict", tiny_run, "--skip-bad", stdin=content).out == skipped
    assert skipped.split("\n")[1] == ""
    message = "input 1: the text is not valid UTF-8 (convert it, for example with iconv)"
    assert fail("predict", tiny_run, "caf\udce9") == [message]


def test_a_file_of_inputs_that_is_not_there(tiny_run: Path, tmp_path: Path) -> None:
    assert fail("predict", tiny_run, "--file", tmp_path / "in.txt")[0].startswith(
        f"{tmp_path / 'in.txt'}: there is no such file"
    )
    assert fail("predict", tiny_run, "a", "--file", "in.txt") == ["--file: give texts or --file, not both"]
    empty = write(tmp_path / "empty.txt", "")
    message = f"{empty}: the file is empty (one example a line is expected)"
    assert fail("predict", tiny_run, "--file", empty) == [message]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam", "0"], "search.beam: should be greater than or equal to 1, not 0"),
        (["--beam", "1000000"], "search.beam: should be less than or equal to 1000, not 1000000"),
        (
            ["--length-penalty", "3", "--set", "search.normalisation=none"],
            "--length-penalty: search.normalisation: none has no length penalty "
            "(leave it out, or --set search.normalisation=mean)",
        ),
        (["--nbest", "0"], "search.nbest: should be greater than or equal to 1, not 0"),
        (
            ["--beam", "2", "--nbest", "5"],
            "search.nbest: a beam of 2 cannot give the best 5: at most beam, or raise beam to 5",
        ),
        (["--length-penalty", "-1"], "search.length_penalty: should be greater than or equal to 0, not -1.0"),
        (["--set", "search.beem=2"], "search.beem: unknown key 'beem' (did you mean 'beam'?)"),
        (["--set", "saerch.beam=2"], "saerch: unknown key 'saerch' (did you mean 'search'?)"),
        (["--set", "search=2"], "search: should be a mapping of keys to values, not 2"),
        (["--set", "beam"], "beam: an override is key=value (for example training.steps=500)"),
        (
            ["--set", "model.hidden=2"],
            "model.hidden=2: model cannot be changed in a trained run (allowed: search, evaluation)",
        ),
        (
            ["--set", "search.top_k=2"],
            "search.top_k: only sampling uses top_k: set sample: true, or leave top_k out",
        ),
    ],
)
def test_a_search_that_cannot_be_meant(tiny_run: Path, options: list[str], message: str) -> None:
    assert fail("predict", tiny_run, "a b", *options) == [message]


def test_exact_tokens_that_are_none(tiny_run: Path) -> None:
    hint = "(tokens are spelt as 'predict --json' shows them)"
    [message] = fail("score", tiny_run, "a", "a xyz", "--tokens")
    assert message.startswith("target: 'xyz' is not a token of this vocabulary")
    assert message.endswith(hint)
    message = 'target: there are no tokens (give at least one, "</s>" for one)'
    assert fail("score", tiny_run, "a", "[]", "--tokens") == [message]
    for text in ("[1]", "[", '["a"'):
        message = '--tokens: not a JSON list of strings (for example ["▁a", "</s>"])'
        assert fail("score", tiny_run, "a", text, "--tokens") == [message]


def test_a_split_that_is_not_there(tiny_run: Path) -> None:
    assert fail("evaluate", tiny_run, "--split", "tset") == ["--split: unknown split 'tset' (did you mean 'test'?)"]
    message = "data.test: the run's recipe has no test set (--split validation, or --file)"
    assert fail("evaluate", tiny_run, "--split", "test") == [message]
    message = "--file: give a split or files, not both"
    assert fail("evaluate", tiny_run, "--split", "train", "--file", "x.tsv") == [message]


def test_files_to_evaluate_that_are_wrong(tiny_run: Path, tmp_path: Path) -> None:
    source, target = write(tmp_path / "t.s", "a\nb\n"), write(tmp_path / "t.t", "a\n")
    [message] = fail("evaluate", tiny_run, "--file", source, "--file", target)
    assert message.startswith(f"{source}:2: {source} has 2 lines, {target} has 1")
    write(target, "a\n\n")
    message = f"{target}:2: the line is empty (fill it, or drop the row)"
    assert fail("evaluate", tiny_run, "--file", source, "--file", target) == [message]
    write(target, f"a\n{'b' * 100_000}\n")
    [message] = fail("evaluate", tiny_run, "--file", source, "--file", target)
    assert message.startswith(f"{target}:2: the line has 100,000 characters, data.max_characters allows 20,000")
    write(target, f"a\n{'b' * 10_000}\n")
    message = f"{source}:2: the pair has 10,000 tokens (at most 2,048: split it)"
    assert fail("evaluate", tiny_run, "--file", source, "--file", target) == [message]
    three = ["--file", source] * 3
    message = "--file: 3 files are too many (one with all columns, or 2: source, target)"
    assert fail("evaluate", tiny_run, *three) == [message]
    assert fail("evaluate", tiny_run, "--file", source) == [
        f"--file: {source} is no table, so it can hold only one of the columns "
        "(--file SOURCE --file TARGET, or one table: .tsv, .csv, .jsonl, .parquet)"
    ]
    other = write(tmp_path / "t.jsonl", '{"en": "a", "ko": "b"}\n')
    assert fail("evaluate", tiny_run, "--file", other) == [
        f"{other}:1: there is no column 'source' (the columns are en, ko; wanted are source, target: rename them)"
    ]


def test_pictures_that_cannot_be_drawn(tiny_run: Path, tmp_path: Path) -> None:
    allowed = "allowed: .svg, .png, .html, .json"
    assert fail("explain", tiny_run, "a", "--out", "x.gif") == [f"x.gif: cannot write a .gif ({allowed})"]
    message = f"attention: cannot write a file without suffix ({allowed})"
    assert fail("explain", tiny_run, "a", "--out", "attention") == [message]
    picture = tmp_path / "no" / "x.svg"
    assert fail("explain", tiny_run, "a", "--out", picture) == [
        f"{picture}: there is no folder {picture.parent} (give another --out)"
    ]


def test_recipes_that_do_not_ship(tmp_path: Path) -> None:
    message = "recipes: no recipe of the name 'daets' ships (did you mean 'dates'?)"
    assert fail("recipes", "daets") == [message]
    there = write(tmp_path / "mine.yaml", "mine")
    assert fail("recipes", "dates", "--out", there) == [f"{there}: the file exists already (give another --out)"]
    assert there.read_text(encoding="utf-8") == "mine"
    assert fail("recipes", "--out", tmp_path / "x")[0].startswith("--out: name the recipe to copy (allowed: ")
    assert fail("recipes", "dates", "--out", there / "x") == [f"{there / 'x'}: Not a directory"]


def test_options_and_verbs_that_do_not_exist(tiny_run: Path) -> None:
    for arguments, words in (
        (["tarin"], "No such command 'tarin'"),
        (["predict", tiny_run, "a", "--bem", "3"], "No such option: --bem"),
        (["predict", tiny_run, "a", "--beam", "x"], "Invalid value for '--beam'"),
        (["train", "dates"], "Missing option '--out'"),
    ):
        result = regard(*arguments)
        assert result.code == 2
        assert words in result.err
        assert "Traceback" not in result.err


def test_a_model_that_does_not_fit_into_memory(project: Project) -> None:
    """A matrix of hidden * hidden takes 2**58 bytes, more than any machine has."""
    [message] = fail("check", project.recipe, f"model.hidden={2**28}")
    assert message.startswith("training.batch_tokens: out of memory")
    fail("train", project.recipe, f"model.hidden={2**28}", "--out", project.folder / "huge")
    assert not (project.folder / "huge").exists()


def test_mistakes_in_python_are_errors_of_ours(project: Project) -> None:
    with pytest.raises(ConfigError, match=r"training\.stesp: unknown key"):
        api.train(project.recipe, ["training.stesp=3"], out=project.folder / "run")
    with pytest.raises(CheckpointError, match="not a run folder"):
        api.predict(project.folder.parent, ["a"])
    assert [problem.where for problem in api.check(project.recipe, ["model.hiden=3"]).problems] == ["model.hiden"]
