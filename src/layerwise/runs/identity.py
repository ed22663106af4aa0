"""Identity: which model and data a number belongs to. Checked whenever results are combined."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from layerwise.core.errors import RunError
from layerwise.core.formats import require_shape


@dataclass(frozen=True)
class ModelRef:
    """Which model made a number: name, how it was loaded, and a fingerprint of everything that affects its numbers.

    Equal fingerprints mean equal numbers. A fingerprint starts with `files-` if it is a hash of the loaded files
    (weights, config, tokenizer, adapter, shipped modules), with `memory-` for a model object, and with `engine-` if
    another engine than layerwise computed the hidden states.

    Args:
        name: hub id, folder or class name.
        revision: commit, branch or tag.
        fingerprint: the hash.
        family: the model type of its config.
        depth: number of blocks.
        width: size of the hidden states.
        dtype: number type of the weights.
        device: where it ran.
        adapter: folder of the PEFT adapter, if any.
        part: which stack of an encoder-decoder model.
        engine: what computed its hidden states, if layerwise did not: name, version, and what its numbers depend on.
        quantization: how its weights are stored, if they are quantised.
    """

    name: str
    revision: str = "main"
    fingerprint: str = ""
    family: str = ""
    depth: int = 0
    width: int = 0
    dtype: str = "float32"
    device: str = ""
    adapter: str = ""
    part: str = ""
    engine: str = ""
    quantization: str = ""

    def same_as(self, other: "ModelRef") -> bool:
        """True if both are known to be the same model, byte by byte.

        Args:
            other: the other model.
        """
        return bool(self.fingerprint) and self.fingerprint == other.fingerprint

    def computed_by(self, engine: str) -> Self:
        """The same model where another engine computes its hidden states, so that its numbers differ.

        Args:
            engine: name, version, and what its numbers depend on.
        """
        digest = hashlib.blake2b(f"{self.fingerprint} {engine}".encode(), digest_size=8).hexdigest()
        return replace(self, engine=engine, fingerprint=f"engine-{digest}")

    def to_record(self) -> dict[str, Any]:
        """The model as a JSON object."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str) -> Self:
        """Reads a JSON object; other fields than the name may be missing.

        Args:
            record: the object.
            where: its file, for error messages.
        """
        require_shape(record, MODEL_SHAPE, where)
        if "name" not in record:
            raise RunError(f"{where} does not say which model produced it; repeat the run")
        return cls(**{name: record[name] for name in MODEL_SHAPE if name in record})


MODEL_SHAPE = {f.name: f.type for f in fields(ModelRef)}  # shape of a model record; fields may be missing


@dataclass(frozen=True)
class DataRef:
    """Which data a number was measured on.

    The fingerprint is the number of examples and the sum of their digests, so it does not depend on their order.

    Args:
        name: file, data set or description.
        fingerprint: hash of the ids and contents of all examples.
        options: the options that open the same data again.
    """

    name: str
    fingerprint: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def same_as(self, other: "DataRef") -> bool:
        """True if both are known to hold the same examples with the same ids.

        Args:
            other: the other data.
        """
        return bool(self.fingerprint) and self.fingerprint == other.fingerprint

    def to_record(self) -> dict[str, Any]:
        """The data as a JSON object."""
        return {"name": self.name, "fingerprint": self.fingerprint, "options": dict(self.options)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str) -> Self:
        """Reads a JSON object.

        Args:
            record: the object.
            where: its file, for error messages.
        """
        require_shape(record, {"name": str, "fingerprint": str, "options": dict}, where)
        return cls(record.get("name", ""), record.get("fingerprint", ""), record.get("options", {}))


def same_model(first: ModelRef | None, second: ModelRef | None) -> bool:
    """True if both are known and are the same model."""
    return first is not None and second is not None and first.same_as(second)


def data_fingerprint(count: int, digests: int) -> str:
    """The fingerprint of a data set, from the number of examples and the sum of their digests."""
    return f"{count}-{digests % 2**64:016x}"
