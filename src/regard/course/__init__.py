"""The course: chapters whose claims are experiments that one command repeats.

A chapter NAME is a text in English, `NN-NAME.en.md`, its translation, `NN-NAME.ko.md`, and `NAME.py`
with its experiment, `experiment(lab: Lab) -> Findings`, over the public API, and its `CLAIMS`. The
experiment runs with three seeds (seeds.py): numbers become means with their range, and each claim
gets a verdict. What measures time is in `experiment_alone(lab)`, which runs after all seeds. The text
is Markdown that Jinja2 fills with the numbers, and has seven conventions:

    paragraphs and bullets before the first `##`    what the chapter is about, and what to look at
    ![caption](name)                                a line of its own: a figure or table of the experiment; one that
                                                    only `--full` has is in `{% if full %}` and
                                                    begins with full_
    ![caption](code:regard.search.decode.search)    a line of its own: the source of a function, folded
    ### A question?                                 what follows, up to the next heading, is folded

    {{ share|percent }}                             a number; `|fixed(1)` for decimals; with its range over the seeds
    {{ verdict.KEY }}                               "this holds with all 3 seeds"; for conditions:
                                                    `verdict.KEY.holds`, `.fails`, `.differs`

    ```guess                                        a question that is asked before the figure that it names, until
                                                    the reader has guessed: `figure`, `question`, `answer`

`![caption](claims)` is the table of all claims. A last block ```words translates the labels of the
figures and the claims, which the experiment writes in English.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from regard.errors import RegardError, did_you_mean
from regard.language import default_language

LANGUAGES = ("en", "ko")


@dataclass(frozen=True)
class Chapter:
    """A chapter's number, name and text."""

    number: int
    name: str
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")


def chosen_language(language: str | None = None) -> str:
    """The language of the course: this one, or the user's."""
    language = language or default_language()
    if language not in LANGUAGES:
        raise RegardError(
            f"there is no {language!r}", where="--lang", hint=did_you_mean(language, LANGUAGES)
        )
    return language


def chapters(language: str | None = None) -> list[Chapter]:
    """All chapters in their order, in one language; a chapter without a translation is English."""
    language = chosen_language(language)
    folder = files("regard.course")
    names = sorted(
        file.name.removesuffix(".en.md")
        for file in folder.iterdir()
        if file.name.endswith(".en.md")
    )
    found = []
    for name in names:
        number, _, title = name.partition("-")
        translation = folder / f"{name}.{language}.md"
        file = translation if translation.is_file() else folder / f"{name}.en.md"
        found.append(Chapter(int(number), title, file.read_text(encoding="utf-8")))
    return found


def find_chapter(wanted: str, language: str | None = None) -> Chapter:
    """The chapter with this number or name."""
    every = chapters(language)
    for chapter in every:
        if wanted in (str(chapter.number), chapter.name):
            return chapter
    allowed = ", ".join(f"{chapter.number} ({chapter.name})" for chapter in every)
    raise RegardError(
        f"there is no chapter {wanted!r}", where="CHAPTER", hint=f"allowed: {allowed}"
    )
