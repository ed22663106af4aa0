"""Do two layers differ? Paired by text, from the values that runs keep of single texts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from layerwise.core.errors import InputError, RunError
from layerwise.core.formats import read_parquet
from layerwise.metrics.intervals import interval
from layerwise.runs.folder import Run

PROMPT_COLUMNS = ("id", "digest", "layer", "norm", "tokens", "point", "rows", "metric", "value")  # of single texts


@dataclass(frozen=True)
class Difference:
    """What `difference` returns: how much two layers differ, paired by text.

    Attributes:
        mean: mean over texts of second minus first.
        ci_low: lower end of its 95 % interval.
        ci_high: upper end of its 95 % interval.
        p: p-value of a paired t-test that there is no difference.
        n: number of texts.
    """

    mean: float
    ci_low: float
    ci_high: float
    p: float
    n: int

    @property
    def is_significant(self) -> bool:
        """True if the 95 % interval does not contain zero."""
        return self.ci_low > 0 or self.ci_high < 0

    def __str__(self) -> str:
        numbers = f"{self.mean:+.4g} [{self.ci_low:.4g}, {self.ci_high:.4g}] over {self.n} texts, p = {self.p:.2g}"
        return f"{numbers}: {'the layers differ' if self.is_significant else 'no significant difference'}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>"  # numbers and fixed words only


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
    point: str = "",
) -> Difference:
    """How much layer `second` exceeds layer `first` in a metric that has a value per text, paired by text.

    Args:
        run: The run folder or url of a scan that keeps values of single texts (`keep_prompts`).
        metric: A metric with a value per text: prompt_entropy, prompt_entropy_normalized, curvature, mean_norm, or
            one of your own.
        first: The number of a layer of `run`.
        second: The number of a layer of `run`, or of `other_run`.
        other_run: Another scan of the same texts, such as that of a fine-tune. By default both layers are of `run`.
        norm: `raw` or `normed`.
        tokens: The token choice.
        rows: The row treatment.
        point: The point inside the block, such as mlp_output, of a scan with `inside`; "" for the block's output.

    Returns:
        The mean difference with its 95 % interval and p-value.

    Raises:
        InputError: A run has no values for this setting, or the runs share fewer than two texts.
        RunError: A run is missing or damaged, or keeps no values of single texts.

    Example:
        >>> table = layerwise.scan(model, texts, metrics="curvature", out=folder / "run")
        >>> found = layerwise.difference(folder / "run", "curvature", 0, 2)
        >>> found.n
        40
    """
    setting = {"norm": norm, "tokens": tokens, "point": point, "rows": rows, "metric": metric}
    prompts = Prompts.open(run)
    tables = []
    for opened, layer in ((prompts, first), (prompts if other_run is None else Prompts.open(other_run), second)):
        tables.append(opened.rows(layer=layer, **setting))
        if tables[-1].empty:
            filters = ", ".join(f"{name}={value}" for name, value in {"layer": layer, **setting}.items())
            raise InputError(f"{opened.run} keeps no values of single texts for {filters}")
    both = merge_common_examples(*tables).dropna(subset=["value", "value_after"])
    return paired_difference((both.value_after - both.value).to_numpy())


def paired_difference(differences: Any) -> Difference:
    """The t-test of paired differences."""
    from scipy.special import stdtr

    n = len(differences)
    if n < 2:
        raise InputError(f"{n} texts have a value on both sides; at least 2 are needed")
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    p = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error > 0 else float(mean == 0)
    return Difference(mean, *interval(mean, error, n - 1), p, n)


@dataclass(frozen=True)
class Prompts:
    """The values of single texts that a run kept: the files in its folder, one per shard."""

    run: str
    files: Mapping[str, bytes]

    @classmethod
    def open(cls, run: Run | str | Path) -> Self:
        """Reads all files and checks their checksums."""
        opened = Run.open(run)
        return cls(opened.location, opened.prompts())

    def rows(self, **columns: Any) -> Any:
        """The rows whose columns have these values, as a data frame."""
        import pandas as pd
        import pyarrow.compute as pc

        parts = []
        for where, data in self.files.items():
            table = read_parquet(data, where)
            if "value" not in table.column_names:  # no metric of the run has a value per text
                continue
            if missing := set(PROMPT_COLUMNS) - set(table.column_names):
                raise RunError(f"{where} has no column {', '.join(sorted(missing))}; repeat the scan in another folder")
            for name, value in columns.items():
                table = table.filter(pc.equal(table[name], value))
            parts.append(table.to_pandas())
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=PROMPT_COLUMNS)


def merge_common_examples(first: Any, second: Any, on: Sequence[str] = ()) -> Any:
    """Rows of two runs side by side, for texts with the same id and content; raises where only ids agree."""
    both = first.merge(second, on=["id", "digest", *on], suffixes=("", "_after"))
    if both.empty and (shared := len(set(first.id) & set(second.id))):
        raise InputError(f"{shared} ids are in both runs but with other content; only the same texts can be paired")
    return both
