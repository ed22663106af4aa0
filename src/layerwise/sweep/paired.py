"""Do two layers differ? Paired over the prompts that both saw, from the numbers kept prompt by prompt."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.errors import InputError, RunError
from layerwise.metrics.intervals import interval

COLUMNS = ("id", "layer", "readout", "tokens", "rows", "metric", "value")  # of the numbers of single prompts


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
    run: str | Path,
    metric: str,
    first: int,
    second: int,
    *,
    other_run: str | Path | None = None,
    readout: str = "raw",
    tokens: str = "all",
    rows: str = "raw",
) -> Difference:
    """How much layer `second` exceeds layer `first` in a prompt-level metric, prompt by prompt.

    With `other_run`, `second` is a layer of that run on the same prompts: another model, checkpoint or fine-tune.
    """
    setting = {"readout": readout, "tokens": tokens, "rows": rows, "metric": metric}
    one, two = prompt_values(run, layer=first, **setting), prompt_values(other_run or run, layer=second, **setting)
    both = one.to_frame("one").join(two.to_frame("two"), how="inner").dropna()
    return difference_of_pairs((both.two - both.one).to_numpy())


def difference_of_pairs(apart: Any) -> Difference:
    """The t-test of paired differences."""
    from scipy.special import stdtr

    n = len(apart)
    if n < 2:
        raise InputError(f"{n} prompts have a value on both sides; at least 2 are needed to tell a difference")
    mean, error = float(apart.mean()), float(apart.std(ddof=1)) / math.sqrt(n)
    p = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error > 0 else float(mean == 0)
    return Difference(mean, *interval(mean, error, n - 1), p, n)


def prompt_values(run: str | Path, **wanted: Any) -> Any:
    """The numbers of single prompts of one layer and setting, as a series by example id."""
    found = prompt_rows(run, **wanted)
    if found.empty:
        told = ", ".join(f"{name}={word}" for name, word in wanted.items())
        raise InputError(f"{run} has no prompt-level values for {told}")
    return found.set_index("id")["value"]


def prompt_rows(run: str | Path, **wanted: Any) -> Any:
    """The kept numbers of single prompts whose columns have these values, as a data frame."""
    import pandas as pd
    import pyarrow.dataset as ds

    folder = Path(run) / "prompts"
    if not folder.is_dir():
        raise RunError(f"{run} keeps no numbers of single prompts; scan it again with --keep-prompts all")
    table, clause = ds.dataset(folder, format="parquet"), None
    if "value" not in table.schema.names:  # no metric of the run is one of single prompts
        return pd.DataFrame(columns=COLUMNS)
    for name, word in wanted.items():
        clause = (ds.field(name) == word) if clause is None else clause & (ds.field(name) == word)
    return table.to_table(filter=clause).to_pandas()
