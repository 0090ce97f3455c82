"""Small corpora whose alignment is known: "How are you?" -> "잘 지내?", "je suis étudiant" -> "I am a
student".

Each written word depends on one word of the source. In Korean the first word says how, where or why
("How" -> "잘", "Where" -> "어디서"), and the ending of the verb says of whom ("you" -> "지내", "he" ->
"지낸대", which is hearsay, "Why am I" -> "지내지"). In English the verb follows the French one ("suis" -> "am",
"reste" -> "remain"), and the article its noun. So a model has to look at these words, and its attention
can be compared with what the reader expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Pairs = Iterator[tuple[str, str]]

MANNERS = {
    "at home": "집에서",
    "in Seoul": "서울에서",
    "alone": "혼자",
    "busy": "바쁘게",
    "happy": "행복하게",
    "healthy": "건강하게",
    "safe": "무사히",
    "here": "여기서",
}
CALLED = {
    "Minsu": "민수야",
    "Jiwon": "지원아",
    "Mina": "미나야",
    "Junho": "준호야",
    "Yuna": "유나야",
    "Jiho": "지호야",
    "Sujin": "수진아",
    "Hana": "하나야",
}
"""Names, and how Korean calls somebody with that name."""
VERB_OF = {"you": "지내", "he": "지낸대", "she": "지낸대", "they": "지낸대"}
"""The form of the verb that a question about this person has."""

ADJECTIVES = {"grand": "tall", "petit": "small", "prêt": "ready", "occupé": "busy"}
NOUNS = {
    "étudiant": "student",
    "marchand": "merchant",
    "assistant": "assistant",
    "avocat": "lawyer",
}
PRONOUNS = {"je": "I", "tu": "you", "il": "he", "elle": "she", "nous": "we", "ils": "they"}
VERBS = {
    "suis es est est sommes sont": "am|are|is|is|are|are",
    "reste restes reste reste restons restent": "remain|remain|remains|remains|remain|remain",
    "deviens deviens devient devient devenons deviennent": (
        "become|become|becomes|becomes|become|become"
    ),
    "serai seras sera sera serons seront": "|".join(["will be"] * 6),
    "étais étais était était étions étaient": "was|were|was|was|were|were",
}
"""Forms for each of the pronouns: to be, to remain, to become, and to be in future and past."""


def english_korean() -> Pairs:
    """English questions and statements about how people live, in Korean without their subject."""
    for person, verb in VERB_OF.items():
        be = "are" if person in ("you", "they") else "is"
        for asked, korean in (("How", "잘"), ("Where", "어디서")):
            yield f"{asked} {be} {person}?", f"{korean} {verb}?"
            for name, called in CALLED.items():
                yield f"{asked} {be} {person}, {name}?", f"{korean} {verb}, {called}?"
        for manner, korean in MANNERS.items():
            yield f"{be.capitalize()} {person} {manner}?", f"{korean} {verb}?"
            yield f"Why {be} {person} {manner}?", f"왜 {korean} {verb}?"
            yield f"When {be} {person} {manner}?", f"언제 {korean} {verb}?"
            if person != "you":
                yield f"{person.capitalize()} {be} {manner}.", f"{korean} {verb}."
    for manner, korean in MANNERS.items():
        yield f"Shall we be {manner}?", f"{korean} 지낼까?"
        yield f"When shall we be {manner}?", f"언제 {korean} 지낼까?"
        yield f"Let us be {manner}.", f"{korean} 지내자."
        yield f"I am {manner}.", f"{korean} 지내."
        for subject in ("am I", "are we"):
            yield f"Why {subject} {manner}?", f"왜 {korean} 지내지?"
            yield f"When {subject} {manner}?", f"언제 {korean} 지내지?"


def french_english() -> Pairs:
    """French statements about who somebody is, and their negations."""
    for french_forms, english_forms in VERBS.items():
        forms = zip(french_forms.split(), english_forms.split("|"), strict=True)
        for (person, english_person), (form, verb) in zip(PRONOUNS.items(), forms, strict=True):
            for word, meaning in {**ADJECTIVES, **NOUNS}.items():
                described = word + "e" * (person == "elle") + "s" * (person in ("nous", "ils"))
                english = _with_article(meaning, person) if word in NOUNS else meaning
                begin = "j'étais" if (person, form) == ("je", "étais") else f"{person} {form}"
                yield f"{begin} {described}", f"{english_person} {verb} {english}"
                if form in ("suis", "es", "est", "sommes", "sont"):
                    denied = f"n'{form}" if form[0] == "e" else f"ne {form}"
                    yield (
                        f"{person} {denied} pas {described}",
                        f"{english_person} {verb} not {english}",
                    )


def _with_article(noun: str, person: str) -> str:
    if person in ("nous", "ils"):
        return f"{noun}s"
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


GREETINGS: dict[str, Callable[[], Pairs]] = {
    "greetings-en-ko": english_korean,
    "greetings-fr-en": french_english,
}
