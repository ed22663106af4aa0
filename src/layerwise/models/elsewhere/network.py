"""A network without its blocks: hidden states come from a source elsewhere, what follows them is computed here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from layerwise.core.errors import InputError, ModelError
from layerwise.core.preprocessors import is_tokenizer
from layerwise.core.quiet import quiet_libraries
from layerwise.models.load import load_without_weights
from layerwise.models.location import located
from layerwise.models.network import Network
from layerwise.models.spec import ModelSpec
from layerwise.models.stored_weights import StoredWeights
from layerwise.models.taps import OnLayer, OnPoint
from layerwise.runs.identity import ModelRef


class StateSource(Protocol):
    """Gives the hidden states of token sequences."""

    @property
    def engine(self) -> str:
        """What computed them: name, version, and whatever else their numbers depend on."""

    def states(self, sequences: Sequence[Sequence[int]], layers: Sequence[int]) -> Sequence[Tensor]:
        """For each sequence of T tokens its hidden states (T, K, D) at these K layers, in ascending order."""


@dataclass
class ElsewhereNetwork(Network):
    """A network whose hidden states come from a source. Of its weights only those of the final norm are loaded."""

    source: StateSource | None = None

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def read_layers(
        self, inputs: Mapping[str, Tensor], layers: Collection[int], on_layer: OnLayer, on_point: OnPoint | None = None
    ) -> None:
        assert self.source is not None, "made by open_elsewhere alone"
        if on_point is not None:
            raise InputError(f"{self.source.engine} gives the outputs of blocks, not points inside them")
        chosen, real = sorted(set(layers)), inputs["attention_mask"].bool()
        self.require_known_tokens(inputs["input_ids"])
        sequences = [ids[kept].tolist() for ids, kept in zip(inputs["input_ids"], real, strict=True)]
        found = self.source.states(sequences, chosen)
        for sequence, states in zip(sequences, found, strict=True):
            self.require_fitting(states, len(sequence), len(chosen))
        for place, number in enumerate(chosen):
            hidden = torch.zeros(*real.shape, self.width, dtype=self.dtype)
            for row, kept, states in zip(hidden, real, found, strict=True):
                row[kept] = states[:, place]
            with torch.no_grad():  # on_layer may apply the final norm
                on_layer(number, hidden)

    def require_fitting(self, states: Tensor, tokens: int, layers: int) -> None:
        """Raises where hidden states cannot be those of this model and sequence."""
        assert self.source is not None
        if tuple(states.shape) != (tokens, layers, self.width):
            raise ModelError(
                f"{self.source.engine} gave hidden states of shape {tuple(states.shape)}; expected ({tokens}, "
                f"{layers}, {self.width}): tokens, layers, and the width of {self.name}"
            )
        if states.dtype != self.dtype:
            raise InputError(
                f"{self.source.engine} gave hidden states in {states.dtype}; pass --dtype "
                f"{str(states.dtype).removeprefix('torch.')}"
            )

    def identity(self) -> ModelRef:
        assert self.source is not None
        return super().identity().computed_by(self.source.engine)


@quiet_libraries()
def open_elsewhere(spec: ModelSpec) -> ElsewhereNetwork:
    """The network of a spec without blocks; its source is set by the caller."""
    for option, given in (("an adapter", spec.adapter), ("--device-map", spec.device_map)):
        if given:
            raise InputError(f"hidden states that are computed elsewhere cannot be read with {option}")
    with located(spec.name, spec.revision):
        network = load_without_weights(spec)
        if network is None:
            raise ModelError(f"the weight files of {spec.name!r} are not on this machine: download them first")
        if not is_tokenizer(network.preprocessor):
            raise ModelError(f"{spec.name!r} does not take text: only hidden states of texts can come from elsewhere")
        if network.structure.final_norm is not None:
            load_final_norm(network, spec)
    fields = {name: getattr(network, name) for name in Network.__dataclass_fields__ if not name.startswith("_")}
    # Without blocks it cannot be compared with the model's own output.
    return ElsewhereNetwork(**fields | {"output_is_checked": True})


def load_final_norm(network: Network, spec: ModelSpec) -> None:
    """Reads the weights of the final norm, the only ones that are needed here."""
    norm = network.structure.final_norm
    assert norm is not None
    path = next(name for name, module in network.module.named_modules() if module is norm)
    weights = StoredWeights(spec, network).read(
        [f"{path}.{name}" for name in norm.state_dict()], network.dtype, torch.device("cpu")
    )
    norm.load_state_dict({name.removeprefix(f"{path}."): weight for name, weight in weights.items()}, assign=True)
