"""One pick from its texts to its answer: the rulebook, the probes, the decision, and why."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any

from layerwise.exporter.routes import has_layer_0
from layerwise.models.network import Network
from layerwise.recipe import Recipe
from layerwise.results import LayerTable
from layerwise.selection.candidates import (
    beside_static,
    layer_candidates,
    run_trial,
    score_candidates,
    usual_last,
)
from layerwise.selection.cases import curves_of
from layerwise.selection.labels import label_probe
from layerwise.selection.pick import Fitted, Pick, decide
from layerwise.selection.probes import LABELS, Probe, own_probes, proxy_probes
from layerwise.selection.rules import parse_rule

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
    book: Rulebook | None = None,
    seed: int = 0,
) -> Pick:
    """The recipe that the probes prefer, or the last layer where they do not prefer another by the rulebook's margin.

    `texts` are the user's own, without labels: maps are fitted on them, and probes made of them where the rulebook
    has such. `labels` is a table of a few labelled ones. With `layer_only`, no map is tried; without `static`, token
    embeddings never stand beside the layer.
    """
    book = book or rulebook()
    probes, weights = weighted_probes(texts, labels, book, seed)
    last = usual_last(network)
    transforms = ("none",) if layer_only else tuple(book.transforms)
    candidates = layer_candidates(network, transforms=transforms)
    trial = run_trial(network, (candidate.at for candidate in candidates), probes, texts, max_length=max_length)
    scored = score_candidates(trial, candidates)
    static = static and book.static and has_layer_0(network)
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
        network.name, recipe, last, book.name, tuple(why), alike, gain,
        {} if keep else told.get("gain", {}), 1 - recipe.layer / network.depth,
        None if recipe.transform == "none" else Fitted(trial.linear(recipe), recipe, network.fingerprint()),
    )  # fmt: skip


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


def pick_by_rule(table: LayerTable, word: str) -> Pick:
    """What a rule over a scan's table chooses; no model is run."""
    curves = curves_of(table)
    depth = max(row.layer for row in table)
    rule, row = parse_rule(word), next(iter(table))
    normed = any(r.readout == "normed" and r.layer == depth for r in table)
    last = Recipe(depth, "normed" if normed else "raw")
    layer = rule(curves, depth)
    recipe = last if layer == depth else Recipe(layer)
    why = (f"rule {word}, on the table alone; rules over metrics fail on some families (docs/pick.md)",)
    return Pick(row.model, recipe, last, word, why, saving=1 - layer / depth)
