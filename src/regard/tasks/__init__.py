"""What a run is for: one file per task, and the parts that tasks are composed of."""

from regard.tasks.captioning import Captioning
from regard.tasks.classification import Classification
from regard.tasks.denoising import Denoising
from regard.tasks.language_modeling import LanguageModeling
from regard.tasks.masked_language_modeling import MaskedLanguageModeling
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.story_answering import StoryAnswering
from regard.tasks.summarization import Summarization
from regard.tasks.tagging import Tagging
from regard.tasks.task import Task
from regard.tasks.translation import Translation

__all__ = ["TASKS", "Task"]

TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "summarization": Summarization,
    "captioning": Captioning,
    "language_modeling": LanguageModeling,
    "masked_language_modeling": MaskedLanguageModeling,
    "denoising": Denoising,
    "story_answering": StoryAnswering,
    "classification": Classification,
    "regression": Regression,
    "multiple_choice": MultipleChoice,
    "tagging": Tagging,
    "question_answering": QuestionAnswering,
}
"""The name of a task in a recipe -> its class."""
