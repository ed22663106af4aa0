"""compare: differences between runs."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Literal

from layerwise.core.checks import RowTreatment, TokenChoice
from layerwise.core.options import Option, require_valid
from layerwise.runs.folder import RunLike
from layerwise.verbs.report.options import OverwritePage

Against = Literal["first", "previous"]


@dataclass(frozen=True)
class CompareOptions:
    """The options of `compare`."""

    runs: Annotated[
        Sequence[RunLike],
        Option("two or more run folders, urls or LayerTables, each of one model", library_only=True, is_recorded=False),
    ]
    _: KW_ONLY
    against: Annotated[Against, Option("which run to compare with: the first, or the previous one")] = "first"
    rows: Annotated[RowTreatment | None, Option("only this row treatment")] = None
    tokens: Annotated[TokenChoice | None, Option("only this token choice")] = None
    html: Annotated[str | Path | None, Option("also write a page with curves, heat maps and CKA", metavar="FILE")] = (
        None
    )
    overwrite: OverwritePage = False

    def __post_init__(self) -> None:
        require_valid(self)
