"""Limits: what a stranger's config may ask for. A model is built from it before any weight is read."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from layerwise.core.errors import ModelError

# The deepest models in use have a few hundred blocks. A config that asks for 200,000 would only fill the memory.
BLOCKS_AT_MOST = 2000
COUNTS = re.compile(r"(n|num)_(\w+_)?(layers?|blocks?|experts)|(encoder|decoder)_layers")


def require_buildable(config: Any, name: str) -> None:
    """Raises where a config asks for more blocks, or experts in a block, than any model has."""
    told = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    for field, number in counts_in(told):
        if number > BLOCKS_AT_MOST:
            raise ModelError(
                f"the config.json of {name!r} says {field} = {number:,}; models with more than {BLOCKS_AT_MOST:,} are "
                "not built. Is the file damaged?"
            )


def counts_in(told: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every number of blocks or experts, those of nested configs as well."""
    for field, value in told.items():
        if isinstance(value, Mapping):
            yield from counts_in(value)
        elif isinstance(value, int) and COUNTS.fullmatch(field):
            yield field, value
