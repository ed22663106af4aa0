"""LayerScore: one number for one layer, with everything that defines it; and curves of scores."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class LayerScore:
    """One number of one layer, and everything that affects what it means: a row of a `LayerTable`.

    Args:
        model: name of the model.
        layer: 0 is what enters the first block, k the output of block k.
        depth: layer / number of blocks.
        norm: "raw", "normed" (after the model's final norm) or "shipped" (the model's own output).
        tokens: which tokens counted.
        pooling: how tokens became one vector; "-" for metrics of tokens.
        rows: what was done to the vectors before the metric; "-" for task scores.
        metric: name of the metric or task.
        value: the number; nan where it is undefined.
        n: examples behind the value.
        skipped: examples for which it is undefined.
        ci_low: lower end of the 95 % interval; nan where there is none.
        ci_high: upper end of the 95 % interval.
        revision: revision of the model.
        data: name of the data, or type and main score of the task.
        dtype: number type of the weights.
        condition: what was done to the inputs, such as repeat_one; "" for nothing.
        level: how strongly it was done.
        transform: the linear map that was applied to pooled vectors.
        missing: examples that could not be computed and were left out of the run.
        note: how exact the value is, where memory did not allow exact sums.
        normalize: whether vectors were scaled to length 1.
        template: text before and after every text, with `{text}` in its place; "" for none.
        fit: what the linear map was fitted on: "task", or a hash of the texts; "" without a map.
        max_length: longest input in tokens.
        model_hash: fingerprint of the model.
        data_hash: fingerprint of the examples, or of the task's data.
        settings_hash: hash of further settings that affect the number: seed, views, prompts by role.
        point: where inside the layer's block, such as mlp_output; "" for the output of the block.
    """

    model: str
    layer: int
    depth: float  # layer / number of blocks
    norm: str  # raw or normed
    tokens: str  # token choice
    pooling: str  # how tokens became a row; "-" if the metric works on tokens
    rows: str  # row treatment
    metric: str
    value: float
    n: int  # number of examples
    skipped: int = 0  # examples for which the metric is undefined
    ci_low: float = math.nan
    ci_high: float = math.nan
    revision: str = "main"
    data: str = ""
    dtype: str = "float32"
    condition: str = ""  # stress applied to the inputs, such as repeat_one; "" for none
    level: float = math.nan  # level of that stress
    transform: str = "none"  # linear map applied to pooled rows
    missing: int = 0  # examples that failed and were left out of the run
    note: str = ""  # accuracy of the value, if memory did not allow exact sums
    normalize: bool = False  # whether vectors are scaled to length 1
    template: str = ""  # text before and after every text
    fit: str = ""  # what the linear map was fitted on: "task", or a hash of the texts; "" without a map
    max_length: int = 0  # maximum input length in tokens
    model_hash: str = ""  # fingerprint of the model
    data_hash: str = ""  # fingerprint of the examples, or of the task's data
    settings_hash: str = ""  # hash of further settings that affect the number: seed, views, prompts per role ...
    point: str = ""  # where inside the layer's block; "" for the output of the block

    @property
    def recipe(self) -> tuple[Any, ...]:
        """How a text becomes a vector, except the layer."""
        return tuple(getattr(self, name) for name in RECIPE_COLUMNS)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What identifies a measurement: every column except the measured values."""
        return (self.metric, self.layer, self.norm, *self.setting)

    @property
    def setting(self) -> tuple[Any, ...]:
        """Everything in which two curves of one metric can differ, except the norm."""
        level = None if math.isnan(self.level) else self.level  # NaN is not equal to itself
        model_columns = (self.model, self.revision, self.model_hash, self.dtype)
        metric_columns = (self.rows, self.condition, level, self.data, self.data_hash, self.settings_hash)
        return (*model_columns, *metric_columns, *self.recipe[1:])


COLUMNS = tuple(f.name for f in fields(LayerScore))
RECIPE_COLUMNS = ("norm", "tokens", "pooling", "transform", "normalize", "template", "fit", "max_length", "point")
REQUIRED_COLUMNS = tuple(f.name for f in fields(LayerScore) if f.default is MISSING)


def curves(scores: Iterable[LayerScore]) -> dict[tuple[str, ...], list[LayerScore]]:
    """Rows grouped by everything except the layer, ordered by depth: one line of a plot each."""
    scores, by_model = list(scores), dict[str, list[LayerScore]]()
    for s in scores:
        by_model.setdefault(s.model, []).append(s)
    distinguishing = {model: distinguishing_columns(rows) for model, rows in by_model.items()}
    lines: dict[tuple[str, ...], list[LayerScore]] = {}
    for s in sorted(scores, key=lambda s: s.layer):
        name = f"{s.condition} {s.level:g}" if s.condition else ""
        label = recipe_label(s, distinguishing[s.model])
        setting = (s.model, name, s.metric, s.rows, s.tokens, s.pooling, label, s.point, s.norm)
        lines.setdefault(setting, []).append(s)
    return lines


def curves_with_ends(
    scores: Iterable[LayerScore],
) -> Iterator[tuple[tuple[str, ...], list[LayerScore], LayerScore | None]]:
    """The setting and the rows of each curve, and for a raw curve the row of its last layer after the final norm.

    Where only the last layer was read after the final norm, it belongs to the raw curve and is no curve of its own.
    """
    found = curves(scores)
    for (*setting, norm), rows in found.items():
        if norm == "normed" and len(rows) == 1 and (*setting, "raw") in found:
            continue
        normed = found.get((*setting, "normed")) if norm == "raw" else None
        yield (*setting, norm), rows, normed[-1] if normed else None


def same_columns(s: LayerScore, other: LayerScore, names: Iterable[str]) -> bool:
    """True if two rows agree in these columns."""
    return all(getattr(s, name) == getattr(other, name) for name in names)


def distinguishing_columns(rows: Sequence[LayerScore]) -> list[str]:
    """Other columns in which the rows of one model differ; without them, two curves would be merged.

    In an eval, data and data_hash differ per task, but the metric column already names the task.
    """
    scan_rows = [s for s in rows if s.rows != "-" and not s.condition]
    names = [name for name in ("data", "data_hash") if len({getattr(s, name) for s in scan_rows}) > 1][:1]
    others = ("fit", "max_length", "revision", "dtype", "model_hash", "settings_hash")
    # A stress test has its own settings.
    groups = ([s for s in rows if not s.condition], [s for s in rows if s.condition])
    return names + [name for name in others if any(len({getattr(s, name) for s in kind}) > 1 for kind in groups)]


def recipe_label(s: LayerScore, columns: Sequence[str]) -> str:
    """A label for the recipe beyond norm, tokens and pooling; other columns are added if they distinguish rows."""
    parts = ["" if s.transform == "none" else s.transform, "normalized" if s.normalize else ""]
    parts.append(f"template {s.template!r}" if s.template else "")
    parts += [f"{name} {getattr(s, name)}" for name in columns]
    return ", ".join(filter(None, parts))
