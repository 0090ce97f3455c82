"""`import_run` turns a model of another tool into a run, `export_run` a run into a model of another
tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.config import apply_overrides, write_yaml
from regard.errors import CheckpointError, ConfigError, DataError, RegardError, did_you_mean
from regard.exchange import (
    bart,
    bert,
    ctranslate2,
    deberta,
    distilbert,
    electra,
    gpt2,
    m2m100,
    marian,
    modernbert,
    mpnet,
    roberta,
)
from regard.exchange.folder import (
    Architecture,
    Exported,
    Imported,
    ModelFolder,
    open_folder,
    render,
)
from regard.exchange.tokenizers import tokenizer_files
from regard.models.base import Contextual
from regard.recipes.recipe import recipe_of
from regard.runs.checkpoints import load_facts, save_checkpoint, step_name
from regard.runs.folder import locked, remove_partial_runs
from regard.runs.metrics_log import read_metrics
from regard.runs.run import Run
from regard.runs.weights import check_weights, save_weights
from regard.tasks.raw import check_max_length
from regard.tasks.reading import first_tokens
from regard.text.vectors import vector_text
from regard.text.writing import write_folder

ARCHITECTURES = (
    electra.ARCHITECTURE,
    roberta.ARCHITECTURE,
    distilbert.ARCHITECTURE,
    bert.ARCHITECTURE,
    mpnet.ARCHITECTURE,
    deberta.ARCHITECTURE,
    modernbert.ARCHITECTURE,
    gpt2.ARCHITECTURE,
    bart.ARCHITECTURE,
    m2m100.ARCHITECTURE,
    marian.ARCHITECTURE,
)
"""The architectures of `transformers`; a new one is a file and an entry here. The first that a run
can be is written."""
DEFAULT_NAMES = {
    kind: names[0] for architecture in ARCHITECTURES for kind, names in architecture.names.items()
}
"""`model_type` -> the architecture if config.json names none."""
READERS: dict[tuple[str, str], Callable[[ModelFolder], Imported]] = {
    (kind, name): architecture.read
    for architecture in ARCHITECTURES
    for kind, names in architecture.names.items()
    for name in names
}
"""`model_type` and architecture in config.json -> the function that reads such a folder."""
TOOLS: dict[str, Sequence[tuple[str, str]]] = {
    "huggingface": list(
        dict.fromkeys(run for architecture in ARCHITECTURES for run in architecture.runs)
    ),
    "ctranslate2": ctranslate2.SUPPORTED_MODELS,
    "word2vec": [],
}
"""Tool -> the tasks and kinds of model that can be exported to it; every model with word embeddings
can to word2vec."""
TOKENIZER_KINDS = {
    "WordPiece": "wordpiece",
    "BPE": "bpe",
    "Unigram": "unigram",
    "WordLevel": "word",
}
"""A model of the `tokenizers` library -> `tokenizer.kind`."""
CHANGEABLE = ("data", "head", "search", "evaluation")
"""The sections of a recipe that a model folder may leave open, except for the splits of the
data."""
DATA_SPLITS = ("data.train", "data.validation", "data.test")


def import_run(
    source: str | Path,
    *,
    out: str | Path,
    overrides: Sequence[str] = (),
    source_language: str | None = None,
    target_language: str | None = None,
) -> Run:
    """Turn the model of a `transformers` folder, or of a name on the Hugging Face Hub, into a run
    like any other.

    `transformers` itself is not needed for it. `overrides` set what the folder leaves open, such as
    head.no_answer=true. A model that translates between many languages needs `source_language` and
    `target_language`, such as ko and en.
    """
    languages = {"source_language": source_language, "target_language": target_language}
    overrides = [
        *overrides,
        *(f"data.{name}={language}" for name, language in languages.items() if language),
    ]
    target = Path(out)
    if target.exists():
        raise CheckpointError(
            "the run folder exists already", where=str(target), hint="give another --out"
        )
    for override in overrides:
        section, _, key = override.partition("=")[0].partition(".")
        if section not in CHANGEABLE or not key or f"{section}.{key}".startswith(DATA_SPLITS):
            hint = f"allowed are keys of {', '.join(CHANGEABLE)}, except {', '.join(DATA_SPLITS)}"
            raise ConfigError("the model folder decides this", where=override, hint=hint)
    folder = open_folder(source)
    if not isinstance(folder.config.get("model_type"), str):
        what = "it does not say which model it is: model_type is missing"
        hint = "expected: the config.json of a model that transformers saved"
        raise DataError(what, where=folder.config_path, hint=hint)
    kind = folder.config["model_type"]
    architecture = folder.architecture or DEFAULT_NAMES.get(kind, kind)
    if (kind, architecture) not in READERS:
        raise DataError(
            f"{architecture} of the type {kind!r} cannot be imported",
            where=folder.config_path,
            hint=_nearest(architecture, kind),
        )
    imported = READERS[kind, architecture](folder)

    def fill(partial: Path) -> None:
        with locked(partial):
            _write_run(partial, imported, folder, overrides)

    remove_partial_runs(target)
    write_folder(target, fill)
    return Run.open(target)


def _nearest(architecture: str, kind: str) -> str:
    """The architecture that can be imported and is most like this one: of the same type if
    possible, else with the same head."""
    names = [name for kind_read, name in READERS if kind_read == kind]
    if not names and architecture.endswith(("ForCausalLM", "LMHeadModel")):
        names = ["GPT2LMHeadModel"]  # which continues a text, too
    head = architecture[architecture.rfind("For") :] if "For" in architecture else "Model"
    names = names or [name for _, name in READERS if name.endswith(head)]
    names = names or [name for _, name in READERS]
    [nearest] = get_close_matches(architecture, names, n=1, cutoff=0.0)
    return f"the nearest that can be: {nearest}; supported types: {', '.join(DEFAULT_NAMES)}"


def _write_run(
    partial: Path, imported: Imported, folder: ModelFolder, overrides: Sequence[str]
) -> None:
    """Write a run without any training: its only checkpoint is that of step 0."""
    tokenizer = next(iter(imported.tokenizers.values()))
    joint = imported.tokenizers.joint or imported.model.get("tie") == "all"
    kind = TOKENIZER_KINDS[json.loads(tokenizer.to_json())["model"]["type"]]
    recipe: Any = recipe_of(
        {
            "task": imported.task,
            "tokenizer": {"kind": kind, "vocabulary": tokenizer.size, "joint": joint},
            "model": imported.model,
            "training": {"epochs": 1},
            **imported.sections,
            "data": {**imported.sections.get("data", {}), "train": []},
        }
    )
    if overrides:
        recipe = recipe_of(apply_overrides(recipe.model_dump(), overrides))
        labels = imported.sections.get("head", {}).get("labels")
        if labels is not None and recipe.head.labels != labels:
            hint = "they are the model's own, which config.json names; leave them out"
            raise ConfigError("the classes cannot be renamed", where="head.labels", hint=hint)
        if any(override.startswith("data.max_length=") for override in overrides):
            check_max_length(recipe, imported=True)
    if "target" in imported.tokenizers:
        _check_languages(imported, recipe, folder)
    origin = {"from": folder.name, "architectures": folder.config.get("architectures")}
    run = Run.create(partial, recipe, imported.tokenizers, origin)
    # a model of wrong sizes may be too large to build
    with torch.device("meta"), WithoutInitialValues():
        model = run.task.network.build()
    for name, expected in model.state_dict().items():
        tensor = imported.weights.get(name, expected)
        if tensor.shape != expected.shape:  # name the weight as in its file, if it is there
            stored = next(
                (key for key, other in folder.weights().items() if torch.equal(tensor, other)), name
            )
            there, here = (" x ".join(map(str, weight.shape)) for weight in (tensor, expected))
            what = f"{stored} is {there} in the weights, but {here} by this file"
            raise DataError(
                what, where=folder.config_path, hint="does one of the two belong to another model?"
            )
    check_weights(model, imported.weights, Path(folder.name))
    first = step_name(0)
    save_checkpoint(run.checkpoints / first, imported.weights, run.facts(0, []))
    for pointer in ("best", "last"):
        run.point(pointer, first)


def _check_languages(imported: Imported, recipe: Any, folder: ModelFolder) -> None:
    """Refuse a model of many languages without them, and languages that the vocabulary does not
    have."""
    data = recipe.data
    if imported.has_languages and not (data.source_language and data.target_language):
        what = "the model translates between many languages, and its folder names no two of them"
        hint = "give --source-language and --target-language, such as ko and en"
        raise ConfigError(what, where=folder.name, hint=hint)
    for side in ("source", "target"):
        first_tokens(recipe, imported.tokenizers, side)


class WithoutInitialValues(TorchFunctionMode):
    """New tensors keep the values that they have: on the device meta they have none, and torch would
    load its compiler to draw them."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def import_note(run: Run) -> str | None:
    """A note on what an imported run cannot do, or what its folder left open."""
    recipe: Any = run.recipe
    if recipe.task == "masked_language_modeling" and not recipe.model.masked_head:
        return (
            "no masked-LM head: it cannot predict [MASK]; use it for features "
            f"(regard predict {run.folder} --features) and for fine-tuning "
            f"(training.init={run.folder})"
        )
    if recipe.task == "question_answering" and recipe.head.no_answer is None:
        return (
            "it answers every question: its folder does not say whether it was trained on "
            "questions without an answer, "
            "as in SQuAD 2.0; if so, import it with --set head.no_answer=true"
        )
    return None


def export_run(
    run: str | Path | Run,
    *,
    to: str,
    out: str | Path,
    quantize: str | None = None,
    checkpoint: str = "best",
    accept_recipe: bool = False,
) -> Path:
    """Write a run as another tool reads it, into a new folder: `to` is huggingface, ctranslate2, or
    word2vec for the word vectors alone.

    `quantize` is for ctranslate2: the type that the weights are rounded to, such as int8.
    """
    run = Run.open(run, accept_recipe)
    target = Path(out)
    if to not in TOOLS:
        raise RegardError(f"unknown tool {to!r}", where="--to", hint=did_you_mean(to, TOOLS))
    if to != "ctranslate2" and quantize is not None:
        raise RegardError(
            "only ctranslate2 quantizes weights", where="--quantize", hint="leave it out"
        )
    if target.exists():
        raise CheckpointError(
            "the folder exists already", where=str(target), hint="give another --out"
        )
    task = run.recipe.task
    kind = run.recipe.model.kind
    if to == "word2vec":
        vectors = _word_vectors(run, checkpoint)
        if not vectors:
            what = "this model has no word embeddings"
            hint = "it cannot be exported"
            raise CheckpointError(what, where=str(run.folder), hint=hint)
        write_folder(target, lambda partial: _write_vectors(partial, run, vectors))
        return target
    if (task, kind) not in TOOLS[to]:
        allowed = ", ".join(f"{other} for {task}" for task, other in TOOLS[to])
        what = f"{kind} for {task} cannot be exported to {to}"
        raise CheckpointError(what, where=str(run.folder), hint=f"what can be exported: {allowed}")
    if any(tokenizer.cuts_morphemes for tokenizer in run.tokenizers.values()):
        what = f"{to} cannot cut words into morphemes as this run's tokenizer does"
        raise CheckpointError(what, where=str(run.folder), hint="train with another tokenizer.kind")
    if to == "ctranslate2":
        write_folder(target, ctranslate2.write(run, quantize, checkpoint))
    else:
        exported = _architecture_of(run).write(run, checkpoint)
        write_folder(target, lambda partial: _write_model(partial, run, exported, checkpoint))
    return target


def _architecture_of(run: Run) -> Architecture:
    """The architecture of `transformers` that a run is."""
    model = run.recipe.model
    return next(
        architecture
        for architecture in ARCHITECTURES
        if (run.recipe.task, model.kind) in architecture.runs and architecture.is_written(model)
    )


def _word_vectors(run: Run, checkpoint: str) -> dict[str, Tensor]:
    """The vectors of the words of each column: those of an embedding, or what a model makes of their
    letters."""
    model = run.load_model(checkpoint, "cpu")
    embeddings = getattr(model, "embeddings", {})
    vectors = {column: embedding.weight.detach() for column, embedding in embeddings.items()}
    if not vectors and isinstance(model, Contextual) and model.has_word_vectors:
        vectors["text"] = model.static_vectors(torch.arange(run.tokenizers["text"].size))
    return vectors


def _write_vectors(folder: Path, run: Run, vectors: Mapping[str, Tensor]) -> None:
    """Write one file per column, which `model.vectors` reads."""
    for column, vectors_VD in vectors.items():
        text = vector_text(run.tokenizers[column], vectors_VD.numpy())
        (folder / f"{column}.vec").write_text(text, encoding="utf-8")


def _write_model(folder: Path, run: Run, exported: Exported, checkpoint: str) -> None:
    """Fill a folder for `transformers`. A second tokenizer gets a subfolder, which AutoTokenizer
    reads by its name.

    The code of the model card runs as it is printed; its recipe names files without their folders.
    """
    step = load_facts(run.checkpoint(checkpoint)).get("step", 0)
    events = read_metrics(run.folder / "metrics.jsonl")
    validations = [
        event for event in events if event["event"] == "validation" and event["step"] <= step
    ]
    card = render(
        "model_card.md",
        name=run.folder.resolve().name,
        environment=_without_folders(run.environment),
        recipe=run.recipe,
        settings=write_yaml(_without_folders(run.recipe.model_dump())),
        joint=run.tokenizers.joint,
        architecture=exported.architecture,
        end=exported.end or exported.architecture,
        not_exported=exported.not_exported,
        sentences=bool(exported.files),
        step=step,
        metrics={
            name: value
            for name, value in (validations or [{}])[-1].items()
            if isinstance(value, float)
        },
    )
    config = {"architectures": [exported.architecture], "dtype": "float32", **exported.config}
    texts = {"README.md": card, "config.json": json.dumps(config, indent=1), **exported.files}
    if exported.generation:
        texts["generation_config.json"] = json.dumps(exported.generation, indent=1)
    longest = exported.longest
    if run.task.views.targets is None:  # else longer texts are read, too
        longest = min(longest, run.recipe.data.max_length)
    for number, tokenizer in enumerate(run.tokenizers.files.values()):
        place = "target/" if number else ""
        texts |= {
            place + name: text
            for name, text in tokenizer_files(tokenizer, exported, longest).items()
        }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    save_weights(folder / "model.safetensors", exported.weights, {"format": "pt"})


def export_note(out: Path) -> str | None:
    """A note on what a user of an exported folder could miss: AutoTokenizer alone reads only the
    source's vocabulary, and vectors are all that a model of texts read apart gives there."""
    if (out / "modules.json").exists():
        return (
            "it gives the vectors of texts, for sentence-transformers; the head that "
            "compares them stays in the run"
        )
    if not (out / "target").is_dir():
        return None
    return (
        "source and target have separate vocabularies: decode outputs with "
        f"AutoTokenizer.from_pretrained({str(out)!r}, subfolder='target'), as {out / 'README.md'} "
        "shows"
    )


def _without_folders(node: Any) -> Any:
    """Keep only the last part of paths, which would leak the folders of the machine that trained
    the model."""
    if isinstance(node, dict):
        return {key: _without_folders(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_folders(value) for value in node]
    return PurePath(node).name if isinstance(node, str) and PurePath(node).is_absolute() else node
