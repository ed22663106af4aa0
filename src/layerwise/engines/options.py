"""Where the work runs: in this process, on the workers of a Ray cluster, or in vLLM."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, get_args

from layerwise.core.checks import require_choice, require_count
from layerwise.core.errors import InputError
from layerwise.core.options import HOW_IT_RUNS, Option, require_valid

EngineChoice = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(EngineChoice)
ScanEngineChoice = Literal["local", "ray", "vllm"]
SCAN_ENGINES: tuple[str, ...] = get_args(ScanEngineChoice)
MOST_THREADS = 10_000  # or processes; more would only be a mistake


@dataclass(frozen=True)
class Cluster:
    """Which Ray cluster to use, and how large its workers are.

    Args:
        address: "auto" for the cluster on this machine, or host:port. None takes the one that RAY_ADDRESS names, or
            starts one for the time of the run.
        workers: how many processes hold the model; None is as many as fit.
        cpus_per_worker: CPUs, and threads, of each worker.
        gpus_per_worker: GPUs of each worker; 0.5 puts two workers on one GPU.
    """

    address: Annotated[
        str | None, Option("ray: cluster address, auto or host:port; default: start a local cluster", group=HOW_IT_RUNS)
    ] = None
    workers: Annotated[
        int | None,
        Option(
            "ray: number of worker processes, each with a copy of the model; default: as many as fit",
            partial(require_count, maximum=MOST_THREADS),
            HOW_IT_RUNS,
        ),
    ] = None
    cpus_per_worker: Annotated[float, Option("ray: CPUs (and threads) per worker", group=HOW_IT_RUNS)] = 1
    gpus_per_worker: Annotated[
        float, Option("ray: GPUs per worker; 0.5 puts two workers on one GPU", group=HOW_IT_RUNS)
    ] = 0

    def __post_init__(self) -> None:
        require_valid(self)
        if self.cpus_per_worker <= 0 or self.gpus_per_worker < 0:
            raise InputError("cpus_per_worker must be greater than 0, and gpus_per_worker at least 0")

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return max(1, int(self.cpus_per_worker))


def require_json_object(name: str, text: Any) -> None:
    """Raises if an option is not the text of a JSON object."""
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, TypeError):
        is_object = False
    if not is_object:
        raise InputError(f"{name} must be a JSON object, such as '{{\"tensor_parallel_size\": 2}}', not {text!r}")


@dataclass(frozen=True)
class Vllm:
    """vLLM as the engine that computes hidden states; which Python has it is in LAYERWISE_VLLM.

    Args:
        vllm_args: arguments of its engine as a JSON object, such as '{"tensor_parallel_size": 8}'.
    """

    vllm_args: Annotated[
        str,
        Option(
            "vllm: arguments of its engine as JSON, such as '{\"tensor_parallel_size\": 8}'",
            require_json_object,
            HOW_IT_RUNS,
            metavar="JSON",
        ),
    ] = "{}"

    def __post_init__(self) -> None:
        require_valid(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """Them as Python values."""
        return dict(json.loads(self.vllm_args))


def require_scan_engine(name: str, engine: Any) -> None:
    if not isinstance(engine, Cluster | Vllm):
        require_choice(name, engine, SCAN_ENGINES)


def require_engine(name: str, engine: Any) -> None:
    if not isinstance(engine, Cluster):
        require_choice(name, engine, ENGINES)


Engine = Annotated[
    EngineChoice | Cluster,
    Option(
        "local, or ray for several processes or machines, with the same numbers; in Python also a Cluster",
        require_engine,
        HOW_IT_RUNS,
    ),
]
ScanEngine = Annotated[
    ScanEngineChoice | Cluster | Vllm,
    Option(
        "local, ray for several processes or machines with the same numbers, or vllm to read hidden states out of "
        "vLLM; in Python also a Cluster or Vllm",
        require_scan_engine,
        HOW_IT_RUNS,
    ),
]
Threads = Annotated[
    int | None,
    Option(
        "threads per process; part of the plan, since rounding depends on it",
        partial(require_count, maximum=MOST_THREADS),
        HOW_IT_RUNS,
    ),
]
AllowMissing = Annotated[
    int,
    Option(
        "leave out up to K texts that cannot be computed; every row says how many were",
        partial(require_count, minimum=0),
        HOW_IT_RUNS,
        metavar="K",
    ),
]
Progress = Annotated[
    bool, Option("show what is being done, and progress bars, on standard error", library_only=True, is_recorded=False)
]
