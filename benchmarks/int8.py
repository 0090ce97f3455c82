"""`--precision int8` beside fp32 and beside CTranslate2 called directly: speed, BLEU, and whether
neighbours matter.

    python benchmarks/int8.py RUN SOURCES REFERENCES [--sentences 128] [--beam 4] [--repeats 3]
    [--alone]

RUN is a Transformer that translates, as `regard import` makes one of an OPUS-MT folder; SOURCES and
REFERENCES have a sentence per line, plain or in .gz. CTranslate2 gets sentences that were tokenised
before, in its own batches of 32 by length, with one worker per core; `regard` tokenises, searches
and writes text. All are timed in turn. `--alone` also translates each sentence by itself, and
counts the outputs that differ from those of the batch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import sacrebleu
import torch

import regard
from regard.text.files import open_text

MAX_SENTENCES = 32
MAX_OUTPUT_TOKENS = 128
"""Sentences per batch of CTranslate2, and the most tokens that it may write."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("sources")
    parser.add_argument("references")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    sources, references = (
        list(open_text(name, Path()).lines())[: options.sentences]
        for name in (options.sources, options.references)
    )
    loaded = {
        precision: regard.load(options.run, device="cpu", precision=precision)
        for precision in ("fp32", "int8")
    }

    def ours(precision: Any) -> list[str]:
        return [
            one.output
            for one in loaded[precision].predict(sources, beam=options.beam, length_penalty=1.0)
        ]

    with tempfile.TemporaryDirectory() as folder:
        theirs = peers(options.run, Path(folder), sources, options.beam)
        jobs: dict[str, Callable[[], list[str]]] = {
            "regard, fp32": lambda: ours("fp32"),
            "regard, int8": lambda: ours("int8"),
            **theirs,
        }
        outputs = {name: job() for name, job in jobs.items()}
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(options.repeats):
            for name, job in jobs.items():
                start = time.perf_counter(), time.process_time()
                job()
                seconds[name].append(time.perf_counter() - start[0])
                print(
                    f"  {name}: {seconds[name][-1]:.1f} s, CPU "
                    f"{time.process_time() - start[1]:.1f} s",
                    flush=True,
                )
    for name, written in outputs.items():
        speed = len(sources) / statistics.median(seconds[name])
        bleu = sacrebleu.corpus_bleu(written, [references]).score
        print(
            f"{name:24} {speed:7.1f} sentences/s  best {len(sources) / min(seconds[name]):7.1f}  "
            f"BLEU {bleu:.2f}"
        )
    if options.alone:
        int8 = loaded["int8"]
        alone = [int8.predict([text], beam=options.beam, length_penalty=1.0)[0] for text in sources]
        batch = int8.predict(sources, beam=options.beam, length_penalty=1.0)
        texts = sum(one.output != other.output for one, other in zip(alone, batch, strict=True))
        scores = sum(one.nbest != other.nbest for one, other in zip(alone, batch, strict=True))
        print(f"alone or in a batch: {texts} of {len(sources)} outputs differ, {scores} scores")


def peers(
    run: Path, folder: Path, sources: list[str], beam: int
) -> dict[str, Callable[[], list[str]]]:
    """CTranslate2 with the exported weights, in float32 and in int8."""
    tokenizers = regard.Run(run).tokenizers
    texts = [tokenizers["source"].tokens(ids) for ids in tokenizers["source"].encode_batch(sources)]
    regard.export_run(run, to="ctranslate2", out=folder / "model")
    jobs: dict[str, Callable[[], list[str]]] = {}
    for kind in ("float32", "int8"):
        workers = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
        translator = ctranslate2.Translator(str(folder / "model"), compute_type=kind, **workers)

        def translate(translator: Any = translator) -> list[str]:
            results = translator.translate_batch(
                texts,
                beam_size=beam,
                max_batch_size=MAX_SENTENCES,
                max_decoding_length=MAX_OUTPUT_TOKENS,
            )
            target = tokenizers["target"]
            return [target.decode(target.token_ids(result.hypotheses[0])) for result in results]

        jobs[f"CTranslate2, {kind}"] = translate
    return jobs


if __name__ == "__main__":
    main()
