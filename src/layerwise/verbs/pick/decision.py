"""The decision: which candidate the probes prefer, how much better it is, and which layers score the same."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from layerwise.core.recipe import Recipe
from layerwise.verbs.pick.candidates import ScoredRecipe
from layerwise.verbs.pick.options import Prefer
from layerwise.verbs.pick.probes import LABEL_PROBE_PREFIX, PARTNER, Floats, is_own_data

Z_95 = 1.96
LABELS_MIN_STANDARD_ERRORS = (
    1.0  # standard errors by which something must be better with labels than the choice without
)


@dataclass(frozen=True)
class Gain:
    """How much better one recipe scores than another on the probes, in points (0 to 100), with its standard error.

    Attributes:
        mean: the mean difference.
        error: its standard error, over the sentences that both recipes were scored on.
    """

    mean: float
    error: float

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mean - Z_95 * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.mean + Z_95 * self.error

    def __str__(self) -> str:
        return f"{signed(self.mean)} ({points(self.low)} to {points(self.high)})"


def signed(number: float) -> str:
    """With its sign and one digit; what rounds to 0 has no minus."""
    return f"{round(number, 1) + 0.0:+.1f}"


def points(number: float) -> str:
    """With one digit, and one more where that would hide on which side of 0 it is."""
    return f"{number:.2f}" if 0 < abs(number) < 0.05 else f"{number:.1f}"


def difference(one: ScoredRecipe, other: ScoredRecipe, weights: Mapping[str, float]) -> Gain:
    """A weighted mean of the probes' paired differences. Probes that share their units are added unit by unit."""
    total = sum(weights.values())
    by_units: dict[tuple[bool, int], Floats] = {}
    for name, weight in weights.items():
        gap = 100 * weight / total * (one.unit_scores[name] - other.unit_scores[name])
        group = name.startswith(LABEL_PROBE_PREFIX), len(gap)  # labels have units of their own, however many
        by_units[group] = by_units[group] + gap if group in by_units else gap
    mean = sum(float(gap.mean()) for gap in by_units.values())
    variance = sum(float(gap.var(ddof=1)) / len(gap) for gap in by_units.values())
    return Gain(mean, math.sqrt(variance))


@dataclass(frozen=True)
class Decision:
    """What was chosen, and what it was compared with."""

    quality: ScoredRecipe  # the best candidate by the probes, or the last layer where none is better by the margin
    chosen: ScoredRecipe  # the same; with prefer fast, the lowest layer that scores the same within noise
    answer: ScoredRecipe  # what was chosen, in the form in which it is used
    last: ScoredRecipe
    alike: tuple[
        ScoredRecipe, ...
    ]  # read with the same map, scoring the same within noise as `quality`, which is left out
    weights: Mapping[str, float]

    @property
    def gain(self) -> Gain:
        """Of the answer over the last layer."""
        return difference(self.answer, self.last, self.weights)

    @property
    def cost_of_speed(self) -> Gain:
        """Of what was chosen over the best candidate; 0 unless prefer is fast."""
        return difference(self.chosen, self.quality, self.weights)

    @property
    def layers_alike(self) -> tuple[int, ...]:
        """Layers other than the chosen one that score the same within noise as the best."""
        return tuple(sorted(s.recipe.layer for s in (self.quality, *self.alike) if s is not self.chosen))


def decide(
    scored: Sequence[ScoredRecipe],
    last: Recipe,
    weights: Mapping[str, float],
    *,
    margin: float = 0.0,
    deployed: Callable[[ScoredRecipe], ScoredRecipe] = lambda best: best,
    prefer: Prefer = "quality",
) -> Decision:
    """The best candidate by the probes, or the lowest layer that scores the same.

    Without labels, the last layer is kept unless the gain is larger than `margin` points; what is chosen instead is
    used in the form that `deployed` gives it. Pairs decide whether that form is better. Labels are of the user's own
    task: they move that choice to what is better with them by more than LABELS_MIN_STANDARD_ERRORS, and decide in which
    form it is used.
    """

    def best_form(of: ScoredRecipe) -> ScoredRecipe:
        forms = (of, deployed(of)) if any(map(is_own_data, weights)) else (deployed(of),)
        return max(forms, key=lambda s: difference(s, of, weights).mean)

    (baseline,) = [s for s in scored if s.recipe == last]
    unlabelled_weights = {name: weight for name, weight in weights.items() if not name.startswith(LABEL_PROBE_PREFIX)}
    best = max(scored, key=lambda s: difference(s, baseline, unlabelled_weights).mean)
    if not difference(best, baseline, unlabelled_weights).mean > margin:
        best = baseline
    answer = best if best is baseline else best_form(best) if PARTNER in weights else deployed(best)
    if unlabelled_weights != weights:
        challenger = max(scored, key=lambda s: difference(s, answer, weights).mean)
        gap = difference(challenger, answer, weights)
        if gap.mean > LABELS_MIN_STANDARD_ERRORS * gap.error:
            best = challenger
            answer = best_form(challenger)
    equivalent = tuple(s for s in same_form(scored, best) if s is not best and difference(s, best, weights).high >= 0)
    chosen = best
    if prefer == "fast":
        chosen = min((best, *equivalent), key=lambda s: s.recipe.layer)
        if chosen is not best:
            answer = best_form(chosen)
    return Decision(best, chosen, answer, baseline, equivalent, weights)


def same_form(scored: Sequence[ScoredRecipe], like: ScoredRecipe) -> list[ScoredRecipe]:
    """The candidates with the same pooling, map, tokens and template as one of them: they differ in the layer only."""
    return [s for s in scored if have_same_form(s.recipe, like.recipe)]


def have_same_form(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes differ in the layer only; the last layer as shipped is compared with the layers below it."""
    pooled_alike = one.pooling == other.pooling or one.shipped or other.shipped
    return pooled_alike and form_of(one) == form_of(other)


def form_of(recipe: Recipe) -> tuple[str, str, str]:
    """Everything of a candidate but its layer and pooling."""
    return recipe.transform, recipe.tokens, recipe.template
