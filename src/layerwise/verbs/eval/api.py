"""eval: score every layer on mteb tasks or your own labelled data."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from layerwise.core.errors import InputError
from layerwise.core.files import open_folder
from layerwise.core.options import takes
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import GO_ON, announce, announcements, progress_bar
from layerwise.core.recipe import Recipe
from layerwise.core.templates import parse_template
from layerwise.engines.local import local_processes
from layerwise.engines.opening import default_threads, open_engine
from layerwise.engines.ray import RayEngine
from layerwise.inputs.modalities import texts_to_fit
from layerwise.maps.fitted import AnyRecipe, FittedRecipe, plain_recipe
from layerwise.models.opening import model_info_and_dtype, resolve_max_length
from layerwise.models.readouts import expand_layers, readout_choices
from layerwise.models.shipped import similarity_of
from layerwise.models.spec import call_record
from layerwise.runs.leases import sole_writer, while_held
from layerwise.runs.ownership import claim, require_usable
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.verbs.eval.forecast import forecast_lines
from layerwise.verbs.eval.options import EvaluateOptions
from layerwise.verbs.eval.run import run_evaluation
from layerwise.verbs.eval.tasks import choose_tasks


@takes(EvaluateOptions)
def eval(options: EvaluateOptions) -> LayerTable:
    """Scores every layer on MTEB tasks or on labelled data of your own, with one forward pass per text.

    mteb itself computes the scores.

    Returns:
        One row per task and layer: the task's name is the metric, the value is in points from 0 to 100. The model as
        shipped is a row of its own (norm "shipped" where it brings its own pooling, else the last layer, normed).

    Raises:
        InputError: a task, layer or option is unknown.
        ModelError: the model cannot be loaded.
        RunError: some tasks failed (all other scores are saved), or `out` holds a run of another model.

    Example:
        >>> import pandas as pd
        >>> pairs = pd.DataFrame({"sentence1": texts[:20], "sentence2": texts[20:], "score": range(20)})
        >>> task = layerwise.lab.data(folder / "tasks", "Mine", type="STS", test=pairs)
        >>> table = layerwise.eval(model, "all", data_root=folder / "tasks", out=folder / "scores")
        >>> sorted({score.layer for score in table})
        [0, 1, 2, 3]
    """
    threads = options.threads or default_threads(options.engine)
    chosen = choose_tasks(options.tasks, Path(options.data_root).absolute() if options.data_root else None)
    info, _ = model_info_and_dtype(options.model, static=True)
    require_tokenizer(info.preprocessor, "eval")
    given, max_length = options.recipes, options.max_length
    recipes_to_score: list[AnyRecipe] = [given] if isinstance(given, Recipe | FittedRecipe) else list(given)
    if not recipes_to_score:
        choices = readout_choices(options.norm, options.tokens, options.pooling, options.template)
        recipes_to_score += expand_layers(info, options.layers, choices, normed_last=True)
    else:
        plain_recipes = [plain_recipe(recipe) for recipe in recipes_to_score]
        require_one_length(plain_recipes, max_length)
        if len(lengths := {recipe.max_length for recipe in plain_recipes}) == 1:
            max_length = lengths.pop() or max_length
    as_shipped = any(plain_recipe(recipe).shipped for recipe in recipes_to_score)
    similarity = similarity_of(info.shipped) if as_shipped else ""
    require_templates_or_prompts([plain_recipe(recipe) for recipe in recipes_to_score], options.prompts)
    fitting_texts = texts_to_fit(options.fit, [recipe for recipe in recipes_to_score if isinstance(recipe, Recipe)])
    if "://" in str(options.out):
        raise InputError("eval memory-maps its vectors, so --out must be a folder on disk, not a URL")
    require_usable(open_folder(options.out), "eval")
    with ExitStack() as stack:
        stack.enter_context(announcements(options.progress))
        encoder = stack.enter_context(open_engine(options.engine, options.model, options.out))
        for fitted in recipes_to_score:
            if isinstance(fitted, FittedRecipe):
                fitted.require_model(encoder.identity)
        claim(open_folder(options.out), "eval")
        require_lease = stack.enter_context(sole_writer(open_folder(options.out)))
        announce(f"scoring {counted(len(recipes_to_score), 'readout')} on {counted(len(chosen), 'task')}")
        on_batch = stack.enter_context(progress_bar(options.progress, len(chosen) * len(recipes_to_score), "scores"))
        processes = encoder if isinstance(encoder, RayEngine) else stack.enter_context(local_processes(options.workers))
        try:
            return run_evaluation(
                encoder,
                processes,
                chosen,
                recipes_to_score,
                out=Path(options.out).absolute(),
                threads=threads,
                max_length=resolve_max_length(max_length, info),
                fit=fitting_texts,
                batch_tokens=options.batch_tokens,
                prompts=dict(options.prompts or {}),
                precision=options.precision,
                vectors=options.vectors,
                similarity=similarity,
                options=call_record("eval", options),
                on_score=lambda score: while_held(require_lease, on_batch)(1, 0),
            )
        except KeyboardInterrupt as stopped:
            stopped.add_note(GO_ON if holds_scores(Path(options.out)) else "nothing was kept (no score was finished)")
            raise


def holds_scores(out: Path) -> bool:
    """True if an earlier call left scores or vectors that a later one need not compute again."""
    return any(True for name in ("scores/*/*.json", "segment-*.safetensors") for _ in out.rglob(name))


def plan_evaluation(options: EvaluateOptions) -> list[str]:
    """The cost of `eval`, one line each: tasks, texts, unique texts, forward passes, disk. Loads no weights."""
    chosen = choose_tasks(options.tasks, options.data_root)
    info, _ = model_info_and_dtype(options.model, static=True)
    choices = readout_choices(options.norm, options.tokens, options.pooling, options.template)
    recipes = expand_layers(info, options.layers, choices, normed_last=True)
    templates = len({recipe.template for recipe in recipes})
    return forecast_lines(chosen, len(recipes), info.width, 4 if options.precision == "float32" else 2, templates)


def require_templates_or_prompts(recipes: Sequence[Recipe], prompts: Mapping[str, str] | None) -> None:
    """Raises if prompts would silently replace templates that have text after the input."""
    for recipe in recipes:
        if prompts and parse_template(recipe.template).after:
            raise InputError(
                f"prompts= would replace the template {recipe.template!r}, with its text after the input; leave out "
                "one of them"
            )


def require_one_length(recipes: Sequence[Recipe], max_length: int | None) -> None:
    """Raises if max_length differs from that of a recipe."""
    for recipe in recipes:
        if max_length is not None and recipe.max_length not in (None, max_length):
            raise InputError(
                f"the recipe of layer {recipe.layer} has max_length {recipe.max_length}, and {max_length} is asked "
                "for; leave out one of them"
            )
