"""A network that is larger than memory: its blocks are read from disk one by one, each once for all batches.

The model is built without weights and its own forward drives every block, so that masks, rotary tables and whatever
else a block needs come from the model's code. The blocks before it only pass on what they are given, and it gets the
hidden states that were kept from the block before.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from layerwise.core.errors import InputError, ModelError
from layerwise.core.hashes import KnownHashes
from layerwise.core.preprocessors import is_tokenizer
from layerwise.core.progress import is_announcing, progress_bar
from layerwise.core.quiet import quiet_libraries
from layerwise.models.families.catalog import STREAMED_TYPES
from layerwise.models.kept_states import IN_MEMORY, ON_DISK, KeptStates
from layerwise.models.load import DTYPES, load_without_weights, pick_device, require_device, used_weights
from layerwise.models.location import located
from layerwise.models.network import Network
from layerwise.models.quantized import require_ordinary_weights
from layerwise.models.spec import ModelSpec
from layerwise.models.stored_weights import StoredWeights
from layerwise.models.taps import OnLayer, OnPoint, hidden_from_arguments, tapped
from layerwise.runs.identity import ModelRef


class HasInputs(Protocol):
    @property
    def inputs(self) -> Mapping[str, Tensor]:
        """Named inputs, (B, ...) each."""


AnyBatch = TypeVar("AnyBatch", bound=HasInputs)


class OnBatchLayer(Protocol):
    def __call__(self, place: int, number: int, hidden: Tensor, point: str = "") -> None:
        """A layer of the batch at this place, or a point inside its block."""


class EmptyOnMeta(TorchFunctionMode):
    """Inside, memory that would only wait for weights is not taken; all buffers are computed as usual."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


@dataclass
class StreamedNetwork(Network):
    """A network with at most one block in memory."""

    weights: StoredWeights | None = None
    ref: ModelRef | None = None
    output_is_tuple: int = 0  # how many values a block returns; 0: the hidden states themselves
    on_device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def device(self) -> torch.device:
        return self.on_device

    def identity(self) -> ModelRef:
        assert self.ref is not None
        return replace(self.ref, name=self.name)

    def read_layers(
        self, inputs: Mapping[str, Tensor], layers: Collection[int], on_layer: OnLayer, on_point: OnPoint | None = None
    ) -> None:
        def deliver(place: int, number: int, hidden: Tensor, point: str = "") -> None:
            if not point:
                on_layer(number, hidden)
            elif on_point is not None:
                on_point(number, point, hidden)

        self.read_batches([inputs], layers, deliver, inside=on_point is not None)

    def rounds(self, batches: Iterable[AnyBatch]) -> Iterator[list[AnyBatch]]:
        """Lists of batches whose hidden states between two blocks fit into memory and the scratch files."""
        several: list[AnyBatch] = []
        held = 0
        for batch in batches:
            needed = batch.inputs["input_ids"].numel() * self.width * self.dtype.itemsize
            if several and held + needed > IN_MEMORY + ON_DISK:
                yield several
                several, held = [], 0
            several.append(batch)
            held += needed
        if several:
            yield several

    def read_batches(
        self,
        batches: Sequence[Mapping[str, Tensor]],
        layers: Collection[int],
        on_layer: OnBatchLayer,
        *,
        inside: bool = False,
    ) -> None:
        """Calls on_layer for each chosen layer of each batch: blocks are outside, batches inside."""
        deepest, kept = max(layers), KeptStates()
        with torch.no_grad(), progress_bar(is_announcing(), deepest or 1, "blocks") as on_block:
            for number in range(1, max(1, deepest) + 1):
                with self.loaded(number) if deepest else ExitStack():
                    for place, inputs in enumerate(batches):
                        self.read_block(number, place, inputs, layers, on_layer, kept, inside)
                on_block(1)

    def read_block(
        self,
        number: int,
        place: int,
        inputs: Mapping[str, Tensor],
        layers: Collection[int],
        on_layer: OnBatchLayer,
        kept: KeptStates,
        inside: bool,
    ) -> None:
        """Runs the model's forward up to the end of one block; only this block computes."""
        deepest = max(layers)
        wanted = {number} if deepest else set()
        wanted |= {0} if number == 1 and (0 in layers or not deepest) else set()

        def take(layer: int, hidden: Tensor) -> None:
            if layer in layers:
                on_layer(place, layer, hidden)
            if layer and layer < deepest:
                kept.put(place, hidden)

        def take_point(layer: int, point: str, hidden: Tensor) -> None:
            if layer in layers:
                on_layer(place, layer, hidden, point)

        with ExitStack() as stack:
            for block in self.structure.blocks[: number - 1]:
                stack.enter_context(passing_on(block, self.output_is_tuple))
            block = self.structure.blocks[number - 1]
            if number > 1:
                give = block.register_forward_pre_hook(partial(give_hidden, kept.take(place)), with_kwargs=True)
                stack.callback(give.remove)
            note = block.register_forward_hook(self.note_output)
            stack.callback(note.remove)
            with tapped(self.structure, wanted, take, take_point if inside else None):
                self.forward(inputs)

    def note_output(self, block: nn.Module, args: Any, output: Any) -> None:
        """What the blocks before must return in later passes."""
        self.output_is_tuple = len(output) if isinstance(output, tuple | list) else 0

    @contextmanager
    def loaded(self, number: int) -> Iterator[None]:
        """Inside, the weights of a block are in memory."""
        assert self.weights is not None
        block, path = self.structure.blocks[number - 1], f"{self.structure.path}.{number - 1}"
        names = [f"{path}.{name}" for name in block.state_dict()]
        found = self.weights.read(names, self.dtype, self.on_device)
        put_in(block, {name.removeprefix(f"{path}."): weight for name, weight in found.items()}, self.name)
        try:
            yield
        finally:
            for part in block.modules():
                for name, weight in part._parameters.items():
                    if weight is not None:
                        part._parameters[name] = nn.Parameter(weight.to("meta"), requires_grad=False)


@contextmanager
def passing_on(block: nn.Module, output_is_tuple: int) -> Iterator[None]:
    """Inside, a block returns the hidden states that it is given."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        hidden = hidden_from_arguments(args, kwargs)
        return (hidden, *[None] * (output_is_tuple - 1)) if output_is_tuple else hidden

    block.forward = forward
    try:
        yield
    finally:
        del block.forward


def give_hidden(hidden: Tensor, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Puts these hidden states in the place of those that a block is called with."""
    given = hidden_from_arguments(args, kwargs)
    hidden = hidden.to(given.device)
    replaced = tuple(hidden if value is given else value for value in args)
    return replaced, {name: hidden if value is given else value for name, value in kwargs.items()}


@quiet_libraries()
def open_streamed(spec: ModelSpec, known_hashes: KnownHashes | None = None) -> StreamedNetwork:
    """The network of a spec: everything but its blocks is loaded."""
    for option, given in (("an adapter", spec.adapter), ("--device-map", spec.device_map)):
        if given:
            raise InputError(f"--stream reads the weights of a model alone; it cannot be used with {option}")
    device = require_device(pick_device(spec.device))
    with located(spec.name, spec.revision):
        network = load_without_weights(spec, EmptyOnMeta(), known_hashes)
    if network is None:
        raise ModelError(f"the weight files of {spec.name!r} are not on this machine: download them first")
    if not is_tokenizer(network.preprocessor):
        raise ModelError(f"--stream reads models of texts; {spec.name!r} takes something else")
    require_ordinary_weights(network.module.config, spec.name, "--stream")
    ref = network.identity()
    if ref.family not in STREAMED_TYPES:
        raise ModelError(
            f"--stream cannot read {ref.family} models: it was not shown that their blocks hand on hidden states "
            f"alone. It reads {', '.join(sorted(STREAMED_TYPES))}"
        )
    if network.shipped and (reason := network.shipped.own_encode_reason):
        raise ModelError(f"--stream cannot read {spec.name!r}: {reason}")
    weights = StoredWeights(spec, network)
    fields = {name: getattr(network, name) for name in Network.__dataclass_fields__ if not name.startswith("_")}
    streamed = StreamedNetwork(
        **fields | {"output_is_checked": True}, weights=weights, ref=replace(ref, device=str(device)), on_device=device
    )
    load_rest(streamed, spec)
    return streamed


def load_rest(network: StreamedNetwork, spec: ModelSpec) -> None:
    """Loads all weights outside the blocks; those that no layer needs may be missing, and become zeros."""
    assert network.weights is not None
    module, inside = network.module, f"{network.structure.path}."
    needed = used_weights(network)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    names = [name for name in module.state_dict() if not name.startswith(inside)]
    known = [name for name in names if network.weights.has(name)]
    if lacking := [name for name in names if name not in known and id(parameters.get(name)) in needed]:
        raise ModelError(f"no weight file of {spec.name!r} holds {lacking[0]}")
    weights = network.weights.read(known, DTYPES[spec.dtype], network.on_device)
    zeros = {name: torch.zeros_like(parameters[name], device=network.on_device) for name in names if name not in known}
    put_in(module, weights | zeros, spec.name, all_of_it=False)
    for buffers in module.modules():
        for name, buffer in buffers._buffers.items():
            if buffer is not None:
                buffers._buffers[name] = buffer.to(network.on_device)


def put_in(module: nn.Module, weights: Mapping[str, Tensor], name: str, *, all_of_it: bool = True) -> None:
    """Makes these tensors the weights of a module; raises if their shapes are not those of its config."""
    try:
        module.load_state_dict(weights, strict=all_of_it, assign=True)
    except RuntimeError as error:
        lines = str(error).strip().splitlines()
        raise ModelError(f"the weights of {name!r} do not fit its config.json: {lines[-1].strip()}") from error
