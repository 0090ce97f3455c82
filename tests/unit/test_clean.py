"""Text with HTML entities, and text that a tokeniser has split: what is found in it, and what is
made of it."""

import pytest

from regard.data.config import TextPairs
from regard.tasks.translation import EvaluationConfig, Parallel, translation_scores
from regard.text.clean import Cleaning, detokenised, entity_in, signs_in, token_in

PLAIN = [
    'Hello (world), fine. It\'s "ok" here.',
    "the boys' toys cost 1,000.50 at www.example.com",
    "AT&T & Co; a < b",
    "« Qu'est-ce ? » dit-il : l'homme n'a rien !",
    "",
    "'s",
    "안녕하세요, 민수는 네.",
    "user@example.com (a@b)",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Don &apos;t worry , it &apos;s 5 @-@ 6 @.@ 2 ( really ) !",
            "Don't worry, it's 5-6.2 (really)!",
        ),
        ("He said : &quot; hello world &quot; .", 'He said: "hello world".'),
        (
            "l&apos; homme qu&apos; il aime , aujourd&apos; hui .",
            "l'homme qu'il aime, aujourd'hui.",
        ),
        ("I do n't like 50 % of AT &amp; T .", "I don't like 50% of AT & T."),
        ("&#39; &#x41; &#10; &copy=1 &nothing;", "' A   &copy=1 &nothing;"),
        ("« Bonjour » , dit il ?", "«Bonjour», dit il?"),
    ],
)
def test_moses_text_becomes_plain(text: str, expected: str) -> None:
    clean = Cleaning(unescape=True, detokenise=True)
    assert clean(text) == expected
    assert clean(expected) == expected


def test_french_keeps_its_spaces() -> None:
    text = "« Bonjour » , dit l' homme : 50 % ? Oui !"
    assert detokenised(text, french=True) == "« Bonjour », dit l'homme : 50 % ? Oui !"


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_and_has_no_signs(text: str) -> None:
    assert Cleaning(unescape=True, detokenise="fr")(text) == text
    assert (entity_in(text), token_in(text)) == (None, None)


def test_each_setting_does_its_own_part() -> None:
    text = "it &apos;s a test ."
    assert Cleaning()(text) == text
    assert Cleaning(unescape=True)(text) == "it 's a test ."
    assert Cleaning(detokenise=True)(text) == "it &apos;s a test."


def test_the_signs_are_counted_with_an_example() -> None:
    texts = ["it &apos;s here", "a &quot; b &quot; .", "fine", "fine", "fine"]
    found = signs_in(texts)
    assert (found.texts, found.entities, found.tokens, found.entity, found.token) == (
        5,
        2,
        2,
        "&apos;",
        "it 's",
    )
    entities, effect, tokens = found.notes("target")
    assert effect == "a metric such as BLEU counts each entity as several words and is too high"
    assert found.notes("source") == [
        entities.replace("target", "source"),
        tokens.replace("target", "source"),
    ]
    assert entities.startswith(
        "2 of 5 texts of the target have HTML entities, such as '&apos;': data.unescape=true"
    )
    assert tokens.startswith(
        '2 of 5 texts of the target are split into tokens, such as "it \'s": data.detokenise=true'
    )


def test_few_signs_are_not_worth_a_note() -> None:
    """Ordinary text has a stray space before a stop now and then, and one entity in very many
    lines."""
    assert signs_in(["so be it ."] + 9 * ["so be it."]).notes("source") == []
    assert signs_in(["&amp;"] + 1_999 * ["so be it."]).notes("source") == []


def test_entities_inflate_bleu() -> None:
    """13a reads &apos; as three words that outputs and references share."""
    outputs = [f"{word} &apos;s dog sees it ." for word in ("Anna", "Ben", "Carla")]
    references = [[f"{word} &apos;s cat was there ."] for word in ("Emma", "Fred", "Grace")]
    clean = Cleaning(unescape=True, detokenise=True)
    inflated = translation_scores(outputs, references, EvaluationConfig())["bleu"]
    right = translation_scores(
        [*map(clean, outputs)], [[clean(one)] for [one] in references], EvaluationConfig()
    )["bleu"]
    assert inflated > 3 * right > 0


def test_each_side_may_have_its_own_setting() -> None:
    data = TextPairs[Parallel].model_validate(
        {"train": [], "detokenise": {"source": True, "target": "fr"}}
    )
    assert (data.cleaning("source").detokenise, data.cleaning("target").detokenise) == (True, "fr")
    data = TextPairs[Parallel].model_validate({"train": [], "detokenise": {"target": True}})
    assert (data.cleaning("source").detokenise, data.cleaning("target").detokenise) == (False, True)
