"""probe: train probes on every layer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.core.checks import require_choices, split_choices
from layerwise.core.errors import InputError
from layerwise.core.files import DiskFolder, open_folder
from layerwise.core.options import takes
from layerwise.core.progress import GO_ON, announce, announcements, progress_bar
from layerwise.core.recipe import Readout
from layerwise.engines.opening import default_threads
from layerwise.engines.shards import torch_threads
from layerwise.inputs.labels import labelled
from layerwise.inputs.source import Source
from layerwise.models.info import ModelInfo
from layerwise.models.layers import choose_layers
from layerwise.models.opening import input_kind_of_model, model_info_and_dtype, open_network, resolve_max_length
from layerwise.models.spec import call_record
from layerwise.runs.leases import sole_writer, while_held
from layerwise.runs.ownership import claim, require_usable
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.verbs.probe.labelled import read_labelled
from layerwise.verbs.probe.options import PROBES, ProbeOptions
from layerwise.verbs.probe.run import ProbePlan, run_probes
from layerwise.verbs.probe.words import has_words


@takes(ProbeOptions)
def probe(options: ProbeOptions) -> LayerTable:
    """Trains classifiers on every layer: how well can a label be read from it?

    Every example goes through the model once, whatever the number of layers, labels and probes.

    Returns:
        One row per label, probe and layer: the metric is such as `topic_linear_accuracy`, the value the accuracy on the
        test examples, or on their words where these have labels, in points from 0 to 100, with its 95 % interval. The
        last layer is also read after the final norm. The weighted sum has one such row, and rows
        `topic_weighted_sum_weight` with the weight of each layer. `run` has the settings that were chosen and, under
        `minus_last`, the paired difference of each layer from the last.

    Raises:
        InputError: the labels or an option cannot be used, or the disk is too small.
        ModelError: the model cannot be loaded.
        MissingExtra: the linear probe needs scikit-learn.
        RunError: `out` holds probes of another model, other examples or other settings.

    Example:
        >>> source = layerwise.texts(texts).with_labels({"parity": [len(text) % 2 for text in texts]})
        >>> table = layerwise.probe(model, source, label="parity", probes="linear,weighted_sum")
        >>> sorted({row.metric for row in table})
        ['parity_linear_accuracy', 'parity_weighted_sum_accuracy', 'parity_weighted_sum_weight']
    """
    if options.out is not None:
        if "://" in str(options.out):
            raise InputError("probe memory-maps what it reads of each layer, so --out must be a folder, not a URL")
        require_usable(open_folder(options.out), "probe")
    with announcements(options.progress), torch_threads(options.threads or default_threads("local")):
        test = None if options.test is None else open_labelled(options.test, options)
        return probed(options, open_labelled(options.data, options), test)


def open_labelled(data: str | Path | Source, options: ProbeOptions) -> Source:
    if isinstance(data, Source):
        return data
    return labelled(data, options.label, kind=input_kind_of_model(options.model))


def probed(options: ProbeOptions, train: Source, test: Source | None) -> LayerTable:
    """Reads the labels, checks what was asked for, loads the model, and runs the probes."""
    columns = split_choices("label", options.label)
    words = has_words(train)
    if test is not None and has_words(test) != words:
        raise InputError(f"only one of {train.name} and {test.name} has a label per word")
    read = () if words else columns  # labels of words are read with their tokens
    found = read_labelled(train, test, read, test_share=options.test_share, seed=options.seed)
    info, _ = model_info_and_dtype(options.model)
    probes = word_probes(options) if words else require_choices("probes", options.probes, PROBES)
    if "weighted_sum" in probes and info.structure.family.width_changes:
        raise InputError(
            "weighted_sum adds layers, but the layers of this model have different widths; leave it out: probes="
            "'linear,knn,attention' (--probes linear,knn,attention)"
        )
    plan = ProbePlan(
        readouts=probe_readouts(info, options),
        probes=probes,
        columns=columns,
        max_length=resolve_max_length(options.max_length, info),
        epochs=options.epochs,
        seed=options.seed,
        batch_tokens=options.batch_tokens,
        precision=options.precision,
        words=words,
    )
    network = open_network(options.model)
    record: dict[str, Any] = call_record("probe", options, train.options)
    count = len(found.examples)
    announce(f"reading {counted(count, train.unit)} from {' and '.join(s.name for s in found.sources)}")
    singles = sum(name != "weighted_sum" for name in plan.probes) * len(plan.readouts)
    fits = len(columns) * (singles + ("weighted_sum" in plan.probes))
    out = None if options.out is None else Path(options.out).absolute()
    if out is not None:
        claim(DiskFolder(out), "probe", model=network.identity().fingerprint)
    with (
        sole_writer(None if out is None else DiskFolder(out)) as require_lease,
        progress_bar(options.progress, count, f"{train.unit}s") as on_batch,
        progress_bar(options.progress, fits, "probes") as on_fit,
    ):
        try:
            return run_probes(
                network,
                plan,
                found,
                out=out,
                keep_features=options.features == "keep",
                options=record,
                on_batch=while_held(require_lease, on_batch),
                on_fit=while_held(require_lease, on_fit),
            )
        except KeyboardInterrupt as stopped:
            stopped.add_note(GO_ON if options.out is not None else "no --out was given, so nothing was kept")
            raise


def word_probes(options: ProbeOptions) -> tuple[str, ...]:
    """The probes of words: only the linear one. Raises for an option that is about texts."""
    if options.probes != ProbeOptions.probes and require_choices("probes", options.probes, PROBES) != ("linear",):
        raise InputError("labels of words are read by the linear probe only: probes='linear' (--probes linear)")
    if (options.tokens, options.pooling) != (ProbeOptions.tokens, ProbeOptions.pooling):
        raise InputError("a word is read from its first token; leave out tokens and pooling (--tokens, --pooling)")
    return ("linear",)


def probe_readouts(info: ModelInfo, options: ProbeOptions) -> tuple[Readout, ...]:
    """Every chosen layer as it is, and the last one also after the final norm, which is the model's usual output."""
    readouts = [
        Readout(layer, "raw", options.tokens, options.pooling) for layer in choose_layers(options.layers, info.depth)
    ]
    if info.has_norm and readouts[-1].layer == info.depth:
        readouts.append(replace(readouts[-1], norm="normed"))
    return tuple(readouts)
