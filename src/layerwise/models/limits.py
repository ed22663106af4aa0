"""Limits for untrusted configs: a model is built from its config before any weights are read."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from layerwise.core.errors import ModelError

# The deepest models have a few hundred blocks. A config with 200,000 would only exhaust memory.
MAX_BLOCKS = 2000
COUNT_FIELD = re.compile(r"(n|num)_(\w+_)?(layers?|blocks?|experts)|(encoder|decoder)_layers")


def require_buildable(config: Any, name: str) -> None:
    """Raises if a config asks for more blocks, or experts per block, than any real model has."""
    fields = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    for field, number in counts_in(fields):
        if number > MAX_BLOCKS:
            raise ModelError(
                f"the config.json of {name!r} has {field} = {number:,}; models with more than {MAX_BLOCKS:,} are "
                "refused. Is the file damaged?"
            )


def counts_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """All numbers of blocks or experts, including those of nested configs."""
    for field, value in fields.items():
        if isinstance(value, Mapping):
            yield from counts_in(value)
        elif isinstance(value, int) and COUNT_FIELD.fullmatch(field):
            yield field, value
