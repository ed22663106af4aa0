"""Network: a pretrained model whose layers can be read, with its preprocessor and identity."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.checks import PoolingChoice
from layerwise.core.errors import ModelError
from layerwise.core.preprocessors import require_tokenizer
from layerwise.models.families.family import Family
from layerwise.models.find_blocks import ModelStructure
from layerwise.models.fingerprint import (
    code_text,
    config_text,
    hash_lines,
    preprocessor_text,
    stored_parts,
    weights_hash,
)
from layerwise.models.head import Head, settings_of, weights_of
from layerwise.models.modes import config_values, evaluation_mode
from layerwise.models.quantized import quantization_of
from layerwise.models.shipped import Shipped, default_pooling
from layerwise.models.taps import OnLayer, OnPoint, apply_final_norm, model_output, tapped
from layerwise.runs.identity import ModelRef


@dataclass
class Network:
    """The view of a model that the rest of layerwise uses. Its tokenizer is a copy; the user's is unchanged.

    `preprocessor` makes its inputs: a tokenizer, or a processor passed by the user. `max_length` is the maximum input
    length in tokens; `default_length` is the length at which the shipped model truncates texts; `head` holds the
    modules that an embedding model ships after its last layer, or None.
    """

    name: str
    revision: str
    module: nn.Module
    preprocessor: Any
    structure: ModelStructure
    max_length: int
    default_length: int = 512
    head: Head | None = None
    adapter: str = ""
    part: str = ""
    files_hash: str = ""  # hash of the weight files; used while the weights are unchanged
    _loaded_versions: Any = field(default=None, repr=False, compare=False)  # versions of the weights at load time
    # versions when hashed, and the hash
    output_is_checked: bool = field(default=False, repr=False, compare=False)  # that it follows the last block
    _cached_hash: tuple[Any, str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._loaded_versions = self._versions() if self.files_hash else None

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The weights of the module."""
        return self.module.parameters(recurse)

    @property
    def weight_bytes(self) -> int:
        """The bytes of its weights, as they were loaded."""
        return sum(weight.numel() * weight.element_size() for weight in self.parameters())

    @property
    def depth(self) -> int:
        return self.structure.depth

    @property
    def width(self) -> int:
        return self.structure.width

    @property
    def family(self) -> Family:
        """The family of its architecture."""
        return self.structure.family

    @property
    def has_norm(self) -> bool:
        """True if a norm follows the last block."""
        return self.structure.final_norm is not None

    @property
    def shipped(self) -> Shipped | None:
        return self.head.shipped if self.head else None

    @property
    def plain_pooling(self) -> PoolingChoice:
        """The pooling to use if the model ships none."""
        return default_pooling(self.module.config)

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the first weight."""
        return next(self.module.parameters()).device

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; raises if this model has none."""
        require_tokenizer(self.preprocessor, "this")
        return self.preprocessor

    @property
    def has_own_vectors(self) -> bool:
        """True for an embedding model: one that ships its pooling, or an encoder, which has a usual one."""
        return self.shipped is not None or self.plain_pooling != "last"

    def forward(self, inputs: Mapping[str, Tensor]) -> Any:
        """Runs the model on named inputs, (B, ...) each, so that taps can read it; without a key-value cache."""
        extra_arguments = {"use_cache": False} if "use_cache" in signature(self.module.forward).parameters else {}
        arguments = {name: x.to(self.dtype) if x.is_floating_point() else x for name, x in inputs.items()}
        with evaluation_mode(self.module), config_values(self.module, self.family.config_while_reading):
            try:
                return self.module(**arguments, **extra_arguments)
            except IndexError:
                self.require_known_tokens(inputs.get("input_ids"))
                raise

    def read_layers(
        self, inputs: Mapping[str, Tensor], layers: Collection[int], on_layer: OnLayer, on_point: OnPoint | None = None
    ) -> None:
        """Calls on_layer(k, hidden (B, T, D)) for each chosen layer of a batch, on_point for points inside blocks."""
        # Not inference_mode: what a model caches in there could not be used in a training afterwards.
        with torch.no_grad(), tapped(self.structure, layers, on_layer, on_point):
            self.forward(inputs)

    def normed(self, hidden: Tensor) -> Tensor:
        """Hidden states after the final norm; raises if there is none."""
        return apply_final_norm(self.structure, hidden)

    def output(self, hidden: Tensor) -> Tensor:
        """The model's output from the output of its last block."""
        return model_output(self.structure, hidden)

    def require_known_tokens(self, ids: Tensor | None) -> None:
        """Raises if a token has no embedding: then the tokenizer belongs to another model, or is damaged."""
        if ids is None:
            return
        known, largest = self.module.get_input_embeddings().weight.shape[0], int(ids.max())  # type: ignore[operator]
        if largest >= known:
            raise ModelError(
                f"the tokenizer of {self.name!r} makes token {largest:,}, but the model has embeddings of "
                f"{known:,} tokens; its tokenizer files are damaged, or those of another model"
            )

    def identity(self) -> ModelRef:
        """The identity stored in rows and records; equal identities mean equal numbers."""
        return ModelRef(
            name=self.name,
            revision=self.revision,
            fingerprint=self.fingerprint(),
            family=getattr(self.module.config, "model_type", ""),
            depth=self.depth,
            width=self.width,
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
            adapter=self.adapter,
            part=self.part,
            quantization=quantization_of(self.module.config),
        )

    def fingerprint(self) -> str:
        """A hash of weights, config, tokenizer and shipped modules; based on the files if it was loaded from files.

        If the weights changed after loading, they are hashed in memory.
        """
        if self.files_hash and self._versions() == self._loaded_versions:
            return f"files-{hash_lines([self.files_hash, *self._identity_lines(), str(self.dtype), self.part])}"
        return self.fingerprint_in_memory()

    def fingerprint_in_memory(self) -> str:
        """The same from the weights in memory, wherever they came from."""
        own_modules = self.head.own_modules() if self.head is not None else ()
        weights = self._weights() | weights_of(own_modules)
        versions = versions_of(weights)
        if self._cached_hash is None or self._cached_hash[0] != versions:
            self._cached_hash = versions, weights_hash(weights)
        return f"memory-{hash_lines([self._cached_hash[1], *self._identity_lines(), *settings_of(own_modules)])}"

    def _weights(self) -> dict[str, Tensor]:
        """All weights and buffers, including non-persistent ones and those of the shipped modules."""
        weights = dict(self.module.state_dict(keep_vars=True)) | dict(self.module.named_buffers())
        return weights | weights_of(self.head.modules if self.head is not None else ())

    def _versions(self) -> list[Any]:
        return versions_of(self._weights())

    def _identity_lines(self) -> list[str]:
        shipped = [repr(self.head.shipped.identity), *settings_of(self.head.modules)] if self.head is not None else []
        lines = [config_text(self.module.config), preprocessor_text(self.preprocessor), code_text(self.module)]
        return [*lines, *shipped]


def versions_of(weights: Mapping[str, Tensor]) -> list[Any]:
    """A list that changes when a weight is modified in place or replaced."""
    parts = ((name, part) for name, weight in weights.items() for part in stored_parts(weight))
    return [(name, w.data_ptr(), 0 if w.is_inference() else w._version) for name, w in parts]
