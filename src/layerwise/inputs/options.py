"""How to open texts."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_count, split_choices
from layerwise.core.errors import InputError
from layerwise.core.options import THE_TEXTS, Option, require_valid

TextFilter = Literal["wikitext"]
KINDS = "texts of a known kind"
Queries = Annotated[
    Any,
    Option("queries: a file like that of the other texts", group=KINDS, metavar="FILE", is_text_source=True),
]
Documents = Annotated[Any, Option("documents, in the same way", group=KINDS, metavar="FILE", is_text_source=True)]
Pairs = Annotated[
    Any,
    Option(
        "a .csv, .jsonl or .parquet table with the columns query and document; half of the pairs, at most 200 (of more "
        "than 2,000 pairs a tenth), are held out to test search",
        group=KINDS,
        metavar="FILE",
        is_text_source=True,
    ),
]
require_nonnegative = partial(require_count, minimum=0)


def require_label(name: str, value: Any) -> None:
    """One or several names of columns."""
    if not all(split_choices(name, value)):
        raise InputError(f"{name} must name one or several columns, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The source of texts, and which of them to use."""

    data: Annotated[
        Any,
        Option(
            "a .txt, .jsonl, .csv or .parquet file, - for standard input, a hub data set, or demo: 200 bundled texts; "
            "for an audio or image model a folder of files, or a table or data set with a column audio or image",
            group=THE_TEXTS,
            is_text_source=True,
        ),
    ]
    column: Annotated[str, Option("column with the text", group=THE_TEXTS)] = "text"
    id_column: Annotated[
        str | None, Option("column with the id of each text; default: a hash of the text", group=THE_TEXTS)
    ] = None
    split: Annotated[str, Option("split of a hub data set", group=THE_TEXTS)] = "train"
    config: Annotated[str | None, Option("configuration of a hub data set", group=THE_TEXTS)] = None
    only: Annotated[
        TextFilter | None, Option("wikitext: drop headings and blank lines, as in the paper", group=THE_TEXTS)
    ] = None
    min_tokens: Annotated[
        int, Option("drop texts with fewer tokens; the paper uses 30", require_nonnegative, THE_TEXTS)
    ] = 0
    tokenizer: Annotated[
        Any, Option("tokenizer that counts tokens for min_tokens", library_only=True, is_recorded=False)
    ] = None
    limit: Annotated[int | None, Option("use only the first N texts", require_count, THE_TEXTS, metavar="N")] = None
    sample: Annotated[
        int | None,
        Option("use a random sample of N texts, chosen by hashed ids", require_count, THE_TEXTS, metavar="N"),
    ] = None

    def __post_init__(self) -> None:
        require_valid(self)
