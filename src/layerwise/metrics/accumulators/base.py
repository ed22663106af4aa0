"""The accumulator interface, and how states are stored: tensors and settings, as safetensors and JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from layerwise.core.errors import InputError, MergeError
from layerwise.core.tensors import dump_tensors, parse_tensors

STATES_KEY = "layerwise.states"


@dataclass(frozen=True)
class State:
    """The state of an accumulator: settings that must match before a merge, and tensors."""

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class Accumulator(Protocol):
    """Accumulates what a metric needs from a stream. `update` takes the output of its reading."""

    @property
    def update(self) -> Callable[..., None]: ...
    def merge(self, other: Self) -> None: ...
    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in two states that are merged."""

    @property
    def nbytes(self) -> int:
        """The memory in bytes that it takes now."""

    def bytes_for(self, n: int) -> int:
        """The maximum memory in bytes after n examples; a plan sums this before the run."""

    def to_state(self) -> State: ...
    @classmethod
    def from_state(cls, state: State) -> Self: ...


def require_same_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Raises MergeError and lists every setting that differs."""
    differing = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    if differing:
        differences = "; ".join(f"{name}: {first.get(name)!r} and {second.get(name)!r}" for name in differing)
        raise MergeError(f"these states do not belong together ({differences}); merge only states of one plan")


def dump_states(states: Mapping[str, State]) -> bytes:
    """Named states as one safetensors file; its header contains the settings as JSON."""
    settings = {name: dict(state.settings) for name, state in states.items()}
    tensors = {
        f"{name}//{part}": tensor.detach().cpu().contiguous()
        for name, state in states.items()
        for part, tensor in state.tensors.items()
    }
    return dump_tensors(STATES_KEY, json.dumps(settings, sort_keys=True), tensors)


def parse_states(data: bytes) -> dict[str, State]:
    """The inverse of dump_states; raises InputError if the bytes are not a complete state file."""
    try:
        metadata, tensors = parse_tensors(STATES_KEY, data)
        settings = json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a layerwise state file, or damaged ({error}); delete it and run again") from error
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in settings}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition("//")
        parts[name][part] = tensor
    return {name: State(settings[name], parts[name]) for name in settings}


def drop_nan_rows(rows: Tensor, width: int) -> tuple[Tensor, int]:
    """rows (..., D) as float64 (N, D) on the CPU without rows that contain NaN, and the number of dropped rows."""
    if rows.shape[-1] != width:
        raise InputError(f"got rows of width {rows.shape[-1]}, but the state has width {width}")
    rows = to_cpu_float64(rows).reshape(-1, width)
    defined = ~rows.isnan().any(dim=-1)
    return rows[defined], int((~defined).sum())


def to_cpu_float64(x: Tensor) -> Tensor:
    """x as float64 on the CPU, so that states do not depend on the device."""
    return x.detach().to("cpu", torch.float64)
