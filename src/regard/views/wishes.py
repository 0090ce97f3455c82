"""What may be asked of an explanation, and what of it would change nothing: that is refused, not passed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.data.images import Picture
from regard.errors import DecodeError
from regard.views.explanation import Choice, Explanation, View
from regard.views.heatmap import Heatmap

NO_EFFECT: dict[str, frozenset[View]] = {
    "--layer": frozenset({"mix", "occlusion", "probabilities", "masks", "positions"}),
    "--head": frozenset({"mix", "occlusion", "probabilities", "masks", "positions", "heads"}),
    "--rollout": frozenset({"mix", "occlusion", "probabilities", "masks", "positions", "heads"}),
    "--step": frozenset({"alignment", "encoder", "decoder", "mix", "occlusion", "probabilities", "masks", "positions"}),
    "--words": frozenset({"mix", "occlusion", "probabilities", "positions"}),
    "--padding": frozenset({"mix", "occlusion", "probabilities", "positions"}),
}
"""The views that look the same with an option as without it."""
OF_TOKENS = ("--rollout", "--words")
"""What `--numbers`, one attention between tokens, cannot take into account."""


@dataclass(frozen=True)
class Wish:
    """What to draw of an explanation."""

    view: View | None = None
    """None: the alignment, or the probabilities of a model that has none."""
    layer: Choice = "mean"
    head: Choice = "mean"
    rollout: bool = False
    step: int | None = None

    def view_of(self, explanation: Explanation) -> View:
        return self.view or explanation.views[0]

    def pictures(self, explanation: Explanation) -> Sequence[Heatmap]:
        view = self.view_of(explanation)
        return explanation.pictures(view, layer=self.layer, head=self.head, rollout=self.rollout, step=self.step)

    def image_of(self, explanation: Explanation) -> Picture | None:
        """The image to draw over, where the attention is one over its regions."""
        return explanation.picture if self.view_of(explanation) == "alignment" else None


def refuse_without_effect(options: Mapping[str, object], view: View, *, numbers: bool) -> None:
    """Refuse an option that would change nothing of what is shown; one that is None or False was not given."""
    for option, value in options.items():
        if value is None or value is False:
            continue
        if numbers and option in OF_TOKENS:
            raise DecodeError(
                "the numbers are those of one attention between tokens", where=option, hint="leave it out"
            )
        if not numbers and view in NO_EFFECT[option]:
            hint = "leave it out, or give --numbers" if option == "--step" else "leave it out"
            raise DecodeError(f"it changes nothing of the view {view!r}", where=option, hint=hint)


def refuse_for_stories(options: Mapping[str, object]) -> None:
    """Of a question about a story all hops are shown, or one of them is worked out: there is nothing else to choose."""
    for option, value in options.items():
        if value is not None and value is not False:
            what = "it has no meaning for a question about a story, whose hops are all shown"
            raise DecodeError(what, where=option, hint="allowed: --numbers, with --layer for the hop, and --out")
