"""The options of a search, as `predict`, `evaluate` and the other verbs take them, and the recipe
that they make of a run's own."""

from __future__ import annotations

import json
from dataclasses import dataclass

from regard.config import Tree, apply_overrides
from regard.errors import ConfigError
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.recipes.resolved import ResolvedRecipe, with_training
from regard.search.config import MAX_BEAM, SAMPLING_FIELDS
from regard.tasks import TASKS

CHANGEABLE_AFTER_TRAINING = (
    "search",
    "evaluation",
    "data.encoding",
    "data.source_language",
    "data.target_language",
)
"""Sections and fields that an override may change in a trained run's recipe."""


def language_overrides(source: str | None, target: str | None) -> list[str]:
    """The languages of a model of many as overrides of the recipe."""
    languages = {"source": source, "target": target}
    return [f"data.{side}_language={json.dumps(code)}" for side, code in languages.items() if code]


@dataclass(frozen=True)
class SearchOptions:
    """The options that a user gives for one search. None leaves the recipe of the run as it is."""

    beam: int | None = None
    nbest: int | None = None
    length_penalty: float | None = None
    prefix: str | None = None
    overrides: tuple[str, ...] = ()
    """Further changes of the recipe, as `search.sample=true`."""

    @property
    def fields(self) -> dict[str, int | float | str]:
        """The given options that are fields of the recipe's section `search`."""
        options = {
            "beam": self.beam,
            "nbest": self.nbest,
            "length_penalty": self.length_penalty,
            "prefix": self.prefix,
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def paths(self) -> set[str]:
        """The paths that the overrides change."""
        return {override.partition("=")[0] for override in self.overrides}


def with_search(recipe: ResolvedRecipe, options: SearchOptions) -> ResolvedRecipe:
    """The recipe of a run with the search that the options ask for.

    A beam among them turns sampling into a beam search. The recipe's own beam is widened to hold
    the n best, and left out for samples.
    """
    if not options.overrides and not options.fields:
        return recipe
    _refuse_without_search(recipe, options)
    _refuse_fixed_sections(recipe, options.overrides)
    tree = apply_overrides(recipe.model_dump(), options.overrides)
    search = tree["search"]
    if not isinstance(search, dict):
        return with_training(recipe_of(tree), recipe.training)
    if recipe.search.sample:
        _leave_sampling(search, options)
    if search.get("beam") == recipe.search.beam:
        _fit_beam(search, options)
    search |= options.fields
    if options.length_penalty is not None and search.get("normalisation") == "none":
        hint = "leave it out, or --set search.normalisation=mean"
        raise ConfigError(
            "search.normalisation: none has no length penalty", where="--length-penalty", hint=hint
        )
    return with_training(recipe_of(tree), recipe.training)


def _refuse_without_search(recipe: AnyRecipe, options: SearchOptions) -> None:
    """Refuse the options, except the number of outputs, for a task that does not search."""
    flags = {
        "--beam": options.beam,
        "--length-penalty": options.length_penalty,
        "--prefix": options.prefix,
    }
    paths = {
        path: path
        for path in sorted(options.paths)
        if path.startswith("search.") and path != "search.nbest"
    }
    TASKS[recipe.task].check_search_options({**flags, **paths})


def _refuse_fixed_sections(recipe: AnyRecipe, overrides: tuple[str, ...]) -> None:
    """Refuse overrides of sections that say what the run's weights mean."""
    for override in overrides:
        path = override.partition("=")[0]
        section = path.partition(".")[0]
        is_changeable = not {section, path}.isdisjoint(CHANGEABLE_AFTER_TRAINING)
        if section in type(recipe).model_fields and not is_changeable:
            what = f"{section} cannot be changed in a trained run"
            hint = f"allowed: {', '.join(CHANGEABLE_AFTER_TRAINING)}"
            raise ConfigError(what, where=override, hint=hint)


def _leave_sampling(search: Tree, options: SearchOptions) -> None:
    """Drop the settings of sampling that the options do not name, if they ask a run that samples
    for a beam or for `search.sample=false`."""
    paths = options.paths
    given = [name for name in SAMPLING_FIELDS if f"search.{name}" in paths]
    asks_for_beam = options.beam is not None or "search.beam" in paths
    if "search.sample" not in paths and not given and asks_for_beam:
        search["sample"] = False
    if search.get("sample") is False:
        for name in SAMPLING_FIELDS:
            if name not in given:
                search.pop(name, None)


def _fit_beam(search: Tree, options: SearchOptions) -> None:
    """Widen the recipe's own beam to hold the n best; samples need no beam."""
    samples = search.get("sample") is True
    search["beam"] = 1 if samples else max(options.nbest or 1, search["beam"])
    if options.beam is None and search["beam"] > MAX_BEAM:
        raise ConfigError(
            f"should be less than or equal to {MAX_BEAM}, not {options.nbest}", where="--nbest"
        )
