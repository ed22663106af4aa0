"""The scans of one training: every n steps all layers are measured on the same texts. It knows no trainer."""

import math
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from layerwise.core.display import command_line
from layerwise.core.errors import LayerwiseError, NotFiniteError, RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.progress import announce, announcements
from layerwise.engines.distributed import DistributedEngine, agreed, is_distributed, is_first_process
from layerwise.engines.local import LocalEngine
from layerwise.inputs.source import DataLike, Source
from layerwise.inputs.token_ids import TokenIdsProcessor, is_tokenized, open_token_ids
from layerwise.models.load import module_info, network_from_object
from layerwise.models.network import Network
from layerwise.models.parts import inner_module
from layerwise.runs.ownership import require_usable
from layerwise.runs.scores import LayerScore
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.training.alerts import AlertState, require_measured
from layerwise.training.options import WatchOptions
from layerwise.training.randomness import unchanged_randomness
from layerwise.verbs.scan.execute import execute
from layerwise.verbs.scan.options import ScanSettings
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.prepare import forecast_scan, prepare
from layerwise.verbs.scan.timing import predict_seconds

READING = ("metrics", "rows", "layers", "norm", "tokens", "pooling", "max_length", "batch_tokens", "shard_size")
TokenizedBatches = Sequence[Mapping[str, Any]]


def step_name(step: int) -> str:
    """`step000500`: sorts by step, and figures of checkpoints read the number from it."""
    return f"step{step:06d}"


@dataclass
class LayerWatch:
    """Measures the layers of a model in training, and remembers what it found.

    In a distributed training every process must call it at the same steps: each computes a part of the texts.
    """

    network: Network
    plan: ScanPlan
    source: Source
    options: WatchOptions
    tables: dict[int, LayerTable] = field(default_factory=dict)  # by step
    messages: list[str] = field(default_factory=list)  # of alerts, and of scans that failed
    seconds: float = 0.0  # spent on scans
    began: float = field(default_factory=time.perf_counter)
    attempts: int = 0
    last_step: int | None = None
    alert_states: list[AlertState] = field(init=False)

    def __post_init__(self) -> None:
        require_measured(self.options.alerts, [metric.name for metric in self.plan.metrics])
        self.alert_states = [AlertState(alert, self.plan.depth) for alert in self.options.alerts]

    def restart_clock(self) -> None:
        """Shares of the time are counted from here."""
        self.began, self.seconds = time.perf_counter(), 0.0

    @property
    def share(self) -> float:
        """The share of the time since the training began that scans took."""
        return self.seconds / max(1e-9, time.perf_counter() - self.began)

    def is_due(self, step: int) -> bool:
        """True if the step is one to scan at, and scans did not take more than their share of the time so far."""
        every = self.options.every
        is_chosen = step % every == 0 if isinstance(every, int) else step in every
        if not is_chosen or step == self.last_step:
            return False
        within_share = self.options.max_share is None or self.share <= self.options.max_share
        return within_share if self.options.max_share is None else agreed(within_share)

    def predicted_seconds(self) -> float:
        """What one scan will take, from a few timed batches. It changes nothing in the training."""
        info = module_info(self.network.module, self.network.preprocessor, self.network.shipped)
        forecast = forecast_scan(self.network, self.plan, self.source, info)
        start = time.perf_counter()
        replace(self.network, _cached_hash=None).identity()  # every scan hashes the weights, which have changed
        hashing = time.perf_counter() - start
        with unchanged_randomness():
            return hashing + predict_seconds(self.network, self.plan, self.source, forecast).total

    def scan(self, step: int) -> tuple[dict[str, float], bool]:
        """Measures all layers: the values to log, by name, and whether an alert wants to stop the training.

        The first scan raises errors, since nothing is lost yet. A later one turns them into warnings: what it would
        have shown is worth less than the training.
        """
        start, is_first = time.perf_counter(), not self.attempts
        self.attempts, self.last_step = self.attempts + 1, step
        values: dict[str, float] = {}
        messages: list[str] = []
        stop = False
        try:
            with unchanged_randomness():
                table = self.table_of(step)
            self.tables[step] = table
            values = {self.value_name(score): score.value for score in table if math.isfinite(score.value)}
            watched = [score for curve in table.main_curves().values() for score in curve]
            for state in self.alert_states:
                found = state.messages(step, watched)
                messages, stop = messages + found, stop or bool(found and state.alert.stop)
        except NotFiniteError as error:
            messages, stop = [f"step {step}: {error}"], any(alert.stop for alert in self.options.alerts)
        except (LayerwiseError, OSError) as error:
            if is_first:
                raise
            messages = [f"step {step}: the layers were not measured: {error}"]
        self.seconds += time.perf_counter() - start
        self.messages += messages
        if is_first_process():
            for message in messages:
                warnings.warn(message, stacklevel=3)
        return values | {"layers/seconds": time.perf_counter() - start}, agreed(stop)

    def table_of(self, step: int) -> LayerTable:
        """The table of a scan now. With `out`, the first process keeps it in a folder of its own."""
        network = replace(self.network, name=f"{self.network.name}/{step_name(step)}", _cached_hash=None)
        engine = (DistributedEngine if is_distributed() else LocalEngine)(network, network.identity())
        folder = self.new_folder(step)
        keeps_run = self.options.keep == "run"
        # The folder is new, so no other process writes to it, and no lease is needed.
        table = execute(
            network,
            self.plan,
            self.source,
            engine=engine,
            folder=folder if keeps_run else None,
            require_lease=lambda: None,
        )
        if folder is not None and not keeps_run:
            table.save(folder)
        return table

    def new_folder(self, step: int) -> Folder | None:
        """The folder of a step, in the first process. An existing run is never written to.

        A training that goes on from a checkpoint finds the scans of the steps that it repeats, and leaves them.
        """
        if self.options.out is None:
            return None
        location, problem, is_usable = f"{str(self.options.out).rstrip('/')}/{step_name(step)}", "", True
        if is_first_process():
            try:
                is_usable = not require_usable(open_folder(location), "scan")
            except LayerwiseError as error:
                problem = str(error)
        problem, is_usable = agreed((problem, is_usable))
        if not (problem or is_usable) and step == 0:
            problem = f"{location} holds a scan of another training; choose a new folder for out"
        if problem:
            raise RunError(problem)
        return open_folder(location) if is_usable and is_first_process() else None

    def value_name(self, score: LayerScore) -> str:
        """`layers/3/effective_rank`; a setting of which there are several is added, and the norm of the last layer."""
        added = [score.norm] if score.norm != self.plan.norm[0] else []
        for name in ("rows", "tokens", "pooling"):
            chosen, value = getattr(self.plan, name), getattr(score, name)
            added += [value] if len(chosen) > 1 and value in chosen else []
        return "/".join(["layers", str(score.layer), "_".join([score.metric, *added])])

    def close(self) -> None:
        """Says what the scans cost, and what to do with them."""
        if not (self.options.progress and is_first_process()):
            return
        with announcements(True):
            scans = counted(len(self.tables), "scan")
            announce(f"{scans} took {self.seconds:.1f} s, {100 * self.share:.1f} % of the training")
            if self.options.out is not None and len(self.tables) > 1:
                first, last = (f"{self.options.out}/{step_name(step)}" for step in (min(self.tables), max(self.tables)))
                announce(f"compare them: {command_line(['layerwise', 'compare', first, last])}")


def open_watch(model: Any, data: DataLike | TokenizedBatches | Iterable[Any], options: WatchOptions) -> LayerWatch:
    """The watch of a model object, (module, tokenizer) or SentenceTransformer, with texts or tokenized batches."""
    if is_tokenized(data):
        module = model[0] if isinstance(model, tuple) else model
        model, data = (inner_module(module), TokenIdsProcessor()), open_token_ids(data)  # type: ignore[arg-type]
    network = network_from_object(model)
    settings = ScanSettings(network, data, **{name: getattr(options, name) for name in READING})
    plan, source, _ = prepare(settings, threads=torch.get_num_threads())
    return LayerWatch(network, plan, source, options)
