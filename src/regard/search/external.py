"""A trained model that another library runs, with that library's own search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis


class ExternalModel:
    """The interface of a model that another library runs. Tasks ask it for whole outputs, not for
    single steps."""

    longest: int | None
    """The most tokens that it can read or write; None if unlimited."""

    def refuse(self, config: SearchConfig, options: Mapping[str, object] | None = None) -> None:
        """Raise a DecodeError for search settings, and for options of a verb that are not None,
        that the library does not have."""
        raise NotImplementedError

    def search(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, first: Sequence[int] = ()
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The number of each source with its best `config.nbest` hypotheses, in the order in which
        they are found. Every output begins with the tokens `first`."""
        raise NotImplementedError

    def token_scores(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> Iterator[list[float]]:
        """log P of each token of the targets, and of the `</s>` after them, in the order of the
        sources."""
        raise NotImplementedError


AnyModel = nn.Module | ExternalModel
"""A model of torch, or one that another library runs."""
