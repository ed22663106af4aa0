"""Which way prompt entropy is computed: exact eigenvalues, or matrix products (`ops.entropy_products`)."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from layerwise.core.checks import EntropyRoute
from layerwise.core.files import open_folder
from layerwise.metrics.ops.entropy_products import entropy_by_products
from layerwise.metrics.ops.spectrum import eigenvalues, renyi_entropy
from layerwise.models.load import ModelSpec, has_device, network_from_object, pick_device
from layerwise.models.opening import to_model_spec
from layerwise.runs.records import PLAN

TIMED_PROMPTS, TIMED_ROUNDS = 4, 3


def chosen_route(asked: str, model: Any, size: int, out: str | Path | None) -> EntropyRoute:
    """`auto` is what an interrupted run in `out` began with, else the faster one on the model's device.

    On a CPU that is exact at every size (benchmarks/README.md); elsewhere both are timed on matrices of this size.
    """
    if asked != "auto":
        return cast(EntropyRoute, asked)
    device = device_of(model)
    if device.type == "cpu":
        return "exact"
    return begun_with(out) or faster_route(device, size)


def device_of(model: Any) -> torch.device:
    """Where the model is, or will be."""
    if isinstance(model, str | Path | ModelSpec):
        spec = to_model_spec(model)
        return pick_device("auto" if spec.device_map else spec.device)
    return network_from_object(model).device


def begun_with(out: str | Path | None) -> EntropyRoute | None:
    """The route of the run in a folder; None where there is none."""
    if out is None or (record := open_folder(out).read(PLAN.file)) is None:
        return None
    return cast(EntropyRoute, PLAN.parse(record, f"{out}/{PLAN.file}")["settings"].get("entropy", "exact"))


def faster_route(device: torch.device, size: int) -> EntropyRoute:
    """The faster one for a few Gram matrices of this size, by the best of some rounds.

    A device that only the workers of a cluster have cannot be timed here: exact.
    """
    if not has_device(device):
        return "exact"
    rows = torch.randn(TIMED_PROMPTS, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    gram = rows @ rows.mT
    exact = best_seconds(lambda: renyi_entropy(eigenvalues(gram, size)), device)
    return "products" if best_seconds(lambda: entropy_by_products(gram), device) < exact else "exact"


def best_seconds(compute: Callable[[], Tensor], device: torch.device) -> float:
    """The shortest time of some rounds; one more warms up."""
    seconds = []
    for _ in range(TIMED_ROUNDS + 1):
        began = time.perf_counter()
        compute()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])
