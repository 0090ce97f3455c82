"""Help and errors of the command line in the user's language.

Our own texts are translated where typer makes the commands; what typer itself prints is translated
while a command runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from regard.errors import MAX_MESSAGE_CHARACTERS, short
from regard.language import default_language, shown

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""A mistake in what was typed: click's class, which newer versions of typer contain."""
TYPER_TEXTS = ("_STRING", "_TITLE", "_TEXT", "_HELP")
"""How the names of typer's own texts end, in `typer.rich_utils`."""


class Command(TyperCommand):
    """A command whose help is in the user's language."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        _translate(self)

    def get_usage(self, ctx: Any) -> str:
        return _usage_shown(super().get_usage(ctx))

    def get_help_option(self, ctx: Any) -> Any:
        return _help_shown(super().get_help_option(ctx))


class Commands(TyperGroup):
    """All commands; what typer prints about what was typed is in the user's language, with long
    words shortened."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        _translate(self)

    def get_usage(self, ctx: Any) -> str:
        return _usage_shown(super().get_usage(ctx))

    def get_help_option(self, ctx: Any) -> Any:
        return _help_shown(super().get_help_option(ctx))

    def main(self, *arguments: Any, **settings: Any) -> Any:
        with _typer_in_users_language():
            return super().main(*arguments, **settings)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        with _errors_shown():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _errors_shown():
            return super().invoke(ctx)


class ShownError(typer.BadParameter):
    """A mistake in what was typed, whose message is complete and in the user's language."""

    def format_message(self) -> str:
        return self.message


def _translate(command: Command | Commands) -> None:
    """Put the help of a new command and of its parameters into the user's language; a paragraph is
    one line, which typer wraps."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(shown(" ".join(paragraph.split())) for paragraph in paragraphs)
    for parameter in command.params:
        _help_shown(parameter)


def _help_shown(parameter: Any) -> Any:
    """An option or argument, with its help in the user's language."""
    parameter.help = shown(parameter.help or "")
    return parameter


def _usage_shown(usage: str) -> str:
    return usage.replace("Usage:", shown("Usage:"), 1)


@contextmanager
def _errors_shown() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        message = error.format_message()
        if not message:  # no command was given: the help was printed instead
            raise
        shortened = short(" ".join(map(short, message.split(" "))), MAX_MESSAGE_CHARACTERS)
        raise ShownError(shown(shortened), ctx=error.ctx) from None


@contextmanager
def _typer_in_users_language() -> Iterator[None]:
    """Translate the titles and remarks that typer prints around our texts."""
    if default_language() == "en":
        yield
        return
    with _rich_utils_translated(), _wide_letters_wrapped():
        yield


@contextmanager
def _rich_utils_translated() -> Iterator[None]:
    """Replace typer's own texts, which are constants of `typer.rich_utils`.

    typer has no setting for them. The only other way is a compiled catalogue of gettext in the
    place where Python looks for one when typer is imported.
    """
    from typer import rich_utils

    english = {name: text for name, text in vars(rich_utils).items() if name.endswith(TYPER_TEXTS)}
    try:
        for name, text in english.items():
            setattr(rich_utils, name, shown(text))
        yield
    finally:
        for name, text in english.items():
            setattr(rich_utils, name, text)


@contextmanager
def _wide_letters_wrapped() -> Iterator[None]:
    """Let rich remove white space at the end of a line by the width of its letters.

    rich's own method (15.0) counts letters instead of cells: on a full line of wide letters it
    keeps the space at the end, and the last word is then cut. rich has no setting for it.
    """
    from rich.text import Text

    def rstrip_end(text: Text, size: int) -> None:
        if text.cell_len > size:
            text.rstrip()

    original = Text.rstrip_end
    try:
        Text.rstrip_end = rstrip_end  # type: ignore[assignment, method-assign]
        yield
    finally:
        Text.rstrip_end = original  # type: ignore[method-assign]
