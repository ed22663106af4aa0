"""Do two layers differ? Paired over the prompts that both saw, from the numbers kept prompt by prompt."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from layerwise.core.errors import InputError, RunError
from layerwise.core.formats import read_parquet
from layerwise.metrics.intervals import interval
from layerwise.runs.folder import Run
from layerwise.runs.table import with_norm_column

COLUMNS = ("id", "digest", "layer", "norm", "tokens", "rows", "metric", "value")  # of the numbers of single prompts


@dataclass(frozen=True)
class Difference:
    """Mean over prompts of (second - first), its 95 % interval, and the p-value of no difference."""

    mean: float
    ci_low: float
    ci_high: float
    p: float
    n: int

    @property
    def clear(self) -> bool:
        """True if the interval leaves out zero."""
        return self.ci_low > 0 or self.ci_high < 0

    def __str__(self) -> str:
        told = f"{self.mean:+.4g} [{self.ci_low:.4g}, {self.ci_high:.4g}] over {self.n} prompts, p = {self.p:.2g}"
        return f"{told}: {'the layers differ' if self.clear else 'no clear difference'}"


def difference(
    run: Run | str | Path,
    metric: str,
    first: int,
    second: int,
    *,
    other_run: Run | str | Path | None = None,
    norm: str = "raw",
    tokens: str = "all",
    rows: str = "raw",
) -> Difference:
    """How much layer `second` exceeds layer `first` in a prompt-level metric, prompt by prompt.

    With `other_run`, `second` is a layer of that run on the same prompts: another model, checkpoint or fine-tune.
    """
    setting = {"norm": norm, "tokens": tokens, "rows": rows, "metric": metric}
    prompts = Prompts.open(run)
    found = []
    for opened, layer in ((prompts, first), (prompts if other_run is None else Prompts.open(other_run), second)):
        found.append(opened.rows(layer=layer, **setting))
        if found[-1].empty:
            words = ", ".join(f"{name}={word}" for name, word in {"layer": layer, **setting}.items())
            raise InputError(f"{opened.run} has no prompt-level values for {words}")
    both = same_examples(*found).dropna(subset=["value", "value_after"])
    return difference_of_pairs((both.value_after - both.value).to_numpy())


def difference_of_pairs(apart: Any) -> Difference:
    """The t-test of paired differences."""
    from scipy.special import stdtr

    n = len(apart)
    if n < 2:
        raise InputError(f"{n} prompts have a value on both sides; at least 2 are needed to tell a difference")
    mean, error = float(apart.mean()), float(apart.std(ddof=1)) / math.sqrt(n)
    p = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error > 0 else float(mean == 0)
    return Difference(mean, *interval(mean, error, n - 1), p, n)


@dataclass(frozen=True)
class Prompts:
    """The numbers of single prompts that a run kept, as they lie in its folder: files of a shard each."""

    run: str
    files: Mapping[str, bytes]

    @classmethod
    def open(cls, run: Run | str | Path) -> Self:
        """Reads all files and checks that they are as they were written."""
        opened = Run.open(run)
        return cls(opened.place, opened.prompts())

    def rows(self, **wanted: Any) -> Any:
        """The rows whose columns have these values, as a data frame."""
        import pandas as pd
        import pyarrow.compute as pc

        parts = []
        for where, data in self.files.items():
            table = with_norm_column(read_parquet(data, where))
            if "value" not in table.column_names:  # no metric of the run is one of single prompts
                continue
            if lacking := set(COLUMNS) - set(table.column_names):
                raise RunError(f"{where} has no column {', '.join(sorted(lacking))}; scan again into another folder")
            for name, word in wanted.items():
                table = table.filter(pc.equal(table[name], word))
            parts.append(table.to_pandas())
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def same_examples(one: Any, two: Any, on: Sequence[str] = ()) -> Any:
    """Rows of two runs side by side, for prompts of the same id and the same content; raises where only ids agree."""
    both = one.merge(two, on=["id", "digest", *on], suffixes=("", "_after"))
    if both.empty and (shared := len(set(one.id) & set(two.id))):
        raise InputError(f"{shared} ids are in both runs, but with other content; only the same examples can be paired")
    return both
