"""`explain` for models of one text: GPT, BERT, ELMo, LSTM, and a model under a head."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard as api
from command_line import fail, succeed, write
from regard.layers.attention import recording
from regard.models.headed import LayerMix
from regard.runs import Run
from regard.training.train import train
from regard.views.explanation import Options

Tree = dict[str, Any]
BASE: Tree = {
    "task": "language_modeling",
    "data": {
        "train": {"corpus": "tales-en", "size": 60}, "validation": {"corpus": "tales-en", "size": 6}, "max_length": 24,
    },
    "tokenizer": {"kind": "bpe", "vocabulary": 200},
    "training": {"steps": 2, "batch_tokens": 256, "device": "cpu", "learning_rate": 0.01, "decode": 0},
}  # fmt: skip
SIZES: Tree = {"width": 16, "heads": 2, "feed_forward": 32, "layers": 2, "max_positions": 64}
LSTM: Tree = {"kind": "lstm_lm", "embedding": 16, "hidden": 16, "layers": 2}
MODELS: dict[str, Tree] = {
    "gpt": {"kind": "gpt", **SIZES},
    "gpt-pre": {"kind": "gpt", **SIZES, "norm": "pre"},
    "bert": {"kind": "bert", **SIZES},
    "elmo": {"kind": "elmo", "width": 16, "hidden": 16, "filters": 64, "layers": 2},
    "lstm": LSTM,
    "autoencoder": LSTM | {"objective": "autoencoder"},
}
TEXT = "The old fox saw the mouse."
GAPS = "The [MASK] saw the [MASK]."
REVIEWS = "label\ttext\n" + "".join(
    f"{word}\tThe film was {word}, number {n}.\n" for word in ("good", "bad") for n in range(12)
)


def recipe(model: Tree) -> Tree:
    tree = copy.deepcopy(BASE) | {"model": model}
    if model["kind"] == "bert":
        tree["task"], tree["tokenizer"]["kind"] = "masked_language_modeling", "wordpiece"
    return tree


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    """One run a model, hardly trained: what is tested holds for any weights."""
    folder = tmp_path_factory.mktemp("texts")
    for name, model in MODELS.items():
        train(recipe(model), out=folder / name, quiet=True)
    return {name: folder / name for name in MODELS}


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("classifiers")
    write(folder / "reviews.tsv", REVIEWS)
    corpus = {"file": str(folder / "reviews.tsv"), "text": "text", "label": "label"}
    for name, model in {"bert": MODELS["bert"], "gpt": MODELS["gpt"], "elmo": MODELS["elmo"], "lstm": LSTM}.items():
        tree = copy.deepcopy(BASE) | {"task": "classification", "model": model}
        tree["data"] = {"train": corpus, "validation": corpus, "max_length": 24}
        train(tree, out=folder / name, quiet=True)
    return {name: folder / name for name in ("bert", "gpt", "elmo", "lstm")}


def explained(run: Path, text: str = TEXT, **options: Any) -> Any:
    return api.explain(run, text, **options)


@pytest.mark.parametrize("name", ["gpt", "gpt-pre", "bert"])
def test_every_attention_by_layer_and_head(runs: dict[str, Path], name: str) -> None:
    found = explained(runs[name], padding=2)
    kind = "encoder" if name == "bert" else "decoder"
    with torch.inference_mode(), recording() as recorded:
        found.model.states(found.batch)
    weights = recorded.by_name(found.model)
    attentions = found.of_kind(kind)
    assert [attention.layer for attention in attentions] == [1, 2]
    real = len(attentions[0].keys.texts) - 2
    for attention in attentions:
        assert np.array_equal(attention.weights, weights[attention.name][0].numpy())
        assert attention.weights.shape == (2, real + 2, real + 2)
        np.testing.assert_allclose(attention.weights[:, :real].sum(-1), 1, atol=1e-5)
        seen = [[k < real and (name == "bert" or k <= q) for k in range(real + 2)] for q in range(real)]
        assert attention.visible[:real].tolist() == seen
        assert not attention.weights[:, :real][:, ~np.array(seen)].any()


@pytest.mark.parametrize("name", ["gpt", "lstm", "elmo"])
def test_next_tokens_are_those_that_the_language_model_expects(runs: dict[str, Path], name: str) -> None:
    found, run = explained(runs[name]), Run.open(runs[name])
    tokenizer = run.tokenizers["text"]
    ids = tokenizer.encode(TEXT)
    assert list(found.target.texts) == tokenizer.pieces([*ids, tokenizer.end])
    with torch.inference_mode():
        whole = found.batch.to("cpu")
        states_LD = found.model(whole).hidden_BTD[0] if name == "elmo" else found.model.states(whole)[0]
        logits = found.model.readout(states_LD).double().tolist()
    for step, row, token in zip(found.steps, logits, [*ids, tokenizer.end], strict=True):
        exponentials = [math.exp(value) for value in row]
        assert step.probability == pytest.approx(exponentials[token] / sum(exponentials), rel=1e-4)
        assert step.rank == 1 + sum(value > row[token] for value in row)


def test_what_a_masked_model_expects_in_the_gaps_is_what_predict_fills_in(runs: dict[str, Path]) -> None:
    found = explained(runs["bert"], GAPS)
    [filled] = succeed("predict", runs["bert"], GAPS, "--json").jsons
    assert found.output == filled["output"]
    assert [step.token for step in found.steps] == [gap["tokens"][0] for gap in filled["masks"]]
    assert [step.probability for step in found.steps] == pytest.approx(
        [gap["probabilities"][0] for gap in filled["masks"]], rel=1e-4
    )
    assert explained(runs["bert"]).steps == ()


def test_two_texts_are_two_segments(runs: dict[str, Path]) -> None:
    found = explained(runs["bert"], "The fox saw.\tIt ran.")
    first = found.source.texts.index("[SEP]") + 1
    assert found.batch.segments_BL[0].tolist() == [0] * first + [1] * (len(found.source.texts) - first)
    assert found.source.texts.count("[SEP]") == 2


@pytest.mark.parametrize(("name", "place"), [("bert", 0), ("gpt", -1)])
def test_heads_are_the_rows_of_one_token(runs: dict[str, Path], name: str, place: int) -> None:
    found = explained(runs[name])
    [picture] = found.select(Options("heads")).heat_maps()
    attentions = list(found.attentions.values())
    assert picture.rows == ["layer 1, head 1", "layer 1, head 2", "layer 2, head 1", "layer 2, head 2"]
    by_hand = [attentions[layer].weights[head, place] for layer in (0, 1) for head in (0, 1)]
    np.testing.assert_array_equal(picture.values, np.array(by_hand, dtype=np.float64))
    [third] = found.select(Options("heads", layer=2, step=3)).heat_maps()
    np.testing.assert_array_equal(third.values, attentions[1].weights[:, 2].astype(np.float64))
    [merged] = found.select(Options("heads", words=True)).heat_maps()
    assert merged.values.shape == (4, len(attentions[0].keys.starts))
    np.testing.assert_allclose(merged.values.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_a_rollout_of_one_stack(runs: dict[str, Path], name: str) -> None:
    """Abnar & Zuidema 2020: R_2 = (A_2 + I) / 2 (A_1 + I) / 2."""
    found = explained(runs[name])
    first, second = (
        (one.weights.mean(0, dtype=np.float64) + np.eye(len(one.keys.texts))) / 2 for one in found.attentions.values()
    )
    kind = "encoder" if name == "bert" else "decoder"
    [rolled] = found.select(Options(kind, rollout=True)).heat_maps()  # type: ignore[arg-type]
    np.testing.assert_allclose(rolled.values, second @ first, atol=1e-7)


@pytest.mark.parametrize("name", ["gpt", "gpt-pre", "bert"])
def test_the_numbers_are_what_the_next_layer_reads(runs: dict[str, Path], name: str) -> None:
    found = explained(runs[name])
    worked = found.select(Options(layer=1, head=2, step=3)).worked()
    block = found.model.get_submodule("blocks.0")
    np.testing.assert_allclose(
        worked.weights_K.numpy(), found.attentions["blocks.0.self_attention"].weights[1, 2], atol=1e-6
    )
    read: list[torch.Tensor] = []
    before = block.feed_forward_norm if name == "gpt-pre" else block.feed_forward
    hook = before.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    with torch.inference_mode(), recording():
        found.model.states(found.batch)
    hook.remove()
    torch.testing.assert_close([*worked.after.values()][-1], read[0][0, 2], rtol=1e-5, atol=1e-6)
    assert (worked.step is None) == (name == "bert")
    (x_D, *_), (that_D, total_D, *_) = worked.query.values(), worked.after.values()
    assert [*worked.after][1].startswith("x + that")
    torch.testing.assert_close(total_D, x_D + that_D)
    assert ("LayerNorm(x), what looks" in worked.query) == (name == "gpt-pre")


def test_a_bare_elmo_mixes_its_layers_evenly_and_says_so(runs: dict[str, Path]) -> None:
    out = succeed("explain", runs["elmo"], TEXT).out
    assert "gamma 1.000; even, since no task has learned it" in out
    assert out.count("0.333") == 3
    assert succeed("explain", runs["elmo"], TEXT, "--json").json["mix"] == {
        "shares": dict.fromkeys(("embeddings", "layer 1", "layer 2"), pytest.approx(1 / 3)),
        "gamma": 1.0,
        "learned": False,
    }


def test_an_lstm_has_nothing_to_look_at_but_its_expectations(runs: dict[str, Path]) -> None:
    out = succeed("explain", runs["lstm"], TEXT).out
    assert out.startswith("The model 'lstm_lm' has no attention to draw; these are its probabilities.")
    [message] = fail("explain", runs["lstm"], TEXT, "--view", "heads")
    assert message == "--view: the model 'lstm_lm' has no attention (allowed for it: probabilities)"
    rewritten, plain = (explained(runs[name]).steps for name in ("autoencoder", "lstm"))
    assert len(rewritten) == len(plain)


def test_how_a_language_model_goes_on_is_explained_too(runs: dict[str, Path]) -> None:
    given = explained(runs["gpt"], "The old fox", target="saw the mouse.")
    assert given.target == explained(runs["gpt"]).target
    prompt, longer = (explained(runs["gpt"], "The old", beam=beam).target.texts for beam in (None, 2))
    assert longer[: len(prompt) - 1] == prompt[:-1]
    assert len(longer) > len(prompt)
    for option in ("--target", "--beam"):
        [message] = fail("explain", runs["bert"], TEXT, option, "3")
        assert message.startswith(f"{option}: a run of the task masked_language_modeling writes no text")


@pytest.mark.parametrize("name", ["gpt", "bert", "elmo", "lstm"])
@pytest.mark.parametrize("suffix", [".svg", ".html", ".json"])
def test_every_model_makes_every_file(runs: dict[str, Path], tmp_path: Path, name: str, suffix: str) -> None:
    out = tmp_path / f"picture{suffix}"
    succeed("explain", runs[name], TEXT, "--out", out)
    written = out.read_text(encoding="utf-8")
    if suffix == ".json":
        assert [step["token"] for step in json.loads(written)["steps"]] == [
            one.token for one in explained(runs[name]).steps
        ]
    else:
        wanted = {"gpt": "fox", "bert": "[CLS]", "elmo": "layer 2", "lstm": "fox"}[name]
        assert wanted in written or "▁f" in written


def test_a_classifier_is_explained_with_its_answer(classifiers: dict[str, Path]) -> None:
    text = "The film was good."
    for name in ("bert", "gpt"):
        found = succeed("explain", classifiers[name], text, "--json").json
        [predicted] = succeed("predict", classifiers[name], text, "--json").jsons
        assert found["output"] == predicted["output"]
        assert found["probabilities"] == pytest.approx(predicted["probabilities"])
        assert len(found["attentions"]) == 2
    assert "<s> by head" in succeed("explain", classifiers["bert"], text, "--view", "heads").out
    for name in ("bert", "gpt"):
        assert "LayerNorm(x + that)" in succeed("explain", classifiers[name], text, "--numbers", "--step", "7").out


def test_the_mix_of_a_classifier_is_the_one_that_it_learned(classifiers: dict[str, Path]) -> None:
    found = explained(classifiers["elmo"])
    mix: LayerMix = found.model.mix
    assert found.mix["learned"]
    e = [math.exp(value) for value in mix.s.tolist()]
    assert [*found.mix["shares"].values()] == pytest.approx([one / sum(e) for one in e])
    assert found.mix["gamma"] == pytest.approx(mix.gamma.item())
    assert succeed("explain", classifiers["lstm"], "so good").out.startswith("how much P(")
