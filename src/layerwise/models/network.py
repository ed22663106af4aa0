"""Network: a pretrained model ready to be read layer by layer, with its tokenizer and its identity."""

import hashlib
import json
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.models.anatomy import Anatomy

# A byte pattern read at this many places of each weight, beside the sum over all of it.
FINGERPRINT_PLACES = 4096


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


@dataclass
class Network:
    """What the rest of layerwise sees of a model. `max_length` is the longest input it takes, in tokens."""

    name: str
    revision: str
    module: nn.Module
    tokenizer: Any
    anatomy: Anatomy
    max_length: int
    special_ids: frozenset[int] = field(default_factory=frozenset)

    @property
    def depth(self) -> int:
        return self.anatomy.depth

    @property
    def width(self) -> int:
        return self.anatomy.width

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the first weight."""
        return next(self.module.parameters()).device

    def forward(self, ids: Tensor, real: Tensor) -> None:
        """Runs the model on right-padded ids (B, T) for what its taps see; keeps no key-value cache."""
        spare = {"use_cache": False} if "use_cache" in signature(self.module.forward).parameters else {}
        training = self.module.training
        self.module.eval()  # no dropout; the owner of the model finds it as it was
        try:
            self.module(input_ids=ids, attention_mask=real.long(), **spare)
        finally:
            self.module.train(training)

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
        )

    def fingerprint(self) -> str:
        """A hash of every weight as it is in memory and of the tokenizer: equal models, equal words."""
        digest = hashlib.blake2b(digest_size=16)
        for name, weight in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
            digest.update(checksum(weight))
        digest.update(tokenizer_words(self.tokenizer))
        return digest.hexdigest()


def checksum(weight: Tensor) -> bytes:
    """The sum of all bits read as integers, and the bits at evenly spread places: one pass over memory."""
    flat = weight.detach().reshape(-1)
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    bits = flat.view(whole) if flat.dtype != torch.bool else flat.to(torch.int8)
    step = max(1, len(bits) // FINGERPRINT_PLACES)
    total = int(bits.sum(dtype=torch.int64))
    return total.to_bytes(8, "little", signed=True) + bits[::step].contiguous().cpu().numpy().tobytes()


def tokenizer_words(tokenizer: Any) -> bytes:
    """Everything that decides what a tokenizer does with a text, as bytes."""
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        told: Any = sorted(tokenizer.get_vocab().items())
    else:
        told = json.loads(backend.to_str())
        for left_by_the_last_call in ("truncation", "padding"):
            told.pop(left_by_the_last_call, None)
    return f"{json.dumps(told, sort_keys=True)} {tokenizer.special_tokens_map}".encode()
