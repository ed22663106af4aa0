"""Rules: plain objects that choose a layer from curves over layers, named by a word such as `depth:80%` or `min:dime`.

A curve has one number per layer, 0 to the last; nan where it is not known. The word always says min or max.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerwise.core.checks import suggestion
from layerwise.core.errors import InputError
from layerwise.models.layers import fraction_of_percent, layer_at_depth

Curves = Mapping[str, Sequence[float]]
RULE_FORMS = (
    "last, second_to_last, depth:80%, min:METRIC, max:METRIC@20%-90%, ranks:min:METRIC+max:METRIC, "
    "or a ranker file (.json)"
)


@dataclass(frozen=True)
class Rule:
    """A rule that chooses a layer from the curves of metrics over layers, for `pick(run, rule=...)` and `audit`.

    Attributes:
        name: what tables and messages call it.
        choose: a function of the curves and the depth that returns a layer from 0 to depth. The curves are a mapping
            from the name of a metric to one number per layer, nan where it is not known.
        metrics: the metrics that it reads; a table without them is refused.

    Example:
        >>> middle = layerwise.Rule("middle", lambda curves, depth: depth // 2)
        >>> middle({}, 12)
        6
    """

    name: str
    choose: Callable[[Curves, int], int]
    metrics: frozenset[str] = frozenset()

    def __call__(self, curves: Curves, depth: int) -> int:
        """The layer that it chooses.

        Args:
            curves: from the name of a metric to one number per layer.
            depth: the number of the last layer.

        Returns:
            A layer from 0 to depth.
        """
        return self.choose(curves, depth)

    def require_metrics(self, available: Collection[str], where: str) -> None:
        """Raises if the rule reads a metric that is not there: it could only keep the last layer.

        Args:
            available: the names of the metrics that are there.
            where: what the message calls the table.

        Raises:
            InputError: if one is missing; it names the missing metric and those that are there.
        """
        if missing := sorted(self.metrics - set(available)):
            listing = f"{where} has {', '.join(sorted(available)) or 'none'}"
            raise InputError(
                f"rule {self.name}: no metric {missing[0]!r}; {listing}{suggestion(missing[0], available)}"
            )


def parse_rule(given_rule: str | Rule) -> Rule:
    """The rule that a word names; a Rule is returned as it is."""
    if isinstance(given_rule, Rule):
        return given_rule
    if given_rule == "last":
        return Rule(given_rule, lambda curves, depth: depth)
    if given_rule == "second_to_last":
        return Rule(given_rule, lambda curves, depth: max(0, depth - 1))
    if match := re.fullmatch(r"depth:(\d+(?:\.\d+)?)%", given_rule):
        fraction = fraction_of_percent(match[1])
        return Rule(given_rule, lambda curves, depth: layer_at_depth(fraction, depth))
    if re.fullmatch(EXTREME_PATTERN, given_rule):
        extreme = parse_extreme(given_rule)
        return Rule(
            given_rule, lambda curves, depth: best_layer(extreme.values(curves, depth)), frozenset([extreme.metric])
        )
    if given_rule.startswith("ranks:"):
        parts = [parse_extreme(part) for part in given_rule.removeprefix("ranks:").split("+")]
        needs = frozenset(part.metric for part in parts)
        return Rule(
            given_rule, lambda curves, depth: best_layer(mean_ranks([p.values(curves, depth) for p in parts])), needs
        )
    if given_rule.endswith(".json"):
        return Ranker.load(given_rule).rule(given_rule)
    hint = suggestion(given_rule, ["last", "second_to_last"])
    raise InputError(f"rule {given_rule!r} is not one of {RULE_FORMS}{hint}")


EXTREME_PATTERN = r"(min|max):([^@+]+)(?:@(\d+)%-(\d+)%)?"


@dataclass(frozen=True)
class Extreme:
    """The minimum or maximum of a metric, within a window of depth."""

    direction: str
    metric: str
    window: tuple[float, float] = (0.0, 1.0)

    def values(self, curves: Curves, depth: int) -> list[float]:
        """One number per layer, of which the largest wins; minus infinity outside the window or if not known."""
        curve = curves.get(self.metric, [math.nan] * (depth + 1))
        sign = 1.0 if self.direction == "max" else -1.0
        low, high = (round(fraction * depth, 9) for fraction in self.window)  # layers whose depth is within the window
        return [sign * v if math.isfinite(v) and low <= k <= high else -math.inf for k, v in enumerate(curve)]


def parse_extreme(text: str) -> Extreme:
    match = re.fullmatch(EXTREME_PATTERN, text)
    if match is None:
        raise InputError(f"{text!r} is not min:METRIC or max:METRIC, optionally with a window such as @20%-90%")
    window = (fraction_of_percent(match[3]), fraction_of_percent(match[4])) if match[3] else (0.0, 1.0)
    if window[0] > window[1]:
        raise InputError(f"{text!r}: the window must go from a shallower to a deeper layer, such as @20%-90%")
    return Extreme(match[1], match[2], window)


def best_layer(values: Sequence[float]) -> int:
    """The first layer with the largest value; the last layer if all are unknown."""
    most = max(values)
    return len(values) - 1 if most == -math.inf else values.index(most)


def mean_ranks(parts: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each layer over the parts that have it, larger is better; ties share their mean rank."""
    ranked = [ranks(part) for part in parts if any(math.isfinite(v) for v in part)]
    if not ranked:
        return [-math.inf] * len(parts[0])
    return [sum(column) / len(column) for column in zip(*ranked, strict=True)]


def ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(ordered.index(v) + len(ordered) - ordered[::-1].index(v) - 1) / 2 for v in values]


@dataclass(frozen=True)
class Ranker:
    """A linear ranker: a weighted sum of metrics, each standardised over the layers of a model."""

    weights: Mapping[str, float]  # of metrics, and of `depth` and `depth_squared`
    fitted_on: Sequence[str] = ()

    def values(self, curves: Curves, depth: int) -> list[float]:
        total = [0.0] * (depth + 1)
        for name, weight in self.weights.items():
            for layer, value in enumerate(standardized_curve(name, curves, depth)):
                total[layer] += weight * value
        return total

    def rule(self, name: str) -> Rule:
        needs = frozenset(self.weights) - {"depth", "depth_squared"}
        return Rule(name, lambda curves, depth: best_layer(self.values(curves, depth)), needs)

    def to_json(self) -> str:
        return json.dumps({"weights": dict(self.weights), "fitted_on": list(self.fitted_on)}, indent=1)

    @classmethod
    def load(cls, path: str | Path) -> "Ranker":
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is not a ranker ({error}); expected JSON with weights and fitted_on") from None


def standardized_curve(name: str, curves: Curves, depth: int) -> list[float]:
    """A curve standardised over layers; 0 for unknown values, and everywhere if the curve is missing or constant."""
    if name in ("depth", "depth_squared"):
        power = 1 if name == "depth" else 2
        return [(layer / max(1, depth)) ** power for layer in range(depth + 1)]
    curve = curves.get(name, [math.nan] * (depth + 1))
    finite = [v for v in curve if math.isfinite(v)]
    mean = sum(finite) / max(1, len(finite))
    deviation = math.sqrt(sum((v - mean) ** 2 for v in finite) / max(1, len(finite)))
    return [(v - mean) / deviation if math.isfinite(v) and deviation > 0 else 0.0 for v in curve]
