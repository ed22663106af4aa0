"""Alerts: which layers of a scan are too small by a rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from layerwise.core.errors import InputError
from layerwise.models.layers import choose_layers
from layerwise.runs.scores import LayerScore
from layerwise.training.options import Alert


@dataclass
class AlertState:
    """What an alert remembers of the scans so far: the largest value of each layer, and where it is firing."""

    alert: Alert
    depth: int
    largest: dict[int, tuple[float, int]] = field(default_factory=dict)  # by layer: the value and its step
    firing: set[int] = field(default_factory=set)

    def messages(self, step: int, scores: Sequence[LayerScore]) -> list[str]:
        """One message per layer at which the alert fires now and did not at the scan before."""
        layers = choose_layers(self.alert.layers, self.depth)
        found = []
        for score in scores:
            if score.metric != self.alert.metric or score.layer not in layers or score.value != score.value:
                continue  # an undefined value is neither a fall nor the largest so far
            problem = self.problem(score)
            if problem and score.layer not in self.firing:
                found.append(f"step {step}: {score.metric} of layer {score.layer} is {score.value:.4g}, {problem}")
            (self.firing.add if problem else self.firing.discard)(score.layer)
            if score.layer not in self.largest or score.value > self.largest[score.layer][0]:
                self.largest[score.layer] = score.value, step
        return found

    def problem(self, score: LayerScore) -> str:
        """Why the alert fires for this value; "" if it does not."""
        below, fall = self.alert.below, self.alert.fall
        if below is not None and score.value < below:
            return f"below {below:g}"
        largest, step = self.largest.get(score.layer, (score.value, 0))
        if fall is not None and score.value < (1 - fall) * largest:
            return f"{100 * (1 - score.value / largest):.0f} % less than at step {step} ({largest:.4g})"
        return ""


def require_measured(alerts: Sequence[Alert], metrics: Sequence[str]) -> None:
    """Raises if an alert asks for a metric that is not measured."""
    for alert in alerts:
        if alert.metric not in metrics:
            raise InputError(f"an alert needs {alert.metric}, but only {', '.join(metrics)} are measured; add it")
