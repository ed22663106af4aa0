"""The card of a pick: what to use, the evidence for it in sentences, and the table of all layers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from layerwise.core.checks import MEAN, STATIC, Transform, split_transform
from layerwise.core.errors import InputError
from layerwise.verbs.report.markup import escape, table

# What the bundled probes measure; each score runs from 0 to 100.
PROBES = {
    "pairs": "how often, of two pairs of sentences, the one closer in meaning has the closer vectors; 50 is chance",
    "paraphrase": "mean reciprocal rank of a paraphrase among all candidates, times 100",
    "labels": "accuracy or rank correlation on your labels, cross-validated",
}

COLUMNS_EXPLAINED = (
    "difference: points from the last layer. time: of the layer's default export on texts of about 20 tokens; 1.00 is "
    "the whole model. ?: its repeats disagreed. "
    "same: scores the same as the best layer within noise."
)
COLUMNS_OF_MEDIA = COLUMNS_EXPLAINED.replace(" on texts of about 20 tokens", ", or until a speech layer is computed")


def pick_cards(picks: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """A card for each pair of a model's label and its pick; the same pick in two folders is shown once."""
    found = {(label, json.dumps(pick, sort_keys=True, default=str)): pick for label, pick in picks}
    return "".join(pick_card(label, pick) for (label, _), pick in found.items())


def pick_card(label: str, pick: Mapping[str, Any]) -> str:
    """What was chosen, then the evidence, then the layers that were compared."""
    sentences = [*evidence(pick), *(as_sentence(str(reason)) for reason in pick.get("why") or [])]
    items = "".join(f'<li dir="auto">{escape(sentence)}</li>' for sentence in sentences)
    explained = probes_explained(pick)
    note = f'<p class="quiet">{escape(explained)}</p>' if explained else ""
    answer = f'<p class="answer">{escape(label)}: {escape(headline(pick))}.</p>'
    return f'<div class="pick">{answer}<ul class="why">{items}</ul>{layer_table(pick)}{note}</div>'


def as_sentence(text: str) -> str:
    """With a capital letter and a full stop; a name in it stays as it is."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def headline(pick: Mapping[str, Any]) -> str:
    """What to do, such as: use layer 1 of 6 with the linear map whiten."""
    recipe, last = pick.get("recipe") or {}, pick.get("last") or {}
    of = f" of {last['layer']}" if "layer" in last else ""
    if pick.get("keep_last"):
        return "keep the last layer" + (f" ({last['layer']})" if of else "")
    template = recipe.get("template")
    within = f", in the template {template!r}" if template and template != last.get("template") else ""
    return f"use layer {recipe.get('layer', '?')}{of}{map_words(recipe)}{within}"


def map_words(recipe: Mapping[str, Any]) -> str:
    transform = transform_of(recipe)
    words = "" if transform.map == "none" else f" with the linear map {transform.map}"
    beside = {MEAN: "the mean over all tokens", STATIC: "whitened token embeddings"}.get(transform.beside)
    words += f", and {beside} beside it" if beside else ""
    return words + (f", {transform.dims:,} dimensions" if transform.dims else "")


def transform_of(recipe: Mapping[str, Any]) -> Transform:
    """The parts of the transform; all of it as the map if this version does not know it."""
    name = str(recipe.get("transform", "none"))
    try:
        return split_transform(name)
    except InputError:
        return Transform(name)


def evidence(pick: Mapping[str, Any]) -> list[str]:
    """The sentences that can be made from the numbers of the pick."""
    on = pick.get("judged_on") or "the probes explained below"
    found = []
    if gain := interval(pick.get("gain"), "+"):
        found.append(f"On {on}: {gain} over the last layer.")
    if alike := pick.get("layers_alike"):
        found.append(f"Layers that score the same within noise: {', '.join(map(str, alike))}. A lower layer is faster.")
    found += [sentence for sentence in (blocks(pick), readout(pick), chosen_by(pick)) if sentence]
    return found


def interval(gain: Any, sign: str = "") -> str:
    """A gain in points with its 95 % interval, as far as it is known; `sign` + also marks positive numbers."""
    known = {k: v for k, v in (gain if isinstance(gain, Mapping) else {}).items() if isinstance(v, int | float)}
    if "mean" not in known:
        return ""
    form = f"{sign}.1f"
    bounds = f" (95 %: {known['low']:{form}} to {known['high']:{form}})" if {"low", "high"} <= set(known) else ""
    return f"{known['mean']:{form}} points{bounds}"


def blocks(pick: Mapping[str, Any]) -> str:
    """How many blocks need not run, and how many an export removes."""
    recipe = pick.get("recipe") or {}
    layer, depth = recipe.get("layer"), (pick.get("last") or {}).get("layer")
    if not isinstance(layer, int) or not isinstance(depth, int) or layer >= depth or pick.get("keep_last"):
        return ""
    free = depth - layer
    spared = f"{free} of {depth} blocks are not needed."
    if pick.get("input_kind") == "audio":  # a speech model cannot be exported
        return spared
    if recipe.get("norm") == "normed":
        return f"{spared} An export removes them."
    return f"{spared} A portable export keeps one block more and removes {free - 1}; a compact export removes {free}."


def readout(pick: Mapping[str, Any]) -> str:
    """How a text becomes a vector."""
    recipe = pick.get("recipe") or {}
    if pick.get("keep_last") or "pooling" not in recipe:
        return ""
    words = [f"pooling {recipe['pooling']}", f"tokens {recipe.get('tokens', 'all')}", f"norm {recipe.get('norm')}"]
    if recipe.get("max_length"):
        words.append(f"texts cut at {recipe['max_length']} tokens")
    if recipe.get("template"):
        words.append(f"template {recipe['template']!r}")
    return f"How a text becomes a vector: {', '.join(words)}."


def chosen_by(pick: Mapping[str, Any]) -> str:
    rule = str(pick.get("rule") or "")
    if not rule:
        return ""
    if pick.get("gain"):
        return f"Chosen by the scores of the probes (version {rule} of the rule)."
    return f"Chosen by the rule {rule}, from the table of the run alone."


def probes_explained(pick: Mapping[str, Any]) -> str:
    """What each probe measures that the pick names."""
    named = {name for row in pick.get("layers") or [] for name in row.get("scores") or {}}
    shown = [name for name in PROBES if name in named] if named else list(PROBES)[:2] if pick.get("gain") else []
    if not shown:
        return ""
    return "Probes, from 0 to 100. " + "; ".join(f"{name}: {PROBES[name]}" for name in shown) + "."


def layer_table(pick: Mapping[str, Any]) -> str:
    """All layers that were compared: probes, difference from the last layer, time; "" if the pick has none."""
    rows = [row for row in pick.get("layers") or [] if isinstance(row, Mapping)]
    if not rows:
        return ""
    probes = list(dict.fromkeys(name for row in rows for name in row.get("scores") or {}))
    recipe = pick.get("recipe") or {}
    head = ["layer", "difference (95 %)", *probes, "time"]  # a narrow screen shows the first columns
    body = [
        [
            layer_cell(row, recipe),
            difference_cell(row.get("gain")),
            *(number((row.get("scores") or {}).get(name), ".1f") for name in probes),
            number(row.get("relative_time"), ".2f") + ("?" if row.get("unsteady_time") else ""),
        ]
        for row in rows
    ]
    inner = table(head, body, words=(), caption="Layers that were compared")
    explained = COLUMNS_EXPLAINED if pick.get("input_kind", "text") == "text" else COLUMNS_OF_MEDIA
    note = f'<p class="quiet">{escape(explained)}</p>'
    return f"<details open><summary>All layers</summary>{inner}{note}</details>"


def layer_cell(row: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """The number of a layer, and what is special about it: chosen, the same within noise, or with another map."""
    transform, chosen_map = str(row.get("transform", "none")), transform_of(recipe).map
    has_chosen_map = transform_of(row).map == chosen_map  # what stands beside it may differ
    notes = [] if has_chosen_map else ["no map" if transform == "none" else transform]
    if row.get("layer") == recipe.get("layer") and has_chosen_map:
        notes.append("chosen")
    elif row.get("same_within_noise"):
        notes.append("same")
    return ", ".join([str(row.get("layer", "")), *notes])


def difference_cell(gain: Any) -> str:
    """A difference with its interval, in as few characters as possible; 0 for the last layer itself."""
    known = [number(gain.get(name), "+.1f") for name in ("mean", "low", "high")] if isinstance(gain, Mapping) else []
    if len(known) < 3 or not all(known):
        return known[0] if known else ""
    mean, low, high = known
    return "0.0" if low == high else f"{mean} [{low}, {high}]"


def number(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) and not isinstance(value, bool) else ""
