"""Language models and BERT through the verbs: what they measure, write, fill and hand out; exact
resume; bad input."""

import copy
import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard as api
from command_line import fail, refusal, succeed, write
from raw_cases import BERT, ELMO, GPT, LSTM, RECIPES, Runs, Tree, raw_recipe
from regard.api import features
from regard.config import write_yaml
from regard.data.batches import MaskedBatch, Padded, TextBatch
from regard.data.corpora import generate
from regard.data.raw import EVALUATED_STREAMS, Streams
from regard.objectives.language_model import CarriedNextToken
from regard.runs import Run
from regard.runs.checkpoints import load_training, load_weights
from regard.tasks.language_modeling import LanguageModeling
from regard.tasks.masked_language_modeling import put_in
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.text.vocabularies import MASKING_NAMES
from regard.training.train import train
from task_cases import make_task


def lines_of(run: Path, event: str) -> list[Tree]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("name", RECIPES)
def test_training_lowers_the_loss(runs: Runs, name: str) -> None:
    validations = lines_of(runs[name], "validation")
    assert validations[-1]["loss"] < validations[0]["loss"] < 1.05 * math.log(200)
    assert Run.open(runs[name]).recipe.training.label_smoothing == 0


CYCLE = "\n".join(
    " ".join("abcdefghijkl"[(start + step) % 12] for step in range(20)) for start in range(12)
)


@pytest.mark.parametrize(
    ("model", "metric", "least", "most"),
    [
        (
            GPT | {"dropout": 0.0, "norm": "pre"},
            "perplexity",
            1.0,
            1.35,
        ),  # the first letter is anyone's guess
        (LSTM | {"weight_dropout": 0.0, "embedding": 32}, "perplexity", 1.0, 1.35),
        (ELMO | {"dropout": 0.0, "words": "tokens"}, "backward_perplexity", 1.0, 1.35),
        (BERT | {"dropout": 0.0, "next_sentence": False}, "masked_accuracy", 0.95, 1.0),
    ],
)
def test_a_simple_order_is_learned(
    model: Tree, metric: str, least: float, most: float, tmp_path: Path
) -> None:
    """Letters in a circle, from all beginnings: what comes next or before is certain. For BERT one
    letter a line."""
    same = "\n".join(" ".join([letter] * 18) for letter in "abcdefghijkl")
    write(tmp_path / "text.txt", same if model["kind"] == "bert" else CYCLE)
    corpus = {"text": str(tmp_path / "text.txt"), "documents": "lines"}
    data, training = {"train": corpus, "validation": corpus}, {"steps": 150, "validate_every": 150}
    tree = raw_recipe(model, data, {"kind": "word"}, batch_tokens=256, decode=0, **training)
    train(tree, out=tmp_path / "run", quiet=True)
    assert least <= api.evaluate(tmp_path / "run", split="validation")[metric] <= most


DOCUMENTS = [tale for (tale,) in generate("tales-en", 12, 1, "validation")]


def test_perplexity_by_hand(runs: Runs) -> None:
    """A model without limits on the length: each document at once, and the log P of every token
    added up."""
    run = Run.open(runs["gpt"])
    tokenizer, model, texts = run.tokenizers["text"], run.load_model(), DOCUMENTS
    total, tokens = 0.0, 0
    for text in texts:
        ids = [tokenizer.end, *tokenizer.encode(text), tokenizer.end]
        for start in range(0, len(ids) - 1, 23):
            piece = torch.tensor([ids[start : start + 24]])
            total += float(-log_p(model, piece).gather(2, piece[:, 1:, None]).sum())
            tokens += piece.shape[1] - 1
    found = succeed("evaluate", runs["gpt"], "--split", "validation", "--json").json
    assert found["tokens"] == tokens
    assert found["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert found["bits_per_character"] == pytest.approx(
        total / math.log(2) / sum(map(len, texts)), rel=1e-5
    )
    words = sum(len(text.split()) + 1 for text in texts)
    assert found["word_perplexity"] == pytest.approx(math.exp(total / words), rel=1e-4)


def log_p(model: Any, ids_BL: torch.Tensor) -> torch.Tensor:
    lengths = torch.full((len(ids_BL),), ids_BL.shape[1])
    with torch.inference_mode():
        hidden = model(TextBatch(Padded.of(ids_BL, lengths))).hidden_BTD
        return model.readout(hidden).log_softmax(-1)


def test_a_prompt_that_cannot_be_read_is_no_sample(tmp_path: Path) -> None:
    """The first words of a text without spaces are all of it, here more than the model has
    positions for."""
    write(
        tmp_path / "text.txt",
        "".join(f"{'가나다라마바사'[row % 7 :] * 20}\n\n짧은 글 {row}\n\n" for row in range(40)),
    )
    tree = raw_recipe(
        GPT,
        {part: {"text": str(tmp_path / "text.txt")} for part in ("train", "validation")},
        samples=2,
    )
    run = train(tree | {"tokenizer": {"kind": "character"}}, out=tmp_path / "run", quiet=True)
    line = next(line for line in run.events() if line["event"] == "validation")
    assert [sample["source"] for sample in line["samples"]] == ["짧은 글 0"]


def test_a_carried_state_equals_one_long_pass(runs: Runs) -> None:
    """Through the batches of the data path: each stream as one row of its own, never cut."""
    run = Run.open(runs["lstm"])
    model = run.load_model().double()
    text = LanguageModeling.prepare(run.recipe, run.folder, run.tokenizers).validation.text
    examples, objective = Streams(text, 24), CarriedNextToken(model).eval()
    plan = examples.plan(EVALUATED_STREAMS * 23, 1, 0)
    total, carry = 0.0, None
    with torch.inference_mode():
        for rows in plan:
            sums_2, carry = objective(examples.batch(rows), carry)
            total += float(sums_2[1])
    starts = [*examples.starts[plan[0]].tolist(), len(text.values)]
    expected = 0.0
    for start, stop in pairwise(starts):
        ids = torch.tensor([[int(text.values[start - 1]), *text.values[start:stop].tolist()]])
        expected -= float(log_p(model, ids).gather(2, ids[:, 1:, None]).sum())
    assert total == pytest.approx(expected, rel=1e-12)
    assert run.task.metrics.loss(model, examples)["loss"] == pytest.approx(
        expected / len(text.values), rel=1e-12
    )
    with torch.inference_mode():
        fresh = sum(float(objective(examples.batch(rows))[0][1]) for rows in plan)
    assert abs(fresh - expected) > 1e-4, "without the carried state it would be another number"


def test_elmo_is_measured_in_both_directions_and_bert_on_the_same_masks_every_time(
    runs: Runs,
) -> None:
    found = succeed("evaluate", runs["elmo"], "--split", "validation", "--json").json
    both = math.log(found["forward_perplexity"]) + math.log(found["backward_perplexity"])
    assert found["loss"] == pytest.approx(both / 2)
    assert found["forward_perplexity"] != pytest.approx(found["backward_perplexity"], rel=1e-6)
    first, again = (
        succeed("evaluate", runs["bert"], "--split", "validation", "--json").json for _ in range(2)
    )
    assert first == again
    assert 0 <= first["masked_accuracy"] <= 1
    assert 0 <= first["next_sentence_accuracy"] <= 1
    assert first["loss"] == pytest.approx(lines_of(runs["bert"], "validation")[-1]["loss"])
    single = succeed("evaluate", runs["bert-single"], "--split", "train", "--json").json
    assert "next_sentence_accuracy" not in single


def test_a_file_can_be_measured(runs: Runs, tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "\n\n".join(DOCUMENTS))
    for name in ("gpt", "bert", "lstm"):
        own = succeed("evaluate", runs[name], "--split", "validation", "--json").json
        found = succeed("evaluate", runs[name], "--file", file, "--json").json
        assert (found.pop("files"), own.pop("split")) == ([str(file)], "validation")
        assert found == own


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_the_score_is_log_p_of_what_is_new(runs: Runs, name: str) -> None:
    run = Run.open(runs[name])
    tokenizer, model = run.tokenizers["text"], run.load_model()
    prompts = ["The child was", "", "Anna went to the park. She"]
    together = api.predict(run, prompts, nbest=2, overrides=["search.max_length=9"])
    for prompt, found in zip(prompts, together, strict=True):
        [alone] = api.predict(run, [prompt], nbest=2, overrides=["search.max_length=9"])
        assert [one.tokens for one in alone.nbest] == [one.tokens for one in found.nbest]  # type: ignore[attr-defined]
        for one in found.nbest:  # type: ignore[attr-defined]
            given = [tokenizer.end, *(tokenizer.encode(prompt) if prompt else [])]
            new = tokenizer.token_ids(one.tokens)
            ids = torch.tensor([[*given, *new]])
            scores = log_p(model, ids)[0, len(given) - 1 :].gather(1, torch.tensor(new)[:, None])
            assert one.score == pytest.approx(float(scores.sum()), rel=1e-4)
            assert one.output.startswith(prompt)
            assert one.output == tokenizer.decode([*given, *new])


def test_positions_limit_what_is_written(runs: Runs) -> None:
    run = Run.open(runs["gpt"])
    room = 64 - len(run.tokenizers["text"].encode("The child was")) - 1
    for least in (room - 1, room):
        [found] = api.predict(
            run, ["The child was"], beam=1, overrides=[f"search.min_length={least}"]
        )
        assert least <= len(found.nbest[0].tokens) <= room  # type: ignore[attr-defined]
    longer = f"search.min_length={room + 1}"
    [message] = fail("predict", runs["gpt"], "The child was", "", "--set", longer)
    leaves = f"leaves room for {room} of the model's 64 positions"
    assert message.endswith(f"{leaves} (search.min_length or the prefix needs {room + 1})")
    prefix = run.tokenizers["text"].decode(
        run.tokenizers["text"].encode("The child was " * 40)[:room]
    )
    for options in (
        {"overrides": [longer]},
        {"prefix": prefix, "overrides": ["search.max_length_offset=64"]},
    ):
        skipped, written = api.predict(run, ["The child was", ""], beam=1, skip_bad=True, **options)  # type: ignore[arg-type]
        assert leaves in str(skipped.problem)  # type: ignore[attr-defined]
        assert len(written.nbest[0].tokens) > room  # type: ignore[attr-defined]


def test_gaps_are_filled_by_probability(runs: Runs) -> None:
    run = Run.open(runs["bert"])
    tokenizer, model = run.tokenizers["text"], run.load_model()
    text = "The [MASK] went to the [MASK]."
    other, found = succeed(
        "predict", runs["bert"], "[MASK] [MASK] was big", text, "--nbest", "4", "--json"
    ).jsons
    assert len(other["masks"]) == 2
    ids = [
        *tokenizer.encode("The"),
        4,
        *tokenizer.encode("went to the"),
        4,
        *tokenizer.token_ids(["."]),
    ]
    ids_BL = torch.tensor([[tokenizer.begin, *ids, tokenizer.end]])
    places = [place for place, token in enumerate(ids_BL[0].tolist()) if token == 4]
    nothing, text_BL = (
        torch.empty(0, dtype=torch.long),
        Padded.of(ids_BL, torch.tensor([ids_BL.shape[1]])),
    )
    with torch.inference_mode():
        hidden_BTD = model(
            MaskedBatch(text_BL, torch.zeros_like(ids_BL), nothing, nothing)
        ).hidden_BTD
        p = model.readout(hidden_BTD[0, places]).double().softmax(-1)
    assert [len(mask["tokens"]) for mask in found["masks"]] == [4, 4]
    for place, mask in zip(places, found["masks"], strict=True):
        expected = {
            tokenizer.pieces([token])[0]: float(value)
            for token, value in enumerate(p[places.index(place)])
        }
        best = sorted(
            (value, token) for token, value in expected.items() if not token.startswith("[")
        )[::-1][:4]
        assert mask["tokens"] == [token for _, token in best]
        assert mask["probabilities"] == pytest.approx([value for value, _ in best], rel=1e-4)
        assert mask["words"] == [token.removeprefix("▁") for token in mask["tokens"]]
    assert found["output"] == text.replace("[MASK]", "{}").format(
        *(mask["words"][0] for mask in found["masks"])
    )
    [printed] = succeed("predict", runs["bert"], text).out.splitlines()
    told = [f"{mask['words'][0]} {mask['probabilities'][0]:.4f}" for mask in found["masks"]]
    assert printed.split("\t") == [found["output"], *told]


def test_a_gap_is_filled_in_the_text_as_it_was_typed(runs: Runs) -> None:
    """Whatever is unknown, spaced or written large in it."""
    typed = "여우가  THE [MASK], ([MASK]) \u1112\u1161!"
    found = succeed("predict", runs["bert"], typed, "--json").json
    one, other = (mask["words"][0] for mask in found["masks"])
    assert "▁" not in one + other
    assert found["output"] == f"여우가  THE {one}, ({other}) \u1112\u1161!"
    lines = [
        line.split("\t")
        for line in succeed("predict", runs["bert"], typed, "--nbest", "3").out.splitlines()
    ]
    assert [line[0] for line in lines] == ["1"] * 3 + ["2"] * 3
    assert [line[2] for line in lines] == [
        word for mask in found["masks"] for word in mask["words"][:3]
    ]
    assert [line[1] for line in lines] == [
        f"{p:.4f}" for mask in found["masks"] for p in mask["probabilities"][:3]
    ]
    assert lines[1][3] == f"여우가  THE {lines[1][2]}, ({other}) \u1112\u1161!"
    assert lines[5][3] == f"여우가  THE {one}, ({lines[5][2]}) \u1112\u1161!"


KOREAN = ["농부는 봄에 씨를 뿌리고 가을에 곡식을 거둔다.", "도서관에는 오래된 책이 많다."] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_mark_without_a_word_is_not_offered_and_keeps_its_probability(kind: str) -> None:
    """All tokens are asked for. Those that write nothing are left out; what they had is given to no
    other."""
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=80), KOREAN, MASKING_NAMES)  # type: ignore[arg-type]
    torch.manual_seed(1)
    sections = {
        "model": {"kind": "bert", "preset": "tiny", "next_sentence": False},
        "search": {"beam": tokenizer.size, "nbest": tokenizer.size},
    }
    task = make_task("masked_language_modeling", Tokenizers({"text": tokenizer}), **sections)
    inputs = task.inputs.typed_lines(["농부는 봄에 [MASK] 뿌리고"])
    [gap] = task.predict(task.network.build().eval(), inputs)[0].gaps
    assert all(gap.words)
    assert set(tokenizer.tokens(range(tokenizer.size))) - set(gap.tokens) == {*MASKING_NAMES, "▁"}
    assert 0.5 < sum(gap.probabilities) < 0.999


@pytest.mark.parametrize(
    ("typed", "words", "output"),
    [
        ("fox[MASK] ran", ["s"], "foxs ran"),
        ("fox[MASK] ran", [" and"], "fox and ran"),
        ("fox [MASK] ran", [" and"], "fox and ran"),
        ("([MASK])", [" and"], "(and)"),
        ("[MASK][MASK]", [" and", " s"], "and s"),
        ("여우[MASK] [MASK]", ["가", " 갔다"], "여우가 갔다"),
    ],
)
def test_a_word_comes_with_a_space_only_after_another(
    typed: str, words: list[str], output: str
) -> None:
    assert put_in(typed, words) == output


@pytest.mark.parametrize("name", ["gpt", "lstm", "elmo", "bert"])
def test_features_are_the_models_own_layers(runs: Runs, name: str, tmp_path: Path) -> None:
    run = Run.open(runs[name])
    tokenizer, texts = (
        run.tokenizers["text"],
        ["The child was big.", "Anna.", "The dog went to the park."],
    )
    file = tmp_path / "vectors.npz"
    succeed("predict", runs[name], *texts, "--features", file, "--layer", "1")
    stored = np.load(file)
    alone = [features(run, [text], layer=1).vectors for text in texts]
    assert stored["inputs"].tolist() == texts
    assert stored["tokens"].tolist() == [
        token for text in texts for token in tokenizer.tokens(tokenizer.encode(text))
    ]
    for number, vectors in enumerate(alone):
        a, b = stored["offsets"][number : number + 2]
        np.testing.assert_allclose(stored["vectors"][a:b], vectors, atol=1e-5)
    bottom = features(run, texts, layer=0).vectors
    assert bottom.shape == stored["vectors"].shape
    assert np.abs(bottom - stored["vectors"]).max() > 1e-3
    assert features(run, texts, layer=1, pooling="mean").vectors.shape == (
        3,
        stored["vectors"].shape[1],
    )


@pytest.mark.parametrize(("name", "longest"), [("gpt", 64), ("bert", 64), ("lstm", 2048)])
def test_features_of_texts_that_are_long_unknown_or_bad(
    runs: Runs, name: str, longest: int, tmp_path: Path
) -> None:
    """Long ones are cut, unknown ones read as such, bad ones skipped where that is asked for: all
    keep their place."""
    texts = ["The dog.", "The child was big. " * 400, "\u2603", " ", "\udcff"]
    file, out = tmp_path / "a.txt", tmp_path / "a.npz"
    options = ["--file", file, "--features", out, "--normalize"]
    write(file, "\n".join(texts[:4]))
    assert fail("predict", runs[name], *options) == [
        f"{file}:4: the text is empty (give at least one word)",
        "nothing was written (--skip-bad leaves such lines out, with an empty output for each)",
    ]
    write(file, "\n".join(texts).encode("utf-8", "surrogateescape"))
    told = succeed("predict", runs[name], *options, "--skip-bad").err
    assert told.startswith(f"skipped 2 of 5 inputs; the first: {file}:4: the text is empty")
    assert re.search(
        rf":2 has [\d,]+ tokens with the special ones: the model reads the first {longest:,}\n",
        told,
    )
    assert f"{file}:3: every token of '\u2603' is unknown to the tokenizer" in told
    stored, plain = np.load(out), features(runs[name], texts[:3])
    assert np.diff(stored["offsets"]).tolist() == [*np.diff(plain.offsets), 0, 0]
    assert plain.offsets[2] - plain.offsets[1] == longest - 2
    unit = plain.vectors / np.linalg.norm(plain.vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(stored["vectors"], unit, atol=1e-5)
    succeed("predict", runs[name], *options, "--skip-bad", "--pooling", "mean", "--overwrite")
    means = np.load(out)["vectors"]
    assert np.isnan(means).all(1).tolist() == [False] * 3 + [True] * 2
    np.testing.assert_allclose(
        means[:3], features(runs[name], texts[:3], pooling="mean", normalize=True).vectors
    )


@pytest.mark.parametrize("name", ["gpt", "bert", "lstm"])
def test_positions_that_were_never_learned_are_told_of_once(
    runs: Runs, name: str, tmp_path: Path
) -> None:
    """The runs were trained on 24 tokens and have rows for 64; an LSTM has no positions."""
    run, text = Run.open(runs[name]), " ".join(["The child was big."] * 4)
    length = len(run.tokenizers["text"].encode(text)) + 2
    assert 24 < length < 64
    out = ["--features", tmp_path / "a.npz"]
    expected = (
        f"note: input 2 has {length} tokens with the special ones; the model was trained on at "
        "most 24 "
        "(data.max_length), and never learned the positions after them, and so for 1 more\n"
    )
    told = succeed("predict", runs[name], "The dog.", text, text, *out).err
    assert told == ("" if name == "lstm" else expected)
    assert succeed("predict", runs[name], "The dog.", *out, "--overwrite").err == ""
    if name == "bert":
        assert "learned" not in succeed("predict", runs[name], "The [MASK].").err
        assert "never learned the positions" in succeed("predict", runs[name], f"{text} [MASK]").err
    if name == "gpt":
        short, long = (
            [f"--set=search.{limit}_length={count}" for limit in ("min", "max")]
            for count in (5, 40)
        )
        assert "learned" not in succeed("predict", runs[name], "The", *short).err
        assert succeed("predict", runs[name], "The", *long).err.startswith("note: input 1 has ")


@pytest.mark.parametrize("name", ["gpt", "lstm", "bert", "captioner"])
def test_resume_is_exact(runs: Runs, name: str, tmp_path: Path) -> None:
    """Stopped after a step within an epoch and taken up again: bit by bit the run that was never
    stopped."""
    folder = tmp_path / "stopped"
    tree = copy.deepcopy(RECIPES[name])
    tree["training"] |= {"steps": 5}
    train(tree, out=folder, quiet=True)
    tree["training"] |= {"steps": 16}
    train(tree, out=folder, resume=True, quiet=True)
    whole, resumed = (
        load_weights(Run.open(one).checkpoint("last")) for one in (runs[name], folder)
    )
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert (load_training(Run.open(folder).checkpoint("last"))[1]["carry"] is not None) == (
        name == "lstm"
    )


TEXT = "\n\n".join(tale for (tale,) in generate("tales-en", 40, 1, "train"))


def project(folder: Path, model: Tree) -> Path:
    """A recipe on raw text of its own, beside one document, short and long."""
    one = TEXT.replace("\n\n", "\n")
    for name, content in {
        "text.txt": TEXT,
        "one.txt": one,
        "book.txt": one * (100_000 // len(TEXT)),
    }.items():
        write(folder / name, content)
    data = {"train": {"text": "text.txt"}, "validation": {"split": 0.2}}
    return write(folder / "recipe.yaml", write_yaml(raw_recipe(model, data, steps=2)))


ONE = (
    "data.train: next-sentence prediction needs two documents of two sentences or more: a negative "
    "comes from another; "
    "there is 1 here, of 1 in all (end documents with blank lines, or say documents: lines; or set"
)


@pytest.mark.parametrize(
    ("model", "overrides", "begins", "ends"),
    [
        (BERT, ["data.train={text: one.txt}", "data.validation={text: text.txt}"], ONE, ""),
        (BERT, ["data.train={text: book.txt}", "data.validation={text: text.txt}"], ONE, ""),
        (
            BERT,
            ["data.train={text: one.txt}"],
            "data.train: no training document is left: 1 document was read; 1 was set aside for "
            "validation and test "
            "(documents end with a blank line, or with documents: lines at every line; give more "
            "of them, "
            "or files of their own to data.validation and data.test; next-sentence prediction, "
            "where it is on, needs "
            "two in each split)",
            "",
        ),
        (
            BERT,
            ["data.validation.split=0.02"],
            "data.validation: next-sentence prediction needs two documents of two sentences",
            "(raise data.validation.split, which is 0.02, or give data.validation a text of its "
            "own; "
            "or set model.next_sentence=false)",
        ),
        (
            BERT,
            ["tokenizer.file={RUNS}/gpt/tokenizer.json"],
            "{RUNS}/gpt/tokenizer.json: the vocabulary has no",
            "",
        ),
        (BERT, ["data.mask_rate=0"], "data.mask_rate: should be ", ""),
        (BERT, ["data.mask_rate=1"], "data.mask_rate: should be ", ""),
        *(
            (
                model,
                ["data.max_length=65"],
                "data.max_length: texts of 65 tokens are longer than the model's 64 positions "
                "(at most 64, or raise model.max_positions)",
                "",
            )
            for model in (GPT, BERT)
        ),
        (
            GPT,
            ["data.blocks=stream"],
            "data.blocks: only an lstm_lm that learns the next token",
            "",
        ),
        (
            GPT,
            ["model.vectors={source: a.vec}"],
            "model: vectors of the source: this task has only text",
            "",
        ),
        *(
            (
                model,
                ["training.teacher_forcing=0.5"],
                "training.teacher_forcing: a model for ",
                "(leave it at 1)",
            )
            for model in (GPT, BERT)
        ),
        (
            GPT,
            ["training.best=reconstruction_perplexity"],
            "training.best: a model with this objective has no ",
            "",
        ),
        (
            LSTM | {"objective": "autoencoder"},
            ["training.best=word_perplexity"],
            "training.best: a model with this objective has no word_perplexity (choose loss)",
            "",
        ),
    ],
)
def test_bad_recipes(
    runs: Runs, tmp_path: Path, model: Tree, overrides: list[str], begins: str, ends: str
) -> None:
    recipe, folder = project(tmp_path, model), str(runs["gpt"].parent)
    overrides = [override.replace("{RUNS}", folder) for override in overrides]
    [message] = fail("train", recipe, *overrides, "--out", tmp_path / "run")
    assert message.startswith(begins.replace("{RUNS}", folder))
    assert message.endswith(ends)
    assert fail("check", recipe, *overrides) == [message]
    assert not (tmp_path / "run").exists()


def test_recipes_that_can(runs: Runs, tmp_path: Path) -> None:
    recipe = project(tmp_path, BERT)
    one = ["data.train={text: one.txt}", "data.validation={text: text.txt}"]
    succeed("check", recipe, *one, "model.next_sentence=false", "--json")
    succeed(
        "train",
        recipe,
        f"tokenizer.file={runs['bert'] / 'tokenizer.json'}",
        "--out",
        tmp_path / "run",
    )
    assert Run.open(tmp_path / "run").tokenizers["text"].mask == 4


@pytest.mark.parametrize(("model", "blocks"), [(GPT, "contiguous"), (LSTM, "stream")])
def test_a_tokenised_corpus_is_measured_as_published(
    tmp_path: Path, model: Tree, blocks: str
) -> None:
    """A token is a word or the end of a line, empty lines too: so the perplexity of a token is that
    of a word."""
    tales = [f" {tale.replace('.', ' .')} " for (tale,) in generate("tales-en", 20, 1, "train")]
    lines = ["", " = <unk> = ", "", *tales]
    write(tmp_path / "wiki.tokens", "\n".join(lines) + "\n")
    corpus = {"text": str(tmp_path / "wiki.tokens"), "documents": "all_lines"}
    data = {"train": corpus, "validation": corpus, "blocks": blocks, "deduplicate": False}
    words = {"kind": "word", "split": "spaces", "vocabulary": 1000}
    train(
        raw_recipe(model, data, words, steps=4, validate_every=4), out=tmp_path / "run", quiet=True
    )
    found = succeed("evaluate", tmp_path / "run", "--json").json
    assert found["documents"] == len(lines)
    assert found["tokens"] == sum(len(line.split()) + 1 for line in lines)
    assert found["word_perplexity"] == pytest.approx(found["perplexity"])
    again = succeed("evaluate", tmp_path / "run", "--file", tmp_path / "wiki.tokens", "--json").json
    assert again.pop("files") == [str(tmp_path / "wiki.tokens")]
    assert {"split": "validation", "note": found["note"], **again} == pytest.approx(found)


KNOWN, UNKNOWN = "a b a b a\n", " ".join("cdefghijkl") + "\n"


@pytest.mark.parametrize("next_sentence", [True, False])
def test_batches_in_which_nothing_can_be_masked_count_for_nothing(
    tmp_path: Path, next_sentence: bool
) -> None:
    """Each document is a batch of its own; one in five holds words of the vocabulary."""
    documents = [f"{line}{line}\n" for line in [UNKNOWN, UNKNOWN, KNOWN, UNKNOWN, UNKNOWN] * 4]
    text = {"text": str(write(tmp_path / "text.txt", "".join(documents)))}
    data = {"train": text, "validation": text, "sentences": "lines"}
    tokenizer = write(
        tmp_path / "ab.json",
        Tokenizer.train(TokenizerConfig(kind="word"), ["a b"], MASKING_NAMES).to_json(),
    )
    tree = raw_recipe(
        BERT | {"next_sentence": next_sentence}, data, {"file": str(tokenizer)}, batch_tokens=8
    )
    tree["training"] |= {"log_every": 1, "steps": 30, "average": 1}
    train(tree, out=tmp_path / "run", quiet=True)
    lines = lines_of(tmp_path / "run", "train")
    assert 0 < len(lines) < 30
    assert all(line["tokens"] > 0 and math.isfinite(line["loss"]) for line in lines)
    assert all(0 < line["loss"] < 10 for line in lines_of(tmp_path / "run", "validation"))
    states = load_training(Run.open(tmp_path / "run").checkpoint("last"))[1]["optimiser"]["state"]
    assert int(states[0]["step"]) == len(lines), "the optimiser moves no weight for such a batch"
    nothing = write(tmp_path / "nothing.txt", UNKNOWN)
    for arguments in (
        ["check", tmp_path / "r.yaml"],
        ["train", tmp_path / "r.yaml", "--out", tmp_path / "other"],
    ):
        for part in ("train", "validation"):
            changed = {"documents": "lines", "text": str(nothing)}
            write(tmp_path / "r.yaml", write_yaml(tree | {"data": tree["data"] | {part: changed}}))
            assert f"data.{part}: none of its tokens can be masked" in refusal(
                *arguments, "model.next_sentence=false"
            )
    assert (
        "nothing.txt:1: none of its tokens can be masked"
        in fail("evaluate", tmp_path / "run", "--file", nothing)[0]
    )
