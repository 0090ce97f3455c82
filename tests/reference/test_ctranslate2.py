"""A Transformer in CTranslate2 writes what it writes here: greedily, and with a beam where the two
searches agree."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from command_line import fail, succeed
from exchange_cases import TRAINING, save_marian, trained
from regard.errors import RegardError
from regard.runs import Run

ctranslate2 = pytest.importorskip("ctranslate2")

SENTENCES = [
    "I see a dog.",
    "We gave her two books yesterday.",
    "Who sleeps?",
    "The old man did not buy the house.",
]
TARGETS = ["Je vois un chien.", "chien", "Qui dort ? Le chat.", "a"]
LONGEST = 20
SIZES = {
    "kind": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 1,
    "width": 32,
    "heads": 4,
    "feed_forward": 48,
}
RUNS: dict[str, dict[str, Any] | None] = {
    "post": {"joint": True, "tie": "all", "norm": "post"},
    "pre": {"joint": False, "norm": "pre", "activation": "gelu", "positions": "learned"},
    "imported": None,
}


@pytest.fixture(scope="module", params=RUNS, name="run")
def exported_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has learned a little, or a Marian model; beside it the folder `theirs` that it is
    exported to."""
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
    return ctranslate2.Translator(
        str(run.folder.parent / name), device="cpu", compute_type="float32"
    )


def sources(run: Run) -> list[list[str]]:
    source = run.tokenizers["source"]
    return [source.tokens(source.encode(text)) for text in SENTENCES]


def their_outputs(run: Run, name: str = "theirs", **options: Any) -> list[list[str]]:
    target = run.tokenizers["target"]
    never = [[token] for token in dict.fromkeys(target.tokens([target.pad, target.begin]))]
    results = translator(run, name).translate_batch(
        sources(run),
        max_decoding_length=LONGEST,
        disable_unk=True,
        suppress_sequences=never,
        **options,
    )
    return [result.hypotheses[0] for result in results]


@pytest.mark.parametrize("beam", [1, 4])
def test_search(run: Run, beam: int) -> None:
    """Without a length penalty the best hypothesis is the likeliest one in both searches."""
    limit = [
        f"search.max_length={LONGEST + 1}"
    ]  # at the limit ours may only end, so that it is given one token more
    predictions = regard.predict(run, SENTENCES, beam=beam, length_penalty=0.0, overrides=limit)
    ours = [list(prediction.nbest[0].tokens[:-1]) for prediction in predictions]
    assert their_outputs(run, beam_size=beam, length_penalty=0.0) == ours


def test_scores_of_given_targets(run: Run) -> None:
    """log P token by token: all of the model is the same, whatever a search does with it."""
    target = run.tokenizers["target"]
    results = translator(run).score_batch(
        sources(run), [target.tokens(target.encode(text)) for text in TARGETS]
    )
    for text, translation, result in zip(SENTENCES, TARGETS, results, strict=True):
        ours = regard.score(run, text, translation)["token_scores"]
        np.testing.assert_allclose(result.log_probs, ours, rtol=1e-4, atol=1e-4)


def test_quantized_weights(run: Run, tmp_path: Path) -> None:
    folder = run.folder.parent
    succeed(
        "export",
        run.folder,
        "--to",
        "ctranslate2",
        "--quantize",
        "int8",
        "--out",
        folder / "quantized",
    )
    whole, quantized = (
        (folder / name / "model.bin").stat().st_size for name in ("theirs", "quantized")
    )
    assert quantized < 0.8 * whole or run.environment.get(
        "imported"
    )  # the table of positions stays as it is
    assert all(their_outputs(run, "quantized", beam_size=1))
    [message] = fail(
        "export", run.folder, "--to", "ctranslate2", "--quantize", "int9", "--out", tmp_path / "no"
    )
    assert message == "--quantize: unknown type 'int9' (did you mean 'int8'?)"


# --precision int8


def loaded(run: Run) -> Any:
    return regard.load(run.folder, device="cpu", precision="int8")


@pytest.mark.parametrize("beam", [1, 4])
def test_int8_does_not_depend_on_the_other_inputs(run: Run, beam: int) -> None:
    int8, texts = (
        loaded(run),
        [" ".join([text] * count) for text in SENTENCES for count in (1, 2, 5)],
    )
    together = int8.predict(texts, beam=beam, nbest=beam)
    for text, expected in zip(texts, together, strict=True):
        [alone] = int8.predict([text], beam=beam, nbest=beam)
        assert [one.tokens for one in alone.nbest] == [one.tokens for one in expected.nbest]
        assert [one.score for one in alone.nbest] == pytest.approx(
            [one.score for one in expected.nbest], abs=1e-4
        )
    assert all(len(prediction.nbest) == beam for prediction in together)


def test_int8_writes_what_ctranslate2_writes(run: Run) -> None:
    """The option only prepares and calls the library."""
    succeed(
        "export",
        run.folder,
        "--to",
        "ctranslate2",
        "--quantize",
        "int8",
        "--out",
        run.folder.parent / "int8",
    )
    theirs = ctranslate2.Translator(
        str(run.folder.parent / "int8"), device="cpu", compute_type="int8"
    )
    target = run.tokenizers["target"]
    never = [[token] for token in dict.fromkeys(target.tokens([target.pad, target.begin]))]
    options = {"max_decoding_length": LONGEST, "min_decoding_length": 0, "disable_unk": True}
    overrides = [f"search.max_length={LONGEST + 1}", "search.max_length_offset=100"]
    predictions = loaded(run).predict(SENTENCES, beam=5, overrides=overrides)
    for text, source, ours in zip(SENTENCES, sources(run), predictions, strict=True):
        [result] = theirs.translate_batch(
            [source],
            beam_size=5,
            return_scores=True,
            suppress_sequences=never,
            return_end_token=True,
            **options,
        )
        [best] = ours.nbest
        assert (ours.input, best.tokens) == (text, result.hypotheses[0])
        assert best.score == pytest.approx(result.scores[0] * len(best.tokens), rel=1e-4)


def test_int8_keeps_the_length_limits_of_each_source(run: Run) -> None:
    """The library has one limit for a batch, so an output that is too long for its source is
    written again."""
    int8 = loaded(run)
    rules = [
        "search.max_length_ratio=0.5",
        "search.max_length_offset=1",
        "search.min_length_ratio=0.25",
    ]
    texts = [" ".join([text] * count) for text in SENTENCES for count in (1, 3)]
    source = run.tokenizers["source"]
    lengths = [len(source.encode(text)) + 1 for text in texts]
    predicted = int8.predict(texts, beam=2, overrides=rules)
    for text, length, prediction in zip(texts, lengths, predicted, strict=True):
        tokens = prediction.nbest[0].tokens
        assert 0.25 * length <= len(tokens) + (tokens[-1] != "</s>") <= 0.5 * length + 1
        assert int8.predict([text], beam=2, overrides=rules)[0].nbest[0].tokens == tokens


def test_int8_measures_nearly_what_fp32_measures(run: Run, tmp_path: Path) -> None:
    (file := tmp_path / "pairs.tsv").write_text(
        "source\ttarget\n"
        + "".join(f"{text}\t{target}\n" for text, target in zip(SENTENCES, TARGETS, strict=True))
    )
    arguments = ("evaluate", run.folder, "--file", file, "--json", "--device", "cpu")
    fp32, int8 = (
        succeed(*arguments, "--precision", precision).json for precision in ("fp32", "int8")
    )
    assert 0 < abs(int8["loss"] - fp32["loss"]) < 0.05 * fp32["loss"]
    score = loaded(run).score(SENTENCES[0], TARGETS[0])["score"]
    assert score == pytest.approx(regard.score(run, SENTENCES[0], TARGETS[0])["score"], rel=0.1)


def test_int8_goes_to_other_processes_with_its_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    int8 = loaded(run)
    sent = pickle.dumps(int8)
    expected = [prediction.output for prediction in int8.predict(SENTENCES)]
    shutil.rmtree(tmp_path / "cache")
    assert [prediction.output for prediction in pickle.loads(sent).predict(SENTENCES)] == expected


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("sample=true", "false"),
        ("normalisation=wu", "mean or none"),
        ("coverage_penalty=0.2", "0"),
        ("repetition_penalty=1.2", "1"),
        ("banned=[a]", "[]"),
        ("prefix=Je", "null"),
    ],
)
def test_int8_refuses_what_ctranslate2_does_not_have(run: Run, setting: str, allowed: str) -> None:
    where = f"search.{setting.partition('=')[0]}"
    expected = (
        f"{where}: with int8, which CTranslate2 computes, it must be {allowed} (or use "
        "--precision fp32)"
    )
    options = ("--precision", "int8", "--device", "cpu", "--set", f"search.{setting}")
    assert fail("predict", run.folder, "a", *options) == [expected]


def test_int8_refuses_other_verbs_and_options(run: Run, tmp_path: Path) -> None:
    arguments = ("predict", run.folder, "a", "--precision", "int8", "--device", "cpu")
    assert fail(*arguments, "--record", tmp_path / "search.json") == [
        "--record: CTranslate2, which computes int8, does not have this option (leave it out, or "
        "use --precision fp32)"
    ]
    with pytest.raises(
        RegardError, match="int8, which CTranslate2 computes, can only predict, evaluate and score"
    ):
        loaded(run).explain(SENTENCES[0])


def test_int8_says_which_models_it_can_run(tiny_run: Path) -> None:
    assert fail("predict", tiny_run, "a b", "--precision", "int8", "--device", "cpu") == [
        "precision: int8 is computed by CTranslate2, which cannot run bahdanau for translation (it "
        "can run transformer "
        "for translation and transformer for summarization; give fp32, or bf16)"
    ]


@pytest.mark.parametrize("run", ["post"], indirect=True)
def test_int8_is_served(run: Run) -> None:
    client_of = pytest.importorskip("fastapi.testclient").TestClient
    from regard.studio.server import create_app
    from regard.studio.settings import Settings

    served = create_app({"mine": loaded(run)}, Settings())
    with client_of(served, base_url="http://127.0.0.1:8000") as client:
        answer = client.post("/predict", json={"inputs": SENTENCES, "beam": 2})
        expected = [prediction.output for prediction in loaded(run).predict(SENTENCES, beam=2)]
        assert [prediction["output"] for prediction in answer.json()["predictions"]] == expected
        refused = client.post("/explain", json={"input": SENTENCES[0]})
    assert refused.status_code == 422
    assert "can only predict, evaluate and score" in refused.json()["error"]


@pytest.mark.parametrize("run", ["post"], indirect=True)
def test_a_file_of_any_length_is_translated_with_int8(run: Run, tmp_path: Path) -> None:
    """Each process has a model of its own."""
    (file := tmp_path / "inputs.txt").write_text("".join(f"{text}\n" for text in SENTENCES * 40))
    options = (
        "--precision",
        "int8",
        "--device",
        "cpu",
        "--set",
        "search.beam=1",
        "--set",
        "search.max_length=8",
    )
    succeed(
        "predict",
        run.folder,
        "--file",
        file,
        "--out",
        tmp_path / "out.txt",
        "--workers",
        2,
        *options,
    )
    expected = loaded(run).predict(SENTENCES, overrides=["search.beam=1", "search.max_length=8"])
    assert (tmp_path / "out.txt").read_text().splitlines() == [one.output for one in expected] * 40


@pytest.mark.parametrize("run", ["post"], indirect=True)
def test_every_int8_model_has_a_worker_per_thread(run: Run) -> None:
    """CTranslate2 changes the number of torch's threads when it starts, which the next model would
    read."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(2):
            int8 = loaded(run)
            int8.predict(SENTENCES[:1])
            assert int8.predictor()._translator.num_translators == 2
    finally:
        torch.set_num_threads(before)
