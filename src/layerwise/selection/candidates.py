"""Candidates: recipes to choose from, and the scores of each by every probe, from the vectors of one pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import torch
from torch import Tensor

from layerwise.accumulators.second_moment import moments_of_rows
from layerwise.core.checks import STATIC, TokenChoice
from layerwise.core.progress import progress_bar
from layerwise.core.recipe import Readout, Recipe
from layerwise.inputs.source import Example
from layerwise.maps.linear import LinearMap, Moments, concatenate_maps, fit_maps
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe, layer_recipe
from layerwise.passes.vectors import pooled_vectors
from layerwise.selection.probes import LABEL_PROBE_PREFIX, Floats, Probe


@dataclass(frozen=True)
class ScoredRecipe:
    """A recipe and its scores by each probe, one per unit."""

    recipe: Recipe
    unit_scores: dict[str, Floats]

    def mean(self, probe: str) -> float:
        return float(self.unit_scores[probe].mean())


def layer_candidates(
    network: Network, tokens: Sequence[TokenChoice] = ("all",), transforms: Sequence[str] = ("none",)
) -> list[Recipe]:
    """Every layer with the model's pooling, and the model as shipped, with each token choice and map."""
    pooling = network.shipped.pooling_choice or "mean" if network.shipped else "mean"
    base = layer_recipe(network, pooling)
    readouts = [*(replace(base, layer=layer) for layer in range(network.depth)), baseline_recipe(network)]
    return [replace(r, tokens=t, transform=m) for m in transforms for t in tokens for r in readouts]


@dataclass
class ProbeVectors:
    """The vectors of one pass over the probes' texts and the texts that maps are fitted on; it can score any recipe."""

    probes: Sequence[Probe]
    fit: Sequence[str]
    index: Mapping[str, int]
    vectors: Mapping[Readout, Tensor]
    moments_cache: dict[Readout, Moments] = field(default_factory=dict)

    def score(self, recipe: Recipe) -> ScoredRecipe:
        """The scores of the recipe by every probe, with its map fitted here."""
        rows = torch.cat([self.vectors[readout] for readout, _ in recipe.parts], dim=1).double()
        mapped = (rows if recipe.transform == "none" else concatenate_maps(self.maps(recipe))(rows)).numpy()
        return ScoredRecipe(
            recipe, {p.name: p.score(mapped[[self.index[text] for text in p.texts]]) for p in self.probes}
        )

    def maps(self, recipe: Recipe) -> tuple[LinearMap, ...]:
        """The maps of the recipe's parts, fitted on the fitting texts."""
        return fit_maps([(transform, self.moments(readout)) for readout, transform in recipe.parts])

    def moments(self, readout: Readout) -> Moments:
        if readout not in self.moments_cache:
            self.moments_cache.clear()  # keep one at a time: a large model has dozens of D x D matrices
            rows = self.vectors[readout][[self.index[text] for text in self.fit]]
            self.moments_cache[readout] = moments_of_rows(rows.double())
        return self.moments_cache[readout]


def compute_probe_vectors(
    network: Network,
    readouts: Iterable[Readout],
    probes: Sequence[Probe],
    fit: Sequence[str],
    *,
    max_length: int,
    progress: bool = False,
) -> ProbeVectors:
    """One pass over all texts that the probes need or maps are fitted on, each with the model's own prompt."""
    texts = list(dict.fromkeys([*(text for probe in probes for text in probe.texts), *fit]))
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    with progress_bar(progress, total=len(examples), unit="texts") as on_batch:
        wanted = list(dict.fromkeys(readouts))
        vectors = pooled_vectors(
            network,
            examples,
            wanted,
            max_length=max_length,
            template=baseline_recipe(network).template,
            on_batch=on_batch,
        )
    return ProbeVectors(probes, fit, {text: i for i, text in enumerate(texts)}, vectors)


def score_candidates(
    trial: ProbeVectors, candidates: Sequence[Recipe], *, progress: bool = False
) -> list[ScoredRecipe]:
    """The probe scores of all candidates, in order."""
    by_layer = sorted(candidates, key=lambda candidate: astuple(candidate.readout))
    scored = {}
    with progress_bar(progress, total=len(by_layer), unit="recipes") as on_batch:
        for candidate in by_layer:
            scored[candidate] = trial.score(candidate)
            on_batch(1)
    return [scored[candidate] for candidate in candidates]


def with_static_embeddings(trial: ProbeVectors, scored: ScoredRecipe) -> ScoredRecipe:
    """The recipe with whitened token embeddings added, if it has a map and is not layer 0.

    Only labels judge them. The decoys of the bundled probes share words with the right answers, which misleads token
    embeddings much more than labelled tasks do, so those scores stay the scores of the layer alone.
    """
    recipe = scored.recipe
    if recipe.transform == "none" or recipe.layer == 0 or recipe.shipped:
        return scored
    with_static = trial.score(replace(recipe, transform=recipe.transform + STATIC))
    label_scores = {
        name: units for name, units in with_static.unit_scores.items() if name.startswith(LABEL_PROBE_PREFIX)
    }
    return ScoredRecipe(with_static.recipe, {**scored.unit_scores, **label_scores})
