"""The language of what people read: texts are English in the code, and shown in Korean to those who
ask for that.

`shown` is called when a text is printed or drawn. messages.ko.yaml has the Korean of every text,
by its English with `{}` for a value and `{#}` for a number. In the Korean, `{0}` is the first of
them as it is, `{0t}` is that in Korean too, where it is a text of ours, and `{0을}` or `{0t을}` has
the particle that fits its last letter.
"""

from __future__ import annotations

import locale
import os
import re
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from importlib.resources import files

SLOT_PATTERNS = {"{}": "(.*?)", "{#}": r"((?:^ *)?[-+−]?[\d.,]*\d(?:e[-+]?\d+)?|-?inf|nan)"}
PARTICLES = {"은": "는", "이": "가", "을": "를", "과": "와", "으로": "로"}
"""The form of each particle after a final consonant, and its form after a vowel."""
REPORT_SECTIONS = ("reports", "composed reports")
"""Sections of the catalogue with the texts of reports, where a title may also be a sentence of the
user's."""
_SLOT = re.compile(r"\{(\d)(t?)([가-힣]*)\}")

request_language: ContextVar[str] = ContextVar("request_language", default="")
"""The language that a request over HTTP asks for; it takes precedence over the environment."""
Catalogue = tuple[dict[str, str], list[tuple[str, str, str]]]
"""The Korean of texts without values, by their English; and for each text with values its longest
literal part, the whole as a pattern, and the Korean."""


def default_language() -> str:
    """The language of the request or of REGARD_LANG, or Korean if the locale is Korean, else
    English."""
    names = ("REGARD_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    given = request_language.get() or next(filter(None, map(os.environ.get, names)), "")
    language = given or locale.getlocale()[0] or ""
    return "ko" if language.lower().startswith(("ko", "korean")) else "en"


def shown(text: str) -> str:
    """A text in the user's language, line by line; what the catalogue lacks stays as it is."""
    return text if default_language() == "en" else "\n".join(map(korean, text.split("\n")))


def shown_comments(yaml: str) -> str:
    """A recipe with its comments in the user's language."""
    return re.sub(r"(?<=# )\S.*", lambda match: shown(match[0]), yaml)


def korean(text: str, sections: tuple[str, ...] = ()) -> str:
    """A text in Korean, by these sections of the catalogue or by all. Several sentences, or the
    items of a list, are translated one by one."""
    constants, patterns = catalogue(sections)
    if text in constants:
        return constants[text]
    is_list = "; " in text and not sections
    if is_list and (translation := _translated_list(text, patterns)):
        return translation
    if translation := _matched(text, patterns):
        return translation
    if len(sentences := re.split(r"(?<=[a-z)]\.)(?= [A-Z])", text)) > 1:
        return "".join(korean(sentence, sections) for sentence in sentences)
    comma = next((mark for mark in ("; ", ", ") if mark in text and not sections), "")
    return comma.join(map(korean, text.split(comma))) if comma else text


def _translated_list(text: str, patterns: list[tuple[str, str, str]]) -> str | None:
    """The Korean of a whole list; or of each item, if the catalogue has all of them."""
    if translation := _matched(text, [entry for entry in patterns if r";\ " in entry[1]]):
        return translation
    items = text.split("; ")
    translations = [korean(item) for item in items]
    if any(translation == item for translation, item in zip(translations, items, strict=True)):
        return None
    return "; ".join(translations)


def _matched(text: str, patterns: list[tuple[str, str, str]]) -> str | None:
    for literal, pattern, template in patterns:
        if literal in text and (match := re.fullmatch(pattern, text)):
            return with_values(template, match.groups())
    return None


def with_values(template: str, values: Sequence[str]) -> str:
    """The Korean of a text with its values."""

    def value_in(slot: re.Match[str]) -> str:
        value = korean(values[int(slot[1])]) if slot[2] else values[int(slot[1])]
        return value + particle_after(value, slot[3]) if slot[3] else value

    return _SLOT.sub(value_in, template)


def particle_after(word: str, particle: str) -> str:
    """The form of a particle after a word, by its last sound: a capital letter is read by its name,
    as in LSTM and chrF. Both forms if the word is not Korean and may be read in several ways."""
    last = re.sub(r"\W+$", "", word)[-1:]
    after_vowel = PARTICLES[particle]
    if "가" <= last <= "힣":
        final = (ord(last) - ord("가")) % 28
    elif last.isdigit():
        final = {"0": 21, "1": 8, "3": 16, "6": 1, "7": 8, "8": 8}.get(last, 0)  # 영 일 삼 육 칠 팔
    elif "A" <= last <= "Z":
        final = {"L": 8, "M": 16, "N": 4, "R": 8}.get(last, 0)  # 엘 엠 엔 알
    else:
        return {"으로": "(으)로", "과": "와(과)"}.get(particle, f"{particle}({after_vowel})")
    return after_vowel if final == 0 or (particle == "으로" and final == 8) else particle


@cache
def catalogue(names: tuple[str, ...] = ()) -> Catalogue:
    """Some sections of the catalogue, or all. If several patterns fit, the one with most letters
    comes first."""
    import yaml  # slow to import

    text = (files("regard") / "messages.ko.yaml").read_text(encoding="utf-8")
    sections = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["texts"]
    entries = {
        english: translation
        for name in names or sections
        for english, translation in sections[name].items()
    }
    constants = dict[str, str]()
    patterns = []
    for english in sorted(entries, key=_catalogue_order):
        parts = re.split(r"(\{#?\})", english)
        if len(parts) == 1:
            constants[english] = entries[english]
            continue
        pattern = "".join(
            SLOT_PATTERNS[part] if number % 2 else re.escape(part)
            for number, part in enumerate(parts)
        )
        patterns.append((max(parts[::2], key=len), pattern, entries[english]))
    return constants, patterns


def _catalogue_order(english: str) -> tuple[int, int]:
    """Texts with most letters first, then those with most numbers."""
    return -len(re.sub(r"\{#?\}", "", english)), -english.count("{#}")
