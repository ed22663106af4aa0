"""Run by hand: `pytest studies/selection/test_rankers.py`."""

import numpy as np
from rankers import audit_fitted, fit_ranker

from layerwise.verbs.pick.cases import Case


def test_a_ranker_learns_the_metric_that_says_it_and_never_sees_the_family_it_is_judged_on():
    rng = np.random.default_rng(0)
    cases = []
    for family in "abcd":
        for task in range(6):
            scores = rng.normal(size=8)
            curves = {"good": tuple(scores + 0.1 * rng.normal(size=8)), "noise": tuple(rng.normal(size=8))}
            cases.append(Case(family, f"{family}1", f"t{task}", tuple(scores), curves))
    ranker = fit_ranker(cases, ["good", "noise"])
    assert ranker.weights["good"] > 5 * abs(ranker.weights["noise"])
    seen = []

    def fit(some):
        seen.append({case.family for case in some})
        return fit_ranker(some, ["good", "noise"]).rule("ranker")

    table = audit_fitted("ranker", cases, fit, draws=10)
    assert sorted(map(len, seen)) == [3, 3, 3, 3] and table.set_index("family").recovered["all"] > 0.9
