"""Several models on one table: each with the recipe that pick chooses for it, scored on the same evidence."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, cast

import numpy as np

from layerwise.core.columns import WIDTH, in_columns
from layerwise.core.display import printable
from layerwise.core.errors import InputError
from layerwise.core.progress import announce, announcements
from layerwise.inputs.media import Medium
from layerwise.inputs.modalities import MEDIA
from layerwise.inputs.options import PairsLike
from layerwise.inputs.pairs import read_media_pairs, read_pairs
from layerwise.inputs.source import Example, Payload, content_key
from layerwise.inputs.timed_texts import TIMED_LENGTHS, room_for_text, timed_texts
from layerwise.models.network import Network
from layerwise.models.opening import input_kind_of_model, open_network
from layerwise.models.readouts import baseline_recipe
from layerwise.models.spec import ModelLike
from layerwise.passes.timing import clock_of
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.folder import is_run
from layerwise.verbs.pick.candidates import ScoredRecipe
from layerwise.verbs.pick.decision import Gain, difference
from layerwise.verbs.pick.layer_times import TIMED_MEDIA
from layerwise.verbs.pick.one_model import pick_one
from layerwise.verbs.pick.options import PickOptions
from layerwise.verbs.pick.partners import MIN_PAIRS
from layerwise.verbs.pick.picked_layers import gain_record
from layerwise.verbs.pick.probes import proxy_texts
from layerwise.verbs.pick.result import Pick

ONE_MODEL_ONLY = ("rule", "model", "export", "compare_static")
TIMED_ROUNDS = 3
BYTES_PER_NUMBER = 4  # float32, as an index stores vectors


@dataclass(frozen=True)
class RankedModel:
    """A model that `pick` ranked, with the recipe that was picked for it.

    Attributes:
        name: its name or folder.
        recipe: the recipe in a few words.
        score: mean score of the evidence, 0 to 100, with its standard error.
        difference: from the best model, paired by unit.
        seconds: to encode 32 texts of 20 tokens, 8 clips or 8 images with the default export of the recipe, from the
            whole model's.
        parameters: of the whole model, in millions.
        megabytes: of its weights as they were loaded.
        width: dimensions of the vectors.
        picked: the answer for this model, on the evidence that it saw; `export` takes it.
        dropped_after: the number of pairs after which it was a clear loser; None if it saw all of them.
    """

    name: str
    recipe: str
    score: Gain
    difference: Gain
    seconds: float
    parameters: float
    megabytes: float
    width: int
    picked: Pick = field(repr=False)
    dropped_after: int | None = None

    @property
    def index_megabytes(self) -> float:
        """Of an index of a million vectors."""
        return BYTES_PER_NUMBER * self.width

    def to_record(self) -> dict[str, Any]:
        """The row as a JSON object."""
        gains = {name: gain_record(getattr(self, name)) for name in ("score", "difference")}
        plain = ("name", "recipe", "seconds", "parameters", "megabytes", "width", "index_megabytes", "dropped_after")
        return {name: getattr(self, name) for name in plain} | gains


@dataclass(frozen=True)
class RankedModels:
    """Models in the order of their scores, those that saw all of the evidence first; `print` shows them as a table.

    Attributes:
        rows: the best model first.
        judged_on: what the scores are of.
        notes: what to keep in mind.
    """

    rows: tuple[RankedModel, ...]
    judged_on: str
    notes: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """The table as a JSON object."""
        return {"judged_on": self.judged_on, "models": [r.to_record() for r in self.rows], "notes": list(self.notes)}

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_record(), indent=1)

    def __repr__(self) -> str:
        fastest = min(row.seconds for row in self.rows)
        table = [["model", "score", "difference (95 %)", "time", "params", "width", "index"]]
        for row in self.rows:
            gap = "0.0" if row is self.rows[0] else str(row.difference)
            time, index = f"{row.seconds / fastest:.1f}", f"{row.index_megabytes / 1000:.1f} GB"
            size, width = f"{row.parameters:.1f}M", f"{row.width:,}"
            table.append([Path(row.name).name, f"{row.score.mean:.1f}", gap, time, size, width, index])
        lines = [f"on {self.judged_on}:", *in_columns(table, label_columns=1, right=range(1, 7))]
        for row in self.rows:
            dropped = "" if row.dropped_after is None else f"dropped after {row.dropped_after} pairs; "
            lines += wrap(f"{Path(row.name).name}: {dropped}{row.recipe}", WIDTH, subsequent_indent="  ")
        notes = (line for note in self.notes for line in wrap(note, WIDTH, subsequent_indent="  "))
        return printable("\n".join([*lines, *notes]))


@dataclass(frozen=True)
class Tried:
    """A model, what was picked for it, and what it costs."""

    model: ModelLike
    found: Pick
    costs: dict[str, Any]

    @property
    def scored(self) -> ScoredRecipe:
        assert self.found.decision is not None
        return self.found.decision.answer

    @property
    def score(self) -> Gain:
        """Its own mean and standard error."""
        zero = {name: np.zeros_like(units) for name, units in self.scored.unit_scores.items()}
        return self.over(replace(self.scored, unit_scores=zero))

    def over(self, other: ScoredRecipe) -> Gain:
        assert self.found.decision is not None
        return difference(self.scored, other, self.found.decision.weights)


def is_several(run: object) -> bool:
    """True for a list or tuple of models. A pair of a module and what makes its inputs is one model."""
    if not isinstance(run, list | tuple):
        return False
    return not (len(run) == 2 and hasattr(run[0], "parameters") and not hasattr(run[1], "parameters"))


def rank_models(options: PickOptions) -> RankedModels:
    """Picks a recipe for each of several models and ranks them on the same evidence.

    With pairs and `early_stop`, all models first see a quarter of the pairs. Those whose interval ends below that of
    the best begins are not carried further. Without pairs nobody is dropped: the bundled sentences and labels are few.

    Raises:
        InputError: if there are fewer than two models, or an option is about one model only.
    """
    models = cast(Sequence[ModelLike], options.run)
    if len(models) < 2:
        raise InputError("several models are needed to rank them: pass two or more")
    if runs := [model for model in models if is_run(model)]:
        raise InputError(f"{runs[0]} is a run, and models are ranked: pass the model itself")
    if wrong := [name for name in ONE_MODEL_ONLY if getattr(options, name)]:
        raise InputError(f"{', '.join(wrong)} can be used with one model only: leave that out, or pass one model")
    kinds = {input_kind_of_model(model) for model in models}
    if len(kinds) > 1:
        raise InputError(f"these models take {' and '.join(sorted(kinds))}, and cannot be ranked on the same evidence")
    with announcements(options.progress):
        tried, dropped = try_models(models, options, MEDIA.get(kinds.pop()))
    best = max(tried, key=lambda one: one.score.mean)
    ranked = sorted(tried, key=lambda one: -one.score.mean)
    rows_of = [ranked_row(one, one.over(best.scored)) for one in ranked]
    rows_of += [ranked_row(one, gap, count) for one, count, gap in sorted(dropped, key=lambda of: -of[2].mean)]
    timed = {
        "text": "of the default export on texts of 20 tokens",
        "audio": f"until the layer is computed, on {TIMED_MEDIA} clips",
        "image": f"of the default export on {TIMED_MEDIA} images",
    }
    notes = [f"time: {timed[best.found.input_kind]}, as a multiple of the fastest"]
    notes.append("index: of a million vectors in float32")
    if options.pairs is None and options.labels is None:
        notes.append("the bundled sentences cannot rank models for your field or task: pass pairs or labels of yours")
    if dropped:
        notes.append("dropped: its difference is on the pairs that it saw; --no-early-stop shows all on all pairs")
    return RankedModels(tuple(rows_of), best.found.judged_on, tuple(notes))


def try_models(
    models: Sequence[ModelLike], options: PickOptions, medium: Medium | None
) -> tuple[list[Tried], list[tuple[Tried, int, Gain]]]:
    """The models that saw all of the evidence; and those that were dropped, after how many pairs and how far behind."""
    dropped: list[tuple[Tried, int, Gain]] = []
    left: Sequence[ModelLike] = models
    if options.pairs is not None:
        rows: Sequence[tuple[Any, Any]]
        if medium is None:
            _, rows = read_pairs(cast(PairsLike, options.pairs))
        else:
            _, rows = read_media_pairs(options.pairs, medium)
            options = replace(options, pairs=rows)  # read once
        order = np.random.default_rng(options.seed).permutation(len(rows))
        quarter = [rows[i] for i in order[: len(rows) // 4]]
        if options.early_stop and len({content_key(first) for first, _ in quarter}) >= MIN_PAIRS:
            announce(f"all models on {len(quarter)} of {len(rows)} pairs")
            tried = [try_model(model, replace(options, pairs=quarter)) for model in models]
            best = max(tried, key=lambda one: one.score.mean)
            losers = [one for one in tried if one.score.high < best.score.low]
            dropped = [(one, len(quarter), one.over(best.scored)) for one in losers]
            left = [one.model for one in tried if one not in losers]
    return [try_model(model, options) for model in left], dropped


def try_model(model: ModelLike, options: PickOptions) -> Tried:
    """Picks for one model, and measures what its answer costs. Its weights are freed afterwards."""
    network = open_network(model, states_only=True)
    found = pick_one(replace(options, run=network, early_stop=True))
    firsts = (
        [] if found.input_kind == "text" else [first for first, _ in cast(Sequence[tuple[Any, Any]], options.pairs)]
    )
    return Tried(model, found, costs_of(network, found, firsts[:TIMED_MEDIA]))


def costs_of(network: Network, found: Pick, media: Sequence[Payload]) -> dict[str, Any]:
    """Parameters, megabytes, width, and seconds of the recipe, on some clips or images for a model that takes these."""
    layer = next((row for row in found.layers if row.layer == found.recipe.layer), found.layers[-1])
    share = 1.0 if found.keep_last else layer.relative_time or 1.0
    return {
        "seconds": share * seconds_of_batch(network, media or short_texts(network)),
        "parameters": sum(weight.numel() for weight in network.parameters()) / 1e6,
        "megabytes": network.weight_bytes / 1e6,
        "width": found.recipe.dims or len(found.recipe.parts) * network.width,
    }


def short_texts(network: Network) -> Sequence[str]:
    """Texts of 20 tokens, or of as many as the model takes."""
    room = room_for_text(network.tokenizer, baseline_recipe(network).template, network.default_length)
    return [*timed_texts(network.tokenizer, proxy_texts(), room).values()][1 if room > TIMED_LENGTHS[0] else 0]


def seconds_of_batch(network: Network, payloads: Sequence[Payload]) -> float:
    """The least time of some passes of the whole model over these inputs."""
    recipe, clock = baseline_recipe(network), clock_of(network.device)
    examples, found = [Example(str(i), payload) for i, payload in enumerate(payloads)], []
    for _ in range(TIMED_ROUNDS):
        began = clock()
        pooled_vectors(network, examples, [recipe.readout], max_length=network.default_length, template=recipe.template)
        found.append(clock() - began)
    return min(found)


def ranked_row(tried: Tried, gap: Gain, dropped_after: int | None = None) -> RankedModel:
    recipe, last = tried.found.recipe, tried.found.last
    form = [f"layer {recipe.layer} of {last.layer}", f"map {recipe.transform}"]
    form += ["in a template"] if recipe.template else []
    form += ["class token"] if recipe.pooling == "first" and last.pooling == "mean" else []
    words = "the last layer" if tried.found.keep_last else ", ".join(form)
    return RankedModel(
        tried.found.model.name, words, tried.score, gap, **tried.costs, picked=tried.found, dropped_after=dropped_after
    )
