"""The commands `corpora`, `show` and `course`: what can be learned without data of one's own."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.options import RESULT_SUFFIXES, JsonOption, OverwriteOption
from regard.errors import RegardError, refuse
from regard.language import shown

if TYPE_CHECKING:
    from regard.course import Chapter
    from regard.course.lab import Lesson


def corpora(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="The corpus. Default: list them.")
    ] = None,
    out: Annotated[Path | None, Option(help="A .jsonl file. Default: print a few lines.")] = None,
    size: Annotated[
        int | None, Option(help="How many rows. Default: all, or 20,000.", min=1)
    ] = None,
    part: Annotated[str, Option(help="train, validation or test.")] = "train",
    overwrite: OverwriteOption = False,
) -> None:
    """Write a built-in corpus as a file, as your own could look; images go into a folder beside
    it."""
    from regard.data.corpora import names, objects, write_corpus

    if name is None:
        console.say("\n".join(names()))
    elif out is None:
        for row in objects(name, size or 5, part):
            console.show_json(row)
    else:
        console.check_output(out, (".jsonl",), overwrite=overwrite)
        console.say(f"written: {out}, {write_corpus(name, out, size, part):,} rows")


def show(
    *,
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="The picture. Default: list them.")
    ] = None,
    settings: Annotated[
        list[str],
        Argument(
            metavar="[TEXT | KEY=VALUE]...",
            help="The sentence to work on; settings to change.",
            default_factory=list,
            show_default=False,
        ),
    ],
    exercise: Annotated[
        bool, Option("--exercise", help="Leave blanks for the results, to print and fill in.")
    ] = False,
    solution: Annotated[
        bool, Option("--solution", help="Mark the results; with --exercise after it.")
    ] = False,
    out: Annotated[Path | None, Option(help="A .svg, .png, .html or .json file to write.")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show an equation at work, without training: positions, masks, softmax and others as pictures,
    attention, BERT's input, beam search and others by hand."""
    if name is None:
        _list_sheets(out, overwrite=overwrite, as_json=as_json)
        return
    console.check_output(out, RESULT_SUFFIXES, overwrite=overwrite)
    console.show_report(
        regard.show(name, settings, exercise=exercise, solution=solution),
        out,
        as_json=as_json,
        drawn=True,
    )


def _list_sheets(out: Path | None, *, overwrite: bool, as_json: bool) -> None:
    """Print the pictures and worked examples, or write a page with a small drawing of each."""
    from regard.views.render import write_file
    from regard.views.show import list_page, summaries

    console.check_output(out, (".html",), overwrite=overwrite)
    if as_json:
        console.show_json(summaries())
    elif out is None:
        print("\n".join(f"{key:16}  {shown(text)}" for key, text in summaries().items()))
    if out is not None:
        write_file(out, [list_page().encode()])
        if not as_json:
            console.say(f"written: {out}")


def course(  # noqa: PLR0913  (one parameter per option)
    chapter: Annotated[
        str | None,
        Argument(
            metavar="[CHAPTER]",
            help="The number of a chapter to run, or a word: any word of a textbook, in English or "
            "Korean, finds its topics. Default: list chapters and topics.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="The page or notebook (.ipynb) to write. Default: course/CHAPTER.html."),
    ] = None,
    overwrite: OverwriteOption = False,
    language: Annotated[
        str | None,
        Option("--lang", help="en or ko. Default: REGARD_LANG, or the locale's language."),
    ] = None,
    full: Annotated[
        Path | None,
        Option(metavar="DATA", help="A folder with real data, for a GPU; see docs/course.md."),
    ] = None,
    quick: Annotated[
        bool,
        Option("--quick", help="One seed and a tenth of the steps: a first look in a minute."),
    ] = False,
    seed: Annotated[int, Option(help="The first of the three seeds.", min=0)] = 1,
    no_run: Annotated[
        bool,
        Option(
            "--no-run",
            help="Train nothing: the page shows the findings that come with regard.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a chapter of the course: its experiments, and a page with text, figures and questions. Or
    find a topic.

    Trained runs are kept beside the page, in the folder runs, and used again.
    """
    from regard.course import chosen_language

    language = chosen_language(language)
    if chapter is None:
        _list_chapters(language, as_json=as_json)
        return
    if not chapter.isdecimal():
        refuse(
            {"--out": out, "--full": full, "--quick": quick}, "a word finds topics and runs none"
        )
        _show_topics(chapter, language, as_json=as_json)
        return
    from regard.course import find_chapter

    chosen = find_chapter(chapter, language)
    page = out or Path("course") / f"{chosen.number}.html"
    from regard.course.lab import run as run_chapter
    from regard.training.interrupts import Interrupted

    with suppress(OSError):  # what cannot be made is refused below
        page.parent.mkdir(parents=True, exist_ok=True)
    console.check_output(page, (".html", ".ipynb"), overwrite=overwrite or out is None)
    if no_run:
        refuse({"--full": full, "--quick": quick}, "--no-run trains nothing")
        _write_lesson(_known_lesson(chosen, language), page, as_json=as_json)
        return
    if page.suffix.lower() == ".html" and not (page.exists() or quick or full):
        _write_known_page(chosen, language, page)
    try:
        lesson = run_chapter(
            chosen.number,
            runs=page.parent / "runs",
            language=language,
            say=_say_on_standard_error,
            full=full,
            quick=quick,
            seed=seed,
        )
    except (Interrupted, KeyboardInterrupt):
        console.say(
            "interrupted; the same command continues, with the runs that are trained already",
            sys.stderr,
        )
        raise typer.Exit(130) from None
    _write_lesson(lesson, page, as_json=as_json)


def _known_lesson(chapter: Chapter, language: str) -> Lesson:
    """A chapter with the findings that come with regard."""
    from regard.course.lab import packaged_lesson

    lesson = packaged_lesson(chapter, language)
    if lesson is None:
        what = "no findings come with this chapter"
        raise RegardError(what, where="--no-run", hint="run it without --no-run")
    return lesson


def _write_known_page(chapter: Chapter, language: str, page: Path) -> None:
    """Write a page that can be read while the experiment runs, if there are findings for it."""
    from regard.views.page import page as html_of
    from regard.views.render import write_file

    with suppress(RegardError):
        write_file(page, [html_of(_known_lesson(chapter, language).report()).encode()])
        console.say(
            f"{page} can be read now, with the findings that come with regard; it is written again "
            "when the experiment has run",
            sys.stderr,
        )


def _write_lesson(lesson: Lesson, page: Path, *, as_json: bool) -> None:
    """Print a chapter, and write its page or notebook."""
    from regard.views.render import write_file

    if page.suffix.lower() != ".ipynb":
        console.show_report(lesson, page, as_json=as_json)
        return
    write_file(page, [lesson.notebook(page.parent).encode()])
    console.show_report(lesson, None, as_json=as_json)
    if not as_json:
        console.say(f"written: {page}")


def _say_on_standard_error(text: str) -> None:
    """A function of the module, since the processes of the seeds call it."""
    console.say(text, sys.stderr)


def _list_chapters(language: str, *, as_json: bool) -> None:
    from regard.course import chapters
    from regard.course.topics import FINDING, topics

    listed = chapters(language)
    names = defaultdict[int | None, list[str]](list)
    sections = defaultdict[str, list[str]](list)
    for topic in topics():
        names[topic.chapter].append(topic.name(language))
        sections[topic.section[language]].append(topic.name(language))
    if as_json:
        console.show_json(
            [
                {
                    "chapter": entry.number,
                    "name": entry.name,
                    "title": entry.title,
                    "topics": names[entry.number],
                }
                for entry in listed
            ]
        )
        return
    lines = [f"{entry.number}  {entry.title}" for entry in listed]
    lines += ["", *(f"{section}: {', '.join(found)}" for section, found in sections.items()), ""]
    lines.append(FINDING[language])
    print("\n".join(lines))


def _show_topics(word: str, language: str, *, as_json: bool) -> None:
    from regard.course.topics import RELATED, described, related, topics_or_refusal

    found = topics_or_refusal(word)
    if as_json:
        console.show_json([topic.to_json() for topic in found])
        return
    texts = [described(topic, language) for topic in found]
    if names := related(found, word, language):
        texts.append(f"{RELATED[language]}: {', '.join(names)}")
    print("\n\n".join(texts))
