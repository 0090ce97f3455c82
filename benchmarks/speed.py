"""Training and decoding speed beside peers, in one run on one machine: ratios of real tokens per
second.

    python benchmarks/speed.py [--device cuda|cpu] [--repeats 5] [--vocabulary 32000]
        [--only transformer bert gpt bahdanau luong decoding sentence workers inference]

Everybody trains on the same sentences. The peers get them as their best users would: in batches
bucketed by length, with a fused optimiser, in bf16 on a GPU, eager and compiled. `regard` runs what
`regard train` runs: filled batches and compiled code, or bucketed batches where a model does not
pack. Each side is timed `--repeats` times in turn and the medians are compared. The share of the
ceiling is the share of the speed of a large matrix product.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import AnyBatch, Batch, MaskedBatch, Padded, TextBatch
from regard.data.epochs import Rows, SizedExamples, plan, row_sizes
from regard.engine.graphs import CapturedLoss
from regard.engine.half_weights import HalfWeights
from regard.engine.machine import keep_memory
from regard.engine.shapes import pack, with_rounded_shapes
from regard.models import MODELS
from regard.models.bahdanau import BahdanauConfig
from regard.models.bert import BERT, BERTConfig
from regard.models.gpt import GPTConfig
from regard.models.luong import LuongConfig
from regard.models.transformer import TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.objectives.language_model import MaskedTokens, NextToken
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.tasks.reading import by_length, read_tokens
from regard.tasks.written import decode_tokens
from regard.text.spelling import ids_of
from regard.text.vocabularies import BEGIN, END, PAD, UNK
from regard.training.compiling import compile_options

VOCABULARY = 32_000
own: Any = None
"""The model of a worker process."""
translator: Any = None
"""The translator of a process of CTranslate2."""
CTRANSLATE2_ROWS = 32
"""Maximum number of sentences per batch of CTranslate2, which sorts them by length."""
Job = Callable[[], Any]
Loss = Callable[[Any], Tensor]
Row = tuple[str, float, float | None]
"""Name, tokens per second, and floating-point operations per second if known."""


# ------------------------------------------------------------------------------------------------- the sentences


class Lengths(SizedExamples):
    """Only the lengths of some sentences: all that the planner needs to know."""

    lengths = np.zeros(0, dtype=np.int32)
    length_differences: Any = None
    masked_share = 0.15

    def __init__(self, first: Tensor, second: Tensor | None = None) -> None:
        self.lengths = (first if second is None else torch.maximum(first, second)).int().numpy()
        self.length_differences = None if second is None else (first - second).int().numpy()
        self.corpora = np.zeros(len(first), dtype=np.int16)
        self.weights = (1.0,)


def drawn(
    count: int,
    generator: torch.Generator,
    mean: float = 3.15,
    spread: float = 0.55,
    most: int = 128,
) -> Tensor:
    """Log-normal lengths as in real corpora, from 4 tokens on; mean 27 with the defaults."""
    return torch.clamp(
        torch.exp(torch.randn(count, generator=generator) * spread + mean).long(), 4, most
    )


def ids(lengths_B: Tensor, generator: torch.Generator, *, begins: bool = False) -> Padded:
    ids_BL = torch.randint(
        5, VOCABULARY, (len(lengths_B), int(lengths_B.max())), generator=generator
    )
    place_L = torch.arange(ids_BL.shape[1])
    ids_BL[place_L >= lengths_B[:, None]] = PAD
    ids_BL[place_L == lengths_B[:, None] - 1] = END
    if begins:
        ids_BL[:, 0] = BEGIN
    return Padded.of(ids_BL, lengths_B)


@dataclass
class Sentences:
    """Sentences, batched by regard and by its peer."""

    make: Callable[[Rows, torch.Generator], AnyBatch]
    lengths: Lengths
    tokens: int
    """The token budget of a batch."""
    count: int
    """Number of batches to train on."""

    def bucketed(self, device: str) -> list[Any]:
        """Batches by length, in random order, as in every toolkit."""
        planned = plan(self.lengths, self.tokens, 1, 0)[: self.count]
        return [
            self.make(rows, torch.Generator().manual_seed(n)).to(device)
            for n, rows in enumerate(planned)
        ]

    def filled(self, device: str) -> list[Any]:
        planned = plan(self.lengths, self.tokens, 1, 0, fill=True)[: self.count]
        sizes = row_sizes(self.lengths, self.tokens)
        made = (self.make(rows, torch.Generator().manual_seed(n)) for n, rows in enumerate(planned))
        return [pack(batch, sizes).to(device) for batch in made]


def pairs(tokens: int, count: int) -> Sentences:
    generator = torch.Generator().manual_seed(1)
    target = drawn(200 * count * tokens // 4096, generator)
    noise = 1 + 0.15 * torch.randn(len(target), generator=generator)
    source = torch.clamp((target * noise).long(), 4, 128)

    def make(rows: Rows, generator: torch.Generator) -> Batch:
        t = ids(target[rows] + 1, generator, begins=True)
        return Batch(ids(source[rows], generator), t, tokens=int(target[rows].sum()))

    return Sentences(make, Lengths(source, target), tokens, count)


def masked(tokens: int, count: int) -> Sentences:
    lengths = drawn(100 * count * tokens // 4096, torch.Generator().manual_seed(3), 3.6, 0.6)

    def make(rows: Rows, generator: torch.Generator) -> MaskedBatch:
        text = ids(lengths[rows], generator)
        real_BL = seen(text)
        hidden_BL = (torch.rand(real_BL.shape, generator=generator) < 0.15) & real_BL
        places_P = hidden_BL.flatten().nonzero()[:, 0]
        read = replace(text, ids_BL=text.ids_BL.masked_fill(hidden_BL, 4))
        labels_P = text.ids_BL.flatten()[places_P]
        return MaskedBatch(
            read, torch.zeros_like(text.ids_BL), places_P, labels_P, tokens=int(lengths[rows].sum())
        )

    return Sentences(make, Lengths(lengths), tokens, count)


def blocks(tokens: int, count: int, length: int) -> Sentences:
    lengths = torch.full((count * tokens // length,), length)

    def make(rows: Rows, generator: torch.Generator) -> TextBatch:
        return TextBatch(ids(lengths[rows] + 1, generator), tokens=int(lengths[rows].sum()))

    return Sentences(make, Lengths(lengths), tokens, count)


# ------------------------------------------------------------------------------------------------- timing


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def clock(job: Job, device: str) -> float:
    synchronise(device)
    started = time.perf_counter()
    job()
    synchronise(device)
    return time.perf_counter() - started


def race(jobs: dict[str, tuple[Job, int]], device: str, repeats: int) -> dict[str, float]:
    """Tokens per second of each (a job and its tokens); all are warmed up, then run in turn."""
    for name, (job, _) in jobs.items():
        seconds = [clock(job, device), clock(job, device)]
        print(f"    {name}: first {seconds[0]:.1f} s, then {seconds[1]:.2f} s", flush=True)
    times = [{name: clock(job, device) for name, (job, _) in jobs.items()} for _ in range(repeats)]
    return {
        name: tokens / statistics.median(t[name] for t in times)
        for name, (_, tokens) in jobs.items()
    }


def ceiling(device: str) -> float:
    """Floating-point operations per second of a large matrix product."""
    size, count = (8192, 20) if device == "cuda" else (2048, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    for _ in range(3):
        a @ b
    return count * 2 * size**3 / clock(lambda: [a @ b for _ in range(count)], device)


def training(
    model: nn.Module,
    loss: Callable[[Any], Tensor],
    made: Sequence[Any],
    device: str,
    *,
    adds: bool = False,
) -> tuple[Job, int]:
    """One epoch over the batches (forward, backward, clip, update, in bf16 on a GPU), and its
    tokens. `adds`: to gradients that stay where they are, as CUDA graphs of many shapes do."""
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    captures = isinstance(loss, CapturedLoss)

    def backward(batch: Any) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            total = loss(batch.unnamed())
        (total / batch.tokens).backward()

    def epoch() -> None:
        for batch in made:
            if captures:
                loss(batch, 1 / batch.tokens)  # type: ignore[call-arg]
            else:
                backward(batch)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=not adds)

    return epoch, sum(batch.tokens for batch in made)


def compiled(objective: nn.Module, made: Sequence[Any], device: str) -> tuple[Job, int]:
    """The step of `regard train` with filled batches in a long training: compiled, as a CUDA
    graph."""
    objective.compile(dynamic=False, options=compile_options(objective))
    return captured(objective, made, device, nullcontext)


def captured(
    objective: nn.Module,
    made: Sequence[Any],
    device: str,
    around: Callable[[], Any] | None = None,
    adds: bool = False,
) -> tuple[Job, int]:
    """The step of `regard train` in a short training: eager, as a CUDA graph."""
    objective.to(device).train()
    weights = around or HalfWeights(objective, torch.bfloat16).in_place

    def loss(batch: Any, factor: float | Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16), weights():
            sums_2: Tensor = objective(batch.unnamed())
        (sums_2[0] * factor).backward()
        return sums_2.detach()

    captures = CapturedLoss(loss, objective.parameters())
    return training(objective, captures, made, device, adds=adds)  # type: ignore[arg-type]


def eager(objective: nn.Module, made: Sequence[Any], device: str) -> tuple[Job, int]:
    objective.to(device).train()
    halves = HalfWeights(objective, torch.bfloat16)

    def loss(batch: Any) -> Tensor:
        with halves.in_place() if device == "cuda" else nullcontext():
            total: Tensor = objective(batch)[0]
        return total

    return training(objective, loss, made, device)


def packed_and_bucketed(
    make: Callable[[], nn.Module], data: Sentences, device: str
) -> dict[str, tuple[Job, int]]:
    """The step of `regard train` with a model that packs; on a GPU also eager, on the peers'
    batches."""
    if device == "cpu":
        return {"regard": eager(make(), data.bucketed(device), device)}
    return {
        "regard": compiled(make(), data.filled(device), device),
        "regard, bucketed": eager(make(), data.bucketed(device), device),
    }


# ------------------------------------------------------------------------------------------------- the peers


def seen(tokens: Padded) -> Tensor:
    return (
        torch.arange(tokens.ids_BL.shape[1], device=tokens.ids_BL.device)
        < tokens.lengths_B[:, None]
    )


def marian(config: TransformerConfig) -> Any:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=config.width,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.feed_forward,
            decoder_ffn_dim=config.feed_forward,
            dropout=config.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            max_position_embeddings=256,
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BEGIN,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
            forced_eos_token_id=None,
        )
    )


def smoothed(logits: Tensor, batch: Batch) -> Tensor:
    """Label-smoothed cross-entropy over all positions, ignoring padding, as in most training
    scripts."""
    labels = batch.target.ids_BL[:, 1:].masked_fill(~seen(batch.target)[:, 1:], -100)
    return F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1, reduction="sum"
    )


def of_marian(model: Any) -> Loss:
    def loss(batch: Batch) -> Tensor:
        out = model(
            input_ids=batch.source.ids_BL,
            attention_mask=seen(batch.source).long(),
            decoder_input_ids=batch.target.ids_BL[:, :-1],
            use_cache=False,
        )
        return smoothed(out.logits, batch)

    return loss


def of_bert(model: Any) -> Loss:
    def loss(batch: MaskedBatch) -> Tensor:
        labels = torch.full_like(batch.text.ids_BL, -100).flatten()
        labels = labels.index_copy(0, batch.places_P, batch.labels_P).view_as(batch.text.ids_BL)
        result = model(
            input_ids=batch.text.ids_BL, attention_mask=seen(batch.text).long(), labels=labels
        )
        return result.loss * len(batch.places_P)

    return loss


def of_gpt(model: Any) -> Loss:
    def loss(batch: TextBatch) -> Tensor:
        logits = model(input_ids=batch.text.ids_BL[:, :-1], use_cache=False).logits
        return F.cross_entropy(
            logits.flatten(0, 1), batch.text.ids_BL[:, 1:].flatten(), reduction="sum"
        )

    return loss


def eager_and_compiled(
    name: str,
    make: Callable[[], Any],
    loss: Callable[[Any], Loss],
    made: Sequence[Any],
    device: str,
) -> dict[str, tuple[Job, int]]:
    """The peer in both ways; its compiled forward pass takes shapes as they come."""
    plain = make().to(device).train()
    fast = make().to(device).train()
    jobs = {f"{name}, eager": training(plain, loss(plain), made, device)}
    dynamic = None if len({str(b.shapes()) for b in made}) == 1 else True
    fast.forward = torch.compile(fast.forward, dynamic=dynamic, options=compile_options(fast))
    return jobs | {f"{name}, compiled": training(fast, loss(fast), made, device)}


class UsualLoop(nn.Module):
    """The recurrent decoder as it is usually written: everything but keys and readout inside a loop
    over time."""

    def __init__(self, width: int, embedding: int, *, additive: bool, dropout: float) -> None:
        super().__init__()
        self.additive = additive
        self.source = nn.Embedding(VOCABULARY, embedding)
        self.target = nn.Embedding(VOCABULARY, embedding)
        self.encoder = nn.LSTM(embedding, width, batch_first=True, bidirectional=True)
        self.h0 = nn.Linear(2 * width, width)
        self.c0 = nn.Linear(2 * width, width)
        self.keys = nn.Linear(2 * width, width)
        self.query = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)
        self.cell = nn.LSTMCell(embedding + (2 * width if additive else 0), width)
        self.combine = nn.Linear(3 * width + (embedding if additive else 0), embedding)
        self.out = nn.Linear(embedding, VOCABULARY)
        self.dropout = nn.Dropout(dropout)

    def look(self, h: Tensor, keys: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        if self.additive:
            scores = self.v(torch.tanh(self.query(h)[:, None] + keys)).squeeze(-1)
        else:
            scores = (keys @ h[..., None]).squeeze(-1)
        alpha = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return (alpha[:, None] @ memory).squeeze(1)

    def forward(self, batch: Batch) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.source(batch.source.ids_BL)),
            batch.source.host_lengths_B,
            batch_first=True,
            enforce_sorted=False,
        )
        memory, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True)
        keys = self.keys(memory)
        visible = seen(batch.source)
        h = torch.tanh(self.h0(torch.cat([*h], -1)))
        c = torch.tanh(self.c0(torch.cat([*c], -1)))
        outputs = []
        for t in range(batch.target.ids_BL.shape[1] - 1):
            y = self.dropout(self.target(batch.target.ids_BL[:, t]))
            if self.additive:
                context = self.look(h, keys, memory, visible)
                h, c = self.cell(torch.cat([y, context], -1), (h, c))
                outputs.append(self.combine(torch.cat([h, y, context], -1)))
            else:
                h, c = self.cell(y, (h, c))
                outputs.append(
                    torch.tanh(
                        self.combine(torch.cat([self.look(h, keys, memory, visible), h], -1))
                    )
                )
        logits: Tensor = self.out(self.dropout(torch.stack(outputs, 1)))
        return logits


# ------------------------------------------------------------------------------------------------- the races


def transformer_race(device: str, repeats: int) -> Iterator[Row]:
    gpu = device == "cuda"
    config = TransformerConfig(preset="base" if gpu else "tiny", tie="all")
    data = pairs(24_576 if gpu else 2_048, 16 if gpu else 4)
    width = config.width
    ff = config.feed_forward

    def objective() -> nn.Module:
        return TokenCrossEntropy(
            MODELS[config.kind].build(config, VOCABULARY, VOCABULARY), smoothing=0.1
        )

    jobs = packed_and_bucketed(objective, data, device)
    if gpu:
        jobs["regard, CUDA graph"] = captured(objective(), data.filled(device), device)
    jobs |= eager_and_compiled(
        "Marian", lambda: marian(config), of_marian, data.bucketed(device), device
    )
    encoder = 4 * width**2 + 2 * width * ff
    decoder = 8 * width**2 + 2 * width * ff
    weights = config.encoder_layers * encoder + config.decoder_layers * decoder + VOCABULARY * width
    yield from rows_of(jobs, device, repeats, 6 * weights)


def bert_race(device: str, repeats: int) -> Iterator[Row]:
    from transformers import BertConfig, BertForMaskedLM

    gpu = device == "cuda"
    config = BERTConfig(preset="base" if gpu else "tiny", next_sentence=False)
    data = masked(24_576 if gpu else 2_048, 16 if gpu else 4)
    width = config.width
    ff = config.feed_forward

    def peer() -> Any:
        return BertForMaskedLM(
            BertConfig(
                vocab_size=VOCABULARY,
                hidden_size=width,
                num_hidden_layers=config.layers,
                intermediate_size=ff,
                num_attention_heads=config.heads,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=config.attention_dropout,
                pad_token_id=PAD,
            )
        )

    jobs = packed_and_bucketed(
        lambda: MaskedTokens(MODELS[config.kind].build(config, VOCABULARY)), data, device
    )
    jobs |= eager_and_compiled("BertForMaskedLM", peer, of_bert, data.bucketed(device), device)
    weights = config.layers * (4 * width**2 + 2 * width * ff) + 0.15 * VOCABULARY * width
    yield from rows_of(jobs, device, repeats, 6 * weights)


def gpt_race(device: str, repeats: int) -> Iterator[Row]:
    from transformers import GPT2Config, GPT2LMHeadModel

    gpu = device == "cuda"
    config = GPTConfig(preset="base" if gpu else "tiny", norm="pre", max_positions=512)
    data = blocks(24_576 if gpu else 2_048, 16 if gpu else 4, 512 if gpu else 128)
    width = config.width
    ff = config.feed_forward

    def peer() -> Any:
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY,
                n_positions=512,
                n_embd=width,
                n_layer=config.layers,
                n_head=config.heads,
                n_inner=ff,
                resid_pdrop=config.dropout,
                embd_pdrop=config.dropout,
                attn_pdrop=0.0,
            )
        )

    jobs = packed_and_bucketed(
        lambda: NextToken(MODELS[config.kind].build(config, VOCABULARY)), data, device
    )
    jobs |= eager_and_compiled("GPT-2", peer, of_gpt, data.bucketed(device), device)
    weights = config.layers * (4 * width**2 + 2 * width * ff) + VOCABULARY * width
    yield from rows_of(jobs, device, repeats, 6 * weights)


def recurrent_race(kind: str, device: str, repeats: int) -> Iterator[Row]:
    width, embedding, additive = (
        (512, 512, kind == "bahdanau") if device == "cuda" else (128, 64, kind == "bahdanau")
    )
    common = {
        "hidden": width,
        "embedding": embedding,
        "attention": width,
        "bidirectional": True,
        "cell": "lstm",
    }
    config = BahdanauConfig(**common) if additive else LuongConfig(**common, input_feeding=False)  # type: ignore[arg-type]
    made = pairs(24_576 if device == "cuda" else 2_048, 8 if device == "cuda" else 2).bucketed(
        device
    )
    loop = UsualLoop(width, embedding, additive=additive, dropout=config.dropout).to(device).train()
    ours = TokenCrossEntropy(
        MODELS[config.kind].build(config, VOCABULARY, VOCABULARY), smoothing=0.1
    )
    if device == "cuda" and config.loops:
        rounded = [with_rounded_shapes(batch.to("cpu")).to(device) for batch in made]
        again = TokenCrossEntropy(
            MODELS[config.kind].build(config, VOCABULARY, VOCABULARY), smoothing=0.1
        )
        jobs = {
            "regard": captured(ours, rounded, device, adds=True),
            "regard, eager": eager(again, made, device),
        }
    else:
        jobs = {"regard": eager(ours, made, device)}
    jobs |= {"usual loop": training(loop, lambda batch: smoothed(loop(batch), batch), made, device)}
    yield from rows_of(jobs, device, repeats)


def decoding_race(rows: int, device: str, repeats: int, *, workers: bool = False) -> Iterator[Row]:
    """All tools write exactly `length` tokens for each source, with random weights of the same size
    and precision. On a CPU all get the sentences sorted by length: `regard` as `predict` cuts them,
    `generate` in batches of 32. `workers`: a process a core, as `predict --out` has them, beside as
    many workers of CTranslate2."""
    gpu = device == "cuda"
    config = TransformerConfig(preset="base", tie="all")
    dtype = torch.bfloat16 if gpu else torch.float32
    model = MODELS[config.kind].build(config, VOCABULARY, VOCABULARY).to(device, dtype).eval()
    peer = marian(config).to(device, dtype).eval()
    length = 64 if gpu else 32
    generator = torch.Generator().manual_seed(1)
    source = ids(drawn(rows, generator), generator)
    for beam in (1, 4):
        settings = SearchConfig(beam=beam, min_length=length, max_length=length)
        asked = {
            "num_beams": beam,
            "do_sample": False,
            "min_new_tokens": length,
            "max_new_tokens": length,
        }
        tokens = decode_tokens(settings, torch.device(device))
        ours = (
            [source]
            if gpu
            else [part(source, rows) for rows in by_length(source.host_lengths_B.tolist(), tokens)]
        )
        theirs = (
            [source]
            if gpu
            else [part(source, rows) for rows in source.host_lengths_B.argsort().split(32)]
        )
        jobs: dict[str, Job]
        if workers:
            jobs = {"regard": in_workers(model, ours, settings)}
        else:
            jobs = {"regard": partial(searched, model, ours, settings, device)}
            jobs["generate"] = partial(generated, peer, theirs, asked, device)
        if not gpu:
            jobs |= {
                f"CTranslate2, {kind}": ctranslate2(model, config, source, asked, kind)
                for kind in ("float32", "int8")
            }
        print(f"  {rows} x {length}, beam {beam}")
        yield from rows_of(
            {name: (job, rows * length) for name, job in jobs.items()}, device, repeats
        )


def inference_race(device: str, repeats: int) -> Iterator[Row]:
    """States of 256 texts of mixed lengths by a BERT of MiniLM's size; `regard` batches them as
    `predict` does."""
    from transformers import BertConfig, BertModel

    config = BERTConfig(layers=6, width=384, heads=12, feed_forward=1536, next_sentence=False)
    model = MODELS[config.kind].build(config, VOCABULARY).to(device).eval()
    peer = (
        BertModel(
            BertConfig(
                vocab_size=VOCABULARY,
                hidden_size=384,
                num_hidden_layers=6,
                intermediate_size=1536,
                num_attention_heads=12,
                pad_token_id=PAD,
            ),
            add_pooling_layer=False,
        )
        .to(device)
        .eval()
    )
    generator = torch.Generator().manual_seed(3)
    text = ids(drawn(256, generator, 3.6, 0.6), generator)
    lengths_B = text.host_lengths_B
    batches = {
        "regard": [part(text, rows) for rows in by_length(lengths_B.tolist(), read_tokens(model))],
        "BertModel, random order": [part(text, rows) for rows in torch.arange(256).split(32)],
        "BertModel, by length": [part(text, rows) for rows in lengths_B.argsort().split(32)],
    }
    jobs = {
        name: (
            partial(read, model if name == "regard" else peer, made, device),
            int(lengths_B.sum()),
        )
        for name, made in batches.items()
    }
    yield from rows_of(jobs, device, repeats)


@torch.inference_mode()
def read(model: Any, batches: Sequence[Padded], device: str) -> None:
    for text in (batch.to(device) for batch in batches):
        if isinstance(model, BERT):
            none = text.lengths_B[:0]
            model(MaskedBatch(text, torch.zeros_like(text.ids_BL), none, none))
        else:
            model(input_ids=text.ids_BL, attention_mask=seen(text).long())


def part(source: Padded, rows: Sequence[int] | Tensor) -> Padded:
    lengths_B = source.lengths_B[rows]
    return Padded.of(source.ids_BL[rows, : int(lengths_B.max())], lengths_B)


def searched(model: Any, batches: Sequence[Padded], settings: SearchConfig, device: str) -> None:
    for batch in batches:
        search(model, batch.to(device), settings)


def in_workers(model: Any, batches: Sequence[Padded], settings: SearchConfig) -> Job:
    """`searched` by one process per core, as in `predict --out`."""
    pool = ProcessPoolExecutor(
        torch.get_num_threads(), get_context("spawn"), start_worker, (model,)
    )
    return lambda: [*pool.map(work, batches, [settings] * len(batches))]


def start_worker(model: Any) -> None:
    global own
    torch.set_num_threads(1)
    keep_memory()
    own = model


def work(batch: Padded, settings: SearchConfig) -> None:
    search(own, batch, settings)


def generated(peer: Any, batches: Sequence[Padded], asked: dict[str, Any], device: str) -> None:
    for batch in batches:
        peer.generate(
            input_ids=batch.ids_BL.to(device), attention_mask=seen(batch).long().to(device), **asked
        )


def ctranslate2(
    model: Any, config: TransformerConfig, source: Padded, asked: dict[str, Any], kind: str
) -> Job:
    """The output of `regard export --to ctranslate2`, run as its best user would: sorted batches,
    one worker per core. In a process of its own: once the library is loaded, torch decodes a
    sentence at half its speed."""
    import ctranslate2 as library

    from regard.exchange.ctranslate2 import _fill_spec

    vocabulary = SimpleNamespace(
        size=VOCABULARY,
        unk=UNK,
        begin=BEGIN,
        end=END,
        tokens=lambda ids: [f"t{number}" for number in ids],
    )
    run = SimpleNamespace(
        recipe=SimpleNamespace(model=config),
        load_model=lambda _: model,
        tokenizers=defaultdict(lambda: vocabulary),
    )
    spec = _fill_spec(library.specs, run, "best")  # type: ignore[arg-type]
    threads = torch.get_num_threads()
    rows = len(source)
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        workers = {"inter_threads": min(rows, threads), "intra_threads": 1 if rows > 1 else threads}
        child = ProcessPoolExecutor(
            1, get_context("spawn"), load_translator, (folder, kind, workers)
        )
        child.submit(bool).result()  # so it has read the folder
    length = asked["max_new_tokens"]
    texts = [vocabulary.tokens(ids_of(source.row(number)[:-1])) for number in range(rows)]
    options = {
        "beam_size": asked["num_beams"],
        "min_decoding_length": length,
        "max_decoding_length": length,
        "max_batch_size": CTRANSLATE2_ROWS,
    }
    return lambda: child.submit(translate, texts, options).result()


def load_translator(folder: str, kind: str, workers: dict[str, int]) -> None:
    import ctranslate2 as library

    global translator
    translator = library.Translator(folder, device="cpu", compute_type=kind, **workers)


def translate(texts: list[list[str]], options: dict[str, Any]) -> int:
    return len(translator.translate_batch(texts, **options))


def rows_of(
    jobs: dict[str, tuple[Job, int]], device: str, repeats: int, flops_a_token: float | None = None
) -> Iterator[Row]:
    for name, speed in race(jobs, device, repeats).items():
        yield name, speed, None if flops_a_token is None else speed * flops_a_token


def main() -> None:
    global VOCABULARY
    races: dict[str, Callable[[str, int], Iterator[Row]]] = {
        "transformer": transformer_race,
        "bert": bert_race,
        "gpt": gpt_race,
        "bahdanau": lambda device, repeats: recurrent_race("bahdanau", device, repeats),
        "luong": lambda device, repeats: recurrent_race("luong", device, repeats),
        "decoding": lambda device, repeats: decoding_race(
            128 if device == "cuda" else 64, device, repeats
        ),
        "sentence": lambda device, repeats: decoding_race(1, device, repeats),
        "workers": lambda device, repeats: decoding_race(512, "cpu", repeats, workers=True),
        "inference": inference_race,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--only", nargs="*", default=[*races], choices=[*races])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    options = parser.parse_args()
    VOCABULARY = options.vocabulary
    torch.set_float32_matmul_precision("high" if options.device == "cuda" else "highest")
    # else a compiled peer falls back to eager code after eight shapes
    torch._dynamo.config.recompile_limit = 64
    most = ceiling(options.device)
    print(f"ceiling {most / 1e12:.1f} TFLOP/s, torch {torch.__version__}", flush=True)
    for name in options.only:
        print(f"{name}", flush=True)
        ours = 0.0
        for who, speed, flops in races[name](options.device, options.repeats):
            ours = speed if who == "regard" else ours
            share = "" if flops is None else f" | {flops / most:.1%}"
            print(f"| {name} | {who} | {speed:,.0f} | {ours / speed:.2f}{share} |", flush=True)
        if options.device == "cuda":
            torch._dynamo.reset()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
