"""Rules: plain objects that choose a layer from curves over layers, by a word such as `depth:80%` or `min:dime`.

A curve has one number a layer, 0 to the last; nan where it is not known. Direction is always part of the word.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerwise.core.checks import suggestion
from layerwise.core.errors import InputError
from layerwise.models.layers import layer_at, share_of

Curves = Mapping[str, Sequence[float]]
WORDS = "last, second_to_last, depth:80%, min:METRIC, max:METRIC@20%-90%, ranks:min:METRIC+max:METRIC, a ranker's .json"


@dataclass(frozen=True)
class Rule:
    """`choose(curves, depth)` gives a layer from 0 to depth. Where its curves are missing, it keeps the last."""

    name: str
    choose: Callable[[Curves, int], int]
    needs: frozenset[str] = frozenset()  # the curves that it looks at

    def __call__(self, curves: Curves, depth: int) -> int:
        return self.choose(curves, depth)

    def require_metrics(self, known: Collection[str], where: str) -> None:
        """Raises where the rule looks at a metric that is not among the known ones: it could only keep the last."""
        if lacking := sorted(self.needs - set(known)):
            has = f"{where} has {', '.join(sorted(known)) or 'none'}"
            raise InputError(f"rule {self.name}: no metric {lacking[0]!r}; {has}{suggestion(lacking[0], known)}")


def parse_rule(word: str | Rule) -> Rule:
    """The rule that a word means; a rule of one's own is taken as it is."""
    if isinstance(word, Rule):
        return word
    if word == "last":
        return Rule(word, lambda curves, depth: depth)
    if word == "second_to_last":
        return Rule(word, lambda curves, depth: max(0, depth - 1))
    if found := re.fullmatch(r"depth:(\d+(?:\.\d+)?)%", word):
        share = share_of(found[1])
        return Rule(word, lambda curves, depth: layer_at(share, depth))
    if re.fullmatch(ONE, word):
        one = parse_extreme(word)
        return Rule(word, lambda curves, depth: best_of(one.values(curves, depth)), frozenset([one.metric]))
    if word.startswith("ranks:"):
        parts = [parse_extreme(part) for part in word.removeprefix("ranks:").split("+")]
        needs = frozenset(part.metric for part in parts)
        return Rule(word, lambda curves, depth: best_of(mean_ranks([p.values(curves, depth) for p in parts])), needs)
    if word.endswith(".json"):
        return Ranker.load(word).rule(word)
    near = suggestion(word, ["last", "second_to_last"])
    raise InputError(f"rule {word!r} is not one of {WORDS}{near}")


ONE = r"(min|max):([^@+]+)(?:@(\d+)%-(\d+)%)?"


@dataclass(frozen=True)
class Extreme:
    """The least or the most of a metric, within a window of depth."""

    want: str
    metric: str
    window: tuple[float, float] = (0.0, 1.0)

    def values(self, curves: Curves, depth: int) -> list[float]:
        """What is to be largest, a number a layer; minus infinity outside the window and where nothing is known."""
        curve = curves.get(self.metric, [math.nan] * (depth + 1))
        sign = 1.0 if self.want == "max" else -1.0
        low, high = (round(share * depth, 9) for share in self.window)  # layers whose own depth lies in the window
        return [sign * v if math.isfinite(v) and low <= k <= high else -math.inf for k, v in enumerate(curve)]


def parse_extreme(word: str) -> Extreme:
    found = re.fullmatch(ONE, word)
    if found is None:
        raise InputError(f"{word!r} is not min:METRIC or max:METRIC, with a window such as @20%-90% if wanted")
    window = (share_of(found[3]), share_of(found[4])) if found[3] else (0.0, 1.0)
    if window[0] > window[1]:
        raise InputError(f"{word!r}: the window goes from the shallower depth to the deeper one, such as @20%-90%")
    return Extreme(found[1], found[2], window)


def best_of(values: Sequence[float]) -> int:
    """The first layer with the largest value; the last layer where none is known."""
    most = max(values)
    return len(values) - 1 if most == -math.inf else values.index(most)


def mean_ranks(parts: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each layer over the parts that know it, larger is better; ties share their mean rank."""
    ranked = [ranks(part) for part in parts if any(math.isfinite(v) for v in part)]
    if not ranked:
        return [-math.inf] * len(parts[0])
    return [sum(column) / len(column) for column in zip(*ranked, strict=True)]


def ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(ordered.index(v) + len(ordered) - ordered[::-1].index(v) - 1) / 2 for v in values]


@dataclass(frozen=True)
class Ranker:
    """A linear ranker: the sum over metrics of weight times the metric, standardised over the layers of a model."""

    weights: Mapping[str, float]  # of metrics, and of `depth` and `depth_squared`
    fitted_on: Sequence[str] = ()

    def values(self, curves: Curves, depth: int) -> list[float]:
        total = [0.0] * (depth + 1)
        for name, weight in self.weights.items():
            for layer, value in enumerate(feature(name, curves, depth)):
                total[layer] += weight * value
        return total

    def rule(self, name: str) -> Rule:
        needs = frozenset(self.weights) - {"depth", "depth_squared"}
        return Rule(name, lambda curves, depth: best_of(self.values(curves, depth)), needs)

    def to_json(self) -> str:
        return json.dumps({"weights": dict(self.weights), "fitted_on": list(self.fitted_on)}, indent=1)

    @classmethod
    def load(cls, path: str | Path) -> "Ranker":
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is no ranker ({error}); it has weights and fitted_on") from None


def feature(name: str, curves: Curves, depth: int) -> list[float]:
    """A curve standardised over layers; 0 where it is unknown, and everywhere if the curve is missing or flat."""
    if name in ("depth", "depth_squared"):
        power = 1 if name == "depth" else 2
        return [(layer / max(1, depth)) ** power for layer in range(depth + 1)]
    curve = curves.get(name, [math.nan] * (depth + 1))
    known = [v for v in curve if math.isfinite(v)]
    mean = sum(known) / max(1, len(known))
    spread = math.sqrt(sum((v - mean) ** 2 for v in known) / max(1, len(known)))
    return [(v - mean) / spread if math.isfinite(v) and spread > 0 else 0.0 for v in curve]
