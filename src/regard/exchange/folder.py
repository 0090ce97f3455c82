"""A model folder of `transformers`: config.json, weights, tokenizer; or its name on the Hugging Face Hub.

Only JSON, safetensors and, restricted to plain tensors, pytorch_model.bin are read: no file can run code. torch is
imported where weights are read, so that a wrong folder is reported at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from regard.config import parse_yaml
from regard.errors import CheckpointError, ConfigError, DataError, import_extra

if TYPE_CHECKING:
    from torch import Tensor

    from regard.config import Config
    from regard.text.tokenizers import Tokenizers

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Files of weights that are read, whole or in shards, in order of preference."""
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".ot", ".onnx")
"""Suffixes of files of weights that are not read."""
TEXTS = ("*.json", "*.txt", "README.md", "*.spm", "spiece.model", "*/tokenizer*.json")
"""The other files that are fetched from the Hub."""
Fields = Mapping[str, tuple[str, float | None]]
"""Field of a model's config -> its name in config.json, and its default there; None for a required whole number."""


@dataclass(frozen=True)
class Imported:
    """A model folder, as parts of a run."""

    task: str
    model: dict[str, Any]
    """The section `model` of a recipe."""
    weights: dict[str, Tensor]
    tokenizers: Tokenizers
    sections: dict[str, Any] = field(default_factory=dict)
    """Other sections of a recipe, as far as the folder has them."""


@dataclass(frozen=True)
class Exported:
    """A run, as parts of a model folder."""

    architecture: str
    config: dict[str, Any]
    """config.json."""
    weights: dict[str, Tensor]
    template: tuple[str, ...]
    """The special tokens around a text `$A` and a second text `$B`, where the tokenizer has no template of its own."""
    generation: dict[str, Any] = field(default_factory=dict)
    """generation_config.json, of a model that generates."""
    raw_text: bool = False
    """Whether it was trained here on raw text, in which a run of white space is one space. An imported tokenizer is
    written as it was read."""


@dataclass(frozen=True)
class ModelFolder:
    """A folder on disk, and the name that the user gave."""

    path: Path
    name: str

    def json(self, file: str) -> dict[str, Any]:
        """The JSON object in a file; empty where there is no such file."""
        path = self.path / file
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise DataError(f"cannot be read as JSON: {error}", where=str(path)) from None
        if not isinstance(tree, dict):
            raise DataError("is not a JSON object", where=str(path))
        return tree

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.json("config.json")

    @property
    def config_path(self) -> str:
        return str(self.path / "config.json")

    @cached_property
    def datasets(self) -> list[str]:
        """Names of the datasets on the Hub that the model was trained on, as far as its model card lists them."""
        try:
            _, front, _ = (self.path / "README.md").read_text(encoding="utf-8").split("---\n", 2)
            names = parse_yaml(front, where="README.md").get("datasets")
        except (OSError, ValueError, ConfigError):  # a card may hold any text
            return []
        return [str(name) for name in (names if isinstance(names, list) else [names] if names else [])]

    def expect(self, supported: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse values in config.json that our models cannot have; the first one listed is the default."""
        for name, allowed in supported.items():
            value = self.config.get(name, allowed[0])
            if value not in allowed:
                hint = f"supported: {', '.join(json.dumps(one) for one in allowed)}"
                where = f"{self.config_path}: {name}"
                raise DataError(f"{json.dumps(value)} is not supported", where=where, hint=hint)

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number in config.json."""
        value = self.config.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool):
            raise DataError(f"{name} is missing or no whole number", where=self.config_path)
        return value

    def fields(self, fields: Fields) -> dict[str, Any]:
        """These fields of our config, from their names in config.json."""
        return {
            ours: self.number(theirs) if default is None else float(self.config.get(theirs, default))
            for ours, (theirs, default) in fields.items()
        }

    def weights(self) -> dict[str, Tensor]:
        """All weights by name, in single precision."""
        for name in WEIGHTS:
            files = self._shards(name)
            if files:
                tensors = {key: tensor for file in files for key, tensor in _read_tensors(file).items()}
                return {key: one.float() if one.is_floating_point() else one for key, one in tensors.items()}
        other = sorted(path.name for path in self.path.iterdir() if path.suffix in OTHER_WEIGHTS)
        if other:
            what = f"{other[0]} is not read: such a file may run code when it is loaded, or needs another framework"
            raise DataError(what, where=self.name, hint="save the model with transformers as model.safetensors")
        hint = f"expected: {' or '.join(WEIGHTS)}"
        raise DataError("there are no weights in the folder", where=self.name, hint=hint)

    def _shards(self, name: str) -> list[Path]:
        if (self.path / name).exists():
            return [self.path / name]
        mapping = self.json(f"{name}.index.json").get("weight_map", {})
        files = [self.path / Path(str(file)).name for file in dict.fromkeys(mapping.values())]
        for file in files:
            if not file.exists():
                raise DataError("a part of the weights is missing", where=str(file))
        return files


def _read_tensors(path: Path) -> dict[str, Tensor]:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:  # torch's own message says how to load the file nevertheless
        held = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds {held[1]}" if held else "it is no file of plain tensors"
        hint = "save the model with transformers as model.safetensors"
        raise DataError(f"is refused: {reason}, and such a pickle may run code", where=str(path), hint=hint) from None
    except Exception as error:  # torch raises a dozen kinds for damaged files, with messages that say little
        damage = f"damaged: {error}" if isinstance(error, SafetensorError) else "cut off or damaged"
        raise DataError(f"the file is {damage}", where=str(path), hint="copy or download it again") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise DataError("holds no weights by name", where=str(path))
    return tensors


def open_folder(source: str | Path) -> ModelFolder:
    """A folder with a config.json, fetched from the Hub where no such path exists and the name may be one there."""
    path = Path(source)
    if not path.exists() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(source)):
        path = _fetch(str(source))
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "there is no such folder"
        raise DataError(what, where=str(source), hint="expected is a folder with config.json, or a name on the Hub")
    if not (path / "config.json").exists():
        below = sorted(path.glob("*/config.json"))
        hint = "expected is a folder as save_pretrained of transformers writes it"
        if below:
            hint = f"there is one below: give {' or '.join(str(config.parent) for config in below[:3])}"
        raise DataError("there is no config.json in the folder", where=str(source), hint=hint)
    return ModelFolder(path, str(source))


def _fetch(name: str) -> Path:
    """The folder of a model in the Hub's cache, downloaded if need be; .bin only where there are no safetensors."""
    hub = import_extra("huggingface_hub", extra="hf", where=name, doing="fetching")
    try:
        path = Path(hub.snapshot_download(name, allow_patterns=[*TEXTS, "*.safetensors"]))
        if not any(path.glob("*.safetensors")):
            path = Path(hub.snapshot_download(name, allow_patterns=[*TEXTS, "pytorch_model*.bin"]))
    except Exception as error:  # no network, no such name, no permission: each has a class of its own
        first = (str(error) or type(error).__name__).splitlines()[0]
        what = f"is no folder here, and cannot be fetched from the Hugging Face Hub: {first}"
        raise DataError(what, where=name, hint="give the folder of a model that was downloaded before") from None
    return path


def write_model(folder: Path, exported: Exported, texts: Mapping[str, str]) -> None:
    """Write config.json, the weights and other files, given as texts, into an existing folder."""
    from regard.runs.run import save_weights

    config = {"architectures": [exported.architecture], "dtype": "float32", **exported.config}
    own = {"config.json": config} | ({"generation_config.json": exported.generation} if exported.generation else {})
    for name, text in {**{name: json.dumps(tree, indent=1) for name, tree in own.items()}, **texts}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    save_weights(folder / "model.safetensors", exported.weights, {"format": "pt"})


def config_fields(fields: Fields, config: Config) -> dict[str, Any]:
    """The way back: these fields of our config under their names in config.json."""
    return {theirs: getattr(config, ours) for ours, (theirs, _) in fields.items()}


def require_settings(
    section: Config, allowed: Mapping[str, tuple[Any, ...]], *, path: str, tool: str, where: Path
) -> None:
    """Refuse to export a run with settings that the other tool has no counterpart of; `path` names the section."""
    for name, values in allowed.items():
        value = getattr(section, name, values[0])
        if value not in values:
            what = f"{tool} has no counterpart of {path}.{name}: {_yaml(value)}"
            hint = f"{path}.{name}: {' or '.join(map(_yaml, values))} can be exported"
            raise CheckpointError(what, where=str(where), hint=hint)


def _yaml(value: Any) -> str:
    return json.dumps(value).strip('"')
