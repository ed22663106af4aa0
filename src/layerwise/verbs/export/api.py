"""export: save a layer or recipe as a smaller standalone model, by default for sentence-transformers."""

import warnings
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.core.checks import ExportMode, with_dims
from layerwise.core.display import command_line
from layerwise.core.errors import InputError
from layerwise.core.options import takes
from layerwise.core.preprocessors import InputKind, require_tokenizer
from layerwise.core.progress import announce, announcements
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.maps.fitted import AnyRecipe, FittedRecipe, plain_recipe
from layerwise.models.network import Network
from layerwise.models.opening import (
    input_kind_of_model,
    is_recorded_model,
    model_info_and_dtype,
    open_network,
    resolve_max_length,
)
from layerwise.models.quantized import require_ordinary_weights
from layerwise.models.readouts import expand_layers, readout_choices, separate_last
from layerwise.models.servable import require_servable
from layerwise.models.spec import ModelLike, ModelSpec
from layerwise.runs.folder import Run, is_run
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.agreement import DEMO_TEXTS, MOST_TEXTS, ComparedTexts
from layerwise.verbs.export.backends.backend import Backend
from layerwise.verbs.export.backends.catalog import find_backend
from layerwise.verbs.export.backends.sentence_transformers.backend import SentenceTransformersBackend
from layerwise.verbs.export.chosen import ChosenRecipe
from layerwise.verbs.export.fitting import fit_recipe
from layerwise.verbs.export.options import ExportOptions
from layerwise.verbs.export.run import export_fitted, require_new_folder
from layerwise.verbs.probe.heads import Classifier


@takes(ExportOptions)
def export(options: ExportOptions) -> Any:
    """Writes a layer or recipe of a text or image model as a folder that plain `SentenceTransformer(path)` loads.

    The folder is loaded again and compared with the vectors that `scan` measures, and for `last` with those of the
    original model. It is kept only if they are the same up to rounding. How much the vectors agree with those of the
    original model is measured as well; quality on a task is not. `layerwise.json` in the folder is the certificate,
    `README.md` the model card.

    Returns:
        The exported model, loaded on the CPU: a SentenceTransformer, or what the backend loads.

    Raises:
        InputError: `out` exists, options contradict one another, or a Pick recommends keeping the last layer.
        ExportError: this model cannot be exported that way, or the vectors differ; nothing is written.

    Example:
        >>> small = layerwise.export(model, 2, folder / "small", texts=texts)
        >>> small.encode(["a text"]).shape
        (1, 32)
    """
    require_new_folder(options.out)
    model, layer, why = options.model, options.layer, options.why
    fit = fit_to_use(layer, options.transform, options.fit)
    target, kind = find_backend(options.format), input_kind_of_model(model)
    if kind == "image":
        require_exportable_images(target, fit, servable=options.servable)
    compared = texts_to_compare(options.texts, kind)
    mode: ExportMode = "compact" if options.servable else options.mode  # a servable layer needs no further block
    asked = numbered_recipe(layer, options) if isinstance(layer, int | str) else None
    with announcements(options.progress):
        network = open_network(model)
        require_ordinary_weights(network.module.config, network.name, "export")
        if kind != "image":
            require_tokenizer(network.preprocessor, "export")
        recipe: AnyRecipe
        classifier = layer if isinstance(layer, Classifier) else None
        if classifier is not None:
            recipe = classifier.recipe
            require_classifier_model(classifier, network)
        elif isinstance(layer, ChosenRecipe):
            recipe, why = layer.recipe_for(network), why or f"{layer.rule}: {'; '.join(layer.why)}"
            require_lower_layer(layer, model)
        elif isinstance(layer, Recipe | FittedRecipe):
            recipe = layer
        else:
            assert asked is not None
            recipe = asked
        if fit is not None:
            announce(f"fitting the map {plain_recipe(recipe).transform}")
        if options.servable:
            require_servable(network, plain_recipe(recipe))
        fitted = fit_recipe(network, recipe, fit, partial(target.check_supported, network, mode=mode))
        table = recipe_scores(options.scores, fitted) if options.scores is not None else None
        announce(f"saving layer {fitted.recipe.layer} of {network.depth}")
        return export_fitted(
            network, fitted, Path(options.out), backend=target, compared=compared, mode=mode, why=why, scores=table,
            classifier=classifier,
        )  # fmt: skip


def require_classifier_model(classifier: Classifier, network: Network) -> None:
    """Raises if the head was trained on the vectors of another model."""
    if not is_recorded_model(network, classifier.model):
        raise InputError(
            f"the probe was trained on {classifier.model.name} with other weights, config or tokenizer than "
            f"{network.name}; run probe again"
        )


def numbered_recipe(layer: int | str, options: ExportOptions) -> Recipe:
    """The recipe of a layer given by its number, depth or `last`; raises before weights are loaded."""
    info, _ = model_info_and_dtype(options.model)
    # `last` is read as shipped, whatever the template
    template = options.template if separate_last(layer)[0] is not None else None
    choices = readout_choices(options.norm, options.tokens, options.pooling, template)
    (recipe,) = expand_layers(info, layer, choices)
    resolve_max_length(options.max_length, info)  # raises if it is too long
    recipe = replace(
        recipe,
        transform=with_dims(options.transform, options.dims),
        normalize=options.normalize,
        max_length=options.max_length,
    )
    return recipe if options.template is None else replace(recipe, template=options.template)


def name_of(model: ModelLike) -> str:
    """What a message calls the model: its name where one was given, else its class."""
    if isinstance(model, str | Path | ModelSpec | Network):
        return str(model.name if isinstance(model, ModelSpec | Network) else model)
    return f"the {type(model).__name__}"


def require_lower_layer(pick: ChosenRecipe, model: ModelLike) -> None:
    """Raises where pick recommends the last layer: the export would be a full copy under another name."""
    if pick.keep_last:
        name = name_of(model)
        faster = command_line(["layerwise", "pick", name, "--prefer", "fast"])
        raise InputError(
            f"pick recommends keeping the last layer: an export would be a full copy of {name}. Use {name} itself; "
            f"--layer last (layer='last') makes a copy anyway; `{faster}` looks "
            "for a faster layer"
        )


def fit_to_use(layer: Any, transform: str, fit: DataLike | None) -> Any:
    """What the map is fitted on, or None; says so where `fit` was given and has no effect.

    The answer of pick is not known beforehand, so there it is a warning; elsewhere it is an error.
    """
    if fit is None:
        return None
    if isinstance(layer, ChosenRecipe):
        if layer.recipe.transform == "none":
            warnings.warn(
                f"pick chose layer {layer.recipe.layer} without a linear map; --fit is not needed", stacklevel=4
            )
            return None
        if layer.fitted is not None and layer.fitted.recipe == layer.recipe:
            warnings.warn("the map saved with the pick is used; --fit is not needed", stacklevel=4)
            return None
    elif isinstance(layer, Recipe | FittedRecipe):
        if plain_recipe(layer).transform == "none":
            raise InputError(
                "the recipe has no linear map (transform none), so there is nothing to fit; leave --fit (fit=) out, or "
                'name a map in the recipe, such as "transform": "remove_top:3"'
            )
    elif isinstance(layer, Classifier):
        raise InputError("a classifier needs no map; leave --fit (fit=) out")
    elif transform == "none":
        raise InputError(
            "there is no linear map to fit: add one, such as --transform remove_top:3 (transform=), or leave --fit "
            "(fit=) out"
        )
    return fit


def require_exportable_images(target: Backend, fit: DataLike | None, *, servable: bool) -> None:
    """Raises for what works with text models only."""
    if target.name != SentenceTransformersBackend.name:
        raise InputError(f"image models are exported for sentence-transformers only, not as {target.name}")
    if servable:
        raise InputError("embedding servers read texts; leave --servable (servable=) out for an image model")
    if fit is not None and not is_run(fit):
        raise InputError("the map of an image model is fitted on a scan; pass its folder to --fit (fit=)")


def texts_to_compare(texts: DataLike, kind: InputKind = "text") -> ComparedTexts:
    """What to compare with the original model on: 120 of the demo texts, or up to 500 of the user's own.

    There are no demo images: made-up ones show that an export is faithful, but not how alike two models are.
    """
    if kind == "image":
        if isinstance(texts, str) and texts == "demo":
            return ComparedTexts([], "no images")
        images = open_source(texts, kind)
        return ComparedTexts([example.payload for example in images.sample(MOST_TEXTS)], images.name)
    source = open_source(texts)
    name, demo = source.name, source.name == "demo"
    if not demo and not source.remote:  # a fair sample; of a hub data set, which would be downloaded whole, the first
        source = source.sample(MOST_TEXTS)
    chosen = islice(source, DEMO_TEXTS if demo else MOST_TEXTS)
    return ComparedTexts([example.text for example in chosen], name)


def recipe_scores(run: Run | LayerTable | str | Path, fitted: FittedRecipe) -> LayerTable:
    """The scores of this recipe and model in a run of eval; raises where it has none."""
    opened = Run.open(run)
    if opened.kind != "eval":
        raise InputError(f"{opened.location} is a {opened.kind}, not an eval; --scores takes an eval of this model")
    if not fitted.model.same_as(opened.table.require_model()):
        raise InputError(f"{opened.location} is an eval of another model than {fitted.model.name}; leave --scores out")
    fit = fitted.fitted_on.fingerprint if fitted.fitted_on else ""
    rows = [row for row in opened.table if is_score_of(row, fitted.recipe) and row.fit == fit]
    if not rows:
        raise InputError(
            f"{opened.location} has no score for this recipe and map; score it with eval --recipe, or omit --scores"
        )
    return LayerTable(tuple(rows), opened.table.run)


def is_score_of(row: LayerScore, recipe: Recipe) -> bool:
    """True if the row is a score of the recipe, regardless of what its map was fitted on."""
    return all(getattr(row, name) == value for name, value in asdict(recipe).items())
