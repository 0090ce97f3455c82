"""Every verb through the command line: what it prints, that its numbers are true, and that Python
gives the same."""

import gzip
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import unicodedata
from contextlib import redirect_stderr
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import sacrebleu
import typer
from hypothesis import given
from hypothesis import strategies as st

import regard as api
from command_line import contents, fail, regard, succeed, write, write_table
from regard.cli import app
from regard.cli.console import bar
from regard.data.corpora import generate
from regard.data.inputs import table_corpus
from regard.errors import DataError
from regard.recipes.shipped import shipped, shipped_text
from regard.tasks.answers import summed
from regard.tasks.captioning import BLEU_1_TO_4
from regard.tasks.reading import by_length
from regard.tasks.translation import BLEU_4, EvaluationConfig, Parallel, translation_scores
from regard.text.files import TextFile

RECIPE = """
task: translation
data:
  train: {corpus: reverse, size: 600}
  validation: {corpus: reverse, size: 30}
  test: {corpus: reverse, size: 40}
tokenizer: {kind: word}
model: {kind: bahdanau, embedding: 24, hidden: 32, attention: 32, dropout: 0.0}
training: {steps: 90, batch_tokens: 512, learning_rate: 1.0e-2, device: cpu, validate_every: 45, decode: 10}
search: {beam: 3, length_penalty: 1.0}
"""
TEST_PAIRS = list(generate("reverse", 40, 1, "test"))
INPUTS = [source for source, _ in TEST_PAIRS][:12]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("cli") / "recipe.yaml", RECIPE)


@pytest.fixture(scope="module")
def run(recipe: Path) -> Path:
    """A run that has learned enough to write something, and little enough to be often wrong."""
    return Path(succeed("train", recipe, "--out", recipe.parent / "run", "--json").json["run"])


def predictions(run: Path, *arguments: object, stdin: str = "") -> list[dict[str, Any]]:
    return succeed("predict", run, *arguments, "--json", stdin=stdin).jsons


HAND_MADE = "a b c\nb\nc a\na a a a\nb c a b\nc\na b\nb b c\nc c\na c b a c\n"
HAND_MADE_RECIPE = """
task: translation
data: {train: {source: train.s, target: train.t}, validation: {source: val.s, target: val.t}}
tokenizer: {kind: word, joint: false}
model: {kind: rnn, cell: gru, embedding: 3, hidden: 5, dropout: 0.0}
training: {epochs: 4, batch_tokens: 12, device: cpu}
"""


@pytest.fixture(scope="module")
def hand_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three words on each side; the last pair of the validation has one word that is unknown and
    one that is not."""
    folder = tmp_path_factory.mktemp("hand_made")
    files = {
        "train.s": HAND_MADE,
        "train.t": HAND_MADE.upper(),
        "val.s": "a b\nb z\n",
        "val.t": "A B\nB Z Z\n",
    }
    for name, content in files.items():
        write(folder / name, content)
    return write(folder / "recipe.yaml", HAND_MADE_RECIPE)


@pytest.fixture(scope="module")
def checked(hand_made: Path) -> dict[str, Any]:
    before = contents(hand_made.parent)
    result: dict[str, Any] = succeed("check", hand_made, "--json").json
    assert contents(hand_made.parent) == before, "check leaves nothing behind"
    assert list(result) == ["ok", "problems", "model", "data", "training"]
    assert (result["ok"], result["problems"]) == (True, [])
    return result


def test_check_counts_parameters_as_by_hand(hand_made: Path, checked: dict[str, Any]) -> None:
    vocabulary = 4 + 1 + 3  # special tokens, the mark of a space, and a, b, c
    gru = 3 * (5 * 3 + 5 * 5 + 2 * 5)
    by_hand = {
        "source_embedding": vocabulary * 3,
        "target_embedding": vocabulary * 3,
        "encoder": gru,
        "bridge": 5 * 5 + 5,
        "decoder": gru,
        "V": 5 * 3 + 3,
        "output": vocabulary * 3 + vocabulary,
    }
    assert checked["data"]["vocabulary"] == {"source": vocabulary, "target": vocabulary}
    assert checked["model"] == {
        "kind": "rnn",
        "parameters": sum(by_hand.values()),
        "parts": by_hand,
    }
    tied = succeed("check", hand_made, "model.tie=target", "--json").json["model"]
    assert tied["parameters"] == sum(by_hand.values()) - vocabulary * 3
    assert tied["parts"] == by_hand | {"output": vocabulary}, "the shared matrix counts once"
    assert tied["tied"] == {"output": "target_embedding"}
    assert (
        "output 8 and what target_embedding has)"
        in succeed("check", hand_made, "model.tie=target").out
    )


def test_check_shows_samples_and_an_estimate(checked: dict[str, Any]) -> None:
    first = {"where": "train.s:1", "source": ["▁a", "▁b", "▁c"], "target": ["▁A", "▁B", "▁C"]}
    assert checked["data"]["samples"][0] == first
    training = checked["training"]
    assert training["steps"] == 4 * training["batches_per_epoch"]
    assert training["memory_bytes"] > 16 * checked["model"]["parameters"]
    assert training["seconds"] == pytest.approx(training["steps"] * training["seconds_per_step"])
    rows, width = training["sample_batch"]["source"]
    assert rows * width <= training["batch_tokens"] == 12


def test_check_speaks_to_people(hand_made: Path) -> None:
    out = succeed("check", hand_made).out
    assert "rnn, 428 parameters" in out
    assert "10 of 10 pairs; source 27 tokens (0.00 % unknown)" in out
    assert (
        "2 of 2 pairs; source 4 tokens (25.00 % unknown), target 5 tokens (40.00 % unknown)" in out
    )
    assert re.search(r"^ +2-2 +█+ 3$", out, re.MULTILINE)
    assert "train.s:1\n    source  ▁a ▁b ▁c" in out
    assert re.search(r"about (\d+ to )?\d+ s for \d+ steps", out)
    assert "or one example" not in out
    short = succeed(
        "check", hand_made, "training.batch_tokens=3"
    ).out  # texts of 1 to 5 words and an end
    longer = sum(len(line.split()) + 1 > 3 for line in HAND_MADE.splitlines())
    assert (
        f"{longer} of 10 training examples are longer than training.batch_tokens=3 (the longest: 6 "
        "tokens)" in short
    )
    assert "of at most 3 tokens, or one example; the first: 1 example, " in short


def test_check_finds_mistakes_of_every_kind_at_once(hand_made: Path) -> None:
    write(hand_made.parent / "bad.s", "a\n\n")
    messages = fail(
        "check", hand_made, "model.hiden=3", "training.steps=-1", "data.validation.source=bad.s"
    )
    assert messages == [
        "model.hiden: unknown key 'hiden' (did you mean 'hidden'?)",
        "training.steps: should be greater than or equal to 1, not -1",
        "bad.s:2: the line is empty (fill it, or data.bad_lines=drop drops such pairs)",
        "data.bad_lines: 1 of 2 pairs cannot be used (auto drops up to 1% of them, "
        "data.bad_lines=drop any number)",
    ]
    messages = fail("check", hand_made, "training.best=blue", "data.train.source=tran.s")
    assert [message.partition(":")[0] for message in messages] == ["training.best", "tran.s"]
    result = regard("check", hand_made, "model.hiden=3", "--json")
    problems = [
        {"where": "model.hiden", "what": "unknown key 'hiden'", "hint": "did you mean 'hidden'?"}
    ]
    assert (result.code, result.err) == (2, "")
    assert result.json == {
        "ok": False,
        "problems": problems,
        "model": {},
        "data": {},
        "training": {},
    }


def test_arguments_standard_input_and_files_give_the_same(run: Path, tmp_path: Path) -> None:
    lines = "".join(f"{text}\n" for text in INPUTS)
    from_arguments = succeed("predict", run, *INPUTS).out
    assert len(from_arguments.splitlines()) == len(INPUTS)
    assert len(set(from_arguments.splitlines())) > len(INPUTS) // 2, (
        "a model that always wrote the same proves little"
    )
    for stdin in (lines, "\ufeff" + lines.replace("\n", "\r\n")):
        assert succeed("predict", run, stdin=stdin).out == from_arguments
    for name, content in (("in.txt", lines), ("in.txt.gz", gzip.compress(lines.encode()))):
        assert (
            succeed("predict", run, "--file", write(tmp_path / name, content)).out == from_arguments
        )
    assert succeed("translate", run, *INPUTS).out == from_arguments


def test_order_and_neighbours_do_not_matter(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({len(text) for text in INPUTS}) > 4
    alone = [predictions(run, text)[0] for text in INPUTS]
    assert [one["input"] for one in alone] == INPUTS
    for size in (4_000, 5):
        monkeypatch.setattr("regard.inference.predictions.INPUTS_PER_CHUNK", size)
        together = predictions(run, *reversed(INPUTS))
        for one, other in zip(reversed(alone), together, strict=True):
            assert other == one | {
                "score": pytest.approx(one["score"], abs=1e-4),
                "nbest": other["nbest"],
            }


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_n_best_are_distinct_sorted_by_the_objective_and_printed(
    run: Path, alpha: float
) -> None:
    for found in predictions(
        run, *INPUTS[:4], "--beam", 6, "--nbest", 5, "--length-penalty", alpha
    ):
        assert 1 < len(found["nbest"]) <= 5
        assert len({tuple(one["tokens"]) for one in found["nbest"]}) == len(found["nbest"])
        objectives = [one["score"] / len(one["tokens"]) ** alpha for one in found["nbest"]]
        assert objectives == sorted(objectives, reverse=True)
    printed = succeed(
        "predict", run, INPUTS[3], "--beam", 6, "--nbest", 5, "--length-penalty", alpha
    ).out
    assert printed == "".join(f"{one['score']:.4f}\t{one['output']}\n" for one in found["nbest"])


def test_each_score_is_that_of_the_tokens_beside_it(run: Path) -> None:
    for found in predictions(run, *INPUTS[:3], "--nbest", 3):
        for one in found["nbest"]:
            for target in (json.dumps(one["tokens"]), " ".join(one["tokens"])):
                scored = succeed("score", run, found["input"], target, "--tokens", "--json").json
                assert scored["score"] == pytest.approx(one["score"], abs=1e-4)
                assert scored["tokens"] == one["tokens"]


def test_settings_change_the_search_of_a_run(run: Path) -> None:
    assert predictions(run, *INPUTS, "--set", "search.beam=1") == predictions(
        run, *INPUTS, "--beam", 1
    )
    wide = predictions(run, INPUTS[0], "--set", "search.beam=7", "--nbest", 2)
    assert wide == predictions(run, INPUTS[0], "--beam", 7, "--nbest", 2)
    assert all(
        len(one["tokens"]) <= 3 for one in predictions(run, *INPUTS, "--set", "search.max_length=3")
    )


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_work_is_batched_by_length(lengths: list[int], batch_tokens: int) -> None:
    batches = list(by_length(lengths, batch_tokens))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch, following in pairwise([*batches, []]):
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * longest <= batch_tokens
        assert min(lengths[row] for row in batch) >= max(
            (lengths[row] for row in following), default=0
        )
        assert not following or (len(batch) + 1) * longest > batch_tokens


@pytest.fixture(scope="module")
def evaluated(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = succeed("evaluate", run, "--json").json
    return found


def test_metrics_are_those_of_the_predictions(run: Path, evaluated: dict[str, Any]) -> None:
    outputs = [one["output"] for one in predictions(run, *(source for source, _ in TEST_PAIRS))]
    references = [target for _, target in TEST_PAIRS]
    bleu, chrf = (
        sacrebleu.corpus_bleu(outputs, [references]),
        sacrebleu.corpus_chrf(outputs, [references]),
    )
    assert 1 < bleu.score < 99
    assert evaluated["bleu"] == pytest.approx(bleu.score)
    assert evaluated["chrf"] == pytest.approx(chrf.score)
    assert evaluated["exact_match"] == sum(map(str.__eq__, outputs, references)) / 40
    assert (evaluated["sentences"], evaluated["beam"]) == (40, 3)
    version = sacrebleu.__version__
    assert (
        evaluated["bleu_signature"]
        == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    )
    assert (
        evaluated["chrf_signature"]
        == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    )
    found = succeed(
        "evaluate", run, "--set", "evaluation.lowercase=true", "--set", "search.beam=1", "--json"
    ).json
    assert ("case:lc" in found["bleu_signature"], found["beam"]) == (True, 1)


def test_perplexity_is_that_of_the_scores(run: Path, tmp_path: Path) -> None:
    pairs = TEST_PAIRS[:3]
    file = write_table(
        tmp_path / "few.tsv", [{"source": source, "target": target} for source, target in pairs]
    )
    scored = [succeed("score", run, source, target, "--json").json for source, target in pairs]
    loss = -sum(one["score"] for one in scored) / sum(len(one["tokens"]) for one in scored)
    found = succeed("evaluate", run, "--file", file, "--json").json
    assert found["loss"] == pytest.approx(loss, abs=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)


def test_kinds_of_files(
    run: Path, evaluated: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"target": target, "source": source} for source, target in TEST_PAIRS]
    write_table(tmp_path / "t.jsonl.gz", rows)
    write_table(tmp_path / "t.tsv", rows)
    for name, column in (("t.src", "source"), ("t.trg", "target")):
        write(tmp_path / name, "".join(f"{row[column]}\n" for row in rows))
    for files in (["t.tsv"], ["t.jsonl.gz"], ["t.src", "t.trg"]):
        options = [part for file in files for part in ("--file", file)]
        found = succeed("evaluate", run, *options, "--json").json
        expected = {"files": files, **evaluated}
        assert list(found) == [name for name in expected if name != "split"]
        assert found.pop("files") == expected.pop("files")
        assert {"split": "test", **found} == pytest.approx(expected)


NUMBERED = Parallel(file="n.tsv", source=1, target=0)
OWN = Parallel(file="chat.csv.xz", source="Q", target="A", size=5, prefix="<2de> ")


@pytest.mark.parametrize(
    ("name", "own", "source", "target"),
    [
        ("o.csv", [OWN, NUMBERED], "Q", "A"),
        ("o.jsonl", [OWN], "Q", "A"),
        ("o.tsv", [NUMBERED, OWN], 1, 0),
        ("o.jsonl", [NUMBERED], "source", "target"),
        ("o.tsv", [], "source", "target"),
    ],
)
def test_keys_of_a_table(
    name: str, own: list[Parallel], source: str | int, target: str | int
) -> None:
    """Those of the recipe's first table, else the task's; a first pair of single words is a header
    only for names."""
    corpora = [Parallel(source="a.en", target="a.de"), *own]
    assert table_corpus(TextFile(name, Path(name)), corpora) == Parallel(
        file=name, source=source, target=target
    )


def test_splits_are_chosen_by_name(run: Path, tiny_run: Path) -> None:
    assert succeed("evaluate", run, "--split", "validation", "--json").json["sentences"] == 30
    share = succeed("evaluate", tiny_run, "--json").json
    assert share.pop("note") == "the run's recipe has no test set"
    assert share == succeed("evaluate", tiny_run, "--split", "validation", "--json").json
    printed = [
        line.split(maxsplit=1)
        for line in succeed("evaluate", tiny_run).out.splitlines()
        if line.strip()
    ]
    assert [*map(str.strip, printed[2])] == ["split", "validation"]
    assert [*map(str.strip, printed[3])] == ["note", "the run's recipe has no test set"]
    train = succeed("evaluate", tiny_run, "--split", "train", "--beam", 1, "--json").json
    distinct = len(set(generate("reverse", 300, 1, "train")))
    assert share["sentences"] == math.ceil(0.05 * distinct)
    assert train["sentences"] == distinct - share["sentences"]


def test_korean_in_either_unicode_form_is_the_same_text() -> None:
    text = "오늘은 날씨가 좋다"
    found = translation_scores(
        [text], [[unicodedata.normalize("NFD", text)]], EvaluationConfig(tokenize="char")
    )
    assert found["exact_match"] == 1
    assert found["bleu"] == pytest.approx(100)


@pytest.mark.parametrize("orders", [BLEU_4, BLEU_1_TO_4])
def test_case_counts_for_all_metrics_or_for_none(orders: dict[str, int]) -> None:
    pair = ["Ein Rockkonzert findet statt ."], [["ein Rockkonzert findet statt ."]]
    exactly, either = (
        translation_scores(*pair, EvaluationConfig(lowercase=lowercase), orders)
        for lowercase in (False, True)
    )
    assert (exactly["exact_match"], either["exact_match"]) == (0, 1)
    assert exactly["chrf"] < either["chrf"] == pytest.approx(100)


def test_a_text_is_scored_as_its_tokens(run: Path) -> None:
    source, target = TEST_PAIRS[0]
    whole = succeed("score", run, source, target, "--json").json
    assert whole["tokens"] == [*(f"▁{word}" for word in target.split()), "</s>"]
    assert whole["score"] == pytest.approx(sum(whole["token_scores"]))
    assert (whole["source"], whole["target"]) == (source, target)
    assert all(score <= 0 for score in whole["token_scores"])
    beginning = succeed(
        "score", run, source, " ".join(whole["tokens"][:2]), "--tokens", "--json"
    ).json
    assert beginning["token_scores"] == pytest.approx(whole["token_scores"][:2], abs=1e-5)
    *shown, total = succeed("score", run, source, target).out.splitlines()[
        : len(whole["tokens"]) + 1
    ]
    pairs = zip(whole["token_scores"], whole["tokens"], strict=True)
    assert shown == [f"{score:10.4f}  {token}" for score, token in pairs]
    assert total == f"{whole['score']:10.4f}  log P of all {len(whole['tokens'])} tokens"


def test_the_weights_are_those_of_the_tokens_that_were_written(
    tmp_path: Path, tiny_recipe: dict[str, Any]
) -> None:
    """A subword model may write other pieces than its tokenizer would cut; the picture shows what
    it wrote."""
    tiny_recipe["data"] |= {"train": {"corpus": "dates", "size": 300}, "max_length": 200}
    tiny_recipe["tokenizer"] = {"kind": "bpe", "vocabulary": 300}
    tiny_recipe["training"]["steps"] = 5
    run = api.train(tiny_recipe, out=tmp_path / "run", quiet=True)
    vocabulary = run.tokenizers["target"]
    written = api.predict(run, ["5 March 2024"], beam=1)[0].nbest[0]
    ids = vocabulary.token_ids(written.tokens)
    assert [*vocabulary.encode(written.output), vocabulary.end] != ids, (
        "else this test shows nothing"
    )
    assert list(api.explain(run, "5 March 2024", beam=1).target.texts) == vocabulary.pieces(ids)


def test_help_lists_the_verbs_in_the_order_of_the_work() -> None:
    verbs = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert verbs == [
        "check",
        "train",
        "predict",
        "translate",
        "chat",
        "evaluate",
        "score",
        "explain",
        "diagnose",
        "compare",
        "vectors",
        "corpora",
        "show",
        "course",
        "serve",
        "studio",
        "import",
        "export",
        "recipes",
        "cache",
    ]


def test_every_parameter_of_a_command_declares_its_type_and_its_help() -> None:
    """Typer 0.24 to 0.28 refuse a command whose function says `Any`."""
    for registered in app.registered_commands:
        assert registered.callback is not None
        hints = get_type_hints(registered.callback, include_extras=True)
        assert hints.pop("return") is type(None)
        for name, hint in hints.items():
            kind, declared = get_args(hint)
            assert kind is not Any
            assert declared.help, f"{registered.name} {name}"


@pytest.mark.parametrize(("terminal", "shown"), [(True, True), (True, False), (False, True)])
def test_only_a_terminal_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: bool
) -> None:
    """It does not say that no time is left because an earlier step is done."""
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    with redirect_stderr(stream), bar("reading", visible=shown) as move:
        for step, done in (("beam 1", 4), ("beam 5", 1)):
            tell = summed(partial(move, step), 4)
            tell(0)
            tell(done)
    last = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", stream.getvalue()).rpartition("beam 5")[2]
    assert ("25% -:--:--" in last) == bool(stream.getvalue()) == (terminal and shown)


def test_recipes_are_listed_shown_and_copied(tmp_path: Path) -> None:
    listed = succeed("recipes").out.splitlines()
    assert [line.split()[0] for line in listed] == shipped()
    summaries = [shipped_text(name).splitlines()[0].removeprefix("# ") for name in shipped()]
    assert (
        len({line.index(summary) for summary, line in zip(summaries, listed, strict=True)}) == 1
    ), "one column"
    assert list(succeed("recipes", "--json").json) == shipped()
    assert succeed("recipes", "dates").out == shipped_text("dates").rstrip("\n") + "\n"
    assert succeed("recipes", "dates", "--json").json == {
        "name": "dates",
        "recipe": shipped_text("dates"),
    }
    assert (
        succeed("recipes", "dates", "--out", tmp_path / "mine.yaml").out
        == f"copied: {tmp_path / 'mine.yaml'}\n"
    )
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == shipped_text("dates")
    assert succeed(
        "check", tmp_path / "mine.yaml", "data.train.size=50", "training.device=cpu", "--json"
    ).json["ok"]


def test_python_gives_what_the_command_line_gives(
    run: Path, recipe: Path, evaluated: dict[str, Any]
) -> None:
    assert [one.to_json() for one in api.predict(run, INPUTS, nbest=2)] == predictions(
        run, *INPUTS, "--nbest", 2
    )
    assert api.evaluate(run) == evaluated
    assert api.score(run, "a b", "b a") == succeed("score", run, "a b", "b a", "--json").json
    assert (
        api.score(run, "a b", ["▁b"])
        == succeed("score", run, "a b", "▁b", "--tokens", "--json").json
    )
    weights = succeed("explain", run, "a b", "--json").json["weights"]
    assert np.array(weights) == pytest.approx(api.explain(run, "a b").weights, abs=1e-4)
    with pytest.raises(DataError, match="unknown split 'tset'"):
        api.evaluate(run, split="tset")  # type: ignore[arg-type]

    timed = {"seconds", "seconds_per_step"}
    in_python, printed = api.check(recipe).to_json(), succeed("check", recipe, "--json").json
    for found in (in_python, printed):
        found["training"] = {
            name: value for name, value in found["training"].items() if name not in timed
        }
    assert json.loads(json.dumps(in_python)) == printed


def test_python_runs_the_package_as_the_command_and_help_is_quick() -> None:
    """Because nothing heavy is imported."""
    command = [sys.executable, "-X", "importtime", "-m", "regard"]
    run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"regard {api.__version__}\n"
    run = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert all(
        verb in run.stdout for verb in ("check", "train", "predict", "evaluate", "score", "explain")
    )
    imported = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert "regard.cli" in imported
    assert not {"torch", "pydantic", "tokenizers", "accelerate", "sacrebleu"} & imported


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_reader_that_leaves_early_is_no_error_and_text_is_utf8_whatever_the_locale(
    run: Path,
) -> None:
    predict = f'"{sys.executable}" -m regard predict "{run}" --beam 1 --json'
    command = f'yes "한 a b" | head -n 2000 | {predict} | head -n 1'
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}
    result = subprocess.run(
        command, shell=True, capture_output=True, encoding="utf-8", env=environment
    )
    assert result.stderr == ""
    assert json.loads(result.stdout)["input"] == "한 a b"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_standard_output_that_takes_nothing(run: Path) -> None:
    """A reader that has left ends a command as it ends `cat`; a full disk is named."""
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    full = "regard: standard output: cannot be written: No space left on device\n"
    read, written = os.pipe()
    os.close(read)
    device = os.open("/dev/full", os.O_WRONLY)
    for verb, stream, code, said in (
        (["recipes"], written, -signal.SIGPIPE, ""),
        (["recipes"], device, 2, full),
        (["predict", run, "a b"], device, 2, full),
    ):
        words = [sys.executable, "-m", "regard", *map(str, verb)]
        ended = subprocess.run(
            words, stdout=stream, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert (ended.returncode, ended.stderr) == (code, said)
    os.close(written)
    os.close(device)
