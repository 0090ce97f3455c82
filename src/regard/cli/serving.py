"""The commands `serve` and `studio`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.options import (
    AcceptRecipeOption,
    CheckpointOption,
    DeviceOption,
    PrecisionOption,
    SettingsOption,
)
from regard.errors import DecodeError, import_extra

if TYPE_CHECKING:
    from regard.inference.loaded_model import Precision

HostOption = Annotated[
    str, Option("--host", help="The address to listen on; others than this need a token.")
]
PortOption = Annotated[int, Option("--port", help="0: a free one.", min=0, max=65535)]
TokenOption = Annotated[
    str | None,
    Option(
        "--token",
        help="Requests need it: Authorization: Bearer TOKEN.",
        envvar="REGARD_TOKEN",
    ),
]


def serve(  # noqa: PLR0913  (one parameter per option)
    *,
    runs: Annotated[
        list[Path], Argument(metavar="RUN...", help="Run folders, called by their names.")
    ],
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    window: Annotated[
        float, Option(help="Milliseconds that a request waits for others.", min=0)
    ] = 3,
    batch: Annotated[int, Option(help="Most inputs that are computed at once.", min=1)] = 64,
    queue: Annotated[
        int, Option(help="Most inputs that may wait; then the answer is 503.", min=1)
    ] = 1024,
    timeout: Annotated[float, Option(help="Seconds until a request is given up.", min=0.01)] = 60,
    grace: Annotated[
        float,
        Option(help="Seconds that requests have to be answered after SIGTERM or Ctrl-C.", min=0),
    ] = 5,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    accept_recipe: AcceptRecipeOption = False,
) -> None:
    """Serve runs over HTTP: one route for each verb, requests of all clients computed together."""
    _expect_server("regard serve")
    from regard.studio.server import serve as answer
    from regard.studio.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        token=token or None,
        window=window / 1000,
        batch=batch,
        queue=queue,
        timeout=timeout,
        grace=grace,
    )
    loaded = {
        name: regard.load(
            folder,
            overrides,
            checkpoint=checkpoint,
            device=device,
            precision=cast("Precision", precision),
            accept_recipe=accept_recipe,
        )
        for name, folder in _by_name(runs).items()
    }
    answer(loaded, settings)


def studio(
    runs: Annotated[
        list[Path],
        Argument(
            metavar="[RUN]...",
            help="Run folders, or a folder of runs. Default: runs.",
            default_factory=list,
            show_default=False,
        ),
    ],
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Whether to open the page.")
    ] = True,
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
) -> None:
    """See, try, compare and train runs in the browser; the HTTP API of `serve` beside it."""
    _expect_server("regard studio")
    from regard.runs.packaged import packaged_runs
    from regard.studio.runs import Runs
    from regard.studio.server import serve as answer
    from regard.studio.settings import Settings

    settings = Settings(host, port, token or None)
    root = Path("runs")
    if len(runs) == 1 and (run_folders(runs[0]) or _is_empty(runs[0])):
        root = runs[0]
        runs = []
    named = _by_name([regard.Run.open(run).folder for run in runs])
    folders = partial(dict, named) if runs else partial(run_folders, root)
    examples = {} if folders() else packaged_runs()
    if examples:
        console.note(
            f"there is no run in the folder {root} yet: the page has examples to begin with, and "
            "trains your own"
        )
    served = Runs(
        settings, folders=folders, examples=examples, device=device, accept_recipe=accept_recipe
    )
    answer(served, settings, root=root, browse=browser)


def _expect_server(command: str) -> None:
    for library in ("fastapi", "uvicorn"):
        import_extra(library, extra="studio", where=command, doing="serving")


def _by_name(folders: list[Path]) -> dict[str, Path]:
    """Run folders by their names."""
    named: dict[str, Path] = {}
    for folder in folders:
        if (name := folder.resolve().name) in named:
            raise DecodeError(
                f"two runs are called {name!r}", where=str(folder), hint="rename one of the folders"
            )
        named[name] = folder
    return named


def _is_empty(folder: Path) -> bool:
    """Whether a folder is there and has nothing in it: one for runs to come."""
    return folder.is_dir() and not any(folder.iterdir())


def run_folders(root: Path) -> dict[str, Path]:
    """The runs in a folder, by their names."""
    return {path.parent.name: path.parent for path in sorted(root.glob("*/recipe.yaml"))}
