"""What a run is for: one file a task."""

from regard.tasks.summarization import Summarization
from regard.tasks.text_to_text import TextToText
from regard.tasks.translation import Translation

__all__ = ["TASKS", "TextToText"]

TASKS: dict[str, type[TextToText]] = {
    "translation": Translation,
    "summarization": Summarization,
}
"""`task` -> its columns, objective, metrics and prediction."""
