"""pick: recommend a layer or recipe."""

import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pandas as pd

from layerwise.core.checks import Choices
from layerwise.core.errors import InputError
from layerwise.core.options import changed_options
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import announcements
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.inputs.tables import read_table
from layerwise.inputs.text import demo_sentences
from layerwise.models.load import DEFAULT_MAX_LENGTH
from layerwise.models.opening import input_kind_of_model, load_recorded_model, open_network, resolve_max_length
from layerwise.models.spec import ModelLike
from layerwise.runs.folder import Run, is_run
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.api import export as export_model
from layerwise.verbs.export.run import require_new_folder
from layerwise.verbs.pick.labels import label_probe
from layerwise.verbs.pick.options import PickOptions, Prefer, pick_record, templates_to_try
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.rules import Rule
from layerwise.verbs.pick.run import BUNDLED, pick_by_rule, pick_recipe
from layerwise.verbs.shrink.static_models import static_model_of

MAX_TEXTS = 1000  # texts; more hardly change maps and probes


def pick(
    run: ModelLike | Run | LayerTable,
    fit: DataLike | None = None,
    *,
    labels: str | Path | pd.DataFrame | None = None,
    rule: str | Rule | None = None,
    prefer: Prefer = "quality",
    templates: Choices | None = None,
    layer_only: bool = False,
    static: bool = True,
    servable: bool = False,
    dims: int | None = None,
    compare_static: bool = False,
    model: ModelLike | None = None,
    max_length: int | None = None,
    seed: int = 0,
    export: str | Path | None = None,
    progress: bool = False,
) -> Pick:
    """Chooses a layer or recipe, and reports the evidence; it may recommend keeping the last layer.

    The model runs once over a small bundled set of test sentences. Three probes score every layer on that set, as it
    is and with linear maps fitted on other bundled texts. For a causal language model that ships no pooling, the last
    token of a text in a template is tried as well. With `rule`, the rule decides from the table of a scan and no model
    runs.

    Args:
        run: a model (hub id, folder, ModelSpec or object), or a run of `scan` or `eval` (folder or table).
        fit: texts of many kinds to fit linear maps on, instead of the bundled ones: a list, a file, or what
            `layerwise.texts` returns. Up to 1,000 are used. Texts of one kind make worse maps: what they differ in is
            removed.
        labels: a few labels of your own task as one more probe: a table, or a .csv, .jsonl or .parquet file, with
            the columns text,label or text1,text2,score; 16 rows at least. A class with a single text is left out.
        rule: a rule over the run's table, such as `depth:80%` or `min:dime`, or a Rule of your own.
        prefer: `quality` takes the candidate that scores best; `fast` takes the lowest layer that scores the same as
            that one within noise.
        templates: templates to try with the last token: a name such as "prompteol", a text with `{text}`, or several;
            "none" for none. By default prompteol, for a causal language model that ships no pooling.
        layer_only: choose a layer as it is, without a linear map, and without a template unless one is given.
        static: put whitened token embeddings beside a layer that has a map and no template. This doubles the width of
            the vectors.
        servable: choose among recipes that plain embedding servers can compute (see docs/serve.md): layers after the
            final norm, one pooling, at most one map. What this costs on the probes is reported.
        dims: how many dimensions the vectors have: that many principal directions are kept, and what this costs on the
            probes is reported. By default all.
        compare_static: also score the static model that `shrink(..., method="static")` makes, which runs no block. It
            is fitted on the same texts. The answer stays the same.
        model: the model to run, if the run's model was moved or renamed.
        max_length: longest input in tokens; by default 512, or the model's own limit if that is lower.
        seed: seed of everything random.
        export: also write the answer to this folder, as `export` does, with the model loaded once. Nothing is written
            where the last layer should be kept; a warning says so.
        progress: show progress bars on standard error.

    Returns:
        A Pick: the recipe, its gain over the last layer with a 95 % interval, and the table of all layers. `export`
        takes it as it is; `save` writes it to a folder.

    Raises:
        InputError: if the labels, the rule or an option cannot be used, or the run is of another model.

    Example:
        >>> found = layerwise.pick(model, max_length=32)
        >>> 0 <= found.recipe.layer <= found.last.layer
        True
        >>> faster = layerwise.pick(model, max_length=32, prefer="fast")
        >>> faster.recipe.layer <= found.recipe.layer
        True
    """
    options = PickOptions(
        fit=fit, labels=labels, rule=rule, prefer=prefer, templates=templates, layer_only=layer_only, static=static,
        servable=servable, dims=dims, compare_static=compare_static, model=model, max_length=max_length, seed=seed,
        export=export, progress=progress,
    )  # fmt: skip
    if export is not None:
        require_new_folder(export)
    opened = Run.open(run) if is_run(run) else None
    if rule is not None:
        if opened is None:
            raise InputError("a rule needs a run of scan; without rule= (--rule), the probes choose a layer of a model")
        if unused := changed_options(options, exclude=("rule", "progress")):
            names = ", ".join(unused)
            raise InputError(
                f"a rule reads the table of a run and nothing else, so it makes no use of {names}: leave that out, or "
                "leave rule= (--rule) out"
            )
        return replace(pick_by_rule(opened.table, rule), options=pick_record(options, run=run))
    if opened is None and (kind := input_kind_of_model(run if model is None else model)) != "text":
        noun = "audio" if kind == "audio" else "images"
        raise InputError(f"pick works on texts only, but this model takes {noun}; choose a layer of a scan with a rule")
    name, fitting_texts = BUNDLED, demo_sentences()
    if fit is not None:
        source = open_source(fit)
        options = replace(options, fit=source)  # recorded as it was opened
        # A fair sample, unless the whole data set would have to be downloaded for it.
        chosen = islice(source, MAX_TEXTS) if source.remote else source.sample(MAX_TEXTS)
        name, fitting_texts = source.name, [example.text for example in chosen]
    table = read_table(labels) if isinstance(labels, str | Path) else labels
    probe = None if table is None else label_probe(table, seed)  # raises before weights load
    with announcements(progress):
        if opened is not None:
            network = load_recorded_model(opened.table.require_model(), model)
        else:
            network = open_network(run if model is None else model)
        require_tokenizer(network.preprocessor, "pick")
        static_model = static_model_of(network, fitting_texts, progress=progress) if compare_static else None
        result = pick_recipe(
            network, fitting_texts, labels=probe, prefer=prefer,
            templates=None if templates is None else templates_to_try(templates), layer_only=layer_only, static=static,
            servable=servable, dims=dims, static_model=static_model,
            max_length=resolve_max_length(max_length, network, default_limit=DEFAULT_MAX_LENGTH), name=name,
            progress=progress,
        )  # fmt: skip
    if max_length is None and result.keep_last:  # the model as shipped, with its own max_length
        result = replace(result, recipe=replace(result.recipe, max_length=None))
    result = replace(result, options=pick_record(options, run=run))
    if export is not None and result.keep_last:
        warnings.warn("the last layer should be kept, so nothing was exported", stacklevel=2)
    elif export is not None:
        export_model(network, result, export, progress=progress)
    return result
