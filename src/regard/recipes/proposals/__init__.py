"""A user's files -> a recipe for them: one that ships, with the data line and the sizes that suit it
filled in."""
