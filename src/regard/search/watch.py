"""To look on while a search goes its way: what each step could have chosen, and what it chose."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from regard.search.hypotheses import Choice, Live


class Watch(Protocol):
    """Is told of every step. A search without one computes nothing of this."""

    def step(self, log_p_BWV: Tensor, allowed_BWV: Tensor, live: Live, choice: Choice) -> None:
        """One step, before anything is set aside.

        `log_p_BWV` is the model's own log P of each next token, whatever the rules say; `allowed_BWV` is True where a
        token may be written. `live.sentences_B` numbers the sentences in the batch that the search was given.
        """
        ...
