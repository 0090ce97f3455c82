"""The commands `recipes` and `cache`: what ships, and what is kept on this machine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli import console
from regard.cli.options import JsonOption
from regard.language import shown, shown_comments

LATEST_TIMESTAMP = 2e11
"""The last second that a datetime can show: a wrong clock may be past it."""


def recipes(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="The recipe to show.")] = None,
    out: Annotated[Path | None, Option(help="Copy the recipe to a new file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that ship, show one, or copy one to start from."""
    from regard.recipes.shipped import shipped_recipes

    texts = shipped_recipes(name, out=out)
    if as_json:
        console.show_json(texts if name is None else {"name": name, "recipe": texts[name]})
    elif name is not None:
        console.say(f"copied: {out}" if out else shown_comments(texts[name]).rstrip("\n"))
    else:
        width = max(map(len, texts))
        print("\n".join(f"{recipe:{width}}  {shown(summary)}" for recipe, summary in texts.items()))


def cache(
    clear: Annotated[
        bool, Option("--clear", help="Remove everything that no process is using.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cache of prepared data: where it is, how large, and when each entry was last
    used."""
    from regard.data.store import cache_entries, cache_folder, cache_limit, trim_cache

    folder = cache_folder().absolute()
    limit = cache_limit()
    if clear:
        trim_cache(0)
    entries = cache_entries()
    size = sum(entry.bytes for entry in entries)
    if as_json:
        names = [
            {"name": entry.folder.name, "bytes": entry.bytes, "used": entry.used}
            for entry in entries
        ]
        console.show_json(
            {"folder": str(folder), "bytes": size, "limit": int(limit), "entries": names}
        )
        return
    console.say(
        f"{folder}: {size / 1e6:,.1f} MB, at most {limit / 1e6:,.0f} MB (REGARD_CACHE_LIMIT)"
    )
    for entry in entries:
        used = datetime.fromtimestamp(min(entry.used, LATEST_TIMESTAMP))
        print(f"{entry.bytes / 1e6:12,.1f} MB  {used:%Y-%m-%d %H:%M}  {entry.folder.name}")
    if clear and entries:
        console.note("what is left is in use: a training or another command is running")
