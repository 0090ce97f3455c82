"""`explain` for models of one text: GPT, BERT, ELMo, LSTM, and a model under a head."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard as api
from command_line import fail, succeed
from raw_cases import Runs
from regard.layers.attention import recording
from regard.runs import Run
from regard.views.explanation import Options

TEXT = "The old fox saw the mouse."
GAPS = "The [MASK] saw the [MASK]."


def explained(run: Path, text: Any = TEXT, **options: Any) -> Any:
    return api.explain(run, text, **options)


@pytest.mark.parametrize("name", ["gpt", "gpt-pre", "bert"])
def test_every_attention_by_layer_and_head(runs: Runs, name: str) -> None:
    found = explained(runs[name], padding=2)
    with torch.inference_mode(), recording() as recorded:
        found.model.states(found.batch)
    weights = recorded.by_name(found.model)
    attentions = found.of_kind("encoder" if name == "bert" else "decoder")
    assert [attention.layer for attention in attentions] == [1, 2]
    real = len(attentions[0].keys.texts) - 2
    for attention in attentions:
        assert np.array_equal(attention.weights, weights[attention.name][0].numpy())
        assert attention.weights.shape == (2, real + 2, real + 2)
        seen = [[k < real and (name == "bert" or k <= q) for k in range(real + 2)] for q in range(real)]
        assert attention.visible[:real].tolist() == seen


@pytest.mark.parametrize("name", ["gpt", "lstm", "elmo"])
def test_next_tokens_are_those_that_the_language_model_expects(runs: Runs, name: str) -> None:
    found, tokenizer = explained(runs[name]), Run.open(runs[name]).tokenizers["text"]
    ids = tokenizer.encode(TEXT)
    assert list(found.target.texts) == tokenizer.pieces([*ids, tokenizer.end])
    with torch.inference_mode():
        states_LD = found.model(found.batch).hidden_BTD[0] if name == "elmo" else found.model.states(found.batch)[0]
        logits = found.model.readout(states_LD).double().tolist()
    for step, row, token in zip(found.steps, logits, [*ids, tokenizer.end], strict=True):
        exponentials = [math.exp(value) for value in row]
        assert step.probability == pytest.approx(exponentials[token] / sum(exponentials), rel=1e-4)
        assert step.rank == 1 + sum(value > row[token] for value in row)


def test_what_a_masked_model_expects_in_the_gaps_is_what_predict_fills_in(runs: Runs) -> None:
    found = explained(runs["bert"], GAPS)
    [filled] = succeed("predict", runs["bert"], GAPS, "--json").jsons
    assert found.output == filled["output"]
    assert [step.token for step in found.steps] == [gap["tokens"][0] for gap in filled["masks"]]
    expected = [gap["probabilities"][0] for gap in filled["masks"]]
    assert [step.probability for step in found.steps] == pytest.approx(expected, rel=1e-4)
    assert explained(runs["bert"]).steps == ()


def test_two_texts_are_two_segments(runs: Runs) -> None:
    found = explained(runs["bert"], ("The fox saw.", "It ran."))
    tokens = found.source.texts
    first = tokens.index("[SEP]") + 1
    assert found.batch.segments_BL[0].tolist() == [0] * first + [1] * (len(tokens) - first)
    assert tokens.count("[SEP]") == 2


@pytest.mark.parametrize(("name", "place"), [("bert", 0), ("gpt", -1)])
def test_heads_are_the_rows_of_one_token(runs: Runs, name: str, place: int) -> None:
    found = explained(runs[name])
    [picture] = found.select(Options("heads")).heat_maps()
    first, second = found.attentions.values()
    assert picture.rows == ["layer 1, head 1", "layer 1, head 2", "layer 2, head 1", "layer 2, head 2"]
    assert picture.values.tolist() == [*first.weights[:, place].tolist(), *second.weights[:, place].tolist()]
    [third] = found.select(Options("heads", layer=2, step=3)).heat_maps()
    assert third.values.tolist() == second.weights[:, 2].tolist()
    [merged] = found.select(Options("heads", words=True)).heat_maps()
    assert merged.values.shape == (4, len(first.keys.starts))
    assert merged.values.sum(1) == pytest.approx(np.ones(4), abs=1e-5)


def test_a_rollout_of_one_stack(runs: Runs) -> None:
    """Abnar & Zuidema 2020: R_2 = (A_2 + I) / 2 (A_1 + I) / 2."""
    for found in (explained(runs["gpt"]), explained(runs["bert"])):
        first, second = (one.weights.mean(0, dtype=np.float64) for one in found.attentions.values())
        identity = np.eye(len(first))
        [rolled] = found.select(Options(found.view, rollout=True)).heat_maps()
        assert rolled.values == pytest.approx((second + identity) / 2 @ (first + identity) / 2, abs=1e-7)


@pytest.mark.parametrize("name", ["gpt", "gpt-pre", "bert"])
def test_the_numbers_are_what_the_next_layer_reads(runs: Runs, name: str) -> None:
    found = explained(runs[name])
    worked = found.select(Options(layer=1, head=2, step=3)).worked()
    recorded = found.attentions["blocks.0.self_attention"].weights[1, 2]
    assert worked.weights_K.tolist() == pytest.approx(recorded.tolist(), abs=1e-6)
    block, read = found.model.get_submodule("blocks.0"), list[torch.Tensor]()
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


def test_the_mix_of_layers_by_hand(runs: Runs) -> None:
    """gamma * sum_j softmax(w)_j h_j of one token; a classifier answers otherwise when a layer is left out."""
    for name in ("elmo", "elmo-classifier"):
        found = explained(runs[name]).select(Options("mix", step=2))
        worked, changed = found.worked(), found.worked([1.0, None, 0.5])
        base = found.model.base if name == "elmo-classifier" else found.model
        with torch.inference_mode():
            h_ND = torch.stack(base.layers_of(found.batch))[:, 0, 1]
        gamma = found.mix["gamma"]
        e = [math.exp(1.0), 0.0, math.exp(0.5)]
        assert changed.weights_K.tolist() == pytest.approx([one / sum(e) for one in e])
        for one in (worked, changed):
            [by_model_D] = one.after.values()
            assert by_model_D.tolist() == pytest.approx((gamma * one.weights_K @ h_ND).tolist(), abs=1e-5)
        if name == "elmo-classifier":
            assert worked.outcome[0].probability == pytest.approx(max(found.prediction["probabilities"].values()))
            assert changed.outcome[0].probability != pytest.approx(worked.outcome[0].probability, abs=1e-7)


def test_a_bare_elmo_mixes_its_layers_evenly_and_a_task_learns_how(runs: Runs) -> None:
    out = succeed("explain", runs["elmo"], TEXT).out
    assert "gamma 1.000; even, since no task has learned it" in out
    assert out.count("0.333") == 3
    even = dict.fromkeys(("embeddings", "layer 1", "layer 2"), pytest.approx(1 / 3))
    assert explained(runs["elmo"]).mix == {"shares": even, "gamma": 1.0, "learned": False}
    learned = explained(runs["elmo-classifier"])
    e = [math.exp(value) for value in learned.model.mix.s.tolist()]
    assert [*learned.mix["shares"].values()] == pytest.approx([one / sum(e) for one in e])
    assert (learned.mix["gamma"], learned.mix["learned"]) == (pytest.approx(learned.model.mix.gamma.item()), True)


def test_a_model_without_attention_shows_probabilities_or_what_an_answer_depends_on(runs: Runs) -> None:
    [message] = fail("explain", runs["lstm"], TEXT, "--view", "heads")
    assert message == "--view: the model 'lstm_lm' has no view 'heads' (allowed for it: probabilities)"
    assert len(explained(runs["autoencoder"]).steps) == len(explained(runs["lstm"]).steps)
    assert succeed("explain", runs["lstm_lm-classifier"], "so good").out.startswith("how much P(")


def test_how_a_language_model_goes_on_is_explained_too(runs: Runs) -> None:
    given = explained(runs["gpt"], "The old fox", target="saw the mouse.")
    assert given.target == explained(runs["gpt"]).target
    prompt, longer = (explained(runs["gpt"], "The old", beam=beam).target.texts for beam in (None, 2))
    assert longer[: len(prompt) - 1] == prompt[:-1]
    assert len(longer) > len(prompt)
    for option in ("--target", "--beam"):
        [message] = fail("explain", runs["bert"], TEXT, option, "3")
        assert message.startswith(f"{option}: a run of the task masked_language_modeling writes no text")


@pytest.mark.parametrize("name", ["bert-classifier", "gpt-classifier"])
def test_a_classifier_is_explained_with_its_answer(runs: Runs, name: str) -> None:
    text = "The film was good."
    found = succeed("explain", runs[name], text, "--json").json
    [predicted] = succeed("predict", runs[name], text, "--json").jsons
    assert found["output"] == predicted["output"]
    assert found["probabilities"] == pytest.approx(predicted["probabilities"], abs=1e-4)
    assert len(found["attentions"]) == 2
    assert " by head" in succeed("explain", runs[name], text, "--view", "heads").out
    assert "LayerNorm(x + that)" in succeed("explain", runs[name], text, "--numbers", "--step", "3").out
