"""Which run and sentence a figure of the course opens with in the studio."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Opening(NamedTuple):
    """A run of a chapter by the name that its experiment gives it, a view of the studio, an input,
    and the example run of the package that shows much the same, if there is one."""

    run: str
    view: str
    text: str
    example: str = ""


LETTERS = "a b c d e f g h"
OPENINGS: dict[str, dict[str, Opening]] = {
    "seq2seq": {
        "drawn": Opening("how-are-you-one-vector", "model", "How are you?", "translate-rnn"),
        "states": Opening("reverse-late", "model", LETTERS, "translate-rnn"),
        "by_length": Opening("reverse-late", "try", LETTERS, "translate-rnn"),
        "source_order": Opening("copy-backwards", "model", LETTERS, "translate-rnn"),
    },
    "attention": {
        "how_drawn": Opening("how-are-you", "model", "How are you?", "translate-bahdanau"),
        "how_are_you": Opening("how-are-you", "model", "How are you?", "translate-bahdanau"),
        "je_suis": Opening("je-suis-etudiant", "model", "je suis étudiant", "translate-bahdanau"),
        "bahdanau_step": Opening("how-are-you", "steps", "How are you?", "translate-bahdanau"),
        "luong_step": Opening("how-are-you-luong", "steps", "How are you?", "translate-bahdanau"),
    },
    "search": {
        "tree": Opening("reverse-early", "beam", LETTERS, "translate-rnn"),
        "lengths": Opening("reverse-early", "beam", LETTERS, "translate-rnn"),
    },
    "self_attention": {
        "matrices": Opening("reverse-transformer", "steps", "a b c d e", "translate-transformer"),
        "looked": Opening("reverse-transformer", "look", "a b c d e", "translate-transformer"),
        "it": Opening("pronouns", "look", "", "translate-transformer"),
    },
    "transformer": {
        "forward": Opening("reverse-transformer", "model", "a b c", "translate-transformer")
    },
    "memory": {
        "hops": Opening("stories-3-hops", "model", "", "stories"),
        "three_hops": Opening("stories-3-hops", "steps", "", "stories"),
        "picture": Opening("captions-attention", "model", ""),
    },
    "pretraining": {
        "sample": Opening("pretrained-bert", "model", "The film was [MASK] .", "fill-masks")
    },
    "fine_tuning": {"attended": Opening("reviews", "look", "", "reviews")},
}
"""By chapter and figure. Without an input the run's first example is shown, as of an example run."""


def run_of(opening: Opening, runs: Path) -> Path | None:
    """The folder of the run; None if the chapter was not computed here. Of several seeds the first."""
    found = sorted(path.parent for path in runs.glob(f"{opening.run}-[0-9]*-*/recipe.yaml"))
    own = [path for path in found if path.name.rsplit("-", 2)[0] == opening.run]
    return own[0] if own else None
