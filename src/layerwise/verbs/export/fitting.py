"""A recipe fitted for a model: on texts, from the second moments of a scan, or with the map that it already has."""

from collections.abc import Callable
from dataclasses import replace

from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import open_source, texts_to_fit
from layerwise.inputs.source import DataLike
from layerwise.maps.fitted import AnyRecipe, FittedOn, FittedRecipe, plain_recipe, texts_fingerprint
from layerwise.maps.linear import LinearMap, fit_maps, fit_parts, reduce_dims
from layerwise.models.network import Network
from layerwise.models.opening import is_recorded_model, resolve_max_length
from layerwise.passes.vectors import part_rows
from layerwise.runs.folder import Run, is_run
from layerwise.verbs.scan.state import scan_moments


def fit_recipe(
    network: Network, given_recipe: AnyRecipe, fit: DataLike | None, check_supported: Callable[[Recipe], None]
) -> FittedRecipe:
    """The recipe with its length in tokens and its map: fitted on `fit` if that is given, else the map that it has.

    `check_supported` raises for a recipe that cannot be used; it is called before anything is computed. Also raises if
    the recipe was fitted for another model.
    """
    model = network.identity()
    if isinstance(given_recipe, FittedRecipe) and not is_recorded_model(network, given_recipe.model):
        given_recipe.require_model(model)
    plain = plain_recipe(given_recipe)
    recipe = replace(plain, max_length=resolve_max_length(plain.max_length, network))
    check_supported(recipe)
    if recipe.transform == "none":
        return FittedRecipe(recipe, model)
    if fit is None and isinstance(given_recipe, FittedRecipe):
        return replace(given_recipe, recipe=recipe)
    if is_run(fit):
        return FittedRecipe(recipe, model, *fit_on_scan(network, recipe, Run.open(fit)))
    return FittedRecipe(recipe, model, *fit_on_texts(network, recipe, fit))


def fit_on_texts(network: Network, recipe: Recipe, fit: DataLike | None) -> tuple[tuple[LinearMap, ...], FittedOn]:
    """The maps of the recipe's parts, fitted without labels on the texts of a source."""
    if isinstance(fit, str) and fit == "task":
        raise InputError("fit `task` is for eval, which has tasks; pass texts of your own kind instead (--fit FILE)")
    source = None if fit is None else open_source(fit)  # opened once: a generator can be read only once
    texts = texts_to_fit(source, [recipe])
    rows = part_rows(network, recipe, texts, resolve_max_length(recipe.max_length, network))
    maps = fit_parts([(map_name, r) for (_, map_name), r in zip(recipe.parts, rows, strict=True)], recipe.dims)
    assert source is not None  # texts_to_fit raises without texts
    return maps, FittedOn("texts", source.name, texts_fingerprint(texts), len(texts))


def fit_on_scan(network: Network, recipe: Recipe, run: Run) -> tuple[tuple[LinearMap, ...], FittedOn]:
    """The maps of the recipe's parts, from the second moments stored by a scan."""
    if run.kind != "scan":
        raise InputError(f"{run.location} is not a scan; pass texts or a scan folder of this model to --fit")
    if recipe.dims is not None and len(recipe.parts) > 1:
        raise InputError(
            f"a scan keeps nothing of two vectors together, which {recipe.transform} needs; pass texts to --fit"
        )
    length, data = resolve_max_length(recipe.max_length, network), run.table.data
    moments = [
        (map_name, scan_moments(run, network, readout, length, recipe.template)) for readout, map_name in recipe.parts
    ]
    (_, first), *_ = moments
    name, fingerprint = (data.name, data.fingerprint) if data else (run.location, "")
    maps = fit_maps(moments)
    if recipe.dims is not None:
        maps = reduce_dims(maps, first, recipe.dims)
    return maps, FittedOn("scan", name, fingerprint, first[0])
