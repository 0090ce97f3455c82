"""A headline says what its report says, in fewer words and without what does not matter."""

from __future__ import annotations

import re

import pytest

from regard.data.corpora import Pair, Part, generate
from regard.data.headlines import EVENTS, HEARSAY, SIGHTS, WORDS


def length(text: str) -> int:
    return len(text.split(" "))


class TestHeadlines:
    def test_reports_and_headlines_have_their_length(self) -> None:
        for report, headline in generate("headlines", 5_000, 1, "train"):
            assert 2 <= report.count(". ") + 1 <= 4, report
            assert 12 <= length(report) <= 60, report
            assert 3 <= length(headline) <= 11, headline
            assert not re.search(r"[{}]|\ba [aeiou]", report + headline), report

    def test_a_headline_keeps_to_the_report_and_leaves_out_what_does_not_matter(self) -> None:
        names = {word for slot in ("city", "other", "firm", "team", "name", "tens", "hundreds") for word in WORDS[slot]}
        asides = {word for slot in ("other", "teens", "year") for word in WORDS[slot]}
        for report, headline in generate("headlines", 5_000, 2, "train"):
            said = set(re.findall(r"\w+", headline))
            assert said & names <= set(re.findall(r"\w+", report)), (report, headline)
            assert not said & asides, headline

    def test_a_headline_is_no_copy_of_the_report(self) -> None:
        pairs = list(generate("headlines", 3_000, 1, "test"))
        assert not any(headline.lower() in report.lower() for report, headline in pairs)
        assert len({headline for _, headline in pairs}) > 1_500

    def test_every_slot_has_words(self) -> None:
        texts = [text for event in EVENTS for text in (*event.leads, event.headline, *sum(event.consequences, ()))]
        slots = {
            slot.lower().rstrip("2") for text in (*texts, *SIGHTS, *HEARSAY) for slot in re.findall(r"{(\w+)}", text)
        }
        assert slots == set(WORDS)

    def test_headlines_say_only_what_was_told(self) -> None:
        """Every slot of a headline stands in its lead or its consequence, or a reader could not know it."""
        for event in EVENTS:
            for told, headline in (("", event.headline), *event.consequences):
                for lead in event.leads:
                    known = set(re.findall(r"{(\w+)}", lead + told))
                    assert {slot.lower() for slot in re.findall(r"{(\w+)}", headline)} <= known, (lead, headline)


GOLDEN: dict[tuple[str, Part], list[Pair]] = {
    ("headlines", "train"): [
        (
            "The price of milk in Rome rose by 35 percent in April. Farmers blame the long rain of "
            "last year. About nineteen journalists had come from Hamburg. A meeting in Hamburg had "
            "ended without a result in 1987.",
            "Rain drives up milk prices in Rome",
        ),
        (
            "The company Mirae, which makes bicycles, announced on Wednesday that it will open a new "
            "factory in Tokyo. About fourteen journalists had come from Boston. A neighbor from "
            "Boston called it a surprise. The factory will create 800 jobs.",
            "Mirae to create 800 jobs in Tokyo",
        ),
    ],
    ("headlines", "test"): [
        (
            "The price of meat in Nice rose by 40 percent in October. A bus driver had heard the news "
            "on the radio. The governor did not want to answer any questions.",
            "Meat prices up 40 percent in Nice",
        ),
        (
            "Researchers at the University of Berlin presented a new solar panel on Wednesday. About "
            "sixteen journalists had come from Vienna. A spokeswoman did not want to answer any "
            "questions.",
            "Berlin researchers develop new solar panel",
        ),
    ],
}


@pytest.mark.parametrize(("name", "part"), GOLDEN)
def test_text_is_the_same_on_every_machine(name: str, part: Part) -> None:
    """When this changes on purpose, VERSION in corpora.py counts up."""
    assert list(generate(name, len(GOLDEN[name, part]), 1, part)) == GOLDEN[name, part]
