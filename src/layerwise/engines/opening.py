"""Opens an engine with the model loaded: in this process, or on a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerwise.core.checks import require_word
from layerwise.core.errors import InputError
from layerwise.core.hashes import Known
from layerwise.engines.local import LocalEngine
from layerwise.engines.ray import open_ray
from layerwise.engines.shards import Engine
from layerwise.models.fingerprint import hashes_of_files
from layerwise.models.load import (
    ModelSpec,
    load_network,
)
from layerwise.models.network import Network
from layerwise.models.opening import as_spec, open_network
from layerwise.models.shipped import read_shipped
from layerwise.options.engine import ENGINES, Cluster


@contextmanager
def open_engine(engine: str | Cluster, model: Any, out: str | Path | None) -> Iterator[Engine]:
    """Opens the engine that runs a scan, with the model loaded, in this process or on a Ray cluster."""
    if engine == "local":
        network = open_network(model)
        yield LocalEngine(network, network.identity())
        return
    if not isinstance(model, str | Path | ModelSpec):
        raise InputError(
            "cluster workers load the model themselves: pass a hub id, a folder or a ModelSpec, not an object"
        )
    if out is None:
        raise InputError(
            "the ray engine needs --out: a folder that every node can access, or a URL such as s3://bucket/run"
        )
    spec, cluster = as_spec(model), as_cluster(engine)
    worker_spec = replace(spec, name=from_anywhere(spec.name), adapter=spec.adapter and from_anywhere(spec.adapter))
    if spec.device == "auto" and not cluster.gpus_per_worker:
        worker_spec = replace(worker_spec, device="cpu")  # Ray does not hide GPUs from workers that requested none
    known_hashes = hashes_of_files(
        worker_spec.name, worker_spec.revision, read_shipped(worker_spec.name, worker_spec.revision)
    )
    with open_ray(cluster, partial(load_as, spec.name, worker_spec, known_hashes), Network.identity) as ray_engine:
        yield ray_engine


def from_anywhere(name: str) -> str:
    """The absolute path of a folder, since workers may have another working directory; a hub id unchanged."""
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def load_as(name: str, spec: ModelSpec, known: Known) -> Network:
    """Loads a model under the name that the user gave it, so that rows do not depend on the worker."""
    return replace(load_network(spec, known), name=name)


def as_cluster(engine: str | Cluster) -> Cluster:
    if isinstance(engine, Cluster):
        return engine
    require_word("engine", engine, ENGINES)
    return Cluster()


def threads_of(engine: str | Cluster) -> int:
    """The default number of threads of a process that runs shards."""
    return torch.get_num_threads() if engine == "local" else as_cluster(engine).threads
