"""Identity: which model and which data a number belongs to. Compared wherever two things are combined."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from layerwise.core.errors import RunError
from layerwise.core.formats import require_shape


@dataclass(frozen=True)
class ModelRef:
    """Which model: where it was found, how it was loaded, and a hash of everything that decides its numbers.

    Equal fingerprints, equal numbers. One begins with `files-` where it was made from the files that were loaded
    (weights, config, tokenizer, adapter, the modules shipped beside them) and with `memory-` for a model object.
    Records of the first version have neither beginning, and are equal to nothing made since.
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

    def same_as(self, other: "ModelRef") -> bool:
        """True if both are known to be one model, byte by byte."""
        return bool(self.fingerprint) and self.fingerprint == other.fingerprint

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Any, where: str) -> Self:
        """From a JSON object; one without a name is damaged, other fields may be missing."""
        require_shape(record, MODEL_SHAPE, where)
        if "name" not in record:
            raise RunError(f"{where} does not say which model made it; make the run again")
        return cls(**{name: record[name] for name in MODEL_SHAPE if name in record})


MODEL_SHAPE = {f.name: f.type for f in fields(ModelRef)}  # of a model in a record; names may be missing


@dataclass(frozen=True)
class DataRef:
    """Which data: what they are called, a hash of the ids and contents of all examples, and what opens them again.

    The fingerprint is the number of examples and the sum of their digests, so it does not depend on their order.
    """

    name: str
    fingerprint: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def same_as(self, other: "DataRef") -> bool:
        """True if both are known to be the same examples under the same ids."""
        return bool(self.fingerprint) and self.fingerprint == other.fingerprint

    def to_record(self) -> dict[str, Any]:
        return {"name": self.name, "fingerprint": self.fingerprint, "options": dict(self.options)}

    @classmethod
    def from_record(cls, record: Any, where: str) -> Self:
        require_shape(record, {"name": str, "fingerprint": str, "options": dict}, where)
        return cls(record.get("name", ""), record.get("fingerprint", ""), record.get("options", {}))


def one_model(first: ModelRef | None, second: ModelRef | None) -> bool:
    """True if both are known, and known to be one model."""
    return first is not None and second is not None and first.same_as(second)


def data_fingerprint(count: int, digests: int) -> str:
    """The fingerprint of examples from their number and the sum of their digests."""
    return f"{count}-{digests % 2**64:016x}"
