"""LayerScore: one number of one layer, with everything that decides what it means, and curves of such numbers."""

import math
from collections.abc import Iterable, Sequence
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
        prompt: text put before every text.
        fit: what the linear map was fitted on: "task", or a hash of the texts; "" without a map.
        max_length: longest input in tokens.
        model_hash: fingerprint of the model.
        data_hash: fingerprint of the examples, or of the task's data.
        settings_hash: hash of further settings that affect the number: seed, views, prompts by role.
    """

    model: str
    layer: int
    depth: float  # layer / number of blocks
    norm: str  # raw or normed
    tokens: str  # which tokens counted
    pooling: str  # how tokens became a row; "-" where the metric looks at tokens
    rows: str  # what was done to the rows
    metric: str
    value: float
    n: int  # examples behind the value
    skipped: int = 0  # examples for which it is undefined
    ci_low: float = math.nan
    ci_high: float = math.nan
    revision: str = "main"
    data: str = ""
    dtype: str = "float32"
    condition: str = ""  # what was done to the inputs, such as repeat_one; "" where nothing was
    level: float = math.nan  # how far that went
    transform: str = "none"  # the linear map that was put on pooled rows
    missing: int = 0  # examples of the data that could not be computed and were left out of the run
    note: str = ""  # how exact the value is, where memory did not allow exact sums
    normalize: bool = False  # vectors of length 1
    prompt: str = ""  # put before every text
    fit: str = ""  # what the linear map was fitted on: "task", or a hash of the texts; "" without a map
    max_length: int = 0  # longest input in tokens
    model_hash: str = ""  # fingerprint of the model
    data_hash: str = ""  # fingerprint of the examples, or of the task's data
    settings_hash: str = ""  # of further settings that decide the number: seed, views, prompts by role ...

    @property
    def recipe(self) -> tuple[Any, ...]:
        """How a text became a vector, apart from the layer."""
        return tuple(getattr(self, name) for name in RECIPE)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes two rows the same measurement: everything but the numbers that were measured."""
        level = None if math.isnan(self.level) else self.level  # nan is not equal to itself
        model_columns = (self.model, self.revision, self.model_hash, self.dtype)
        metric_columns = (self.metric, self.rows, self.condition, level, self.data, self.data_hash, self.settings_hash)
        return (*model_columns, *metric_columns, self.layer, *self.recipe)


COLUMNS = tuple(f.name for f in fields(LayerScore))
RECIPE = ("norm", "tokens", "pooling", "transform", "normalize", "prompt", "fit", "max_length")
NEEDED = tuple(f.name for f in fields(LayerScore) if f.default is MISSING)


def curves(scores: Iterable[LayerScore]) -> dict[tuple[str, ...], list[LayerScore]]:
    """Rows by everything but the layer, each in the order of depth: what a plot draws as one line."""
    scores, by_model = list(scores), dict[str, list[LayerScore]]()
    for s in scores:
        by_model.setdefault(s.model, []).append(s)
    distinguishing = {model: telling_apart(rows) for model, rows in by_model.items()}
    lines: dict[tuple[str, ...], list[LayerScore]] = {}
    for s in sorted(scores, key=lambda s: s.layer):
        name = f"{s.condition} {s.level:g}" if s.condition else ""
        label = made_words(s, distinguishing[s.model])
        setting = (s.model, name, s.metric, s.rows, s.tokens, s.pooling, label, s.norm)
        lines.setdefault(setting, []).append(s)
    return lines


def telling_apart(rows: Sequence[LayerScore]) -> list[str]:
    """The further columns in which rows of one model differ: without them, two curves would be drawn as one.

    An eval's rows differ in data and data_hash because its tasks do, which their metric says already.
    """
    scan_rows = [s for s in rows if s.rows != "-" and not s.condition]
    names = [name for name in ("data", "data_hash") if len({getattr(s, name) for s in scan_rows}) > 1][:1]
    others = ("fit", "max_length", "revision", "dtype", "model_hash", "settings_hash")
    # A stress test has settings of its own.
    groups = ([s for s in rows if not s.condition], [s for s in rows if s.condition])
    return names + [name for name in others if any(len({getattr(s, name) for s in kind}) > 1 for kind in groups)]


def made_words(s: LayerScore, several: Sequence[str]) -> str:
    """How vectors were made beyond norm, tokens and pooling, in words; fit and length where they tell rows apart."""
    parts = ["" if s.transform == "none" else s.transform, "normalized" if s.normalize else ""]
    parts.append(f"prompt {s.prompt!r}" if s.prompt else "")
    parts += [f"{name} {getattr(s, name)}" for name in several]
    return ", ".join(filter(None, parts))
