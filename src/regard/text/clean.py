"""Text that another program has prepared: HTML entities, and words and signs that are separated as
Moses' tokeniser writes them. `Cleaning` turns both back into plain text; `entity_in` and `token_in`
find them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html.entities import html5
from typing import Literal

Detokenise = bool | Literal["fr"]
"""Whether signs are put back to their words; `fr` leaves the space that French has before `? ! : ;
%` and in « »."""

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
JOINED_SIGN = re.compile(r" ?@([-,./:])@ ?")
"""How Moses and others mark a sign between two parts of a word: `state @-@ of`, `1 @,@ 000`."""
SEPARATED_ENDING = re.compile(r"(?<=\w) (['’](?:s|m|d|t|re|ve|ll)|n['’]t)\b(?!['’])", re.IGNORECASE)
"""An English ending after a space: `it 's`, `do n't`, `don 't`."""
ELISION = re.compile(
    r"\b((?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu|aujourd|dell|all|nell|dall|sull|un|quest|quell)['’]) (?=\w)",
    re.IGNORECASE,
)
"""A French or Italian word without its last vowel, before a space: `l' homme`, `dell' arte`."""
SEPARATED_STOP = re.compile(r"(?<=[\w\"'’”»)\]]) [.,](?= |$)")
BEFORE_CLOSING_SIGN = re.compile(r" +(?=[.,?!:;%)\]}…](?: |$|[.,?!:;%)\]}…\"'’”]))")
BEFORE_CLOSING_SIGN_IN_FRENCH = re.compile(r" +(?=[.,)\]}…](?: |$|[.,)\]}…\"'’”]))")
AFTER_OPENING_SIGN = re.compile(r"(?:(?<=^)|(?<= ))([(\[{¿¡]) +")
QUOTES = re.compile(r'(?:^|(?<= ))" +(.+?) +"(?= |$|[.,?!:;)])')
GUILLEMETS = re.compile(r"« +(.+?) +»")
TOKENISATION_SIGNS = {
    JOINED_SIGN: ("@",),
    SEPARATED_ENDING: (" '", " ’", " n'", " n’", " N'"),
    ELISION: ("' ", "’ "),
    SEPARATED_STOP: (" .", " ,"),
}
"""Patterns that plain text does not have, with parts that each match contains, which are found
faster. Other spaces before a sign may be French."""
MIN_SHARE_OF_ENTITIES = 0.001
MIN_SHARE_OF_TOKENS = 0.2
"""Shares of the texts from which a user is told of entities, and of text that is split into
tokens."""


@dataclass(frozen=True)
class Cleaning:
    """The cleaning of a text before it is used."""

    unescape: bool = False
    detokenise: Detokenise = False

    def __call__(self, text: str) -> str:
        if self.unescape and "&" in text:
            text = ENTITY.sub(_character, text)
        return detokenised(text, french=self.detokenise == "fr") if self.detokenise else text


def _meaning(entity: str) -> str:
    """The characters that an entity represents; the entity itself if its name is unknown."""
    return html.unescape(entity) if entity.startswith("&#") else html5.get(entity[1:], entity)


def _character(entity: re.Match[str]) -> str:
    """The characters that an entity represents, with a space for a line break or another control
    character."""
    text = _meaning(entity[0])
    return text if text.isprintable() or text == "\N{NO-BREAK SPACE}" else " "


def detokenised(text: str, *, french: bool = False) -> str:
    """The text without the spaces that a tokeniser has put around signs. Plain text without such
    spaces stays."""
    text = JOINED_SIGN.sub(r"\1", text)
    text = SEPARATED_ENDING.sub(r"\1", text)
    text = ELISION.sub(r"\1", text)
    text = QUOTES.sub(r'"\1"', text)
    if not french:
        text = GUILLEMETS.sub(r"«\1»", text)
    text = AFTER_OPENING_SIGN.sub(r"\1", text)
    return (BEFORE_CLOSING_SIGN_IN_FRENCH if french else BEFORE_CLOSING_SIGN).sub("", text)


def entity_in(text: str) -> str | None:
    """The first HTML entity of a text that represents a character."""
    if "&" not in text:
        return None
    return next(
        (found[0] for found in ENTITY.finditer(text) if _meaning(found[0]) != found[0]), None
    )


def token_in(text: str) -> str | None:
    """The first place of a text that shows that it was split into tokens, with the words around
    it."""
    text = ENTITY.sub(_character, text) if "&" in text else text
    likely = [
        sign for sign, parts in TOKENISATION_SIGNS.items() if any(part in text for part in parts)
    ]
    matches = [match for sign in likely if (match := sign.search(text))]
    if not matches:
        return None
    found = min(matches, key=lambda match: match.start())
    before = text[: found.start()].split(" ")[-1]
    after = text[found.end() :].split(" ")[0]
    return f"{before}{found[0]}{after}"


@dataclass
class Signs:
    """How many texts have HTML entities, and how many are split into tokens, with the first example
    of each."""

    texts: int = 0
    entities: int = 0
    tokens: int = 0
    entity: str = ""
    token: str = ""

    def add(self, text: str) -> None:
        self.texts += 1
        if entity := entity_in(text):
            self.entities += 1
            self.entity = self.entity or entity
        if token := token_in(text):
            self.tokens += 1
            self.token = self.token or token

    def notes(self, column: str) -> list[str]:
        """Warnings for the user about a column; none if few of its texts have such signs."""
        notes = []
        if self.entities > MIN_SHARE_OF_ENTITIES * self.texts:
            notes.append(
                f"{self.entities:,} of {self.texts:,} texts of the {column} have HTML entities, "
                "such as "
                f"{self.entity!r}: data.unescape=true reads them as characters"
            )
            if column == "target":
                notes.append(
                    "a metric such as BLEU counts each entity as several words and is too high"
                )
        if self.tokens > MIN_SHARE_OF_TOKENS * self.texts:
            notes.append(
                f"{self.tokens:,} of {self.texts:,} texts of the {column} are split into tokens, "
                "such as "
                f"{self.token!r}: data.detokenise=true joins them"
            )
        return notes


def signs_in(texts: Iterable[str]) -> Signs:
    signs = Signs()
    for text in texts:
        signs.add(text)
    return signs
