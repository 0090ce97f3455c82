"""A folder of a Pegasus model becomes a run of a pre-norm Transformer: the same tokens, the same numbers."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import regard
from command_line import fail, succeed
from exchange_cases import TEXTS, save_pegasus
from export_cases import mask_of, near
from regard.data.batch import Batch
from regard.exchange.marian import DECODER, ENCODER, READOUT
from regard.tasks.inputs import padded

transformers = pytest.importorskip("transformers")


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("activation", "tied"), [("relu", True), ("gelu", False)])
def test_logits(tmp_path: Path, activation: str, tied: bool) -> None:
    theirs = save_pegasus(tmp_path / "theirs", activation_function=activation, tie_word_embeddings=tied)
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    sources, targets = [[20, 6, 17, 1], [18, 1], [9, 10, 31, 12, 13, 1]], [[0, 20, 21, 1], [0, 22, 1], [0, 9, 8, 7, 1]]
    batch, model = Batch(padded(sources, 0), padded(targets, 0)), run.load_model()
    with torch.no_grad():
        logits_BTV = model.readout(model(batch).hidden_BTD)
        given = {"attention_mask": mask_of(sources), "decoder_input_ids": batch.target.ids_BL[:, :-1]}
        expected = theirs(batch.source.ids_BL, **given).logits
    for row, ids in enumerate(targets):
        near(logits_BTV[row, : len(ids) - 1], expected[row, : len(ids) - 1])
    config = run.recipe.model
    assert (config.norm, config.activation, config.tie) == ("pre", activation, "all" if tied else "none")


def test_a_file_without_a_bias_has_none(tmp_path: Path) -> None:
    save_pegasus(tmp_path / "theirs")
    weights = load_file(tmp_path / "theirs" / "model.safetensors")
    del weights["final_logits_bias"]
    save_file(weights, tmp_path / "theirs" / "model.safetensors")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    assert not run.load_model().output.linear.bias.any()


@pytest.mark.parametrize("name", [ENCODER, DECODER, READOUT])
def test_a_table_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    save_pegasus(tmp_path / "theirs", tie_word_embeddings=False)
    weights = load_file(tmp_path / "theirs" / "model.safetensors")
    del weights[name]
    save_file(weights, tmp_path / "theirs" / "model.safetensors")
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert f"of its weights there is no {name} " in message


@pytest.mark.parametrize("file", ["spiece.model", "tokenizer.json"])
def test_tokens(tmp_path: Path, file: str) -> None:
    """Its SentencePiece model, or what `transformers` makes of it."""
    save_pegasus(tmp_path / "theirs")
    theirs = transformers.PegasusTokenizer.from_pretrained(tmp_path / "theirs")
    if file == "tokenizer.json":
        theirs.save_pretrained(tmp_path / "theirs")
        (tmp_path / "theirs" / "spiece.model").unlink()
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    ours = run.tokenizers["source"]
    assert run.tokenizers.joint
    assert (ours.pad, ours.end, ours.unk, ours.begin) == (0, 1, theirs.unk_token_id, 0)

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.text("Teh quickdog한국어문장☃, ", max_size=30) | st.sampled_from(TEXTS))
    def same(text: str) -> None:
        # SentencePiece itself drops spaces at the ends, as we do, and transformers does not.
        assume(unicodedata.is_normalized("NFC", text) and text == text.strip())
        assert [*ours.encode(text), 1] == theirs(text).input_ids

    same()
    assert ours.decode(ours.encode(TEXTS[0])) == theirs.decode(theirs(TEXTS[0]).input_ids, skip_special_tokens=True)


@pytest.mark.parametrize("task", ["summarization", "translation"])
def test_its_task(tmp_path: Path, task: str) -> None:
    """The published ones summarise; what was exported here keeps its task."""
    save_pegasus(tmp_path / "theirs")
    if task == "translation":
        change(tmp_path / "theirs" / "config.json", task_specific_params={"translation": {}})
    assert succeed("import", tmp_path / "theirs", "--out", tmp_path / "run", "--json").json["task"] == task
    regard.export_run(tmp_path / "run", to="huggingface", out=tmp_path / "again")
    assert regard.import_run(tmp_path / "again", out=tmp_path / "back").recipe.task == task


@pytest.mark.parametrize(
    ("file", "changes", "part"),
    [
        ("config.json", {"scale_embedding": False}, "scale_embedding: false is not supported (supported: true)"),
        ("config.json", {"normalize_before": False}, "normalize_before: false is not supported (supported: true)"),
        ("config.json", {"decoder_ffn_dim": 18}, "decoder_ffn_dim: 18 is not supported (supported: 17)"),
        ("config.json", {"d_model": 15}, "config.json: d_model: 15 is not supported (supported: even widths)"),
        ("config.json", {"activation_function": "tanh"}, 'activation_function: "tanh" is not supported'),
        ("config.json", {"architectures": ["PegasusModel"]}, "PegasusForConditionalGeneration"),
        ("tokenizer_config.json", {"offset": 10}, "(the two must come from the same model)"),
        ("tokenizer_config.json", {"offset": "many"}, "tokenizer_config.json: offset: 'many' is no number of tokens"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(tmp_path: Path, file: str, changes: dict[str, Any], part: str) -> None:
    save_pegasus(tmp_path / "theirs")
    change(tmp_path / "theirs" / file, **changes)
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert part in message
    assert not (tmp_path / "run").exists()
