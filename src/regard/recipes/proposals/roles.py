"""Columns of a table that the user chose for their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from regard.data.formats import (
    Key,
)
from regard.errors import DataError, did_you_mean
from regard.recipes.proposals.columns import Table
from regard.recipes.proposals.labelled import (
    choices_in,
    labelled_texts,
    one_value_error,
    paired_texts,
)
from regard.recipes.proposals.profile import DataProfile

COLUMN_ROLES = ("text", "first", "second", "label", "source", "target", "document", "summary")
"""What a user may choose a column of a table for."""


LABELLINGS = ("classification", "regression")
"""What a user may choose to do with labels that are whole numbers."""


def chosen_texts(table: Table, roles: Mapping[str, str]) -> DataProfile:
    """The profile of a table in which the user chose columns: these get the names of their roles, and have
    no rivals."""
    where, task = str(next(iter(table.data.values()))), roles.get("task")
    named = columns_for(
        {role: column for role, column in roles.items() if role != "task"}, table, where
    )
    kinds = [] if {*named} & {"text", "first"} else ["text", "list"]
    kinds += (
        []
        if {*named} & {"label", "source", "target", "document", "summary"}
        else ["class", "number"]
    )
    others = [key for key in table.of_kind(*kinds) if key not in (*named, *named.values())]
    columns = {role: table.columns[key] for role, key in named.items()} | {
        key: table.columns[key] for key in others
    }
    table, profile = replace(table, columns=columns, chosen=named), None
    written, read = (
        ("summary", "document") if {*named} & {"summary", "document"} else ("target", "source")
    )
    source, target = (
        role if role in named else next(iter(others), role) for role in (read, written)
    )
    if task is not None or {*named} & {"text", "first", "label"}:
        refuse_as_label(table, where, task)
        profile = (task is None and choices_in(table)) or labelled_texts(table, task)
    elif {source, target} <= {*table.of_kind("text", "class", "number", "other")}:
        profile = paired_texts(
            table.data, table.rows, [source, target], [columns[source], columns[target]]
        )
    labelled = [role for role in named if role in ("text", "first", "second", "label")]
    if profile is None or any(profile.data.get(role) != role for role in labelled):
        hint = "write them into a recipe: 'regard recipes' has one for each task"
        raise DataError(
            "these columns are neither a text and its label nor a pair of texts",
            where=where,
            hint=hint,
        )
    line = {
        name: named.get(key, key) if isinstance(key, str) else key
        for name, key in profile.data.items()
    }
    return replace(profile, data=line)


def columns_for(roles: Mapping[str, str], table: Table, where: str) -> dict[str, Key]:
    """The columns that the user chose, in the order of COLUMN_ROLES; one with a name may also be given by
    its number."""
    keys = {str(key): key for key in table.columns}
    keys = dict(zip(map(str, range(len(keys))), table.columns, strict=True)) | keys
    if missing := [column for column in roles.values() if column not in keys]:
        hint = did_you_mean(missing[0], map(str, table.columns))
        raise DataError(f"there is no column {missing[0]!r}", where=where, hint=hint)
    named = {role: keys[roles[role]] for role in COLUMN_ROLES if role in roles}
    for one, other in combinations(named, 2):
        if named[one] == named[other]:
            raise DataError(
                f"{one} and {other} are the same column",
                where=where,
                hint="give each one of its own",
            )
    for one, other in (("first", "second"), ("second", "first")):
        if one in named and other not in named:
            raise DataError(
                f"{one}= needs {other}= beside it",
                where=where,
                hint="two texts of a row that are compared",
            )
    return named


def refuse_as_label(table: Table, where: str, task: str | None) -> None:
    """Refuse a column that the user chose for the label, if no label of the task can be in it."""
    if task not in (None, *LABELLINGS):
        hint = f"allowed: {', '.join(LABELLINGS)}; 'regard recipes' has a recipe for each task"
        raise DataError(f"task={task} cannot be chosen here", where=where, hint=hint)
    if "label" not in table.chosen:
        return
    own, values = table.chosen["label"], table.columns["label"]
    count = len({*map(str, values)})
    if count < 2:
        raise one_value_error(own, values, where)
    if table.kinds["label"] not in ("class", "number"):
        what = (
            f"column {str(own)!r} is not a label: it has {count:,} different values in "
            f"{len(values):,} rows"
        )
        raise DataError(
            what,
            where=where,
            hint="a label is one of a few short words, or a number with a fraction",
        )
