"""Training speed of BERT with masked tokens beside `transformers`, in one run on one machine: real tokens per second.

    python benchmarks/bert_speed.py [--device cuda|cpu] [--preset base] [--rows 384] [--batches 8] [--repeats 3]
    python benchmarks/bert_speed.py --requests 100

All three sides read the same texts, of 4 to 128 tokens, mean about 43, of which 15 % are masked, with the same sizes,
dropout and optimiser, in bf16 on a GPU. The peer is BertForMaskedLM, not compiled, once with every batch padded to 128,
and once with the texts sorted by length first, so that a batch is padded to its own longest. Padding counts for nobody.
Each side is timed `--repeats` times in turn, and the medians are compared.

`--requests N`: one short sentence a request to a classifier of MiniLM's size that stays loaded, on the CPU:
`regard.load` and transformers' pipeline on the same model, exported, in the same process and in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from speed import Job, clock, loss_of, training
from torch import Tensor

import regard
from regard.data.batches import MaskedBatch, Tokens
from regard.models.bert import BERT, BERTConfig
from regard.objectives.language_model import MaskedTokens
from regard.text.vocabularies import PAD

VOCABULARY, LONGEST, MASK, SPECIAL = 30_000, 128, 4, 5
RATE = 0.15
AIMS = {"padded to 128": 2.5, "sorted by length": 1.4}


@dataclass(frozen=True)
class PeerBatch:
    """The peer's inputs, and how many tokens it predicts."""

    inputs: dict[str, Tensor]
    tokens: int


def texts(count: int, generator: torch.Generator) -> Tensor:
    """Lengths of mean 43: gamma-like, as in real corpora."""
    drawn_B3 = torch.empty(count, 3).exponential_(1 / 14, generator=generator)
    return (drawn_B3.sum(1).clamp(3, LONGEST - 1) + 1).long()


def masked(lengths_B: Tensor, generator: torch.Generator) -> MaskedBatch:
    """Random texts of these lengths with 15 % of their tokens masked."""
    ids_BL = torch.randint(SPECIAL, VOCABULARY, (len(lengths_B), int(lengths_B.max())), generator=generator)
    real_BL = torch.arange(ids_BL.shape[1]) < lengths_B[:, None]
    hidden_BL = (torch.rand(ids_BL.shape, generator=generator) < RATE) & real_BL
    places_P = hidden_BL.flatten().nonzero()[:, 0]
    shown_BL = ids_BL.masked_fill(hidden_BL, MASK).masked_fill(~real_BL, PAD)
    labels_P = ids_BL.flatten()[places_P]
    text = Tokens.of(shown_BL, lengths_B)
    return MaskedBatch(text, torch.zeros_like(ids_BL), places_P, labels_P, tokens=len(places_P))


def for_peer(batch: MaskedBatch, width: int) -> PeerBatch:
    """The same batch, padded to `width`."""
    text, more = batch.text, width - batch.text.ids_BL.shape[1]
    labels = torch.full_like(text.ids_BL, -100).flatten().index_copy(0, batch.places_P, batch.labels_P)
    grown = torch.nn.functional.pad
    inputs = {
        "input_ids": grown(text.ids_BL, (0, more), value=PAD),
        "attention_mask": (torch.arange(width, device=text.ids_BL.device) < text.lengths_B[:, None]).long(),
        "labels": grown(labels.view_as(text.ids_BL), (0, more), value=-100),
    }
    return PeerBatch(inputs, batch.tokens)


def peer_model(config: BERTConfig) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=config.width, num_hidden_layers=config.layers,
            num_attention_heads=config.heads, intermediate_size=config.feed_forward,
            hidden_dropout_prob=config.dropout, attention_probs_dropout_prob=config.attention_dropout,
            max_position_embeddings=config.max_positions, pad_token_id=PAD,
        )
    )  # fmt: skip


def ours(config: BERTConfig, made: list[MaskedBatch], device: str) -> Job:
    model = BERT(config, VOCABULARY).to(device)
    objective = MaskedTokens(model).train()
    return training(model, loss_of(objective, device), made, device)  # type: ignore[arg-type]


def theirs(config: BERTConfig, made: list[PeerBatch], device: str) -> Job:
    model = peer_model(config).to(device).train()
    return training(model, lambda batch: model(**batch.inputs).loss * batch.tokens, made, device)  # type: ignore[arg-type]


def requests(count: int) -> None:
    """The median time of a request to a loaded classifier, and that of the peer."""
    from transformers import pipeline

    size = {"layers": 6, "width": 384, "heads": 12, "feed_forward": 1536}
    recipe = {
        "task": "classification", "data": {"train": {"corpus": "reviews-en", "size": 200}},
        "model": {"kind": "bert", **size}, "training": {"steps": 1, "batch_tokens": 512, "device": "cpu"},
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        run = regard.train(recipe, out=f"{folder}/run", quiet=True)
        regard.export_run(run, to="huggingface", out=f"{folder}/exported")
        model, peer = (
            regard.load(run, device="cpu"),
            pipeline("text-classification", f"{folder}/exported", device="cpu"),
        )
    text = "The plot was not dull, although the music was silly."
    jobs: list[Job] = [lambda: model.predict(text), lambda: peer(text)]
    for measure, now in {"seconds": time.perf_counter, "seconds of the processor": time.process_time}.items():
        times: list[list[float]] = [[], []]
        for _ in range(count + 3):
            for job, side in zip(jobs, times, strict=True):
                started = now()
                job()
                side.append(now() - started)
        ours, theirs = (1000 * statistics.median(side[3:]) for side in times)
        print(f"milli{measure} a request: regard {ours:.1f}, transformers {theirs:.1f}, ratio {theirs / ours:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--preset", choices=list(BERTConfig.PRESETS), default="base")
    parser.add_argument("--rows", type=int, default=384, help="texts per batch")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, help="time so many requests to a loaded classifier instead")
    options = parser.parse_args()
    if options.requests:
        requests(options.requests)
        return
    device, generator = options.device, torch.Generator().manual_seed(1)
    config = BERTConfig(preset=options.preset, next_sentence=False)
    lengths = texts(options.rows * options.batches, generator)
    mixed = [masked(part, generator).to(device) for part in lengths.split(options.rows)]
    grouped = [masked(part, generator).to(device) for part in lengths.sort().values.split(options.rows)]
    jobs = {
        "regard": ours(config, mixed, device),
        "padded to 128": theirs(config, [for_peer(batch, LONGEST) for batch in mixed], device),
        "sorted by length": theirs(config, [for_peer(one, one.text.ids_BL.shape[1]) for one in grouped], device),
    }
    for job in jobs.values():
        job()
    times = [[clock(job, device) for job in jobs.values()] for _ in range(options.repeats)]
    medians = dict(zip(jobs, map(statistics.median, zip(*times, strict=True)), strict=True))
    tokens, mean = int(lengths.sum()), float(lengths.float().mean())
    print(
        f"BERT {options.preset}, {options.rows} texts a batch, mean length {mean:.1f}, longest {int(lengths.max())}\n"
    )
    print("| side | real tokens/s | regard's / its | aim |\n|---|---|---|---|")
    for name, seconds in medians.items():
        ratio = "" if name == "regard" else f"{seconds / medians['regard']:.2f}"
        print(f"| {name} | {tokens / seconds:,.0f} | {ratio} | {AIMS.get(name, '')} |", flush=True)


if __name__ == "__main__":
    main()
