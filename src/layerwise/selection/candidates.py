"""Candidates: recipes to choose from, and what every probe says of each, from the vectors of one pass."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from layerwise.accumulators.second_moment import SecondMoment
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.ops.transforms import fit_map
from layerwise.passes.vectors import pooled_vectors
from layerwise.recipe import Recipe
from layerwise.selection.probes import Floats, Probe


@dataclass(frozen=True)
class Scored:
    """A recipe and each probe's numbers, one a unit."""

    recipe: Recipe
    units: dict[str, Floats]

    def mean(self, probe: str) -> float:
        return float(self.units[probe].mean())


def usual_last(network: Network) -> Recipe:
    """What people use today: the last layer, normed where there is a norm, mean over all tokens."""
    return Recipe(network.depth, "raw" if network.anatomy.final_norm is None else "normed")


def layer_candidates(
    network: Network, tokens: Sequence[str] = ("all",), transforms: Sequence[str] = ("none",)
) -> list[Recipe]:
    """Every layer as transformers gives it (the last one normed), with each choice of tokens and each map."""
    at = [*(Recipe(layer) for layer in range(network.depth)), usual_last(network)]
    return [replace(r, tokens=t, transform=m) for m in transforms for t in tokens for r in at]


def score_candidates(
    network: Network, candidates: Sequence[Recipe], probes: Sequence[Probe], fit: Sequence[str], *, max_length: int
) -> list[Scored]:
    """All probes of all candidates, with one pass over the texts; maps are fitted on `fit`, without labels."""
    texts = list(dict.fromkeys([*(text for probe in probes for text in probe.texts), *fit]))
    place = {text: i for i, text in enumerate(texts)}
    readouts = list(dict.fromkeys(candidate.at for candidate in candidates))
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    vectors = pooled_vectors(network, examples, readouts, max_length=max_length)
    scored = []
    for at in readouts:
        rows = vectors[at].double()
        kept = SecondMoment(network.width)
        kept.update(rows[[place[text] for text in fit]])
        for candidate in candidates:
            if candidate.at == at:
                mapped = fit_map(candidate.transform, *kept.summed())(rows).numpy()
                units = {p.name: p.score(mapped[[place[text] for text in p.texts]]) for p in probes}
                scored.append(Scored(candidate, units))
    order = {candidate: i for i, candidate in enumerate(candidates)}
    return sorted(scored, key=lambda s: order[s.recipe])
