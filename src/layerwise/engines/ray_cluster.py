"""Connects to a Ray cluster, or starts a local one for a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any

from layerwise.core.errors import MissingExtra, RunError
from layerwise.engines.options import Cluster

# No usage statistics, no warnings about future versions, and workers with normal priority.
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}


def worker_count(cluster: Cluster) -> int:
    """The requested number of workers, or as many as fit into the cluster."""
    if cluster.workers is not None:
        return cluster.workers
    resources = import_module("ray").cluster_resources()
    limits = [resources.get("CPU", 0) / cluster.cpus_per_worker]
    limits += [resources.get("GPU", 0) / cluster.gpus_per_worker] if cluster.gpus_per_worker else []
    return max(1, int(min(limits)))


@contextmanager
def connected(cluster: Cluster) -> Iterator[None]:
    """Connects this process to the cluster inside the context; an existing connection is left unchanged."""
    if find_spec("ray") is None:
        raise MissingExtra("the ray engine needs Ray: pip install 'layerwise[ray]'")
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray = import_module("ray")
    if ray.is_initialized():
        yield
        return
    connect(ray, cluster)
    try:
        yield
    finally:
        ray.shutdown()


def connect(ray: Any, cluster: Cluster) -> None:
    """Connects to a cluster, or starts a local one that is large enough for the requested workers."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if cluster.address is None and "RAY_ADDRESS" not in os.environ:
        cpus_needed = ceil((cluster.workers or 1) * cluster.cpus_per_worker)
        options |= {"address": "local", "num_cpus": max(cpus_needed, os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(**{"address": cluster.address} | options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"cannot connect to the Ray cluster at {cluster.address}: {error}") from error
