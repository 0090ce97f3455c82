"""A chatbot on real Korean questions and answers: how good, and how varied, are its answers?

    python benchmarks/chatbot.py FOLDER [--epochs 40] [--keep RUN]

FOLDER holds ko_chatbot/ChatbotData.csv.xz (11,823 pairs). Trains the recipe `chat` with a larger
vocabulary and model, then answers the questions of the test part, which no training pair has. A model
that learned little gives the same few answers to everything, so distinct answers are counted beside
BLEU; the references are counted, too. About ten minutes on one CPU core.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import regard
from regard.runs import Run
from regard.runs.examples import examples_of

MODEL = {
    "kind": "transformer",
    "width": 192,
    "heads": 4,
    "feed_forward": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "norm": "pre",
    "dropout": 0.2,
    "tie": "all",
}
QUESTIONS = (
    "안녕",
    "너무 피곤해",
    "오늘 날씨 좋다",
    "배고파",
    "시험 망쳤어",
    "여자친구랑 헤어졌어",
    "짝사랑하는 사람이 생겼어",
    "주말에 뭐 할까?",
    "잠이 안 와",
    "고마워",
)
"""What somebody might say first; some of it is in the training data."""


def train(file: Path, epochs: int, out: Path) -> None:
    regard.train(
        "chat",
        {
            "data.train": {"file": str(file), "source": "Q", "target": "A"},
            "tokenizer.vocabulary": 4000,
            "model": MODEL,
            "training.epochs": epochs,
            "training.batch_tokens": 4096,
            "training.warmup": 200,
            "training.patience": None,
            "training.best": "chrf",
        },
        out=out,
    )


def variety(answers: Sequence[str]) -> str:
    """How many answers are distinct, and the share of the commonest one."""
    [(answer, times)] = Counter(answers).most_common(1)
    return f"{len({*answers})} distinct, {times / len(answers):.1%} are {answer!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="train into this folder, or use the run in it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = options.keep or Path(scratch) / "chat"
        if not run.exists():
            file = options.folder.resolve() / "ko_chatbot" / "ChatbotData.csv.xz"
            train(file, options.epochs, run)
        metrics = regard.evaluate(run, split="test")
        print(", ".join(f"{name} {metrics[name]:.1f}" for name in ("bleu", "chrf", "perplexity")))
        model = regard.load(run)
        texts = examples_of(Run.open(run), "test", []).texts
        answers = [answer.output for answer in model.predict([*texts["source"]])]
        print(f"{len(answers)} answers: {variety(answers)}")
        print(f"references: {variety([*texts['target']])}")
        for question, answer in zip(QUESTIONS, model.predict([*QUESTIONS]), strict=True):
            print(f"{question}  ->  {answer.output}")


if __name__ == "__main__":
    main()
