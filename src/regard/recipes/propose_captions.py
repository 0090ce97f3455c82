"""Images and captions of a user's -> the lines of a recipe for them, each with its comment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from regard.data.recognise_images import RecognisedCaptions
from regard.recipes.propose_pace import Sizes, suiting


@dataclass(frozen=True)
class CaptionSizes(Sizes):
    """What suits a number of lines."""

    pixels: int
    batch_tokens: int


STEPS = 400
"""The fewest to plan."""
SIZES = (
    CaptionSizes(2_000, "tiny", 1_000, 60, 50, 10, 64, 1_024),
    CaptionSizes(20_000, "tiny", 4_000, 40, 200, 5, 64, 2_048),
    CaptionSizes(inf, "small", 8_000, 20, 400, 3, 128, 8_192),
)


def captioned_lines(found: RecognisedCaptions, corpus: str) -> Iterator[tuple[str, str]]:
    """The recipe line by line; `corpus` is where the captions come from, as YAML."""
    sizes = suiting(SIZES, found.lines)
    said = found.caption
    yield (
        "",
        f"Proposed by `regard check` for {found.file}: {found.lines:,} lines with an image and what is said of it.",
    )
    yield "task: captioning", "images in, a sentence about each out"
    yield "data:", "paths are relative to this file, images to the file that names them"
    yield f"  train: {corpus}", f"captions: {said.script} script, {said.words:.1f} words"
    yield "  validation: {split: 0.1}", "drawn by image: all captions of one fall on one side"
    yield "  test: {split: 0.1}", "likewise, for `regard evaluate`"
    yield "  bad_lines: drop", "drop empty lines and images that cannot be read, and count them; `error` names them"
    yield f"tokenizer: {{kind: bpe, vocabulary: {sizes.vocabulary}}}", "pieces of words, trained on your captions"
    yield "model:", "sees the image, writes a piece of a word at a time"
    yield "  kind: captioner", "a decoder over the regions of an image"
    yield f"  preset: {sizes.preset}", "tiny below 20,000 lines"
    if found.feature_width is not None:
        yield "  encoder: features", "what another network made of the images"
        yield f"  feature_width: {found.feature_width}", "of each region, as in your arrays"
    else:
        side = sizes.pixels // 8
        yield (
            f"  images: {{size: {sizes.pixels}}}",
            f"pixels on each side; convolutions make {side} x {side} regions of it",
        )
    yield "  decoder: attention", "looks anew for every word; or transformer, or plain"
    yield "  doubly_stochastic: 1.0", "lambda of Xu 2015: every part of the image is looked at"
    yield "  dropout: 0.3", "few images are soon known by heart"
    yield from _training(found, sizes)


def _training(found: RecognisedCaptions, sizes: CaptionSizes) -> Iterator[tuple[str, str]]:
    regions = (sizes.pixels // 8) ** 2 if found.feature_width is None else 1
    plan = sizes.pace(found.lines * max(regions, found.caption.words), sizes.batch_tokens, steps=STEPS)
    yield "training:", "Ctrl-C saves, `--resume` goes on"
    yield from plan.lines()
    yield f"  batch_tokens: {sizes.batch_tokens}", "images times their regions"
    yield "  learning_rate: 1.0e-3", "the highest"
    yield "  schedule: linear", "down to zero"
    yield f"  warmup: {plan.warmup}", "steps of rise: at most a tenth of all"
    yield "  label_smoothing: 0.1", "much can be said of an image"
    yield "search: {beam: 5}", "five hypotheses"
    if found.caption.by_character:
        yield "evaluation: {tokenize: char}", f"by character, which suits {found.caption.script}"
