"""Runs on raw text through the verbs: prompts and texts as they were typed, tables, one document,
pre-training that goes on."""

import copy
import json
import shutil
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from command_line import fail, succeed, write, write_table
from model_cases import tokens_of
from raw_cases import RECIPES, Runs
from regard import explain, predict
from regard.config import write_yaml
from regard.data.batches import MaskedBatch
from regard.data.corpora import generate
from regard.errors import InputError
from regard.recipes.loading import load_recipe
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.runs.examples import examples_of
from regard.runs.metrics_log import read_metrics
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.training.train import train
from task_cases import make_task
from texts import TOKENIZER_KINDS

# What was typed, and what was written


TALES = [
    tale
    for name, size in (("tales-en", 60), ("tales-ko", 20))
    for (tale,) in generate(name, size, 1, "train")
]
TOKENIZERS = {
    kind: Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=600), TALES)  # type: ignore[arg-type]
    for kind in TOKENIZER_KINDS
}
WORDS = st.sampled_from(
    ["The", "child", "was", "not", "big.", "여우가", "갔다.", "fo", "x", "quokka", "≠", "겹받침"]
)
BLANKS = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0"])


def letters(text: str) -> str:
    """A text whose Korean syllables are taken apart into consonants and vowels."""
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=40)
@given(st.lists(st.tuples(WORDS, BLANKS), min_size=1, max_size=5), st.data())
def test_the_output_is_the_prompt_and_the_rest(
    kind: str, words: list[tuple[str, str]], data: st.DataObject
) -> None:
    tokenizer = TOKENIZERS[kind]
    typed = "".join(word + blank for word, blank in words)
    typed = typed if data.draw(st.booleans()) else typed.rstrip()
    prompt = [tokenizer.end, *tokenizer.encode(fold_white_space(typed))]
    plain = [token for token in range(tokenizer.size) if token not in tokenizer.special]
    new = data.draw(st.lists(st.sampled_from(plain), max_size=4))
    task = make_task(
        "language_modeling",
        Tokenizers({"text": tokenizer}),
        model={"kind": "gpt", "preset": "tiny"},
    )
    output = task.answers.text_of(typed, prompt, SimpleNamespace(tokens=new, score=-1.0))  # type: ignore[arg-type]
    completes = kind == "jamo" and not output.startswith(typed)
    if completes:
        assert letters(output).startswith(letters(typed)), "a consonant ends the last syllable"
    else:
        assert output.startswith(typed)
    known = tokenizer.unk not in prompt and "\ufffd" not in output
    if known and typed == typed.rstrip():
        assert fold_white_space(output) == fold_white_space(tokenizer.decode([*prompt, *new]))
    assert (
        completes or not output.removeprefix(typed).startswith(" ") or not typed[-1:].isspace()
    ), "a blank stands once"


def test_a_final_consonant_completes_the_syllable_that_was_typed() -> None:
    tokenizer = TOKENIZERS["jamo"]
    made = make_task(
        "language_modeling",
        Tokenizers({"text": tokenizer}),
        model={"kind": "gpt", "preset": "tiny"},
    )
    prompt, whole = (tokenizer.encode(text) for text in ("여우가", "여우각"))
    assert whole[:-1] == prompt
    last = SimpleNamespace(tokens=whole[-1:], score=-1.0)
    assert made.answers.text_of("여우가", [tokenizer.end, *prompt], last) == "여우각"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gpt", "words"])
def test_white_space_in_a_prompt_changes_nothing_but_the_prompt(runs: Runs, name: str) -> None:
    short = ["--set", "search.max_length=8", "--json"]
    plain = succeed("predict", runs[name], "The child was", *short).json
    new = plain["output"].removeprefix("The child was")
    assert new
    for typed in (
        "The child was ",
        " The child\nwas",
        "The\tchild \u00a0 was",
        "The child was\n\n",
    ):
        found = succeed("predict", runs[name], typed, *short).json
        assert (found["input"], found["tokens"]) == (typed, plain["tokens"])
        assert found["score"] == pytest.approx(plain["score"], abs=1e-5)
        assert found["output"] == typed + (new.lstrip() if typed[-1].isspace() else new)
    expected = succeed("score", runs[name], "The child was", "not big", "--json").json
    for prompt, target in (
        ("The child\nwas ", " not\tbig\n"),
        ("\tThe  child was", "not\u3000big"),
    ):
        found = succeed("score", runs[name], prompt, target, "--json").json
        assert found["tokens"] == expected["tokens"]
        assert found["token_scores"] == pytest.approx(expected["token_scores"], abs=1e-5)
        assert found["source"] == prompt


@pytest.mark.parametrize("name", ["gpt", "words", "elmo", "bert"])
def test_vectors_are_those_of_the_text_with_single_blanks(
    runs: Runs, name: str, tmp_path: Path
) -> None:
    typed, plain = " The\tchild\nwas  big. ", "The child was big."
    succeed("predict", runs[name], typed, plain, "--features", tmp_path / "a.npz")
    found = np.load(tmp_path / "a.npz")
    assert found["inputs"].tolist() == [typed, plain]
    a, b, c = found["offsets"]
    assert found["tokens"][a:b].tolist() == found["tokens"][b:c].tolist()
    np.testing.assert_allclose(found["vectors"][a:b], found["vectors"][b:c], atol=1e-5)


def test_gaps_are_filled_as_in_the_text_with_single_blanks(runs: Runs) -> None:
    texts = ("The\n[MASK]\u00a0was  big. ", "The [MASK] was big.")
    typed, plain = succeed("predict", runs["bert"], *texts, "--json").jsons
    assert typed["masks"][0]["tokens"] == plain["masks"][0]["tokens"]
    assert typed["masks"][0]["probabilities"] == pytest.approx(
        plain["masks"][0]["probabilities"], rel=1e-4
    )
    assert typed["output"] == f"The\n{plain['masks'][0]['words'][0]}\u00a0was  big. "


def test_what_the_vocabulary_lacks_stays_and_is_told_of(runs: Runs, tmp_path: Path) -> None:
    typed = "The quokka met Zbigniew-Brzezinski"
    found = succeed("predict", runs["words"], typed)
    assert found.out.startswith(typed)
    assert len(found.out.strip()) > len(typed)
    unknown = Run.open(runs["words"]).tokenizers["text"].encode(typed).count(1)
    assert unknown == 5  # whole words and the hyphen between two of them
    assert found.err == (
        f"note: input 1 has {unknown} tokens that are not in the vocabulary ('quokka', 'met', "
        "'Zbigniew-Brzezinski'): "
        "the model reads <unk> there\n"
    )
    assert succeed("predict", runs["words"], "The was").err == ""
    many = succeed("predict", runs["words"], "The was", *["The qa qb qc qd qe"] * 3).err
    assert many == (
        "note: input 2 has 5 tokens that are not in the vocabulary ('qa', 'qb', 'qc', ...): "
        "the model reads <unk> there, and so for 2 more\n"
    )
    file = write(tmp_path / "bad.txt", b"The qa\nThe \xff\nThe was\n")
    skipped, told = succeed("predict", runs["words"], "--file", file, "--skip-bad").err.splitlines()
    assert skipped.startswith("skipped 1 of 3 inputs")
    assert told.startswith(f"note: {file}:1 has 1 token that is not in the vocabulary ('qa')")
    gap = succeed("predict", runs["bert"], "The 여우 [MASK]")
    assert gap.out.startswith("The 여우 ")
    assert (
        gap.err
        == "note: input 1 has 1 token that is not in the vocabulary ('여우'): the model reads "
        "[UNK] there\n"
    )
    for name, told in (("bert", True), ("elmo", False)):  # which reads the letters of every word
        err = succeed("predict", runs[name], "The 여우", "--features", tmp_path / f"{name}.npz").err
        assert ("not in the vocabulary ('여우')" in err) == told


def test_samples_of_a_validation_begin_with_the_text_itself(runs: Runs) -> None:
    line, _ = (
        line
        for line in read_metrics(runs["words"] / "metrics.jsonl")
        if line["event"] == "validation"
    )
    assert len(line["samples"]) == 2
    tokenizer = Run.open(runs["words"]).tokenizers["text"]
    assert any(1 in tokenizer.encode(sample["source"]) for sample in line["samples"]), (
        "some word is unknown"
    )
    for sample in line["samples"]:
        assert sample["output"].startswith(sample["source"])
        assert sample["target"].startswith(sample["source"])


# Tables

ROWS = ["The child was big.", "Anna\nwent home.", "The dog, it was late."]
PLAIN = ["The child was big.", "Anna went home.", "The dog, it was late."]


def table(file: Path, column: str) -> Path:
    """The rows as a table, with a number beside each; a .tsv quotes nothing, so that a cell has no
    line break."""
    texts = PLAIN if ".tsv" in file.suffixes else ROWS
    return write_table(
        file, [{"id": str(number), column: text} for number, text in enumerate(texts)]
    )


@pytest.mark.parametrize("suffix", ["csv.gz", "tsv", "jsonl", "parquet"])
def test_a_table_is_read_by_its_column(runs: Runs, tmp_path: Path, suffix: str) -> None:
    file, lines = (
        table(tmp_path / f"a.{suffix}", "text"),
        write(tmp_path / "a.txt", "\n".join(PLAIN) + "\n"),
    )
    for one, out in ((file, "table.npz"), (lines, "lines.npz")):
        succeed(
            "predict",
            runs["bert"],
            "--file",
            one,
            "--features",
            tmp_path / out,
            "--pooling",
            "mean",
        )
    rows, expected = np.load(tmp_path / "table.npz"), np.load(tmp_path / "lines.npz")
    assert rows["inputs"].tolist() == expected["inputs"].tolist() == PLAIN
    np.testing.assert_allclose(rows["vectors"], expected["vectors"], atol=1e-6)
    short = ["--set", "search.max_length=5"]
    found = succeed("predict", runs["gpt"], "--file", file, *short).out
    assert found == succeed("predict", runs["gpt"], "--file", lines, *short).out
    assert len(found.splitlines()) == len(ROWS)


@pytest.fixture(scope="module")
def of_bodies(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A run that was trained on the column `body` of a .csv file."""
    folder = tmp_path_factory.mktemp("bodies")
    bodies = "id,body\n" + "".join(f'{number},"{tale}"\n' for number, tale in enumerate(TALES[:60]))
    write(folder / "train.csv", bodies)
    tree = copy.deepcopy(RECIPES["gpt"])
    tree["data"] |= {
        "train": {"file": str(folder / "train.csv"), "text": "body"},
        "validation": {"split": 0.2},
    }
    train(tree, out=folder / "run", quiet=True)
    return folder / "run"


def test_the_column_is_that_of_the_training(of_bodies: Path, tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl", "a.tsv.gz"):
        found = succeed(
            "predict", of_bodies, "--file", table(tmp_path / name, "body"), "--json"
        ).jsons
        assert [one["input"] for one in found] == PLAIN
    files = [tmp_path / name for name in ("a.csv", "a.jsonl")]
    measured = [succeed("evaluate", of_bodies, "--file", file, "--json").json for file in files]
    assert measured[0].pop("files") != measured[1].pop("files")
    assert measured[0] == measured[1]
    both = write(tmp_path / "c.csv", "text,body\nAnna,The dog\n")
    assert succeed("predict", of_bodies, "--file", both, "--json").json["input"] == "The dog"
    without = table(tmp_path / "a.csv", "content")
    message = f"{without}:1: there is no column 'body' (the columns are id, content)"
    assert fail("predict", of_bodies, "--file", without)[0] == message


def test_two_texts_are_asked_whether_the_second_follows(runs: Runs) -> None:
    pair, other = "The dog went home.\tIt was [MASK].", "Anna sang.\tShe was late."
    first, second = succeed("predict", runs["bert"], pair, other, "--json").jsons
    run = Run.open(runs["bert"])
    model = run.load_model()
    row = run.task.views.gaps.framed(model, run.task.inputs.typed(pair, "input"))
    batch = MaskedBatch(
        tokens_of([row.ids]), torch.tensor([row.segments]), *[torch.zeros(0, dtype=torch.long)] * 2
    )
    with torch.inference_mode():
        logits = model.next_sentence(model(batch).hidden_BTD)[0]
    assert sorted(row.segments) == row.segments
    assert 0 < sum(row.segments) < len(row.segments)
    assert first["next_sentence"] == pytest.approx(float(logits.softmax(-1)[0]), rel=1e-5)
    assert (len(first["masks"]), second["masks"]) == (1, [])
    assert (
        succeed("predict", runs["bert"], other).out
        == f"{other}\tP(next) {second['next_sentence']:.4f}\n"
    )
    assert (
        explain(runs["bert"], ("Anna sang.", "She was late.")).output
        == f"P(next) = {second['next_sentence']:.4f}"
    )
    [posted] = predict(run, [{"first": "Anna sang.", "second": "She was late."}])
    assert posted.to_json() == second
    with pytest.raises(InputError, match="two texts are expected, not 3"):
        predict(run, ("Anna sang.", "She was late.", "So was he."))


# Measured


def test_one_document_is_measured_by_its_masked_tokens(runs: Runs, tmp_path: Path) -> None:
    file = write(
        tmp_path / "one.txt", "The child was big. The dog went home. Anna was late. She sang. " * 3
    )
    found = succeed("evaluate", runs["bert"], "--file", file, "--json").json
    assert found["files"] == [str(file)]
    assert found["documents"] == 1
    assert "next sentences need two documents" in found["note"]
    assert not any(name.startswith("next_sentence") for name in found)
    run = Run.open(runs["bert"])
    examples, model = examples_of(run, None, [str(file)]), run.load_model()
    [row] = run.task.metrics.by_unit(model, examples, lambda done: None)
    assert (found["loss"], found["masked_accuracy"]) == pytest.approx(
        (row["loss"] / row["masked"], row["correct"] / row["masked"]), rel=1e-5
    )
    two = write(
        tmp_path / "two.txt",
        file.read_text(encoding="utf-8") + "\n\nThe dog sang. Anna went home.\n",
    )
    whole = succeed("evaluate", runs["bert"], "--file", two, "--json").json
    assert "note" not in whole
    assert 0 <= whole["next_sentence_accuracy"] <= 1


def test_an_autoencoder_is_measured_under_names_of_its_own(runs: Runs) -> None:
    found = succeed("evaluate", runs["autoencoder"], "--split", "validation", "--json").json
    names = ("perplexity", "word_perplexity", "bits_per_character")
    assert not set(names) & set(found)
    assert found["reconstruction_perplexity"] == pytest.approx(np.exp(found["loss"]))
    assert set(names) <= set(
        succeed("evaluate", runs["gpt"], "--split", "validation", "--json").json
    )
    two = succeed("compare", runs["autoencoder"], runs["autoencoder"], "--json").json
    assert two["metrics"] == ["reconstruction_word_perplexity", "reconstruction_bits_per_character"]
    assert two["systems"][0]["reconstruction_word_perplexity"] == pytest.approx(
        found["reconstruction_word_perplexity"]
    )


def test_an_autoencoder_is_explained_as_it_is_measured(runs: Runs, tmp_path: Path) -> None:
    """It reads the text with its end, and then writes it."""
    text = "The old fox saw the mouse."
    steps = explain(runs["autoencoder"], text).steps
    found = succeed(
        "evaluate", runs["autoencoder"], "--file", write(tmp_path / "one.txt", text), "--json"
    ).json
    assert np.mean([-np.log(step.probability) for step in steps]) == pytest.approx(
        found["loss"], rel=1e-6
    )


# A pre-training that goes on

SMALL = ["data.max_length=24", "data.train.size=60", "data.validation.size=6"]
STILL = [
    "training.learning_rate=1e-12",
    "training.steps=1",
    "training.validate_every=1",
    "training.warmup=0",
]


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_the_model_and_the_tokenizer_are_those_of_the_run(
    runs: Runs, name: str, tmp_path: Path
) -> None:
    """Of a recipe that ships, or of one that says nothing else, on other text."""
    own = {
        key: value
        for key, value in copy.deepcopy(RECIPES[name]).items()
        if key not in ("model", "tokenizer")
    }
    own["data"]["train"]["seed"] = 7
    file = write(tmp_path / "own.yaml", write_yaml(own))
    for asked in (f"tales-{name}", file):
        options = [f"training.init={runs[name]}", "training.device=cpu", *SMALL, *STILL]
        run = train(asked, options, out=tmp_path / Path(asked).stem, quiet=True)
        before = Run.open(runs[name])
        assert run.tokenizers.fingerprint == before.tokenizers.fingerprint
        assert run.recipe.model == before.recipe.model
        theirs, ours = (load_weights(one.checkpoint("best")) for one in (before, run))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_what_contradicts_the_run_is_named_at_once(runs: Runs, tmp_path: Path) -> None:
    init = f"training.init={runs['bert']}"
    tree = copy.deepcopy(RECIPES["bert"])
    tree["model"]["width"], tree["model"]["dropout"], tree["tokenizer"]["vocabulary"] = 32, 0.2, 300
    file = write(tmp_path / "bert.yaml", write_yaml(tree))
    messages = fail("check", file, init)
    assert [message.partition(":")[0] for message in messages] == [
        "tokenizer.vocabulary",
        "model.width",
    ]
    found, _ = load_recipe(file, [init, "tokenizer.vocabulary=200", "model.width=16"])
    assert (found.model.dropout, found.model.layers) == (0.2, 2)


def test_a_model_without_its_heads_gets_fresh_ones(runs: Runs, tmp_path: Path) -> None:
    """As imported encoders come: without the head for masked tokens, and perhaps without the one
    for next sentences."""
    run, headless = Run.open(runs["bert-single"]), tmp_path / "headless"
    shutil.copytree(run.folder, headless)
    weights = Run.open(headless).checkpoint("best") / "model.safetensors"
    save_file(
        {key: one for key, one in load_file(weights).items() if not key.startswith("output.")},
        weights,
    )
    text = (headless / "recipe.yaml").read_text(encoding="utf-8")
    assert "masked_head: true" in text
    write(headless / "recipe.yaml", text.replace("masked_head: true", "masked_head: false"))
    facts = {"step": 16, "tokenizer": run.tokenizers.fingerprint, "files": {"other": "0"}}
    write(weights.with_name("checkpoint.json"), json.dumps(facts))
    own = {
        key: value for key, value in RECIPES["bert"].items() if key not in ("model", "tokenizer")
    }
    file = write(tmp_path / "own.yaml", write_yaml(own))
    options = [f"training.init={headless}", *STILL]
    told = succeed("train", file, *options, "--out", tmp_path / "again").err
    assert f"weights: those of {headless}, step-00000016; new: output\n" in told
    assert " masked tokens/s  about " in told
    [line] = (
        line
        for line in read_metrics(tmp_path / "again" / "metrics.jsonl")
        if line["event"] == "train"
    )
    assert line["unit"] == "masked tokens"
    ours, theirs = (
        load_weights(Run.open(tmp_path / "again").checkpoint("best")),
        load_weights(run.checkpoint("best")),
    )
    for key, tensor in theirs.items():
        assert torch.allclose(ours[key], tensor, rtol=0, atol=1e-9) or key.startswith("output."), (
            key
        )
    assert not torch.allclose(ours["output.W.weight"], theirs["output.W.weight"])
    both = succeed(
        "train", file, *options, "model.next_sentence=true", "--out", tmp_path / "both"
    ).err
    assert "; new: output, next_sentence\n" in both
    options[0] = f"training.init={runs['bert']}"
    without = succeed(
        "train", file, *options, "model.next_sentence=false", "--out", tmp_path / "without"
    ).err
    assert "new:" not in without
    kept = load_weights(Run.open(tmp_path / "without").checkpoint("best"))
    assert not any(key.startswith("next_sentence") for key in kept)
