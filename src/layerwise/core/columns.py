"""Columns: rows of text in columns that fit the width of a terminal."""

from collections.abc import Container, Sequence
from textwrap import fill

from layerwise.core.display import printable

WIDTH = 80  # columns of a terminal
NARROWEST = 8  # characters that a shortened column keeps
GAP = "  "


def fill_words(line: str, width: int = WIDTH, indent: str = "") -> str:
    """The line within a width, broken between words only; what continues it begins with the indent."""
    return fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def in_columns(
    rows: Sequence[Sequence[str]], *, label_columns: int = 0, right: Container[int] = (), width: int = WIDTH
) -> list[str]:
    """The rows as lines, each column as wide as its widest cell; control characters are written out.

    Cells are aligned to the left; in the columns whose numbers are in `right`, to the right. Where the lines would be
    wider than `width`, the widest of the first `label_columns` columns are shortened, and cut cells end with `…`. The
    others hold numbers, which are never cut.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - len(GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths[:label_columns], default=0) > NARROWEST:
        widths[widths.index(max(widths[:label_columns]))] -= 1
    lines = []
    for row in cells:
        shown = [cut(cell, widths[i]) for i, cell in enumerate(row)]
        aligned = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(shown)]
        lines.append(GAP.join(aligned).rstrip())
    return lines


def short_number(value: float, sign: str = "") -> str:
    """Three digits, and thousands without an exponent; `sign` is that of a format, such as +."""
    return format(value, f"{sign},.0f" if 1000 <= abs(value) < 1e6 else f"{sign}.3g")


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
