"""Short reports with distracting details -> a headline of one line, for abstractive summarisation.

A report says who did what, where and when, then perhaps what followed, and in between what does not matter. The
headline keeps the news alone: present tense, no articles, the consequence before its cause.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from regard.data.draws import pick


class Event(NamedTuple):
    """What happened, with slots: {city} is one of WORDS["city"], {name2} is a second name, {Number} has a capital."""

    leads: tuple[str, ...]
    headline: str
    """When nothing follows."""
    consequences: tuple[tuple[str, str], ...]
    """What followed, and the headline then."""
    seen: bool = True
    """Whether there was something to see, or only to hear of: it decides what is told beside the news."""


EVENTS = (
    Event(
        ("a fire broke out in a {building} in {city} on {day}", "on {day}, a {building} in {city} caught fire {hour}"),
        "Fire breaks out in {city} {building}",
        (
            ("{number} {people} were injured", "{Number} hurt in {city} {building} fire"),
            ("nobody was hurt, but the {building} was completely destroyed", "Fire destroys {building} in {city}"),
            (
                "firefighters brought {number} {people} to safety within an hour",
                "{Number} {people} rescued from burning {city} {building}",
            ),
        ),
    ),
    Event(
        ("a heavy {storm} hit {city} {hour} on {day}", "{city} was struck by a violent {storm} on {day}"),
        "{Storm} hits {city}",
        (
            (
                "more than {hundreds} {people} had to leave their homes",
                "{Storm} drives {hundreds} from homes in {city}",
            ),
            ("all schools will stay closed until {day2}", "{city} schools close after {storm}"),
            ("{number} bridges were damaged and cannot be used", "{Storm} damages {number} bridges in {city}"),
        ),
    ),
    Event(
        (
            "the company {firm}, which makes {good}s, announced on {day} that it will open a new factory in {city}",
            "{firm} will build a new factory for {good}s in {city}, its director said on {day}",
        ),
        "{firm} to open {good} factory in {city}",
        (
            ("the factory will create {hundreds} jobs", "{firm} to create {hundreds} jobs in {city}"),
            (
                "the factory will cost {tens} million dollars",
                "{firm} to build {good} factory in {city} for {tens} million",
            ),
        ),
        seen=False,
    ),
    Event(
        (
            "{firm} lost {tens} million dollars last year because it sold fewer {good}s",
            "the maker of {good}s {firm} reported on {day} that it had lost {tens} million dollars",
        ),
        "{firm} loses {tens} million",
        (
            (
                "its plant in {city} will be closed, and {hundreds} workers have to go",
                "{firm} cuts {hundreds} jobs in {city}",
            ),
            ("the director of {firm} resigned on the same day", "{firm} director quits after {tens} million loss"),
        ),
        seen=False,
    ),
    Event(
        (
            "the {team} won against the {team2} by {high} to {low} in {city} on {day}",
            "in front of {thousands} people, the {team} beat the {team2} {high} to {low} in {city}",
        ),
        "{team} beat {team2} {high}-{low} in {city}",
        (
            ("the {team} will now play in the final", "{team} reach final after beating {team2}"),
            ("it was their {ordinal} victory in a row", "{team} beat {team2} for {ordinal} straight win"),
            ("the best player of the {team2} was injured in the last minutes", "{team2} lose match and star to {team}"),
        ),
    ),
    Event(
        (
            "after {number} years of work, a new {road} was opened in {city} on {day}",
            "{official} opened a new {road} in {city} on {day}, {number} years after the work had begun",
        ),
        "{city} opens new {road} after {number} years",
        (
            ("it cost twice as much as had been planned", "New {city} {road} opens at double cost"),
            ("the way to the center is now {tens} minutes shorter", "New {city} {road} saves {tens} minutes"),
        ),
    ),
    Event(
        (
            "thieves stole {number} {treasures} from a museum in {city} {hour} on {day}",
            "{number} {treasures} disappeared from a museum in {city} on {day}",
        ),
        "{Number} {treasures} stolen from {city} museum",
        (
            (
                "the police arrested {number2} suspects near the harbor",
                "Police arrest {number2} over {city} museum theft",
            ),
            ("the {treasures} were found in a garden two days later", "Stolen {treasures} found in {city} garden"),
        ),
    ),
    Event(
        (
            "{name}, the mayor of {city}, resigned on {day} after {number} years in office",
            "on {day}, mayor {name} of {city} gave up the office that had been hers for {number} years",
        ),
        "{city} mayor {name} resigns",
        (
            ("{name2} will follow her until a new mayor is elected", "{name2} replaces {name} as {city} mayor"),
            ("she had been accused of taking money from {firm}", "{city} mayor {name} quits over {firm} money"),
        ),
        seen=False,
    ),
    Event(
        (
            "a {vehicle} and a {vehicle2} collided near {city} {hour} on {day}",
            "near {city}, a {vehicle} ran into a {vehicle2} on {day}",
        ),
        "{Vehicle} and {vehicle2} collide near {city}",
        (
            ("{number} {people} were taken to a hospital", "{Number} hurt in {vehicle} crash near {city}"),
            ("the road was closed for {number} hours", "{Vehicle} crash closes road near {city} for {number} hours"),
        ),
    ),
    Event(
        (
            "a {animal} escaped from the zoo of {city} {hour} on {day}",
            "on {day}, a keeper at the zoo of {city} found the cage of a {animal} empty",
        ),
        "{Animal} escapes from {city} zoo",
        (
            ("the animal was caught in a park after {number} hours", "Escaped {animal} caught in {city} park"),
            ("the police asked everyone to stay at home", "{city} told to stay home as {animal} escapes"),
        ),
    ),
    Event(
        (
            "the price of {food} in {city} rose by {tens} percent in {month}",
            "in {month}, people in {city} paid {tens} percent more for {food} than a year before",
        ),
        "{Food} prices up {tens} percent in {city}",
        (
            ("farmers blame the long {weather} of last year", "{Weather} drives up {food} prices in {city}"),
            ("the city will now help poor families", "{city} to help poor as {food} prices rise"),
        ),
        seen=False,
    ),
    Event(
        (
            "researchers at the University of {city} presented a new {invention} on {day}",
            "a team of {number} researchers in {city} developed a new {invention}",
        ),
        "{city} researchers develop new {invention}",
        (
            ("{firm} bought the idea for {tens} million dollars", "{firm} buys new {invention} for {tens} million"),
            ("it works {number2} times faster than the old one", "New {city} {invention} is {number2} times faster"),
        ),
        seen=False,
    ),
)

SIGHTS = (
    "{witness} said that the street had been unusually quiet",
    "{witness}, who was on the way to {other}, stopped to watch",
    "{witness} took several photographs and sent them to a newspaper in {other}",
    "about {teens} journalists from {other} came to see the place",
    "a concert for {teens} schools had taken place nearby on the evening before",
    "{official} thanked everyone who had helped",
    "local radio interrupted its program for the report",
    "something similar had happened in {other} in {year}",
)
HEARSAY = (
    "{official} did not want to answer any questions",
    "{witness} had heard the news on the radio",
    "{official} in {other} had expected the news for weeks",
    "about {teens} journalists had come from {other}",
    "the newspapers in {other} had written about it before",
    "a meeting in {other} had ended without a result in {year}",
    "{witness} from {other} called it a surprise",
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


WORDS: dict[str, tuple[str, ...]] = {
    "city": _names("Seoul Busan Incheon Paris Lyon Nice London Leeds Berlin Bonn Madrid Rome Tokyo Toronto Chicago"),
    "other": _names("Oslo Lisbon Vienna Dublin Athens Prague Geneva Boston Denver Daegu Jeju Hamburg"),
    "day": _names("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "month": _names("January February March April May June July August September October November December"),
    "hour": ("early in the morning", "shortly before noon", "in the afternoon", "late in the evening", "at midnight"),
    "people": ("children", "visitors", "workers", "students", "tourists", "residents"),
    "witness": ("a neighbor", "a student", "a shopkeeper", "a bus driver", "a retired teacher", "a nurse", "a cook"),
    "official": ("the mayor", "a police officer", "a spokeswoman", "the fire chief", "the governor", "a minister"),
    "number": _names("two three four five six seven eight nine ten eleven twelve"),
    "teens": _names("thirteen fourteen fifteen sixteen seventeen eighteen nineteen"),
    "tens": _names("20 25 30 35 40 45 50 60 70 80 90"),
    "hundreds": _names("150 200 300 400 500 600 700 800 900"),
    "thousands": _names("8,000 12,000 15,000 21,000 30,000 45,000"),
    "year": _names("1987 1994 1999 2003 2008 2012 2017"),
    "high": ("5", "6", "7", "8", "9"),
    "low": ("0", "1", "2", "3", "4"),
    "ordinal": _names("third fourth fifth sixth seventh eighth ninth tenth"),
    "firm": _names("Hanbit Norda Solaris Lumen Kestrel Mirae Orion Vertex Daon Atlas"),
    "good": _names("phone car bicycle camera truck chip ship shoe lamp toy"),
    "team": _names("Lions Tigers Eagles Bears Falcons Wolves Sharks Bulls"),
    "building": ("hotel", "factory", "warehouse", "school", "hospital", "library", "museum", "market"),
    "road": ("bridge", "tunnel", "highway", "railway", "harbor", "tram line"),
    "treasures": ("paintings", "coins", "statues", "vases", "rings", "swords"),
    "name": _names("Kim Park Choi Jung Martin Dubois Moreau Clark Walker Weber Rossi Silva"),
    "vehicle": ("bus", "truck", "tram", "taxi", "train", "van"),
    "animal": ("tiger", "lion", "bear", "monkey", "wolf", "zebra", "penguin", "camel"),
    "food": ("rice", "bread", "milk", "coffee", "cheese", "meat", "butter"),
    "storm": ("storm", "flood", "snowstorm", "thunderstorm", "hailstorm"),
    "weather": ("drought", "heat", "frost", "rain", "winter"),
    "invention": ("battery", "vaccine", "engine", "telescope", "solar panel", "translation program"),
}


def draw(random: Random) -> tuple[str, str]:
    """A report of two to four sentences, and its headline."""
    leads, headline, consequences, seen = pick(random, EVENTS)
    sentences = [pick(random, leads)]
    number = int(random.random() * (len(consequences) + 1))
    if number < len(consequences):
        consequence, headline = consequences[number]
        sentences.append(consequence)
    for aside in _asides(random, SIGHTS if seen else HEARSAY):
        sentences.insert(1 + int(random.random() * len(sentences)), aside)
    slots = Slots(random)
    written = (text.format_map(slots) for text in sentences)
    return " ".join(text[0].upper() + text[1:] + "." for text in written), headline.format_map(slots)


class Slots(dict[str, str]):
    """What fills the slots of one report: drawn when first asked for, and the same from then on."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random

    def __missing__(self, slot: str) -> str:
        if slot[0].isupper():
            word = self[slot.lower()]
            word = word[0].upper() + word[1:]
        else:
            taken = self.get(slot[:-1])
            word = pick(self.random, WORDS[slot.rstrip("2")])
            while word == taken:
                word = pick(self.random, WORDS[slot.rstrip("2")])
        self[slot] = word
        return word


def _asides(random: Random, told: tuple[str, ...]) -> list[str]:
    """One or two different things that are told beside the news."""
    first, step = int(random.random() * len(told)), int(random.random() * len(told))
    return [told[number % len(told)] for number in sorted({first, first + step})]
