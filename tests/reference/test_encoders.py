"""RoBERTa, ELECTRA, DistilBERT and the other encoders: folders of `transformers` with random weights of odd
sizes become runs and runs such folders, with every head; numbers and tokens are the same."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import regard
from exchange_cases import (
    ENCODERS,
    FEW,
    TEXTS,
    UNICODE,
    answers,
    change,
    near,
    printed_by_the_card,
    same_logits,
    same_weights,
    save_encoder,
    there_and_back,
    train_sentencepiece,
)
from regard.data.batches import MaskedBatch
from regard.errors import DataError
from regard.exchange.encoder import HEAD_CLASSES, PRETRAINING
from regard.exchange.exchange import ARCHITECTURES
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.tasks.reading import padded

transformers = pytest.importorskip("transformers")

LABELS: dict[str, Any] = {
    "ForSequenceClassification": {"id2label": {0: "bad", 1: "10", 2: "2"}},
    "ForTokenClassification": {"id2label": {0: "O", 1: "B-A", 2: "I-A"}},
}
INPUTS = {
    PRETRAINING: "A [MASK] of yours.",
    "classification": "A text of yours.",
    "regression": "A text of yours.",
    "multiple_choice": "The animal\ta street\ttired",
    "tagging": "A text of yours , in words .",
    "question_answering": "Where?\tIn a text of yours.",
}
CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    f"{kind}-{task}": (
        kind,
        task,
        end,
        {"num_labels": 1} if task == "regression" else LABELS.get(end, {}),
    )
    for kind in ENCODERS
    for task, end in {PRETRAINING: "ForMaskedLM", **HEAD_CLASSES}.items()
}
CASES |= {f"{kind}-model": (kind, PRETRAINING, "Model", {}) for kind in ENCODERS}
CASES |= {
    "electra-discriminator": ("electra", PRETRAINING, "ForPreTraining", {}),
    "electra-base-discriminator": ("electra-base", PRETRAINING, "ForPreTraining", {}),
}
"""The encoder, the task of the run, what the name of the architecture ends in, settings."""


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(tmp_path: Path, case: str) -> None:
    kind, task, end, changes = CASES[case]
    theirs = save_encoder(tmp_path / "theirs", kind, end, **changes)
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    assert run.recipe.task == task
    same_logits(run, theirs)
    same_layers(run, theirs)
    back = there_and_back(run, tmp_path)
    assert back.recipe == run.recipe
    same_weights(run, back)
    assert back.tokenizers["text"].to_json() == run.tokenizers["text"].to_json()
    [architecture] = transformers.AutoConfig.from_pretrained(tmp_path / "exported").architectures
    loaded, facts = getattr(transformers, architecture).from_pretrained(
        tmp_path / "exported", output_loading_info=True
    )
    assert not any(facts.values()), "no weight is missing, and none has no place"
    state = loaded.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in theirs.state_dict().items())
    given = INPUTS[task]
    if task != PRETRAINING or run.recipe.model.masked_head:
        assert answers(run, given) == answers(back, given)
    printed = printed_by_the_card(tmp_path / "exported")
    assert printed or task == "question_answering", "a span of special tokens is an empty answer"


@torch.no_grad()
def same_layers(run: Run, theirs: Any) -> None:
    """The hidden states of all layers, without padding."""
    model = run.load_model()
    base = getattr(model, "base", model)
    tokenizer = run.tokenizers["text"]
    rows = [[tokenizer.begin, 7, 9, 8, tokenizer.end], [tokenizer.begin, 7, 11, tokenizer.end]]
    text = padded(rows, tokenizer.pad)
    nothing = torch.zeros(0, dtype=torch.long)
    ours = base.layers_of(MaskedBatch(text, torch.zeros_like(text.ids_BL), nothing, nothing))
    mask = (torch.arange(5) < text.lengths_B[:, None]).long()
    expected = theirs.base_model(
        input_ids=text.ids_BL, attention_mask=mask, output_hidden_states=True
    ).hidden_states
    assert len(ours) == len(expected) == base.depth + 1
    for ours_BLD, theirs_BLD in zip(ours, expected, strict=True):
        near(ours_BLD * mask[..., None], theirs_BLD * mask[..., None])


@pytest.mark.parametrize("kind", ENCODERS)
def test_tokens(tmp_path: Path, kind: str) -> None:
    """Any text and any two texts get the same tokens, also in the folder that is exported."""
    save_encoder(tmp_path / "theirs", kind, "ForSequenceClassification")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    regard.export_run(run, to="huggingface", out=tmp_path / "exported")
    ours = run.tokenizers["text"]
    readers = [
        transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / folder)
        for folder in ("theirs", "exported")
    ]
    assert readers[1]("a", "b").keys() <= {"input_ids", "attention_mask", "token_type_ids"}
    has_segments = "token_type_ids" in transformers.AutoTokenizer.from_pretrained(
        tmp_path / "exported"
    )("a")
    assert has_segments == (getattr(run.recipe.model, "segment_vectors", 0) == 2)

    @FEW
    @given(UNICODE | st.sampled_from(TEXTS), UNICODE.filter(bool))
    def same(first: str, second: str) -> None:
        single, pair = ours.templates
        texts = [ours.encode(first), ours.encode(second)]
        for reader in readers:
            for template, given_texts in ((single, (first,)), (pair, (first, second))):
                parts = iter(texts)
                expected = [
                    token
                    for slot in template
                    for token in (next(parts) if slot.token is None else [slot.token])
                ]
                assert reader(*given_texts).input_ids == expected

    same()


SENTENCEPIECE: dict[str, tuple[str, dict[str, Any], int]] = {
    "deberta": (
        "spm.model",
        {
            "pad_id": 0,
            "bos_id": 1,
            "eos_id": 2,
            "unk_id": 3,
            "pad_piece": "[PAD]",
            "bos_piece": "[CLS]",
            "eos_piece": "[SEP]",
            "unk_piece": "[UNK]",
        },
        0,
    ),
    "xlm-roberta": ("sentencepiece.bpe.model", {}, 1),
}
"""The name of the file, its special pieces, and how much larger the ids of the other pieces are."""
LETTERS = st.text("Theanimldogstr 한국어문장나는 학교에갑니다,.", max_size=30)


@pytest.mark.parametrize("kind", SENTENCEPIECE)
def test_a_folder_with_a_sentencepiece_model_only(tmp_path: Path, kind: str) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    name, special, offset = SENTENCEPIECE[kind]
    model_file = tmp_path / name
    train_sentencepiece(model_file, "unigram", 90, **special)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    rows = theirs.GetPieceSize() + 1 + offset
    save_encoder(tmp_path / "theirs", kind, vocab_size=rows)
    for file in (tmp_path / "theirs").glob("tokenizer*.json"):
        file.unlink()
    shutil.copy(model_file, tmp_path / "theirs")
    ours = regard.import_run(tmp_path / "theirs", out=tmp_path / "run").tokenizers["text"]
    unknown = theirs.unk_id()

    @FEW
    @given(LETTERS | st.sampled_from(TEXTS))
    def same(text: str) -> None:
        ids = [ours.unk if token == unknown else token + offset for token in theirs.encode(text)]
        assert ours.encode(text) == ids

    same()
    assert ours.size == rows
    assert ours.mask == rows - 1
    assert (ours.begin, ours.pad, ours.end, ours.unk) == (
        (1, 0, 2, 3) if kind == "deberta" else (0, 1, 2, 3)
    )


ROTARY = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "head": (
        "roberta",
        "config.json",
        {"architectures": ["RobertaForCausalLM"]},
        "RobertaForCausalLM of the type 'roberta' cannot be imported (the nearest that can be: Roberta",
    ),
    "type": (
        "roberta",
        "config.json",
        {"architectures": ["LongformerForMaskedLM"], "model_type": "longformer"},
        "(the nearest that can be: ",
    ),
    "padding": (
        "roberta",
        "tokenizer_config.json",
        {"pad_token": "<unk>"},
        "the tokenizer pads with token 3, but the positions count from token 1 (the two must come from",
    ),
    "segments": (
        "electra",
        "config.json",
        {"type_vocab_size": 3},
        "type_vocab_size: 3 is not supported",
    ),
    "sizes": ("distilbert", "config.json", {"dim": 18}, " x 18 by this file"),
    "buckets": (
        "mpnet",
        "config.json",
        {"relative_attention_num_buckets": 64},
        "relative_attention_num_buckets: 64 is not supported (supported: 32)",
    ),
    "absolute": (
        "deberta",
        "config.json",
        {"relative_attention": False},
        "relative_attention: false is not supported (supported: true)",
    ),
    "convolution": (
        "deberta",
        "config.json",
        {"conv_kernel_size": 3},
        "conv_kernel_size: 3 is not",
    ),
    "terms": (
        "deberta",
        "config.json",
        {"pos_att_type": ["p2p"]},
        'pos_att_type: ["p2p"] is not supported (supported: "p2c|c2p", or one of the two)',
    ),
    "rotary": (
        "modernbert",
        "config.json",
        {"rope_parameters": {"full_attention": ROTARY, "sliding_attention": ROTARY}},
        "rope_parameters: scaled rotary positions are not supported",
    ),
    "layers": (
        "modernbert",
        "config.json",
        {
            "layer_types": [
                "full_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
            ]
        },
        "layer_types: global layers are not at equal distances from the first one on",
    ),
}
"""The encoder, the file and what is changed in it, and a part of the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_is_refused(tmp_path: Path, case: str) -> None:
    kind, file, changes, part = REFUSED[case]
    save_encoder(tmp_path / "theirs", kind)
    change(tmp_path / "theirs" / file, **changes)
    with pytest.raises(DataError) as caught:
        regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    assert part in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        (
            {"lm_head.layer_norm.weight": None},
            "of its weights there is no lm_head.layer_norm.weight",
        ),
        ({"roberta.adapter.weight": (2, 3)}, "there is no place for adapter.weight"),
        (
            {"roberta.embeddings.word_embeddings.weight": (9, 12)},
            "tokens, but the embedding 9 rows",
        ),
        ({"lm_head.decoder.weight": (9, 12)}, "lm_head.decoder.weight: has other values than"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, changed: dict[str, Any], part: str) -> None:
    save_encoder(tmp_path / "theirs", "roberta")
    file = tmp_path / "theirs" / "model.safetensors"
    weights = load_file(file)
    for name, shape in changed.items():
        if shape is None:
            del weights[name]
        else:
            weights[name] = torch.ones(shape)
    save_file(weights, file)
    with pytest.raises(DataError, match=re.escape(part)):
        regard.import_run(tmp_path / "theirs", out=tmp_path / "run")


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    save_encoder(tmp_path / "theirs", "electra")
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="there is no tokenizer in the folder"):
        regard.import_run(tmp_path / "theirs", out=tmp_path / "run")


@pytest.mark.parametrize("kind", ["roberta", "deberta", "modernbert"])
@pytest.mark.parametrize("stored", ["shards", "half", "pickled"])
def test_weights_stored_otherwise(tmp_path: Path, kind: str, stored: str) -> None:
    theirs = save_encoder(tmp_path / "theirs", kind)
    file = tmp_path / "theirs" / "model.safetensors"
    if stored == "pickled":
        torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()
    if stored != "pickled":
        theirs = theirs.half() if stored == "half" else theirs
        theirs.save_pretrained(
            tmp_path / "theirs", max_shard_size="4KB" if stored == "shards" else "5GB"
        )
    names = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert ("model.safetensors.index.json" in names) == (stored == "shards")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    again = type(theirs).from_pretrained(tmp_path / "theirs", dtype=torch.float32)
    same_logits(run, again.eval())


def test_a_pooler_under_a_head_that_does_not_read_it(tmp_path: Path) -> None:
    """Older files keep it, and transformers leaves it out."""
    theirs = save_encoder(tmp_path / "theirs", "roberta", "ForTokenClassification")
    file = tmp_path / "theirs" / "model.safetensors"
    pooler = {"roberta.pooler.dense.weight": (12, 12), "roberta.pooler.dense.bias": (12,)}
    save_file(load_file(file) | {name: torch.ones(shape) for name, shape in pooler.items()}, file)
    same_logits(regard.import_run(tmp_path / "theirs", out=tmp_path / "run"), theirs)


@pytest.mark.parametrize("kind", ["electra", "mpnet", "modernbert"])
def test_fine_tuning_begins_with_the_weights(tmp_path: Path, kind: str) -> None:
    """A pre-trained model becomes the base of a classifier: all of its weights, frozen, stay."""
    save_encoder(
        tmp_path / "theirs", kind, "ForPreTraining" if kind == "electra" else "ForMaskedLM"
    )
    start = regard.import_run(tmp_path / "theirs", out=tmp_path / "start")
    recipe = {
        "task": "classification",
        "data": {
            "train": {"corpus": "reviews-en", "size": 40},
            "validation": {"split": 0.2},
            "max_length": 40,
        },
        "head": {"freeze": "all"},
        "training": {"init": str(start.folder), "steps": 2, "device": "cpu"},
    }
    tuned = regard.train(recipe, out=tmp_path / "tuned", quiet=True)
    before, after = load_weights(start.checkpoint()), load_weights(tuned.checkpoint())
    base = {name.removeprefix("base."): w for name, w in after.items() if name.startswith("base.")}
    assert len(base) >= 30
    assert all(torch.equal(before[name], weight) for name, weight in base.items())
    assert set(before) - set(base) <= {
        name for name in before if name.startswith(("output.", "replaced."))
    }


def test_every_architecture_is_imported_and_exported() -> None:
    """The table of architectures has no gap: what can be read can be written, with every head."""
    for architecture in ARCHITECTURES:
        tasks = {task for task, _ in architecture.runs}
        if PRETRAINING in tasks:
            assert tasks == {PRETRAINING, *HEAD_CLASSES}
