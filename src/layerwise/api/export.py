"""export: a layer or recipe as a smaller model of its own, by default one that plain sentence-transformers loads."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.api.fitting import fit_recipe
from layerwise.api.reading import ways_to_read
from layerwise.core.checks import ExportMode, NormWord, PoolingWord, TokenChoice
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.exporter.backends.backend import Backend
from layerwise.exporter.backends.catalog import find_backend
from layerwise.exporter.folder import require_new
from layerwise.exporter.run import export_fitted
from layerwise.maps.fitted import AnyRecipe, FittedRecipe
from layerwise.models.opening import open_network
from layerwise.models.readouts import expand_layers
from layerwise.options.export import ExportOptions
from layerwise.runs.folder import Run
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.selection.pick import Pick


def export(
    model: Any,
    layer: int | str | Recipe | Pick | FittedRecipe,
    out: str | Path,
    *,
    norm: NormWord = "raw",
    tokens: TokenChoice = "all",
    pooling: PoolingWord | None = None,
    transform: str = "none",
    fit: Any = None,
    normalize: bool = False,
    prompt: str | None = None,
    mode: ExportMode = "portable",
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
    ExportOptions(
        norm=norm,
        tokens=tokens,
        pooling=pooling,
        transform=transform,
        fit=fit,
        normalize=normalize,
        prompt=prompt,
        mode=mode,
        backend=backend,
        max_length=max_length,
        why=why,
        scores=scores,
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
        (read,) = expand_layers(network, layer, ways_to_read(norm, tokens, pooling))
        read = replace(read, transform=transform, normalize=normalize, max_length=max_length)
        given = read if prompt is None else replace(read, prompt=prompt)
    fitted = fit_recipe(network, given, fit, partial(target.require, network, mode=mode))
    table = scores_of(scores, fitted) if scores is not None else None
    return export_fitted(network, fitted, Path(out), backend=target, mode=mode, why=why, scores=table)


def scores_of(run: Any, fitted: FittedRecipe) -> LayerTable:
    """The scores of this very recipe and model in a run of eval; raises where it has none."""
    opened = Run.open(run)
    if opened.kind != "eval":
        raise InputError(f"{opened.place} is not an eval; --scores takes one, of this model and recipe")
    if not fitted.model.same_as(opened.table.require_model()):
        raise InputError(f"{opened.place} is of another model than {fitted.model.name}; leave --scores out")
    fit = fitted.fitted_on.fingerprint if fitted.fitted_on else ""
    found = [row for row in opened.table if is_of(row, fitted.recipe) and row.fit == fit]
    if not found:
        raise InputError(
            f"{opened.place} has no score of this recipe with this map; score it with --recipe, or leave --scores out"
        )
    return LayerTable(tuple(found), opened.table.run)


def is_of(row: LayerScore, recipe: Recipe) -> bool:
    """True if the row is a score of the recipe, whatever its map was fitted on."""
    return all(getattr(row, name) == value for name, value in asdict(recipe).items())
