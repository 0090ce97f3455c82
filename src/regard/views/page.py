"""A report as one HTML page that needs nothing beside it: texts and tables in the HTML, figures drawn by
its script."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from regard.language import korean
from regard.views.report import (
    Report,
    in_language,
)

if TYPE_CHECKING:
    from jinja2 import Environment

UNBREAKABLE = re.compile(r"▁[^\s<]+|(?<![^\s>(])--[^\s<]+")
"""Tokens and options, which a browser would break after ▁ or a hyphen."""


@cache
def _templates() -> Environment:
    """The templates of the page, which holds report.css and report.js verbatim, and of its frame in
    a notebook."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    loader = PackageLoader("regard.views")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    environment.filters["unbroken"] = lambda text: Markup(
        re.sub(UNBREAKABLE, r'<span class="nowrap">\g<0></span>', str(escape(text)))
    )
    environment.filters["markdown"] = lambda text: environment.filters["unbroken"](
        Markup(markdown.render(text))
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {
        name: Markup(loader.get_source(environment, f"report.{name}")[0]) for name in ("css", "js")
    }
    return environment


def page(report: Report) -> str:
    """The whole page, with a table of contents if there are three sections or more."""
    report = in_language(report)
    no_script = "This figure needs JavaScript; it loads nothing from the network."
    if report.language == "ko":
        no_script = korean(no_script)
    return _templates().get_template("page.html").render(report=report, no_script=no_script)


def framed(report: Report) -> str:
    """The page for a notebook: in a frame, which keeps their styles apart, and light or dark like
    the notebook."""
    return _templates().get_template("notebook.html").render(title=report.title, page=page(report))
