"""export: a layer or recipe as a smaller model of its own, by default one that plain sentence-transformers loads."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.api.fitting import fit_recipe
from layerwise.api.reading import ways_to_read
from layerwise.api.runs import as_table
from layerwise.core.checks import require_options
from layerwise.core.recipe import Recipe
from layerwise.exporter.backends.backend import Backend
from layerwise.exporter.backends.catalog import find_backend
from layerwise.exporter.folder import require_new
from layerwise.exporter.run import export_fitted
from layerwise.maps.fitted import AnyRecipe, FittedRecipe
from layerwise.models.opening import open_network
from layerwise.models.readouts import expand_layers
from layerwise.selection.pick import Pick


def export(
    model: Any,
    layer: int | str | Recipe | Pick | FittedRecipe,
    out: str | Path,
    *,
    readout: str = "raw",
    tokens: str = "all",
    pooling: str | None = None,
    transform: str = "none",
    fit: Any = None,
    normalize: bool = False,
    prompt: str | None = None,
    mode: str = "portable",
    backend: str | Backend = "sentence_transformers",
    max_length: int | None = None,
    why: str = "",
    scores: Any = None,
) -> Any:
    """That layer, Recipe, Pick or FittedRecipe as a folder which plain `SentenceTransformer(path)` loads.

    Returns the exported model, loaded. `last` is the model as shipped; a layer number is pooled as the model itself
    pools, and its texts get the model's own prompt, unless `pooling` and `prompt` say otherwise. Vectors are compared
    with those that `scan` measures, and for `last` with those of the original model, before the folder is kept.
    `transform` is a linear map fitted without labels on the texts of `fit`, such as remove_top:3 or whiten; `fit` may
    also be the folder of a scan that kept the second moments of that layer. A FittedRecipe has its map already, and
    so does a Pick, fresh or saved. `backend` is the format: a word, or an object with the interface of
    `layerwise.exporter.backends.backend.Backend`. `scores`, a run of `evaluate`, go into the model card.
    """
    require_options(
        readout=readout, tokens=tokens, pooling=pooling, transform=transform, mode=mode, max_length=max_length
    )
    require_new(out)
    target = find_backend(backend)
    network = open_network(model)
    given: AnyRecipe
    if isinstance(layer, Pick):
        given, why = layer.deployed(network), why or f"{layer.rule}: {'; '.join(layer.why)}"
    elif isinstance(layer, Recipe | FittedRecipe):
        given = layer
    else:
        (read,) = expand_layers(network, layer, ways_to_read(readout, tokens, pooling))
        read = replace(read, transform=transform, normalize=normalize, max_length=max_length)
        given = read if prompt is None else replace(read, prompt=prompt)
    fitted = fit_recipe(network, given, fit, partial(target.require, network, mode=mode))
    table = as_table(scores) if scores is not None else None
    return export_fitted(network, fitted, Path(out), backend=target, mode=mode, why=why, scores=table)
