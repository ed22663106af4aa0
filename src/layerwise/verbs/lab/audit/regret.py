"""The audit: how much of the gap between the last and the best layer a rule recovers, and where it loses.

Means are taken over a model's tasks, then over the models of a family, then over families, so that a family with more
measurements does not count more.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerwise.core.errors import InputError
from layerwise.verbs.pick.cases import Case
from layerwise.verbs.pick.rules import Rule

BOOTSTRAP_DRAWS = 1000
LOSS_THRESHOLD = 1.0  # losses above this count as a lost point


def audit(cases: Sequence[Case], rules: Sequence[Rule], *, seed: int = 0, draws: int = BOOTSTRAP_DRAWS) -> pd.DataFrame:
    """One row per rule and family, and one per rule for all families; scores are in points from 0 to 100.

    `recovered` is (chosen - last) / (best - last) of the means, with two 95 % intervals: by drawing tasks again and by
    drawing models again. `below_last`, `loses_a_point` and `unseen` are shares of (model, task) pairs. `unseen` counts
    pairs for which a metric that the rule reads is missing: there it may have kept the last layer.
    """
    if not cases:
        raise InputError("nothing to audit: there are no scores")
    rows = []
    available = {name for case in cases for name in case.curves}
    for rule in rules:
        rule.require_metrics(available, "the table of metrics (--metrics)")
        chosen = np.array([case.score_at(rule(case.curves, case.depth)) for case in cases])
        for row in audit_rows(rule.name, cases, chosen, seed, draws):
            audited = [case for case in cases if row["family"] in ("all", case.family)]
            unseen = sum(not rule.metrics <= set(case.curves) for case in audited) / len(audited)
            rows.append(row | {"unseen": unseen})
    frame = pd.DataFrame(rows)
    frame.attrs["rules_tried"] = len(rules)
    return frame


def audit_rows(
    name: str, cases: Sequence[Case], chosen: NDArray[np.float64], seed: int = 0, draws: int = BOOTSTRAP_DRAWS
) -> list[dict[str, Any]]:
    """The rows of one rule; `chosen` is what its choices scored on these cases."""
    families = sorted({case.family for case in cases})
    rows = []
    for family in [*(families if len(families) > 1 else []), "all"]:
        indices = [i for i, case in enumerate(cases) if family in ("all", case.family)]
        rows.append(
            {"rule": name, "family": family, **audit_figures([cases[i] for i in indices], chosen[indices], seed, draws)}
        )
    return rows


def audit_figures(cases: Sequence[Case], chosen: NDArray[np.float64], seed: int, draws: int) -> dict[str, Any]:
    last, best = (np.array([getattr(case, name) for case in cases]) for name in ("last", "best"))
    values = np.stack([chosen, last, best])  # (3, cases)
    mean = family_means(cases, np.ones(len(cases)), values)
    gain = chosen - last
    found: dict[str, Any] = {"models": len({c.model for c in cases}), "pairs": len(cases)}
    found |= dict(zip(("chosen", "last", "best"), mean.tolist(), strict=True)) | {"recovered": recovered_fraction(mean)}
    rng = np.random.default_rng(seed)
    for unit in ("task", "model"):
        drawn = [
            recovered_fraction(family_means(cases, weights, values))
            for weights in bootstrap_weights(cases, unit, rng, draws)
        ]
        low, high = np.nanpercentile(drawn, [2.5, 97.5]) if len(drawn) else (np.nan, np.nan)
        found |= {f"low_{unit}s": float(low), f"high_{unit}s": float(high)}
    by_model = pd.Series(gain).groupby([case.model for case in cases]).mean()
    found |= {"below_last": float((gain < 0).mean()), "loses_a_point": float((gain < -LOSS_THRESHOLD).mean())}
    return found | {"worst_loss": float(min(0.0, gain.min())), "models_below_last": int((by_model < 0).sum())}


def recovered_fraction(mean: NDArray[np.float64]) -> float:
    """The share of the gap that was recovered; undefined where the last layer is the best everywhere."""
    chosen, last, best = mean
    return float((chosen - last) / (best - last)) if best > last else float("nan")


def family_means(
    cases: Sequence[Case], weights: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted means over tasks, then plain means over models and families; cases of weight 0 are left out."""
    by_family: dict[str, dict[str, list[int]]] = {}
    for i, case in enumerate(cases):
        if weights[i] > 0:
            by_family.setdefault(case.family, {}).setdefault(case.model, []).append(i)
    families = []
    for models in by_family.values():
        means = [
            (values[:, indices] * weights[indices]).sum(axis=1) / weights[indices].sum() for indices in models.values()
        ]
        model_weights = [weights[indices].max() for indices in models.values()]
        families.append(np.average(means, axis=0, weights=model_weights))
    return np.asarray(np.mean(families, axis=0))


def bootstrap_weights(cases: Sequence[Case], unit: str, rng: np.random.Generator, draws: int) -> Any:
    """Bootstrap weights of the cases when tasks, or the models of each family, are resampled."""
    names = [case.task if unit == "task" else case.model for case in cases]
    groups = (
        {"": sorted(set(names))}
        if unit == "task"
        else {family: sorted({c.model for c in cases if c.family == family}) for family in {c.family for c in cases}}
    )
    if max(map(len, groups.values())) < 2:
        return  # a single one cannot be drawn again
    for _ in range(draws):
        count: dict[str, int] = {}
        for members in groups.values():
            for name in rng.choice(members, len(members)):
                count[name] = count.get(name, 0) + 1
        yield np.array([float(count.get(name, 0)) for name in names])
