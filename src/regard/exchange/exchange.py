"""`import_run` and `export_run`: a model of another tool -> a run, and a run -> a model of another tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.config import apply_overrides
from regard.errors import CheckpointError, ConfigError, DataError, RegardError, did_you_mean
from regard.exchange import bert, ctranslate2, gpt2, marian
from regard.exchange.card import model_card
from regard.exchange.folder import Exported, Imported, ModelFolder, open_folder, write_model
from regard.exchange.tokenizers import kind_of, tokenizer_files
from regard.recipes.recipe import recipe_of
from regard.runs.run import Checkpoint, Run, put_weights, save_checkpoint, step_name
from regard.tasks.raw import check_max_length
from regard.text.files import write_folder

READERS: dict[str, Callable[[ModelFolder], Imported]] = {
    **dict.fromkeys(bert.PRETRAINED, bert.read),
    **dict.fromkeys(bert.HEADED.values(), bert.read_headed),
    **dict.fromkeys(gpt2.ARCHITECTURES, gpt2.read),
    **dict.fromkeys(marian.ARCHITECTURES.values(), marian.read),
}
"""Architecture in config.json -> how such a folder is read."""
DEFAULTS = {
    "bert": "BertModel",
    "gpt2": "GPT2Model",
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
}
"""`model_type` -> the architecture, where config.json names none."""
WRITERS: dict[tuple[str, str], Callable[[Run, str], Exported]] = {
    ("masked_language_modeling", "bert"): bert.write,
    ("language_modeling", "gpt"): gpt2.write,
    ("translation", "transformer"): marian.write,
    ("summarization", "transformer"): marian.write,
    **{(task, "bert"): bert.write_headed for task in bert.HEADED},
}
"""Task and kind of model -> how a checkpoint of a run is written for `transformers`."""
TOOLS: dict[str, Sequence[tuple[str, str]]] = {
    "huggingface": list(WRITERS),
    "ctranslate2": [("translation", "transformer"), ("summarization", "transformer")],
}
"""Tool -> the tasks and kinds of model that can be exported to it."""
CHANGEABLE = ("data", "head", "search", "evaluation")
"""The sections of a recipe that a model folder may leave open."""


def import_run(source: str | Path, *, out: str | Path, overrides: Sequence[str] = ()) -> Run:
    """The model of a `transformers` folder, or of a name on the Hugging Face Hub, as a run like any other.

    `transformers` itself is not needed for it. `overrides` set what the folder leaves open, such as
    head.no_answer=true.
    """
    target = Path(out)
    _refuse_existing(target, "run folder")
    _check_overrides(overrides)
    folder = open_folder(source)
    imported = READERS[_architecture(folder)](folder)
    write_folder(target, lambda partial: _write_run(partial, imported, folder, overrides))
    return Run.open(target)


def _architecture(folder: ModelFolder) -> str:
    kind, names = str(folder.config.get("model_type")), folder.config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else DEFAULTS.get(kind, kind)
    if name not in READERS or kind not in DEFAULTS:
        what = f"{'an' if name[:1] in 'AEIOU' else 'a'} {name} of the type {kind!r} cannot be imported"
        raise DataError(what, where=folder.config_path, hint=f"supported: {', '.join(READERS)}")
    return name


def _check_overrides(overrides: Sequence[str]) -> None:
    """Refuse overrides of what the folder itself decides."""
    for override in overrides:
        path, equals, _ = override.partition("=")
        section, *below = path.split(".")
        if not equals:
            raise ConfigError("an override is key=value", where=override, hint="for example head.no_answer=true")
        if section not in CHANGEABLE or (section == "data" and below[:1] in (["train"], ["validation"], ["test"])):
            hint = f"allowed: {', '.join(CHANGEABLE)}, except data.train, data.validation and data.test"
            raise ConfigError("the model folder decides this", where=override, hint=hint)
        if not below:
            hint = f"name one of its keys: {section}.KEY=VALUE"
            raise ConfigError("a section is not set as a whole", where=override, hint=hint)


def _write_run(partial: Path, imported: Imported, folder: ModelFolder, overrides: Sequence[str]) -> None:
    """A run without any training: its only checkpoint is that of step 0."""
    first = next(iter(imported.tokenizers.values()))
    joint = imported.tokenizers.joint or imported.model.get("tie") == "all"
    recipe = recipe_of(
        {
            "task": imported.task,
            "tokenizer": {"kind": kind_of(first), "vocabulary": first.size, "joint": joint},
            "model": imported.model,
            "training": {"epochs": 1},
            **imported.sections,
            "data": {"train": []} | imported.sections.get("data", {}),
        }
    )
    if overrides:
        recipe = recipe_of(apply_overrides(recipe.model_dump(), overrides))
        _check_recipe(recipe, imported, folder, overrides)
    origin = {"from": folder.name, "architectures": folder.config.get("architectures")}
    run = Run.create(partial, recipe, imported.tokenizers, origin)
    model = run.task.model()
    _check_shapes(model, imported, folder)
    put_weights(model, imported.weights, Path(folder.name))
    facts = {"step": 0, "best": [], "tokenizer": imported.tokenizers.fingerprint}
    save_checkpoint(run.checkpoints / step_name(0), Checkpoint(imported.weights, facts))
    for name in ("best", "last"):
        run.point(name, step_name(0))


def _check_recipe(recipe: Any, imported: Imported, folder: ModelFolder, overrides: Sequence[str]) -> None:
    """Refuse overrides that the weights do not fit."""
    labels = imported.sections.get("head", {}).get("labels")
    if labels is not None and recipe.head.labels != labels:
        hint = "they are the model's own, which config.json names; leave them out"
        raise ConfigError("the classes cannot be renamed", where="head.labels", hint=hint)
    if any(override.startswith("data.max_length=") for override in overrides):
        check_max_length(recipe.data.max_length, getattr(recipe.model, "max_positions", None), folder.name)


def _check_shapes(model: nn.Module, imported: Imported, folder: ModelFolder) -> None:
    """Refuse weights of other sizes than config.json has; a weight is named as in its file, where it is stored so."""
    for ours, expected in model.state_dict().items():
        tensor = imported.weights.get(ours, expected)
        if tensor.shape != expected.shape:
            name = next((name for name, other in folder.weights().items() if torch.equal(tensor, other)), ours)
            there, here = (" x ".join(map(str, one.shape)) for one in (tensor, expected))
            what = f"{name} is {there} in the weights, but {here} by this file"
            raise DataError(what, where=folder.config_path, hint="is one of the two that of another model?")


def import_note(run: Run) -> str | None:
    """What an imported run cannot do, or what its folder left open."""
    recipe: Any = run.recipe
    if recipe.task == "masked_language_modeling" and not recipe.model.masked_head:
        return (
            "no masked-LM head: it cannot predict [MASK]; use it for features "
            f"(regard predict {run.folder} --features) and for fine-tuning (training.init={run.folder})"
        )
    if recipe.task == "question_answering" and recipe.head.no_answer is None:
        return (
            "it answers every question: its folder does not say whether it was trained on questions without an answer, "
            "as in SQuAD 2.0; if so, import it with --set head.no_answer=true"
        )
    return None


def export_run(
    run: str | Path | Run, *, to: str, out: str | Path, quantize: str | None = None, checkpoint: str = "best"
) -> Path:
    """Write a run as another tool reads it, into a new folder: `to` is huggingface or ctranslate2.

    `quantize` is for ctranslate2: the type that the weights are rounded to, such as int8.
    """
    run, target = run if isinstance(run, Run) else Run.open(run), Path(out)
    if to not in TOOLS:
        raise RegardError(f"unknown tool {to!r}", where="--to", hint=did_you_mean(to, TOOLS))
    if to != "ctranslate2" and quantize is not None:
        raise RegardError("only ctranslate2 quantizes weights", where="--quantize", hint="leave it out")
    _refuse_existing(target, "folder")
    task, kind = run.recipe.task, run.recipe.model.kind
    if (task, kind) not in TOOLS[to]:
        allowed = ", ".join(f"{other} for {task}" for task, other in TOOLS[to])
        what = f"{kind} for {task} cannot be exported to {to}"
        raise CheckpointError(what, where=str(run.folder), hint=f"what can be exported: {allowed}")
    if to == "ctranslate2":
        write_folder(target, ctranslate2.write(run, quantize, checkpoint))
    else:
        exported = WRITERS[task, kind](run, checkpoint)
        texts = {"README.md": model_card(run, exported, checkpoint), **_tokenizer_files(run, exported)}
        write_folder(target, lambda partial: write_model(partial, exported, texts))
    return target


def _tokenizer_files(run: Run, exported: Exported) -> dict[str, str]:
    """The files of one tokenizer, and those of a second one in a subfolder, which AutoTokenizer reads by its name."""
    texts: dict[str, str] = {}
    for number, (column, tokenizer) in enumerate(list(run.tokenizers.items())[: 1 if run.tokenizers.joint else None]):
        folder = f"{column}/" if number else ""
        texts |= {folder + name: text for name, text in tokenizer_files(tokenizer, exported).items()}
    return texts


def export_note(out: Path) -> str | None:
    """What a user of an exported folder could miss: AutoTokenizer alone reads only the source's vocabulary."""
    if not (out / "target").is_dir():
        return None
    return (
        "source and target have a vocabulary each: decode outputs with "
        f"AutoTokenizer.from_pretrained({str(out)!r}, subfolder='target'), as {out / 'README.md'} shows"
    )


def _refuse_existing(folder: Path, what: str) -> None:
    if folder.exists():
        raise CheckpointError(f"the {what} exists already", where=str(folder), hint="give another --out")
