"""Keys: the names under which the state of a scan stores its readings."""

from dataclasses import dataclass
from typing import Self

NO_POOLING = "-"  # for readings of tokens instead of pooled rows
CONTENT_DIGESTS = "contents"  # a sample of (hashed id, digest): which examples the sampled rows belong to


@dataclass(frozen=True, order=True)
class StateKey:
    """Identifies one reading of one readout (layer, norm, tokens, pooling), or of a point inside the layer's block."""

    layer: int
    norm: str
    tokens: str
    pooling: str
    reading: str
    point: str = ""

    def __str__(self) -> str:
        place = f"{self.layer:03d}.{self.point}" if self.point else f"{self.layer:03d}"
        return "|".join((place, self.norm, self.tokens, self.pooling, self.reading))

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parses a key; None if the name is not a key, such as `facts`."""
        place, *parts = name.split("|", 4)
        layer, _, point = place.partition(".")
        if len(parts) != 4 or not layer.isdecimal():
            return None
        norm, tokens, pooling, reading = parts
        return cls(int(layer), norm, tokens, pooling, reading, point)
