"""Meaning -> Korean, in 해요체, with honorifics for elders and for the one who is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

from regard.data.phrases.korean import (
    Stem,
    adnominal,
    although,
    future,
    honorific,
    negative,
    open_stem,
    particle,
    past,
    polite,
    progressive,
)
from regard.data.phrases.meaning import (
    PEOPLE,
    Adverb,
    Clause,
    Phrase,
    Pronoun,
    Relative,
    Sentence,
    Subject,
    Tense,
    Unit,
    is_plural,
)

Ending = Literal["요", "고", "지만", "기 때문에", "때", "는데도", "은"]

LINKS: dict[str, Ending] = {"because": "기 때문에", "when": "때", "although": "는데도"}
JOINTS: dict[str, Ending] = {"and": "고", "but": "지만"}
PRONOUNS = {"I": "저", "we": "우리", "he": "그", "she": "그녀", "they": "그들", "it": "그것"}
NUMBERS = {"two": "두", "three": "세", "four": "네", "five": "다섯", "some": "몇"}
DETERMINERS = {"this": "이 ", "that": "그 ", "my": "제 ", "our": "우리 ", "many": "많은 "}
KIN = frozenset(("할머니", "할아버지", "어머니", "아버지", "이모", "삼촌"))
"""One's relatives are 우리's, not 제's."""
NEGATIVES = {
    "있": Stem("없"),
    "알": Stem("모르", "르"),
    **{stem: Stem(f"{stem}지 못하", "하") for stem in ("보", "듣", "찾")},
}
"""Verbs whose negative is a verb of its own; who does not see, hear or find could not."""
HUMBLE = {"주": "드리", "보내": "보내 드리", "보여 주": "보여 드리", "빌려주": "빌려 드리"}
"""Giving to an elder."""


def write(sentence: Sentence) -> str:
    """The clauses in their order, each with the ending that joins it to the next."""
    last = len(sentence.units) - 1
    parts = [
        unit_text(unit, "요" if number == last else JOINTS[sentence.joints[number]])
        for number, unit in enumerate(sentence.units)
    ]
    return ", ".join(parts) + ("?" if sentence.units[0].main.question else ".")


def unit_text(unit: Unit, ending: Ending) -> str:
    """The dependent clause stands before the main one, or within it when they share their subject."""
    main, dependent = unit.main, unit.dependent
    if dependent is None or unit.link is None:
        return " ".join([*topic(main), *rest(main, ending)])
    linked = rest(dependent, LINKS[unit.link])
    subject = dependent.subject
    if not isinstance(subject, Pronoun) or subject.antecedent is None:
        return " ".join([*subject_words(subject, "이"), *linked, *topic(main), *rest(main, ending)])
    if subject.antecedent is main.subject:
        return " ".join([*topic(main), *linked, *rest(main, ending)])
    again = replace(main, object=subject.antecedent._replace(determiner="that", adjective=None))
    return " ".join([*subject_words(subject.antecedent, "이"), *linked, *topic(main), *rest(again, ending)])


def topic(clause: Clause) -> list[str]:
    return subject_words(clause.subject, "은")


def subject_words(subject: Subject | None, kind: Literal["은", "이"]) -> list[str]:
    """The subject as topic (은) or as subject (이); who is asked is not named."""
    if subject is None or (isinstance(subject, Pronoun) and subject.word == "you"):
        return []
    if isinstance(subject, Pronoun):
        word = PRONOUNS[subject.word]
        return ["제가" if (word, kind) == ("저", "이") else particle(word, kind)]
    return [phrase_text(subject, ("께서는" if kind == "은" else "께서") if is_elder(subject) else kind)]


def is_elder(subject: Subject | None) -> bool:
    """Whether verbs are honorific: an elder, or the one who is asked."""
    if isinstance(subject, Pronoun):
        return subject.word == "you" or (subject.antecedent is not None and is_elder(subject.antecedent))
    return subject is not None and subject.noun.kind == "E"


def phrase_text(phrase: Phrase, kind: str) -> str:
    """The noun with all that stands before it, and its particle: 선생님의 새로운 책 두 권을."""
    noun, determiner = phrase.noun, phrase.determiner
    text = relative_text(phrase.relative) + " " if phrase.relative else ""
    adjective = adnominal(phrase.adjective.korean) + " " if phrase.adjective else ""
    if phrase.owner:
        text += f"{phrase.owner.korean}의 {adjective}"
    elif determiner in ("my", "our") and noun.kind in PEOPLE:
        # the adjective first: 친절한 우리 아버지, but 제 무거운 램프 and 이 친절한 남자
        text += adjective + ("우리 " if noun.korean in KIN else DETERMINERS[determiner])
    else:
        text += DETERMINERS.get(determiner, "") + adjective
    if determiner in NUMBERS:
        return f"{text}{noun.korean} {NUMBERS[determiner]} {particle(noun.counter, kind)}"
    many = is_plural(phrase) and noun.kind in "EPCA"
    return text + particle(noun.korean + "들" if many else noun.korean, kind)


def relative_text(relative: Relative) -> str:
    """The clause before its noun, without the noun: 책을 산 (소녀), 소녀가 산 (책)."""
    clause, gap = relative
    words = [] if gap == "subject" else subject_words(clause.subject, "이")
    return " ".join([*words, *rest(clause, "은")])


QUESTIONS = {"what": "무엇을", "when": "언제", "why": "왜"}


def rest(clause: Clause, ending: Ending) -> list[str]:
    """All but the subject: when, with whom, where, to whom, what, how, and the verb."""
    words = [*_words_of(clause.time), *_words_of(clause.often)]
    if clause.question in ("when", "why"):
        words.append(QUESTIONS[clause.question])
    if clause.companion:
        words += [phrase_text(clause.companion, "과"), "함께"]
    words += _words_of(clause.vehicle)
    if clause.place:
        words.append(particle(clause.place.korean, clause.verb.particle))
    elif clause.question == "where":
        words.append(particle("어디", clause.verb.particle))
    if clause.recipient:
        words.append(phrase_text(clause.recipient, "께" if is_elder(clause.recipient) else "에게"))
    if clause.object:
        words.append(phrase_text(clause.object, "을"))
    elif clause.question == "what":
        words.append(QUESTIONS["what"])
    words += [*_words_of(clause.manner), *_words_of(clause.degree)]
    words.append(predicate(stem_of(clause), clause.tense, clause.negative, is_elder(clause.subject), ending))
    return words


def _words_of(adverb: Adverb | None) -> list[str]:
    return [adverb.korean] if adverb else []


def stem_of(clause: Clause) -> Stem:
    """What is conjugated: the verb, the adjective that is said of the subject, or what elders do."""
    if clause.adjective:
        return clause.adjective.korean
    if clause.recipient and is_elder(clause.recipient):
        return Stem(HUMBLE[clause.verb.korean.text])
    return clause.verb.elder if is_elder(clause.subject) else clause.verb.korean


@cache
def predicate(stem: Stem, tense: Tense, negated: bool, elder: bool, ending: Ending) -> str:
    """The verb with all its endings in their order: stem, progressive, negation, honorific, past, ending."""
    if tense in ("progressive", "was"):
        stem = progressive(stem, elder)
    if negated:
        stem = NEGATIVES.get(stem.text) or negative(stem)
    if elder:
        stem = honorific(stem)
    if tense == "future":
        return future(stem, ending)
    if ending == "은":
        return {"past": open_stem(stem, "은"), "was": stem.text + "던"}.get(tense) or adnominal(stem)
    if tense in ("past", "was"):
        stem = past(stem)
    match ending:
        case "요":
            return polite(stem)
        case "때":
            return open_stem(stem, "을") + " 때"
        case "는데도":
            return although(stem)
    return stem.text + ending
