"""Candidates: recipes to choose from, and the scores of each by every probe, from one pass per template."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import torch
from torch import Tensor

from layerwise.core.checks import MEAN, STATIC, TokenChoice, split_transform, with_dims
from layerwise.core.preprocessors import AudioPreprocessor, ImagePreprocessor
from layerwise.core.progress import announce, progress_bar
from layerwise.core.recipe import Readout, Recipe
from layerwise.inputs.media import Medium
from layerwise.inputs.source import Example, Payload
from layerwise.maps.linear import LinearMap, Moments, combine_maps, fit_maps, reduce_dims
from layerwise.metrics.accumulators.second_moment import moments_of_rows
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe, layer_recipe
from layerwise.models.servable import is_servable, servable_norm
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.summary import counted
from layerwise.verbs.pick.probes import Floats, Probe, is_own_data
from layerwise.verbs.shrink.static_models import StaticModel


@dataclass(frozen=True)
class ScoredRecipe:
    """A recipe and its scores by each probe, one per unit."""

    recipe: Recipe
    unit_scores: dict[str, Floats]

    def mean(self, probe: str) -> float:
        return float(self.unit_scores[probe].mean())


@dataclass(frozen=True)
class MediaInputs:
    """What the texts of probes and maps stand for where a model takes clips or images: inputs, by their hashes."""

    medium: Medium
    payloads: Mapping[str, Payload]


def layer_candidates(
    network: Network, tokens: Sequence[TokenChoice] = ("all",), transforms: Sequence[str] = ("none",)
) -> list[Recipe]:
    """Every layer with the model's pooling, and the model as shipped, with each token choice and map."""
    pooling = network.shipped.pooling_choice or "mean" if network.shipped else "mean"
    base = layer_recipe(network, pooling)
    readouts = [*(replace(base, layer=layer) for layer in range(network.depth)), baseline_recipe(network)]
    return [replace(r, tokens=t, transform=m) for m in transforms for t in tokens for r in readouts]


def class_token_candidates(network: Network, transforms: Sequence[str] = ("none",)) -> list[Recipe]:
    """The class token of every layer but the first, with each map; nothing for a model that has none.

    It is for models of clips and images that ship no pooling. At layer 0 it is the same for every input. At the last
    layer it is read behind the final norm, as these models use it.
    """
    maker = network.preprocessor
    special = maker.patches.special if isinstance(maker, ImagePreprocessor) else 0
    special = maker.frames.special if isinstance(maker, AudioPreprocessor) else special
    if not special or network.shipped:
        return []
    layers = [Recipe(layer, pooling="first") for layer in range(1, network.depth + 1)]
    layers[-1] = replace(layers[-1], norm="normed" if network.has_norm else "raw")
    return [replace(r, transform=m) for m in transforms for r in layers]


def template_candidates(
    network: Network, templates: Sequence[str], transforms: Sequence[str] = ("none",)
) -> list[Recipe]:
    """The last token of every layer but the first, in each template and with each map.

    The last token has read the whole text and the end of the template. Layer 0 is left out: its last token is the same
    for every text.
    """
    layers = [Recipe(layer, pooling="last") for layer in range(1, network.depth + 1)]
    return [replace(r, transform=m, template=t) for t in templates for m in transforms for r in layers]


def servable_candidates(network: Network, candidates: Sequence[Recipe]) -> list[Recipe]:
    """The candidates as plain servers read them, after the final norm if there is one; others are left out.

    The last layer as it is stays among them in any case: everything is compared with it.
    """
    last, norm = baseline_recipe(network), servable_norm(network)
    as_served = [c if c.shipped or c.layer == 0 else replace(c, norm=norm) for c in candidates]
    return [c for c in dict.fromkeys(as_served) if c == last or is_servable(network, c)]


@dataclass
class ProbeVectors:
    """The vectors of the probes' texts and of the texts that maps are fitted on, in each template.

    They are enough to score any recipe.
    """

    probes: Sequence[Probe]
    fit: Sequence[str]
    index: Mapping[str, int]
    vectors: Mapping[str, Mapping[Readout, Tensor]]  # by template
    moments_cache: dict[tuple[str, tuple[Readout, ...]], Moments] = field(default_factory=dict)

    def score(self, recipe: Recipe) -> ScoredRecipe:
        """The scores of the recipe by every probe, with its map fitted here."""
        rows = self.rows(recipe.template, tuple(readout for readout, _ in recipe.parts))
        mapped = (rows if recipe.transform == "none" else combine_maps(self.maps(recipe), recipe.dims)(rows)).numpy()
        return ScoredRecipe(
            recipe, {p.name: p.score(mapped[[self.index[text] for text in p.texts]]) for p in self.probes}
        )

    def rows(self, template: str, readouts: tuple[Readout, ...]) -> Tensor:
        """The vectors of all texts by these readouts, concatenated."""
        return torch.cat([self.vectors[template][readout] for readout in readouts], dim=1).double()

    def maps(self, recipe: Recipe) -> tuple[LinearMap, ...]:
        """The maps of the recipe's parts, fitted on the fitting texts."""
        maps = fit_maps([(name, self.moments(recipe.template, (readout,))) for readout, name in recipe.parts])
        if recipe.dims is None:
            return maps
        joint = self.moments(recipe.template, tuple(readout for readout, _ in recipe.parts))
        return reduce_dims(maps, joint, recipe.dims)

    def moments(self, template: str, readouts: tuple[Readout, ...]) -> Moments:
        key = template, readouts
        if key not in self.moments_cache:
            self.moments_cache.clear()  # keep one at a time: a large model has dozens of D x D matrices
            rows = self.rows(template, readouts)[[self.index[text] for text in self.fit]]
            self.moments_cache[key] = moments_of_rows(rows)
        return self.moments_cache[key]


def compute_probe_vectors(
    network: Network,
    recipes: Iterable[Recipe],
    probes: Sequence[Probe],
    fit: Sequence[str],
    *,
    max_length: int,
    media: MediaInputs | None = None,
    progress: bool = False,
) -> ProbeVectors:
    """One pass per template over all texts that the probes need or maps are fitted on, for all parts of the recipes.

    With `media`, the texts stand for clips or images.
    """
    texts = list(dict.fromkeys([*(text for probe in probes for text in probe.texts), *fit]))
    payloads, plural = (media.payloads, media.medium.plural) if media else ({}, "texts")
    examples = [Example(str(i), payloads.get(text, text)) for i, text in enumerate(texts)]
    wanted: dict[str, dict[Readout, None]] = {}
    for recipe in recipes:
        wanted.setdefault(recipe.template, {}).update(dict.fromkeys(readout for readout, _ in recipe.parts))
    again = f", and again in {counted(len(wanted) - 1, 'template')}" if len(wanted) > 1 else ""
    announce(f"reading {len(texts):,} {plural} at every layer{again}")
    vectors = {}
    with progress_bar(progress, total=len(examples) * len(wanted), unit=plural) as on_batch:
        for template, readouts in wanted.items():
            vectors[template] = pooled_vectors(
                network, examples, list(readouts), max_length=max_length, template=template, on_batch=on_batch
            )
    return ProbeVectors(probes, fit, {text: i for i, text in enumerate(texts)}, vectors)


def score_static(static: StaticModel, probes: Sequence[Probe]) -> ScoredRecipe:
    """The probe scores of a static model."""
    head, length = static.network.head, static.network.max_length
    assert head is not None
    return ScoredRecipe(
        static.made_from, {p.name: p.score(head.encode(p.texts, length).double().numpy()) for p in probes}
    )


def score_candidates(
    trial: ProbeVectors, candidates: Sequence[Recipe], *, progress: bool = False
) -> list[ScoredRecipe]:
    """The probe scores of all candidates, in order."""
    by_layer = sorted(candidates, key=lambda candidate: (candidate.template, astuple(candidate.readout)))
    scored = {}
    announce(f"scoring {counted(len(by_layer), 'recipe')}")
    with progress_bar(progress, total=len(by_layer), unit="recipes") as on_batch:
        for candidate in by_layer:
            scored[candidate] = trial.score(candidate)
            on_batch(1)
    return [scored[candidate] for candidate in candidates]


def widened(recipe: Recipe, *, static: bool) -> Recipe:
    """The recipe with a second vector beside it, if it has a map: the mean over all tokens beside the last token.

    Beside another pooling, and with `static`, whitened token embeddings, unless it is layer 0 or the model as shipped.
    """
    map_name, beside, dims = split_transform(recipe.transform)
    if map_name == "none" or beside:
        return recipe
    if recipe.pooling == "last":
        return replace(recipe, transform=with_dims(map_name + MEAN, dims))
    if not static or recipe.layer == 0 or recipe.shipped:
        return recipe
    return replace(recipe, transform=with_dims(map_name + STATIC, dims))


def with_second_vector(trial: ProbeVectors, scored: ScoredRecipe, *, static: bool) -> ScoredRecipe:
    """The recipe as it is used, with a second vector beside its own; see `widened`.

    Only data of the user judge a vector that is added here. The bundled sentences are short, and their decoys share
    words with the right answers, which misleads token embeddings much more than labelled tasks do: their scores stay
    those of the layer.
    """
    recipe = widened(scored.recipe, static=static)
    if recipe == scored.recipe:
        return scored
    both = trial.score(recipe)
    own_scores = {name: units for name, units in both.unit_scores.items() if is_own_data(name)}
    return ScoredRecipe(recipe, {**scored.unit_scores, **own_scores})
