"""Meaning -> English."""

from __future__ import annotations

from regard.data.phrases.meaning import PEOPLE, Clause, Phrase, Pronoun, Sentence, Subject, Unit, is_plural


def write(sentence: Sentence) -> str:
    """The sentence with capital letter and full stop."""
    words: list[str] = []
    for number, unit in enumerate(sentence.units):
        if number:
            words[-1] += ","
            words.append(sentence.joints[number - 1])
        words += unit_words(unit)
    text = " ".join(words)
    return text[0].upper() + text[1:] + ("?" if sentence.units[0].main.question else ".")


def unit_words(unit: Unit) -> list[str]:
    """main because dependent, or: because dependent, main."""
    main = clause_words(unit.main)
    if unit.dependent is None or unit.link is None:
        return main
    dependent = [unit.link, *clause_words(unit.dependent)]
    if not unit.front:
        return main + dependent
    dependent[-1] += ","
    return dependent + main


def clause_words(clause: Clause) -> list[str]:
    subject = subject_words(clause.subject)
    before, after = verb_words(clause)
    if clause.question:
        asked = [] if clause.question == "whether" else [clause.question]
        return [*asked, *before, *subject, *after, *complements(clause)]
    return [*subject, *before, *after, *complements(clause)]


def subject_words(subject: Subject | None) -> list[str]:
    if subject is None:
        return ["it"]
    return [subject.word] if isinstance(subject, Pronoun) else phrase_words(subject)


def phrase_words(phrase: Phrase, negative: bool = False) -> list[str]:
    """the teacher's old books that I bought; in a negative clause some becomes any."""
    noun = phrase.noun
    if phrase.owner:
        owner = phrase.owner.english + "'s"
        words = [owner] if phrase.owner.kind == "N" else ["the", owner]
    else:
        plural = is_plural(phrase)
        determiner = phrase.determiner
        match determiner:
            case "":
                words = []
            case "mass":
                words = ["any" if negative else "some"]
            case "this" | "that" if plural:
                words = ["these" if determiner == "this" else "those"]
            case "a" if (phrase.adjective or noun).english[0] in "aeiou":
                words = ["an"]
            case _:
                words = [determiner]
    if phrase.adjective:
        words.append(phrase.adjective.english)
    words.append(noun.plural if is_plural(phrase) else noun.english)
    if phrase.relative:
        clause, gap = phrase.relative
        words.append("who" if noun.kind in PEOPLE and gap == "subject" else "that")
        before, after = verb_words(clause)
        subject = [] if gap == "subject" else subject_words(clause.subject)
        words += [*subject, *before, *after, *complements(clause)]
    return words


def person_of(subject: Subject | None) -> str:
    """I, it (third person singular) or they (all that is conjugated like it)."""
    if isinstance(subject, Pronoun):
        return subject.word if subject.word == "I" else "they" if subject.word in ("we", "you", "they") else "it"
    return "they" if subject is not None and is_plural(subject) else "it"


TO_BE = {
    "past": {"I": "was", "it": "was", "they": "were"},
    "present": {"I": "am", "it": "is", "they": "are"},
}


def verb_words(clause: Clause) -> tuple[list[str], list[str]]:
    """The auxiliary, which questions put before the subject, and the rest of the verb."""
    base, third, past, ing = clause.verb.english
    person = person_of(clause.subject)
    turned = [*(["not"] if clause.negative else []), *([clause.often.english] if clause.often else [])]
    match clause.tense:
        case "future":
            return ["will"], [*turned, base]
        case "progressive":
            return [TO_BE["present"][person]], [*turned, ing]
        case "was":
            return [TO_BE["past"][person]], [*turned, ing]
    if base == "be":
        return [TO_BE[clause.tense][person]], turned
    if clause.negative or clause.question:
        auxiliary = "did" if clause.tense == "past" else "does" if person == "it" else "do"
        return [auxiliary], [*turned, base]
    return [], [*turned, past if clause.tense == "past" else third if person == "it" else base]


def complements(clause: Clause) -> list[str]:
    """All that follows the verb."""
    words: list[str] = []
    if clause.degree:
        words.append(clause.degree.english)
    if clause.adjective:
        words.append(clause.adjective.english)
    if clause.object:
        words += phrase_words(clause.object, clause.negative)
    if clause.recipient:
        words += ["to", *phrase_words(clause.recipient)]
    place = clause.place
    leads = place is not None and clause.verb.frame in ("to", "in", "at")
    if place is not None and leads:
        words += ["to" if clause.verb.frame == "to" else place.preposition, *place.english.split(" ")]
    if clause.manner:
        words.append(clause.manner.english)
    if clause.companion:
        words += ["with", *phrase_words(clause.companion)]
    if clause.vehicle:
        words += clause.vehicle.english.split(" ")
    if place is not None and not leads:
        words += [place.preposition, *place.english.split(" ")]
    if clause.time:
        words += clause.time.english.split(" ")
    return words
