"""French morphology: agreement of determiners, adjectives and participles, conjugation, elision and contraction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

Form = Literal["present", "past", "imparfait", "futur"]
PERSONS = ("je", "il", "nous", "vous", "ils")
"""The persons that the corpus has; elle and elles are conjugated like il and ils."""

VOWELS = frozenset("aeiouyhâàéèêëîïôûùœAEIOUYHÂÀÉÈÊÎÔÛŒ")
ASPIRATED = frozenset(("hamster", "hamsters", "haut", "haute", "hauts", "hautes", "hibou", "héros", "huit", "onze"))
"""Words before which nothing is elided, though they begin like a vowel."""
ELIDED = {"le": "l'", "la": "l'", "je": "j'", "ne": "n'", "de": "d'", "que": "qu'", "se": "s'"}
CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}

ETRE = frozenset(("aller", "venir", "retourner", "rester", "arriver"))
"""Verbs whose past is made with être, so that the participle agrees with the subject."""

# infinitive: present (je il nous vous ils) | participle | stem of the futur, where the rules give another
_IRREGULAR = """
être: suis est sommes êtes sont | été | ser
avoir: ai a avons avez ont | eu | aur
aller: vais va allons allez vont | allé | ir
venir: viens vient venons venez viennent | venu | viendr
boire: bois boit buvons buvez boivent | bu | boir
lire: lis lit lisons lisez lisent | lu | lir
écrire: écris écrit écrivons écrivez écrivent | écrit | écrir
traduire: traduis traduit traduisons traduisez traduisent | traduit | traduir
construire: construis construit construisons construisez construisent | construit | construir
voir: vois voit voyons voyez voient | vu | verr
vouloir: veux veut voulons voulez veulent | voulu | voudr
connaître: connais connaît connaissons connaissez connaissent | connu | connaîtr
apprendre: apprends apprend apprenons apprenez apprennent | appris | apprendr
ouvrir: ouvre ouvre ouvrons ouvrez ouvrent | ouvert | ouvrir
suivre: suis suit suivons suivez suivent | suivi | suivr
poursuivre: poursuis poursuit poursuivons poursuivez poursuivent | poursuivi | poursuivr
dormir: dors dort dormons dormez dorment | dormi | dormir
courir: cours court courons courez courent | couru | courr
rire: ris rit rions riez rient | ri | rir
vivre: vis vit vivons vivez vivent | vécu | vivr
faire: fais fait faisons faites font | fait | fer
pleuvoir: pleus pleut pleuvons pleuvez pleuvent | plu | pleuvr
"""


@cache
def _irregular() -> dict[str, tuple[list[str], str, str]]:
    table = {}
    for line in _IRREGULAR.strip().splitlines():
        infinitive, forms = line.split(": ")
        present, participle, future = forms.split(" | ")
        table[infinitive] = (present.split(), participle, future)
    return table


def _regular(infinitive: str) -> tuple[list[str], str, str]:
    """-er, -ir like finir, -re like vendre; with the spelling of manger, acheter, appeler and nettoyer."""
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "ir":
        return [stem + end for end in ("is", "it", "issons", "issez", "issent")], stem + "i", infinitive
    if ending == "re":
        return [stem + end for end in ("s", "", "ons", "ez", "ent")], stem + "u", infinitive[:-1]
    strong = _strong(stem)
    future = "enverr" if infinitive == "envoyer" else strong + "er"
    nous = stem + "eons" if stem.endswith("g") else stem + "ons"
    return [strong + "e", strong + "e", nous, stem + "ez", strong + "ent"], stem + "é", future


def _strong(stem: str) -> str:
    """The stem of an -er verb where the ending is silent: achèt-, appell-, nettoi-."""
    if stem.endswith("oy"):
        return stem[:-1] + "i"
    if stem == "appel":
        return "appell"
    return stem[:-2] + "è" + stem[-1] if stem[-2] == "e" and stem[-1] in "tnlv" else stem


def _parts(infinitive: str) -> tuple[list[str], str, str]:
    return _irregular().get(infinitive) or _regular(infinitive)


@cache
def conjugate(infinitive: str, form: Literal["present", "imparfait", "futur"], person: int) -> str:
    """A simple form; `person` counts in PERSONS."""
    present, _, future = _parts(infinitive)
    if form == "present":
        return present[person]
    if form == "futur":
        return future + ("ai", "a", "ons", "ez", "ont")[person]
    stem = "ét" if infinitive == "être" else present[2].removesuffix("ons")
    if stem.endswith("ge") and person in (2, 3):
        stem = stem[:-1]
    return stem + ("ais", "ait", "ions", "iez", "aient")[person]


@cache
def participle(infinitive: str, feminine: bool = False, plural: bool = False) -> str:
    """The past participle as it agrees: allé, allée, allés, allées; appris, apprise."""
    word = _parts(infinitive)[1] + ("e" if feminine else "")
    return word + "s" if plural and not word.endswith("s") else word


@cache
def plural_of(word: str) -> str:
    """The plural of a noun or an adjective: livres, gâteaux, journaux, ours; of the first word: pommes de terre."""
    first, space, rest = word.partition(" ")
    if first[-1] in "sxz":
        plural = first
    elif first.endswith(("eau", "eu")) and first != "bleu":
        plural = first + "x"
    elif first.endswith("al"):
        plural = first[:-1] + "ux"
    elif "-" in first:
        plural = "-".join(part + "s" for part in first.split("-"))
    else:
        plural = first + "s"
    return plural + space + rest


@cache
def opens(word: str) -> bool:
    """Whether the word before is elided: l'homme, l'eau, but le hamster."""
    return word[0] in VOWELS and word.split(" ")[0] not in ASPIRATED


BEFORE_VOWEL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil", "ce": "cet", "ma": "mon"}


def determiner(word: str, feminine: bool, plural: bool, following: str) -> str:
    """the, a, this, that, my, our, some (of a countable: des) before the word that follows; numbers as they are."""
    match word:
        case "the":
            return "les" if plural else "la" if feminine else "le"
        case "a":
            return "une" if feminine else "un"
        case "this" | "that":
            demonstrative = "ces" if plural else "cette" if feminine else "ce"
            return BEFORE_VOWEL["ce"] if demonstrative == "ce" and opens(following) else demonstrative
        case "my":
            possessive = "mes" if plural else "ma" if feminine else "mon"
            return BEFORE_VOWEL["ma"] if possessive == "ma" and opens(following) else possessive
        case "our":
            return "nos" if plural else "notre"
    return {"two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "some": "des"}[word]


def join(words: Sequence[str]) -> str:
    """The words as written: à le -> au, de les -> des, le homme -> l'homme, que il -> qu'il."""
    text = ""
    last = len(words) - 1
    skip = False
    for number, word in enumerate(words):
        if skip:
            skip = False
            continue
        following = words[number + 1] if number < last else ""
        if following and (word, following) in CONTRACTED:
            after = words[number + 2] if number + 1 < last else ""
            if following == "les" or not (after and opens(after)):
                text += CONTRACTED[word, following] + " "
                skip = True
                continue
        if following and word in ELIDED and opens(following):
            text += ELIDED[word]
        elif word == "si" and following in ("il", "ils"):
            text += "s'"
        else:
            text += word + " "
    return text[:-1]
