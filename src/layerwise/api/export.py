"""export: a layer or recipe as a smaller model that plain sentence-transformers loads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.api.reading import fitting_texts, ways_to_read
from layerwise.api.runs import as_table
from layerwise.core.checks import ExportMode, PoolingWord, ReadoutWord, TokenChoice
from layerwise.core.files import has_file
from layerwise.core.recipe import Recipe
from layerwise.exporter.run import export_recipe, fit_on_texts, require_new
from layerwise.maps.linear import fit_maps
from layerwise.models.opening import longest, open_network
from layerwise.models.readouts import expand_layers
from layerwise.options.export import ExportOptions
from layerwise.selection.pick import Pick
from layerwise.sweep.moments import moments_of


def export(
    model: Any,
    layer: int | str | Recipe | Pick,
    out: str | Path,
    *,
    readout: ReadoutWord = "raw",
    tokens: TokenChoice = "all",
    pooling: PoolingWord | None = None,
    transform: str = "none",
    fit: Any = None,
    normalize: bool = False,
    prompt: str | None = None,
    mode: ExportMode = "portable",
    max_length: int | None = None,
    why: str = "",
    scores: Any = None,
) -> Any:
    """That layer, Recipe or Pick as a folder which plain `SentenceTransformer(path)` loads; returns it loaded.

    `last` is the model as shipped; a layer number is pooled as the model itself pools, and its texts get the model's
    own prompt, unless `pooling` and `prompt` say otherwise. Vectors are compared with those that `scan` measures, and
    for `last` with those of the original model, before the folder is kept. `transform` is a linear map
    fitted without labels on the texts of `fit`, such as remove_top:3 or whiten; `fit` may also be the folder of a
    scan that kept the second moments of that layer; a Pick fresh from `pick` has its map already. `scores`, a run of
    `evaluate`, go into the model card.
    """
    ExportOptions(
        readout=readout, tokens=tokens, pooling=pooling, transform=transform, fit=fit, normalize=normalize,
        prompt=prompt, mode=mode, max_length=max_length, why=why, scores=scores,
    )
    require_new(out)
    network = open_network(model)
    if isinstance(layer, Pick):
        layer.require_same_model(network)
        recipe, why = layer.recipe, why or f"{layer.rule}: {'; '.join(layer.why)}"
    elif isinstance(layer, Recipe):
        recipe = layer
    else:
        (recipe,) = expand_layers(network, layer, ways_to_read(readout, tokens, pooling))
        recipe = replace(recipe, transform=transform, normalize=normalize, max_length=max_length)
        recipe = recipe if prompt is None else replace(recipe, prompt=prompt)
    length = longest(recipe.max_length, network)
    recipe = replace(recipe, max_length=length)
    ready = layer.map_for(network) if fit is None and isinstance(layer, Pick) else None
    if ready is not None:
        linear = ready
    elif recipe.transform != "none" and isinstance(fit, str | Path) and has_file(fit, "plan.json"):
        kept = [(word, moments_of(fit, network, at, length, recipe.prompt)) for at, word in recipe.parts]
        linear = fit_maps(kept)
    else:
        linear = fit_on_texts(network, recipe, fitting_texts(fit, [recipe]), length)
    table = as_table(scores) if scores is not None else None
    return export_recipe(network, recipe, linear, Path(out), max_length=length, mode=mode, why=why, scores=table)
