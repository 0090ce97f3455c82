"""A report as one HTML page that needs nothing beside it: texts and tables in the HTML, figures drawn by
its script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from regard.language import korean, request_language
from regard.views.mathml import (
    formula_and_remark,
    looks_like_equation,
    looks_like_formula,
    mathml,
)
from regard.views.report import (
    Report,
    in_language,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it import MarkdownIt

VERBATIM = {
    "css": "report.css",
    "js": "report.js",
    "diagram_css": "diagram.css",
    "diagram_js": "diagram.js",
}
"""The styles and scripts of a page."""
UNBREAKABLE = re.compile(r"▁[^\s<]+|(?<![^\s>(])--[^\s<]+")
"""Tokens and options, which a browser would break after ▁ or a hyphen."""
COLUMNS = re.compile(r"\s{2,}")


@cache
def _templates() -> Environment:
    """The templates of the page, which holds report.css and report.js verbatim, and of its frame in
    a notebook."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from markupsafe import escape as escaped

    loader = PackageLoader("regard.views")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    markdown = markdown_renderer()
    environment.filters["unbroken"] = lambda text: Markup(
        re.sub(UNBREAKABLE, r'<span class="nowrap">\g<0></span>', str(escaped(text)))
    )
    environment.filters["markdown"] = lambda text: environment.filters["unbroken"](
        Markup(markdown.render(text))
    )
    environment.filters["mathematics"] = lambda text: (
        Markup(mathml(text)) if looks_like_equation(text) else environment.filters["unbroken"](text)
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {
        name: Markup(loader.get_source(environment, file)[0]) for name, file in VERBATIM.items()
    }
    return environment


def markdown_renderer() -> MarkdownIt:
    """Renders Markdown without HTML; a block of text that consists of equations is mathematics, with
    labels before them a table."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    rules: Any = renderer.renderer.rules  # type: ignore[attr-defined]  # of the HTML renderer
    plain_fence = rules["fence"]

    def fence(tokens: Any, index: int, options: Any, env: Any) -> str:
        lines = [line for line in tokens[index].content.splitlines() if line.strip()]
        if tokens[index].info.strip() == "text" and lines and all(map(looks_like_equation, lines)):
            return f'<div class="equations">{"".join(map(equation_row, lines))}</div>\n'
        if tokens[index].info.strip() == "text" and (rows := labelled_formulas(lines)):
            return (
                f'<div class="scrolled" tabindex="0"><table class="formulas">{rows}</table></div>\n'
            )
        written: str = plain_fence(tokens, index, options, env)
        return written.replace("<pre>", '<pre tabindex="0">', 1)  # a long line is scrolled

    rules["fence"] = fence
    return renderer


def equation_row(line: str) -> str:
    """An equation and, beside it, its remark."""
    formula, remark = formula_and_remark(line)
    return f'<div class="formula" tabindex="0">{mathml(formula)}</div><p class="muted">{escape(remark)}</p>'


def labelled_formulas(lines: Sequence[str]) -> str:
    """Rows of a table, where each line is a label, a formula and perhaps a remark, with spaces between
    that align them; empty if the lines are anything else."""
    rows = [COLUMNS.split(line.strip()) for line in lines]
    if any(len(row) == 1 for row in rows) or not any(map(looks_like_formula, chain(*rows))):
        return ""
    return "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(map(_formula_cell, others))}</tr>'
        for label, *others in zip(*zip_longest(*rows, fillvalue=""), strict=True)
    )


def _formula_cell(text: str) -> str:
    return f"<td>{mathml(text) if looks_like_formula(text) else escape(text)}</td>"


def page(report: Report) -> str:
    """The whole page, with a table of contents if there are three sections or more."""
    report = in_language(report)
    token = request_language.set(report.language)  # of what a figure says of itself
    try:
        return _rendered(report)
    finally:
        request_language.reset(token)


def _rendered(report: Report) -> str:
    no_script = "This figure needs JavaScript; it loads nothing from the network."
    if report.language == "ko":
        no_script = korean(no_script)
    return _templates().get_template("page.html").render(report=report, no_script=no_script)


def rendered(template: str, **values: Any) -> str:
    """Another page of the folder templates."""
    return _templates().get_template(template).render(**values)


def framed(report: Report) -> str:
    """The page for a notebook: in a frame, which keeps their styles apart, and light or dark like
    the notebook."""
    return _templates().get_template("notebook.html").render(title=report.title, page=page(report))
