"""One self-contained HTML page: no script, no network; light, dark and on paper; Korean and English.

A text is escaped unless it is `Html`, which only this module, the pictures and what is built of them make.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from regard.errors import CheckpointError, RegardError
from regard.runs.files import write_text
from regard.views.labels import FONTS


class Html(str):
    """Markup that is already safe."""


Cell = str | int | float | None
"""A text or `Html`; a number; None for what there is not."""

STYLE = """
:root { color-scheme: light dark; --text: #1f2937; --muted: #6b7280; --ground: #ffffff; --raised: #f3f4f6;
  --line: #d1d5db; --accent: #0b5cad; --good: #00694b; --bad: #a83e00; }
@media screen and (prefers-color-scheme: dark) { :root { --text: #e5e7eb; --muted: #9ca3af; --ground: #14181f;
  --raised: #1f2530; --line: #3b4452; --accent: #7ab7f5; --good: #4ed0a5; --bad: #ff9d66; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, FONTS; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.5rem 0 .5rem; }
p, ul { margin: .5rem 0; max-width: 50rem; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: 1rem 0; font-size: .92rem; }
.muted { color: var(--muted); font-size: .92rem; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding-bottom: .4rem; }
th, td { padding: .32rem .75rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
th.number, td.number { text-align: right; white-space: nowrap; }
td:not(.number) { min-width: 5rem; max-width: 30rem; }
tbody tr:hover { background: var(--raised); }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: var(--muted); font-size: .92rem; max-width: 50rem; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--accent); }
.columns { display: flex; flex-wrap: wrap; gap: 0 1.5rem; align-items: flex-start; }
.columns > * { min-width: 0; max-width: 100%; }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } nav { display: none; }
  figure, tr, h2, h3 { break-inside: avoid; } h2, h3 { break-after: avoid; } .wide { overflow: visible; } }
""".replace("FONTS", FONTS)


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    heading: str
    body: Html

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.heading.lower()).strip("-")


def page(title: str, *parts: Section | str) -> Html:
    """The whole page: its title, then the parts in their order; three sections and more get a table of contents."""
    sections = [part for part in parts if isinstance(part, Section)]
    links = [element("a", part.heading, href=f"#{part.anchor}") for part in sections]
    contents = element("nav", *links) if len(sections) >= 3 else Html("")
    # What stands before the first section is the page's opening, and the table of contents follows it.
    opening = next((number for number, part in enumerate(parts) if isinstance(part, Section)), len(parts))
    return Html(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join([element("h1", title), *map(_part, parts[:opening]), contents, *map(_part, parts[opening:])])
        + "\n</body>\n</html>\n"
    )


def can_write_page(path: str | Path | None) -> None:
    """Refuse a place where no page can be written, before the work for it is done; None is no place to refuse."""
    if path is None:
        return
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        kind = path.suffix or "file without suffix"
        raise RegardError(f"cannot write a {kind}", where=str(path), hint="allowed: .html")
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RegardError(what, where=str(path), hint="give another --out")


def write_page(path: str | Path, content: str, *, option: str = "--out") -> None:
    """Write a page whole or not at all; `option` is where the path was asked for."""
    try:
        write_text(Path(path), content)
    except CheckpointError as error:
        # A page is no checkpoint: nothing is resumed.
        raise RegardError(error.problems[0].what, where=str(path), hint=f"give another {option}") from None


def section(heading: str, *parts: str) -> Section:
    return Section(heading, Html("\n".join(map(markup, parts))))


def paragraph(*parts: str, kind: str = "") -> Html:
    """A paragraph; `kind` is "muted", "good", "bad" or nothing."""
    return element("p", *parts, kind=kind)


def bullets(items: Iterable[str]) -> Html:
    return element("ul", *(element("li", item) for item in items))


def figure(svg: str, caption: str = "") -> Html:
    """A picture that one of our own functions drew, with what it shows."""
    return element("figure", Html(svg), element("figcaption", caption) if caption else "")


def columns(*parts: str) -> Html:
    """Parts side by side where there is room, else below each other."""
    return element("div", *(element("div", part) for part in parts), kind="columns")


def details(summary: str, *parts: str) -> Html:
    """Parts that are folded away until they are asked for."""
    return element("details", element("summary", summary), *parts)


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], *, caption: str = "") -> Html:
    """A table. A column of numbers, written as texts or not, stands to the right; None is shown as a dash."""
    body = [[shown(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[column]) for row in body) and bool(body) for column in range(len(head))]
    kinds = ["number" if right else "" for right in numeric]
    top = element("tr", *(element("th", one, kind=kind) for one, kind in zip(head, kinds, strict=True)))
    lines = [
        element("tr", *(element("td", one, kind=kind) for one, kind in zip(row, kinds, strict=True))) for row in body
    ]
    parts = [element("caption", caption)] if caption else []
    whole = element("table", *parts, element("thead", top), element("tbody", *lines))
    return element("div", whole, kind="wide")


def shown(cell: Cell) -> str:
    """A cell as text: whole numbers with commas, others with two decimals or three digits, None as a dash."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if abs(cell) >= 1 or cell == 0 else f"{cell:.3g}"


def element(tag: str, *parts: str, kind: str = "", **attributes: str) -> Html:
    """`<tag class=kind ...>parts</tag>`."""
    named = ({"class": kind} if kind else {}) | attributes
    opening = "".join(f' {name}="{escape(value)}"' for name, value in named.items())
    return Html(f"<{tag}{opening}>{''.join(map(markup, parts))}</{tag}>")


def markup(text: str) -> Html:
    """The text escaped, unless it is markup already."""
    return text if isinstance(text, Html) else Html(escape(text))


def _part(part: Section | str) -> str:
    if isinstance(part, str):
        return markup(part)
    return element("section", element("h2", part.heading), part.body, id=part.anchor)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+−–±×<=≤ .,:%()\d]*(?:e-?\d+)?", re.sub(r"<[^>]*>", "", text)) is not None
