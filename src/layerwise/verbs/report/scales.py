"""Scales: the page and the figures ask here whether an axis is logarithmic and whether a ring fits on it."""

import math
from collections.abc import Iterable
from typing import Literal

LOG_FROM = 100.0  # times: a curve whose largest value is more than this many times its smallest is drawn on a log axis
STRETCH = 2.0  # times: a ring that would stretch the axis by more than this is marked at the edge, with its value

Place = Literal["inside", "above", "below"]


def is_log(values: Iterable[float]) -> bool:
    """True if curves with these values belong on a logarithmic axis. Undefined values are left out."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) > LOG_FROM * min(known)


def place_of_ring(values: Iterable[float], ring: float, *, log: bool) -> Place:
    """Where the normed last layer is drawn beside curves with these values: inside the axis, or at its edge."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known or not math.isfinite(ring):
        return "inside"
    if log and ring <= 0:
        return "below"
    low, high, at = (math.log(x) if log else x for x in (min(known), max(known), ring))
    span = high - low or abs(high) or 1.0
    if max(high, at) - min(low, at) <= STRETCH * span:
        return "inside"
    return "above" if at > high else "below"
