"""A model's folder as `transformers` writes it: config.json, weights, tokenizer; or a name on the Hugging Face Hub.

Only JSON, safetensors and, restricted to plain tensors, pytorch_model.bin are read: no file can run code.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.config import parse_yaml
from regard.errors import ConfigError, DataError, import_extra
from regard.exchange.model_folder import refuse_without_config

NAMES = ("model.safetensors", "pytorch_model.bin")
"""Files of weights that are read, whole or in shards, the better one first."""
REFUSED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".ot", ".onnx")
"""Endings of other files of weights."""
TEXTS = ("*.json", "*.txt", "README.md", "*.spm", "spiece.model", "*/tokenizer*.json")
"""What else a folder may hold that is needed."""


@dataclass(frozen=True)
class ModelFolder:
    """The folder, and what the user called it."""

    path: Path
    name: str

    def json(self, file: str) -> dict[str, Any]:
        """What a file says; nothing, where there is no such file."""
        path = self.path / file
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise DataError(f"cannot be read as JSON: {error}", where=str(path)) from None
        if not isinstance(found, dict):
            raise DataError("is not a JSON object", where=str(path))
        return found

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.json("config.json")

    @cached_property
    def datasets(self) -> list[str]:
        """What the model was trained on, as its card says: the names of datasets on the Hub, if any are told."""
        try:
            _, front, _ = (self.path / "README.md").read_text(encoding="utf-8").split("---\n", 2)
            named = parse_yaml(front, where="README.md").get("datasets")
        except (OSError, ValueError, ConfigError):  # a card is for people, and may be anything
            return []
        return [str(name) for name in (named if isinstance(named, list) else [named] if named else [])]

    def expect(self, wanted: dict[str, tuple[Any, ...]]) -> None:
        """Refuse a config that says what the models here cannot do; where it is silent the first value is meant."""
        for name, allowed in wanted.items():
            given = self.config.get(name, allowed[0])
            if given not in allowed:
                hint = f"supported: {', '.join(json.dumps(value) for value in allowed)}"
                where = f"{self.path / 'config.json'}: {name}"
                raise DataError(f"{json.dumps(given)} is not supported", where=where, hint=hint)

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number of the config."""
        value = self.config.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool):
            raise DataError(f"{name} is missing or no whole number", where=str(self.path / "config.json"))
        return value

    def weights(self) -> dict[str, Tensor]:
        """All weights by name, in single precision; half ones of others are widened, which loses nothing."""
        for name in NAMES:
            files = self._shards(name)
            if files:
                found = {key: tensor for file in files for key, tensor in _read(file).items()}
                return {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in found.items()}
        other = sorted(path.name for path in self.path.iterdir() if path.suffix in REFUSED)
        if other:
            what = f"{other[0]} is not read: such a file may run code when it is loaded, or needs another framework"
            hint = "save the model with transformers as model.safetensors"
            raise DataError(what, where=self.name, hint=hint)
        raise DataError("there are no weights in the folder", where=self.name, hint=f"expected: {' or '.join(NAMES)}")

    def _shards(self, name: str) -> list[Path]:
        if (self.path / name).exists():
            return [self.path / name]
        mapping = self.json(f"{name}.index.json").get("weight_map", {})
        files = [self.path / Path(str(file)).name for file in dict.fromkeys(mapping.values())]
        for file in files:
            if not file.exists():
                raise DataError("a part of the weights is missing", where=str(file))
        return files


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise _refused(path, str(error)) from None
    except Exception as error:  # damage has a dozen kinds, and torch's words for them say little
        what = (
            f"the file is damaged: {error}" if isinstance(error, SafetensorError) else "the file is cut off or damaged"
        )
        raise DataError(what, where=str(path), hint="copy or download it again") from None
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise DataError("holds no weights by name", where=str(path))
    return found


def _refused(path: Path, why: str) -> DataError:
    """A pickle of more than tensors. What torch says of it is left out, since it tells how to load it nevertheless."""
    found = re.search(r"GLOBAL ([\w.]+)", why)
    held = f"it holds {found[1]}" if found else "it is no file of plain tensors"
    hint = "save the model with transformers as model.safetensors"
    return DataError(f"is refused: {held}, and such a pickle may run code", where=str(path), hint=hint)


def open_folder(source: str | Path) -> ModelFolder:
    """A folder with a config.json, or one that is fetched from the Hub under its name there."""
    path = Path(source)
    if not path.exists() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(source)):
        path = _fetched(str(source))
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "there is no such folder"
        raise DataError(what, where=str(source), hint="expected is a folder with config.json, or a name on the Hub")
    refuse_without_config(path, str(source))
    return ModelFolder(path, str(source))


def _fetched(name: str) -> Path:
    """The folder of a model in the Hub's cache, fetched if need be; .bin only where there is nothing better."""
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
