"""Joining a Ray cluster, or starting one here for the time of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any

from layerwise.core.errors import MissingExtra, RunError
from layerwise.options.engine import Cluster

# No reports to Ray's makers, no advice about versions to come, and workers that do not stand back behind all others.
RAY_HABITS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0"}


def workers_of(cluster: Cluster) -> int:
    """As many as were asked for, else as many as fit into the cluster that was joined."""
    if cluster.workers is not None:
        return cluster.workers
    resources = import_module("ray").cluster_resources()
    limits = [resources.get("CPU", 0) / cluster.cpus_per_worker]
    limits += [resources.get("GPU", 0) / cluster.gpus_per_worker] if cluster.gpus_per_worker else []
    return max(1, int(min(limits)))


@contextmanager
def joined(cluster: Cluster) -> Iterator[None]:
    """Inside, this process belongs to the cluster; Ray is left as it was found."""
    if find_spec("ray") is None:
        raise MissingExtra("the ray engine needs Ray: pip install 'layerwise[ray]'")
    for name, value in RAY_HABITS.items():
        os.environ.setdefault(name, value)
    ray = import_module("ray")
    if ray.is_initialized():
        yield
        return
    join(ray, cluster)
    try:
        yield
    finally:
        ray.shutdown()


def join(ray: Any, cluster: Cluster) -> None:
    """Joins a cluster, or starts one here that is large enough for the workers asked for."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if cluster.address is None and "RAY_ADDRESS" not in os.environ:
        cpus_needed = ceil((cluster.workers or 1) * cluster.cpus_per_worker)
        options |= {"address": "local", "num_cpus": max(cpus_needed, os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(**{"address": cluster.address} | options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"cannot join the Ray cluster at {cluster.address}: {error}") from error
