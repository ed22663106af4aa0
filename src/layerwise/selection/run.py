"""One pick from its texts to its answer: the rulebook, the probes, the decision, and why."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.maps.fitted import FittedOn, FittedRecipe, fingerprint_of_texts
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe
from layerwise.runs.identity import ModelRef
from layerwise.runs.table import LayerTable
from layerwise.selection import cases
from layerwise.selection.candidates import (
    Trial,
    beside_static,
    layer_candidates,
    run_trial,
    score_candidates,
)
from layerwise.selection.cases import curves_of, model_depth
from layerwise.selection.labels import label_probe
from layerwise.selection.pick import Pick, decide
from layerwise.selection.probes import LABELS, Probe, own_probes, proxy_probes
from layerwise.selection.rules import Rule, parse_rule

LABELS_FOR_HALF = 32  # so many labelled texts weigh as much as all other probes together


@dataclass(frozen=True)
class Rulebook:
    """The frozen rule: which probes count how much, which maps are tried, and how it did on models it never saw."""

    name: str
    weights: Mapping[str, float]
    transforms: Sequence[str]
    margin: float
    static: bool = False  # token embeddings stand beside the layer that a map was chosen for
    chosen_on: Sequence[str] = ()
    audit: Mapping[str, Any] = field(default_factory=dict)


@cache
def rulebook() -> Rulebook:
    """The rule that is shipped."""
    return Rulebook(**json.loads((files("layerwise.selection") / "rulebook.json").read_text(encoding="utf-8")))


def pick_recipe(
    network: Network,
    texts: Sequence[str],
    *,
    labels: Any = None,
    layer_only: bool = False,
    static: bool = True,
    max_length: int,
    name: str = "",
    book: Rulebook | None = None,
    seed: int = 0,
) -> Pick:
    """The recipe that the probes prefer, or the last layer where they do not prefer another by the rulebook's margin.

    `texts` are the user's own, without labels: maps are fitted on them, and probes made of them where the rulebook
    has such; `name` says where they come from. `labels` is a table of a few labelled ones. With `layer_only`, no map
    is tried; without `static`, token embeddings never stand beside the layer.
    """
    book = book or rulebook()
    probes, weights = weighted_probes(texts, labels, book, seed)
    last = baseline_recipe(network)
    transforms = ("none",) if layer_only else tuple(book.transforms)
    candidates = layer_candidates(network, transforms=transforms)
    trial = run_trial(network, (candidate.readout for candidate in candidates), probes, texts, max_length=max_length)
    scored = score_candidates(trial, candidates)
    static = static and book.static and network.family.first_hidden_state == 0
    deployed = partial(beside_static, trial) if static else lambda plain: plain
    best, gain, alike = decide(scored, last, weights, margin=book.margin, deployed=deployed)
    usual = next(s for s in scored if s.recipe == last)
    why = [f"{name}: {100 * best.mean(name):.1f}, last layer {100 * usual.mean(name):.1f}" for name in weights]
    keep = best.recipe == last
    if keep:
        why.append(f"no candidate is better than the last layer by more than {book.margin:g} points")
    if best.recipe.static:
        told_width = f"{2 * network.width:,} numbers a text instead of {network.width:,}"
        why.append("token embeddings, whitened, stand beside it: two models gained by them on labelled tasks")
        why.append(f"width: {told_width}; --no-static leaves token embeddings out")
    told = book.audit.get("layer" if layer_only else "static" if best.recipe.static else "recipe", {})
    recipe = Recipe(**vars(best.recipe) | {"max_length": max_length})
    return Pick(
        network.identity(), recipe, last, book.name, tuple(why), alike, gain,
        {} if keep else told.get("gain", {}), 1 - recipe.layer / network.depth,
        None if recipe.transform == "none" else fitted_recipe(network, recipe, trial, name),
    )  # fmt: skip


def fitted_recipe(network: Network, recipe: Recipe, trial: Trial, name: str) -> FittedRecipe:
    """The recipe with the map that the trial fitted, on texts of that name."""
    fitted_on = FittedOn("texts", name, fingerprint_of_texts(trial.fit), len(trial.fit))
    return FittedRecipe(recipe, network.identity(), trial.maps(recipe), fitted_on)


def weighted_probes(
    texts: Sequence[str], labels: Any, book: Rulebook, seed: int
) -> tuple[list[Probe], dict[str, float]]:
    """The probes that can be made of these texts and labels, and how much each counts."""
    probes = [probe for probe in (*proxy_probes(), *own_probes(texts, seed)) if book.weights.get(probe.name)]
    weights = {probe.name: book.weights[probe.name] for probe in probes}
    if labels is not None:
        probes.append(label_probe(labels, seed))
        weights[LABELS] = sum(weights.values()) * len(labels) / LABELS_FOR_HALF
    return probes, weights


def pick_by_rule(table: LayerTable, word: str | Rule) -> Pick:
    """What a rule over a scan's table chooses; no model is run.

    The recipe has the tokens, the pooling and the map of the rows that the rule looked at.
    """
    rule = parse_rule(word)
    rule.require_metrics({row.metric for row in table}, "this table")
    depth, measured = model_depth(table), sorted({row.layer for row in table})
    if depth not in measured:
        raise InputError(
            f"the last layer, {depth}, is not in this table (it has {', '.join(map(str, measured))}), and a choice is "
            f"held against it: scan it as well, such as --layers {','.join(map(str, measured))},last"
        )
    setting = setting_of(table, rule)
    normed = any(row.norm == "normed" and row.layer == depth for row in table)
    last = replace(setting, layer=depth, norm="normed" if normed else "raw")
    layer = rule(curves_of(table), depth)
    why = [f"rule {rule.name}, on the table alone; rules over metrics fail on some families (docs/pick.md)"]
    if rule.needs and len(measured) <= depth:
        why.append(f"only these of {depth + 1} layers are in the table: {', '.join(map(str, measured))}")
    why += [f"{metric} has {count} settings in this table; the first counts" for metric, count in several(table, rule)]
    recipe = last if layer == depth else replace(setting, layer=layer)
    model = table.model or ModelRef(next(iter(table)).model)
    return Pick(model, recipe, last, rule.name, tuple(why), saving=1 - layer / depth)


def several(table: LayerTable, rule: Rule) -> list[tuple[str, int]]:
    """The metrics that the rule looks at and of which the table has several curves, with their number."""
    found = {name: {cases.curve_setting(row) for row in table if row.metric == name} for name in sorted(rule.needs)}
    return [(name, len(settings)) for name, settings in found.items() if len(settings) > 1]


def setting_of(table: LayerTable, rule: Rule) -> Recipe:
    """Layer 0 with the tokens, pooling and map of the first row that the rule looks at."""
    rows = [row for row in table if row.metric in rule.needs] or list(table)
    alike = [row for row in table if (row.tokens, row.transform) == (rows[0].tokens, rows[0].transform)]
    # A metric of tokens has no pooling of its own: that of its neighbours counts, and mean where they have none either.
    pooling = next((row.pooling for row in (rows[0], *alike) if row.pooling != "-"), "mean")
    words: Any = {"tokens": rows[0].tokens, "pooling": pooling, "transform": rows[0].transform}  # checked when made
    return Recipe(0, "raw", **words)
