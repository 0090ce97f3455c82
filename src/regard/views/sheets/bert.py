"""Sheets of what BERT reads: its input, and the sum of three embeddings."""

from __future__ import annotations

from dataclasses import replace

import tokenizers as library
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers
from torch.nn import functional as F

from regard.data.batches import Padded, real_positions
from regard.data.framing import Framing, labelled_batch
from regard.errors import RegardError
from regard.models.bert import BERTConfig, BERTEmbedding
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MASKING_NAMES, with_special
from regard.views.report import Cell, Section, Table, muted
from regard.views.sheets.sheet import Sheet, heat_map, number_table, set_weight

SUFFIX = "##ing"
LONGEST = 32
"""The most tokens of a row on a sheet."""
WIDTH = 4
SEGMENT_VECTORS = ((0, 0, 0, 0), (1, 0, 1, 0))


def small_vocabulary(*texts: str) -> Tokenizer:
    """A WordPiece vocabulary with BERT's special tokens and the words of these texts; a word in
    -ing is two pieces."""
    splitter = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(strip_accents=False)
    pieces = dict.fromkeys(MASKING_NAMES)
    for text in texts:
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)):
            stem = word.removesuffix("ing")
            pieces |= dict.fromkeys([stem, SUFFIX] if stem not in ("", word) else [word])
    numbered = {piece: number for number, piece in enumerate(pieces)}
    pipeline = library.Tokenizer(models.WordPiece(numbered, unk_token="[UNK]"))
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = splitter
    pipeline.decoder = decoders.WordPiece()
    return Tokenizer(with_special(pipeline, MASKING_NAMES))


def framing_of(tokenizer: Tokenizer, *texts: str) -> Framing:
    framing = Framing(tokenizer, segments=True, longest=LONGEST)
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    if not all(tokenizer.encode(text) for text in texts) or tokens > LONGEST - framing.special(2):
        raise RegardError(
            f"{tokens} tokens; a sheet is for texts that are not empty, of at most "
            f"{LONGEST - framing.special(2)} tokens together",
            where="sentence",
        )
    return framing


def bert_input(
    first: str = "I am looking for happiness", second: str = "Happiness is here"
) -> Sheet:
    """The input of BERT: tokens, ids, segments, and the attention mask that hides padding."""
    tokenizer = small_vocabulary(first, second)
    framing = framing_of(tokenizer, first, second)
    ids = [tokenizer.encode(text) for text in (first, second)]
    rows = [framing.frame(*ids), framing.frame(ids[0])]
    batch = labelled_batch([rows], torch.zeros(1), tokenizer.pad)
    width = batch.text.ids_BL.shape[1]
    mask_BL = real_positions(batch.text.lengths_B, width).int()
    steps = [
        Section(
            "The vocabulary",
            [
                Table(
                    ["id", "token"],
                    [*enumerate(tokenizer.tokens(range(tokenizer.size)))],
                    title="Special tokens come first",
                )
            ],
        )
    ]
    headings = ("A pair of texts: [CLS] A [SEP] B [SEP]", "A single text: [CLS] A [SEP]")
    inputs = []
    for heading, row_ids, segments, mask in zip(
        headings,
        batch.text.ids_BL.tolist(),
        batch.segments_BL.tolist(),
        mask_BL.tolist(),
        strict=True,
    ):
        cells = [
            [token, *(Cell(value, asked=True) for value in numbers)]
            for token, *numbers in zip(
                tokenizer.tokens(row_ids), row_ids, segments, range(width), mask, strict=True
            )
        ]
        columns = ["token", "id", "segment", "position", "attention mask"]
        steps.append(Section(heading, [Table(columns, cells, in_picture=True)]))
        inputs.append({"ids": row_ids, "segments": segments, "mask": mask})
    steps.append(
        Section(
            "",
            [
                muted(
                    "Both texts are in one batch, so the shorter one is padded. Where the mask is "
                    "0 no token may look, so padding changes no number."
                )
            ],
        )
    )
    numbers = {"tokens": tokenizer.tokens(rows[0].ids), "inputs": inputs}
    opening = "BERT reads four numbers for each token: its id, segment, position and mask."
    return Sheet("What BERT reads", opening, steps, numbers)


def _table_of_vectors(rows: int) -> torch.Tensor:
    """Small whole numbers, no row twice."""
    row_V1 = torch.arange(rows)[:, None]
    mixed_VD = row_V1 * torch.tensor([1, 2, 3, 5]) + row_V1 // 7 * torch.arange(WIDTH)
    return (mixed_VD % 7 - 3).float()


@torch.no_grad()
def embeddings(
    first: str = "my dog is cute", second: str = "he likes playing", position: int = 3
) -> Sheet:
    """BERT's embeddings: token, segment and position as one-hot rows of three tables, and their
    sum."""
    tokenizer = small_vocabulary(first, second)
    framing = framing_of(tokenizer, first, second)
    row = framing.frame(*(tokenizer.encode(text) for text in (first, second)))
    ids_L = torch.tensor(row.ids)
    segments_L = torch.tensor(row.segments)
    length = len(ids_L)
    if position >= length:
        raise RegardError(
            f"there are {length} tokens, at positions 0 to {length - 1}", where="position"
        )
    config = BERTConfig(width=WIDTH, heads=1, layers=1, max_positions=length, dropout=0.0)
    layer = BERTEmbedding(config, tokenizer.size).eval()
    tables = {
        "token": (layer.tokens, _table_of_vectors(tokenizer.size), ids_L),
        "segment": (layer.segments, torch.tensor(SEGMENT_VECTORS).float(), segments_L),
        "position": (
            layer.positions.learned,
            _table_of_vectors(length).flip(1),
            torch.arange(length),
        ),
    }
    one_hot = {}
    for name, (embedding, vectors, index_L) in tables.items():
        assert embedding is not None, "BERT has segments"
        set_weight(embedding, "weight", vectors)
        one_hot[name] = F.one_hot(index_L, len(vectors)).float()
    sum_LD = sum(one_hot[name] @ vectors for name, (_, vectors, _) in tables.items())
    assert isinstance(sum_LD, torch.Tensor)
    text = Padded.of(ids_L[None], torch.tensor([length]))
    output_LD = layer(text, segments_L[None])[0]
    tokens = tokenizer.tokens(row.ids)
    places = [str(place) for place in range(length)]
    names = {"token": tokenizer.tokens(range(tokenizer.size)), "segment": ["A", "B"]}
    parts = [
        heat_map(
            f"One-hot rows: {length} tokens, a {name} table of {matrix.shape[1]} rows",
            tokens,
            names.get(name, places),
            matrix.double().numpy(),
        )
        for name, matrix in one_hot.items()
    ]
    own = {name: matrix[position] for name, matrix in one_hot.items()}
    picked = torch.stack([own[name] @ vectors for name, (_, vectors, _) in tables.items()])
    columns = ["", *(f"e{n}" for n in range(1, WIDTH + 1))]
    lookups = [
        number_table(
            f"The {name} table, and the one-hot row that picks from it",
            ["", "one-hot", *columns[1:]],
            names.get(name, places),
            torch.cat([own[name][:, None], vectors], dim=1),
        )
        for name, (_, vectors, _) in tables.items()
    ]
    steps = [
        Section(
            f"Position {position} of {length}: the token {tokens[position]}",
            [_with_asked_column(table, 1) for table in lookups],
        ),
        Section(
            "The sum of three rows, and LayerNorm",
            [
                number_table(
                    "one-hot row x table, for each table",
                    columns,
                    [*tables],
                    picked,
                    asked=[0, 1, 2],
                    ours=True,
                ),
                number_table(
                    "What the first layer of BERT reads",
                    columns,
                    ["sum", "LayerNorm"],
                    torch.stack([sum_LD[position], output_LD[position]]),
                    asked=[0, 1],
                    ours=True,
                ),
                muted("A product with a one-hot row picks a row: embeddings are looked up."),
            ],
        ),
        Section("All positions at once", parts),
    ]
    numbers = {
        "tokens": tokens,
        "segments": row.segments,
        "rows": picked.tolist(),
        "sum": sum_LD.tolist(),
        "output": output_LD.tolist(),
    }
    opening = "token + segment + position: three tables, of which each token picks a row."
    return Sheet("The embeddings of BERT", opening, steps, numbers)


def _with_asked_column(table: Table, column: int) -> Table:
    rows = [
        [replace(cell, asked=place == column) for place, cell in enumerate(row)]
        for row in table.cells
    ]
    return replace(table, rows=rows)
