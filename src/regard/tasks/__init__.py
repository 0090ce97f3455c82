"""What a run is for: one file a task."""

from regard.tasks.translation import Translation

TASKS: dict[str, type[Translation]] = {
    "translation": Translation,
}
"""`task` -> its columns, objective, metrics and prediction."""
