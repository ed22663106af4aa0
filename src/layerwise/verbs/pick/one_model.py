"""One model or run: from the options of pick to its answer."""

import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

from layerwise.core.errors import InputError
from layerwise.core.options import changed_options
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import announcements
from layerwise.inputs.audio import AUDIO
from layerwise.inputs.media import Medium
from layerwise.inputs.modalities import MEDIA, kind_of, open_source
from layerwise.inputs.options import PairsLike
from layerwise.inputs.source import content_key
from layerwise.inputs.tables import read_table
from layerwise.inputs.text import demo_sentences
from layerwise.models.load import DEFAULT_MAX_LENGTH
from layerwise.models.network import Network
from layerwise.models.opening import input_kind_of_model, load_recorded_model, open_network, resolve_max_length
from layerwise.models.spec import ModelLike, ModelSpec
from layerwise.runs.folder import Run, is_run
from layerwise.verbs.export.api import export as export_model
from layerwise.verbs.export.run import require_new_folder
from layerwise.verbs.pick.candidates import MediaInputs
from layerwise.verbs.pick.fitness import require_readable, tokenizer_fit, warn_of_other_language
from layerwise.verbs.pick.labels import label_probe
from layerwise.verbs.pick.options import PickOptions, pick_record, templates_to_try
from layerwise.verbs.pick.partners import media_partner_probe, partner_probe
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.run import BUNDLED, pick_by_rule, pick_recipe
from layerwise.verbs.shrink.static_models import static_model_of

MAX_TEXTS = 1000  # texts; more hardly change maps and probes
TEXT_ONLY = ("labels", "language", "templates", "static", "servable", "compare_static")


def pick_one(options: PickOptions) -> Pick:
    """`pick` for one model or run."""
    if options.export is not None:
        require_new_folder(options.export)
        if any(isinstance(given, ModelSpec) and given.stream for given in (options.run, options.model)):
            raise InputError("a streamed model cannot be exported by pick: save the choice (--save) and export that")
    opened = Run.open(options.run) if is_run(options.run) else None
    if options.rule is not None:
        if opened is None:
            raise InputError("a rule needs a run of scan; without rule= (--rule), the probes choose a layer of a model")
        if unused := changed_options(options, exclude=("run", "rule", "progress")):
            names = ", ".join(unused)
            raise InputError(
                f"a rule reads the table of a run and nothing else, so it makes no use of {names}: leave that out, or "
                "leave rule= (--rule) out"
            )
        return replace(pick_by_rule(opened.table, options.rule), options=pick_record(options))
    if not options.early_stop:
        raise InputError("early_stop is about several models: leave it out, or pass several")
    model = options.model if options.model is not None else options.run
    if opened is None and (medium := MEDIA.get(input_kind_of_model(model))) is not None:
        return pick_for_media(options, cast(ModelLike, model), medium)
    name, fitting_texts = BUNDLED, demo_sentences()
    if options.fit is not None:
        source = open_source(options.fit)
        options = replace(options, fit=source)  # recorded as it was opened
        # A fair sample, unless the whole data set would have to be downloaded for it.
        chosen = islice(source, MAX_TEXTS) if source.remote else source.sample(MAX_TEXTS)
        name, fitting_texts = source.name, [example.text for example in chosen]
        if options.pairs is None:
            warn_of_other_language(fitting_texts, "--fit", options.language)
    table = read_table(options.labels) if isinstance(options.labels, str | Path) else options.labels
    probe = None if table is None else label_probe(table, options.seed)  # raises before weights load
    partners = None if options.pairs is None else partner_probe(cast(PairsLike, options.pairs), options.seed)
    if probe is not None and partners is None:
        warn_of_other_language(probe.texts, "--labels", options.language)
    with announcements(options.progress):
        if opened is not None:
            network = load_recorded_model(opened.table.require_model(), options.model, states_only=True)
            if (medium := MEDIA.get(kind_of(network.preprocessor))) is not None:
                raise InputError(
                    f"the model of this run takes {medium.noun}: choose by a rule (--rule), or pass the model itself "
                    "and pairs (--pairs)"
                )
        else:
            network = open_network(model, states_only=True)
        require_tokenizer(network.preprocessor, "pick")
        if partners is None:
            require_readable(network.tokenizer, network.name, options.language)
        elif options.fit is None and tokenizer_fit(network.tokenizer, fitting_texts).problems:
            fitting_texts = []  # a map fitted on texts that the model cannot read is worth nothing
        static_model = None
        if options.compare_static:
            if not fitting_texts:
                raise InputError(
                    "a static model is made from texts that the model can read: pass texts of yours (--fit)"
                )
            static_model = static_model_of(network, fitting_texts, progress=options.progress)
        result = pick_recipe(
            network,
            fitting_texts,
            labels=probe,
            pairs=partners,
            language=options.language,
            prefer=options.prefer,
            templates=None if options.templates is None else templates_to_try(options.templates),
            layer_only=options.layer_only,
            static=options.static,
            servable=options.servable,
            dims=options.dims,
            static_model=static_model,
            max_length=resolve_max_length(options.max_length, network, default_limit=DEFAULT_MAX_LENGTH),
            name=name,
            progress=options.progress,
        )
    return finished(options, network, result)


def pick_for_media(options: PickOptions, model: ModelLike, medium: Medium) -> Pick:
    """The same for a model that takes clips or images: pairs that belong together judge, and there is no template.

    Maps are fitted on clips or images of the user only.
    """
    noun, plural = medium.noun, medium.plural
    if options.pairs is None:
        raise InputError(
            f"this model takes {noun}, and layerwise has no {plural} to judge it: pass pairs of yours that belong "
            "together (--pairs FILE with paths in the columns query,document), or choose a layer of a scan with a rule"
        )
    if wrong := [name for name in changed_options(options) if name in TEXT_ONLY]:
        raise InputError(f"this model takes {noun}, and {', '.join(wrong)} can be used with texts only: leave that out")
    if options.export is not None and medium is AUDIO:
        raise InputError("speech models cannot be exported: leave export= (--export) out, and save the choice (--save)")
    pairs, payloads = media_partner_probe(options.pairs, medium, options.seed)
    name, fit = "", {}
    if options.fit is not None:
        source = open_source(options.fit, "audio" if medium is AUDIO else "image")
        options = replace(options, fit=source)  # recorded as it was opened
        chosen = islice(source, MAX_TEXTS) if source.remote else source.sample(MAX_TEXTS)
        found = {content_key(example.payload): example.payload for example in chosen}
        name, fit = source.name, {key: payload for key, payload in found.items() if key not in payloads}
        if not fit:
            raise InputError(f"{name}: all {plural} are in the pairs, and maps are fitted on others: leave --fit out")
    with announcements(options.progress):
        network = open_network(model, states_only=True)
        result = pick_recipe(
            network,
            [*fit],
            pairs=pairs,
            prefer=options.prefer,
            layer_only=options.layer_only,
            dims=options.dims,
            max_length=resolve_max_length(options.max_length, network, default_limit=DEFAULT_MAX_LENGTH),
            media=MediaInputs(medium, {**payloads, **fit}),
            name=name,
            progress=options.progress,
        )
    return finished(options, network, result)


def finished(options: PickOptions, network: Network, result: Pick) -> Pick:
    """The answer with the record of the call, exported if that was asked for."""
    if options.max_length is None and result.keep_last:  # the model as shipped, with its own max_length
        result = replace(result, recipe=replace(result.recipe, max_length=None))
    result = replace(result, options=pick_record(options))
    if options.export is not None and result.keep_last:
        warnings.warn("the last layer should be kept, so nothing was exported", stacklevel=5)
    elif options.export is not None:
        export_model(network, result, options.export, progress=options.progress)
    return result
