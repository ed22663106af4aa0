"""compare: differences between runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from layerwise.core.checks import RowTreatment, TokenChoice
from layerwise.core.options import Option, require_valid
from layerwise.verbs.report.options import OverwritePage

Against = Literal["first", "previous"]


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `compare`."""

    against: Annotated[Against, Option("which run to compare with: the first, or the previous one")] = "first"
    rows: Annotated[RowTreatment | None, Option("only this row treatment")] = None
    tokens: Annotated[TokenChoice | None, Option("only this token choice")] = None
    html: Annotated[str | Path | None, Option("also write a page with curves, heat maps and CKA", metavar="FILE")] = (
        None
    )
    overwrite: OverwritePage = False

    def __post_init__(self) -> None:
        require_valid(self)
