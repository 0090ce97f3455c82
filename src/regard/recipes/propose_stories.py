"""Stories of a user's with questions about them -> the lines of a recipe, each with its comment."""

from __future__ import annotations

from collections.abc import Iterator

from regard.data.recognise_stories import RecognisedStories

FEW = 5_000
"""Questions, below which there are more passes over them and more restarts."""


def story_lines(found: RecognisedStories, corpus: str) -> Iterator[tuple[str, str]]:
    """The recipe line by line; `corpus` is where the stories come from, as YAML."""
    linear_start, restarts, epochs = (20, 10, 120) if found.questions < FEW else (4, 3, 30)
    yield "", f"Proposed by `regard check` for {found.file}: {found.questions:,} questions about stories."
    yield "task: story_answering", "sentences and a question in, one word out"
    yield "data:", "paths are relative to this file"
    yield f"  train: {corpus}", "a list of files has the error of each measured apart"
    yield "  validation: {split: 0.1}", "drawn by whole stories; chooses checkpoint and restart"
    yield "  test: {split: 0.1}", "likewise, for `regard evaluate`; or a file of its own, as above"
    yield "  bad_lines: drop", "drop questions that cannot be read, and count them; `error` stops and names them"
    yield "model:", "hops of attention over the sentences"
    yield "  kind: memory_network", "Sukhbaatar et al. 2015"
    yield "  width: 32", "of the embeddings"
    yield "  hops: 3", "how often the memory is looked at"
    yield "  sentences: 50", "the memory: the last sentences of a story"
    yield f"  linear_start: {linear_start}", "epochs without softmax at the beginning"
    yield f"  restarts: {restarts}", "trainings side by side, of which validation keeps the best"
    yield "training:", "plain descent: the defaults of the task"
    yield f"  epochs: {epochs}", "passes over the training questions"
    yield "  best: error", "the metric that chooses"
