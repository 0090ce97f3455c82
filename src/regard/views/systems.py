"""What is compared: runs, and the outputs of other systems; each decoded once, on the same sentences."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from regard.data.batch import Batch
from regard.data.dataset import Dataset
from regard.data.images import Picture
from regard.errors import DataError
from regard.layers.attention import recording
from regard.models.base import Generator, count_parameters, device_of
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.run import read_metrics
from regard.runs.splits import SplitName, examples_of
from regard.search import Hypothesis, SearchConfig
from regard.tasks.inputs import Encoded, padded, sources_of
from regard.tasks.text_to_text import LengthsOf
from regard.text.files import TextFile, open_text
from regard.text.normalise import nfc
from regard.views.alignment import Alignment
from regard.views.references import wanted_of
from regard.views.tallies import Tally
from regard.views.verdicts import Judged, sentence_chrf


@dataclass(frozen=True)
class Texts:
    """The sentences that all systems are measured on, in Unicode's NFC, which models write."""

    sources: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    """All that there are of each."""

    @classmethod
    def of(cls, dataset: Dataset, inputs: Sequence[Sequence[int]]) -> Texts:
        """Of inputs, each given by its examples."""
        source, target = (tuple(map(nfc, dataset.texts[name])) for name in ("source", "target"))
        references = tuple(tuple(target[row] for row in examples) for examples in inputs)
        return cls(tuple(source[examples[0]] for examples in inputs), references)

    def __len__(self) -> int:
        return len(self.sources)

    def measured(self, lengths_of: LengthsOf) -> tuple[str, ...]:
        """The texts whose lengths count."""
        return self.sources if lengths_of == "source" else tuple(all_of[0] for all_of in self.references)


@dataclass(frozen=True, eq=False)
class System:
    """One column of the comparison: what was written for every sentence, and what that took."""

    name: str
    outputs: tuple[str, ...]
    run: Run | None = None
    """None for outputs that came from a file."""
    recipe: AnyRecipe | None = None
    """The run's, with the search asked for now."""
    parameters: int | None = None
    seconds: float | None = None
    """What decoding all sentences took here, without loading the model."""
    tokens: int = 0
    """Target tokens that were written, `</s>` included."""
    tally: Tally | None = None
    """Whose fault the errors are."""
    alignments: Mapping[int, Alignment] = field(default_factory=dict)
    """Where the model looked, for the sentences that are shown; none for a model without attention."""

    @property
    def speed(self) -> dict[str, float | None]:
        """Sentences and target tokens a second."""
        seconds = self.seconds
        return {
            "decoding_seconds": seconds,
            "sentences_per_second": len(self.outputs) / seconds if seconds else None,
            "tokens_per_second": self.tokens / seconds if seconds else None,
        }


# ------------------------------------------------------------------------------------------------------ runs, files


def names_of(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its folder's, its path where two folders are named alike, a number where that is no help."""
    names = [run.folder.resolve().name for run in runs]
    for other in ([str(run.folder) for run in runs], [f"{run.folder} ({n})" for n, run in enumerate(runs, 1)]):
        counts = Counter(names)
        names = [one if counts[one] == 1 else longer for one, longer in zip(names, other, strict=True)]
    return names


def same_task(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if run.recipe.task != first.recipe.task:
            what = f"the run's task is {run.recipe.task}, that of {first.folder} is {first.recipe.task}"
            raise DataError(what, where=str(run.folder), hint="compare runs of one task")


def same_sentences(runs: Sequence[Run], split: SplitName | None, files: Sequence[str]) -> tuple[Texts, list[Dataset]]:
    """The sentences, and each run's own tokens of them."""
    datasets = [examples_of(run, split, files) for run in runs]
    found = [Texts.of(dataset, run.task.by_input(dataset)) for run, dataset in zip(runs, datasets, strict=True)]
    for run, texts in zip(runs, found, strict=True):
        if texts != found[0]:
            what = f"its examples are not those of {runs[0].folder}"
            hint = "give the sentences to compare on with --file; a split drawn by the seed differs from run to run"
            raise DataError(what, where=str(run.folder), hint=hint)
    return found[0], datasets


def read_hypotheses(name: str, file: str | Path, texts: Texts) -> System:
    """The outputs of another system, one a line."""
    opened: TextFile = open_text(str(file), Path())
    lines = [nfc(line.strip()) for line in opened.lines()]
    if len(lines) != len(texts):
        what = f"{len(lines):,} lines for {len(texts):,} inputs"
        several = "; one with several references is one input" if any(len(one) > 1 for one in texts.references) else ""
        raise DataError(what, where=str(file), hint=f"one output a line, in the order of the inputs{several}")
    return System(name, tuple(lines))


def decoded(
    name: str,
    run: Run,
    recipe: AnyRecipe,
    model: Generator,
    dataset: Dataset,
    shown: Sequence[int],
    progress: Callable[[int], None],
) -> System:
    """The run's outputs for the sentences, the time they took, whose fault the errors are, and some alignments."""
    inputs = run.task.by_input(dataset)
    encoded = [run.task.source(dataset, examples[0]) for examples in inputs]
    written, seconds = _timed(run, recipe.search, model, encoded, progress)
    outputs = [run.tokenizers["target"].decode(one.tokens) for one in written]
    wanted = wanted_of(run, model, dataset, inputs, recipe.search)
    chrf = sentence_chrf(outputs, [one.references for one in wanted], lowercase=recipe.evaluation.lowercase)
    return System(
        name,
        tuple(map(nfc, outputs)),
        run,
        recipe,
        parameters=count_parameters(model),
        seconds=seconds,
        tokens=sum(len(one.tokens) for one in written),
        tally=Tally.of([Judged(*one) for one in zip(wanted, written, outputs, chrf, strict=True)]),
        alignments={row: alignment_of(run, model, encoded[row], written[row].tokens) for row in shown}
        if model.alignment
        else {},
    )


def _timed(
    run: Run, search: SearchConfig, model: Generator, encoded: Sequence[Encoded], progress: Callable[[int], None]
) -> tuple[list[Hypothesis], float]:
    """The best hypothesis for each source, and the seconds that the search took."""
    # A device sets itself up with the first sentence; the run that happens to be first is not to pay for it.
    list(run.task.decode(model, [min(encoded, key=len)], search))
    found: dict[int, Hypothesis] = {}
    started = time.perf_counter()
    for rows, hypotheses in run.task.decode(model, encoded, search):
        found.update((row, best[0]) for row, best in zip(rows, hypotheses, strict=True))
        progress(len(rows))
    return [found[row] for row in range(len(encoded))], time.perf_counter() - started


def alignment_of(run: Run, model: Generator, source: Encoded, target_ids: Sequence[int]) -> Alignment:
    """Where the model looked while it wrote: the mean of its attentions over the source."""
    target = run.tokenizers["target"]
    batch = Batch(sources_of([source], run.tokenizers), padded([[target.begin, *target_ids]], target.pad))
    with torch.inference_mode(), recording() as recorded:
        model(batch.to(device_of(model)))
    looks = [weights for name, weights in recorded.by_name(model).items() if fnmatch(name, model.alignment)]
    weights_TS = torch.cat(looks, dim=1)[0].mean(0).float().cpu().numpy()
    return Alignment(_pieces(run, source), tuple(target.pieces(target_ids)), weights_TS)


def _pieces(run: Run, source: Encoded) -> tuple[str, ...]:
    """A source's pieces with `</s>`, or the names of an image's regions."""
    if isinstance(source, Picture):
        return tuple(source.names())
    tokenizer = run.tokenizers["source"]
    return tuple(tokenizer.pieces([*source, tokenizer.end]))


# ----------------------------------------------------------------------------------------------------------- recipes


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """A recipe's leaves by their config paths: `data.train.0.corpus`."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if items is None:
        return {path: tree}
    return {
        key: value for name, part in items for key, value in flat(part, f"{path}.{name}" if path else str(name)).items()
    }


def differences(recipes: Mapping[str, AnyRecipe]) -> list[dict[str, Any]]:
    """The config paths on which recipes differ, each with its value in every recipe; None where it has no such path."""
    leaves = {name: flat(recipe.model_dump(mode="json")) for name, recipe in recipes.items()}
    found = dict.fromkeys(path for one in leaves.values() for path in one)
    sections = list(dict.fromkeys(path.partition(".")[0] for path in found))
    paths = sorted(found, key=lambda path: sections.index(path.partition(".")[0]))
    return [
        {"key": path, **{name: one.get(path) for name, one in leaves.items()}}
        for path in paths
        if len({json.dumps(one.get(path, "no such path")) for one in leaves.values()}) > 1
    ]


def groups_of(systems: Sequence[System]) -> dict[str, list[System]]:
    """Systems by what they are apart from the seed of their training; a group's name is what its members' share.

    Runs with the same seed are not repetitions of each other, so each of them begins a group of its own.
    """
    found: dict[tuple[str, int], list[System]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for system in systems:
        if system.recipe is None:
            found[system.name, 0] = [system]
            continue
        tree = system.recipe.model_dump(mode="json")
        seed = tree["training"].pop("seed")
        key = json.dumps(tree, sort_keys=True)
        found.setdefault((key, seen[key, seed]), []).append(system)
        seen[key, seed] += 1
    return {_group_name([one.name for one in group]): group for group in found.values()}


def _group_name(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    shared = re.sub(r"([-_. ]+seed)?[-_. ]*\d*$", "", "".join(column[0] for column in letters))
    return f"{shared or names[0]} ({len(names)} seeds)"


# --------------------------------------------------------------------------------------------------------- training


def learning_curve(system: System) -> list[dict[str, Any]]:
    """The validations in a run's log: step, loss, perplexity and what metrics the task has."""
    if system.run is None:
        return []
    lines = (line for line in read_metrics(system.run.folder / "metrics.jsonl") if line["event"] == "validation")
    return [{name: value for name, value in line.items() if isinstance(value, int | float)} for line in lines]


def training_time(system: System) -> dict[str, float | int | None]:
    """Steps and seconds of training by the run's log; validations and the start are not in it."""
    if system.run is None:
        return {"training_steps": None, "training_seconds": None}
    step, seconds = 0, 0.0
    for line in read_metrics(system.run.folder / "metrics.jsonl"):
        if line["event"] == "train":
            seconds += line["seconds_per_step"] * (line["step"] - step)
            step = line["step"]
    return {"training_steps": step, "training_seconds": seconds}
