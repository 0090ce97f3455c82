"""What a user gets: the commands of regard on real files, as processes, and the peer as its best user runs it.

    python benchmarks/end_to_end.py DATA [--only translation,masked] [--steps 600] [--rivals eager,compiled]

DATA holds tatoeba_en_fr/, nsmc/, books_en/ and multi30k/. On a GPU: `translation`, `masked`, `classification`,
`language` beside transformers' Trainer; then `predict` and `label`, which need a run of `translation` and of
`classification` in the same folder, beside `generate` and `pipeline` with the same weights and sorted batches, and
`evaluate`. On a CPU: `multi30k-transformer` and `multi30k-bahdanau` beside JoeyNMT 2.3.0 (`pip install joeynmt
importlib_metadata`, `--rivals joeynmt`); about 40 steps are enough there.

`--repeat 3` ends with the medians, and with regard's pace relative to the best peer's.

Every row is a process, which this file starts inside a wrapper (`measured`). The wrapper notes when the
optimiser steps, and for a window of steps what the GPU computes (CUPTI, through torch's profiler); it knows
nothing of the training. The pace is that of the steps before the window, without the first third. The pace of a
prediction is that of the whole process; a tenth of its lines, predicted before, gives the seconds before the first
line, and another process with a tenth of them is watched, which is alone where several would share the GPU for a
longer file. With END_TO_END_STACKS=1 the wrapper also samples what each thread does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STARTED = time.time()
WHOLE = "END_TO_END_WHOLE"
"""The variable of the environment with which the GPU is watched until the end."""
WINDOW = 30
"""Steps in which the GPU is watched."""
BATCH_TOKENS = 24_576
VOCABULARY = 16_000

TRANSLATION = f"""
task: translation
data:
  train: {{file: tatoeba.tsv, source: 0, target: 1}}
  validation: {{split: 0.02}}
tokenizer: {{kind: bpe, vocabulary: {VOCABULARY}, joint: true}}
model: {{kind: transformer, preset: base}}
training: {{steps: 1000, batch_tokens: {BATCH_TOKENS}, precision: bf16, learning_rate: 7.0e-4, decode: 0}}
"""
LANGUAGE = f"""
task: language_modeling
data:
  train: {{text: books_en/train.txt.xz}}
  validation: {{text: books_en/valid.txt.xz}}
  blocks: contiguous
  max_length: 512
tokenizer: {{kind: bpe, vocabulary: {VOCABULARY}}}
model: {{kind: gpt, preset: base, norm: pre}}
training: {{steps: 1000, batch_tokens: {BATCH_TOKENS}, precision: bf16, optimizer: adamw, learning_rate: 5.0e-4}}
"""
MULTI30K = """
task: translation
data:
  train: {{source: multi30k/train.en.gz, target: multi30k/train.de.gz}}
  validation: {{source: multi30k/val.en.gz, target: multi30k/val.de.gz}}
  max_length: 100
tokenizer: {{kind: word, vocabulary: 8000}}
model: {model}
training:
  {{steps: 100, batch_tokens: 4096, learning_rate: 1.0e-3, schedule: constant, label_smoothing: {smoothing},
  log_every: 10, decode: 0, device: cpu}}
"""
SMALL_MODELS = {
    "multi30k-transformer": "{kind: transformer, preset: tiny, width: 256, encoder_layers: 3, decoder_layers: 3, "
    "heads: 4, feed_forward: 1024, norm: pre, dropout: 0.1, tie: target}",
    "multi30k-bahdanau": "{kind: bahdanau, preset: tiny, embedding: 256, hidden: 256, dropout: 0.2}",
}
JOEY = """
name: "multi30k"
joeynmt_version: "2.3.0"
model_dir: "{folder}"
use_cuda: False
fp16: False
random_seed: 1
data:
  train: "text/train"
  dev: "text/val"
  dataset_type: "plain"
  src: {{lang: "en", max_length: 100, lowercase: False, level: "word", voc_limit: 8000, voc_min_freq: 1}}
  trg: {{lang: "de", max_length: 100, lowercase: False, level: "word", voc_limit: 8000, voc_min_freq: 1}}
  special_symbols: {{unk_token: "<unk>", unk_id: 0, pad_token: "<pad>", pad_id: 1, bos_token: "<s>", bos_id: 2,
    eos_token: "</s>", eos_id: 3}}
testing: {{beam_size: 5, beam_alpha: 1.0, batch_size: 64, batch_type: "sentence", eval_metrics: ["bleu"]}}
training:
  {{optimizer: "adamw", adam_betas: [0.9, 0.98], learning_rate: 0.001, learning_rate_min: 0.00001,
  scheduling: "exponential", decrease_factor: 0.99, weight_decay: 0.0, clip_grad_norm: 1.0,
  label_smoothing: {smoothing}, loss: "crossentropy", normalization: "tokens", batch_type: "token",
  batch_size: 4096, epochs: 100, updates: {steps}, validation_freq: 100000, logging_freq: 10, overwrite: True,
  shuffle: True, num_workers: 0, keep_best_ckpts: 1, early_stopping_metric: "loss"}}
model: {model}
"""
JOEY_BLOCKS = (
    '{type: "transformer", num_layers: 3, num_heads: 4, hidden_size: 256, ff_size: 1024, dropout: 0.1, '
    'layer_norm: "pre", embeddings: {embedding_dim: 256, scale: True, dropout: 0.0}}'
)
JOEY_MODELS = {
    "multi30k-transformer": '{initializer: "xavier_uniform", tied_embeddings: False, tied_softmax: True, '
    f"encoder: {JOEY_BLOCKS}, decoder: {JOEY_BLOCKS}}}",
    "multi30k-bahdanau": '{initializer: "xavier_uniform", tied_embeddings: False, tied_softmax: False, '
    'encoder: {type: "recurrent", rnn_type: "gru", embeddings: {embedding_dim: 256, scale: False}, '
    "hidden_size: 256, bidirectional: True, dropout: 0.2, num_layers: 1}, "
    'decoder: {type: "recurrent", rnn_type: "gru", embeddings: {embedding_dim: 256, scale: False}, '
    "hidden_size: 256, dropout: 0.2, hidden_dropout: 0.2, num_layers: 1, input_feeding: True, "
    'init_hidden: "bridge", attention: "bahdanau"}}',
}
LABELLED = "data.train={file: nsmc/ratings_train.tsv.xz, text: document, label: label}"


# ------------------------------------------------------------------------------------ inside a measured process


class Watch:
    """Notes the time of each step of an optimiser, and what the GPU computes from step `first` on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.times: list[float] = []
        self.cpu: list[float] = []
        self.busy: float | None = None
        self.kernels: dict[str, float] = {}
        self.stacks: dict[str, int] = {}
        self.ended = False
        self._profiler: Any = None

    def sample(self) -> None:
        """Note every few milliseconds what each thread does, until the window begins, or until the end."""
        while not self.ended and (self.first == 0 or len(self.times) < self.first):
            time.sleep(0.004)
            if len(self.times) < self.first // 3:
                continue
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for number, frame in sys._current_frames().items():
                stack = traceback.extract_stack(frame)[-14:]
                own = [part for part in stack if "regard" in part.filename][-2:]
                where = " < ".join(
                    f"{Path(part.filename).name}:{part.lineno} {part.name}"
                    for part in [*own, stack[-1]][::-1]
                )
                key = f"{names.get(number, '?')}: {where}"
                self.stacks[key] = self.stacks.get(key, 0) + 1

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Watch the GPU from now on until the end."""
        import torch

        if not (WHOLE in os.environ and torch.cuda.is_available()):
            yield
            return
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            yield
            torch.cuda.synchronize()
        self.busy, self.kernels = busy_share(profiler)

    def step(self, *_: object) -> None:
        import torch

        self.times.append(time.time())
        self.cpu.append(time.process_time())
        if not torch.cuda.is_available():
            return
        if len(self.times) == self.first:
            torch.cuda.synchronize()
            activities = [torch.profiler.ProfilerActivity.CUDA]
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.start()
        elif len(self.times) == self.first + WINDOW:
            torch.cuda.synchronize()
            self._profiler.stop()
            self.busy, self.kernels = busy_share(self._profiler)

    def result(self) -> dict[str, Any]:
        import torch

        gpu = torch.cuda.max_memory_reserved() if torch.cuda.is_initialized() else 0
        return {
            "started": STARTED,
            "times": self.times,
            "cpu": self.cpu,
            "window": [self.first, self.first + WINDOW],
            "busy": self.busy,
            "kernels": self.kernels,
            "stacks": dict(sorted(self.stacks.items(), key=lambda item: -item[1])[:40]),
            "gpu_bytes": gpu,
        }


def busy_share(profiler: Any) -> tuple[float, dict[str, float]]:
    """The share of the time between the first and the last kernel in which one runs, and the kernels with the
    most seconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    spans = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    busy = 0.0
    until = spans[0][0]
    kernels: dict[str, float] = {}
    for start, stop, name in spans:
        busy += max(0.0, stop - max(start, until))
        until = max(until, stop)
        kernels[name[:60]] = kernels.get(name[:60], 0.0) + (stop - start) / 1e6
    most = sorted(kernels.items(), key=lambda item: -item[1])[:12]
    return busy / (until - spans[0][0]), dict(most)


def measured(file: Path, first: int, command: Sequence[str]) -> None:
    """Run a command of regard, or a peer of this file, and write down what the watch saw."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    watch = Watch(first)
    if os.environ.get("END_TO_END_STACKS"):
        threading.Thread(target=watch.sample, name="sampler", daemon=True).start()
    if command[0] == "train":
        count_updates(watch)
    else:
        register_optimizer_step_post_hook(watch.step)  # type: ignore[no-untyped-call]
    try:
        with watch.whole():
            if command[0] == "peer":
                PEERS[command[1]](*command[2:])
            else:
                run_regard(command)
    finally:
        watch.ended = True
        file.write_text(json.dumps(watch.result()))


def count_updates(watch: Watch) -> None:
    """Note the updates of a training of regard; a captured one does not call the optimiser."""
    from regard.training.loop import Trainer

    update = Trainer.update

    def watched_update(trainer: Trainer, *batches: Any) -> None:
        update(trainer, *batches)
        watch.step()

    Trainer.update = watched_update  # type: ignore[method-assign]


def run_regard(command: Sequence[str]) -> None:
    """A command of regard, in this process; it ends the process only if it fails."""
    from regard.cli import main

    sys.argv = ["regard", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


# ------------------------------------------------------------------------------------ the peers


def rows_of(path: str) -> list[list[str]]:
    return [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]


def lines_of(path: str) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def trained_bpe(texts: Iterator[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special)
    )
    return tokenizer


def padded(rows: Sequence[Sequence[int]], value: int) -> Any:
    """Rows padded to a multiple of 8."""
    import torch

    width = -(-max(map(len, rows)) // 8) * 8
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


class Rows:
    """Examples as dictionaries, for transformers' Trainer."""

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: column[row] for name, column in self.columns.items()}


def trainer_of(kind: str, model: Any, data: Rows, collate: Any, rows: int, **options: Any) -> None:
    """Train as a user who knows the library does: bf16, grouped by length, workers, fused AdamW."""
    import transformers

    arguments_class = getattr(
        transformers, f"{kind}Arguments" if kind == "Seq2SeqTraining" else "TrainingArguments"
    )
    grouped: dict[str, Any] = {"group_by_length": True}
    if "train_sampling_strategy" in transformers.TrainingArguments.__dataclass_fields__:
        grouped = {"train_sampling_strategy": "group_by_length"}
    if "length" not in data.columns:
        grouped = {}
    arguments = arguments_class(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=rows,
        bf16=True,
        dataloader_num_workers=8,
        dataloader_pin_memory=True,
        optim="adamw_torch_fused",
        max_grad_norm=1.0,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        **grouped,
        **options,
    )
    trainer_class = (
        transformers.Seq2SeqTrainer if kind == "Seq2SeqTraining" else transformers.Trainer
    )
    trainer_class(model=model, args=arguments, train_dataset=data, data_collator=collate).train()


def peer_translation(file: str, steps: str, compiled: str) -> None:
    """Marian with Seq2SeqTrainer."""
    import torch
    import transformers

    pairs = rows_of(file)
    tokenizer = trained_bpe(text for pair in pairs for text in pair[:2])
    source, target = (
        [[*encoded.ids, 3] for encoded in tokenizer.encode_batch([pair[side] for pair in pairs])]
        for side in (0, 1)
    )
    longest = [max(map(len, pair)) for pair in zip(source, target, strict=True)]
    mean = statistics.fmean(map(len, target))

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        ids = padded([row["input_ids"] for row in batch], 0)
        labels = padded([row["labels"] for row in batch], -100)
        decoder = torch.cat([torch.full((len(labels), 1), 2), labels[:, :-1].clamp(min=0)], 1)
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "decoder_input_ids": decoder,
            "labels": labels,
        }

    config = transformers.MarianConfig(
        vocab_size=tokenizer.get_vocab_size(), d_model=512, encoder_layers=6, decoder_layers=6,
        encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        dropout=0.1, attention_dropout=0.0, activation_dropout=0.0, activation_function="relu",
        max_position_embeddings=256, scale_embedding=True, pad_token_id=0, bos_token_id=2, eos_token_id=3,
        decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    rows = int(BATCH_TOKENS / (mean * 1.15))
    print(json.dumps({"tokens_per_step": rows * mean}), flush=True)
    trainer_of(
        "Seq2SeqTraining", transformers.MarianMTModel(config),
        Rows(input_ids=source, labels=target, length=longest), collate, rows,
        max_steps=int(steps), learning_rate=7e-4, warmup_steps=100, label_smoothing_factor=0.1,
        torch_compile=compiled == "compiled",
    )  # fmt: skip


def bert_small() -> Any:
    import transformers

    return transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=512, num_hidden_layers=4, num_attention_heads=8,
        intermediate_size=2048, max_position_embeddings=512, pad_token_id=0,
    )  # fmt: skip


def peer_masked(file: str, steps: str, compiled: str) -> None:
    """BertForMaskedLM with Trainer: 15 % of the tokens at 80/10/10."""
    import torch
    import transformers

    texts = lines_of(file)
    tokenizer = trained_bpe(iter(texts))
    ids = [[2, *encoded.ids[:126], 3] for encoded in tokenizer.encode_batch(texts)]
    mean = statistics.fmean(map(len, ids))

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        shown = padded([row["input_ids"] for row in batch], 0)
        chosen = (torch.rand(shown.shape) < 0.15) & (shown > 4)
        how = torch.rand(shown.shape)
        labels = shown.where(chosen, -100)
        mask = chosen & (how < 0.8)
        other = chosen & (how >= 0.8) & (how < 0.9)
        attention = (shown != 0).long()
        shown = shown.masked_fill(mask, 4).where(~other, torch.randint_like(shown, 5, VOCABULARY))
        return {"input_ids": shown, "attention_mask": attention, "labels": labels}

    rows = int(32_768 / (mean * 1.05))
    print(json.dumps({"tokens_per_step": 0.15 * rows * (mean - 2)}), flush=True)
    trainer_of(
        "Training", transformers.BertForMaskedLM(bert_small()),
        Rows(input_ids=ids, length=[len(row) for row in ids]), collate, rows,
        max_steps=int(steps), learning_rate=1e-3, warmup_steps=100, torch_compile=compiled == "compiled",
    )  # fmt: skip


def peer_classification(file: str, steps: str, compiled: str) -> None:
    """BertForSequenceClassification with Trainer."""
    import torch
    import transformers

    table = [line.split("\t") for line in lines_of(file)[1:]]
    tokenizer = trained_bpe(row[1] for row in table)
    ids = [
        [2, *encoded.ids[:126], 3] for encoded in tokenizer.encode_batch([row[1] for row in table])
    ]
    labels = [int(row[2]) for row in table]
    rows = int(1024 / (statistics.fmean(map(len, ids)) * 1.05))

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        shown = padded([row["input_ids"] for row in batch], 0)
        numbers = torch.tensor([row["labels"] for row in batch])
        return {"input_ids": shown, "attention_mask": (shown != 0).long(), "labels": numbers}

    print(json.dumps({"tokens_per_step": rows}), flush=True)
    trainer_of(
        "Training", transformers.BertForSequenceClassification(bert_small()),
        Rows(input_ids=ids, labels=labels, length=[len(row) for row in ids]), collate, rows,
        max_steps=int(steps), learning_rate=5e-5, warmup_steps=100, torch_compile=compiled == "compiled",
    )  # fmt: skip


def peer_language(file: str, steps: str, compiled: str) -> None:
    """GPT-2 base with Trainer, in blocks of 512."""
    import torch
    import transformers

    texts = lines_of(file)
    tokenizer = trained_bpe(iter(texts))
    stream = [token for encoded in tokenizer.encode_batch(texts) for token in [*encoded.ids, 3]]
    blocks = [stream[start : start + 512] for start in range(0, len(stream) - 512, 512)]

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        ids = torch.tensor([row["input_ids"] for row in batch])
        return {"input_ids": ids, "labels": ids}

    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=512, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.0
    )
    rows = BATCH_TOKENS // 512
    print(json.dumps({"tokens_per_step": rows * 512}), flush=True)
    trainer_of(
        "Training", transformers.GPT2LMHeadModel(config), Rows(input_ids=blocks), collate, rows,
        max_steps=int(steps), learning_rate=5e-4, warmup_steps=100, torch_compile=compiled == "compiled",
    )  # fmt: skip


def in_batches(texts: Sequence[str], rows: int) -> Iterator[list[int]]:
    """Batches of texts of about equal length, longest first."""
    order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
    for first in range(0, len(order), rows):
        yield order[first : first + rows]


def peer_generate(folder: str, file: str, out: str) -> None:
    """The exported translation model with `generate`, greedy."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).to(device).eval()
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    outputs = [""] * len(texts)
    for numbers in in_batches(texts, 512):
        batch = tokenizer([texts[number] for number in numbers], return_tensors="pt", padding=True)
        batch = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
        longest = 2 * batch["input_ids"].shape[1] + 10
        with torch.inference_mode():
            ids = model.generate(**batch, num_beams=1, do_sample=False, max_length=longest)
        texts_out = tokenizer.batch_decode(ids, skip_special_tokens=True)
        for number, text in zip(numbers, texts_out, strict=True):
            outputs[number] = text
    Path(out).write_text("".join(f"{text}\n" for text in outputs), encoding="utf-8")


def peer_pipeline(folder: str, file: str, out: str) -> None:
    """The exported classifier with `pipeline`."""
    import torch
    import transformers

    torch.set_float32_matmul_precision("high")
    device = 0 if torch.cuda.is_available() else -1
    classify = transformers.pipeline(
        "text-classification", model=folder, device=device, batch_size=512, truncation=True
    )
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    order = [number for batch in in_batches(texts, 512) for number in batch]
    outputs: list[str] = [""] * len(texts)
    found = classify([texts[number] for number in order])
    for number, answer in zip(order, found, strict=True):
        outputs[number] = json.dumps(answer)
    Path(out).write_text("".join(f"{text}\n" for text in outputs), encoding="utf-8")


def peer_joeynmt(kind: str, steps: str) -> None:
    """JoeyNMT with the sizes of `SMALL_MODELS`."""
    from joeynmt.__main__ import main as joey

    Path("text").mkdir(exist_ok=True)
    for part in ("train", "val"):
        for side in ("en", "de"):
            with gzip.open(f"multi30k/{part}.{side}.gz", "rt", encoding="utf-8") as file:
                Path(f"text/{part}.{side}").write_text(file.read(), encoding="utf-8")
    smoothing = 0.1 if kind == "multi30k-transformer" else 0.0
    recipe = Path(f"joey-{kind}.yaml")
    recipe.write_text(
        JOEY.format(
            folder=f"joey-{kind}", steps=steps, smoothing=smoothing, model=JOEY_MODELS[kind]
        )
    )
    sys.argv = ["joeynmt", "train", str(recipe), "--skip-test"]
    joey()


PEERS: dict[str, Callable[..., None]] = {
    "joeynmt": peer_joeynmt,
    "generate": peer_generate,
    "pipeline": peer_pipeline,
    "translation": peer_translation,
    "masked": peer_masked,
    "classification": peer_classification,
    "language": peer_language,
}


# ------------------------------------------------------------------------------------ the rows


@dataclass
class Row:
    """A process to measure."""

    task: str
    name: str
    command: list[str]
    unit: str = "tokens/s"
    run: str = ""
    """The run folder, if the command is a training of regard."""
    lines: int = 0
    """The lines that the command predicts, start included."""
    few: str = ""
    """A file with a tenth of the lines."""


@dataclass
class Result:
    row: Row
    pace: float = 0.0
    busy: float | None = None
    first_step: float = 0.0
    wall: float = 0.0
    host_gb: float = 0.0
    gpu_gb: float = 0.0
    cpu: float = 0.0
    """CPU seconds of all threads per second of the steady part: other load on the machine changes it less
    than the pace."""
    kernels: dict[str, float] = field(default_factory=dict)
    stacks: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        busy = "" if self.busy is None else f"{100 * self.busy:.0f} %"
        figures = (
            f"{self.pace:,.0f} {self.row.unit} | {busy} | {self.first_step:.1f} | {self.wall:.0f}"
        )
        cpu = f"{1e6 * self.cpu / self.pace:,.0f}" if self.pace else ""
        memory = f"{self.host_gb:.1f} | {self.gpu_gb:.1f}"
        return f"| {self.row.task} | {self.row.name} | {figures} | {cpu} | {memory} |"


def training_rows(
    task: str, recipe: str, steps: int, *overrides: str, unit: str = "tokens/s"
) -> list[Row]:
    """A training of regard without compiling, with it, and as the recipe decides."""
    rows = []
    for compiled in ("false", "true"):
        run = f"runs/{task}-{compiled}-{time.time_ns()}"
        options = [
            f"training.steps={steps}",
            f"training.validate_every={steps}",
            "training.epochs=null",
            f"training.compile={compiled}",
        ]
        command = ["train", recipe, *overrides, *options, "--out", run]
        rows.append(Row(task, f"regard, compile={compiled}", command, unit, run))
    return rows


def rows_for(task: str, steps: int, options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    files = {
        "translation": "tatoeba.tsv",
        "masked": "nsmc/unlabelled.txt.xz",
        "classification": "nsmc/ratings_train.tsv.xz",
        "language": "books_en/train.txt.xz",
    }
    match task:
        case "multi30k-transformer" | "multi30k-bahdanau":
            smoothing = 0.1 if task == "multi30k-transformer" else 0.0
            Path(f"{task}.yaml").write_text(
                MULTI30K.format(model=SMALL_MODELS[task], smoothing=smoothing)
            )
            rows = training_rows(task, f"{task}.yaml", steps)[:1]
            if options.rivals:
                rows.append(Row(task, "JoeyNMT", ["peer", "joeynmt", task, str(steps)]))
            return rows
        case "predict" | "label":
            return prediction_rows(task, options)
        case "evaluate":
            return [evaluate_row()]
        case "translation":
            Path("translation.yaml").write_text(TRANSLATION)
            rows = training_rows(task, "translation.yaml", steps)
        case "masked":
            rows = training_rows(task, "nsmc-bert", steps)
        case "classification":
            settings = [LABELLED, "data.test=null", "training.init=null", *FRESH_BERT]
            rows = training_rows(task, "classification", steps, *settings, unit="examples/s")
        case "language":
            Path("language.yaml").write_text(LANGUAGE)
            rows = training_rows(task, "language.yaml", steps)
    rows = [row for row in rows if row.name.split("=")[-1] in options.compile]
    if options.rivals:
        unit = "examples/s" if task == "classification" else "tokens/s"
        ways = options.rivals.split(",")
        rows += [
            Row(task, f"transformers, {way}", ["peer", task, files[task], str(steps), way], unit)
            for way in ways
        ]
    return rows


def prediction_rows(task: str, options: argparse.Namespace) -> list[Row]:
    """Lines through the latest run of a training of this file, by regard and by transformers with the
    weights that regard exports."""
    trained, peer = {
        "predict": ("translation", "generate"),
        "label": ("classification", "pipeline"),
    }[task]
    run = latest_run(trained)
    if task == "predict":
        texts = [line.split("\t")[0] for line in Path("tatoeba.tsv").read_text().splitlines()]
    else:
        texts = lines_of("nsmc/unlabelled.txt.xz")
    texts = [text for text in texts if text.strip()]
    texts = (texts * (1 + options.lines // len(texts)))[-options.lines :]
    lines, few = f"{task}.txt", f"{task}-few.txt"
    for name, own in ((lines, texts), (few, texts[:: len(texts) // (options.lines // 10)])):
        Path(name).write_text("".join(f"{text}\n" for text in own), encoding="utf-8")
    beam = ["--beam", "1"] if task == "predict" else []
    out = f"runs/predicted-{time.time_ns()}.txt"
    command = ["predict", str(run), "--file", lines, "--out", out, "--overwrite", *beam]
    rows = [Row(task, "regard", command, "lines/s", lines=len(texts), few=few)]
    if options.rivals:
        folder = Path(f"{run}-exported")
        if not folder.exists():
            export = [sys.executable, "-m", "regard", "export", str(run), "--to", "huggingface"]
            subprocess.run([*export, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
        command = ["peer", peer, str(folder), lines, f"{out}.peer"]
        rows.append(
            Row(task, f"transformers, {peer}", command, "lines/s", lines=len(texts), few=few)
        )
    return rows


def latest_run(task: str) -> Path:
    runs = [folder for folder in Path("runs").glob(f"{task}-*") if (folder / "best").exists()]
    if not runs:
        sys.exit(f"there is no run of {task} in {Path('runs').resolve()}: measure it first")
    return max(runs, key=lambda folder: folder.stat().st_mtime)


def evaluate_row() -> Row:
    """The validation examples of the latest classifier."""
    run = latest_run("classification")
    command = ["evaluate", str(run), "--split", "validation", "--json"]
    return Row("evaluate", "regard", command, "runs/s", lines=1)


FRESH_BERT = [
    "model.preset=small",
    "tokenizer={kind: wordpiece, vocabulary: 16000}",
]
"""A BERT without pre-training is as fast as one with it."""


def result_of(row: Row, steps: int) -> Result:
    """Run the process, and read what it and its wrapper wrote."""
    if row.lines:
        return prediction_result(row)
    on_cpu = row.task.startswith("multi30k")  # nothing is watched there
    first = steps if on_cpu else steps - WINDOW - steps // 10
    seen = watched(row.command, first)
    if seen.failed:
        print(seen.printed[-3000:])
        return Result(row, wall=seen.wall)
    times = seen.watch["times"]
    begin = min(len(times) // 3, first - 10)
    seconds = times[first - 1] - times[begin]
    common = seen.common() | {
        "cpu": (seen.watch["cpu"][first - 1] - seen.watch["cpu"][begin]) / seconds,
        "first_step": times[0] - seen.started,
    }
    if row.name == "JoeyNMT":
        logged = re.findall(r"Tokens per Sec:\s*([\d.]+)", seen.printed)
        pace = statistics.median(float(pace) for pace in logged)
        return Result(row, pace=pace, **common)
    rate = (first - 1 - begin) / seconds
    return Result(row, pace=rate * units_per_step(row, seen.printed), **common)


def prediction_result(row: Row) -> Result:
    """The pace of the whole process. A tenth of the lines gives the seconds before the first line, and is watched
    in another process."""
    times = []
    busy = None
    kernels: dict[str, float] = {}
    if row.few:
        few = [
            row.few if part.endswith(".txt") and "runs/" not in part else part
            for part in row.command
        ]
        first = watched(few, 0)
        profiled = watched(few, 0, **{WHOLE: "1"})
        times = [first.wall]
        if not profiled.failed:
            busy = profiled.watch["busy"]
            kernels = profiled.watch["kernels"]
    seen = watched(row.command, 0)
    if seen.failed:
        print(seen.printed[-3000:])
        return Result(row, wall=seen.wall)
    common = seen.common() | {"busy": busy, "kernels": kernels}
    if times:
        common["first_step"] = max(0.0, times[0] - (seen.wall - times[0]) / 9)
    return Result(row, pace=row.lines / seen.wall, **common)


@dataclass
class Seen:
    """What a process printed and its wrapper wrote."""

    printed: str
    started: float
    wall: float
    host_gb: float
    watch: dict[str, Any]

    @property
    def failed(self) -> bool:
        return not self.watch

    def common(self) -> dict[str, Any]:
        """The parts of a result that every row has."""
        return {
            "wall": self.wall,
            "host_gb": self.host_gb,
            "gpu_gb": self.watch["gpu_bytes"] / 2**30,
            "stacks": self.watch["stacks"],
            "busy": self.watch["busy"],
            "kernels": self.watch["kernels"],
        }


def watched(command: Sequence[str], first: int, **environment: str) -> Seen:
    """Run a command inside the wrapper; `first` is the step from which the GPU is watched."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "watch.json"
        whole = [sys.executable, __file__, "--watch", str(file), str(first), *command]
        started = time.time()
        process = subprocess.Popen(
            whole,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
        )
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.time() - started
        watch = {} if status else json.loads(file.read_text())
    return Seen(printed, started, wall, usage.ru_maxrss / 2**20, watch)


def units_per_step(row: Row, printed: str) -> float:
    """Tokens or examples of a step: from the log of the run, or as the peer says."""
    if not row.run:
        said = next(line for line in printed.splitlines() if line.startswith('{"tokens_per_step"'))
        return float(json.loads(said)["tokens_per_step"])
    lines = [
        json.loads(line) for line in (Path(row.run) / "metrics.jsonl").read_text().splitlines()
    ]
    logged = [line for line in lines if line["event"] == "train"]
    return float(sum(line["tokens"] for line in logged) / logged[-1]["step"])


def medians(found: Sequence[Result]) -> Iterator[str]:
    """A line for each work and each tool with the medians of all its runs; of regard also its pace relative to the
    best peer's."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in found:
        if result.pace:
            groups.setdefault((result.row.task, result.row.name), []).append(result)
    paces = {key: statistics.median(one.pace for one in own) for key, own in groups.items()}
    for (task, name), own in groups.items():
        peers = [
            pace for (other, tool), pace in paces.items() if other == task and "regard" not in tool
        ]
        ratio = f"{paces[task, name] / max(peers):.2f}" if peers and "regard" in name else ""
        busy = [one.busy for one in own if one.busy is not None]
        share = f"{100 * statistics.median(busy):.0f} %" if busy else ""
        first = statistics.median(one.first_step for one in own)
        wall = statistics.median(one.wall for one in own)
        pace = f"{paces[task, name]:,.0f} {own[0].row.unit}"
        yield f"| {task} | {name} | {len(own)} | {pace} | {share} | {first:.1f} | {wall:.0f} | {ratio} |"


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def prepare(data: Path) -> None:
    """The data where the recipes look for it."""
    for name in ("nsmc", "books_en", "multi30k"):
        if (data / name).exists() and not Path(name).exists():
            Path(name).symlink_to(data / name)
    if not Path("tatoeba.tsv").exists():
        pairs = (
            "\t".join(line.split("\t")[:2])
            for line in lines_of(str(data / "tatoeba_en_fr/fra.tsv.xz"))
        )
        Path("tatoeba.tsv").write_text("".join(f"{pair}\n" for pair in pairs), encoding="utf-8")


def main() -> None:
    if sys.argv[1:2] == ["--watch"]:
        measured(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="translation,masked,classification,language")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--compile", default="false,true")
    parser.add_argument("--rivals", default="", help="eager,compiled: transformers' Trainer, too")
    parser.add_argument("--folder", type=Path, default=Path("end_to_end"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = options.data.resolve()
    out = options.out.resolve() if options.out else None
    options.folder.mkdir(parents=True, exist_ok=True)
    found: list[Result] = []
    print(
        "| work | who | pace | GPU busy | first step (s) | wall (s) | CPU seconds per million "
        "| host GB | GPU GB |"
    )
    with inside(options.folder):
        prepare(data)
        for _ in range(options.repeat):
            for task in options.only.split(","):
                for row in rows_for(task, options.steps, options):
                    result = result_of(row, options.steps)
                    print(result.line(), flush=True)
                    found.append(result)
                    if out:
                        facts = [{**vars(one), "row": vars(one.row)} for one in found]
                        out.write_text(json.dumps(facts, indent=1))
    if options.repeat > 1:
        print(
            "| work | who | runs | pace | GPU busy | first step (s) | wall (s) | ratio to the best peer |"
        )
        print(*medians(found), sep="\n")


if __name__ == "__main__":
    main()
