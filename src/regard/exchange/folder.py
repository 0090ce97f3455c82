"""A model folder of `transformers`: config.json, weights, tokenizer; or its name on the Hugging
Face Hub.

Only JSON, safetensors and, restricted to plain tensors, pytorch_model.bin are read: no file can run
code. torch is imported where weights are read, so that a wrong folder is reported at once.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from regard.errors import CheckpointError, DataError, import_extra, printable
from regard.text.files import why_unreadable

if TYPE_CHECKING:
    from torch import Tensor

    from regard.config import Config
    from regard.runs.run import Run
    from regard.text.tokenizers import Tokenizers

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files of weights that are read, whole or in shards, in order of preference."""
TEXT_FILES = ("*.json", "*.txt", "README.md", "*.spm", "*.model", "*/tokenizer*.json")
"""The other files that are fetched from the Hub."""
Fields = Mapping[str, tuple[str, float | None]]
"""Field of a model's config -> its name in config.json, and its default there; None for a required
whole number."""
# largest number of layers, and of anything else that config.json may say
MAX_LAYERS = 1_000
MAX_NUMBER = 2**20
QUANTIZED = ("torch.int8", "torch.float8")
"""Types whose numbers mean something only with a scale beside them. GPT-2's masks are uint8."""
SAVE_AGAIN = "save the model with transformers as model.safetensors"


@dataclass(frozen=True)
class Imported:
    """A model folder, as parts of a run."""

    task: str
    model: dict[str, Any]  # the section `model` of a recipe
    weights: dict[str, Tensor]
    tokenizers: Tokenizers
    # other sections of a recipe, as far as the folder has them
    sections: dict[str, Any] = field(default_factory=dict)
    # whether the model translates between many languages
    has_languages: bool = False


@dataclass(frozen=True)
class Exported:
    """A run, as parts of a model folder."""

    architecture: str
    config: dict[str, Any]  # config.json
    weights: dict[str, Tensor]
    template: str | None
    """The special tokens around a text `$A`, if the tokenizer has no template of its own; None:
    those that BERT puts around one text or two."""
    longest: int
    """The number of positions."""
    # generation_config.json, of a model that generates
    generation: dict[str, Any] = field(default_factory=dict)
    not_exported: tuple[str, ...] = ()  # options of the run's search that `generate` does not have
    # other files, by their names: those of sentence-transformers
    files: dict[str, str] = field(default_factory=dict)
    end: str = ""
    """What the name of an encoder's architecture ends in, by which the model card chooses its
    code."""
    continues: bool = False
    """Whether it continues a text, so that the space before its first word must be kept."""
    # whether it was trained here on raw text, in which a run of white space is one space
    raw_text: bool = False
    # whether [MASK] in a text is the token: transformers then reads all special tokens so
    reads_masks: bool = False
    # whether the model tells two texts apart by their segments
    segments: bool = True
    source_token: str = ""
    """The token of the source's language, which comes before every text."""


@dataclass(frozen=True)
class Architecture:
    """A model of `transformers` that becomes a run, and a run that becomes such a model."""

    names: Mapping[str, Sequence[str]]
    """`model_type` -> the architectures that can be read; the first if config.json names none."""
    read: Callable[[ModelFolder], Imported]
    runs: Sequence[tuple[str, str]]
    """Task and kind of model of the runs that can be written."""
    write: Callable[[Run, str], Exported]
    """Writes a checkpoint of a run."""
    is_written: Callable[[Any], bool] = lambda config: True
    """Whether a run with this config of its model is such a model, if several have its kind."""


@dataclass(frozen=True)
class ModelFolder:
    """A folder on disk, and the name that the user gave."""

    path: Path
    name: str

    def json(self, file: str) -> dict[str, Any]:
        """The JSON object in a file; empty if there is no such file."""
        path = self.path / file
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except RecursionError:
            raise DataError(
                "cannot be read as JSON: it is nested too deeply", where=str(path)
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(f"cannot be read as JSON: {error}", where=str(path)) from None
        if not isinstance(tree, dict):
            raise DataError("is not a JSON object", where=str(path))
        return tree

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.json("config.json")

    @cached_property
    def config_path(self) -> str:
        return str(self.path / "config.json")

    @cached_property
    def architecture(self) -> str | None:
        """The architecture that config.json names, if any."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else None

    def expect(self, supported: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse values in config.json that our models cannot have; the first one listed is the
        default."""
        for name, allowed in supported.items():
            value = self.config.get(name, allowed[0])
            if value not in allowed:
                hint = f"supported: {', '.join(map(json.dumps, allowed))}"
                where = f"{self.config_path}: {name}"
                raise DataError(f"{json.dumps(value)} is not supported", where=where, hint=hint)

    def number(self, name: str, default: int | None = None) -> int:
        value = default if self.config.get(name) is None else self.config[name]
        if not isinstance(value, int) or isinstance(value, bool):
            raise DataError(f"{name} is missing or not a whole number", where=self.config_path)
        most = MAX_LAYERS if name.endswith(("layer", "layers")) else MAX_NUMBER
        if not 0 <= value <= most:
            raise DataError(
                f"{name} is {value:,}", where=self.config_path, hint=f"allowed: 0 to {most:,}"
            )
        return value

    def real(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e9 < value < 1e9:
            raise DataError(f"{name} is not a number", where=self.config_path)
        return float(value)

    def fields(self, fields: Fields) -> dict[str, Any]:
        """These fields of our config, from their names in config.json."""
        return {
            ours: self.number(theirs)
            if default is None
            else self.real(theirs, self.config.get(theirs, default))
            for ours, (theirs, default) in fields.items()
        }

    def weights(self) -> dict[str, Tensor]:
        """All weights by name, in single precision."""
        for name in WEIGHT_FILES:
            index = f"{name}.index.json"
            shards = self.json(index).get("weight_map", {})
            if not isinstance(shards, dict) or not all(
                isinstance(shard, str) for shard in shards.values()
            ):
                where = f"{self.path / index}: weight_map"
                raise DataError(
                    "is not an object with the file of each weight", where=where, hint=SAVE_AGAIN
                )
            files = (
                {name}
                if os.path.lexists(self.path / name)
                else {Path(shard).name for shard in shards.values()}
            )
            if files:
                tensors = [
                    item for file in files for item in _read_tensors(self.path / file).items()
                ]
                self._refuse_quantized(tensors)
                return {
                    key: tensor.float() if tensor.is_floating_point() else tensor
                    for key, tensor in tensors
                }
        what = (
            f"there is neither {' nor '.join(WEIGHT_FILES)}; other files may run code when they "
            "are loaded"
        )
        raise DataError(what, where=self.name, hint=SAVE_AGAIN)

    def _refuse_quantized(self, tensors: Sequence[tuple[str, Tensor]]) -> None:
        """Refuse weights in 8 bits or fewer."""
        small = {
            key: str(tensor.dtype).removeprefix("torch.")
            for key, tensor in tensors
            if str(tensor.dtype).startswith(QUANTIZED)
        }
        if small or self.config.get("quantization_config"):
            name, kind = next(iter(small.items()), ("", "by config.json"))
            where = f"{self.name}: {name}" if name else f"{self.config_path}: quantization_config"
            hint = "give the folder in float32, float16 or bfloat16"
            raise DataError(f"the weights are quantized ({kind})", where=where, hint=hint)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    import torch
    from safetensors.torch import load_file

    if reason := why_unreadable(path):
        raise DataError(reason, where=str(path), hint="copy or download it again")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # mapped, so that tensors are read when they are used; files of torch before 1.6 cannot be
        mapped = zipfile.is_zipfile(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        if isinstance(tensors, dict) and all(
            isinstance(tensor, torch.Tensor) for tensor in tensors.values()
        ):
            return tensors
        raise UnpicklingError
    except UnpicklingError:  # torch's own message says how to load the file nevertheless
        what = "is refused: it holds more than tensors by name, and such a pickle may run code"
        raise DataError(what, where=str(path), hint=SAVE_AGAIN) from None
    except Exception:  # torch raises a dozen kinds for damaged files, with messages that say little
        hint = "copy or download it again"
        raise DataError("the file is cut off or damaged", where=str(path), hint=hint) from None


def open_folder(source: str | Path) -> ModelFolder:
    """A folder with a config.json, fetched from the Hub if no such path exists and the name may be
    one there."""
    path = Path(source)
    if not path.exists() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(source)):
        hub = import_extra("huggingface_hub", extra="hf", where=str(source), doing="fetching")
        try:
            path = Path(
                hub.snapshot_download(str(source), allow_patterns=[*TEXT_FILES, "*.safetensors"])
            )
            # pickled weights only if there are no others
            if not any(path.glob("*.safetensors")):
                path = Path(
                    hub.snapshot_download(
                        str(source), allow_patterns=[*TEXT_FILES, "pytorch_model*.bin"]
                    )
                )
        except (
            Exception
        ) as error:  # no network, no such name, no permission: each has a class of its own
            first = (str(error) or type(error).__name__).splitlines()[0]
            what = f"is not a folder here, and cannot be fetched from the Hugging Face Hub: {first}"
            hint = "give the folder of a model that was downloaded before"
            raise DataError(what, where=str(source), hint=hint) from None
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "there is no such folder"
        raise DataError(
            what,
            where=str(source),
            hint="expected: a folder with config.json, or a name on the Hub",
        )
    if not (path / "config.json").exists():
        below = sorted(path.glob("*/config.json"))
        hint = "expected: a folder written by save_pretrained of transformers"
        if below:
            hint = (
                "there is one below: give "
                f"{' or '.join(str(config.parent) for config in below[:3])}"
            )
        raise DataError("there is no config.json in the folder", where=str(source), hint=hint)
    return ModelFolder(path, str(source))


def config_fields(fields: Fields, config: Config) -> dict[str, Any]:
    """These fields of our config, under their names in config.json."""
    return {theirs: getattr(config, ours) for ours, (theirs, _) in fields.items()}


def require_settings(
    run: Run, section: str, allowed: Mapping[str, tuple[Any, ...]], *, tool: str
) -> None:
    """Refuse to export a run with settings in this section of its recipe that the other tool does
    not have."""
    config = getattr(run.recipe, section)
    for name, values in allowed.items():
        value, *others = (
            json.dumps(value).strip('"') for value in (getattr(config, name, values[0]), *values)
        )
        if value not in others:
            what = f"{tool} has no counterpart of {section}.{name}: {value}"
            hint = f"{section}.{name}: {' or '.join(others)} can be exported"
            raise CheckpointError(what, where=str(run.folder), hint=hint)


def render(template: str, **values: Any) -> str:
    """A file of templates/ filled with these values. Its filter `plain` escapes Markdown and
    HTML."""
    loader = PackageLoader("regard.exchange")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    signs = re.compile(r"([!-*<-@\[-`{-~])")
    environment.filters["plain"] = lambda text: signs.sub(
        r"\\\1", printable(text).replace("\n", " ")
    )
    return environment.get_template(template).render(values)
