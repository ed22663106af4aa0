"""Opens an engine with the model loaded: in this process, on a Ray cluster, or in vLLM."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerwise.core.checks import require_choice
from layerwise.core.errors import InputError
from layerwise.core.hashes import KnownHashes
from layerwise.engines.engine import Engine
from layerwise.engines.local import LocalEngine
from layerwise.engines.options import ENGINES, Cluster, Vllm
from layerwise.engines.ray import open_ray
from layerwise.models.elsewhere.vllm import open_vllm
from layerwise.models.fingerprint import file_hashes
from layerwise.models.load import (
    ModelSpec,
    load_network,
)
from layerwise.models.network import Network
from layerwise.models.opening import open_network, to_model_spec
from layerwise.models.shipped import read_shipped
from layerwise.models.streamed import open_streamed


@contextmanager
def open_engine(engine: str | Cluster | Vllm, model: Any, out: str | Path | None) -> Iterator[Engine]:
    """Opens the engine that runs a scan, with the model loaded."""
    if engine == "local":
        network = open_network(model, static=True, states_only=True)
        yield LocalEngine(network, network.identity())
        return
    if not isinstance(model, str | Path | ModelSpec):
        raise InputError(
            "Ray's workers and vLLM load the model themselves: pass a hub id, a folder or a ModelSpec, not an object"
        )
    if engine == "vllm" or isinstance(engine, Vllm):
        arguments = engine.arguments if isinstance(engine, Vllm) else {}
        with open_vllm(to_model_spec(model), arguments) as read_from_vllm:
            yield LocalEngine(read_from_vllm, read_from_vllm.identity())
        return
    if out is None:
        raise InputError(
            "the ray engine needs --out: a folder that every node can access, or a URL such as s3://bucket/run"
        )
    assert not isinstance(engine, Vllm)
    spec, cluster = to_model_spec(model), to_cluster(engine)
    worker_spec = replace(spec, name=absolute_folder(spec.name), adapter=spec.adapter and absolute_folder(spec.adapter))
    if spec.device == "auto" and not cluster.gpus_per_worker:
        worker_spec = replace(worker_spec, device="cpu")  # Ray does not hide GPUs from workers that requested none
    known_hashes = file_hashes(
        worker_spec.name, worker_spec.revision, read_shipped(worker_spec.name, worker_spec.revision)
    )
    with open_ray(
        cluster, partial(load_with_name, spec.name, worker_spec, known_hashes), Network.identity
    ) as ray_engine:
        yield ray_engine


def absolute_folder(name: str) -> str:
    """The absolute path of a folder, since workers may have another working directory; a hub id unchanged."""
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def load_with_name(name: str, spec: ModelSpec, known_hashes: KnownHashes) -> Network:
    """Loads a model under the name that the user gave it, so that rows do not depend on the worker."""
    network = open_streamed(spec, known_hashes) if spec.stream else load_network(spec, known_hashes)
    return replace(network, name=name)


def to_cluster(engine: str | Cluster) -> Cluster:
    if isinstance(engine, Cluster):
        return engine
    require_choice("engine", engine, ENGINES)
    return Cluster()


def default_threads(engine: str | Cluster | Vllm) -> int:
    """The default number of threads of a process that runs shards."""
    if isinstance(engine, Vllm) or engine in ("local", "vllm"):
        return torch.get_num_threads()
    return to_cluster(engine).threads
