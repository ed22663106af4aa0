"""The plan of a scan: which metrics of which layers, which readings they need, and their memory."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from layerwise.core.checks import EntropyRoute, NormChoice, PoolingChoice, TokenChoice, suggestion
from layerwise.core.errors import InputError
from layerwise.core.options import problems_in
from layerwise.core.recipe import Readout
from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH
from layerwise.inputs.perturbations.changes import Stress
from layerwise.metrics.base import Metric
from layerwise.metrics.catalog import CATALOG
from layerwise.metrics.code_hash import UNKNOWN, code_identity
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.readings import Reading
from layerwise.runs.keys import NO_POOLING, StateKey
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan.sum_precision import MAX_STATE_BYTES, make_accumulator, state_options

INTEGER_OPTIONS = ("max_length", "batch_tokens", "shard_size", "threads", "seed")


@dataclass(frozen=True)
class Measurement:
    """One metric of one readout, or of a point inside its layer's block, with its reading."""

    readout: Readout
    metric: Metric
    rows: RowTreatment
    reading: Reading
    point: str = ""

    @property
    def pooling(self) -> str:
        return self.readout.pooling if self.reading.input_kind == "pooled" else NO_POOLING

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings it needs: the metric's own, and the one for its interval, if any."""
        interval_source = self.metric.interval_source
        return (self.reading,) if interval_source is None else (self.reading, interval_source.reading(self.rows))

    def key(self, reading: Reading) -> str:
        """The key under which a reading is stored; equal keys are stored once."""
        readout = self.readout
        pooling = readout.pooling if reading.input_kind == "pooled" else NO_POOLING
        name = reading.key(self.metric.name)
        return str(StateKey(readout.layer, readout.norm, readout.tokens, pooling, name, self.point))


@dataclass(frozen=True)
class ScanPlan:
    """Everything that affects the numbers of a scan, besides the model and the data."""

    metrics: tuple[Metric, ...]
    layers: tuple[int, ...]
    depth: int
    has_norm: bool
    rows: tuple[RowTreatment, ...] = ("raw",)
    tokens: tuple[TokenChoice, ...] = ("all",)
    norm: tuple[NormChoice, ...] = ("raw",)
    pooling: tuple[PoolingChoice, ...] = ("mean",)
    max_length: int = 512
    batch_tokens: int = 4096
    shard_size: int = 1024
    seed: int = 0
    view_strength: float = DEFAULT_STRENGTH
    stress: Stress | None = None
    points: tuple[str, ...] = ()  # inside each block
    dtype: str = "float32"
    state: str = "exact"  # how sums over the data set are stored: exact, float32 or sketch:512
    entropy: EntropyRoute = "exact"  # how prompt entropy is computed
    threads: int = field(default_factory=torch.get_num_threads)  # affects the last bits of sums

    def __post_init__(self) -> None:
        names = ("rows", "tokens", "norm", "pooling", "state", "view_strength")
        problems = problems_in(ScanOptions, {name: getattr(self, name) for name in (*names, *INTEGER_OPTIONS)})
        if self.stress and self.views:
            problems.append("stress tests have no views; use metrics that need none")
        problems += [] if problems_in(ScanOptions, {"state": self.state}) else self._state_problems()
        if "normed" in self.norm and not self.has_norm:
            problems.append("this model has no final norm, so norm cannot be normed; use raw")
        if self.points and not max(self.layers, default=0):
            problems.append("inside needs a layer above 0: what enters the first block comes from no block")
        if problems:
            raise InputError("; ".join(problems))
        for name in INTEGER_OPTIONS:
            object.__setattr__(self, name, int(getattr(self, name)))  # numpy numbers cannot be written as JSON

    def _state_problems(self) -> list[str]:
        try:
            for metric in self.metrics:
                for rows in self.rows_for(metric):
                    make_accumulator(self.reading(metric, rows), 1, self.state)
        except InputError as error:
            return [str(error)]
        return []

    @property
    def views(self) -> int:
        """The number of perturbed copies per example that the metrics need."""
        return max((m.reading(rows).views for m in self.metrics for rows in self.rows_for(m)), default=0)

    def rows_for(self, metric: Metric) -> tuple[RowTreatment, ...]:
        """The requested row treatments that the metric supports, or its default if it supports none."""
        return tuple(r for r in self.rows if r in metric.rows) or metric.rows[:1]

    def reading(self, metric: Metric, rows: RowTreatment) -> Reading:
        """What is read for a metric, by matrix products where the plan asks for them and the metric has that."""
        if self.entropy == "products" and metric.products_reading is not None:
            return metric.products_reading(rows)
        return metric.reading(rows)

    def norms_for(self, layer: int) -> tuple[NormChoice, ...]:
        """The norms to read for a layer. The last layer is also read normed, since that is the model's usual output."""
        last = layer == self.depth and self.has_norm
        norms: tuple[NormChoice, ...] = (*self.norm, "normed") if last else self.norm
        return tuple(dict.fromkeys(norms))

    def measurements(self, layer: int) -> list[Measurement]:
        """All measurements of one layer: of its output, then of the points inside its block."""
        places = [(norm, "") for norm in self.norms_for(layer)]
        places += [("raw", point) for point in self.points if layer]
        return [
            Measurement(Readout(layer, norm, tokens, pooling), metric, rows, self.reading(metric, rows), point)
            for norm, point in places
            for tokens in self.tokens
            for metric in self.metrics
            for rows in self.rows_for(metric)
            for pooling in (self.pooling if metric.reading(rows).input_kind == "pooled" else self.pooling[:1])
        ]

    def state_bytes(self, width: int, prompts: int) -> int:
        """The maximum memory of the accumulators of all layers after `prompts` prompts, in bytes."""
        readings = {m.key(r): r for layer in self.layers for m in self.measurements(layer) for r in m.readings}
        return sum(make_accumulator(reading, width, self.state).bytes_for(prompts) for reading in readings.values())

    def settings(self) -> dict[str, Any]:
        """The plan as plain data, for the record."""
        lists = {name: list(getattr(self, name)) for name in ("layers", "rows", "tokens", "norm", "pooling")}
        names = ("max_length", "batch_tokens", "shard_size", "seed", "dtype", "state", "threads", "views")
        scalars = {name: getattr(self, name) for name in names}
        if self.entropy != "exact":
            scalars["entropy"] = self.entropy
        if self.points:
            scalars["points"] = list(self.points)
        if self.views:
            scalars["view_strength"] = self.view_strength
        if self.stress:
            scalars["stress"] = asdict(self.stress)
        if custom := self.own_metrics():
            scalars["own_metrics"] = custom
        return {"metrics": [m.name for m in self.metrics], **lists, **scalars}

    def own_metrics(self) -> dict[str, str]:
        """Custom metrics, each with a hash of its code, since a name alone does not identify them."""
        return {m.name: code_identity(m) for m in self.metrics if m not in CATALOG}

    def unknown_metrics(self) -> dict[str, str]:
        """Custom metrics of which it cannot be known whether they are the same the next time, with the reason."""
        found = self.own_metrics().items()
        return {name: identity.partition(": ")[2] for name, identity in found if identity.startswith(UNKNOWN)}

    def settings_hash(self) -> str:
        """A hash of everything that affects a number and has no column of its own."""
        views = (self.seed, self.view_strength) if self.views or self.stress else ()
        route = () if self.entropy == "exact" else (self.entropy,)
        settings = json.dumps([views, self.state, self.own_metrics(), *route])
        return hashlib.blake2b(settings.encode(), digest_size=6).hexdigest()

    def fingerprint(self) -> str:
        """A hash that changes whenever the numbers would change."""
        return settings_fingerprint(self.settings())


def settings_fingerprint(settings: Mapping[str, Any]) -> str:
    """The fingerprint of a plan, from its settings or from the record of them."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8).hexdigest()


def with_state(plan: ScanPlan, state: str, width: int, count: Callable[[], int]) -> ScanPlan:
    """The plan with the requested state; `auto` is the most exact one within eight gigabytes.

    `count` returns the number of prompts; it is called only if needed.
    """
    if state != "auto":
        return replace(plan, state=state)
    if plan.state_bytes(width, 10**9) <= MAX_STATE_BYTES:  # for any number of prompts
        return plan
    prompts = count()
    for option in state_options(width):
        try:
            candidate = replace(plan, state=option)
        except InputError:  # a metric does not support sketches: the previous option is the smallest
            break
        plan = candidate
        if plan.state_bytes(width, prompts) <= MAX_STATE_BYTES:
            break
    return plan


def choose_metrics(metrics: str | Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Metrics by name, `fast` (metrics that need no views) or `all`; Metric objects are used as given."""
    by_name = {metric.name: metric for metric in CATALOG}
    fast = [m for m in CATALOG if all(m.reading(rows).views == 0 for rows in m.rows)]
    items: Sequence[str | Metric] = metrics.split(",") if isinstance(metrics, str) else metrics
    chosen: list[Metric] = []
    for item in items:
        if isinstance(item, Metric):
            chosen.append(item)
        elif item.strip() in ("all", "fast"):
            chosen.extend(CATALOG if item.strip() == "all" else fast)
        elif item.strip() in by_name:
            chosen.append(by_name[item.strip()])
        else:
            hint = suggestion(item, [*by_name, "all", "fast"])
            names = f"there are all, fast, {', '.join(by_name)}"
            raise InputError(f"no metric {item!r}; {names}{hint or '. See `layerwise scan --metrics list`'}")
    if not chosen:
        raise InputError("no metric given; use fast, all, or names from `layerwise scan --metrics list`")
    if len({m.name for m in chosen}) < len(set(map(id, chosen))):
        raise InputError("two different metrics have the same name; rename one of them")
    return tuple(dict.fromkeys(chosen))
