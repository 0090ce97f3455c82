"""Arguments and options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

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

PICTURE_SUFFIXES = (".svg", ".png", ".html", ".json")
"""Files that a result can be written as."""
