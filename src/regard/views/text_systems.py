"""Systems that write a text for a source: decoded once, on the same sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import torch

from regard.config import Config
from regard.data.batches import Batch
from regard.data.dataset import Dataset
from regard.data.images import Picture
from regard.errors import ConfigError, DataError
from regard.layers.attention import recording
from regard.models.base import Generator, count_parameters, device_of
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.settings import device_named, examples_of, summed
from regard.tasks import TextToText
from regard.tasks.task import padded
from regard.tasks.text_to_text import LengthsOf, Source
from regard.text.files import TextFile, open_text
from regard.text.normalise import nfc
from regard.views.labels import label
from regard.views.lengths import Unit, length_buckets, lengths_in, unit_of
from regard.views.report import HeatMap
from regard.views.search_errors import Tally, decode_best, judge, score_references, sentence_chrf
from regard.views.significance import for_metrics, paired_tests_of_texts
from regard.views.systems import Measured, Plan, Rows, System, check_same

DIFFER_MOST = 20
"""Sentences on which the systems differ most that are shown."""
SHOWN_AT = (0.1, 0.5, 0.9)
"""Which sentences are shown with their attention: those at these quantiles of length."""
SPEED = ("decoding_seconds", "sentences_per_second", "tokens_per_second")
LONGEST_MAP = 40
"""Source tokens beyond which a heat map no longer fits beside another."""


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

    def measured(self, lengths_of: LengthsOf) -> tuple[str, ...]:
        """The texts whose lengths count."""
        return self.sources if lengths_of == "source" else tuple(texts[0] for texts in self.references)


def measure_texts(plan: Plan) -> Measured:
    """Every run decodes once; all that is measured is measured on that, as the first run's recipe says."""
    runs, recipes = plan.runs, plan.recipes
    if any(recipe.search.sample for recipe in recipes):
        raise ConfigError("samples cannot be compared", where="search.sample", hint="--set search.sample=false")
    datasets: list[Dataset] = [
        examples_of(run.under(recipe), plan.split, plan.files) for run, recipe in zip(runs, recipes, strict=True)
    ]
    inputs = [run.task.by_input(dataset) for run, dataset in zip(runs, datasets, strict=True)]
    every = [Texts.of(dataset, examples) for dataset, examples in zip(datasets, inputs, strict=True)]
    check_same(runs, every, "sentences")
    texts, task = every[0], runs[0].task
    others = [read_hypotheses(name, file, texts) for name, file in plan.hypotheses.items()]
    lengths = [
        [len(task.source(dataset, examples[0])) for examples in own]
        for dataset, own in zip(datasets, inputs, strict=True)
    ]
    shown = _shown(texts.measured(task.lengths_of), lengths)
    systems = []
    for name, run, recipe, dataset in zip(plan.names, runs, recipes, datasets, strict=True):
        model = run.load_model(plan.checkpoint, device_named(plan.device))
        moved = summed(partial(plan.progress, name), len(texts.sources))
        systems.append(decode_run(name, run, recipe, model, dataset, shown, moved))
    return _measured((*systems, *others), texts, plan, shown)


def read_hypotheses(name: str, file: str | Path, texts: Texts) -> System:
    """The outputs of another system, one a line."""
    opened: TextFile = open_text(str(file), Path())
    lines = [nfc(line.strip()) for line in opened.lines()]
    if len(lines) != len(texts.sources):
        what = f"{len(lines):,} lines for {len(texts.sources):,} inputs"
        several = "; one with several references is one input" if any(len(one) > 1 for one in texts.references) else ""
        raise DataError(what, where=str(file), hint=f"one output a line, in the order of the inputs{several}")
    return System(name, tuple(lines), speed=dict.fromkeys(SPEED))


def decode_run(
    name: str,
    run: Run,
    recipe: AnyRecipe,
    model: Generator,
    dataset: Dataset,
    shown: Sequence[int],
    moved: Callable[[int], None],
) -> System:
    """The run's outputs, the time they took, its search and model errors, and some alignments."""
    inputs = run.task.by_input(dataset)
    encoded = [run.task.source(dataset, examples[0]) for examples in inputs]
    # A device gets ready with its first sentence, which is not timed: the first run is not to pay for it.
    decode_best(run, model, [min(encoded, key=len)], recipe.search, lambda done: None)
    started = time.perf_counter()
    written = decode_best(run, model, encoded, recipe.search, moved)
    seconds = time.perf_counter() - started
    tokens = sum(len(hypothesis.tokens) for hypothesis in written)
    scored = score_references(run, model, dataset, inputs, recipe.search)
    judged = judge(run, scored, written, lowercase=getattr(recipe.evaluation, "lowercase", False))
    attended = shown if model.alignment else ()
    return System(
        name,
        tuple(nfc(sentence.output) for sentence in judged),
        run,
        recipe,
        parameters=count_parameters(model),
        speed=dict(zip(SPEED, (seconds, len(written) / seconds, tokens / seconds), strict=True)),
        tally=Tally.of(judged),
        alignments={row: alignment_of(run, model, encoded[row], written[row].tokens, name) for row in attended},
    )


def alignment_of(run: Run, model: Generator, source: Source, target_ids: Sequence[int], title: str) -> HeatMap:
    """Attention over the source, the mean over layers and heads (Bahdanau et al. 2015, arXiv:1409.0473, figure 3)."""
    target = run.tokenizers["target"]
    batch = Batch(run.task.source_batch([source]), padded([[target.begin, *target_ids]], target.pad))
    with torch.inference_mode(), recording() as recorded:
        model(batch.to(device_of(model)))
    weights = [weights for name, weights in recorded.by_name(model).items() if fnmatch(name, model.alignment)]
    weights_TS = torch.cat(weights, dim=1)[0].mean(0).float().cpu().numpy()
    if isinstance(source, Picture):
        columns = tuple(source.names())
    else:
        tokenizer = run.tokenizers["source"]
        columns = tuple(tokenizer.pieces([*source, tokenizer.end]))
    return HeatMap([*map(label, target.pieces(target_ids))], [*map(label, columns)], weights_TS, title)


def _shown(texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Short, medium and long sentences, among those whose heat map is small enough for every run."""
    fitting = [row for row in range(len(texts)) if all(lengths[row] < LONGEST_MAP for lengths in tokens)]
    lengths = lengths_in("characters", texts)
    ordered = sorted(fitting, key=lambda row: lengths[row])
    return tuple(dict.fromkeys(ordered[round(share * (len(ordered) - 1))] for share in SHOWN_AT)) if ordered else ()


# ------------------------------------------------------------------------------------------------------------ tables


def _measured(systems: tuple[System, ...], texts: Texts, plan: Plan, shown: Sequence[int]) -> Measured:
    task, config, progress = plan.runs[0].task, plan.recipes[0].evaluation, plan.progress
    references = for_metrics(texts.references)
    every = {system.name: task.metrics(system.outputs, references, config) for system in systems}
    first = every[systems[0].name]
    metrics = [name for name, value in first.items() if isinstance(value, float)]
    signatures = {name.removesuffix("_signature"): text for name, text in first.items() if isinstance(text, str)}
    progress("testing", 0, len(metrics))
    outputs = {system.name: system.outputs for system in sorted(systems, key=lambda one: one.name != plan.baseline)}
    moved = summed(partial(progress, "testing"), len(metrics))
    tests = paired_tests_of_texts(outputs, texts.references, task, config, metrics, moved)
    chrf = {
        one.name: sentence_chrf(one.outputs, texts.references, lowercase=getattr(config, "lowercase", False))
        for one in systems
    }
    unit = unit_of(texts.measured(task.lengths_of))
    tables = {
        "lengths": _lengths_table(systems, texts, unit, task, config, metrics),
        "errors": _errors_table(systems),
        "examples": _sentences_table(shown, systems, texts, chrf),
        "differ_most": _sentences_table(_differ_most(chrf, len(texts.sources)), systems, texts, chrf),
    }
    facts = {"signatures": signatures, "length_unit": unit, "lengths_of": task.lengths_of}
    scores = {name: {metric: own[metric] for metric in metrics} for name, own in every.items()}
    return Measured("sentences", len(texts.sources), systems, scores, tests, tables, facts, decodes=True)


def _lengths_table(
    systems: Sequence[System], texts: Texts, unit: Unit, task: TextToText, config: Config, metrics: Sequence[str]
) -> Rows:
    """The task's metrics of every system on the sentences of each length."""
    table: Rows = []
    for bucket in length_buckets(lengths_in(unit, texts.measured(task.lengths_of))):
        references = for_metrics([texts.references[row] for row in bucket.rows])
        lengths = {"from": bucket.shortest, "to": bucket.longest, "mean_length": bucket.mean}
        for system in systems:
            scores = task.metrics([system.outputs[row] for row in bucket.rows], references, config)
            counted = {"sentences": len(bucket.rows), "system": system.name}
            table.append(lengths | counted | {metric: scores[metric] for metric in metrics})
    return table


def _errors_table(systems: Sequence[System]) -> Rows:
    table: Rows = []
    for system in systems:
        if system.tally is not None:
            low, high = system.tally.shares["search_errors"].interval
            interval = {"search_errors_low": low, "search_errors_high": high}
            table.append({"system": system.name, **system.tally.counts, **interval})
    return table


def _sentences_table(
    rows: Sequence[int], systems: Sequence[System], texts: Texts, chrf: Mapping[str, Sequence[float]]
) -> Rows:
    """Some sentences, counted from 1, with every system's output."""
    return [
        {
            "sentence": row + 1,
            "source": texts.sources[row],
            "reference": " / ".join(texts.references[row]),
            "system": system.name,
            "output": system.outputs[row],
            "sentence_chrf": chrf[system.name][row],
        }
        for row in rows
        for system in systems
    ]


def _differ_most(chrf: Mapping[str, Sequence[float]], sentences: int) -> list[int]:
    """The sentences with the largest difference of the best and the worst output, if there is any."""
    gaps = [max(own[row] for own in chrf.values()) - min(own[row] for own in chrf.values()) for row in range(sentences)]
    ordered = sorted(range(sentences), key=lambda row: (-gaps[row], row))
    return [row for row in ordered[:DIFFER_MOST] if gaps[row] > 0]
