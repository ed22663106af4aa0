"""Keys: the names under which a scan's state keeps what it read of each layer."""

from dataclasses import dataclass
from typing import Self

NO_POOLING = "-"  # of what is read of tokens, not of pooled rows
CONTENTS = "contents"  # a sample of (hashed id, digest): which examples stand behind the sampled rows


@dataclass(frozen=True, order=True)
class StateKey:
    """What was kept: a reading of one readout: layer, norm, tokens and pooling."""

    layer: int
    norm: str
    tokens: str
    pooling: str
    reading: str

    def __str__(self) -> str:
        return f"{self.layer:03d}|{self.norm}|{self.tokens}|{self.pooling}|{self.reading}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The key that a name stands for; None where it is the name of something else, such as `facts`."""
        layer, *parts = name.split("|", 4)
        return cls(int(layer), *parts) if len(parts) == 4 and layer.isdecimal() else None
