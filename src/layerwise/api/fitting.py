"""What export was given, as one fitted recipe: a layer, a recipe, an answer of pick, or a fitted recipe as it is."""

from dataclasses import replace
from typing import Any

from layerwise.accumulators.second_moment import moments_of_rows
from layerwise.api.reading import fitting_texts
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import open_source
from layerwise.maps.fitted import FittedOn, FittedRecipe, fingerprint_of_texts
from layerwise.maps.linear import LinearMap, fit_maps
from layerwise.models.network import Network
from layerwise.models.opening import longest, same_model
from layerwise.passes.recipes import rows_of_parts
from layerwise.runs.folder import Run, is_run
from layerwise.selection.pick import Pick
from layerwise.sweep.moments import moments_of


def recipe_for(network: Network, given: Recipe | Pick | FittedRecipe) -> Recipe:
    """The plain recipe, with its length in tokens filled in; raises where it was made for another model."""
    if isinstance(given, Pick):
        given.require_same_model(network)
    ready = ready_recipe(given)
    if ready is not None and not same_model(network, ready.model):
        ready.require_model(network.identity())
    recipe = given if isinstance(given, Recipe) else given.recipe
    return replace(recipe, max_length=longest(recipe.max_length, network))


def fit_recipe(network: Network, given: Recipe | Pick | FittedRecipe, recipe: Recipe, fit: Any) -> FittedRecipe:
    """The recipe with its map: the one that was given with it, unless there is something to fit it on."""
    model = network.identity()
    if recipe.transform == "none":
        return FittedRecipe(recipe, model)
    if fit is None and (ready := ready_recipe(given)) is not None:
        return replace(ready, recipe=recipe)
    if is_run(fit):
        return FittedRecipe(recipe, model, *fit_on_scan(network, recipe, Run.open(fit)))
    return FittedRecipe(recipe, model, *fit_on_texts(network, recipe, fit))


def ready_recipe(given: Recipe | Pick | FittedRecipe) -> FittedRecipe | None:
    """The weights that came with a recipe, if they did; those of an answer that was changed since are not its own."""
    if isinstance(given, Pick):
        return given.fitted if given.fitted is not None and given.fitted.recipe == given.recipe else None
    return given if isinstance(given, FittedRecipe) else None


def fit_on_texts(network: Network, recipe: Recipe, fit: Any) -> tuple[tuple[LinearMap, ...], FittedOn]:
    """The maps of the recipe's parts, fitted without labels on the texts of a source."""
    if isinstance(fit, str) and fit == "task":
        raise InputError("fit `task` is for eval, which has tasks; pass texts of your own kind to --fit")
    texts = fitting_texts(fit, [recipe])
    rows = rows_of_parts(network, recipe, texts, longest(recipe.max_length, network))
    maps = fit_maps([(word, moments_of_rows(r)) for (_, word), r in zip(recipe.parts, rows, strict=True)])
    return maps, FittedOn("texts", open_source(fit).name, fingerprint_of_texts(texts), len(texts))


def fit_on_scan(network: Network, recipe: Recipe, run: Run) -> tuple[tuple[LinearMap, ...], FittedOn]:
    """The maps of the recipe's parts, from the second moments that a scan kept."""
    if run.kind != "scan":
        raise InputError(f"{run.place} is not a scan; --fit takes texts, or the folder of a scan of this model")
    length, data = longest(recipe.max_length, network), run.table.data
    kept = [(word, moments_of(run, network, at, length, recipe.prompt)) for at, word in recipe.parts]
    (_, (count, _, _)), *_ = kept
    name, fingerprint = (data.name, data.fingerprint) if data else (run.place, "")
    return fit_maps(kept), FittedOn("scan", name, fingerprint, count)
