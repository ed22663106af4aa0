"""The certificate of an exported folder, layerwise.json: its name, its version, and its times in words."""

from collections.abc import Mapping, Sequence
from typing import Any

RECORD_FILE = "layerwise.json"
SCHEMA_VERSION = 1


def time_words(times: Sequence[Mapping[str, Any]]) -> str:
    """`0.58 of the whole model's on short texts (3 tokens), 0.52 (20), 0.46 (270)`."""
    first, *others = times
    short = "" if first["tokens"] is None else f" on short texts ({first['tokens']} tokens)"
    rest = [f"{ratio_words(found)} ({found['tokens']})" for found in others]
    return ", ".join([f"{ratio_words(first)} of the whole model's{short}", *rest])


def ratio_words(found: Mapping[str, Any]) -> str:
    """`0.58`, or `0.58 [unsteady: 0.44 to 0.71]` where the repeats disagree; two digits of a small one."""
    ratio, low, high = (
        f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
        for value in (found[name] for name in ("ratio", "low", "high"))
    )
    return f"{ratio} [unsteady: {low} to {high}]" if found["unsteady"] else ratio
