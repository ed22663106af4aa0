"""Network: a pretrained model ready to be read layer by layer, with what makes its inputs and its identity."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from layerwise.core.preprocessors import is_tokenizer, require_tokenizer
from layerwise.models.anatomy import Anatomy
from layerwise.models.shipped import Head, Shipped, plain_pooling

# What a config holds beside what decides hidden states: where it came from, which outputs are asked for, heads.
BESIDE_THE_POINT = (
    "_name_or_path", "_commit_hash", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache",
    "output_hidden_states", "output_attentions", "return_dict", "id2label", "label2id", "problem_type", "auto_map",
)  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What rows and records say of a network; equal identities, equal numbers."""

    name: str
    revision: str
    fingerprint: str
    family: str
    depth: int
    width: int
    dtype: str
    device: str
    adapter: str = ""
    part: str = ""


class Preprocessor(Protocol):
    """What a model needs of an object that makes its inputs, where that is no tokenizer."""

    def identity(self) -> str:
        """Changes with everything that changes the inputs."""


@dataclass
class Network:
    """What the rest of layerwise sees of a model. A tokenizer among it is a copy: the owner's stays as it is.

    `preprocessor` makes its inputs: a tokenizer, or a processor that the user brought along.
    `max_length` is the longest input it takes, in tokens; `usual_length` where it cuts texts itself, as shipped;
    `head` what an embedding model ships behind its last layer, None where it ships nothing.
    """

    name: str
    revision: str
    module: nn.Module
    preprocessor: Any
    anatomy: Anatomy
    max_length: int
    usual_length: int = 512
    head: Head | None = None
    adapter: str = ""
    part: str = ""
    _known: tuple[Any, str] | None = field(default=None, repr=False, compare=False)  # versions of weights, their hash

    @property
    def depth(self) -> int:
        return self.anatomy.depth

    @property
    def width(self) -> int:
        return self.anatomy.width

    @property
    def has_norm(self) -> bool:
        """True if a norm follows the last block."""
        return self.anatomy.final_norm is not None

    @property
    def shipped(self) -> Shipped | None:
        return self.head.shipped if self.head else None

    @property
    def plain_pooling(self) -> str:
        """How it is pooled where it ships no pooling of its own."""
        return plain_pooling(self.module.config)

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the first weight."""
        return next(self.module.parameters()).device

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, for whatever works on texts only; raises where this model has none."""
        require_tokenizer(self.preprocessor, "this")
        return self.preprocessor

    def forward(self, inputs: Mapping[str, Tensor]) -> None:
        """Runs the model on named inputs, (B, ...) each, for what its taps see; keeps no key-value cache."""
        spare = {"use_cache": False} if "use_cache" in signature(self.module.forward).parameters else {}
        given = {name: x.to(self.dtype) if x.is_floating_point() else x for name, x in inputs.items()}
        with evaluating(self.module):
            self.module(**given, **spare)

    def identity(self) -> Identity:
        return Identity(
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
        )

    def fingerprint(self) -> str:
        """A hash of all bytes of the weights in memory, of the config, the preprocessor, and what is shipped beside."""
        weights = dict(self.module.state_dict())
        if self.head is not None:
            weights |= self.head.weights()
        versions = [(name, w.data_ptr(), 0 if w.is_inference() else w._version) for name, w in weights.items()]
        if self._known is None or self._known[0] != versions:
            digest = hashlib.blake2b(digest_size=16)
            for name, weight in sorted(weights.items()):
                digest.update(f"{name} {tuple(weight.shape)} {weight.dtype} ".encode())
                digest.update(bytes_of(weight))
            self._known = versions, digest.hexdigest()
        told = [self._known[1], config_words(self.module.config), preprocessor_words(self.preprocessor)]
        if self.head is not None:
            told.append(repr(self.head.shipped.identity))
        return hashlib.blake2b("\n".join(told).encode(), digest_size=16).hexdigest()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """No dropout inside; afterwards every part of the model is in the mode that its owner left it in."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def bytes_of(weight: Tensor) -> Any:
    """All bytes of a weight, in order, whatever its type, without a copy."""
    return weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def config_words(config: Any) -> str:
    """Everything in a config that can change hidden states, such as rope_theta or a norm's epsilon."""
    told = {name: value for name, value in config.to_dict().items() if name not in BESIDE_THE_POINT}
    return json.dumps(told, sort_keys=True, default=str)


def preprocessor_words(preprocessor: Any) -> str:
    """Everything that decides which inputs are made of an example."""
    if is_tokenizer(preprocessor):
        return tokenizer_words(preprocessor)
    own: Preprocessor = preprocessor
    return own.identity()


def tokenizer_words(tokenizer: Any) -> str:
    """Everything that decides what a tokenizer does with a text."""
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        told: Any = sorted(tokenizer.get_vocab().items())
    else:
        told = json.loads(backend.to_str())
        for left_by_the_last_call in ("truncation", "padding"):
            told.pop(left_by_the_last_call, None)
    return f"{json.dumps(told, sort_keys=True)} {tokenizer.special_tokens_map}"
