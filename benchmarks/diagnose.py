"""The time of a diagnosis of 1,000 Multi30k sentences, part by part.

    python benchmarks/diagnose.py FOLDER [--device cpu] [--run RUN]

FOLDER holds the folder `multi30k`. Without RUN the Transformer `tiny` is trained for a few hundred
steps first. That little has not learned to stop, so outputs may have 1.5 tokens for each one of the
source, and 10 more.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import regard

SENTENCES = 1000
TRAINING = [
    "tokenizer.vocabulary=4000",
    "training.steps=400",
    "training.batch_tokens=2048",
    "training.warmup=100",
    "training.validate_every=400",
    "training.decode=0",
    "training.ema=null",
]


LIMITS = ["search.max_length_ratio=1.5", "search.max_length_offset=10"]


def show(run: Path, device: str) -> None:
    found = regard.diagnose(run, device=device, limit=SENTENCES, overrides=LIMITS)
    tally = found.tally
    sweep = found.beam_sweep
    print(
        f"{tally.sentences:,} sentences, {tally.errors:,} errors, {tally.search_errors:,} of the "
        f"search; {device}\n"
    )
    print("| part | seconds |\n|---|---|")
    for part, seconds in found.seconds.items():
        print(f"| {part} | {seconds:.2f} |")
    print(f"| all | {sum(found.seconds.values()):.1f} |")
    assert sweep is not None
    print("\n| beam | BLEU | chrF | search errors | seconds |\n|---|---|---|---|---|")
    for width in sweep.widths:
        quality = f"{width.metrics['bleu']:.2f} | {width.metrics['chrf']:.2f}"
        print(f"| {width.beam} | {quality} | {width.tally.search_errors:,} | {width.seconds:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    run = options.run and options.run.resolve()
    os.chdir(options.folder)
    with tempfile.TemporaryDirectory() as work:
        if run is None:
            run = Path(work) / "run"
            regard.train(
                "multi30k-transformer",
                [*TRAINING, f"training.device={options.device}"],
                out=run,
                quiet=True,
            )
        show(run, options.device)


if __name__ == "__main__":
    main()
