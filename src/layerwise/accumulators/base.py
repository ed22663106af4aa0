"""The life of an accumulator, and how its state travels: tensors and plain settings, as safetensors + JSON."""

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
    """Everything an accumulator holds: settings that must agree before a merge, and tensors that are merged."""

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class Accumulator(Protocol):
    """Keeps what a metric needs of a stream. `update` takes what the reading that it belongs to has read."""

    @property
    def update(self) -> Callable[..., None]: ...
    def merge(self, other: Self) -> None: ...
    def bytes_for(self, n: int) -> int:
        """The most memory it takes after n examples, in bytes: what a plan adds up before the run."""

    def to_state(self) -> State: ...
    @classmethod
    def from_state(cls, state: State) -> Self: ...


def require_same_settings(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raises MergeError naming every setting that differs."""
    differing = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
    if differing:
        differences = "; ".join(f"{name}: {mine.get(name)!r} here, {theirs.get(name)!r} there" for name in differing)
        raise MergeError(f"these states do not belong together ({differences}); merge only states of one plan")


def dump_states(states: Mapping[str, State]) -> bytes:
    """Named states as one safetensors file whose header carries the settings as JSON."""
    settings = {name: dict(state.settings) for name, state in states.items()}
    tensors = {
        f"{name}//{part}": tensor.detach().cpu().contiguous()
        for name, state in states.items()
        for part, tensor in state.tensors.items()
    }
    return dump_tensors(STATES_KEY, json.dumps(settings, sort_keys=True), tensors)


def parse_states(data: bytes) -> dict[str, State]:
    """The inverse of dump_states; raises InputError where the bytes are not a whole state file."""
    try:
        metadata, tensors = parse_tensors(STATES_KEY, data)
        settings = json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a layerwise state file, or a damaged one ({error}); delete it and run again") from error
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in settings}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition("//")
        parts[name][part] = tensor
    return {name: State(settings[name], parts[name]) for name in settings}


def known_rows(rows: Tensor, width: int) -> tuple[Tensor, int]:
    """rows (..., D) as float64 (N, D) on the CPU, without those that hold a nan, and how many those were."""
    if rows.shape[-1] != width:
        raise InputError(f"rows of width {rows.shape[-1]} given to a state of width {width}")
    rows = to_cpu_float64(rows).reshape(-1, width)
    defined = ~rows.isnan().any(dim=-1)
    return rows[defined], int((~defined).sum())


def to_cpu_float64(x: Tensor) -> Tensor:
    """x as float64 on the CPU: states outlive the device that fed them."""
    return x.detach().to("cpu", torch.float64)
