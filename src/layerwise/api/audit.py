"""audit: rules for choosing a layer, tested on known scores."""

from collections.abc import Sequence

import pandas as pd

from layerwise.core.checks import split_choices
from layerwise.options.audit import AuditOptions
from layerwise.selection.audit import audit as audit_rules
from layerwise.selection.cases import cases_from_frames
from layerwise.selection.rules import Rule, parse_rule


def audit(
    scores: pd.DataFrame,
    metrics: pd.DataFrame | None = None,
    *,
    rules: str | Sequence[str | Rule] = "last,second_to_last,depth:80%",
) -> pd.DataFrame:
    """Tests rules for choosing a layer on known scores.

    Args:
        scores: a table with the columns family, model, task, layer and score (in points, 0 to 100).
        metrics: a table with the columns model, task, layer, metric and value, for rules that read metrics; an empty
            task means that the value belongs to the model as a whole. None for rules such as `depth:80%`.
        rules: the rules, as words with commas or as a list of words and Rule objects.

    Returns:
        One row per rule and family, and one per rule for all families: the mean score of the chosen, last and best
        layer, the share of the gap between last and best that was recovered with 95 % intervals (by drawing tasks and
        by drawing models again), and how often and how much it fell below the last layer.

    Raises:
        InputError: if a column, a number or a metric is missing, or a word names no rule.

    Example:
        >>> import pandas as pd
        >>> rows = [("f", "m", "t", layer, score) for layer, score in enumerate([1.0, 3.0, 2.0])]
        >>> scores = pd.DataFrame(rows, columns=["family", "model", "task", "layer", "score"])
        >>> layerwise.audit(scores, rules="last,depth:50%").recovered.tolist()
        [0.0, 1.0]
    """
    AuditOptions(metrics=metrics, rules=rules)
    rule_list = split_choices("rules", rules) if isinstance(rules, str) else rules
    return audit_rules(cases_from_frames(scores, metrics), [parse_rule(rule) for rule in rule_list])
