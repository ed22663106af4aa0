"""Keys: the names under which the state of a scan stores its readings."""

from dataclasses import dataclass
from typing import Self

NO_POOLING = "-"  # for readings of tokens instead of pooled rows
CONTENT_DIGESTS = "contents"  # a sample of (hashed id, digest): which examples the sampled rows belong to


@dataclass(frozen=True, order=True)
class StateKey:
    """Identifies one reading of one readout (layer, norm, tokens, pooling)."""

    layer: int
    norm: str
    tokens: str
    pooling: str
    reading: str

    def __str__(self) -> str:
        return f"{self.layer:03d}|{self.norm}|{self.tokens}|{self.pooling}|{self.reading}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parses a key; None if the name is not a key, such as `facts`."""
        layer, *parts = name.split("|", 4)
        return cls(int(layer), *parts) if len(parts) == 4 and layer.isdecimal() else None
