"""One or two texts -> the row of tokens that a model reads: special tokens around them, what is too
long cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch

from regard.data.batches import LabelledBatch, Padded, Spelling
from regard.data.spans import Spans, framed_spans
from regard.data.store import Integers, TokenColumn
from regard.text.spelling import Token, ids_of
from regard.text.templates import Slot, Templates
from regard.text.tokenizers import Tokenizer

Long = Literal["head", "tail", "head_tail", "windows"]  # what is read of a text that is too long
Arrangement = Literal["single", "pair", "both_orders", "apart", "choices"]
"""What makes a row: a text; two of them; two of them, and once more the other way round; each of
two by itself; a text and one of its choices."""
Tokens = Sequence[Token]


class Framed(NamedTuple):
    """A row of tokens, and the segment that each belongs to: 0 the first text, 1 the second."""

    tokens: list[Token]
    segments: list[int]

    @property
    def ids(self) -> list[int]:
        return ids_of(self.tokens)


@dataclass(frozen=True)
class Framing:
    """How texts become rows.

    With segments, as BERT reads them:      [CLS] first [SEP]           [CLS] first [SEP] second [SEP]
    Without, as language models do:         </s> first </s>             </s> first <s> second </s>
    A source, as an encoder reads it:       first </s>

    The first is only for vocabularies without a template of their own; XLM-R's is <s> first </s>
    </s> second </s>.

    The second is GPT's way (Radford et al. 2018, figure 1) with the tokens that a vocabulary of
    ours has: `</s>` is what every text began and ended with in pre-training, and stands for the
    paper's start and extract tokens; `<s>` was never read in pre-training, and stands for the
    delimiter, which is new in the paper, too.
    """

    tokenizer: Tokenizer
    segments: bool
    longest: int  # most tokens of a row, special ones included
    long: Long = "head"
    # from the beginning of one window to that of the next; None is half a window
    stride: int | None = None
    letters: int | None = None
    """Characters of a word outside the vocabulary that the model reads; None where it reads
    `<unk>`."""
    source: Sequence[int] | None = None
    """The tokens before a source, such as that of its language; None where single texts are read."""

    def spelled(self, ids: list[int], texts: Sequence[str], number: int) -> Tokens:
        """The tokens of a text, with the unknown words that they stand for where the model reads
        these.

        Only then is the text itself fetched from among the others.
        """
        if self.letters is None or self.tokenizer.unk not in ids:
            return ids
        return self.tokenizer.encode_spelled([texts[number]], self.letters)[0]

    def frame(self, first: Tokens, second: Tokens | None = None) -> Framed:
        """The row of these tokens, as many as they are."""
        row = Framed([], [])
        texts = iter([first, second or ()])
        for token, segment in self.templates[second is not None]:
            part = next(texts) if token is None else [token]
            row.tokens.extend(part)
            row.segments.extend([segment] * len(part))
        return row

    @cached_property
    def templates(self) -> Templates:
        if self.source is not None:
            parts = (*self.source, None, self.tokenizer.end)
            return tuple(Slot(token, 0) for token in parts), ()
        if self.segments:
            return self.tokenizer.templates
        begin, end = self.tokenizer.begin, self.tokenizer.end
        single = Slot(end, 0), Slot(None, 0), Slot(end, 0)
        return single, (*single[:2], Slot(begin, 1), Slot(None, 1), Slot(end, 1))

    def special(self, texts: int) -> int:
        """Special tokens of a row of so many texts."""
        return len(self.templates[texts - 1]) - texts

    @property
    def room(self) -> int:
        """Most tokens of one text."""
        return self.longest - self.special(1)

    def before(self, texts: int) -> int:
        """Special tokens before the last of so many texts."""
        tokens = [token for token, _ in self.templates[texts - 1]]
        return len(tokens) - tokens[::-1].index(None) - texts

    def rows(self, first: Tokens, second: Tokens | None = None) -> list[Framed]:
        """One row; or several, where the texts are too long and read through windows.

        Of two texts the second has the windows, and the first is read whole in each, up to half of
        the room.
        """
        room = self.longest - self.special(1 if second is None else 2)
        if len(first) + len(second or ()) <= room:
            return [self.frame(first, second)]
        if second is None:
            return [self.frame(part) for part in self._parts(first, room)]
        if self.long == "windows":
            first = first[: max(room // 2, room - len(second))]
            return [self.frame(first, part) for part in self._parts(second, room - len(first))]
        half = (room + (len(first) > len(second))) // 2
        of_first = max(half, room - len(second)) if len(first) > half else len(first)
        first = self._parts(first, of_first)[0]
        return [self.frame(first, self._parts(second, room - len(first))[0])]

    def batch(
        self,
        columns: Sequence[TokenColumn],
        rows: Integers,
        labels: torch.Tensor,
        examples: tuple[int, ...],
    ) -> LabelledBatch | None:
        """Examples of one text or two, one row each, framed all at once; None if a row is too long
        or unknown words are spelled."""
        texts = [
            Spans(column.values, column.offsets[rows], column.lengths[rows]) for column in columns
        ]
        longest = np.sum([text.sizes_B for text in texts], axis=0).max()
        if self.letters is not None or longest + self.special(len(texts)) > self.longest:
            return None
        template = self.templates[len(texts) - 1]
        ids_BL, segments_BL, lengths_B = framed_spans(template, texts, self.tokenizer.pad)
        return LabelledBatch(
            Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B)),
            torch.from_numpy(segments_BL),
            torch.arange(len(rows)),
            labels,
            examples=examples,
            tokens=len(rows),
        )

    def positions(self, length: int, others: int) -> int:
        """Tokens of all rows that read a text of this length in windows, each with so many
        `others`."""
        parts = windows(length, self.longest - others, self.stride)
        return sum(stop - start + others for start, stop in parts)

    def _parts(self, ids: Tokens, room: int) -> list[Tokens]:
        """Head and tail are a quarter and three quarters, as in Sun et al. 2019, arXiv:1905.05583,
        section 5.3.1."""
        if len(ids) <= room:
            return [ids]
        match self.long:
            case "head":
                return [ids[:room]]
            case "tail":
                return [ids[len(ids) - room :]]
            case "head_tail":
                return [[*ids[: room // 4], *ids[len(ids) - (room - room // 4) :]]]
            case "windows":
                return [ids[start:stop] for start, stop in windows(len(ids), room, self.stride)]


def windows(length: int, room: int, stride: int | None = None) -> list[tuple[int, int]]:
    """Where windows of `room` tokens begin and end, the last one at the end: each token is in one,
    most are in two."""
    step = min(stride or max(1, room // 2), room)
    starts = range(0, max(1, length - room + step), step)
    return [(start, min(start + room, length)) for start in starts]


def arranged(texts: Sequence[Tokens], framing: Framing, arrangement: Arrangement) -> list[Framed]:
    """The rows of an example, from the tokens of its texts in the order of the columns."""
    first, *others = texts
    match arrangement:
        case "single":
            return framing.rows(first)
        case "pair":
            return framing.rows(first, others[0])
        case "both_orders":
            return [*framing.rows(first, others[0]), *framing.rows(others[0], first)]
        case "apart":
            return [framing.rows(text)[0] for text in texts]
        case "choices":
            return [framing.rows(first, choice)[0] for choice in others]


def labelled_batch(
    rows: Sequence[Sequence[Framed]], labels: torch.Tensor, pad: int, examples: tuple[int, ...] = ()
) -> LabelledBatch:
    framed = [row for example in rows for row in example]
    lengths_B = torch.tensor([len(row.tokens) for row in framed])
    longest = int(lengths_B.max())
    ids = [row.ids + [pad] * (longest - len(row.tokens)) for row in framed]
    segments_BL = torch.tensor(
        [row.segments + [0] * (longest - len(row.segments)) for row in framed]
    )
    spelling = Spelling.of_rows([row.tokens for row in framed])
    text = Padded.of(torch.tensor(ids), lengths_B, spelling)
    owners_B = torch.repeat_interleave(torch.tensor([len(example) for example in rows]))
    return LabelledBatch(text, segments_BL, owners_B, labels, examples=examples, tokens=len(rows))
