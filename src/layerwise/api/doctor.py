"""doctor: checks that layerwise's assumptions hold for a model."""

from typing import Any

from layerwise.models.doctor import Finding, examine
from layerwise.models.opening import open_network


def doctor(model: Any) -> list[Finding]:
    """What was found on a very model: layer count, final norm, padding, batch size, finite numbers, tokenizer."""
    return list(examine(open_network(model)))
