"""What the folder's tokenizer puts around one text and around two is what a BERT reads here:
imported, trained, exported. For every kind of tokenizer that is imported."""

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

import regard
from command_line import write
from exchange_cases import (
    MARKUP,
    TEXTS,
    TRAINING,
    answers,
    by_id,
    byte_bpe,
    save_bert,
    there_and_back,
    unigram,
    wordpiece,
)
from regard.data.framing import Framing
from regard.data.segments import Masking, SentencePairs
from regard.runs import Run
from task_cases import raw_tokens

transformers = pytest.importorskip("transformers")

CLASSIFIER = "BertForSequenceClassification"
PAIRS = [
    ("The animal", "it was tired"),
    ("한국어 문장을", "나는 학교에 갑니다. 한국어"),
    ("[E1] the animal [/E1] was", "tired[E1]"),
    (f"{TEXTS[0]} {TEXTS[0]}", "123"),
    ("123", f"{TEXTS[2]} {TEXTS[0]}"),
    (f"{TEXTS[0]} {TEXTS[0]}", TEXTS[0]),
    (TEXTS[0], f"{TEXTS[0]} {TEXTS[0]}"),
]
"""The last four are longer than a row."""
BARE: dict[str, Any] = {"model_input_names": ["input_ids", "attention_mask"]}


def template(single: str, pair: str, tokenizer: Tokenizer) -> Any:
    names = {piece.partition(":")[0] for piece in pair.split()} - {"$A", "$B"}
    ids = {name: tokenizer.token_to_id(name) for name in sorted(names)}
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[*ids.items()])


def marked() -> Tokenizer:
    """A vocabulary with tokens that mark entities in a text."""
    tokenizer = wordpiece(lowercase=True)
    tokenizer.add_special_tokens(["[E1]", "[/E1]"])
    return tokenizer


def words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        TEXTS, trainers.WordLevelTrainer(special_tokens=MARKUP, show_progress=False)
    )
    return tokenizer


def bert_ends(tokenizer: Tokenizer) -> Any:
    return processors.BertProcessing(
        *((name, tokenizer.token_to_id(name)) for name in ("[SEP]", "[CLS]"))
    )


def after_bytes(tokenizer: Tokenizer) -> Any:
    ends = template("<s> $A </s>", "<s> $A </s> $B:1 <s>:1 </s>:1", tokenizer)
    return processors.Sequence([processors.ByteLevel(), ends])


BERT, XLM = (
    {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
    {"tokenizer_class": "XLMRobertaTokenizer"},
)
MARKS = BERT | {"do_lower_case": True, "additional_special_tokens": ["[E1]", "[/E1]"]}
ROBERTA = (
    partial(byte_bpe, TEXTS, MARKUP),
    lambda made: processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False),
    {"tokenizer_class": "RobertaTokenizer"},
)
SEGMENTS = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "wordpiece": (wordpiece, bert_ends, BERT),
    "vocab.txt": (wordpiece, bert_ends, BERT),
    "wordpiece-without-segments": (wordpiece, bert_ends, BERT | BARE),
    "marks": (marked, bert_ends, MARKS),
    "marks-vocab.txt": (marked, bert_ends, MARKS),
    "xlm-roberta": (
        unigram,
        lambda made: template("<s> $A </s>", "<s> $A </s> </s> $B </s>", made),
        XLM,
    ),
    "roberta": ROBERTA,
    "merges.txt": ROBERTA,
    "xlm-roberta-without-template": (unigram, lambda made: None, XLM),
    "sequence": (partial(byte_bpe, TEXTS, MARKUP), after_bytes, SEGMENTS),
    "other-names": (
        partial(unigram, **{"<s>": "<begin>", "</s>": "<end>", "<pad>": "<nothing>"}),
        lambda made: processors.RobertaProcessing(("<end>", 2), ("<begin>", 0)),
        BARE,
    ),
    "words": (words, lambda made: template("<s> $A", "<s> $A </s>:1 $B:1", made), SEGMENTS),
}
"""How a tokenizer is made, what it puts around texts, what tokenizer_config.json says besides its
special tokens."""


def save(folder: Path, kind: str, architecture: str = CLASSIFIER, **changes: Any) -> Any:
    """A BERT under such a tokenizer."""
    make, processor, settings = KINDS[kind]
    tokenizer = make()
    if (around := processor(tokenizer)) is not None:
        tokenizer.post_processor = around
    model = save_bert(folder, architecture, vocab_size=tokenizer.get_vocab_size(), **changes)
    for file in folder.glob("*token*.json"):
        file.unlink()
    roles = dict(zip(("cls", "pad", "sep", "unk", "mask"), by_id(tokenizer)[:5], strict=True))
    if "[CLS]" in tokenizer.get_vocab():
        roles = {role: f"[{role.upper()}]" for role in roles}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    settings |= {f"{role}_token": name for role, name in roles.items()}
    settings |= {"bos_token": roles["cls"], "eos_token": roles["sep"]}
    write(folder / "tokenizer_config.json", json.dumps(settings))
    if kind.endswith("vocab.txt"):
        pieces = by_id(tokenizer)
        size = len(pieces) - kind.startswith(
            "marks"
        )  # one of the marks is in the vocabulary, the other was added
        write(folder / "vocab.txt", "\n".join(pieces[:size]) + "\n")
        write(folder / "added_tokens.json", json.dumps(dict.fromkeys(pieces[size:], size)))
    elif kind == "merges.txt":
        tokenizer.model.save(str(folder))
    else:
        tokenizer.save(str(folder / "tokenizer.json"))
    return model


def imported(
    folder: Path, kind: str, architecture: str = CLASSIFIER, **changes: Any
) -> tuple[Run, Any]:
    model = save(folder / "theirs", kind, architecture, **changes)
    return regard.import_run(folder / "theirs", out=folder / "run"), model


reader_of = cache(transformers.AutoTokenizer.from_pretrained)
classifier_of = cache(transformers.BertForSequenceClassification.from_pretrained)


def same_rows(run: Run, folder: Path) -> None:
    reads = reader_of(folder)
    tokenizer = run.tokenizers["text"]
    for longest in (12, 13, 40):
        framing = Framing(tokenizer, segments=True, longest=longest)
        for first, second in PAIRS:
            for texts in ((first,), (second,), (first, second)):
                theirs = reads(*texts, truncation=True, max_length=longest)
                types = theirs.get("token_type_ids", [0] * len(theirs.input_ids))
                [row] = framing.rows(*(tokenizer.encode(text) for text in texts))
                assert row == (theirs.input_ids, types), texts


def probabilities(folder: Path, texts: tuple[str, ...]) -> list[float]:
    with torch.no_grad():
        given = reader_of(folder)(*texts, return_tensors="pt", truncation=True, max_length=40)
        found: list[float] = classifier_of(folder)(**given).logits.softmax(-1)[0].tolist()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_text_and_two(tmp_path: Path, kind: str) -> None:
    """The rows, also where texts are cut; the probabilities; all the same from the exported folder
    and back."""
    run, _ = imported(tmp_path, kind)
    back, exported = there_and_back(run, tmp_path), tmp_path / "exported"
    for one, folder in ((run, tmp_path / "theirs"), (run, exported), (back, exported)):
        same_rows(one, folder)
    for texts in (("The animal",), ("The animal", "it was tired"), PAIRS[-2]):
        [answer] = answers(run, "\t".join(texts))
        for folder in (tmp_path / "theirs", exported):
            expected = probabilities(folder, texts)
            assert [answer["probabilities"][f"LABEL_{n}"] for n in (0, 1)] == pytest.approx(
                expected, abs=1e-5
            )
    pipeline = transformers.pipeline("text-classification", str(exported), top_k=None)
    found = {
        one["label"]: one["score"]
        for one in pipeline({"text": "The animal", "text_pair": "it was tired"})
    }
    [answer] = answers(run, "The animal\tit was tired")
    assert answer["probabilities"] == pytest.approx(found, abs=1e-5)


@pytest.mark.parametrize("architecture", ["BertForMultipleChoice", "BertForTokenClassification"])
def test_heads_of_choices_and_words(tmp_path: Path, architecture: str) -> None:
    run, model = imported(tmp_path, "xlm-roberta", architecture, id2label={0: "O", 1: "X"})
    reads = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        if architecture == "BertForMultipleChoice":
            choices = ["it was tired", "the street"]
            given = reads(["The animal"] * 2, choices, return_tensors="pt", padding=True)
            expected = (
                model(**{name: tensor[None] for name, tensor in given.items()})
                .logits.softmax(-1)[0]
                .tolist()
            )
            [answer] = answers(run, "\t".join(["The animal", *choices]))
            assert [answer["probabilities"][str(n)] for n in (0, 1)] == pytest.approx(
                expected, abs=1e-5
            )
        else:
            words = ["The", "animal", "was", "too", "tired"]
            given = reads(words, is_split_into_words=True, return_tensors="pt")
            tags = [
                model.config.id2label[number]
                for number in model(**given).logits[0].argmax(-1).tolist()
            ]
            expected = [tags[given.word_to_tokens(number).start] for number in range(len(words))]
            assert [word["tag"] for word in answers(run, " ".join(words))[0]["words"]] == expected


@pytest.mark.parametrize("context", ["The animal was too tired", " ".join([TEXTS[0]] * 3)])
def test_a_question_and_its_text(tmp_path: Path, context: str) -> None:
    """A long text is read through windows: its parts stand where they are looked for."""
    run, model = imported(tmp_path, "xlm-roberta", "BertForQuestionAnswering")
    [example] = run.task.answers.encode_inputs(
        None, run.task.inputs.typed_lines([f"Who was?\t{context}"])
    ).readable()
    ids, read = (
        run.tokenizers["text"].encode(context),
        run.task.encoding.windows(example.examples, example.row),
    )
    for window in read:
        assert (
            window.row.ids[window.first :][: window.stop - window.start]
            == ids[window.start : window.stop]
        )
        assert len(window.row.ids) <= 40
    if len(read) > 1:
        return
    reads = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    given = reads("Who was?", context, return_tensors="pt", return_offsets_mapping=True)
    spans = given.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        output = model(**given)
    places = [place for place, sequence in enumerate(given.sequence_ids(0)) if sequence == 1]
    _, first, last = max(
        (float(output.start_logits[0, i] + output.end_logits[0, j]), i, j)
        for i in places
        for j in places
        if i <= j
    )
    assert (
        answers(run, f"Who was?\t{context}")[0]["output"]
        == context[spans[first][0] : spans[last][1]].strip()
    )


TABLE = "a,b,label\n" + "".join(
    f"{first},{second},{n % 2}\n" for n, (first, second) in enumerate(PAIRS[:2] * 9)
)


def tuned(tmp_path: Path) -> Run:
    """A classifier of pairs, fine-tuned from an imported BERT under XLM-R's tokenizer."""
    imported(tmp_path, "xlm-roberta", "BertModel")
    file = write(tmp_path / "pairs.csv", TABLE)
    train = {"file": str(file), "first": "a", "second": "b", "label": "label"}
    data = {"train": train, "validation": train, "max_length": 40, "deduplicate": False}
    recipe = {
        "task": "classification",
        "data": data,
        "training": TRAINING | {"init": str(tmp_path / "run")},
    }
    return regard.train(recipe, out=tmp_path / "tuned", quiet=True)


def test_a_trained_run_and_its_export(tmp_path: Path) -> None:
    run, text = tuned(tmp_path), "The animal\tit was tired"
    regard.export_run(run, to="huggingface", out=tmp_path / "exported")
    [answer] = answers(run, text)
    expected = sorted(probabilities(tmp_path / "exported", PAIRS[0]), reverse=True)
    assert list(answer["probabilities"].values()) == pytest.approx(expected, abs=1e-5)


def test_next_sentences(tmp_path: Path) -> None:
    """Rows of the pre-training: the same as those of two texts."""
    run, _ = imported(tmp_path, "xlm-roberta", "BertForPreTraining")
    tokenizer, texts = (
        run.tokenizers["text"],
        [f"The animal {n}. It was. The street {n}. It did." for n in range(9)],
    )
    raw = raw_tokens(texts, tokenizer, sentences="punctuation")
    pairs, framing = (
        SentencePairs(raw, Masking(tokenizer, rate=1e-9), 24),
        Framing(tokenizer, True, 24),
    )
    batch, shown = pairs.batch(np.arange(len(pairs))), pairs.shown(0, 0)
    for row in range(len(pairs)):
        spans = [(shown.a_starts, shown.a_stops), (shown.b_starts, shown.b_stops)]
        first, second = (raw.values[start[row] : stop[row]].tolist() for start, stop in spans)
        ids, segments = framing.frame(first, second)
        read = batch.text.row(row)
        assert [b for a, b in zip(read, ids, strict=True) if a not in (b, tokenizer.mask)] == []
        assert batch.segments_BL[row, : len(ids)].tolist() == segments == [0] * len(ids)
        assert len(ids) == shown.lengths[row] <= 24
    assert max(shown.lengths) > 20
