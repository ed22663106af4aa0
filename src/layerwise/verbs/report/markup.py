"""Pieces of HTML: escaped text, tables, and JSON that cannot leave its script element."""

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

LONG_CELL = 300  # characters: a longer text scrolls in a box of its own


def escape(text: Any) -> str:
    return html.escape(str(text), quote=True)


def safe_json(data: Any) -> str:
    """JSON that cannot end the script element around it: ASCII only, without the characters of markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Sequence[str],
    caption: str,
    stacked: bool = False,
) -> str:
    """A real table; columns in `words` hold text and are aligned to the left.

    With `stacked`, a narrow screen shows each row as a list of names and values, so that nothing is off-screen.
    """
    kind = {name: ' class="text"' if name in words else ' class="spark"' if name == "by layer" else "" for name in head}
    titles = "".join(f'<th scope="col"{kind[name]}>{escape(name)}</th>' for name in head)
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td{kind[name]} data-name="{escape(name)}">{boxed(cell)}</td>'
            for name, cell in zip(head, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    style = ' class="stacked"' if stacked else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table{style}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def boxed(cell: str) -> str:
    """A cell's text; a very long one scrolls in a box of its own."""
    return f'<div class="long" tabindex="0">{escape(cell)}</div>' if len(cell) > LONG_CELL else escape(cell)
