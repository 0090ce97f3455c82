"""A report as one HTML file that needs nothing beside it: texts and tables in the HTML, figures drawn by its script."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from regard.views.report import Report


@cache
def _template() -> Template:
    """templates/page.html, which writes report.css and report.js into the page as they are."""
    loader = PackageLoader("regard.views")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {name: Markup(loader.get_source(environment, f"report.{name}")[0]) for name in ("css", "js")}
    return environment.get_template("page.html")


def page(report: Report) -> str:
    """The whole page; three sections and more get a table of contents."""
    return _template().render(report=report)
