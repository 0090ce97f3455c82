"""Sheet of special tokens: which there are, who uses them, and how a decoder reads and predicts
them."""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import pad_sequence

from regard.data.batches import Padded
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING_NAMES, SPECIAL_NAMES
from regard.views.report import Cell, Section, Table, muted
from regard.views.sheets.sheet import Sheet

PURPOSES = (
    (
        "<s>",
        "<sos>, <go>, <start>, <bos>",
        "RNN, Transformer",
        "what a decoder reads before its first word",
    ),
    ("</s>", "<eos>, <end>", "RNN, Transformer, GPT", "the end: the decoder predicts it and stops"),
    ("<pad>", "[PAD]", "all models", "fills short rows of a batch; attention and loss skip it"),
    ("<unk>", "[UNK], OOV", "all models", "a word that the vocabulary does not know"),
    ("[CLS]", "<s>", "BERT", "first token; its vector represents the whole text"),
    ("[SEP]", "</s>", "BERT", "ends each of the two texts"),
    ("[MASK]", "<mask>", "BERT", "stands where a word is to be predicted"),
)
"""Each token, its names elsewhere, the models that use it, and what for."""


def special_tokens(sentence: str = "je suis étudiant", other: str = "merci") -> Sheet:
    """Special tokens: <sos>, <eos>, <go>, <pad>, [CLS], [SEP], [MASK]; who uses which, and what a
    decoder reads."""
    config = TokenizerConfig(kind="word", vocabulary=100)
    tokenizer = Tokenizer.train(config, [sentence, other])
    rows = [[tokenizer.begin, *tokenizer.encode(text), tokenizer.end] for text in (sentence, other)]
    ids_BT = pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=tokenizer.pad
    )
    target = Padded.of(ids_BT, torch.tensor([len(row) for row in rows]))
    read = [tokenizer.tokens(row) for row in target.inputs.ids_BL.tolist()]
    predicted = [tokenizer.tokens(row) for row in ids_BT[:, 1:].tolist()]
    names = [
        name for number in (1, 2) for name in (f"text {number}: read", f"text {number}: to predict")
    ]
    lines = [line for pair in zip(read, predicted, strict=True) for line in pair]
    shift = [
        [Cell(name, ours=True), *(Cell(token.lstrip("▁"), asked=True) for token in line)]
        for name, line in zip(names, lines, strict=True)
    ]
    steps = [
        Section(
            "Who uses which",
            [
                Table(
                    ["here", "elsewhere", "models", "what for"],
                    [
                        [own, others, Cell(models, ours=True), Cell(purpose, ours=True, asked=True)]
                        for own, others, models, purpose in PURPOSES
                    ],
                    in_picture=True,
                )
            ],
        ),
        Section(
            "What a decoder reads, and what it has to predict",
            [
                Table(
                    ["", *map(str, range(1, len(read[0]) + 1))],
                    shift,
                    title="Two sentences in one batch: the same words, shifted by one step",
                    in_picture=True,
                ),
                muted(
                    "<s> is never predicted, and </s> is the last word to predict. The shorter "
                    "row still reads its </s>, but there is nothing left to predict: its loss is "
                    "not counted."
                ),
            ],
        ),
        Section(
            "Ids in the vocabularies that regard trains",
            [
                Table(
                    ["id", "translation and others", "masked language model"],
                    [
                        [
                            number,
                            *(
                                tokens[number] if number < len(tokens) else ""
                                for tokens in (SPECIAL_NAMES, MASKING_NAMES)
                            ),
                        ]
                        for number in range(len(MASKING_NAMES))
                    ],
                    in_picture=True,
                )
            ],
        ),
    ]
    numbers = {"read": read, "predicted": predicted, "ids": ids_BT.tolist()}
    opening = "Tokens that no one types: the pipeline adds them."
    return Sheet("Special tokens", opening, steps, numbers)
