"""The phrases are right in three languages, of the length that is asked for, and marked where they are."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from regard.config.load import validate
from regard.data.corpora import Pair, Part, generate, part_of, phenomena
from regard.data.phrases import Language, Marked, draw, words
from regard.data.phrases.korean import (
    particle,
)
from regard.data.phrases.phenomena import homonyms, scenes
from regard.data.readers import open_corpus
from regard.errors import ConfigError
from regard.tasks.translation import Parallel

PARTS: tuple[Part, ...] = ("train", "validation", "test")
PHRASES = ("phrases-en-ko", "phrases-en-fr")


def length(source: str) -> int:
    return len(source.split(" "))


def part_of_range(name: str, size: int, least: int, most: int, seed: int = 1) -> list[Pair]:
    return list(generate(name, size, seed, "train", range(least, most + 1)))


@pytest.fixture(scope="module")
def korean() -> list[Pair]:
    return part_of_range("phrases-en-ko", 8_000, 3, 12) + part_of_range("phrases-en-ko", 1_500, 13, 60)


@pytest.fixture(scope="module")
def translated() -> list[Pair]:
    return part_of_range("phrases-en-fr", 8_000, 3, 12) + part_of_range("phrases-en-fr", 1_500, 13, 60)


class TestCorpora:
    @pytest.mark.parametrize("name", PHRASES)
    @pytest.mark.parametrize(("least", "most"), [(3, 3), (3, 12), (7, 7), (25, 35), (60, 60), (3, 60)])
    def test_lengths_are_kept_and_all_of_them_occur(self, name: str, least: int, most: int) -> None:
        lengths = Counter(length(source) for source, _ in part_of_range(name, 800, least, most))
        assert set(lengths) == set(range(least, most + 1))

    @pytest.mark.parametrize("name", PHRASES)
    def test_there_are_tens_of_thousands_of_pairs(self, name: str) -> None:
        assert len(set(generate(name, 30_000, 1, "train"))) > 28_000
        assert len(set(part_of_range(name, 2_000, 30, 60))) == 2_000

    @pytest.mark.parametrize("name", PHRASES)
    def test_a_source_belongs_to_its_part_and_has_one_target(self, name: str) -> None:
        targets: dict[str, str] = {}
        for seed in (1, 2):
            for part in PARTS:
                for source, target in generate(name, 300 if part != "train" else 6_000, seed, part):
                    assert part_of(source) == part
                    assert targets.setdefault(source, target) == target, source

    @pytest.mark.parametrize("language", ["ko", "fr"])
    def test_some_of_the_sentences_could_be_marked(self, language: Language) -> None:
        drawn = list(islice(draw(Random("marks"), language, 3, 20, 0.1), 2_000))
        assert 0.05 < sum(sentence.mark is not None for sentence in drawn) / len(drawn) < 0.12

    def test_english_is_written_as_it_should_be(self, korean: list[Pair]) -> None:
        for source, _ in korean:
            assert re.fullmatch(r"[A-Z][a-z]*('s)?( [A-Za-z']+,?)+[.?]", source), source
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", source), source
            assert (source[-1] == "?") == bool(
                re.match(r"(What|Where|When|Why|Did|Do|Does|Is|Are|Was|Were|Will) ", source) and "," not in source
            ), source


KOREAN_WORD = r"[가-힣]+[,.?]?"


class TestKoreanTargets:
    def test_every_sentence_is_korean_and_polite(self, korean: list[Pair]) -> None:
        for source, target in korean:
            assert re.fullmatch(f"{KOREAN_WORD}( {KOREAN_WORD})*", target), target
            assert target.endswith("요?" if source.endswith("?") else "요."), target
            assert unicodedata.normalize("NFC", target) == target

    def test_particles_agree_with_the_nouns_before_them(self, korean: list[Pair]) -> None:
        """Every word that is a noun with a particle has the form that the noun's last letter asks for."""
        nouns = "|".join(sorted((noun.korean for noun in words.nouns("EPCNAFKMQDTOUWBVHYJS")), key=len, reverse=True))
        marked = re.compile(rf"(?:{nouns})들?(이|가|은|는|을|를|과|와|으로|로)")
        found = 0
        for _, target in korean:
            for word in target.split(" "):
                if match := marked.fullmatch(word):
                    noun = word.removesuffix(match[1])
                    closed = len(unicodedata.normalize("NFD", noun[-1])) == 3
                    lateral = unicodedata.normalize("NFD", noun[-1])[-1] == "\u11af"
                    expected = {"이", "은", "을", "과"} if closed else {"가", "는", "를", "와"}
                    expected |= {"으로"} if closed and not lateral else {"로"}
                    assert match[1] in expected, target
                    found += 1
        assert found > 10_000

    def test_elders_are_honoured_and_others_are_not(self, korean: list[Pair]) -> None:
        elders = r"(?:The|My) (?:\w+ )?(?:grandmother|grandfather|mother|father|teacher)"
        honoured = 0
        for source, target in korean:
            if re.search(r"\b(because|when|although|who|that|and|but)\b|\?", source, re.I):
                continue
            if re.match(elders + r"\b(?!'s)", source):
                assert "께서는 " in target, target
                assert re.search(r"(세요|셨어요|실 거예요)\.$", target), target
                honoured += 1
            else:
                assert "께서" not in target, target
                assert not re.search(r"(으세요|(?<!마)셨어요|(?<!마)실 거예요)\.$", target), target
        assert honoured > 300

    def test_the_main_subject_is_a_topic_and_the_other_is_not(self) -> None:
        pairs = dict(part_of_range("phrases-en-ko", 6_000, 8, 12))
        when = [
            target
            for source, target in pairs.items()
            if re.match(r"(When|Because|Although) I \w+ ", source) and "," in source
        ]
        assert len(when) > 3
        assert all(re.match("제가 .*(때|때문에|데도) .*(은|는) ", target) for target in when)


class TestFrenchTargets:
    def test_every_sentence_is_french(self, translated: list[Pair]) -> None:
        english = re.compile(r"\b(the|and|but|because|when|although|was|were|will|did|not|with|yesterday|every)\b")
        for source, target in translated:
            assert re.fullmatch(r"[A-ZÀÉÊÎ][\w' ,-]*( \?|\.)", target), target
            assert not english.search(target), target
            assert target.endswith(" ?" if source.endswith("?") else "."), target

    def test_vowels_are_elided_and_articles_contracted(self, translated: list[Pair]) -> None:
        open_vowel_follows = re.compile(r"\b(le|la|je|ne|de|que|ce|ma) (?!hamster|haut|onze)[aeiouhâéèêîôœ]", re.I)
        for _, target in translated:
            assert not open_vowel_follows.search(target), target
            assert not re.search(r"\b(à|de) les?\b", target), target
            assert not re.search(r"\b(si ils?|l'[^aeiouhâéèêîôœ])", target), target

    def test_determiners_have_the_gender_of_their_nouns(self, translated: list[Pair]) -> None:
        gender = {noun.french: noun.feminine for noun in words.nouns("EPCAFKMQDTOUWBVHYS")}
        pattern = re.compile(rf"\b(le|un|ce|cet|du|au|la|une|cette|ma) ({'|'.join(gender)})\b", re.I)
        found = [match for _, target in translated for match in pattern.findall(target)]
        assert len(found) > 3_000
        for article, noun in found:
            assert (article.lower() in ("la", "une", "cette", "ma")) == gender[noun], (article, noun)

    def test_ne_has_its_pas(self, translated: list[Pair]) -> None:
        negated = 0
        for source, target in translated:
            count = len(re.findall(r"\b(?:ne |n')\S+ pas\b", target))
            assert count == len(re.findall(r"\b(?:ne |n')", target)) == len(re.findall(r"\bnot\b", source)), target
            negated += count
        assert negated > 1_000

    def test_participles_agree_with_the_subject_after_etre(self, translated: list[Pair]) -> None:
        adverb = "(?:pas )?(?:souvent |toujours |parfois |généralement )?"
        pattern = re.compile(
            rf"\b(\w+) (?:ne |n')?(suis|est|sommes|sont|êtes) {adverb}((?:all|retourn|rest)é|venu)(e?)(s?)\b"
        )
        found = [match for _, target in translated for match in pattern.findall(target)]
        assert len(found) > 300
        for subject, auxiliary, _, feminine, plural in found:
            if auxiliary != "êtes":
                assert (plural == "s") == (auxiliary in ("sommes", "sont")), (subject, auxiliary, plural)
            if subject.lower() in ("elle", "elles", "anna", "marie", "jiwon", "sumin"):
                assert feminine == "e", subject
            if subject.lower() in ("il", "ils", "je", "nous", "paul", "minsu", "junho"):
                assert feminine == "", subject

    def test_participles_agree_with_an_object_that_precedes_avoir(self) -> None:
        targets = [target for _, target in part_of_range("phrases-en-fr", 5_000, 8, 11)]
        pattern = re.compile(r"\b(la|les) (\w+) que \S+ (?:\S+ )?a (\w+)")
        found = [match for target in targets for match in pattern.findall(target)]
        gender = {noun.french: noun.feminine for noun in words.nouns("EPCAFKMQDTOUWBVHYS")}
        feminine = [said for article, noun, said in found if article == "la" and gender.get(noun)]
        assert len(feminine) > 10
        assert all(said.endswith("e") for said in feminine), feminine


OF_THE_OBJECT = {
    "cross": {"wide", "dangerous", "narrow", "long"},
    "eat": {"hot", "cold", "hard", "salty"},
    "break": {"weak", "thin"},
    "climb": {"high", "dangerous", "slippery"},
    "carry": {"heavy", "big"},
    "find": {"small", "light"},
}
"""What makes the object the antecedent, by hand; all else is said of the subject."""
MEANINGS = {
    "배": {"pear", "ship", "belly"},
    "사과": {"apple", "apology"},
    "눈": {"eye", "snow"},
    "말": {"horse", "word"},
    "밤": {"night", "chestnut"},
}


def bare(word: str) -> str:
    return word.strip(".,")


@pytest.fixture(scope="module")
def marked() -> list[Marked]:
    return list(phenomena("phrases-en-ko", 3_000, 1, "train"))


class TestPhenomena:
    def test_positions_point_at_pronoun_and_antecedent(self, marked: list[Marked]) -> None:
        antecedents = Counter()
        for mark in (mark for mark in marked if mark.phenomenon == "pronoun"):
            source = mark.source.split(" ")
            assert (source[mark.position - 1], source[mark.position]) == ("because", "it")
            assert source[mark.refers_to] == mark.meaning
            said = bare(source[mark.position + 3])
            base = next(base for base in OF_THE_OBJECT if {base, base + "s", "broke"} & set(source[2:5]))
            of_object = said in OF_THE_OBJECT["break" if {"broke", "breaks"} & set(source[2:5]) else base]
            assert (mark.refers_to == 1) == (not of_object), mark.source
            assert mark.target.count(words.noun(mark.meaning).korean) >= (2 if of_object else 1)
            antecedents[of_object] += 1
        assert min(antecedents.values()) > 300

    def test_french_pronouns_have_the_gender_of_the_antecedent(self) -> None:
        genders = Counter()
        for mark in phenomena("phrases-en-fr", 1_000, 1, "test"):
            assert mark.phenomenon == "pronoun"
            said = re.search(r"parce qu'(il|elle) ", mark.target)
            assert said is not None
            assert (said[1] == "elle") == words.noun(mark.meaning).feminine
            genders[said[1]] += 1
        assert min(genders.values()) > 200

    def test_no_adjective_of_a_scene_could_be_said_of_both(self) -> None:
        for scene in scenes():
            assert not set(scene.of_subject) & set(scene.of_object)

    def test_homonyms_are_marked_with_their_meaning(self, marked: list[Marked]) -> None:
        found: dict[str, set[str]] = {}
        for mark in (mark for mark in marked if mark.phenomenon == "homonym"):
            word = mark.target.split(" ")[mark.position][:-1]
            assert mark.target.split(" ")[mark.position] == particle(word, "을")
            assert bare(mark.source.split(" ")[mark.refers_to]) in (mark.meaning, mark.meaning + "s")
            found.setdefault(word, set()).add(mark.meaning)
        assert found == MEANINGS

    def test_the_verb_tells_homonyms_apart(self) -> None:
        told: dict[tuple[str, str], str] = {}
        for noun, _, verbs in homonyms():
            for action in verbs:
                assert told.setdefault((noun.korean, action.korean.text), noun.english) == noun.english

    @pytest.mark.parametrize("name", PHRASES)
    def test_parts_sizes_and_seeds(self, name: str) -> None:
        for part in PARTS:
            assert all(part_of(mark.source) == part for mark in phenomena(name, 50, 1, part))
        assert list(phenomena(name, 20, 1, "train")) == list(islice(phenomena(name, 40, 1, "train"), 20))
        assert list(phenomena(name, 20, 1, "train")) != list(phenomena(name, 20, 2, "train"))

    def test_other_corpora_have_no_marks(self) -> None:
        with pytest.raises(ConfigError, match="'dates' has no marked sentences"):
            phenomena("dates", 10, 1, "train")


class TestConfig:
    @pytest.mark.parametrize(
        ("options", "words_of_the_message"),
        [
            ({"corpus": "dates", "min_words": 3}, "need 'corpus: phrases-en-ko'"),
            ({"source": "a", "target": "b", "max_words": 9}, "need 'corpus: phrases-en-ko'"),
            ({"corpus": "phrases-en-ko", "min_words": 20, "max_words": 10}, "min_words 20 is more than max_words 10"),
            ({"corpus": "phrases-en-ko", "min_words": 2}, "min_words"),
            ({"corpus": "phrases-en-fr", "max_words": 61}, "max_words"),
            ({"corpus": "phrases-en-kr"}, "did you mean 'phrases-en-ko'?"),
        ],
    )
    def test_mistakes_are_named(self, options: dict[str, object], words_of_the_message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(words_of_the_message)):
            validate(Parallel, options)

    def test_defaults(self) -> None:
        assert Parallel(corpus="phrases-en-ko").words == range(3, 13)
        assert Parallel(corpus="phrases-en-ko", min_words=20).words == range(20, 21)
        assert Parallel(corpus="phrases-en-ko", max_words=60).words == range(3, 61)
        for corpus in ("dates", "phrases-en-fr"):
            assert validate(Parallel, Parallel(corpus=corpus).model_dump()) == Parallel(corpus=corpus)

    def test_the_reader_asks_for_the_lengths_and_remembers_them(self, tmp_path: Path) -> None:
        long = open_corpus(Parallel(corpus="phrases-en-ko", size=30, min_words=20, max_words=25), tmp_path)
        assert {length(row.values[0]) for row in long} <= set(range(20, 26))
        short = open_corpus(Parallel(corpus="phrases-en-ko", size=30), tmp_path)
        assert long.fingerprint() != short.fingerprint()


GOLDEN: dict[tuple[str, Part], list[Pair]] = {
    ("phrases-en-ko", "train"): [
        (
            "When are four famous tourists who met that cook cleaning five knives?",
            "그 요리사를 만난 유명한 관광객 네 명은 언제 칼 다섯 자루를 닦고 있어요?",
        ),
        ("Paul sang happily.", "폴은 즐겁게 노래했어요."),
        ("Our peach is so small.", "우리 복숭아는 무척 작아요."),
    ],
    ("phrases-en-ko", "test"): [
        ("Five young cooks forgot an umbrella.", "젊은 요리사 다섯 명은 우산을 잊어버렸어요."),
        (
            "These students who closed some windows will return to the library.",
            "창문 몇 개를 닫은 이 학생들은 도서관으로 돌아갈 거예요.",
        ),
        ("My grandmother will not make the cookie.", "우리 할머니께서는 쿠키를 만들지 않으실 거예요."),
    ],
    ("phrases-en-fr", "train"): [
        ("When did the drivers go to the market?", "Quand est-ce que les chauffeurs sont allés au marché ?"),
        ("The busy cook chooses our clean cup.", "Le cuisinier occupé choisit notre tasse propre."),
        ("The actor cried at the market on Sunday.", "L'acteur a pleuré au marché dimanche."),
    ],
    ("phrases-en-fr", "validation"): [
        ("I saw that journalist although it snowed.", "J'ai vu cette journaliste même s'il a neigé."),
        (
            "When were the merchants lending a clock to the father?",
            "Quand est-ce que les marchands prêtaient une horloge au père ?",
        ),
        (
            "The kind neighbors were not in Seoul last month.",
            "Les gentils voisins n'étaient pas à Séoul le mois dernier.",
        ),
    ],
}


@pytest.mark.parametrize(("name", "part"), GOLDEN)
def test_text_is_the_same_on_every_machine(name: str, part: Part) -> None:
    """When this changes on purpose, VERSION in corpora.py counts up."""
    assert list(generate(name, len(GOLDEN[name, part]), 1, part)) == GOLDEN[name, part]
