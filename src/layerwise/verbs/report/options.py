"""report: show runs in one HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from layerwise.core.options import Option, require_valid

OverwritePage = Annotated[
    bool, Option("replace an existing file that layerwise did not write; a page of layerwise is always replaced")
]


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `report`."""

    html: Annotated[str | Path, Option("file to write", metavar="FILE")]
    title: Annotated[str, Option("heading of the page; default: the names of the models")] = ""
    where: Annotated[
        Sequence[str] | None,
        Option(
            "show only rows whose column has this value, such as model=gpt2; may be repeated",
            metavar="COLUMN=VALUE",
            is_repeated=True,
        ),
    ] = None
    overwrite: OverwritePage = False

    def __post_init__(self) -> None:
        require_valid(self)
