"""Differences between runs by layer: base and fine-tune, model sizes, checkpoints, architectures.

Layers are compared at the same depth: layer k of L with the layer nearest to k / L of the other model, ties to the
shallower. If both runs kept the values of single texts, differences are paired by text.
"""

import html
import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from layerwise.core.checks import require_choice
from layerwise.core.columns import WIDTH, in_columns, short_number
from layerwise.core.display import printable, redact
from layerwise.core.errors import InputError
from layerwise.core.files import folder_name
from layerwise.metrics.catalog import DEPENDS_ON_COUNT
from layerwise.runs.folder import PROMPTS, Run
from layerwise.runs.labels import model_labels
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.compare.options import Against
from layerwise.verbs.compare.paired import Prompts, merge_common_examples, paired_difference
from layerwise.verbs.report.alignment import Alignment, NotComparableError, align, load_samples

SETTING_COLUMNS = ["condition", "metric", "rows", "tokens", "pooling", "transform", "point", "norm"]
PROMPT_COLUMNS = ["metric", "rows", "tokens", "point", "norm"]


@dataclass(frozen=True)
class Pair:
    """A first and a second run, and how they differ.

    Attributes:
        first: the label of the first run.
        second: the label of the second run.
        changes: one row per metric, setting and layer: before, after, difference with its 95 % interval, p and n;
            `paired` if these are over the texts that both runs read, `main` if it is the curve that summaries show.
        cka: the similarity of all pairs of layers; None where the runs keep no vectors of the same texts.
        notes: what could not be compared, and why.
    """

    first: str
    second: str
    changes: pd.DataFrame
    cka: Alignment | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.first} → {self.second}"

    def change_by_layer(self) -> "pd.Series[float]":
        """How much each layer changed: the mean over metrics of |difference| / range, on the main curve of each metric.

        Returns:
            A series of shares by layer.
        """
        changes: pd.Series[float] = self.changes[self.changes.main].groupby("layer")["share"].mean()
        return changes

    def largest_changes(self) -> pd.DataFrame:
        """The layer that changed most, for the main curve of each metric.

        Returns:
            The rows of `changes` for these layers.
        """
        defined = self.changes[self.changes.main].dropna(subset=["share"])
        return defined.loc[defined.groupby("metric", sort=False)["share"].idxmax()]


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns. `print` shows a summary, and a notebook shows a table.

    Attributes:
        labels: a short name for each run.
        table: all rows of all runs, under these names.
        pairs: the differences between two runs each.

    Example:
        >>> base, tuned = (layerwise.scan(m, texts, metrics="curvature") for m in (model, encoder))
        >>> compared = layerwise.compare([base, tuned])
        >>> len(compared.labels), len(compared.pairs)
        (2, 1)
    """

    labels: tuple[str, ...]
    table: LayerTable
    pairs: tuple[Pair, ...]

    def __str__(self) -> str:
        return printable("\n\n".join([describe_ranges(self.table), *(describe_pair(pair) for pair in self.pairs)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = []
        for pair in self.pairs:
            columns = pair.largest_changes()[
                ["metric", "layer", "before", "after", "difference", "ci_low", "ci_high", "paired"]
            ]
            rows = columns.to_html(index=False, escape=True, float_format="{:.4g}".format, border=0)
            parts.append(f"<p><b>{html.escape(pair.name)}</b>: {html.escape(describe_changes(pair))}</p>{rows}")
        return "".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data.

        Returns:
            `runs` (the labels) and `pairs`; undefined numbers are None.
        """
        return {"runs": list(self.labels), "pairs": [pair_to_dict(pair) for pair in self.pairs]}

    def to_json(self) -> str:
        """The same as JSON text.

        Returns:
            One JSON object.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


def compare_runs(
    runs: Sequence[Run | LayerTable | str | Path],
    *,
    against: Against = "first",
    rows: str | None = None,
    tokens: str | None = None,
) -> Comparison:
    """Compares every run with the first, or with the one before it; `rows` and `tokens` select a setting."""
    if len(runs) < 2:
        raise InputError("a comparison needs at least two runs")
    require_choice("against", against, get_args(Against))
    filters = {name: value for name, value in (("rows", rows), ("tokens", tokens)) if value}
    opened = [Run.open(run) for run in runs]
    for run in opened:
        require_one_model(run)
    labels = make_unique(model_labels([run.table for run in opened]), opened)
    tables = [run.table.where(**filters).with_model_name(label) for run, label in zip(opened, labels, strict=True)]
    kinds = {run.kind for run in opened}
    pairs = []
    for second in range(1, len(tables)):
        first = 0 if against == "first" else second - 1
        changes = changes_between(tables[first], tables[second])
        notes = (*differing_settings(tables[first], tables[second]), *differing_data(tables[first], tables[second]))
        pair = Pair(labels[first], labels[second], changes, notes=notes)
        first_run, second_run = opened[first], opened[second]
        on_disk = first_run.folder is not None and second_run.folder is not None
        if on_disk and kinds in ({"scan"}, {"probe"}):
            pair = with_prompts(pair, first_run, second_run)
        pair = replace(pair, changes=with_shares(pair.changes))
        if on_disk and kinds == {"scan"}:
            pair = with_cka(pair, first_run, second_run, next((s.tokens for s in tables[first]), "all"))
        pairs.append(pair)
    return Comparison(tuple(labels), LayerTable.join(tables), tuple(pairs))


def require_one_model(run: Run) -> None:
    """Raises for a table of several models, such as that of a campaign: their curves cannot be distinguished."""
    models = sorted({f"{s.model} @ {s.revision} {s.model_hash[:14]}".strip() for s in run.table})
    if len(models) > 1:
        shown = ", ".join(models[:3]) + (", ..." if len(models) > 3 else "")
        raise InputError(f"{run.location} contains runs of {len(models)} models ({shown}); pass the folder of each run")


def differing_settings(first: LayerTable, second: LayerTable) -> tuple[str, ...]:
    """Settings besides the model that differ between the runs: a difference may come from them."""
    notes = []
    for name in ("max_length", "dtype"):
        first_values, second_values = ({getattr(s, name) for s in table} - {0} for table in (first, second))
        if first_values and second_values and first_values != second_values:
            listed = [", ".join(map(str, sorted(values, key=str))) for values in (first_values, second_values)]
            notes.append(f"{name} differs: {listed[0]} in the first run, {listed[1]} in the second")
    return tuple(notes)


def differing_data(first: LayerTable, second: LayerTable) -> list[str]:
    """What to know if the runs read other texts, or another number of them."""
    hashes = [{s.metric: s.data_hash for s in table if s.data_hash and not s.condition} for table in (first, second)]
    counts = [max((s.n for s in table), default=0) for table in (first, second)]
    numbers = " and ".join(f"{count:,}" for count in counts)
    notes = []
    if any(hashes[1].get(metric, value) != value for metric, value in hashes[0].items()):
        notes.append(f"the runs read different texts ({numbers}): differences that are not paired may come from them")
    curves, others = first.main_curves(), second.main_curves()
    left_out = [m for m in curves if m in others and is_artefact(curves[m][-1], others[m][-1])]
    if left_out:
        notes.append(
            f"left out, since they depend on the number of texts ({numbers}): {', '.join(left_out)}; scan the same "
            "number of texts to compare them"
        )
    return notes


def is_artefact(s: LayerScore, other: LayerScore) -> bool:
    """True if a difference of the two would also be one of the number of texts; 1 % more of them changes little."""
    return s.metric in DEPENDS_ON_COUNT and abs(s.n - other.n) > 0.01 * max(s.n, other.n)


def with_prompts(pair: Pair, first: Run, second: Run) -> Pair:
    """The pair, with differences paired over the texts that both runs read; a note where there are none."""
    if without_prompts := [run for run in (first, second) if not run.has_prompts]:
        run = without_prompts[0]
        note = f"{run.location} keeps no values of single texts (scan with --keep-prompts all)"
        if run.lacks_prompts:
            note = f"{PROMPTS}/*.parquet is missing in {run.location}; scan again with --out"
    else:
        opened = Prompts.open(first), Prompts.open(second)  # raises if a file is damaged
        try:
            return replace(pair, changes=with_pairs(pair.changes, *opened))
        except InputError as error:
            note = str(error)
    return replace(pair, notes=(*pair.notes, redact(f"not paired by text: {note}")))


def with_cka(pair: Pair, first: Run, second: Run, tokens: str) -> Pair:
    """The pair with CKA for that token choice, or with a note if the runs stored no rows of common examples."""
    states = [load_samples(run) for run in (first, second)]  # raises if a file is damaged
    try:
        return replace(pair, cka=align((first, second), states, tokens))
    except NotComparableError as error:
        return replace(pair, notes=(*pair.notes, f"no CKA: {error}"))


def make_unique(labels: list[str], runs: Sequence[Run]) -> list[str]:
    """Labels that no two runs share: two runs of one model get the folder or a number added."""
    if len(set(labels)) == len(labels):
        return labels
    folders = [folder_name(run.name) or str(i) for i, run in enumerate(runs, start=1)]
    longer = [f"{label} · {folder}" for label, folder in zip(labels, folders, strict=True)]
    return longer if len(set(longer)) == len(longer) else [f"{label} · {i}" for i, label in enumerate(labels, start=1)]


def changes_between(first: LayerTable, second: LayerTable) -> pd.DataFrame:
    """One row per metric, setting and layer that both have: before, after, difference with its interval."""
    first_curves, second_curves = by_setting(first), by_setting(second)
    shared = [setting for setting in first_curves if setting in second_curves]
    mains = rows_in(first, shared).main_curves()
    rows = [
        row | {"main": first_curves[setting][0] is mains[first_curves[setting][0].metric][0]}
        for setting in shared
        for row in curve_changes(setting, first_curves[setting], second_curves[setting])
    ]
    if not rows:
        raise InputError(
            "the runs share no metric with the same rows, tokens, pooling and norm; scan them with the same options"
        )
    return pd.DataFrame(rows)


def by_setting(table: LayerTable) -> dict[tuple[str, ...], list[LayerScore]]:
    return {(name, *rest): curve for (_, name, *rest), curve in table.curves().items()}


def rows_in(table: LayerTable, settings: Iterable[tuple[str, ...]]) -> LayerTable:
    """The rows of the curves in these settings, in the order of the table."""
    curves = by_setting(table)
    kept = {id(s) for setting in settings for s in curves.get(setting, ())}
    return LayerTable(tuple(s for s in table if id(s) in kept))


def curve_changes(
    setting: tuple[str, ...], first_curve: list[LayerScore], second_curve: list[LayerScore]
) -> list[dict[str, Any]]:
    rows = []
    for s in first_curve:
        other = min(second_curve, key=lambda t: (round(abs(t.depth - s.depth), 9), t.layer))
        difference = math.nan if is_artefact(s, other) else other.value - s.value
        # Independent samples: half-widths add in quadrature. Too wide if the examples are the same.
        half = math.hypot(s.ci_high - s.ci_low, other.ci_high - other.ci_low) / 2
        rows.append(
            {
                **dict(zip(SETTING_COLUMNS, setting, strict=True)),
                "layer": s.layer,
                "other_layer": other.layer,
                "depth": s.depth,
                "before": s.value,
                "after": other.value,
                "difference": difference,
                "ci_low": difference - half,
                "ci_high": difference + half,
                "p": math.nan,
                "n": min(s.n, other.n),
                "paired": False,
            }
        )
    return rows


def with_pairs(changes: pd.DataFrame, first: Prompts, second: Prompts) -> pd.DataFrame:
    """The changes, with paired intervals over the texts that both runs read, for metrics that have values per text."""
    changes = changes.copy()
    for (layer, other), part in changes.groupby(["layer", "other_layer"]):
        both = merge_common_examples(first.rows(layer=layer), second.rows(layer=other), PROMPT_COLUMNS)
        both = both.dropna(subset=["value", "value_after"])
        groups = both.groupby(PROMPT_COLUMNS)[["value", "value_after"]]
        pairs_by_setting = {setting: values for setting, values in groups if len(values) > 1}
        for index, row in part.iterrows():
            values = pairs_by_setting.get(tuple(row[name] for name in PROMPT_COLUMNS))
            if values is not None and not row["condition"]:
                difference = paired_difference((values.value_after - values.value).to_numpy())
                paired = {
                    "before": values.value.mean(),
                    "after": values.value_after.mean(),
                    "difference": difference.mean,
                    "ci_low": difference.ci_low,
                    "ci_high": difference.ci_high,
                    "p": difference.p,
                    "n": difference.n,
                }
                changes.loc[index, [*paired, "paired"]] = [*paired.values(), True]
    return changes


def with_shares(changes: pd.DataFrame) -> pd.DataFrame:
    """The changes with `share`: the size of the difference, as a share of the range of both curves."""
    values = changes[["before", "after"]].replace([math.inf, -math.inf], math.nan)
    curves = [changes[name] for name in SETTING_COLUMNS]
    highest, lowest = values.max(axis=1).groupby(curves), values.min(axis=1).groupby(curves)
    span = highest.transform("max") - lowest.transform("min")
    return changes.assign(share=changes.difference.abs() / span.where(span > 0))


def describe_changes(pair: Pair) -> str:
    """Which layers changed most and least."""
    moved = pair.change_by_layer().dropna().sort_values(ascending=False)
    if moved.empty:
        return "no difference is defined"
    most = ", ".join(f"{layer} ({share:.0%})" for layer, share in moved.head(3).items())
    least = f"least: {moved.index[-1]} ({moved.iloc[-1]:.0%})"
    return f"layers that changed most: {most}; {least} (mean over metrics, in % of each metric's range)"


def describe_pair(pair: Pair) -> str:
    """One pair within 80 columns: which layers changed, CKA, notes, and the largest change of each metric."""
    sentences = [describe_changes(pair), *([] if pair.cka is None else [describe_cka(pair.cka)]), *pair.notes]
    lines = textwrap.wrap(pair.name, WIDTH)
    for sentence in sentences:
        lines += textwrap.wrap(sentence, WIDTH, initial_indent="  ", subsequent_indent="    ")
    rows = [("largest change", "layer", "before", "after", "difference (95 %)", "paired")]
    for row in pair.largest_changes().itertuples():
        bounds = f" [{short_number(row.ci_low)}, {short_number(row.ci_high)}]" if math.isfinite(row.ci_low) else ""
        where = str(row.layer) if row.layer == row.other_layer else f"{row.layer} | {row.other_layer}"
        ends = (short_number(row.before), short_number(row.after))
        paired = str(row.n) if row.paired else ""
        rows.append((row.metric, where, *ends, short_number(row.difference, "+") + bounds, paired))
    if pair.changes.paired.any():
        lines.append("  paired: over how many texts the difference is paired; empty if it is not")
    return "\n".join([*lines, *in_columns(rows, label_columns=1)])


def describe_cka(cka: Alignment) -> str:
    """How similar the two models are at equal depth."""
    last = (cka.first_layers[-1] or 1, cka.second_layers[-1] or 1)
    same = {
        k: cka.at(k, min(cka.second_layers, key=lambda j: (round(abs(j / last[1] - k / last[0]), 9), j)))
        for k in cka.first_layers
    }
    known = {k: value for k, value in same.items() if value == value}
    if not known:
        return "CKA is undefined: all vectors of a layer are equal"
    least, most = min(known, key=lambda k: known[k]), max(known, key=lambda k: known[k])
    ends = f"most similar at layer {most} ({known[most]:.2f}), least at layer {least} ({known[least]:.2f})"
    return f"CKA at equal depth over {cka.n} texts: {ends}"


def describe_ranges(table: LayerTable) -> str:
    """The minimum and maximum of the main curve of each metric in each run, with the layer.

    It is the main curve among the settings that all runs have: curves in different settings cannot be compared. A
    metric without such a setting has the main curve of each run.
    """
    runs = {model: table.where(model=model) for model in dict.fromkeys(s.model for s in table)}
    shared = set.intersection(*(set(by_setting(run)) for run in runs.values())) if runs else set()
    comparable = {metric for _, metric, *_ in shared}
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for model, run in runs.items():
        settings = [setting for setting in by_setting(run) if setting in shared or setting[1] not in comparable]
        for metric, curve in rows_in(run, settings).main_curves().items():
            known = [s for s in curve if math.isfinite(s.value) and not s.condition]
            if len(known) > 1:
                ends = [f(known, key=lambda s: s.value) for f in (min, max)]
                found[metric, model] = tuple(f"{short_number(s.value)} at {s.layer}" for s in ends)
    metrics = list(dict.fromkeys(metric for metric, _ in found))
    rows: list[tuple[str, ...]] = [("metric", "run", "minimum", "maximum")]
    rows += [(metric, *key[1:], *found[key]) for metric in metrics for key in found if key[0] == metric]
    return "\n".join(in_columns(rows, label_columns=2))


def pair_to_dict(pair: Pair) -> dict[str, Any]:
    changes = [
        {name: finite_or_none(value) for name, value in row.items()} for row in pair.changes.to_dict(orient="records")
    ]
    header = {"first": pair.first, "second": pair.second, "notes": list(pair.notes)}
    return header | {"changes": changes, "cka": pair.cka.to_record() if pair.cka else None}


def finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
