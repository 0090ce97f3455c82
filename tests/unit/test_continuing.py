"""Language models write, score and tell how they searched, through the same verbs as everything
that writes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import fail, refusal, succeed
from raw_cases import GPT, LSTM, raw_recipe
from regard.data.batches import Padded, TextBatch
from regard.runs import Run
from regard.training.train import train

SEARCH = {"sample": True, "temperature": 0.9, "top_k": 40, "top_p": 0.9, "max_length": 8}
MODELS: dict[str, dict[str, Any]] = {
    "gpt": GPT | {"layers": 1, "max_positions": 24},
    "lstm_lm": LSTM | {"layers": 1, "weight_dropout": 0.0},
}
every_model = pytest.mark.parametrize("name", MODELS)
PROMPT = "The child was"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("continuing")
    for name, model in MODELS.items():
        tree = raw_recipe(model, steps=10, validate_every=10, decode=0, samples=0)
        train(tree | {"search": SEARCH}, out=folder / name, quiet=True)
    return {name: folder / name for name in MODELS}


def one_by_one(run: Path, prompt: str, tokens: list[str]) -> list[float]:
    """log P of each token, by a forward pass over all before it."""
    opened = Run.open(run)
    tokenizer, model = opened.tokenizers["text"], opened.load_model()
    before = [tokenizer.end, *(tokenizer.encode(prompt) if prompt else [])]
    found = []
    for token in tokenizer.token_ids(tokens):
        ids_BL = torch.tensor([[*before, tokenizer.pad]])
        with torch.inference_mode():
            hidden_D = model(
                TextBatch(Padded.of(ids_BL, torch.tensor([len(before) + 1])))
            ).hidden_BTD[0, -1]
            found.append(float(model.readout(hidden_D).double().log_softmax(-1)[token]))
        before.append(token)
    return found


@every_model
def test_score_is_log_p_of_how_a_text_goes_on(runs: dict[str, Path], name: str) -> None:
    run = runs[name]
    tokenizer = Run.open(run).tokenizers["text"]
    found = succeed("score", run, PROMPT, "big.", "--json").json
    tokens = tokenizer.tokens(tokenizer.encode("The child was big."))
    assert found["tokens"] == [*tokens[1 - len(found["tokens"]) :], "</s>"]
    assert (found["source"], found["target"]) == (PROMPT, "big.")
    assert found["token_scores"] == pytest.approx(
        one_by_one(run, PROMPT, found["tokens"]), abs=1e-4
    )
    assert found["score"] == pytest.approx(sum(found["token_scores"]), abs=1e-9)
    # the space is there, whoever writes it
    for prompt, target in ((f"{PROMPT} ", "big."), (PROMPT, " big.")):
        assert succeed("score", run, prompt, target, "--json").json["tokens"] == found["tokens"]
    exact = succeed(
        "score", run, PROMPT, json.dumps(found["tokens"][:-1]), "--tokens", "--json"
    ).json
    assert exact["token_scores"] == pytest.approx(found["token_scores"][:-1], abs=1e-5)
    whole = succeed("score", run, "", "The child was big.", "--json").json
    assert whole["token_scores"] == pytest.approx(one_by_one(run, "", whole["tokens"]), abs=1e-4)
    assert whole["token_scores"][-len(found["tokens"]) :] == pytest.approx(
        found["token_scores"], abs=1e-5
    )
    assert f"{found['score']:10.4f}  log P of all" in succeed("score", run, PROMPT, "big.").out


@every_model
def test_a_search_is_recorded(runs: dict[str, Path], name: str, tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    options = ["--beam", "3", "--nbest", "2", "--record", file, "--json"]
    predicted = succeed("predict", runs[name], PROMPT, "Anna", *options).jsons
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["search"]["sample"] is False
    tokenizer = Run.open(runs[name]).tokenizers["text"]
    for prompt, found, one in zip((PROMPT, "Anna"), predicted, record["inputs"], strict=True):
        assert one["source"] == ["</s>", *tokenizer.tokens(tokenizer.encode(prompt))]
        assert one["longest"] == 8
        given = [ranked for ranked in one["ranking"] if ranked["given"]]
        assert [ranked["tokens"] for ranked in given] == [
            output["tokens"] for output in found["nbest"]
        ]
        assert [ranked["score"] for ranked in given] == [
            output["score"] for output in found["nbest"]
        ]
        first = one["steps"][0]["candidates"][0]
        assert first["log_p"] == pytest.approx(
            one_by_one(runs[name], prompt, [first["token"]])[0], abs=1e-4
        )


def test_a_beam_turns_a_run_that_samples_into_a_beam_search(runs: dict[str, Path]) -> None:
    run = runs["gpt"]
    beam = succeed("predict", run, PROMPT, "--beam", "3", "--json").json
    by_hand = ["sample=false", "beam=3", "temperature=1", "top_k=null", "top_p=1"]
    written_out = [option for setting in by_hand for option in ("--set", f"search.{setting}")]
    assert succeed("predict", run, PROMPT, *written_out, "--json").json == beam
    for settings in (["search.beam=3"], ["search.sample=false", "search.beam=3"]):
        options = [option for setting in settings for option in ("--set", setting)]
        assert succeed("predict", run, PROMPT, *options, "--json").json == beam
    other = succeed(
        "predict", run, PROMPT, "--set", "search.sample=false", "--nbest", "3", "--json"
    ).json
    assert other["nbest"][0] == beam["nbest"][0]
    greedy = succeed("predict", run, PROMPT, "--beam", "1", "--json").json
    assert greedy == succeed("predict", run, PROMPT, "--set", "search.sample=false", "--json").json
    # What is asked for now still counts: samples stay samples where something of theirs is named.
    cool = succeed("predict", run, PROMPT, "--beam", "1", "--set", "search.top_k=1", "--json").json
    assert cool["tokens"] == greedy["tokens"]
    [message] = fail("predict", run, PROMPT, "--beam", "3", "--set", "search.top_k=1")
    assert message.startswith("search.beam: sampling has no beam, but beam is 3")
    [message] = fail(
        "predict", run, PROMPT, "--set", "search.sample=false", "--set", "search.top_k=1"
    )
    assert message.startswith("search.top_k: only sampling uses top_k")


def test_what_cannot_be_scored_is_refused(runs: dict[str, Path]) -> None:
    run = runs["gpt"]
    assert fail("score", run, PROMPT, " ")[0].startswith("target: the text is empty")
    [message] = fail("score", run, PROMPT, "big " * 30)
    assert message.endswith("tokens with the special ones (the model reads at most 24)")
    assert "is not a token of this vocabulary" in refusal(
        "score", run, PROMPT, "nonsense-token", "--tokens"
    )


@every_model
def test_a_banned_text_is_not_written_even_where_the_prompt_begins_it(
    runs: dict[str, Path], name: str
) -> None:
    free = succeed("predict", runs[name], PROMPT, "--beam", "2", "--json").json["output"]
    assert len(free) > len(PROMPT)
    for text in {free[len(PROMPT) - 2 : len(PROMPT) + 2].strip(), free[len(PROMPT) :].strip()[:2]}:
        banned = ("--set", f"search.banned={json.dumps([text])}")
        for options in (["--beam", "2"], ["--nbest", "5"]):
            for one in succeed("predict", runs[name], PROMPT, *options, *banned, "--json").json[
                "nbest"
            ]:
                assert text not in one["output"][len(PROMPT) - len(text) + 1 :], text
