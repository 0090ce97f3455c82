"""The command line: each command is a function whose annotated parameters are its options. It calls
the function of api.py and prints what it returns.

Torch is imported by the verbs that need it, not by `--help`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

import regard
from regard.cli import console
from regard.cli.exchanging import export, import_
from regard.cli.explaining import compare, diagnose, explain, vectors
from regard.cli.language import HELP_OPTIONS, Command, Commands
from regard.cli.learning import corpora, course, show
from regard.cli.measuring import evaluate, score
from regard.cli.predicting import chat, predict
from regard.cli.serving import serve, studio
from regard.cli.stored import cache, recipes
from regard.cli.training import check, train
from regard.errors import Problem, RegardError

COMMANDS: dict[str, Callable[..., None]] = {
    "check": check,
    "train": train,
    "predict": predict,
    "translate": predict,
    "chat": chat,
    "evaluate": evaluate,
    "score": score,
    "explain": explain,
    "diagnose": diagnose,
    "compare": compare,
    "vectors": vectors,
    "corpora": corpora,
    "show": show,
    "course": course,
    "serve": serve,
    "studio": studio,
    "import": import_,
    "export": export,
    "recipes": recipes,
    "cache": cache,
}
"""All commands, in the order of the work, in which `--help` lists them."""
ALIASES = {"translate": "The same as predict."}
"""Help of the names that a command has beside its own."""

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)
for name, command in COMMANDS.items():
    app.command(name, cls=Command, help=ALIASES.get(name))(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show it."),
    ] = False,
) -> None:
    """Your data -> a trained, measured, explained attention model."""


def main() -> None:
    """Run a command. A user's mistake gives one clear sentence and exit code 2; Ctrl-C gives
    130."""
    console.set_up_streams()
    regard.wait_quietly()
    try:
        with console.written_out(sys.stdout):
            app()
    except RegardError as error:
        console.complain(error.problems)
    except OSError as error:  # a folder without write permission, a full disk
        console.complain([Problem(str(error.filename or ""), error.strerror or str(error))])
    sys.exit(2)
