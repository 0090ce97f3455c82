"""Generated sentences in English with their translation into Korean or French.

meaning                what a sentence says, whatever the language
lexicon, actions       the words, as tables; words.py reads them
grammar                draws a meaning of about n English words, with nouns.py and additions.py
english, korean_sentences, french_sentences   write it; korean.py and french.py have the morphology
phenomena              pronouns and homonyms, marked
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NamedTuple

from regard.data.phrases import english, french_sentences, grammar, korean_sentences
from regard.data.phrases.meaning import Sentence
from regard.data.phrases.phenomena import Mark, homonym, pronoun

Language = Literal["ko", "fr"]
WRITERS: dict[Language, Callable[[Sentence], str]] = {"ko": korean_sentences.write, "fr": french_sentences.write}
PHENOMENA: dict[Language, tuple[Callable[[Random], Mark], ...]] = {"ko": (pronoun, homonym), "fr": (pronoun,)}
MARKED_SHARE = 0.1
"""How many of the plain corpus's sentences have a pronoun or a homonym that `phenomena` would mark."""


class Marked(NamedTuple):
    """A pair with a word whose meaning the rest of the sentence decides. Positions count words between spaces."""

    source: str
    target: str
    phenomenon: Literal["pronoun", "homonym"]
    position: int
    """Of the pronoun in the source, or of the homonym in the target."""
    refers_to: int
    """In the source: the pronoun's antecedent, or the English word of the homonym."""
    meaning: str
    """That word, in the singular."""


class Drawn(NamedTuple):
    """A source text, its meaning, and the mark of its first unit."""

    source: str
    sentence: Sentence
    mark: Mark | None

    def pair(self, language: Language) -> tuple[str, str]:
        return self.source, WRITERS[language](self.sentence)

    def marked(self, language: Language) -> Marked:
        assert self.mark is not None
        _, phenomenon, position, refers_to, meaning = self.mark
        return Marked(*self.pair(language), phenomenon, position, refers_to, meaning)


def draw(random: Random, language: Language, least: int, most: int, marked_share: float) -> Iterator[Drawn]:
    """Sentences of `least` to `most` English words without end; every length is asked for as often as any other."""
    while True:
        length = least + int(random.random() * (most - least + 1))
        kinds = PHENOMENA[language]
        mark = kinds[int(random.random() * len(kinds))](random) if random.random() < marked_share else None
        sentence = grammar.draw(random, length, mark.unit if mark else None)
        source = english.write(sentence)
        if least <= source.count(" ") + 1 <= most:
            yield Drawn(source, sentence, mark)
