"""audit: rules for choosing a layer, judged on known scores."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from layerwise.core.checks import split_words
from layerwise.options.audit import AuditOptions
from layerwise.selection.audit import audit as audit_rules
from layerwise.selection.cases import cases_from_frames
from layerwise.selection.rules import Rule, parse_rule


def audit(
    scores: Any, metrics: Any = None, *, rules: str | Sequence[str | Rule] = "last,second_to_last,depth:80%"
) -> pd.DataFrame:
    """Any rules against any scores: how much of the gap between last and best layer each recovers, and its losses.

    `scores` has family, model, task, layer, score; `metrics` has model, task, layer, metric, value (task "" where it
    belongs to the whole model).
    """
    AuditOptions(metrics=metrics, rules=rules)
    listed = split_words("rules", rules) if isinstance(rules, str) else rules
    return audit_rules(cases_from_frames(scores, metrics), [parse_rule(rule) for rule in listed])
