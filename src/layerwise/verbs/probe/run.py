"""Runs probes: reads the features of all layers once, trains every probe on them, and writes rows and record."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.core.errors import RunError
from layerwise.core.files import DiskFolder, write_checked_json
from layerwise.core.formats import parse_stored, stored_checksum
from layerwise.core.outputs import scratch_folder
from layerwise.core.progress import OnBatch, announce
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example, shards
from layerwise.models.network import Network
from layerwise.passes.batches import network_processor
from layerwise.runs.folder import PROMPT_FILES, Run, prompts_file
from layerwise.runs.ownership import claim
from layerwise.runs.records import NUMBER_TYPES, environment
from layerwise.runs.result import RUN_FILE, TABLE_FILE
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.verbs.probe.features import (
    MAX_SHARD,
    SHARD_BYTES,
    TRIED_EXAMPLES,
    FeatureKind,
    FeatureStore,
    bytes_per_size,
    in_gigabytes,
    require_disk,
)
from layerwise.verbs.probe.heads import FITS, read_head, write_head
from layerwise.verbs.probe.labelled import LabelledSet, LabelTask, label_task
from layerwise.verbs.probe.probes import NEVER, ProbeFit, knn_probe, linear_probe, require_sklearn
from layerwise.verbs.probe.rows import Scored, merged, probe_scores, probe_values, record_of
from layerwise.verbs.probe.trained_probes import attention_probe, weighted_sum_probe
from layerwise.verbs.probe.words import FIRST_TOKEN, read_words

VERSION = 4  # of the probes; stored fits of another version are made anew
FEATURES = "features"  # a subfolder of a run folder


@dataclass(frozen=True)
class ProbePlan:
    """What is computed."""

    readouts: tuple[Readout, ...]  # layers raw; the last layer also normed
    probes: tuple[str, ...]
    columns: tuple[str, ...]
    max_length: int
    epochs: int
    seed: int
    batch_tokens: int
    precision: str
    words: bool = False  # labels are those of words

    @property
    def layers(self) -> tuple[Readout, ...]:
        """The readouts that the weighted sum is over."""
        return tuple(readout for readout in self.readouts if readout.norm == "raw")

    def settings(self) -> dict[str, Any]:
        """Settings that all rows of a run folder share."""
        readout = self.readouts[0]
        return {
            "layers": sorted({r.layer for r in self.readouts}),
            "tokens": readout.tokens,
            "pooling": FIRST_TOKEN if self.words else readout.pooling,
            "max_length": self.max_length,
            "epochs": self.epochs,
            "seed": self.seed,
            "precision": self.precision,
        }


def run_probes(
    network: Network,
    plan: ProbePlan,
    labelled: LabelledSet,
    *,
    out: Path | None,
    keep_features: bool,
    options: Mapping[str, Any],
    on_batch: OnBatch,
    on_fit: OnBatch,
) -> LayerTable:
    """The table of all probes; with `out`, a run folder that can be resumed."""
    started, model = time.monotonic(), network.identity()
    words = None
    if plan.words:
        labelled, words = read_words(
            network.preprocessor,
            labelled,
            plan.columns,
            max_length=plan.max_length,
            width=network.width,
            seed=plan.seed,
        )
        tasks = [words.task(labelled, column, plan.seed) for column in plan.columns]
    else:
        tasks = [label_task(labelled, column, plan.seed) for column in plan.columns]
    if "linear" in plan.probes:
        require_sklearn()
    shared = plan.settings() | {"train": labelled.fingerprint("train"), "test": labelled.fingerprint("test")}
    earlier = None
    if out is not None:
        claim(DiskFolder(out), "probe", model=model.fingerprint)
        earlier = load_earlier(out, shared)
    positions = plan.words or "attention" in plan.probes
    kind = FeatureKind(model.fingerprint, plan.max_length, plan.readouts, positions, plan.precision, plan.words)
    with feature_folder(out) as folder:
        store = FeatureStore(folder, kind)
        read_all(store, network, plan, labelled, on_batch)
        if done := len(labelled.examples) - store.forwarded:
            announce(f"resuming: {done:,} of {counted(len(labelled.examples), 'example')} were read before")
        read = time.monotonic()
        fits = Fits(out / FITS if out is not None else None, model.fingerprint, shared)
        scored = [
            scored
            for task in tasks
            for probe in plan.probes
            for scored in fit_probe(probe, store, plan, labelled, task, fits, on_fit)
        ]
        if not keep_features:
            store.delete()
    run: dict[str, Any] = {
        "kind": "probe",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "model": model.to_record(),
        "plan": shared,
        "max_length": plan.max_length,
        **record_of(labelled, tasks, scored),
        **({} if words is None else {"words": words.to_record()}),
        "forwarded": store.forwarded,
        "seconds": round(time.monotonic() - started, 1),
        "seconds_reading": round(read - started, 1),
        "options": dict(options),
    }
    table = merged(LayerTable(probe_scores(model, plan.max_length, labelled, shared, scored), run), earlier)
    if out is not None:
        folder_out = DiskFolder(out)
        if not plan.words:  # a value per sentence would be a mean of other weights than that over words
            table = replace(table, run={**table.run, PROMPT_FILES: write_values(folder_out, labelled, scored, earlier)})
        table.save(folder_out)
    return table


def write_values(
    folder: DiskFolder, labelled: LabelledSet, scored: Sequence[Scored], earlier: LayerTable | None
) -> dict[str, str]:
    """Writes the values of single examples, with those of an earlier call; returns the file and its checksum.

    It is not the file of the earlier call, which is valid until the record is replaced, unless they are the same.
    """
    kept = Run(earlier or LayerTable((), {PROMPT_FILES: {}}), folder, str(folder))
    values = probe_values(labelled, scored, kept.prompts() if kept.has_prompts else {})
    own, checksum = kept.table.run.get(PROMPT_FILES, {}), stored_checksum(values)
    name = prompts_file(0)
    if own.get(name, checksum) != checksum:
        name = prompts_file(1)
    folder.write(name, values)
    return {name: checksum}


def load_earlier(out: Path, shared: Mapping[str, Any]) -> LayerTable | None:
    """The table of an earlier call in this folder; raises if its settings or examples were others."""
    if not (out / TABLE_FILE).exists() or not (out / RUN_FILE).exists():  # killed before its record was written
        return None
    earlier = LayerTable.load(out)
    before = earlier.run.get("plan", {})
    if differing := [f"{k}: {before.get(k)!r} there, {v!r} asked for" for k, v in shared.items() if before.get(k) != v]:
        raise RunError(f"{out} contains different probes ({'; '.join(differing)}); choose another folder for --out")
    return earlier


@contextmanager
def feature_folder(out: Path | None) -> Iterator[Path]:
    """Where features are stored: in the run folder, or in a temporary folder that is deleted afterwards."""
    if out is not None:
        yield out / FEATURES
        return
    with scratch_folder("features") as folder:
        yield folder


def read_all(store: FeatureStore, network: Network, plan: ProbePlan, labelled: LabelledSet, on_batch: OnBatch) -> None:
    """Runs every example through the model once, after checking that what is stored of it fits on the disk."""
    count, size = len(labelled.examples), MAX_SHARD
    if store.kind.positions:
        tried = list(islice(labelled.inputs(), TRIED_EXAMPLES))
        per_size = bytes_per_size(network, store.kind, tried, plan.batch_tokens)
        needed = per_size * total_size(network, labelled.inputs(), plan.max_length)
        announce(f"storing about {in_gigabytes(needed)} of positions in {store.folder.parent}")
        require_disk(store.folder, needed)
        size = int(max(1, min(MAX_SHARD, SHARD_BYTES / (needed / count))))
    for examples in shards(labelled.inputs(), size):
        store.add(network, examples, plan.batch_tokens, on_batch)


def total_size(network: Network, examples: Iterable[Example], max_length: int) -> float:
    """The sum of the sizes of all inputs, as they are cut."""
    size = network_processor(network).size
    return sum(min(size(example.payload), max_length) for example in examples)


@dataclass(frozen=True)
class Fits:
    """Trained probes that are already in the run folder, under a hash of everything that their result depends on."""

    folder: Path | None
    model: str
    shared: Mapping[str, Any]

    def get(self, name: str, task: LabelTask, train: Any, *, validated: int = 0, weights: int = 0) -> ProbeFit:
        """The stored fit, else what `train` makes, which is stored at once.

        A stored fit must have as many held-out predictions and weights as one that is trained.
        """
        if self.folder is None:
            fit: ProbeFit = train()
            return fit
        content = json.dumps([VERSION, name, self.model, dict(self.shared), task.fingerprint], sort_keys=True)
        path = self.folder / f"{hashlib.blake2b(content.encode(), digest_size=12).hexdigest()}.json"
        if (stored := read_fit(path, task, validated=validated, weights=weights)) is not None:
            return stored
        fit = train()
        if fit.head is not None:  # before the record that names it
            fit = replace(fit, head_file=write_head(self.folder, path.stem, fit.head))
        arrays = {name: getattr(fit, name).tolist() for name in ("predicted", "validated")}
        record = {name: value for name, value in vars(fit).items() if name != "head"}
        write_checked_json(path, {"name": path.name, **record, **arrays, "weights": list(fit.weights)})
        return fit


FIT_SHAPE = {
    "name": str, "predicted": [int], "chosen": {str: NUMBER_TYPES}, "weights": [NUMBER_TYPES], "note": str,
    "validated": [int], "calibration": {str: NUMBER_TYPES}, "head_file": str,
}  # fmt: skip


def read_fit(path: Path, task: LabelTask, *, validated: int = 0, weights: int = 0) -> ProbeFit | None:
    """A stored fit; None if it is not there, damaged, of another name or of other lengths."""
    lengths = {"predicted": len(task.test), "validated": validated, "weights": weights}
    try:
        record = parse_stored(path.read_bytes(), str(path), FIT_SHAPE)
        if record.pop("name") != path.name or any(len(record[name]) != n for name, n in lengths.items()):
            return None
        classes = {*range(len(task.classes))}
        if not (classes >= {*record["predicted"]} and classes | {NEVER} >= {*record["validated"]}):
            return None
        arrays = {name: np.array(record[name], dtype=np.int64) for name in ("predicted", "validated")}
        head = read_head(path.parent, record["head_file"]) if record["head_file"] else None
        return ProbeFit(**record | arrays, head=head)
    except (OSError, ValueError, TypeError, KeyError, RunError):
        return None


def fit_probe(
    probe: str,
    store: FeatureStore,
    plan: ProbePlan,
    labelled: LabelledSet,
    task: LabelTask,
    fits: Fits,
    on_fit: OnBatch,
) -> Iterator[Scored]:
    """Trains one kind of probe for one column of labels: on each readout, or once on all layers."""
    train, test = labelled.indices("train"), labelled.indices("test")
    if probe == "weighted_sum":
        layers = plan.layers
        train_sum = partial(fit_weighted_sum, store, layers, train, test, task)
        fit = fits.get(f"weighted_sum {[readout.layer for readout in layers]}", task, train_sum, weights=len(layers))
        yield Scored(task, probe, replace(layers[-1], pooling="mean"), fit, tuple(r.layer for r in layers))
        on_fit(1, 0)
        return
    for readout in plan.readouts:
        train_one = partial(fit_readout, probe, store, readout, train, test, task, plan.epochs)
        validated = len(task.train) if probe == "linear" and task.sentences is None else 0
        yield Scored(task, probe, readout, fits.get(f"{probe} {readout}", task, train_one, validated=validated))
        on_fit(1, 0)


def fit_weighted_sum(
    store: FeatureStore, layers: Sequence[Readout], train: NDArray[np.int64], test: NDArray[np.int64], task: LabelTask
) -> ProbeFit:
    return weighted_sum_probe([store.rows(r, "normalised_mean") for r in layers], train, test, task)


def fit_readout(
    probe: str,
    store: FeatureStore,
    readout: Readout,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    task: LabelTask,
    epochs: int,
) -> ProbeFit:
    if probe == "attention":
        return attention_probe(store.positions(readout), train, test, task, epochs)
    if task.sentences is not None:
        of_train, of_test = (store.positions(readout).batch(part.tolist())[0].numpy() for part in (train, test))
        fit = linear_probe(of_train, of_test, task)
        return replace(fit, validated=np.zeros(0, dtype=np.int64), calibration={}, head=None)  # nothing is exported
    rows = store.rows(readout, "pooled")
    return {"linear": linear_probe, "knn": knn_probe}[probe](rows[train], rows[test], task)
