"""Recipe = task + data + tokenizer + model + training + search; the YAML files that ship."""

from regard.recipes.recipe import AnyRecipe, Recipe, load_recipe, recipe_of, shipped, shipped_text
from regard.recipes.training import TrainingConfig

__all__ = ["AnyRecipe", "Recipe", "TrainingConfig", "load_recipe", "recipe_of", "shipped", "shipped_text"]
