"""A Transformer in CTranslate2 writes what it writes here: greedily, and with a beam where the two searches agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from command_line import fail, succeed
from exchange_cases import save_marian
from regard.runs import Run
from regard.training.train import train

ctranslate2 = pytest.importorskip("ctranslate2")

SENTENCES = ["I see a dog.", "We gave her two books yesterday.", "Who sleeps?", "The old man did not buy the house."]
LONGEST = 20


@pytest.fixture(scope="module", params=["post", "pre"], name="run")
def a_run_that_has_learned_a_little(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "width": 32, "heads": 4, "feed_forward": 48}
    joint = request.param == "post"
    variants = {"post": {"tie": "all"}, "pre": {"norm": "pre", "activation": "gelu", "positions": "learned"}}
    recipe: dict[str, Any] = {
        "task": "translation",
        "data": {"train": {"corpus": "phrases-en-fr", "size": 500}, "validation": {"split": 0.1}},
        "tokenizer": {"vocabulary": 250, "joint": joint},
        "model": {"kind": "transformer", **sizes, **variants[request.param]},
        "training": {
            "steps": 60, "batch_tokens": 1024, "device": "cpu", "decode": 0, "learning_rate": 0.01,
            "schedule": "constant",
        },
    }  # fmt: skip
    return train(recipe, out=tmp_path_factory.mktemp("runs") / "run", quiet=True)


def their_outputs(folder: Path, run: Run, *, beam: int, length_penalty: float = 1.0, nbest: int = 1) -> list[Any]:
    source, target = run.tokenizers["source"], run.tokenizers["target"]
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
    return translator.translate_batch(  # type: ignore[no-any-return]
        [source.tokens(source.encode(text)) for text in SENTENCES], beam_size=beam, length_penalty=length_penalty,
        max_decoding_length=LONGEST, disable_unk=True, num_hypotheses=nbest, return_scores=True,
        suppress_sequences=[[name] for name in dict.fromkeys(target.tokens([target.pad, target.begin]))],
    )  # fmt: skip


def our_outputs(run: Run, *, beam: int, length_penalty: float = 1.0) -> list[list[str]]:
    # Where the length is at an end ours may only end, so that it is given one token more.
    limits = [f"search.max_length={LONGEST + 1}"]
    found = regard.predict(run, SENTENCES, beam=beam, length_penalty=length_penalty, overrides=limits)
    return [list(one.nbest[0].tokens[:-1]) for one in found]


def test_greedy_search(run: Run, tmp_path: Path) -> None:
    succeed("export", run.folder, "--to", "ctranslate2", "--out", tmp_path / "theirs")
    found = their_outputs(tmp_path / "theirs", run, beam=1)
    assert [one.hypotheses[0] for one in found] == our_outputs(run, beam=1)


def test_scores_of_given_targets(run: Run, tmp_path: Path) -> None:
    """log P token by token: all of the model is the same, whatever a search does with it."""
    regard.export_run(run, to="ctranslate2", out=tmp_path / "theirs")
    source, target = run.tokenizers["source"], run.tokenizers["target"]
    written = ["Je vois un chien.", "chien", "Qui dort ? Le chat.", "x"]
    translator = ctranslate2.Translator(str(tmp_path / "theirs"), device="cpu", compute_type="float32")
    found = translator.score_batch(
        [source.tokens(source.encode(text)) for text in SENTENCES],
        [target.tokens(target.encode(text)) for text in written],
    )
    for text, translation, theirs in zip(SENTENCES, written, found, strict=True):
        ours = regard.score(run, text, translation)["token_scores"]
        np.testing.assert_allclose(theirs.log_probs, ours, rtol=1e-4, atol=1e-4)


def test_beam_search(run: Run, tmp_path: Path) -> None:
    """Without a length penalty the best hypothesis is the likeliest one in both searches."""
    regard.export_run(run, to="ctranslate2", out=tmp_path / "theirs")
    found = their_outputs(tmp_path / "theirs", run, beam=4, length_penalty=0.0)
    assert [one.hypotheses[0] for one in found] == our_outputs(run, beam=4, length_penalty=0.0)


def test_quantized_weights(run: Run, tmp_path: Path) -> None:
    regard.export_run(run, to="ctranslate2", out=tmp_path / "whole")
    succeed("export", run.folder, "--to", "ctranslate2", "--quantize", "int8", "--out", tmp_path / "quantized")
    whole, quantized = ((tmp_path / name / "model.bin").stat().st_size for name in ("whole", "quantized"))
    assert quantized < 0.8 * whole  # the table of positions stays as it is
    found = their_outputs(tmp_path / "quantized", run, beam=1)
    assert all(one.hypotheses[0] for one in found)
    [message] = fail("export", run.folder, "--to", "ctranslate2", "--quantize", "int9", "--out", tmp_path / "no")
    assert message == "--quantize: unknown type 'int9' (did you mean 'int8'?)"


def test_an_imported_marian_model(tmp_path: Path) -> None:
    save_marian(tmp_path / "marian")
    run = regard.import_run(tmp_path / "marian", out=tmp_path / "run")
    regard.export_run(run, to="ctranslate2", out=tmp_path / "theirs")
    found = their_outputs(tmp_path / "theirs", run, beam=1)
    assert [one.hypotheses[0] for one in found] == our_outputs(run, beam=1)
