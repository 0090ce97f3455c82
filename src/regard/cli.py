"""The command line: one command a verb. Torch is imported by the verbs that need it, not by `--help`."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from regard import __version__, wait_quietly
from regard.commands.check import check
from regard.commands.compare import compare
from regard.commands.diagnose import diagnose
from regard.commands.evaluate import evaluate
from regard.commands.exchange import export, import_
from regard.commands.explain import explain
from regard.commands.output import complain
from regard.commands.predict import predict
from regard.commands.recipes import recipes
from regard.commands.score import score
from regard.commands.train import train
from regard.errors import Problem, RegardError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show it.")] = False,
) -> None:
    """Your data -> a trained, measured, explained attention model."""


app.command("check")(check)
app.command("train")(train)
app.command("predict")(predict)
app.command("translate", help="The same as predict.")(predict)
app.command("evaluate")(evaluate)
app.command("score")(score)
app.command("explain")(explain)
app.command("diagnose")(diagnose)
app.command("compare")(compare)
app.command("import")(import_)
app.command("export")(export)
app.command("recipes")(recipes)


def main() -> None:
    """Run a command. A user's mistake is one clear sentence and exit code 2; Ctrl-C is 130."""
    _set_up_streams()
    wait_quietly()
    try:
        app()
    except RegardError as error:
        _fail(*error.problems)
    except OSError as error:  # a folder that may not be written to, a disk that is full: the system says which
        _fail(Problem(str(error.filename or ""), error.strerror or str(error)))


def _fail(*problems: Problem) -> None:
    complain(problems)
    sys.exit(2)


def _set_up_streams() -> None:
    """Text is UTF-8, whatever the locale; only a console keeps its own encoding, and `?` for what that lacks.

    Bytes on standard input that are not UTF-8 pass, for `read_inputs` to say where they stand.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        encoding = None if sys.stdin.isatty() else "utf-8-sig"
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape", newline="\n")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


if __name__ == "__main__":
    main()
