"""The figures of a report as one picture, drawn by matplotlib with fonts that have every letter."""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as RichText

from regard.errors import RegardError, import_extra
from regard.text.normalise import one_line
from regard.views.labels import number, shorten
from regard.views.report import (
    Bars,
    Curves,
    Figure,
    HeatMap,
    HeatMaps,
    ImageMap,
    Points,
    Table,
    Tree,
)

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b5b5b", "#8c6d31")
"""Okabe and Ito 2008, "Color Universal Design", without yellow, which is too pale; then grey and
brown."""
MARKERS = "os^Dv*ph"
DASHES = ("-", "--", ":", "-.")
BLUES = ("ffffff", "d0e4fe", "a5c8f6", "7eace9", "5b90d6", "3c75bf", "215ba3", "074284", "002a62")
"""One hue at nine lightnesses, L* = 100, 89.75, ... 18: the scale survives a grey printer."""
ORANGES = ("ffffff", "ffddc5", "fdbb8a", "f1994f", "d87820", "b85b00", "934100", "6d2b00", "481900")
"""The lightnesses of BLUES in the opposite hue, for values below zero."""
LATIN_FONT = "DejaVu Sans"
KOREAN_FONT = "Regard Sans KR"
"""Fonts that are always available: matplotlib and regard bring them."""
KOREAN_FILE = Path(__file__).parent / "fonts" / "RegardSansKR.otf"
"""All Hangul syllables and the symbols of KS X 1001, from Noto Sans CJK (scripts/subset_font)."""
FONTS = ("Noto Sans CJK KR", "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", "NanumGothic")
"""Fonts with Hangul and Latin letters: Linux (two names), macOS, Windows, Linux again."""
CELL_SIDE = 0.28
"""Side of a cell in inches."""
MAX_PICTURE_SIDE = 30.0
"""Longest side of a picture in inches."""
DOTS = 110
TITLE_SIZE = 11
TITLE_LINES = 3
MIN_AXIS_RANGE = 0.01
"""Minimum range of the vertical axis of curves, as a share of its largest value."""
MAX_PANELS_PER_ROW = 6
"""Maximum number of panels of an image map in a row."""
MAX_GRID_SIDE = 40
"""Rows and columns up to which a map of yes and no gets a grid."""
SPARSE_WIDTH = 11.0
SPARSE_HEIGHT = 9.0
"""Size in inches that a heat map shrinks to if it labels only some of its columns."""
ROW_HEIGHT = 0.28
LETTER_WIDTH = 0.085
COLUMN_GAP = 0.25
TITLE_HEIGHT = 0.45
"""Sizes of a table in inches."""
MAX_CELL_LETTERS = 60
"""Longer texts of a table's cells are wrapped."""
TABLE_COLOURS = {
    "header": "#4b5563",
    "good": "#00694b",
    "bad": "#a83e00",
    "muted": "#6b7280",
    "answer": "#0b5cad",
}
Panel = HeatMap | Curves | Bars | ImageMap | Tree | Points | Table


def draw(figures: Sequence[Figure | Table], path: Path) -> bytes:
    """All figures in one picture, in the format that the suffix of the path names."""
    return draw_rows([figures], path)


def draw_rows(figures: Sequence[Sequence[Figure | Table]], path: Path) -> bytes:
    """All figures in one picture; each of the sequences begins a row."""
    groups = [
        [
            panel
            for figure in group
            for panel in (figure.drawn if isinstance(figure, HeatMaps) else [figure])
        ]
        for group in figures
    ]
    panels = [panel for group in groups for panel in group]
    if not panels:
        raise RegardError("there is no figure to draw", where=str(path), hint="give an .html file")
    kind = path.suffix.lower().removeprefix(".")
    # Text stays text in SVG: the fonts here only measure it, and whoever opens the file needs
    # fonts.
    families = fonts_for(f"{panels}…", path, strict=kind == "png")
    rows = _in_rows([[(panel, *_size(panel)) for panel in group] for group in groups])
    widest = max(sum(width for _, width, _ in row) for row in rows)
    row_heights = [max(height for _, _, height in row) for row in rows]
    narrowing = min(1.0, MAX_PICTURE_SIDE / widest)
    flattening = min(1.0, MAX_PICTURE_SIDE / sum(row_heights))
    settings = {
        "font.family": families,
        "axes.unicode_minus": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "regard",
    }
    with (
        matplotlib_module("", path).rc_context(settings),
        warnings.catch_warnings(),
        _without_remarks_on_fonts(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        whole = matplotlib_module(".figure", path).Figure(
            (narrowing * widest, flattening * sum(row_heights)), dpi=DOTS, layout="constrained"
        )
        strips = np.atleast_1d(whole.subfigures(len(rows), 1, height_ratios=row_heights))
        for strip, row in zip(strips, rows, strict=True):
            widths = [width for _, width, _ in row]
            rest = widest - sum(widths)  # what a short row leaves empty
            ratios = [*widths, *[rest] * (rest > 0.01)]
            places = np.atleast_1d(strip.subfigures(1, len(ratios), width_ratios=ratios))
            size = flattening * max(height for _, _, height in row)
            for place, (panel, width, _) in zip(places, row, strict=False):
                _draw_panel(place, panel, (narrowing * width, size), path)
        content = io.BytesIO()
        whole.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return _with_fonts_of_viewers(content.getvalue()) if kind == "svg" else content.getvalue()


@contextmanager
def _without_remarks_on_fonts() -> Iterator[None]:
    """Not to be told that the Korean font has no bold letters."""
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


SizedPanel = tuple[Panel, float, float]
"""A panel with its width and height in inches."""


def _in_rows(groups: Sequence[Sequence[SizedPanel]]) -> list[list[SizedPanel]]:
    """The panels in reading order, in rows that make the picture about square; each group begins a
    row."""
    widths = [width for group in groups for _, width, _ in group]
    across = math.ceil(math.sqrt(len(widths)))
    limit = max(max(widths), 1.1 * across * sum(widths) / len(widths))
    rows = list[list[SizedPanel]]()
    for group in groups:
        row = list[SizedPanel]()
        for panel in group:
            if row and sum(width for _, width, _ in [*row, panel]) > limit:
                rows.append(row)
                row = []
            row.append(panel)
        rows.append(row)
    return rows


def _draw_panel(place: Any, panel: Panel, size: tuple[float, float], path: Path) -> None:
    _write_title(place, panel.title, size[0])
    match panel:
        case HeatMap():
            _draw_heat_map(place.add_subplot(), panel, path)
        case Curves():
            _draw_curves(place.add_subplot(), panel)
        case Bars():
            _draw_bars(place.add_subplot(), panel)
        case ImageMap():
            _draw_image_map(place, panel)
        case Tree():
            _draw_tree(place.add_subplot(), panel)
        case Points():
            _draw_points(place.add_subplot(), panel)
        case Table():
            if not panel.title:
                place.suptitle(" ", fontsize=TITLE_SIZE)  # in line with its neighbours
            _draw_table(place.add_subplot(), panel, size[1])


def _with_fonts_of_viewers(svg: bytes) -> bytes:
    """Name fonts that readers have installed instead of KOREAN_FONT, which only regard has."""
    common = ", ".join(f"'{name}'" for name in FONTS)
    named = re.sub(rb"(font(?:-family)?: [^;\"]*')", rb"\1, sans-serif", svg)
    return named.replace(f"'{KOREAN_FONT}'".encode(), common.encode())


def matplotlib_module(name: str, path: Path) -> Any:
    """matplotlib, or a module of it; without pyplot, which needs a screen."""
    return import_extra(f"matplotlib{name}", extra="plots", where=str(path), doing="drawing")


def _size(panel: Panel) -> tuple[float, float]:
    """Width and height in inches, with room for labels and title."""
    match panel:
        case HeatMap():
            rows, columns = panel.values.shape
            side = CELL_SIDE
            labels_above = 2.5
            if "" in panel.columns:
                side = min(CELL_SIDE, SPARSE_WIDTH / columns, SPARSE_HEIGHT / rows)
                labels_above = 1.5
            width = columns * side + 2.5 + 0.11 * (panel.label_width - 18)
            return max(3.2, width), max(2.6, rows * side + labels_above)
        case Bars():
            return 6.5, max(2.5, len(panel.categories) * CELL_SIDE + 1.5)
        case ImageMap():
            across = min(MAX_PANELS_PER_ROW, len(panel.words) + 1)
            return 1.6 * across, 1.9 * math.ceil((len(panel.words) + 1) / across) + 0.5
        case Curves():
            return 6.0, 4.0
        case Points():
            return 7.5, 6.0
        case Tree():
            return 1.1 * panel.depth + 1.0, 0.2 * max(panel.rows, default=0.0) + 1.0
        case Table():
            title_width = LETTER_WIDTH * min(60, cell_len(panel.title)) + 0.4
            width = max(sum(_column_widths(panel)) + 0.2, title_width)
            return width, ROW_HEIGHT * sum(_line_heights(panel)) + TITLE_HEIGHT


def _write_title(place: Any, title: str, wide: float) -> None:
    """Write the title in at most three lines above the panel. About 11 letters fit an inch, and
    half as many Hangul syllables."""
    if not title:
        return
    columns = max(10, round(11 * wide))
    lines = [
        line.plain.strip()
        for line in RichText(one_line(title)).wrap(Console(width=columns), columns)
    ]
    if len(lines) > TITLE_LINES:
        lines = [*lines[: TITLE_LINES - 1], shorten(" ".join(lines[TITLE_LINES - 1 :]), columns)]
    drawn = place.suptitle(
        "\n".join(lines), fontsize=TITLE_SIZE, x=0.1 / wide, ha="left", parse_math=False
    )
    share = drawn.get_window_extent().width / DOTS / (0.98 * (wide - 0.2))  # capitals are wider
    drawn.set_fontsize(
        TITLE_SIZE / max(1.0, share)
    )  # matplotlib before 3.11 draws up to 1 % wider than it measures


def _draw_curves(axes: Any, curves: Curves) -> None:
    for n, series in enumerate(curves.series):
        look = {"color": PALETTE[n % 8], "marker": MARKERS[n % 8], "linestyle": DASHES[n % 4]}
        every = max(1, len(series.x) // 20)
        axes.plot(series.x, series.y, label=series.name, markevery=every, markersize=5, **look)
        if series.low is not None and series.high is not None:
            axes.fill_between(
                series.x, series.low, series.high, color=look["color"], alpha=0.16, linewidth=0
            )
    axes.set_xlabel(curves.x_label, parse_math=False)
    axes.set_ylabel(curves.y_label, parse_math=False)
    axes.set_ylim(bottom=0 if curves.from_zero else None)
    low, high = axes.get_ylim()
    # rounding is not to look like a change
    if high - low < (least := MIN_AXIS_RANGE * max(abs(low), abs(high))):
        axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
    axes.ticklabel_format(axis="y", useOffset=False)
    if curves.x_ticks:
        axes.set_xticks(*map(list, zip(*curves.x_ticks, strict=True)), parse_math=False)
    _finish(axes, "y")
    if len(curves.series) > 1:
        axes.legend(loc="best", fontsize=9)


def _draw_points(axes: Any, points: Points) -> None:
    for first, last in points.lines:
        ends = [points.x[first], points.x[last]], [points.y[first], points.y[last]]
        axes.plot(*ends, color="#9ca3af", linewidth=1, zorder=1)
    for label, x, y, group in zip(points.labels, points.x, points.y, points.groups, strict=True):
        axes.plot([x], [y], color=PALETTE[group % 8], marker=MARKERS[group % 8], markersize=5)
        axes.annotate(
            label,
            (x, y),
            xytext=(5, 3),
            textcoords="offset points",
            fontsize=9,
            parse_math=False,
        )
    axes.margins(0.12)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(axes: Any, bars: Bars) -> None:
    rows = np.arange(len(bars.categories))
    several = len(bars.series) > 1
    start = np.zeros(len(rows))
    for n, (name, values) in enumerate(bars.series.items()):
        colours = [PALETTE[1] if not several and value < 0 else PALETTE[n % 8] for value in values]
        drawn = axes.barh(rows, values, 0.76, left=start, color=colours, label=name)
        if not several:
            axes.bar_label(drawn, fmt="%d" if bars.whole else "%.3f", padding=3, fontsize=8)
        start += values
    axes.set_yticks(
        rows,
        [shorten(one_line(text), 28) for text in bars.categories],
        fontsize=9,
        parse_math=False,
    )
    axes.invert_yaxis()
    axes.set_xlim(-1.15 * bars.longest if min(start) < 0 else 0, 1.15 * bars.longest)
    axes.set_xlabel(bars.value_label, parse_math=False)
    _finish(axes, "x")
    if several:  # beside the bars, which leave no room
        axes.figure.legend(loc="outside lower center", ncols=4, fontsize=9)


def _finish(axes: Any, ruled: str) -> None:
    axes.grid(axis=ruled, color="#d1d5db")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_heat_map(axes: Any, heat_map: HeatMap, path: Path) -> None:
    names = (*ORANGES[:0:-1], *BLUES) if heat_map.signed else BLUES
    scale = matplotlib_module(".colors", path).LinearSegmentedColormap.from_list(
        "", [f"#{name}" for name in names]
    )
    low = -heat_map.peak if heat_map.signed else 0.0
    image = axes.imshow(
        heat_map.values, scale, interpolation="nearest", vmin=low, vmax=heat_map.peak
    )
    axes.xaxis.tick_top()
    upright = max(map(cell_len, heat_map.columns)) <= 2 or "" in heat_map.columns
    slant = {
        "rotation": 0 if upright else 60,
        "ha": "center" if upright else "left",
        "rotation_mode": "anchor",
    }
    for axis, labels, turned in (
        (axes.xaxis, heat_map.columns, slant),
        (axes.yaxis, heat_map.rows, {}),
    ):
        short = (shorten(text, heat_map.label_width).replace("▁", "_") for text in labels)
        shown = {place: text for place, text in enumerate(short) if text}
        axis.set_ticks(list(shown), list(shown.values()), fontsize=9, parse_math=False, **turned)
    axes.tick_params(length=0)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.6, aspect=30)
    bar.set_ticks([low, heat_map.peak], labels=[number(low) if low else "0", number(heat_map.peak)])
    if heat_map.binary:
        bar.ax.set_axis_off()  # yes and no need no scale, but the labels of columns need the room
        bar.solids.set_visible(False)
        if max(heat_map.values.shape) <= MAX_GRID_SIDE:
            _draw_grid(axes, *heat_map.values.shape)


def _draw_grid(axes: Any, rows: int, columns: int) -> None:
    """Lines between the cells: neighbours that are both allowed would be one dark area."""
    look = {"color": "#9ca3af", "linewidth": 0.6}
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, **look)
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, **look)


def _lines_of(table: Table) -> list[list[list[str]]]:
    """The lines of each cell, the header first."""
    texts = [[*table.columns]] * any(table.columns)
    texts += [[cell.text for cell in row] for row in table.cells]
    return [[_wrapped(text) for text in row] for row in texts]


def _wrapped(text: str) -> list[str]:
    """A text in lines of at most MAX_CELL_LETTERS."""
    if cell_len(text) <= MAX_CELL_LETTERS:
        return [text]
    console = Console(width=MAX_CELL_LETTERS)
    return [line.plain.rstrip() for line in RichText(text).wrap(console, MAX_CELL_LETTERS)]


def _column_widths(table: Table) -> list[float]:
    """The width of each column in inches."""
    columns = zip(*_lines_of(table), strict=True)
    longest = [max(cell_len(line) for lines in column for line in lines) for column in columns]
    return [LETTER_WIDTH * letters + COLUMN_GAP for letters in longest]


def _line_heights(table: Table) -> list[float]:
    """The height of the header and of each row, in rows of a single line."""
    return [0.4 + 0.6 * max(map(len, row)) for row in _lines_of(table)]


def _draw_table(axes: Any, table: Table, height: float) -> None:
    """Draw the texts of the cells below their columns; a blank is a box. `height` is that of the
    panel in inches: rows keep their height in it."""
    widths = _column_widths(table)
    rights = np.cumsum(widths).tolist()
    bottoms = np.cumsum(_line_heights(table)).tolist()
    shown = max(bottoms[-1], (height - TITLE_HEIGHT) / ROW_HEIGHT)
    axes.set(xlim=(0, rights[-1]), ylim=(shown, 0))
    axes.axis("off")
    header = int(any(table.columns))
    tones = [["header"] * len(widths)] * header
    tones += [[str(cell.tone) for cell in row] for row in table.cells]
    top = 0.0
    for place, (line, bottom) in enumerate(zip(_lines_of(table), bottoms, strict=True)):
        for column, lines in enumerate(line):
            left = rights[column] - widths[column]
            if tones[place][column] == "blank":
                size = (widths[column] - 0.1, bottom - top - 0.2)
                axes.add_patch(_box((left + 0.05, top + 0.1), size))
                continue
            is_number = table.numeric[column]
            axes.text(
                rights[column] - 0.12 if is_number else left + 0.12,
                (top + bottom) / 2,
                "\n".join(lines).replace("▁", "_"),
                ha="right" if is_number else "left",
                va="center",
                fontsize=9,
                color=TABLE_COLOURS.get(tones[place][column], "black"),
                parse_math=False,
            )
        shade = "#4b5563" if place < header else "#d1d5db"
        axes.plot([0, rights[-1]], [bottom, bottom], color=shade, linewidth=0.6)
        top = bottom


def _box(corner: tuple[float, float], size: tuple[float, float]) -> Any:
    patches = matplotlib_module(".patches", Path())
    return patches.Rectangle(corner, *size, fill=False, edgecolor="#6b7280", linewidth=0.8)


def _draw_image_map(place: Any, image: ImageMap) -> None:
    """Draw the image, then once more for each word, dark where the word did not look."""
    across = min(MAX_PANELS_PER_ROW, len(image.words) + 1)
    down = math.ceil((len(image.words) + 1) / across)
    for n, word in enumerate(["", *image.words]):
        axes = place.add_subplot(down, across, n + 1)
        axes.imshow(image.pixels, extent=(0, 1, 0, 1), interpolation="bilinear")
        if n:
            veil = np.zeros((*image.grid, 4))
            veil[..., 3] = image.veils()[n - 1]
            axes.imshow(veil, extent=(0, 1, 0, 1), interpolation="nearest")
        axes.set_xlabel(shorten(one_line(word), 20), fontsize=10, parse_math=False)
        axes.set(xticks=[], yticks=[])


def _draw_tree(axes: Any, tree: Tree) -> None:
    """Draw the tree; the winning path is thick, abandoned branches are dashed."""
    good_row = next(
        (
            row
            for branch, row in zip(tree.branches, tree.rows, strict=True)
            if branch.tone == "good"
        ),
        0.0,
    )
    for branch, row in zip(tree.branches, tree.rows, strict=True):
        top = good_row if branch.parent is None else tree.rows[branch.parent]
        left = branch.tone == "muted"
        good = branch.tone == "good"
        look = {"linestyle": ":" if left else "-", "linewidth": 2.2 if good else 1}
        colour = PALETTE[1] if branch.marked else PALETTE[0] if good else PALETTE[6]
        axes.plot([branch.depth - 0.42, branch.depth - 0.1], [top, row], color=colour, **look)
        text = f"{branch.label.replace('▁', '_')} {branch.value}"
        weight = "bold" if good or branch.marked else "normal"
        shade = "#6b7280" if left else "black"
        axes.text(
            branch.depth - 0.08,
            row,
            text,
            va="center",
            fontsize=8,
            weight=weight,
            color=shade,
            parse_math=False,
        )
    axes.set(xlim=(0.5, tree.depth + 0.7), ylim=(max(tree.rows) + 0.7, -0.7))
    axes.axis("off")


def fonts_for(text: str, path: Path, *, strict: bool = True) -> list[str]:
    """The names of fonts that together have every letter of the text, in the order in which
    matplotlib tries them.

    A letter that no font has would be drawn as a box: `strict` refuses it.
    """
    face_of = matplotlib_module(".ft2font", path).FT2Font
    missing = {character for character in one_line(text) if not character.isspace()}
    families: list[str] = []
    for font in _fonts(matplotlib_module(".font_manager", path)):
        if not missing and families:
            break
        with suppress(OSError, RuntimeError):
            face = face_of(font.fname)
            # Fonts that cannot be scaled, such as colour emoji, cannot be drawn.
            letters = {chr(code) for code in face.get_charmap()} if face.scalable else set()
            if font.name not in families and missing & letters:
                families.append(font.name)
                missing -= letters
    if missing and strict:
        some = " ".join(sorted(missing)[:5])
        hint = (
            "install one, such as 'apt install fonts-noto-cjk' for Chinese and Japanese; .svg and "
            ".html need none"
        )
        raise RegardError(f"no installed font has {some}", where=str(path), hint=hint)
    return families or [LATIN_FONT]


def _fonts(module: Any) -> Iterator[Any]:
    """matplotlib's Latin font, the Korean font that ships, then the installed fonts, which are
    searched only if needed.

    A picture of Latin and Korean text is therefore the same on every machine.
    """
    manager = module.fontManager
    if all(font.name != KOREAN_FONT for font in manager.ttflist):
        manager.addfont(KOREAN_FILE)
    for name in (LATIN_FONT, KOREAN_FONT):
        yield from (font for font in manager.ttflist if font.name == name and _is_regular(font))
    # installed just now
    for file in sorted({*module.findSystemFonts()} - {font.fname for font in manager.ttflist}):
        with suppress(OSError, RuntimeError):
            manager.addfont(file)

    def rank(font: Any) -> tuple[bool, bool, str]:
        # matplotlib opens the first face of a collection, and knows Noto's, which has Hangul too,
        # by its Japanese name.
        korean = font.name in FONTS or font.name.startswith("Noto Sans CJK")
        return not _is_regular(font), not korean, font.name

    # matplotlib's "Last Resort" has a box for every letter there is.
    yield from sorted(
        (font for font in manager.ttflist if "Last Resort" not in font.name), key=rank
    )


def _is_regular(font: Any) -> bool:
    return font.style == "normal" and font.weight in (400, "normal", "regular", "book")
