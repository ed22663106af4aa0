"""Arguments: what a user may pass as model, data, engine or words, made into what the rooms below take."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from layerwise.checks import ENGINES, require_options, require_word, split_words
from layerwise.engines.local import LocalEngine
from layerwise.engines.ray import Cluster, open_ray
from layerwise.engines.shards import Engine
from layerwise.errors import InputError
from layerwise.inputs.source import Source
from layerwise.inputs.text import open_texts, peek, tokens_in
from layerwise.metrics.base import Metric
from layerwise.models.layers import LayerChoice, choose_layers
from layerwise.models.load import (
    DTYPES,
    LONGEST_DEFAULT,
    ModelSpec,
    Outline,
    adopt,
    load_network,
    outline_of,
    outline_of_module,
)
from layerwise.models.network import Network
from layerwise.passes.encode import encode_texts
from layerwise.sweep.forecast import Forecast, make_forecast
from layerwise.sweep.plan import ScanPlan, choose_metrics, with_state

Words = str | Sequence[str]
COUNTED_AT_MOST = 20_000  # texts that a forecast counts: no state grows beyond so many


def prepare(
    model: Any,
    data: Any,
    *,
    metrics: str | Sequence[str | Metric] = "fast",
    layers: LayerChoice = "all",
    max_length: int | None = None,
    rows: Words = "raw",
    tokens: Words = "all",
    readout: Words = "raw",
    pooling: Words | None = None,
    state: str = "auto",
    **numbers: Any,
) -> tuple[ScanPlan, Source, Outline]:
    """The plan, the data and the model's outline, before any weight is loaded."""
    reading = {"rows": rows, "tokens": tokens, "readout": readout, "pooling": pooling or "mean"}
    require_options(max_length=max_length, state=state)  # the plan checks all others, and tells all that is wrong
    chosen = choose_metrics(metrics)
    outline, dtype = outline_and_dtype(model)
    made: Any = {name: split_words(name, given) for name, given in reading.items()}
    scan_plan = ScanPlan(
        metrics=chosen,
        layers=choose_layers(layers, outline.depth),
        depth=outline.depth,
        has_norm=outline.has_norm,
        max_length=longest(max_length, outline, at_most=LONGEST_DEFAULT),
        dtype=dtype,
        **made,
        **numbers,
    )
    source = open_source(data)
    return with_state(scan_plan, state, outline.width, lambda: source.count(COUNTED_AT_MOST)[0]), source, outline


def outline_and_dtype(model: Any) -> tuple[Outline, str]:
    if isinstance(model, str | Path | ModelSpec):
        spec = as_spec(model)
        return outline_of(spec), spec.dtype
    network = adopt(model)
    outline = outline_of_module(network.module, network.tokenizer, network.shipped)
    return outline, str(network.dtype).removeprefix("torch.")


def forecast_of(
    model: Any, scan_plan: ScanPlan, source: Source, outline: Outline, *, loaded: bool = False
) -> Forecast:
    """Lengths are guessed from the first texts; weights that are `loaded` already, or elsewhere, are free here."""
    loaded = loaded or not isinstance(model, str | Path | ModelSpec)
    # A text that cannot be computed is named where that is tried: it may be left out.
    whole = [text for text in peek(source, 64) if tokens_in(outline.tokenizer, text) < math.inf]
    sample = encode_texts(outline.tokenizer, whole, scan_plan.max_length)
    prompts, all_of_them = source.count(COUNTED_AT_MOST)
    return make_forecast(
        scan_plan,
        width=outline.width,
        parameters=outline.parameters,
        bytes_per_weight=0 if loaded else DTYPES[scan_plan.dtype].itemsize,
        prompts=prompts,
        and_more=not all_of_them,
        mean_length=sum(len(ids) for ids, _ in sample) / max(1, len(sample)),
    )


def as_spec(model: str | Path | ModelSpec) -> ModelSpec:
    return model if isinstance(model, ModelSpec) else ModelSpec(str(model))


def open_network(model: Any) -> Network:
    """A name, a folder or a spec is loaded; an object is taken as it is."""
    return load_network(as_spec(model)) if isinstance(model, str | Path | ModelSpec) else adopt(model)


def network_of_run(run: Mapping[str, Any], model: Any = None) -> Network:
    """The model that a run was made with, loaded as it was then; raises where it is no longer the same.

    `model` is given where the run's own name no longer leads to it. A record never allows code to run.
    """
    record = run.get("model")
    if not isinstance(record, Mapping) or not {"name", "fingerprint"} <= set(record):
        raise InputError("run.json of this run does not say which model made it; make the run again")
    if model is None:
        folder = Path(str(record["name"])).is_dir()
        model = ModelSpec(
            str(record["name"]),
            revision=None if folder else record.get("revision"),
            dtype=str(record.get("dtype", "float32")),
            adapter=record.get("adapter") or None,
            part=record.get("part") or None,
        )
    network = open_network(model)
    if network.fingerprint() != record["fingerprint"]:
        raise InputError(
            f"{network.name} is not the model that this run was made with: its weights, config, tokenizer or type "
            "differ, or the run was made by another version of layerwise. Make the run again, or pass the right model"
        )
    return network


@contextmanager
def open_engine(engine: str | Cluster, model: Any, out: str | Path | None) -> Iterator[Engine]:
    """What does the work of a scan, with the model at hand, here or in many processes."""
    if engine == "local":
        network = open_network(model)
        yield LocalEngine(network, network.identity())
        return
    if not isinstance(model, str | Path | ModelSpec):
        raise InputError("workers on a cluster load the model themselves: pass a hub id, a folder or a ModelSpec")
    if out is None:
        raise InputError("the ray engine needs --out: a folder that every node sees, or a url such as s3://bucket/run")
    spec, cluster = as_spec(model), as_cluster(engine)
    found = replace(spec, name=from_anywhere(spec.name), adapter=spec.adapter and from_anywhere(spec.adapter))
    if spec.device == "auto" and not cluster.gpus_per_worker:
        found = replace(found, device="cpu")  # Ray hides no GPU from workers that asked for none
    with open_ray(cluster, partial(load_as, spec.name, found), Network.identity) as opened:
        yield opened


def from_anywhere(name: str) -> str:
    """A folder by its whole path, since a worker may be at home in another one; a hub id as it is."""
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def load_as(name: str, spec: ModelSpec) -> Network:
    """The model of a spec under the name that the user gave it: rows do not depend on who loads it."""
    return replace(load_network(spec), name=name)


def as_cluster(engine: str | Cluster) -> Cluster:
    if isinstance(engine, Cluster):
        return engine
    require_word("engine", engine, ENGINES)
    return Cluster()


def threads_of(engine: str | Cluster) -> int:
    """Threads of a process that works on shards, where nobody asked for a number."""
    return torch.get_num_threads() if engine == "local" else as_cluster(engine).threads


def open_source(data: Any) -> Source:
    return data if isinstance(data, Source) else open_texts(data)


def longest(asked: int | None, model: Network | Outline, at_most: int | None = None) -> int:
    """The longest input in tokens: what was asked for, else what is usual for this model, or `at_most`."""
    require_options(max_length=asked)
    if asked is not None and asked > model.max_length:
        raise InputError(f"max_length {asked} is more than this model takes; use at most {model.max_length}")
    return asked if asked is not None else min(model.usual_length, at_most or model.usual_length)


@contextmanager
def progress_bar(shown: bool) -> Iterator[Any]:
    """A bar on standard error that counts prompts and tokens; silent where nobody watches."""
    with tqdm(unit=" prompts", disable=None if shown else True) as bar:
        total = 0

        def on_batch(prompts: int, tokens: int) -> None:
            nonlocal total
            total += tokens
            bar.update(prompts)
            bar.set_postfix_str(f"{total / max(1e-9, bar.format_dict['elapsed']):,.0f} tokens/s", refresh=False)

        yield on_batch
