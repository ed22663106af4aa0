"""Rankers: linear rules over metrics, fitted on some families of models and judged on the others."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from layerwise.verbs.lab.audit.regret import BOOTSTRAP_DRAWS, audit_rows
from layerwise.verbs.pick.cases import Case
from layerwise.verbs.pick.rules import Ranker, Rule, standardized_curve


def fit_ranker(cases: Sequence[Case], metrics: Sequence[str], ridge: float = 1.0) -> Ranker:
    """Fits a Ranker by ridge regression of scores on metrics, both standardised within each case."""
    names = [*metrics, "depth", "depth_squared"]
    rows, targets = [], []
    for case in cases:
        features = np.array(
            [standardized_curve(name, case.curves, case.depth) for name in names]
        ).T  # (layers, features)
        scores = np.array(case.scores)
        finite = np.isfinite(scores)
        deviation = scores[finite].std() or 1.0
        rows.append(features[finite] - features[finite].mean(axis=0))
        targets.append((scores[finite] - scores[finite].mean()) / deviation)
    x, y = np.concatenate(rows), np.concatenate(targets)
    weights = np.linalg.solve(x.T @ x + ridge * np.eye(len(names)), x.T @ y)
    fitted_on = sorted({case.model for case in cases})
    return Ranker(dict(zip(names, weights.round(6).tolist(), strict=True)), fitted_on)


def audit_fitted(
    name: str,
    cases: Sequence[Case],
    fit: Callable[[Sequence[Case]], Rule],
    *,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
) -> pd.DataFrame:
    """The audit of a rule that is fitted: for each family it is fitted on the others and tested on that one."""
    rules: Mapping[str, Rule] = {
        family: fit([case for case in cases if case.family != family]) for family in {c.family for c in cases}
    }
    chosen = np.array([case.score_at(rules[case.family](case.curves, case.depth)) for case in cases])
    return pd.DataFrame(audit_rows(name, cases, chosen, seed, draws))
