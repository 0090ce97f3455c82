"""The arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help="A .yaml file, or a recipe that ships.")]
OverridesArgument = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]

NewRunOption = Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")]
ReportOption = Annotated[Path | None, typer.Option("--out", help="A .html file to write the report to.")]
SplitOption = Annotated[str | None, typer.Option("--split", help="train, validation or test. Default: test.")]
PairsOption = Annotated[list[str] | None, typer.Option("--file", help="Pairs in one file; twice: source and target.")]
StoryOption = Annotated[
    Path | None, typer.Option("--story", metavar="FILE", help="The story that the questions are about, line by line.")
]
BeamOption = Annotated[int | None, typer.Option("--beam", help="Hypotheses followed side by side; 1 is greedy.")]
PenaltyOption = Annotated[
    float | None,
    typer.Option("--length-penalty", help="alpha in log P / length^alpha, or what search.normalisation makes of it."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the run's recipe.")]
CheckpointOption = Annotated[str, typer.Option("--checkpoint", help="best, last, average, or a step.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
