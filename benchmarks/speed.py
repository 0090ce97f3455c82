"""Training and decoding speed beside peers, in one run on one machine: ratios of real target tokens per second.

    python benchmarks/speed.py [--device cuda|cpu] [--only transformer bahdanau luong decoding] [--repeats 5]

Peers: `transformers`' Marian model of the same size in eager mode (training on the same padded batches; `generate`),
and for recurrent models the usual Python loop over time, written out below. Each side is timed `--repeats` times in
turn and the medians are compared. Batches are random sentences of mixed length, mean 27.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch, Tokens
from regard.models import build_model
from regard.models.bahdanau import BahdanauConfig
from regard.models.luong import LuongConfig
from regard.models.transformer import TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.text.vocabularies import BEGIN, END, PAD
from regard.training.optimiser import HalfWeights

VOCABULARY = 32_000
Job = Callable[[], Any]


def sentences(tokens: int, generator: torch.Generator) -> Tensor:
    """Lengths of mean 27 until their sum is `tokens`: gamma-like, as in real corpora, from 2 to 100."""
    lengths: list[int] = []
    while sum(lengths) < tokens:
        draws = torch.empty(3).exponential_(1 / 8.6, generator=generator)
        lengths.append(int(draws.sum().clamp(1, 99)) + 1)
    return torch.tensor(lengths)


def padded(lengths_B: Tensor, generator: torch.Generator, *, begins: bool) -> Tokens:
    ids_BL = torch.randint(4, VOCABULARY, (len(lengths_B), int(lengths_B.max())), generator=generator)
    place_L = torch.arange(ids_BL.shape[1])
    ids_BL[place_L >= lengths_B[:, None]] = PAD
    ids_BL[place_L == lengths_B[:, None] - 1] = END
    if begins:
        ids_BL[:, 0] = BEGIN
    return Tokens.of(ids_BL, lengths_B)


def batches(tokens: int, count: int, device: str) -> list[Batch]:
    """Batches of about `tokens` target tokens; a source is within a fifth of its target's length."""
    generator, made = torch.Generator().manual_seed(1), []
    for _ in range(count):
        target_B = sentences(tokens, generator) + 1
        source_B = (target_B * torch.empty(len(target_B)).uniform_(0.8, 1.2, generator=generator)).long().clamp(2, 100)
        source = padded(source_B, generator, begins=False)
        target = padded(target_B, generator, begins=True)
        made.append(Batch(source, target, tokens=int((target_B - 1).sum())).to(device))
    return made


def clock(job: Job, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    job()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def race(work: float, ours: Job, peer: Job, device: str, repeats: int) -> tuple[float, float, float]:
    """Work per second of both, and the ratio of the medians; both are warmed up, then run in turn."""
    for job in (ours, peer):
        job()
    times = [(clock(ours, device), clock(peer, device)) for _ in range(repeats)]
    mine, theirs = (statistics.median(side) for side in zip(*times, strict=True))
    return work / mine, work / theirs, theirs / mine


def training(model: nn.Module, loss: Callable[[Batch], Tensor], made: list[Batch], device: str) -> Job:
    """An epoch over the batches: forward, backward, update, in bf16 on a GPU."""
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def epoch() -> None:
        for batch in made:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                total = loss(batch)
            (total / batch.tokens).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    return epoch


def ours_training(model: nn.Module, made: list[Batch], device: str) -> Job:
    objective = TokenCrossEntropy(model.to(device).train(), smoothing=0.1).train()  # type: ignore[arg-type]
    return training(model, loss_of(objective, device), made, device)


def loss_of(objective: nn.Module, device: str) -> Callable[[Any], Tensor]:
    """As `regard train` computes it: on a GPU the weights are cast to half precision together."""
    halves = HalfWeights(objective, torch.bfloat16)

    def loss(batch: Any) -> Tensor:
        with halves.in_place() if device == "cuda" else nullcontext():
            total: Tensor = objective(batch)[0]
        return total

    return loss


# -------------------------------------------------------------------------------------------------- the peers


def marian(config: TransformerConfig) -> Any:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY, d_model=config.width, encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers, encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads, encoder_ffn_dim=config.feed_forward,
            decoder_ffn_dim=config.feed_forward, dropout=config.dropout, attention_dropout=0.0, activation_dropout=0.0,
            activation_function="relu", max_position_embeddings=256, scale_embedding=True, pad_token_id=PAD,
            bos_token_id=BEGIN, eos_token_id=END, decoder_start_token_id=BEGIN, forced_eos_token_id=None,
        )
    )  # fmt: skip


def visible(tokens: Tokens) -> Tensor:
    return torch.arange(tokens.ids_BL.shape[1], device=tokens.ids_BL.device) < tokens.lengths_B[:, None]


def smoothed(logits: Tensor, batch: Batch) -> Tensor:
    """Label-smoothed cross-entropy over all positions, padding ignored: what most training scripts do."""
    labels = batch.target.ids_BL[:, 1:].masked_fill(~visible(batch.target)[:, 1:], -100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1, reduction="sum")


def marian_training(model: Any, made: list[Batch], device: str) -> Job:
    model.to(device).train()

    def loss(batch: Batch) -> Tensor:
        out = model(
            input_ids=batch.source.ids_BL, attention_mask=visible(batch.source).long(),
            decoder_input_ids=batch.target.ids_BL[:, :-1],
        )  # fmt: skip
        return smoothed(out.logits, batch)

    return training(model, loss, made, device)


class UsualLoop(nn.Module):
    """The recurrent decoder as it is usually written: everything but keys and readout inside a loop over time."""

    def __init__(self, width: int, embedding: int, *, additive: bool, dropout: float) -> None:
        super().__init__()
        self.additive = additive
        self.source, self.target = nn.Embedding(VOCABULARY, embedding), nn.Embedding(VOCABULARY, embedding)
        self.encoder = nn.LSTM(embedding, width, batch_first=True, bidirectional=True)
        self.h0, self.c0 = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.keys = nn.Linear(2 * width, width)
        self.query, self.v = nn.Linear(width, width, bias=False), nn.Linear(width, 1, bias=False)
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
            self.dropout(self.source(batch.source.ids_BL)), batch.source.host_lengths_B, batch_first=True,
            enforce_sorted=False,
        )  # fmt: skip
        memory, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True)
        keys, seen = self.keys(memory), visible(batch.source)
        h, c = torch.tanh(self.h0(torch.cat([*h], -1))), torch.tanh(self.c0(torch.cat([*c], -1)))
        outputs = []
        for t in range(batch.target.ids_BL.shape[1] - 1):
            y = self.dropout(self.target(batch.target.ids_BL[:, t]))
            if self.additive:
                context = self.look(h, keys, memory, seen)
                h, c = self.cell(torch.cat([y, context], -1), (h, c))
                outputs.append(self.combine(torch.cat([h, y, context], -1)))
            else:
                h, c = self.cell(y, (h, c))
                outputs.append(torch.tanh(self.combine(torch.cat([self.look(h, keys, memory, seen), h], -1))))
        logits: Tensor = self.out(self.dropout(torch.stack(outputs, 1)))
        return logits


def loop_training(model: UsualLoop, made: list[Batch], device: str) -> Job:
    model.to(device).train()
    return training(model, lambda batch: smoothed(model(batch), batch), made, device)


# ------------------------------------------------------------------------------------------------- the races


def transformer_race(device: str, repeats: int) -> Iterator[tuple[str, float, float, float]]:
    config = TransformerConfig(preset="base" if device == "cuda" else "tiny", tie="all")
    made = batches(24_000 if device == "cuda" else 2_000, 8 if device == "cuda" else 2, device)
    model = build_model(config, VOCABULARY, VOCABULARY)
    found = race(
        sum(batch.tokens for batch in made), ours_training(model, made, device),
        marian_training(marian(config), made, device), device, repeats,
    )  # fmt: skip
    yield f"train Transformer {config.preset} / Marian eager", *found


def recurrent_race(kind: str, device: str, repeats: int) -> Iterator[tuple[str, float, float, float]]:
    width, embedding, additive = (512, 512, kind == "bahdanau") if device == "cuda" else (128, 64, kind == "bahdanau")
    common = {"hidden": width, "embedding": embedding, "attention": width, "bidirectional": True, "cell": "lstm"}
    config = BahdanauConfig(**common) if additive else LuongConfig(**common, input_feeding=False)  # type: ignore[arg-type]
    made = batches(24_000 if device == "cuda" else 2_000, 4 if device == "cuda" else 2, device)
    found = race(
        sum(batch.tokens for batch in made),
        ours_training(build_model(config, VOCABULARY, VOCABULARY), made, device),
        loop_training(UsualLoop(width, embedding, additive=additive, dropout=config.dropout), made, device),
        device, repeats,
    )  # fmt: skip
    yield f"train {kind} LSTM {width} / usual loop", *found


def decoding_races(device: str, repeats: int) -> Iterator[tuple[str, float, float, float]]:
    """Both write exactly `length` tokens for each source, with random weights of the same size and precision."""
    config, dtype = TransformerConfig(preset="base", tie="all"), torch.bfloat16 if device == "cuda" else torch.float32
    model = build_model(config, VOCABULARY, VOCABULARY).to(device, dtype).eval()
    peer = marian(config).to(device, dtype).eval()
    for rows, length in ((128, 64),) if device == "cuda" else ((32, 32), (1, 32)):
        generator = torch.Generator().manual_seed(1)
        source = padded(sentences(27 * rows, generator)[:rows], generator, begins=False).to(device)
        for beam in (1, 4):
            settings = SearchConfig(beam=beam, min_length=length, max_length=length)
            inputs = {"input_ids": source.ids_BL, "attention_mask": visible(source).long()}
            asked = {"num_beams": beam, "do_sample": False, "min_new_tokens": length, "max_new_tokens": length}
            found = race(
                len(source) * length, lambda s=source, c=settings: search(model, s, c),  # type: ignore[misc]
                lambda i=inputs, a=asked: peer.generate(**i, **a), device, repeats,  # type: ignore[misc]
            )  # fmt: skip
            yield f"decode {len(source)} x {length}, beam {beam} / generate", *found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", default=["transformer", "bahdanau", "luong", "decoding"])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    device, repeats = options.device, options.repeats
    races = {
        "transformer": lambda: transformer_race(device, repeats),
        "bahdanau": lambda: recurrent_race("bahdanau", device, repeats),
        "luong": lambda: recurrent_race("luong", device, repeats),
        "decoding": lambda: decoding_races(device, repeats),
    }
    print("| race | regard, tokens/s | peer, tokens/s | ratio |\n|---|---|---|---|")
    for name in options.only:
        for what, ours, theirs, ratio in races[name]():
            print(f"| {what} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
