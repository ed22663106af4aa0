"""reproduce: make one figure or table of the paper."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Literal

from layerwise.core.options import Option, require_valid
from layerwise.engines.options import Progress, Threads

Scale = Literal["small", "released", "paper"]
Folders = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of `reproduce`."""

    experiment: Annotated[str, Option("its name, such as fig2 or table2", library_only=True)]
    _: KW_ONLY
    out: Annotated[
        str | Path, Option("folder for runs, tables and pictures; the same command goes on there", metavar="DIR")
    ]
    scale: Annotated[
        Scale,
        Option(
            "small: models and data in your folders; released: the authors' published results; paper: their models and "
            "data, from the hub"
        ),
    ] = "small"
    models: Annotated[
        Folders,
        Option("small: folder with the models by their names; may be repeated", metavar="DIR", is_repeated=True),
    ] = ()
    data: Annotated[
        str | Path | None, Option("small, released: folder with the data sets by their names", metavar="DIR")
    ] = None
    threads: Threads = None
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)
