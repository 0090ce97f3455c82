"""Korean morphology: particles that follow the last sound of a word, and the endings of verbs and adjectives.

A Hangul syllable is 0xAC00 + 588 * initial + 28 * vowel + final (Unicode standard, section 3.12), so that every rule
here is arithmetic on the last syllable. An ending is put on a stem in two steps: a stem becomes another stem
(honorific, negative, progressive, past), and the last one takes an ending (-요, -고, -지만, ...).
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

FINALS = ["", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"]
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FUSED = {
    "ㅏㅏ": "ㅏ",
    "ㅓㅓ": "ㅓ",
    "ㅗㅏ": "ㅘ",
    "ㅜㅓ": "ㅝ",
    "ㅣㅓ": "ㅕ",
    "ㅐㅓ": "ㅐ",
    "ㅔㅓ": "ㅔ",
    "ㅕㅓ": "ㅕ",
    "ㅚㅓ": "ㅙ",
}
"""A stem's vowel and the vowel of 아 / 어 said as one: 가 + 아 = 가, 오 + 아 = 와, 마시 + 어 = 마셔."""

Irregular = Literal["", "ㅂ", "ㄷ", "ㅅ", "ㅎ", "르", "하", "시", "past"]
"""How a stem changes before a vowel. Honorific stems (시) end in 세요, past stems take 어 after any vowel: 갔어요."""


class Stem(NamedTuple):
    """What endings are put on: 먹, 예쁘, 읽으시, 갔."""

    text: str
    irregular: Irregular = ""
    descriptive: bool = False
    """Whether it describes, like an English adjective; what acts has -는 where this has -은."""


def split(syllable: str) -> tuple[int, str, str]:
    """A syllable's initial (as a number), vowel and final."""
    initial, rest = divmod(ord(syllable) - 0xAC00, 588)
    return initial, VOWELS[rest // 28], FINALS[rest % 28]


def join(initial: int, vowel: str, final: str = "") -> str:
    """The syllable of an initial, a vowel and a final."""
    return chr(0xAC00 + 588 * initial + 28 * VOWELS.index(vowel) + FINALS.index(final))


def final_of(text: str) -> str:
    """The final consonant of the last syllable, or nothing after a vowel."""
    return split(text[-1])[2]


def with_final(text: str, final: str) -> str:
    """The text with another final consonant under its last syllable."""
    initial, vowel, _ = split(text[-1])
    return text[:-1] + join(initial, vowel, final)


# Particles

PARTICLES = {"이": ("이", "가"), "은": ("은", "는"), "을": ("을", "를"), "과": ("과", "와"), "으로": ("으로", "로")}
"""Particles with two forms, named by the first: after a consonant and after a vowel."""


@cache
def particle(word: str, kind: str) -> str:
    """The word with its particle: 책이, 사과가; ㄹ counts as a vowel before 로: 서울로, 칼로, but 집으로."""
    if kind not in PARTICLES:
        return word + kind
    final = final_of(word)
    closed = final != "" and not (kind == "으로" and final == "ㄹ")
    return word + PARTICLES[kind][0 if closed else 1]


# A stem becomes another stem


def verb(dictionary: str, irregular: Irregular = "", descriptive: bool = False) -> Stem:
    """The stem of a dictionary form: 먹다 -> 먹."""
    stem = dictionary.removesuffix("다")
    return Stem(stem, "하" if stem[-1] == "하" else irregular, descriptive)


@cache
def open_stem(stem: Stem, ending: str) -> str:
    """The stem before an ending with 으: the 으 stands after a consonant only, and irregular consonants change.

    읽 + 으시 = 읽으시, 가 + 으시 = 가시, 만들 + 으시 = 만드시, 돕 + 으시 = 도우시, 걷 + 으시 = 걸으시.
    """
    text, final = stem.text, final_of(stem.text)
    match stem.irregular:
        case "ㅂ":
            text, final = with_final(text, "") + "우", ""
        case "ㄷ":
            text = with_final(text, "ㄹ")
        case "ㅅ":
            text = with_final(text, "")
        case "ㅎ":
            text, final = with_final(text, ""), ""
        case _ if final == "ㄹ":
            text, final = with_final(text, ""), ""
    if final:
        return text + ending
    rest = ending[1:]
    under = {"은": "ㄴ", "을": "ㄹ"}.get(ending[0], "")
    return (with_final(text, under) if under else text) + rest


@cache
def open_vowel(stem: Stem) -> str:
    """The stem with 아 or 어, which follows its last vowel: 먹어, 가, 마셔, 도와, 걸어, 불러, 해, 써, 바빠, 빨개."""
    text = stem.text
    initial, vowel, final = split(text[-1])
    match stem.irregular:
        case "past":
            return text + "어"
        case "하":
            return text[:-1] + "해"
        case "ㅎ":
            return text[:-1] + join(initial, "ㅐ")
        case "르":
            doubled = with_final(text[:-1], "ㄹ")
            return doubled + ("라" if split(doubled[-1])[1] in "ㅏㅗ" else "러")
        case "ㅂ":  # only 돕다 and 곱다 keep the bright vowel: 도와, but 가까워
            return with_final(text, "") + ("와" if text in ("돕", "곱") else "워")
        case "ㄷ":
            return with_final(text, "ㄹ") + ("아" if vowel in "ㅏㅗ" else "어")
        case "ㅅ":
            return with_final(text, "") + ("아" if vowel in "ㅏㅗ" else "어")
    if vowel == "ㅡ" and not final:  # ㅡ falls away, and the syllable before it decides: 바쁘 -> 바빠, 크 -> 커
        bright = len(text) > 1 and split(text[-2])[1] in "ㅏㅗ"
        return text[:-1] + join(initial, "ㅏ" if bright else "ㅓ")
    harmony = "ㅏ" if vowel in "ㅏㅗ" else "ㅓ"
    if final or vowel + harmony not in FUSED:
        return text + ("아" if harmony == "ㅏ" else "어")
    return text[:-1] + join(initial, FUSED[vowel + harmony])


def honorific(stem: Stem) -> Stem:
    """-(으)시-, for a subject one looks up to; some stems have it within: 드시, 계시, 주무시."""
    return stem if stem.irregular == "시" else Stem(open_stem(stem, "으시"), "시", stem.descriptive)


def past(stem: Stem) -> Stem:
    """-았- / -었-: 갔, 먹었, 했, 읽으셨."""
    return Stem(with_final(open_vowel(stem), "ㅆ"), "past", stem.descriptive)


def negative(stem: Stem) -> Stem:
    """-지 않-."""
    return Stem(f"{stem.text}지 않", "", stem.descriptive)


def progressive(stem: Stem, elder: bool) -> Stem:
    """-고 있-, of an elder -고 계시-."""
    return Stem(f"{stem.text}고 계시", "시") if elder else Stem(f"{stem.text}고 있")


# A stem takes its ending


@cache
def polite(stem: Stem) -> str:
    """The end of a sentence in 해요체: 먹어요, 가요, 읽으세요, 갔어요."""
    if stem.irregular == "시":
        return stem.text[:-1] + "세요"
    return open_vowel(stem) + "요"


@cache
def future(stem: Stem, ending: Literal["요", "고", "지만", "기 때문에", "때", "는데도", "은"]) -> str:
    """-(으)ㄹ 거예요, or the noun 것 with another ending."""
    base = open_stem(stem, "을")
    match ending:
        case "요":
            return f"{base} 거예요"
        case "때":
            return f"{base} 때"
        case "은":
            return base
        case "는데도":
            return f"{base} 것인데도"
    return f"{base} 것이{ending}"


@cache
def adnominal(stem: Stem) -> str:
    """Before a noun, of what is now: 읽는 (acts), 예쁜 (describes), 맛있는 (있다 and 없다 act)."""
    if stem.descriptive and stem.text[-1] not in "있없":
        return open_stem(stem, "은")
    return (with_final(stem.text, "") if final_of(stem.text) == "ㄹ" else stem.text) + "는"


@cache
def although(stem: Stem) -> str:
    """-는데도, of what describes -은데도: 갔는데도, 읽는데도, 추운데도."""
    if stem.irregular == "past":
        return stem.text + "는데도"
    return adnominal(stem) + "데도"
