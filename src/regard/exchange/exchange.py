"""`import_run` and `export_run`: a model of another tool -> a run, and a run -> what another tool reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from regard.config import apply_overrides
from regard.errors import CheckpointError, ConfigError, DataError, RegardError, did_you_mean
from regard.exchange import bert, bert_heads, gpt2, marian
from regard.exchange.card import model_card
from regard.exchange.exchanged import Exported, Imported
from regard.exchange.folder import ModelFolder, open_folder
from regard.exchange.vocabularies import kind_of, tokenizer_files
from regard.recipes.recipe import recipe_of
from regard.runs.checkpoints import Checkpoint, save_checkpoint, step_name
from regard.runs.run import Run, put_weights
from regard.tasks import PRETRAINING
from regard.tasks.raw import check_max_length
from regard.text.files import write_folder

READERS: dict[str, Callable[[ModelFolder], Imported]] = {
    **dict.fromkeys(("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForNextSentencePrediction"), bert.read),
    **dict.fromkeys(bert_heads.ARCHITECTURES.values(), bert_heads.read),
    **dict.fromkeys(("GPT2Model", "GPT2LMHeadModel"), gpt2.read),
    **dict.fromkeys(marian.ARCHITECTURES.values(), marian.read),
}
"""The architecture that config.json names -> how such a folder is read."""
UNNAMED = {
    "bert": "BertModel",
    "gpt2": "GPT2Model",
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
}
"""`model_type` -> the architecture, where config.json names none."""
WRITERS: dict[tuple[str, str], Callable[[Run, Any], Exported]] = {
    ("masked_language_modeling", "bert"): bert.write,
    ("language_modeling", "gpt"): gpt2.write,
    ("translation", "transformer"): marian.write,
    ("summarization", "transformer"): marian.write,
    **{(task, "bert"): bert_heads.write for task in bert_heads.ARCHITECTURES},
}
"""Task and kind of model -> how it is written for `transformers`."""
UNTOLD = ("data", "head", "search", "evaluation")
"""The sections of a recipe that a folder may leave open."""
TOOLS = ("huggingface", "ctranslate2")


def import_run(source: str | Path, *, out: str | Path, overrides: Sequence[str] = ()) -> Run:
    """The model of a `transformers` folder, or of a name on the Hugging Face Hub, as a run like any other.

    `transformers` itself is not needed for it. `overrides` say what the folder does not, such as head.no_answer=true.
    """
    target = Path(out)
    _refuse_existing(target, "run folder")
    _refuse_told(overrides)
    folder = open_folder(source)
    found = READERS[_architecture(folder)](folder)
    write_folder(target, lambda aside: _write_run(aside, found, folder, overrides))
    return Run.open(target)


def _architecture(folder: ModelFolder) -> str:
    kind, named = str(folder.config.get("model_type")), folder.config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else UNNAMED.get(kind, kind)
    if name not in READERS or kind not in UNNAMED:
        what = f"{'an' if name[:1] in 'AEIOU' else 'a'} {name} of the type {kind!r} cannot be imported"
        raise DataError(what, where=str(folder.path / "config.json"), hint=f"supported: {', '.join(READERS)}")
    return name


def _refuse_told(overrides: Sequence[str]) -> None:
    """Refuse changes to what the folder says itself."""
    for override in overrides:
        path, equals, _ = override.partition("=")
        section, *below = path.split(".")
        if not equals:
            raise ConfigError("an override is key=value", where=override, hint="for example head.no_answer=true")
        if section not in UNTOLD or (section == "data" and below[:1] in (["train"], ["validation"], ["test"])):
            hint = f"allowed: {', '.join(UNTOLD)}, less what is trained or measured on"
            raise ConfigError("is what the folder of the model says", where=override, hint=hint)
        if not below:
            hint = f"name one of its keys: {section}.KEY=VALUE"
            raise ConfigError("a section is not set as a whole", where=override, hint=hint)


def _refuse_unfit(recipe: Any, found: Imported, folder: ModelFolder, overrides: Sequence[str]) -> None:
    """Refuse settings that are not those of the weights."""
    labels = found.sections.get("head", {}).get("labels")
    if labels is not None and recipe.head.labels != labels:
        hint = "they are the model's own, which config.json names; leave them out"
        raise ConfigError("the classes cannot be renamed", where="head.labels", hint=hint)
    if any(override.startswith("data.max_length=") for override in overrides):
        check_max_length(recipe.data.max_length, getattr(recipe.model, "max_positions", None), folder.name)


def _write_run(aside: Path, found: Imported, folder: ModelFolder, overrides: Sequence[str]) -> None:
    """A run that has been through no training: its only checkpoint is that of step 0."""
    first = next(iter(found.tokenizers.values()))
    joint = found.tokenizers.joint or found.model.get("tie") == "all"
    tree = {
        "task": found.task,
        "tokenizer": {"kind": kind_of(first), "vocabulary": first.size, "joint": joint},
        "model": found.model,
        "training": {"epochs": 1},
        **found.sections,
        "data": {"train": []} | found.sections.get("data", {}),
    }
    origin = {"from": folder.name, "architectures": folder.config.get("architectures")}
    recipe = recipe_of(tree)
    if overrides:
        recipe = recipe_of(apply_overrides(recipe.model_dump(), overrides))
        _refuse_unfit(recipe, found, folder, overrides)
    run = Run.create(aside, recipe, found.tokenizers, origin)
    model = run.build()
    _refuse_other_shapes(model, found, folder)
    put_weights(model, found.weights, Path(folder.name))
    facts = {"step": 0, "best": [], "tokenizer": found.tokenizers.fingerprint}
    save_checkpoint(run.checkpoints / step_name(0), Checkpoint(found.weights, facts))
    for name in ("best", "last"):
        run.point(name, step_name(0))


def _refuse_other_shapes(model: nn.Module, found: Imported, folder: ModelFolder) -> None:
    """Refuse weights of other sizes than config.json says, by their name in the file where they stand there as here."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wrong = {name: one for name, one in found.weights.items() if name in shapes and one.shape != shapes[name]}
    theirs = folder.weights() if wrong else {}
    named = {
        ours: name for ours, one in wrong.items() for name, other in theirs.items() if torch.equal(one, other)
    } or {name: name for name in wrong}
    for ours, name in list(named.items())[:1]:
        there, here = (" x ".join(map(str, shape)) for shape in (wrong[ours].shape, shapes[ours]))
        what = f"{name} is {there} in the weights, but {here} by this file"
        raise DataError(what, where=str(folder.path / "config.json"), hint="is one of the two that of another model?")


def export_run(
    run: str | Path | Run, *, to: str, out: str | Path, quantize: str | None = None, checkpoint: str = "best"
) -> Path:
    """Write a run as another tool reads it, into a new folder: `to` is huggingface or ctranslate2.

    `quantize` is for ctranslate2: the type of the numbers that the weights are rounded to, int8 for one.
    """
    run, target = run if isinstance(run, Run) else Run.open(run), Path(out)
    if to not in TOOLS:
        raise RegardError(f"unknown tool {to!r}", where="--to", hint=did_you_mean(to, TOOLS))
    _refuse_existing(target, "folder")
    if to == "ctranslate2":
        from regard.exchange.ctranslate2 import write_ctranslate2

        write_ctranslate2(run, target, quantize, checkpoint)
    elif quantize is not None:
        raise RegardError("weights are rounded for ctranslate2 only", where="--quantize", hint="leave it out")
    else:
        exported = _for_transformers(run, checkpoint)
        write_folder(target, lambda aside: _write_files(aside, run, exported, checkpoint))
    return target


def _for_transformers(run: Run, checkpoint: str) -> Exported:
    task, kind = run.recipe.task, run.recipe.model.kind
    if (task, kind) not in WRITERS:
        allowed = ", ".join(f"{other} for {task}" for task, other in WRITERS)
        what = f"{kind} for {task} cannot be written as a model of transformers"
        raise CheckpointError(what, where=str(run.folder), hint=f"what can be exported: {allowed}")
    return WRITERS[task, kind](run, run.load_model(checkpoint))


def _write_files(aside: Path, run: Run, exported: Exported, checkpoint: str) -> None:
    config = {"architectures": [exported.architecture], "dtype": "float32", **exported.config}
    texts = {
        "config.json": json.dumps(config, indent=1),
        "README.md": model_card(run, exported, checkpoint),
        **({"generation_config.json": json.dumps(exported.generation, indent=1)} if exported.generation else {}),
    }
    sides = list(run.tokenizers.items())[: 1 if run.tokenizers.joint else None]
    raw = run.task in PRETRAINING and bool(run.recipe.data.train)  # else the tokenizer stays as it came
    for number, (column, tokenizer) in enumerate(sides):
        folder = f"{column}/" if number else ""  # AutoTokenizer reads a second one with subfolder="target"
        texts |= {folder + name: text for name, text in tokenizer_files(tokenizer, exported, raw=raw).items()}
    for name, text in texts.items():
        (aside / name).parent.mkdir(exist_ok=True)
        (aside / name).write_text(text, encoding="utf-8")
    try:
        save_file(exported.weights, aside / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # what the library makes of a full disk
        raise OSError(str(error)) from None
    shutil.copymode(aside / "config.json", aside / "model.safetensors")  # which only its owner could read


def _refuse_existing(folder: Path, what: str) -> None:
    if folder.exists():
        raise CheckpointError(f"the {what} exists already", where=str(folder), hint="give another --out")
