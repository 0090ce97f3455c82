"""Arguments and options that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

import regard

if TYPE_CHECKING:
    from regard.api import Loaded
    from regard.inference.loaded_model import Precision
    from regard.runs import Run

RunArgument = Annotated[Path, Argument(metavar="RUN", help="A run folder.")]
OverridesArgument = Annotated[
    list[str],
    Argument(
        metavar="[KEY=VALUE]...",
        help="Settings to change.",
        default_factory=list,
        show_default=False,
    ),
]
NewRunOption = Annotated[Path, Option("--out", metavar="RUN", help="The run folder to make.")]
ReportOption = Annotated[Path | None, Option("--out", help="A .html file to write the report to.")]
SplitOption = Annotated[
    str | None, Option("--split", help="train, validation or test. Default: test.")
]
FilesOption = Annotated[
    list[str],
    Option(
        "--file",
        help="One file; or twice: source and target.",
        default_factory=list,
        show_default=False,
    ),
]
StoryOption = Annotated[
    Path | None,
    Option(
        "--story",
        metavar="FILE",
        help="The story that the questions are about, line by line.",
    ),
]
OverwriteOption = Annotated[
    bool, Option("--overwrite", help="Replace output files that exist; never an input.")
]
BeamOption = Annotated[int | None, Option("--beam", help="Beam size; 1 is greedy search.")]
LengthPenaltyOption = Annotated[
    float | None,
    Option(
        "--length-penalty",
        help="alpha in log P / length^alpha; search.normalisation has other formulas.",
    ),
]
SettingsOption = Annotated[
    list[str],
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change the run's recipe.",
        default_factory=list,
        show_default=False,
    ),
]
SourceLanguageOption = Annotated[
    str | None,
    Option(
        "--source-language",
        metavar="CODE",
        help="The language of the sources, such as ko, for a model of many languages.",
    ),
]
TargetLanguageOption = Annotated[
    str | None,
    Option(
        "--target-language",
        metavar="CODE",
        help="The language to write, such as en, for a model of many languages.",
    ),
]
CheckpointOption = Annotated[str, Option("--checkpoint", help="best, last, average, or a step.")]
DeviceOption = Annotated[str, Option("--device", help="auto, cpu, cuda or mps.")]
PrecisionOption = Annotated[
    str,
    Option("--precision", help="fp32, bf16 or fp16; or int8 on a CPU, by CTranslate2."),
]
EngineOption = Annotated[
    str,
    Option("--engine", help="local (this machine), or ray: every node of a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    Option(
        "--address",
        help="The cluster: HOST:PORT, or auto. Default: a new one on this machine.",
    ),
]
AcceptRecipeOption = Annotated[
    bool,
    Option("--accept-recipe", help="Use a recipe.yaml that was changed since the run was trained."),
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]


RESULT_SUFFIXES = (".svg", ".png", ".html", ".json")
"""Files that a result can be written as."""


@dataclass(frozen=True)
class ModelOptions:
    """How the model of a run is loaded."""

    checkpoint: str
    device: str
    precision: str
    accept_recipe: bool

    def open(self, folder: Path) -> Run:
        """A run, with its model if the precision is not that of the training."""
        run = regard.Run.open(folder, self.accept_recipe)
        return run if self.precision == "fp32" else self.load(run)

    def load(self, run: Run) -> Loaded:
        """A run with its model, unless `open` has loaded that."""
        from regard.api import Loaded

        if isinstance(run, Loaded):
            return run
        return regard.load(
            run,
            checkpoint=self.checkpoint,
            device=self.device,
            precision=cast("Precision", self.precision),
        )
