"""RoBERTa, ELECTRA, DistilBERT and the other encoders: folders of `transformers` with random weights of odd
sizes become runs and runs such folders, with every head; numbers and tokens are the same."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from exchange_cases import (
    ENCODERS,
    FEW,
    TEXTS,
    UNICODE,
    answers,
    near,
    printed_by_the_card,
    same_logits,
    same_weights,
    save_encoder,
    there_and_back,
)
from regard.data.batches import MaskedBatch
from regard.exchange.encoder import HEAD_CLASSES, PRETRAINING
from regard.exchange.exchange import ARCHITECTURES
from regard.runs import Run
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


def test_every_architecture_is_imported_and_exported() -> None:
    """The table of architectures has no gap: what can be read can be written, with every head."""
    for architecture in ARCHITECTURES:
        tasks = {task for task, _ in architecture.runs}
        if PRETRAINING in tasks:
            assert tasks == {PRETRAINING, *HEAD_CLASSES}
