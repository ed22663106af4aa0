"""Captions of metrics: the unit and what a larger value means, of the catalog and of a user's own metrics."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.metrics.catalog import CATALOG
from layerwise.runs.table import LayerTable


@dataclass(frozen=True)
class Caption:
    """What a page or figure says about a metric."""

    unit: str = ""
    larger_means: str = ""
    perspective: str = ""

    @classmethod
    def from_record(cls, record: Any) -> "Caption":
        """From what a run recorded; whatever is not a text is left out."""
        found = record if isinstance(record, Mapping) else {}
        names = ("unit", "larger_means", "perspective")
        return cls(**{name: found[name] for name in names if isinstance(found.get(name), str)})


def captions(tables: Iterable[LayerTable]) -> dict[str, Caption]:
    """By name, in the order of the catalog; then a user's own metrics, as their runs recorded them."""
    found = {m.name: Caption.from_record(m.caption) for m in CATALOG}
    for table in tables:
        for run in single_runs(table.run):
            recorded = run.get("metrics")
            for name, record in (recorded if isinstance(recorded, Mapping) else {}).items():
                found[name] = Caption.from_record(record)
    return found


def single_runs(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The run itself, or those that it was joined from; a campaign's table can be joined again."""
    if not run.get("runs"):
        yield run
    for part in run.get("runs") or []:
        yield from single_runs(part)
