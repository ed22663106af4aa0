"""The results of probes: rows of the table, values of single examples, and what run.json says about them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.core.formats import parquet_bytes, read_parquet
from layerwise.core.recipe import Readout
from layerwise.metrics.intervals import NORMAL_QUANTILE, group_bootstrap, paired_share_interval, wilson_interval
from layerwise.runs.identity import ModelRef
from layerwise.runs.keys import NO_POOLING
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.probe.labelled import LabelledSet, LabelTask
from layerwise.verbs.probe.probes import NEVER, ProbeFit
from layerwise.verbs.probe.words import guess_record

NO_ROWS = "-"  # as in rows of eval: there is no row treatment
CAPTIONS = {
    "accuracy": {"unit": "points", "larger_means": "the probe reads more of the label from this layer"},
    "weight": {"unit": "share", "larger_means": "the weighted sum of layers takes more of this layer"},
}


@dataclass(frozen=True)
class Scored:
    """A probe that was trained for one column of labels, on one readout or on several layers."""

    task: LabelTask
    probe: str
    readout: Readout
    fit: ProbeFit
    layers: tuple[int, ...] = ()  # of a weighted sum

    @property
    def metric(self) -> str:
        return f"{self.task.column}_{self.probe}_accuracy"

    @property
    def weight_metric(self) -> str:
        return f"{self.task.column}_{self.probe}_weight"

    @property
    def correct(self) -> NDArray[np.bool_]:
        """For each test example, whether its class was predicted."""
        return np.asarray(self.fit.predicted == self.task.test)

    @property
    def columns(self) -> dict[str, Any]:
        """Layer, norm, tokens and pooling, as in a row; the attention probe pools by itself, and words need not be."""
        is_pooled = self.probe != "attention" and self.task.sentences is None
        return asdict(self.readout) | ({} if is_pooled else {"pooling": NO_POOLING})

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share of test examples whose class was predicted."""
        if self.task.sentences is not None:
            return group_bootstrap(self.correct, self.task.sentences, self.task.seed)
        return wilson_interval(int(self.correct.sum()), len(self.correct))


def probe_scores(
    model: ModelRef, max_length: int, labelled: LabelledSet, shared: Mapping[str, Any], scored: Sequence[Scored]
) -> tuple[LayerScore, ...]:
    """One row per probe, label and readout, in points from 0 to 100; and one per layer for the weights of a sum."""
    settings = blake2b(json.dumps(dict(shared), sort_keys=True).encode(), digest_size=8).hexdigest()
    rows = []
    for one in scored:
        common: dict[str, Any] = {
            "model": model.name,
            "revision": model.revision,
            "rows": NO_ROWS,
            "dtype": model.dtype,
            "data": labelled.sources[-1].name,
            "max_length": max_length,
            "model_hash": model.fingerprint,
            "data_hash": f"{labelled.fingerprint('test')}-{one.task.fingerprint}",
            "settings_hash": settings,
        }
        n, right = len(one.correct), int(one.correct.sum())
        low, high = one.interval
        note = one.fit.note or (f"sum over {len(one.layers)} layers" if one.layers else "")
        rows.append(
            LayerScore(
                **common, **one.columns, depth=one.readout.layer / model.depth, metric=one.metric,
                value=100 * right / n, n=n, ci_low=100 * low, ci_high=100 * high, note=note,
            )
        )  # fmt: skip
        for layer, weight in zip(one.layers, one.fit.weights, strict=True):
            place = one.columns | {"layer": layer}
            rows.append(
                LayerScore(
                    **common, **place, depth=layer / model.depth, metric=one.weight_metric, value=weight,
                    n=len(one.task.train),
                )
            )  # fmt: skip
    return tuple(rows)


def record_of(labelled: LabelledSet, tasks: Sequence[LabelTask], scored: Sequence[Scored]) -> dict[str, Any]:
    """Data, labels and probes for run.json; each probe with its settings and its difference from the last layer."""
    train, test = labelled.sources[0], labelled.sources[-1]
    metrics = {one.metric: CAPTIONS["accuracy"] for one in scored}
    metrics |= {one.weight_metric: CAPTIONS["weight"] for one in scored if one.layers}
    return {
        "data": {
            "name": train.name,
            "fingerprint": labelled.fingerprint("train"),
            "options": dict(train.options),
            "prompts": len(labelled.examples),
            "missing": [],
            "blank_rows": labelled.blank_rows,
            "unit": train.unit,
        },
        "test": {
            "name": test.name,
            "fingerprint": labelled.fingerprint("test"),
            "options": dict(test.options),
            "examples": len(labelled.indices("test")),
            "left_out": labelled.left_out,  # also in the training data
        },
        "labels": {
            task.column: task.to_record() | ({} if task.sentences is None else guess_record(task)) for task in tasks
        },
        "metrics": metrics,
        "probes": [probe_record(one, last_of(one, scored)) | validation_record(one, scored) for one in scored],
    }


def last_of(one: Scored, scored: Sequence[Scored]) -> Scored | None:
    """The same probe on the last layer that was read, as it leaves the model: after the final norm if there is one."""
    same = [other for other in scored if (other.metric, other.layers) == (one.metric, ())]
    return max(same, key=lambda other: (other.readout.layer, other.readout.norm == "normed"), default=None)


def probe_record(one: Scored, last: Scored | None) -> dict[str, Any]:
    record = {
        "metric": one.metric,
        "label": one.task.column,
        "probe": one.probe,
        "layer": one.readout.layer,
        "norm": one.readout.norm,
        "chosen": dict(one.fit.chosen),
    }
    if one.fit.head_file:
        record |= {"head": one.fit.head_file, "calibration": dict(one.fit.calibration)}
    return record | ({} if last is None or last is one else {"minus_last": difference_record(one, last)})


def validation_record(one: Scored, scored: Sequence[Scored]) -> dict[str, Any]:
    """The accuracy on training examples while held out, with the difference from the best readout of the same probe.

    A layer is chosen by these, so that test examples still say what the choice is worth.
    """
    held_out = one.fit.validated != NEVER
    if not held_out.any():
        return {}
    same = [other for other in scored if other.metric == one.metric]
    right = {id(other): (other.fit.validated == other.task.train)[held_out] for other in same}
    best, own = max(right.values(), key=lambda found: int(found.sum())), right[id(one)]
    gained, lost = int((own & ~best).sum()), int((~own & best).sum())
    low, high = paired_share_interval(gained, lost, len(own))
    return {
        "validation": {
            "points": 100 * float(own.mean()), "n": len(own), "behind": 100 * (lost - gained) / len(own),
            "standard_error": 100 * (high - low) / (2 * NORMAL_QUANTILE),
        }
    }  # fmt: skip


def difference_record(one: Scored, last: Scored) -> dict[str, Any]:
    """How many points a layer is above the last one, paired over test examples, with the 95 % interval."""
    gained, lost = int((one.correct & ~last.correct).sum()), int((~one.correct & last.correct).sum())
    n = len(one.correct)
    if one.task.sentences is None:
        low, high = paired_share_interval(gained, lost, n)
    else:
        gains = one.correct.astype(np.float64) - last.correct
        low, high = group_bootstrap(gains, one.task.sentences, one.task.seed)
    points = {"points": 100 * (gained - lost) / n, "ci_low": 100 * low, "ci_high": 100 * high}
    return points | {"gained": gained, "lost": lost, "n": n}


def probe_values(labelled: LabelledSet, scored: Sequence[Scored], before: Mapping[str, bytes]) -> bytes:
    """For each test example and probe, 100 points or none, in the form in which a scan keeps values of single examples.

    `before` are the files of an earlier call in the same folder, whose other metrics are kept.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    tested = [labelled.examples[i] for i in labelled.indices("test")]
    ids, digests = pa.array([e.id for e in tested], pa.string()), pa.array([e.digest for e in tested], pa.int64())
    parts = []
    for one in scored:
        constants = {k: v for k, v in one.columns.items() if k != "pooling"}
        constants |= {"point": "", "rows": NO_ROWS, "metric": one.metric}
        columns = {name: pa.array([value] * len(ids)) for name, value in constants.items()}
        parts.append(pa.table({"id": ids, "digest": digests, **columns, "value": 100.0 * one.correct}))
    for where, data in before.items():
        earlier = read_parquet(data, where)
        new = pa.array(sorted({one.metric for one in scored}))
        parts.append(earlier.filter(pc.invert(pc.is_in(earlier["metric"], new))))
    return parquet_bytes(pa.concat_tables(parts))


def merged(table: LayerTable, earlier: LayerTable | None) -> LayerTable:
    """The rows of an earlier call in the same folder for other labels and probes, followed by those of this call."""
    if earlier is None:
        return table
    new = {row.metric for row in table}
    run = dict(table.run)
    for name in ("labels", "metrics"):
        run[name] = {**earlier.run.get(name, {}), **run[name]}
    run["probes"] = [one for one in earlier.run.get("probes", []) if one.get("metric") not in new] + run["probes"]
    options, before = run.get("options", {}), earlier.run.get("options", {})
    run["options"] = options | {name: joined_words(before.get(name), options.get(name)) for name in ("label", "probes")}
    return LayerTable(tuple(row for row in earlier if row.metric not in new) + table.scores, run)


def joined_words(*words: Any) -> str:
    """The words of several calls, each once."""
    parts = [part.strip() for word in words if word for part in (word.split(",") if isinstance(word, str) else word)]
    return ",".join(dict.fromkeys(parts))
