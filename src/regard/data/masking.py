"""Which tokens are hidden, and behind what: BERT's masking, drawn anew each time a text is shown.

Devlin et al. 2019, arXiv:1810.04805, section 3.1 and appendix A.1: 15 % of the tokens are to be predicted. Of these
80 % become [MASK], 10 % a random token, and 10 % stay as they are. They are never special tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK

HIDDEN, REPLACED = 0.8, 0.1
CONTINUES = "##"
"""What a piece begins with that goes on with a word, in the vocabularies of others."""
SPACES = (MARK, "Ġ", " ")
"""What a piece begins with that has a space before it, in the vocabularies that say so."""

Whole = Literal["off", "words", "eojeol"]
Ids = NDArray[np.int64]


class Draws:
    """Numbers from 0 to 1 that are the same on every machine for the same key."""

    def __init__(self, *key: int) -> None:
        # Raw bits: NumPy promises to keep them the same between its versions, and nothing else
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def __call__(self, *shape: int) -> NDArray[np.float64]:
        raw = self._bits.random_raw(int(np.prod(shape)))
        drawn: NDArray[np.float64] = np.multiply(raw >> np.uint64(11), 2.0**-53, dtype=np.float64).reshape(shape)
        return drawn


@dataclass(frozen=True)
class Masked:
    """Texts after masking: what is read, where something is to be predicted, and what stood there."""

    ids_BL: Ids
    places_P: Ids
    labels_P: Ids


@dataclass(frozen=True, eq=False)
class Masking:
    """Masks texts of one vocabulary."""

    tokenizer: Tokenizer
    rate: float = 0.15
    whole: Whole = "off"

    def __post_init__(self) -> None:
        if self.tokenizer.mask is None:
            raise DataError("the vocabulary has no [MASK] token", where="tokenizer")

    def __call__(self, ids_BL: Ids, draws: Draws) -> Masked:
        """Each token, or each whole word, is chosen by itself with the probability `rate`.

        Where that chooses nothing in the whole batch, one is taken, so that there is something to learn from.
        """
        ranks_BL = draws(*ids_BL.shape)
        if self.whole != "off":
            ranks_BL = np.take_along_axis(ranks_BL, self._first_of_word(ids_BL), axis=1)
        ranks_BL = np.where(self.is_special_V[ids_BL], 1.0, ranks_BL)  # which is never below a rate
        chosen_BL = ranks_BL < max(self.rate, np.nextafter(ranks_BL.min(), 1.0))
        places_P = np.flatnonzero(chosen_BL)
        labels_P = ids_BL.ravel()[places_P]
        masked_BL = ids_BL.copy()
        masked_BL.flat[places_P] = self._instead(labels_P, draws)
        return Masked(masked_BL, places_P, labels_P)

    def _instead(self, labels_P: Ids, draws: Draws) -> Ids:
        """[MASK], a random token that is not special, or the token itself."""
        how_P, which_P = draws(len(labels_P)), draws(len(labels_P))
        plain = np.flatnonzero(~self.is_special_V)
        random_P = plain[(which_P * len(plain)).astype(np.int64)]
        assert self.tokenizer.mask is not None
        shown_P = np.where(how_P < HIDDEN + REPLACED, random_P, labels_P)
        return np.where(how_P < HIDDEN, self.tokenizer.mask, shown_P)

    @cached_property
    def is_special_V(self) -> NDArray[np.bool_]:
        special = np.zeros(self.tokenizer.size, dtype=bool)
        special[sorted(self.tokenizer.special)] = True
        return special

    @cached_property
    def _marks_continuing(self) -> bool:
        """Whether the vocabulary marks the pieces that go on with a word, and not the spaces before words."""
        spelt = self.tokenizer.tokens(range(self.tokenizer.size))
        if any(token.startswith(SPACES) for token in spelt):  # ### is then a heading, not the rest of a word
            return False
        return any(token.startswith(CONTINUES) and len(token) > len(CONTINUES) for token in spelt)

    @cached_property
    def _kinds_V(self) -> NDArray[np.int8]:
        """Of each token: letters 0, digits 1, other signs 2, what begins a word plus 4."""
        spelt = self.tokenizer.tokens(range(self.tokenizer.size))
        return np.array([_kind(token, self._marks_continuing) for token in spelt], dtype=np.int8)

    def _first_of_word(self, ids_BL: Ids) -> Ids:
        """For each position, where its word begins.

        An eojeol is all that stands between two spaces. A word is less: letters, digits and other signs are apart.
        Pieces that are marked as continuing belong to the piece before them, whatever is asked for: where words began
        was decided by the vocabulary's makers, and spaces cannot be told any more.
        """
        kinds_BL = self._kinds_V[ids_BL]
        begins_BL = (kinds_BL >= 4) | self.is_special_V[ids_BL]
        if self.whole == "words" and not self._marks_continuing:
            kind_BL = kinds_BL % 4
            begins_BL[:, 1:] |= (kind_BL[:, 1:] != kind_BL[:, :-1]) | (kind_BL[:, 1:] == 2)
        begins_BL[:, 1:] |= self.is_special_V[ids_BL[:, :-1]]
        begins_BL[:, 0] = True
        places_L = np.arange(ids_BL.shape[1])
        return np.maximum.accumulate(np.where(begins_BL, places_L, 0), axis=1)


def _kind(token: str, continuing: bool) -> int:
    begins = not token.startswith(CONTINUES) if continuing else token.startswith(SPACES)
    sign = token.removeprefix(CONTINUES if continuing else "").lstrip(f"{MARK}Ġ ")[:1]
    kind = 1 if sign.isnumeric() else 0 if sign.isalpha() else 2
    return kind + 4 * begins
