"""What cannot be imported or exported is refused in one sentence, and nothing is left behind."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from command_line import fail, refusal, succeed
from exchange_cases import SAVERS, change, save_bert
from regard.errors import CheckpointError, DataError
from regard.exchange.folder import ModelFolder
from regard.runs import Run

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, to copy."""
    folder = tmp_path_factory.mktemp("saved")
    for kind, save in SAVERS.items():
        save(folder / kind)
    return folder


@pytest.mark.parametrize(
    ("kind", "changes", "part"),
    [
        (
            "bert",
            {"model_type": "t5"},
            "BertForPreTraining of the type 't5' cannot be imported (the nearest that can be: "
            "BertForPreTraining; supported types: electra, roberta, ",
        ),
        (
            "bert",
            {"architectures": ["ElectraModel"]},
            "ElectraModel of the type 'bert' cannot be imported",
        ),
        (
            "bert",
            {"hidden_act": "silu"},
            'config.json: hidden_act: "silu" is not supported (supported: "gelu", ',
        ),
        (
            "bert",
            {"type_vocab_size": 1},
            "config.json: type_vocab_size: 1 is not supported (supported: 2)",
        ),
        (
            "bert",
            {"num_hidden_layers": 4},
            "of its weights there is no encoder.layer.3.attention.output.LayerNorm.bia",
        ),
        ("bert", {"num_hidden_layers": 2}, "of its weights there is no place for encoder.layer.2."),
        (
            "bert",
            {"hidden_size": None},
            "config.json: hidden_size is missing or not a whole number",
        ),
        ("bert", {"hidden_size": 13}, "3 heads do not divide the width 13"),
        (
            "bert",
            {"intermediate_size": 18},
            "dense.weight is 17 x 12 in the weights, but 18 x 12 by this file",
        ),
        (
            "gpt2",
            {"layer_norm_epsilon": 1e-6},
            "layer_norm_epsilon: 1e-06 is not supported (supported: 1e-05)",
        ),
        (
            "marian",
            {"normalize_before": True},
            "normalize_before: true is not supported (supported: false)",
        ),
        (
            "pegasus",
            {"scale_embedding": False},
            "scale_embedding: false is not supported (supported: true)",
        ),
        (
            "pegasus",
            {"normalize_before": False},
            "normalize_before: false is not supported (supported: true)",
        ),
        (
            "pegasus",
            {"decoder_ffn_dim": 18},
            "decoder_ffn_dim: 18 is not supported (supported: 17)",
        ),
        (
            "pegasus",
            {"activation_function": "tanh"},
            'activation_function: "tanh" is not supported',
        ),
        ("pegasus", {"architectures": ["PegasusModel"]}, "PegasusForConditionalGeneration"),
        *(
            (
                "bert",
                {"model_type": kind, "architectures": [name]},
                f"cannot be imported (the nearest that can be: {nearest};",
            )
            for kind, name, nearest in (
                ("llama", "LlamaForCausalLM", "GPT2LMHeadModel"),
                ("albert", "AlbertForMaskedLM", "BertForMaskedLM"),
                ("nomic_bert", "NomicBertModel", "BertModel"),
                ("mbart", "MBartForConditionalGeneration", "BartForConditionalGeneration"),
            )
        ),
        ("bert", {"model_type": None}, "it does not say which model it is: model_type is missing"),
        (
            "bert",
            {"vocab_size": 151},
            "config.json: vocab_size is 151, but the embedding has 150 rows",
        ),
        (
            "gpt2",
            {"quantization_config": {"bits": 4}},
            "config.json: quantization_config: the weights are quantized",
        ),
        (
            "bert",
            {"regard": "yes", "architectures": ["BertForQuestionAnswering"]},
            "config.json: regard: is not what 'regard export' writes there (leave it out)",
        ),
        *(
            (
                "bert",
                {"id2label": names, "architectures": ["BertForTokenClassification"]},
                "config.json: id2label: is not an object with the number and name of each class",
            )
            for names in (
                ["PER", "LOC"],
                {"first": "PER"},
                {"0": "PER", "5": "LOC"},
                {"0": ["PER"]},
                "PER",
                3,
            )
        ),
        (
            "bert",
            {"hidden_dropout_prob": "much"},
            "config.json: hidden_dropout_prob is not a number",
        ),
        ("bert", {"layer_norm_eps": None}, "config.json: layer_norm_eps is not a number"),
        (
            "bert",
            {"classifier_dropout": [], "architectures": ["BertForQuestionAnswering"]},
            "config.json: classifier_dropout is not a number",
        ),
        (
            "bert",
            {"num_hidden_layers": 100_000},
            "config.json: num_hidden_layers is 100,000 (allowed: 0 to 1,000)",
        ),
        ("gpt2", {"n_layer": -1}, "config.json: n_layer is -1 (allowed: 0 to 1,000)"),
        (
            "gpt2",
            {"n_positions": 10**15},
            "n_positions is 1,000,000,000,000,000 (allowed: 0 to 1,048,576)",
        ),
        ("gpt2", {"n_embd": 3 * 2**18}, " x 786432 by this file"),
        ("marian", {"d_model": 18}, " x 18 by this file"),
        ("marian", {"num_beams": "many"}, "num_beams is not a number"),
        (
            "marian",
            {"task_specific_params": 3},
            "config.json: task_specific_params: is not an object",
        ),
        (
            "bert",
            {"pad_token": ["[PAD]"]},
            "tokenizer_config.json: pad_token: is not the text of a token",
        ),
        ("bert", {"normalizer": "NFC"}, "cannot be used as a tokenizer"),
        (
            "bert",
            {
                "post_processor": {
                    "type": "BertProcessing",
                    "cls": ["[CLS]", 999],
                    "sep": ["[SEP]", 4],
                }
            },
            "cannot be used as a tokenizer: its template has a token that is not in the vocabulary",
        ),
        (
            "bert",
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(a+)+$"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
            "tokenizer fails on some texts: Onig: Regex search error: retry-limit-in-match over",
        ),
        ("pegasus", {"offset": 10}, "(the two must come from the same model)"),
        (
            "pegasus",
            {"offset": "many"},
            "tokenizer_config.json: offset: 'many' is not a number of tokens",
        ),
    ],
)
def test_a_folder_not_supported(
    tmp_path: Path, saved: Path, kind: str, changes: dict[str, Any], part: str
) -> None:
    shutil.copytree(saved / kind, tmp_path / "theirs")
    files = {"offset": "tokenizer_config.json", "pad_token": "tokenizer_config.json"}
    files |= dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor"), "tokenizer.json")
    file = next((file for key, file in files.items() if key in changes), "config.json")
    change(tmp_path / "theirs" / file, **changes)
    assert part in refusal("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"], "nothing is left behind"


@pytest.mark.parametrize(
    ("source", "content", "part"),
    [
        ("folder", None, "there is no config.json in the folder"),
        ("outer", None, f"(there is one below: give {Path('outer', 'model')})"),
        ("file", None, "is a file, not a folder"),
        ("./a/b/c", None, "there is no such folder"),
        ("folder", "[", "cannot be read as JSON"),
        ("folder", "[]", "is not a JSON object"),
        ("folder", "[" * 100_000, "cannot be read as JSON: it is nested too deeply"),
        (
            "folder",
            '{"model_type": "gpt2", "n_embd": 8}',
            "n_layer is missing or not a whole number",
        ),
    ],
)
def test_what_is_no_model_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, content: str | None, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outer" / "model").mkdir(parents=True)
    (tmp_path / "outer" / "model" / "config.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    if content is not None:
        (tmp_path / "folder" / "config.json").write_text(content)
    assert part in fail("import", source, "--out", "run")[0]


@pytest.mark.parametrize(
    "shards", [["model-1.safetensors"], "model-1.safetensors", 3, {"weight": 3}]
)
def test_an_index_that_is_none(tmp_path: Path, shards: Any) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(
        DataError, match="weight_map: is not an object with the file of each weight"
    ):
        ModelFolder(tmp_path, "theirs").weights()


def test_weights_in_8_bits(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    rounded = {name: (100 * tensor).to(torch.int8) for name, tensor in load_file(file).items()}
    save_file(rounded, file, metadata={"format": "pt"})
    message = refusal("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "the weights are quantized (int8) (give the folder in float32" in message


class Evil:
    """A pickle of it makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "tf_model.h5"])
def test_a_pickle_that_could_run_code(tmp_path: Path, name: str) -> None:
    save_bert(tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    torch.save({"weight": Evil(tmp_path / "broken-into")}, tmp_path / "theirs" / name)
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert all(
        part in message
        for part in ("may run code", "(save the model with transformers as model.saf")
    )
    assert "weights_only" not in message, "torch's own message says how to load it nevertheless"
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("zipped", [True, False])
def test_weights_that_are_cut_off(tmp_path: Path, share: float, zipped: bool) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({"weight": torch.zeros(1000)}, file, _use_new_zipfile_serialization=zipped)
    os.truncate(file, int(share * file.stat().st_size))
    with pytest.raises(DataError) as caught:
        ModelFolder(tmp_path, "theirs").weights()
    assert (
        str(caught.value) == f"{file}: the file is cut off or damaged (copy or download it again)"
    )


# The Hub, and transformers itself


def test_a_name_of_the_hub_when_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    [message] = fail("import", "google-bert/no-such-bert", "--out", tmp_path / "run")
    start = (
        "google-bert/no-such-bert: is not a folder here, and cannot be fetched from the Hugging "
        "Face Hub: "
    )
    assert message.startswith(start)
    assert message.endswith("(give the folder of a model that was downloaded before)")


def test_a_name_of_the_hub_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled weights are requested only where there are no others."""
    hub = pytest.importorskip("huggingface_hub")
    model = save_bert(tmp_path / "cache")
    requested: list[list[str]] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        requested.append(allow_patterns)
        assert name == "klue/bert-base"
        return str(tmp_path / "cache")

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    assert (
        succeed("import", "klue/bert-base", "--out", "run", "--json").json["task"]
        == "masked_language_modeling"
    )
    assert Run.open("run").environment["imported"]["from"] == "klue/bert-base"
    (tmp_path / "cache" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "cache" / "pytorch_model.bin")
    succeed("import", "klue/bert-base", "--out", "other")
    assert ["pytorch_model*.bin" in patterns for patterns in requested] == [False, False, True]


def test_transformers_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_bert(tmp_path / "theirs")
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    assert np.isfinite(regard.features(tmp_path / "run", ["The animal"]).vectors).all()
    assert (
        "the run folder exists already"
        in fail("import", tmp_path / "theirs", "--out", tmp_path / "run")[0]
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        *(
            (
                option,
                f"{option}: the model folder decides this (allowed are keys of data, head, search, "
                "evaluation, exc",
            )
            for option in (
                "model.layers=2",
                "task=tagging",
                "data.train=a.jsonl",
                "training.steps=3",
                "head=null",
            )
        ),
        ("head.dropuot=0.1", "head.dropuot: unknown key 'dropuot'"),
        (
            "head.labels=[a,b,c]",
            "head.labels: the classes cannot be renamed (they are the model's own",
        ),
        ("head.labels=[a,a]", "head.labels: the label 'a' is listed twice"),
        (
            "data.max_length=9999",
            "data.max_length: texts of 9999 tokens are longer than the model's",
        ),
    ],
)
def test_an_override_that_the_model_does_not_allow(
    tmp_path: Path, option: str, message: str
) -> None:
    save_bert(tmp_path / "theirs", "BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    assert refusal(
        "import", tmp_path / "theirs", "--out", tmp_path / "run", "--set", option
    ).startswith(message)
    assert not (tmp_path / "run").exists()


# Export


def test_a_full_disk_leaves_nothing(tmp_path: Path, disk: Callable[[int], None]) -> None:
    save_bert(tmp_path / "theirs")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    disk((tmp_path / "theirs" / "model.safetensors").stat().st_size // 2)
    [message] = fail("export", run.folder, "--to", "huggingface", "--out", tmp_path / "out")
    assert message == f"{tmp_path / 'out'}: cannot be written: File too large"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "theirs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--to huggingface --out out",
            "bahdanau for translation cannot be exported to huggingface (what can be expo",
        ),
        (
            "--to ctranslate2 --out out",
            "bahdanau for translation cannot be exported to ctranslate2 (what can be "
            "exported: transformer for translation, transformer for summarization)",
        ),
        (
            "--to huggingfac --out out",
            "--to: unknown tool 'huggingfac' (did you mean 'huggingface'?)",
        ),
        (
            "--to huggingface --quantize int8 --out out",
            "--quantize: only ctranslate2 quantizes weights (leave it out)",
        ),
        ("--to huggingface --out .", "the folder exists already (give another --out)"),
    ],
)
def test_exports(
    tmp_path: Path, tiny_run: Path, arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in fail("export", tiny_run, *arguments.split())[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "change", "what", "tools"),
    [
        (
            "marian",
            {"norm": "none"},
            "model.norm: none (model.norm: post or pre can be exported)",
            2,
        ),
        (
            "marian",
            {"scaled": False},
            "model.scaled: false (model.scaled: true can be exported)",
            2,
        ),
        (
            "marian",
            {"residual": False},
            "model.residual: false (model.residual: true can be exported)",
            2,
        ),
        (
            "marian",
            {"look_ahead": True},
            "model.look_ahead: true (model.look_ahead: false can be exported)",
            2,
        ),
        (
            "marian",
            {"positions": "none"},
            "model.positions: none (model.positions: sinusoidal can be exported)",
            1,
        ),
        ("gpt2", {"norm": "post"}, "model.norm: post (model.norm: pre can be exported)", 1),
        (
            "bert",
            {"pooling": "mean"},
            "head.pooling: mean (head.pooling: first can be exported)",
            1,
        ),
        (
            "bert",
            {"features": "mix"},
            "head.features: mix (head.features: last can be exported)",
            1,
        ),
        ("bert", {"bilstm": 8}, "head.bilstm: 8 (head.bilstm: null can be exported)", 1),
    ],
)
def test_settings_without_counterpart(
    tmp_path: Path, kind: str, change: dict[str, Any], what: str, tools: int
) -> None:
    """Before the model is loaded."""
    section = "head" if kind == "bert" else "model"
    SAVERS[kind](
        tmp_path / "theirs",
        **({"architecture": "BertForSequenceClassification"} if kind == "bert" else {}),
    )
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    changed = getattr(run.recipe, section).model_copy(update=change)
    run = run.under(run.recipe.model_copy(update={section: changed}))
    for tool, name in list({"huggingface": "transformers", "ctranslate2": "CTranslate2"}.items())[
        :tools
    ]:
        with pytest.raises(CheckpointError) as caught:
            regard.export_run(run, to=tool, out=tmp_path / "out")
        assert str(caught.value) == f"{run.folder}: {name} has no counterpart of {what}"
    assert not (tmp_path / "out").exists()
