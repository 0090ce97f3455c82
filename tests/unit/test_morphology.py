"""Korean and French words take the forms that grammars give them, worked by hand."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.phrases import words
from regard.data.phrases.french import conjugate, determiner, join, participle, plural_of
from regard.data.phrases.korean import (
    adnominal,
    although,
    honorific,
    negative,
    open_stem,
    open_vowel,
    particle,
    past,
    polite,
    progressive,
    verb,
)
from regard.data.phrases.korean_sentences import predicate

SYLLABLES = st.integers(0xAC00, 0xD7A3).map(chr)


class TestKorean:
    @pytest.mark.parametrize(
        ("word", "kind", "written"),
        [
            ("책", "이", "책이"),
            ("사과", "이", "사과가"),
            ("책", "은", "책은"),
            ("친구", "은", "친구는"),
            ("물", "을", "물을"),
            ("커피", "을", "커피를"),
            ("선생님", "과", "선생님과"),
            ("할머니", "과", "할머니와"),
            ("집", "으로", "집으로"),
            ("학교", "으로", "학교로"),
            ("서울", "으로", "서울로"),
            ("칼", "으로", "칼로"),
            ("공원", "에서", "공원에서"),
        ],
    )
    def test_particles(self, word: str, kind: str, written: str) -> None:
        assert particle(word, kind) == written

    @given(st.lists(SYLLABLES, min_size=1, max_size=4).map("".join))
    def test_particles_follow_the_last_consonant(self, word: str) -> None:
        """Decomposed (NFD), a syllable with a final consonant is three letters; the last one of ㄹ is U+11AF."""
        letters = unicodedata.normalize("NFD", word[-1])
        closed = len(letters) == 3
        for kind, opened in (("이", "가"), ("은", "는"), ("을", "를"), ("과", "와")):
            assert particle(word, kind) == word + (kind if closed else opened)
        assert particle(word, "으로") == word + ("으로" if closed and letters[2] != "\u11af" else "로")

    @pytest.mark.parametrize(
        ("dictionary", "irregular", "present", "was", "respectful", "future"),
        [
            ("먹다", "", "먹어요", "먹었어요", "먹으세요", "먹을 거예요"),
            ("가다", "", "가요", "갔어요", "가세요", "갈 거예요"),
            ("오다", "", "와요", "왔어요", "오세요", "올 거예요"),
            ("마시다", "", "마셔요", "마셨어요", "마시세요", "마실 거예요"),
            ("배우다", "", "배워요", "배웠어요", "배우세요", "배울 거예요"),
            ("보내다", "", "보내요", "보냈어요", "보내세요", "보낼 거예요"),
            ("돕다", "ㅂ", "도와요", "도왔어요", "도우세요", "도울 거예요"),
            ("굽다", "ㅂ", "구워요", "구웠어요", "구우세요", "구울 거예요"),
            ("듣다", "ㄷ", "들어요", "들었어요", "들으세요", "들을 거예요"),
            ("닫다", "", "닫아요", "닫았어요", "닫으세요", "닫을 거예요"),
            ("짓다", "ㅅ", "지어요", "지었어요", "지으세요", "지을 거예요"),
            ("씻다", "", "씻어요", "씻었어요", "씻으세요", "씻을 거예요"),
            ("부르다", "르", "불러요", "불렀어요", "부르세요", "부를 거예요"),
            ("자르다", "르", "잘라요", "잘랐어요", "자르세요", "자를 거예요"),
            ("만들다", "", "만들어요", "만들었어요", "만드세요", "만들 거예요"),
            ("쓰다", "", "써요", "썼어요", "쓰세요", "쓸 거예요"),
            ("바쁘다", "", "바빠요", "바빴어요", "바쁘세요", "바쁠 거예요"),
            ("공부하다", "", "공부해요", "공부했어요", "공부하세요", "공부할 거예요"),
            ("빨갛다", "ㅎ", "빨개요", "빨갰어요", "빨가세요", "빨갈 거예요"),
        ],
    )
    def test_endings(
        self, dictionary: str, irregular: str, present: str, was: str, respectful: str, future: str
    ) -> None:
        stem = verb(dictionary, irregular)  # type: ignore[arg-type]
        assert (polite(stem), polite(past(stem)), polite(honorific(stem))) == (present, was, respectful)
        assert predicate(stem, "future", False, False, "요") == future

    @pytest.mark.parametrize(
        ("dictionary", "irregular", "descriptive", "written"),
        [
            ("읽다", "", False, "읽는"),
            ("만들다", "", False, "만드는"),
            ("작다", "", True, "작은"),
            ("예쁘다", "", True, "예쁜"),
            ("길다", "", True, "긴"),
            ("아름답다", "ㅂ", True, "아름다운"),
            ("하얗다", "ㅎ", True, "하얀"),
            ("맛있다", "", True, "맛있는"),
        ],
    )
    def test_before_a_noun(self, dictionary: str, irregular: str, descriptive: bool, written: str) -> None:
        assert adnominal(verb(dictionary, irregular, descriptive)) == written  # type: ignore[arg-type]

    def test_stems_are_built_up(self) -> None:
        read, walk, cold = verb("읽다"), verb("걷다", "ㄷ"), verb("춥다", "ㅂ", True)
        assert polite(past(honorific(negative(read)))) == "읽지 않으셨어요"
        assert polite(past(progressive(read, elder=True))) == "읽고 계셨어요"
        assert polite(past(progressive(read, elder=False))) == "읽고 있었어요"
        assert open_stem(walk, "은") == "걸은"
        assert open_vowel(walk) == "걸어"
        assert (although(cold), although(past(cold)), although(walk)) == ("추운데도", "추웠는데도", "걷는데도")

    def test_predicates(self) -> None:
        read, be = verb("읽다"), words.AT.korean
        assert predicate(read, "past", False, True, "은") == "읽으신"
        assert predicate(read, "was", False, False, "은") == "읽고 있던"
        assert predicate(read, "present", True, False, "은") == "읽지 않는"
        assert predicate(read, "future", False, False, "고") == "읽을 것이고"
        assert predicate(read, "past", True, False, "지만") == "읽지 않았지만"
        assert predicate(read, "present", False, True, "기 때문에") == "읽으시기 때문에"
        assert predicate(read, "past", False, False, "때") == "읽었을 때"
        assert predicate(be, "past", True, False, "요") == "없었어요"
        assert predicate(verb("알다"), "present", True, False, "요") == "몰라요"


class TestFrench:
    @pytest.mark.parametrize(
        ("tokens", "written"),
        [
            ("le homme", "l'homme"),
            ("la eau", "l'eau"),
            ("le hamster", "le hamster"),
            ("de le pain", "du pain"),
            ("de le homme", "de l'homme"),
            ("de les enfants", "des enfants"),
            ("à le marché", "au marché"),
            ("à la école", "à l'école"),
            ("à les amis", "aux amis"),
            ("je ai", "j'ai"),
            ("il ne est pas", "il n'est pas"),
            ("parce que il", "parce qu'il"),
            ("même si il", "même s'il"),
            ("même si elle", "même si elle"),
            ("beaucoup de hommes", "beaucoup d'hommes"),
        ],
    )
    def test_elision_and_contraction(self, tokens: str, written: str) -> None:
        assert join(tokens.split(" ")) == written

    @pytest.mark.parametrize(
        ("infinitive", "present", "imparfait", "futur", "said"),
        [
            ("manger", "mange mange mangeons mangez mangent", "mangeait", "mangera", "mangées"),
            ("acheter", "achète achète achetons achetez achètent", "achetait", "achètera", "achetées"),
            ("appeler", "appelle appelle appelons appelez appellent", "appelait", "appellera", "appelées"),
            ("nettoyer", "nettoie nettoie nettoyons nettoyez nettoient", "nettoyait", "nettoiera", "nettoyées"),
            ("envoyer", "envoie envoie envoyons envoyez envoient", "envoyait", "enverra", "envoyées"),
            ("choisir", "choisis choisit choisissons choisissez choisissent", "choisissait", "choisira", "choisies"),
            ("vendre", "vends vend vendons vendez vendent", "vendait", "vendra", "vendues"),
            ("aller", "vais va allons allez vont", "allait", "ira", "allées"),
            ("être", "suis est sommes êtes sont", "était", "sera", "étées"),
            ("écrire", "écris écrit écrivons écrivez écrivent", "écrivait", "écrira", "écrites"),
            ("voir", "vois voit voyons voyez voient", "voyait", "verra", "vues"),
            ("apprendre", "apprends apprend apprenons apprenez apprennent", "apprenait", "apprendra", "apprises"),
        ],
    )
    def test_conjugation(self, infinitive: str, present: str, imparfait: str, futur: str, said: str) -> None:
        assert " ".join(conjugate(infinitive, "present", person) for person in range(5)) == present
        assert (conjugate(infinitive, "imparfait", 1), conjugate(infinitive, "futur", 1)) == (imparfait, futur)
        assert participle(infinitive, feminine=True, plural=True) == said

    def test_we_do_not_write_mangeions(self) -> None:
        assert conjugate("manger", "imparfait", 2) == "mangions"
        assert participle("apprendre", plural=True) == "appris"

    @pytest.mark.parametrize(
        ("word", "several"),
        [
            ("livre", "livres"),
            ("gâteau", "gâteaux"),
            ("journal", "journaux"),
            ("ours", "ours"),
            ("pomme de terre", "pommes de terre"),
            ("grand-mère", "grands-mères"),
            ("heureux", "heureux"),
            ("bleu", "bleus"),
        ],
    )
    def test_plural(self, word: str, several: str) -> None:
        assert plural_of(word) == several

    def test_determiners(self) -> None:
        assert determiner("this", False, False, "garçon") == "ce"
        assert determiner("this", False, False, "homme") == "cet"
        assert determiner("this", True, False, "école") == "cette"
        assert determiner("my", True, False, "tante") == "ma"
        assert determiner("my", True, False, "horloge") == "mon"
        assert determiner("my", True, True, "horloges") == "mes"
