"""One pick from its texts to its answer: the rulebook, the probes, the decision, and the evidence."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from layerwise.core.checks import with_dims
from layerwise.core.errors import InputError
from layerwise.core.preprocessors import is_audio
from layerwise.core.progress import announce
from layerwise.core.recipe import Recipe
from layerwise.core.templates import parse_template
from layerwise.inputs.modalities import kind_of
from layerwise.inputs.templating import part_ids, with_template
from layerwise.maps.fitted import FittedOn, FittedRecipe, texts_fingerprint
from layerwise.maps.linear import require_texts_for
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe
from layerwise.models.servable import is_servable
from layerwise.passes.timing import RelativeTime
from layerwise.runs.exported import time_words
from layerwise.runs.identity import ModelRef
from layerwise.runs.table import LayerTable
from layerwise.verbs.pick.candidates import (
    MediaInputs,
    ProbeVectors,
    class_token_candidates,
    compute_probe_vectors,
    layer_candidates,
    score_candidates,
    score_static,
    servable_candidates,
    template_candidates,
    widened,
    with_second_vector,
)
from layerwise.verbs.pick.cases import metric_curves, model_depth
from layerwise.verbs.pick.decision import Decision, Gain, decide, difference, points, signed
from layerwise.verbs.pick.layer_times import relative_layer_times, relative_media_times
from layerwise.verbs.pick.options import Language, Prefer
from layerwise.verbs.pick.picked_layers import picked_layers, picked_row
from layerwise.verbs.pick.probes import LANGUAGES, Probe, proxy_items, proxy_probes
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.rules import Rule, parse_rule
from layerwise.verbs.shrink.static_models import StaticModel

BUNDLED = "bundled"  # the name of the texts that maps are fitted on by default, which are of many kinds
LABELS_FOR_EQUAL_WEIGHT = 32  # this many labelled texts weigh as much as all other probes together


@dataclass(frozen=True)
class Rulebook:
    """The shipped rule: how much each probe counts, which maps are tried, and how it did on the models we tested."""

    name: str
    weights: Mapping[str, float]
    transforms: Sequence[str]
    margin: float
    static: bool = False  # token embeddings are put beside a layer that has a map and no template
    templates: Sequence[str] = ()  # tried for causal language models that ship no pooling
    template_transforms: Sequence[str] = ()  # the maps of their last tokens
    chosen_on: Sequence[str] = ()
    audit: Mapping[str, Any] = field(default_factory=dict)  # tasks, and gains by model: mean, low, high


@cache
def default_rulebook() -> Rulebook:
    """The shipped rule, from rulebook.json."""
    return Rulebook(**json.loads((files("layerwise.verbs.pick") / "rulebook.json").read_text(encoding="utf-8")))


def pick_recipe(
    network: Network,
    texts: Sequence[str],
    *,
    labels: Probe | None = None,
    pairs: Probe | None = None,
    language: Language = "en",
    prefer: Prefer = "quality",
    templates: Sequence[str] | None = None,
    layer_only: bool = False,
    static: bool = True,
    servable: bool = False,
    dims: int | None = None,
    static_model: StaticModel | None = None,
    max_length: int,
    media: MediaInputs | None = None,
    name: str = "",
    rulebook: Rulebook | None = None,
    progress: bool = False,
) -> Pick:
    """The recipe with the best probe score, or the last layer if no other is better by the rulebook's margin.

    Maps are fitted on `texts`; `name` says where they come from. `labels` is the probe made from a few labelled
    texts; `pairs` is one made from pairs of texts, which replaces those on the bundled sentences. Without `texts`, no
    map is tried.
    `templates` are those to try, None for the rulebook's. With `layer_only`, no map is tried; without `static`, token
    embeddings are never put beside the layer; with `servable`, only recipes that plain servers compute are chosen.
    `dims` is how many dimensions the vectors of the answer have, None for all. `static_model` is scored by the same
    probes, and reported. With `media`, `texts` and the texts of `pairs` stand for clips or images.
    """
    rulebook = rulebook or default_rulebook()
    fit = [] if layer_only else texts
    if dims is not None:
        require_texts_for(dims, len(fit))
    probes, weights = weighted_probes(labels, rulebook, pairs, language)
    transforms = tuple(rulebook.transforms) if fit else ("none",)
    candidates = layer_candidates(network, transforms=transforms)
    candidates += class_token_candidates(network, transforms)
    if media is not None:
        templates, static = (), False
    if templates is None:
        templates = () if layer_only else usable_templates(network, rulebook.templates, max_length)
    templated = template_candidates(network, templates, rulebook.template_transforms if fit else ("none",))
    candidates += templated
    static = static and rulebook.static and network.family.first_hidden_state == 0
    restricted = servable_candidates(network, candidates) if servable else []
    needed = [*candidates, *restricted, *(widened(candidate, static=static) for candidate in candidates)]
    probe_vectors = compute_probe_vectors(
        network, needed, probes, fit, max_length=max_length, media=media, progress=progress
    )
    scored = score_candidates(probe_vectors, candidates, progress=progress)
    deployed = partial(with_second_vector, probe_vectors, static=static)
    last = baseline_recipe(network)
    decision = decide(scored, last, weights, margin=rulebook.margin, deployed=deployed, prefer=prefer)
    unrestricted = decision
    if servable:
        scored = score_candidates(probe_vectors, restricted, progress=progress)
        decision = decide(scored, last, weights, margin=rulebook.margin, prefer=prefer)
    noun = media.medium.plural if media else "texts"
    evidence = judged_on(None, pairs, language, noun)
    found, why = decision.answer.recipe, [*reasons(decision, rulebook, network, fit, name, prefer, evidence, noun)]
    if pairs is not None:
        why += pairs_sentences(decision, len(candidates), pairs, bool(fit) or layer_only, noun)
    if fit and name == BUNDLED and language != "en":
        why.append(f"the texts that maps were fitted on are English; {LANGUAGES[language]} texts (--fit) may do better")
    if servable:
        why.append(servable_sentence(network, decision, unrestricted))
    if dims is not None and found != last:
        found = replace(found, transform=with_dims("center" if found.transform == "none" else found.transform, dims))
        why.append(dims_sentence(probe_vectors, decision.answer.recipe, found, weights))
    announce("timing the layers")
    if media is None:
        times = relative_layer_times(network, texts or probes[0].texts, found.template, max_length)
    else:
        times = relative_media_times(network, [media.payloads[key] for key in probes[0].texts], max_length)
    if found != last:
        why.append(time_sentence(network, found, times))
    if (
        decision.chosen.recipe in templated
        and decision.chosen is decision.quality
        and (pairs, language) == (None, "en")
    ):
        why += audit_sentences(rulebook.audit)
    static_row = None
    if static_model is not None:
        static_row = picked_row(score_static(static_model, probes), decision)
        why.append(static_sentence(static_row.gain, pairs))
    recipe = replace(found, max_length=max_length)
    return Pick(
        network.identity(),
        recipe,
        last,
        rulebook.name,
        tuple(why),
        None if recipe.transform == "none" else fitted_recipe(network, recipe, probe_vectors, name),
        layers_alike=decision.layers_alike,
        gain=decision.gain,
        prefer=prefer,
        judged_on=judged_on(labels, pairs, language, noun),
        layers=picked_layers(decision, scored, times_of_exports(network, times)),
        static_model=static_row,
        input_kind=kind_of(network.preprocessor),
        decision=decision,
    )


def usable_templates(network: Network, templates: Sequence[str], max_length: int) -> list[str]:
    """The templates that pick tries if none are given: only for a causal language model that ships no pooling.

    Those that its tokenizer cannot add are left out, and those that would take more than half of `max_length`.
    """
    if network.has_own_vectors:
        return []
    found = []
    for template in templates:
        try:
            with_template(network.tokenizer, template)
        except InputError:
            continue
        if 2 * template_length(network, template) <= max_length:
            found.append(template)
    return found


def exported_blocks(network: Network, recipe: Recipe) -> int:
    """How many blocks the default export of a recipe keeps: one more than needed where a final norm must not run.

    A speech model cannot be exported: its layer is read, which runs no further block.
    """
    if recipe.shipped or recipe.norm == "normed" or is_audio(network.preprocessor):
        return recipe.layer
    return min(recipe.layer + 1, network.depth)


def time_sentence(network: Network, recipe: Recipe, times: Mapping[int | None, Sequence[RelativeTime]]) -> str:
    """How long the default export of the recipe takes, on short and on long texts."""
    blocks = exported_blocks(network, recipe)
    what = "until the layer is computed" if is_audio(network.preprocessor) else "of the default export"
    return f"time {what}: {time_words([of[blocks].to_record(n) for n, of in times.items()])}"


def times_of_exports(
    network: Network, times: Mapping[int | None, Sequence[RelativeTime]]
) -> Callable[[Recipe], RelativeTime]:
    """The time of the default export of a recipe on texts of medium length, for the table of all layers."""
    of_medium = list(times.values())[len(times) // 2]
    return lambda recipe: of_medium[exported_blocks(network, recipe)]


def audit_sentences(audit: Mapping[str, Any]) -> Iterator[str]:
    """What the rule gained on labelled tasks, model by model; nothing where it was not tested."""
    if not audit:
        return
    gains = [f"{name} {signed(mean)} ({low:.1f} to {high:.1f})" for name, (mean, low, high) in audit["gains"].items()]
    yield (
        f"on {audit['tasks']} labelled tasks that were not used to choose this rule, with maps fitted on "
        f"{audit['fitted_on']}, it gained over the last layer: {', '.join(gains)}. That is {len(gains)} "
        "models; yours may gain less or nothing, so score it on your task"
    )


def servable_sentence(network: Network, decision: Decision, unrestricted: Decision) -> str:
    """What the restriction to servable recipes costs on the probes, and against which recipe."""
    other = unrestricted.answer.recipe
    if is_servable(network, other):
        return "servable: the best recipe without this restriction is servable too, so it costs nothing"
    loss = difference(decision.answer, unrestricted.answer, decision.weights)
    norm = "after the final norm" if other.norm == "normed" else other.norm
    form = ", ".join([f"layer {other.layer}", norm, other.pooling, f"map {other.transform}"])
    return f"servable: {loss} points on the same sentences against the best recipe without this restriction ({form})"


def static_sentence(gain: Gain, pairs: Probe | None) -> str:
    """How a model without blocks does on the probes, and what they are worth for it."""
    found = (
        f"a static model, which runs no block (a method of shrink): {gain} points against the last layer on the same"
    )
    if pairs is not None:
        return f"{found} pairs"
    return (
        f"{found} sentences. They are hard for it: they have decoys of nearly the same words, and it does not see "
        "their order. On labelled tasks that of all-MiniLM-L6-v2 lost less (docs/static.md), so score it on yours"
    )


def dims_sentence(trial: ProbeVectors, whole: Recipe, reduced: Recipe, weights: Mapping[str, float]) -> str:
    """What fewer dimensions cost on the probes."""
    loss = difference(trial.score(reduced), trial.score(whole), weights)
    kept = f"the first {reduced.dims:,} principal directions of {width_of(trial, whole):,} dimensions are kept"
    return f"{kept}: {loss} points on the same sentences"


def width_of(trial: ProbeVectors, recipe: Recipe) -> int:
    """The width of the recipe's vectors before dimensions are left out."""
    return sum(trial.vectors[recipe.template][readout].shape[1] for readout, _ in recipe.parts)


def template_length(network: Network, template: str) -> int:
    """How many tokens a template adds to a text."""
    parts = parse_template(template)
    return sum(len(part_ids(network.tokenizer, part)) for part in (parts.before, parts.after))


def judged_on(labels: Probe | None, pairs: Probe | None, language: Language, noun: str = "texts") -> str:
    """What the probes were scored on."""
    kind = "" if language == "en" else f"{LANGUAGES[language]} "
    main = (
        f"{len(proxy_items(language=language))} bundled {kind}test sentences"
        if pairs is None
        else f"pairs of {pairs.units} {noun} of yours"
    )
    return main + (f" and {labels.units} labels of yours" if labels else "")


def pairs_sentences(
    decision: Decision, count: int, pairs: Probe, maps_were_tried: bool, noun: str = "texts"
) -> Iterator[str]:
    """What the evidence of pairs is worth."""
    if decision.answer is not decision.last:
        yield f"this is the best of {count} recipes on these pairs, so its gain on others is a little smaller"
        if decision.gain.low <= 0:
            yield f"the interval includes 0: with {pairs.units} {noun} the last layer may be as good; pass more pairs"
    if not maps_were_tried and noun != "texts":
        yield f"no linear map was tried: maps are fitted on other {noun} of yours (--fit)"
    elif not maps_were_tried:
        yield (
            "no linear map was tried: the tokenizer cannot read the bundled texts that maps are fitted on; pass texts "
            "of yours (--fit FILE)"
        )


def reasons(
    decision: Decision,
    book: Rulebook,
    network: Network,
    fit: Sequence[str],
    name: str,
    prefer: Prefer,
    evidence: str,
    noun: str = "texts",
) -> Iterator[str]:
    """Sentences about the choice: why this one, what the evidence is worth, and what the texts were used for."""
    chosen, quality = decision.chosen.recipe, decision.quality.recipe
    if decision.quality is decision.last:
        yield f"on {evidence}, nothing scores more than {book.margin:g} points above the last layer"
        yield "the table shows what each lower layer would lose"
    if prefer == "fast" and decision.chosen is decision.quality:
        yield f"no lower layer scores the same within noise as layer {chosen.layer}, so there is no faster choice"
    elif prefer == "fast":
        loss = decision.cost_of_speed
        interval = f"95 %: {points(loss.low)} to {points(loss.high)}"
        yield (
            f"prefer fast: layer {chosen.layer} is the lowest that scores the same within noise as layer "
            f"{quality.layer}, the best ({signed(loss.mean)} points, {interval})"
        )
        yield f"{evidence} cannot show small losses: compare both layers on your task with eval"
    answer = decision.answer.recipe
    if answer.static:
        yield (
            "whitened token embeddings are appended to the layer's vector, which helped both models we tested on "
            f"labelled tasks. Vectors have {2 * network.width:,} dimensions instead of {network.width:,}; --no-static "
            "turns this off"
        )
    elif len(answer.parts) > 1:
        yield (
            "the mean over all tokens is appended to the last token's vector, which helps with long texts: "
            f"{2 * network.width:,} dimensions instead of {network.width:,}"
        )
    if answer.template and not answer.shipped:
        added = template_length(network, answer.template)
        yield f"every text is put into the template {answer.template!r}, which adds {added} tokens"
    if fit:
        texts = f"{len(fit):,} {noun} ({name or 'yours'})"
        yield f"linear maps were fitted on {texts}, which are not used to score the layers"
    if fit and name not in (BUNDLED, "demo") and answer.transform != "none":
        yield (
            f"if these {noun} are all of one kind, the map removes what they differ in, such as their topics, and "
            f"classification and clustering of them suffer: leave --fit out, or pass {noun} of many kinds"
        )


def fitted_recipe(network: Network, recipe: Recipe, probe_vectors: ProbeVectors, name: str) -> FittedRecipe:
    """The recipe with its fitted map; `name` is the source of the texts."""
    fitted_on = FittedOn("texts", name, texts_fingerprint(probe_vectors.fit), len(probe_vectors.fit))
    return FittedRecipe(recipe, network.identity(), probe_vectors.maps(recipe), fitted_on)


def weighted_probes(
    labels: Probe | None, rulebook: Rulebook, pairs: Probe | None = None, language: Language = "en"
) -> tuple[list[Probe], dict[str, float]]:
    """The probes of a rulebook, or that of pairs instead, with that of the labels, and how much each counts."""
    if pairs is None:
        probes = [probe for probe in proxy_probes(language=language) if rulebook.weights.get(probe.name)]
    else:
        probes = [pairs]
    weights = {probe.name: rulebook.weights.get(probe.name, 1.0) for probe in probes}
    if labels is not None:
        probes.append(labels)
        weights[labels.name] = sum(weights.values()) * labels.units / LABELS_FOR_EQUAL_WEIGHT
    return probes, weights


def pick_by_rule(table: LayerTable, given_rule: str | Rule) -> Pick:
    """The choice of a rule on a scan's table; runs no model.

    The recipe has the norm, the tokens, the pooling and the map of the rows that the rule reads.
    """
    rule = parse_rule(given_rule)
    rule.require_metrics({row.metric for row in table}, "this table")
    depth, measured = model_depth(table), sorted({row.layer for row in table})
    if depth not in measured:
        raise InputError(
            f"the last layer, {depth}, is not in this table (it has {', '.join(map(str, measured))}), and every choice "
            f"is compared with it: scan it as well, such as --layers {','.join(map(str, measured))},last"
        )
    setting = rule_setting(table, rule)
    normed = any(row.norm == "normed" and row.layer == depth for row in table)
    last = replace(setting, layer=depth, norm="normed" if normed else "raw")
    layer = rule(metric_curves(table), depth)
    reasons = [f"rule {rule.name}, from the table alone; rules over metrics fail on some model families (docs/pick.md)"]
    if rule.metrics and len(measured) <= depth:
        reasons.append(f"the table has only {len(measured)} of {depth + 1} layers: {', '.join(map(str, measured))}")
    reasons += [
        f"{metric} has {count} settings in this table; the first is used"
        for metric, count in metrics_with_several_settings(table, rule)
    ]
    recipe = last if layer == depth else replace(setting, layer=layer)
    model = table.model or ModelRef(next(iter(table)).model)
    return Pick(model, recipe, last, rule.name, tuple(reasons))


def metrics_with_several_settings(table: LayerTable, rule: Rule) -> list[tuple[str, int]]:
    """The metrics that the rule reads and of which the table has several curves, with their number."""
    found = {name: {row.setting for row in table if row.metric == name} for name in sorted(rule.metrics)}
    return [(name, len(settings)) for name, settings in found.items() if len(settings) > 1]


def rule_setting(table: LayerTable, rule: Rule) -> Recipe:
    """Layer 0 with the norm, tokens, pooling and map of the first curve that the rule reads."""
    rows = [curve[0] for metric, curve in table.main_curves().items() if metric in rule.metrics or not rule.metrics]
    alike = [row for row in table if (row.tokens, row.transform) == (rows[0].tokens, rows[0].transform)]
    # A metric of tokens has no pooling of its own: use that of similar rows, and mean where they have none either.
    pooling = next((row.pooling for row in (rows[0], *alike) if row.pooling != "-"), "mean")
    words: Any = {"tokens": rows[0].tokens, "pooling": pooling, "transform": rows[0].transform}  # checked by Recipe
    return Recipe(0, "normed" if rows[0].norm == "normed" else "raw", **words)
