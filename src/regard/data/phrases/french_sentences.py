"""Meaning -> French."""

from __future__ import annotations

from typing import Literal

from regard.data.phrases.french import BEFORE_VOWEL, ETRE, conjugate, determiner, join, opens, participle, plural_of
from regard.data.phrases.meaning import Clause, Link, Phrase, Place, Sentence, Subject, Unit, is_plural

LINKS: dict[Link, list[str]] = {"because": ["parce", "que"], "when": ["quand"], "although": ["même", "si"]}
JOINTS = {"and": "et", "but": "mais"}
QUESTIONS = {
    "whether": ["est-ce", "que"],
    "what": ["qu'est-ce", "que"],
    "where": ["où", "est-ce", "que"],
    "when": ["quand", "est-ce", "que"],
    "why": ["pourquoi", "est-ce", "que"],
}


def write(sentence: Sentence) -> str:
    """The sentence with capital letter and full stop; a question mark stands apart."""
    words: list[str] = []
    for number, unit in enumerate(sentence.units):
        if number:
            words[-1] += ","
            words.append(JOINTS[sentence.joints[number - 1]])
        words += unit_words(unit)
    text = join(words)
    return text[0].upper() + text[1:] + (" ?" if sentence.units[0].main.question else ".")


def unit_words(unit: Unit) -> list[str]:
    main = clause_words(unit.main)
    if unit.dependent is None or unit.link is None:
        return main
    dependent = [*LINKS[unit.link], *clause_words(unit.dependent)]
    if not unit.front:
        return main + dependent
    dependent[-1] += ","
    return dependent + main


def clause_words(clause: Clause) -> list[str]:
    asked = QUESTIONS[clause.question] if clause.question else []
    return [*asked, *subject_words(clause.subject), *verb_words(clause), *complements(clause)]


def agreement(subject: Subject | None) -> tuple[int, bool, bool]:
    """Person (as conjugate counts it), whether feminine, whether plural."""
    if subject is None:
        return 1, False, False
    if isinstance(subject, Phrase):
        plural = is_plural(subject)
        return (4 if plural else 1), subject.noun.feminine, plural
    if subject.antecedent:
        return agreement(subject.antecedent)
    person = {"I": 0, "he": 1, "she": 1, "it": 1, "we": 2, "you": 3, "they": 4}[subject.word]
    return person, subject.word == "she", subject.word in ("we", "they")


def subject_words(subject: Subject | None) -> list[str]:
    if isinstance(subject, Phrase):
        return phrase_words(subject)
    person, feminine, _ = agreement(subject)
    if feminine:
        return ["elles" if person == 4 else "elle"]
    return [("je", "il", "nous", "vous", "ils")[person]]


def phrase_words(phrase: Phrase, negative: bool = False) -> list[str]:
    """Determiner, adjectives on their sides, the owner, the relative clause. `negative`: un and du become de."""
    noun, plural = phrase.noun, is_plural(phrase)
    feminine, adjective = noun.feminine, phrase.adjective
    name = plural_of(noun.french) if plural else noun.french
    head = [name]
    if adjective:
        form = adjective.feminine if feminine else adjective.french
        form = plural_of(form) if plural else form
        if adjective.before and not plural and not feminine and opens(name):
            form = BEFORE_VOWEL.get(form, form)
        head = [form, name] if adjective.before else [name, form]
    words = [*_determiner(phrase, head, negative), *head]
    if phrase.owner:
        owner = phrase.owner
        article = [] if owner.kind == "N" else [determiner("the", owner.feminine, False, owner.french)]
        words += ["de", *article, owner.french]
    if phrase.relative:
        clause, gap = phrase.relative
        words += ["qui"] if gap == "subject" else ["que", *subject_words(clause.subject)]
        words += verb_words(clause, phrase if gap == "object" else None) + complements(clause)
    return words


def _determiner(phrase: Phrase, head: list[str], negative: bool) -> list[str]:
    noun, word = phrase.noun, phrase.determiner
    if noun.kind == "N":
        return []
    if phrase.owner or noun.kind == "J":
        return [determiner("the", noun.feminine, is_plural(phrase), head[0])]
    if word == "many":
        return ["beaucoup", "de"]
    if (negative and word in ("a", "mass", "some")) or (word == "some" and head[-1] != head[0] and _before(phrase)):
        return ["de"]
    if word == "mass":
        return ["de", determiner("the", noun.feminine, False, head[0])]
    return [determiner(word, noun.feminine, is_plural(phrase), head[0])]


def _before(phrase: Phrase) -> bool:
    return phrase.adjective is not None and phrase.adjective.before


FORMS: dict[str, Literal["present", "imparfait", "futur"]] = {
    "present": "present",
    "progressive": "present",
    "was": "imparfait",
    "future": "futur",
}


def verb_words(clause: Clause, preceding: Phrase | None = None) -> list[str]:
    """The verb within its negation. After avoir the participle agrees with an object that precedes it."""
    verb, (person, feminine, plural) = clause.verb, agreement(clause.subject)
    often = [clause.often.french] if clause.often else []
    before, after = (["ne"], ["pas"]) if clause.negative else ([], [])
    if clause.tense == "past" and not verb.state:
        auxiliary = "être" if verb.french in ETRE else "avoir"
        if auxiliary == "avoir":
            feminine, plural = (preceding.noun.feminine, is_plural(preceding)) if preceding else (False, False)
        finite = conjugate(auxiliary, "present", person)
        return [*before, finite, *after, *often, participle(verb.french, feminine, plural)]
    form = "imparfait" if clause.tense == "past" else FORMS[clause.tense]
    return [*before, conjugate(verb.french, form, person), *after, *often]


def complements(clause: Clause) -> list[str]:
    """All that follows the verb."""
    words = [clause.manner.french] if clause.manner else []
    if clause.degree:
        words.append(clause.degree.french)
    if clause.adjective:
        _, feminine, plural = agreement(clause.subject)
        form = clause.adjective.feminine if feminine else clause.adjective.french
        words.append(plural_of(form) if plural else form)
    if clause.object:
        words += phrase_words(clause.object, clause.negative)
    if clause.recipient:
        words += ["à", *phrase_words(clause.recipient)]
    leads = clause.verb.frame in ("to", "in", "at")
    if clause.place and leads:
        words += place_words(clause.place)
    if clause.companion:
        words += ["avec", *phrase_words(clause.companion)]
    if clause.vehicle:
        words.append(clause.vehicle.french)
    if clause.place and not leads:
        words += place_words(clause.place)
    if clause.time:
        words.append(clause.time.french)
    return words


def place_words(place: Place) -> list[str]:
    if not place.english.startswith("the "):
        return [place.french_preposition, place.french]
    return [place.french_preposition, determiner("the", place.feminine, False, place.french), place.french]
