"""BART, KoBART, M2M-100 and NLLB: the same numbers, texts and tokens as in `transformers`, and every
verb of a translator of our own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import fail, succeed
from exchange_cases import (
    SAVERS,
    TEXTS,
    TRAINING,
    change,
    near,
    printed_by_the_card,
    same_logits,
    same_weights,
    there_and_back,
)
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.studio.runs import Runs
from regard.studio.server import create_app
from regard.studio.settings import Settings
from regard.tasks.reading import first_tokens

transformers = pytest.importorskip("transformers")
TestClient = pytest.importorskip("fastapi.testclient").TestClient

CASES: dict[str, dict[str, Any]] = {
    "bart": {},
    "bart-merges": {"vocabulary": "merges.txt"},
    "bart-kobart": {"vocabulary": "kobart"},
    "bart-scaled": {"scale_embedding": True, "activation_function": "relu"},
    "m2m100": {},
    "m2m100-nllb": {"nllb": True},
}
"""How a folder is made."""
LOCAL = "http://127.0.0.1"
TOKENS = {"m2m100": ("__ko__", "__en__"), "m2m100-nllb": ("kor_Hang", "eng_Latn")}


def imported(folder: Path, case: str, **options: Any) -> tuple[Any, Run]:
    kind = case.partition("-")[0]
    theirs = SAVERS[kind](folder / "theirs", **CASES[case] | options)
    languages = {"source_language": "ko", "target_language": "en"} if kind == "m2m100" else {}
    return theirs, regard.import_run(folder / "theirs", out=folder / "run", **languages)


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(tmp_path: Path, case: str) -> None:
    theirs, run = imported(tmp_path, case)
    same_logits(run, theirs)
    back = there_and_back(run, tmp_path)
    assert back.recipe.model == run.recipe.model
    assert back.recipe.search == run.recipe.search
    same_weights(run, back)
    assert tree(back) == tree(run)
    for side in ("source", "target"):
        ours, other = (first_tokens(one.recipe, one.tokenizers, side) for one in (run, back))
        assert ours == other
    name = type(theirs)
    loaded, facts = name.from_pretrained(tmp_path / "exported", output_loading_info=True)
    assert not any(facts.values()), "no weight is missing, and none has no place"
    state = loaded.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in theirs.state_dict().items())
    assert printed_by_the_card(tmp_path / "exported")


def tree(run: Run) -> Any:
    return json.loads(run.tokenizers["source"].to_json())


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_greedy_search_writes_the_same(tmp_path: Path, case: str) -> None:
    """`generate` of the folder that was imported, given the first token as it is used there."""
    theirs, run = imported(tmp_path, case)
    written = run.task.views.target_texts
    ids = written.sources.batch(written.sources.read([regard_example(text) for text in TEXTS]))
    first = first_tokens(run.recipe, run.tokenizers, "target")
    limit = 14
    predictions = regard.predict(
        run, TEXTS, beam=1, overrides=[f"search.max_length={limit}", "search.unknown=true"]
    )
    target = run.tokenizers["target"]
    for row, prediction in enumerate(predictions):
        length = int(ids.lengths_B[row])
        outputs = theirs.generate(
            ids.ids_BL[row : row + 1, :length],
            num_beams=1,
            do_sample=False,
            max_length=limit,  # with the token that the decoder reads first
            min_length=0,
            forced_bos_token_id=first[0] if first else None,
            suppress_tokens=sorted({target.pad, target.begin} - {target.end}),
        )[0].tolist()
        ours = target.token_ids(prediction.nbest[0].tokens)
        assert ours[: limit - 1] == outputs[1 : 1 + len(ours)][: limit - 1]


def regard_example(text: str) -> Any:
    from regard.data.example import Example

    return Example.of_text(text, "source")


@pytest.mark.parametrize("case", CASES)
def test_tokens(tmp_path: Path, case: str) -> None:
    """The source as the folder's tokenizer reads it, with what comes before and after it."""
    _, run = imported(tmp_path, case)
    if case == "m2m100":  # transformers has the languages of the published model only
        folder = tmp_path / "exported"
        regard.export_run(run, to="huggingface", out=folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    elif case == "bart-merges":
        tokenizer = transformers.BartTokenizer.from_pretrained(tmp_path / "theirs")
    else:
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    for text in TEXTS:
        source = run.task.views.target_texts.sources.read_one(regard_example(text))
        expected = tokenizer(text).input_ids
        if case == "bart-kobart":
            expected = [*expected, 2]
        if case == "m2m100-nllb":  # its template has English there
            expected[0] = run.tokenizers["source"].token_ids(["kor_Hang"])[0]
        assert source == expected


@pytest.mark.parametrize("case", ["bart", "m2m100", "m2m100-nllb"])
def test_every_verb(tmp_path: Path, case: str) -> None:
    """Fine-tuning, a beam, scores, explanations, a diagnosis and CTranslate2."""
    _, run = imported(tmp_path, case)
    _, target = TOKENS.get(case, ("", "<s>"))
    rows = "".join(f"{text}\t{text[:12]}\n" for text in TEXTS * 4)
    (tmp_path / "pairs.tsv").write_text(rows, encoding="utf-8")
    recipe = {
        "task": "translation",
        "data": {
            "train": {"file": str(tmp_path / "pairs.tsv"), "source": 0, "target": 1},
            "validation": {"file": str(tmp_path / "pairs.tsv"), "source": 0, "target": 1},
            "deduplicate": False,
        },
        "training": TRAINING | {"init": str(run.folder), "learning_rate": 0.003, "steps": 30},
    }
    tuned = regard.train(recipe, out=tmp_path / "tuned", quiet=True)
    assert tuned.recipe.model.positions == run.recipe.model.positions
    before, after = load_weights(run.checkpoint()), load_weights(tuned.checkpoint())
    assert before.keys() == after.keys()
    assert not torch.equal(before["source_embedding.weight"], after["source_embedding.weight"])
    scores = [regard.score(one, TEXTS[0], TEXTS[0][:12]) for one in (run, tuned)]
    assert scores[0]["tokens"][0] == scores[1]["tokens"][0] == target
    assert scores[1]["score"] > scores[0]["score"]
    [prediction] = regard.predict(tuned, [TEXTS[0]], beam=3)
    assert prediction.nbest[0].tokens[0] == target
    assert target not in prediction.output
    explanation = regard.explain(tuned, TEXTS[0]).to_json()
    assert explanation["target"][0] == target or target in json.dumps(explanation)
    found = regard.diagnose(tuned, split="validation", beam=2).to_json()
    assert found
    regard.export_run(tuned, to="huggingface", out=tmp_path / "exported")
    same_weights(tuned, regard.import_run(tmp_path / "exported", out=tmp_path / "back"))


@pytest.mark.parametrize("case", ["bart", "bart-kobart", "m2m100", "m2m100-nllb"])
def test_ctranslate2(tmp_path: Path, case: str) -> None:
    """The same outputs and scores; and those of 8 bits begin with the same token."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    _, run = imported(tmp_path, case)
    regard.export_run(run, to="ctranslate2", out=tmp_path / "there")
    translator = ctranslate2.Translator(str(tmp_path / "there"), compute_type="float32")
    source, target = run.tokenizers["source"], run.tokenizers["target"]
    written = run.task.views.target_texts
    rows = [written.sources.read_one(regard_example(text)) for text in TEXTS]
    first = target.tokens(first_tokens(run.recipe, run.tokenizers, "target"))
    results = translator.translate_batch(
        [source.tokens(row[:-1]) for row in rows],
        target_prefix=[first] * len(rows) if first else None,
        beam_size=1,
        max_decoding_length=12,
        disable_unk=True,
        suppress_sequences=[["<pad>"]],
    )
    ours = regard.predict(run, TEXTS, beam=1, overrides=["search.max_length=13"])
    for result, prediction in zip(results, ours, strict=True):
        tokens = list(prediction.nbest[0].tokens)
        assert result.hypotheses[0] == (tokens[:-1] if tokens[-1] == "</s>" else tokens)[:12]
    scored = regard.score(run, TEXTS[0], TEXTS[1])
    [result] = translator.score_batch([source.tokens(rows[0][:-1])], [scored["tokens"][:-1]])
    near(torch.tensor(result.log_probs), torch.tensor(scored["token_scores"]))
    loaded = regard.load(run, device="cpu", precision="int8")
    eight = loaded.predict(TEXTS, beam=2)
    assert all(list(one.nbest[0].tokens[: len(first)]) == first for one in eight)
    if case == "m2m100":
        french = loaded.predict(TEXTS, beam=2, overrides=["data.target_language=fr"])
        assert all(one.nbest[0].tokens[0] == "__fr__" for one in french)


def test_languages_are_chosen_when_used(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "m2m100")
    english, french = (
        succeed("predict", run.folder, TEXTS[0], "--json", "--target-language", code).json
        for code in ("en", "fr")
    )
    assert (english["tokens"][0], french["tokens"][0]) == ("__en__", "__fr__")
    assert english["score"] != french["score"]
    [summary] = Runs(Settings(), folders=lambda: {"run": run.folder}).list_runs()
    assert summary["languages"] == "ko → en"
    [wrong] = fail("predict", run.folder, TEXTS[0], "--target-language", "fra")
    assert "no token for the language 'fra'" in wrong
    assert "fr" in wrong


def test_languages_are_chosen_for_scores_and_explanations(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "m2m100")
    given = (run.folder, TEXTS[0])
    french = ("--target-language", "fr", "--json")
    scores = [succeed("score", *given, "cat", *options).json for options in (["--json"], french)]
    assert [score["tokens"][0] for score in scores] == ["__en__", "__fr__"]
    assert scores[0]["score"] != scores[1]["score"]
    assert regard.score(run, TEXTS[0], "cat", overrides=["data.target_language=fr"]) == scores[1]
    explained = succeed("explain", *given, *french, "--source-language", "fr").json
    assert explained["target"][0] == "__fr__"
    assert explained["source"][0] == "__fr__"
    [wrong] = fail("score", *given, "cat", "--target-language", "xx")
    assert "no token for the language 'xx'" in wrong


def test_the_studio_chooses_languages(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "m2m100")
    runs = Runs(Settings(), folders=lambda: {"run": run.folder})
    sides = runs.show_run("run")["languages_by_side"]
    assert sides["source"]["own"] == "ko"
    assert sides["target"] == {"own": "en", "offered": sides["source"]["offered"]}
    assert {"ko", "en", "fr"} <= set(sides["target"]["offered"])
    with TestClient(create_app(runs, Settings(), root=tmp_path), base_url=LOCAL) as client:

        def first(verb: str, key: str, **body: object) -> str:
            answer = client.post(f"/runs/run/{verb}", json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()[key][0])

        french = {"target_language": "fr"}
        given = {"source": TEXTS[0], "target": "cat"}
        assert first("score", "tokens", **given) == "__en__"
        assert first("score", "tokens", **given, **french) == "__fr__"
        assert first("explain", "target", input=TEXTS[0], **french) == "__fr__"
        body = {"inputs": [TEXTS[0]], **french}
        [prediction] = client.post("/runs/run/predict", json=body).json()["predictions"]
        assert prediction["tokens"][0] == "__fr__"
        for verb in ("attention", "search", "diagram", "branch"):
            own, other = (
                client.post(f"/runs/run/{verb}", json={"input": TEXTS[0], **chosen})
                for chosen in ({}, french)
            )
            assert own.status_code == other.status_code == 200
            assert own.text != other.text, verb
        wrong = client.post("/runs/run/score", json={**given, "target_language": "xx"})
        assert wrong.status_code == 422
        assert "no token for the language 'xx'" in wrong.text


def test_languages_are_asked_for(tmp_path: Path) -> None:
    SAVERS["m2m100"](tmp_path / "theirs")
    given = ("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "--source-language and --target-language" in fail(*given)[0]
    [wrong] = fail(*given, "--source-language", "xx", "--target-language", "en")
    assert "no token for the language 'xx'" in wrong
    succeed(*given, "--source-language", "ko", "--target-language", "en")


def test_a_model_without_languages_refuses_them(tmp_path: Path) -> None:
    SAVERS["bart"](tmp_path / "theirs")
    given = ("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "has no tokens for languages" in fail(*given, "--target-language", "ko")[0]


def test_a_vocabulary_that_lists_no_languages(tmp_path: Path) -> None:
    SAVERS["m2m100"](tmp_path / "theirs")
    change(tmp_path / "theirs" / "tokenizer_config.json", additional_special_tokens=[])
    [wrong] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "name no languages" in wrong
