"""A Transformer in CTranslate2 writes what it writes here: greedily, and with a beam where the two searches agree."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from command_line import fail, succeed
from exchange_cases import TRAINING, save_marian, trained
from regard.runs import Run

ctranslate2 = pytest.importorskip("ctranslate2")

SENTENCES = ["I see a dog.", "We gave her two books yesterday.", "Who sleeps?", "The old man did not buy the house."]
TARGETS = ["Je vois un chien.", "chien", "Qui dort ? Le chat.", "a"]
LONGEST = 20
SIZES = {"kind": "transformer", "encoder_layers": 2, "decoder_layers": 1, "width": 32, "heads": 4, "feed_forward": 48}
RUNS: dict[str, dict[str, Any] | None] = {
    "post": {"joint": True, "tie": "all"},
    "pre": {"joint": False, "norm": "pre", "activation": "gelu", "positions": "learned"},
    "imported": None,
}


@pytest.fixture(scope="module", params=RUNS, name="run")
def exported_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has learned a little, or a Marian model; beside it the folder `theirs` that it is exported to."""
    folder, options = tmp_path_factory.mktemp("runs"), dict(RUNS[request.param] or {})
    if not options:
        save_marian(folder / "marian")
        run = regard.import_run(folder / "marian", out=folder / "run")
    else:
        run = trained(
            folder / "run",
            task="translation",
            data={"train": {"corpus": "phrases-en-fr", "size": 500}, "validation": {"split": 0.1}},
            tokenizer={"vocabulary": 250, "joint": options.pop("joint")},
            model={**SIZES, **options},
            training=TRAINING | {"steps": 60, "batch_tokens": 1024, "learning_rate": 0.01},
        )
    succeed("export", run.folder, "--to", "ctranslate2", "--out", folder / "theirs")
    return run


def translator(run: Run, name: str = "theirs") -> Any:
    return ctranslate2.Translator(str(run.folder.parent / name), device="cpu", compute_type="float32")


def sources(run: Run) -> list[list[str]]:
    source = run.tokenizers["source"]
    return [source.tokens(source.encode(text)) for text in SENTENCES]


def their_outputs(run: Run, name: str = "theirs", **options: Any) -> list[list[str]]:
    target = run.tokenizers["target"]
    never = [[token] for token in dict.fromkeys(target.tokens([target.pad, target.begin]))]
    results = translator(run, name).translate_batch(
        sources(run), max_decoding_length=LONGEST, disable_unk=True, suppress_sequences=never, **options
    )
    return [result.hypotheses[0] for result in results]


@pytest.mark.parametrize("beam", [1, 4])
def test_search(run: Run, beam: int) -> None:
    """Without a length penalty the best hypothesis is the likeliest one in both searches."""
    limit = [f"search.max_length={LONGEST + 1}"]  # at the limit ours may only end, so that it is given one token more
    predictions = regard.predict(run, SENTENCES, beam=beam, length_penalty=0.0, overrides=limit)
    ours = [list(prediction.nbest[0].tokens[:-1]) for prediction in predictions]
    assert their_outputs(run, beam_size=beam, length_penalty=0.0) == ours


def test_scores_of_given_targets(run: Run) -> None:
    """log P token by token: all of the model is the same, whatever a search does with it."""
    target = run.tokenizers["target"]
    results = translator(run).score_batch(sources(run), [target.tokens(target.encode(text)) for text in TARGETS])
    for text, translation, result in zip(SENTENCES, TARGETS, results, strict=True):
        ours = regard.score(run, text, translation)["token_scores"]
        np.testing.assert_allclose(result.log_probs, ours, rtol=1e-4, atol=1e-4)


def test_quantized_weights(run: Run, tmp_path: Path) -> None:
    folder = run.folder.parent
    succeed("export", run.folder, "--to", "ctranslate2", "--quantize", "int8", "--out", folder / "quantized")
    whole, quantized = ((folder / name / "model.bin").stat().st_size for name in ("theirs", "quantized"))
    assert quantized < 0.8 * whole or run.environment.get("imported")  # the table of positions stays as it is
    assert all(their_outputs(run, "quantized", beam_size=1))
    [message] = fail("export", run.folder, "--to", "ctranslate2", "--quantize", "int9", "--out", tmp_path / "no")
    assert message == "--quantize: unknown type 'int9' (did you mean 'int8'?)"
