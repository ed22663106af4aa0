"""probe: train probes on every layer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.core.checks import Choices, PoolingChoice, Precision, TokenChoice, require_choices, split_choices
from layerwise.core.errors import InputError
from layerwise.core.files import DiskFolder, open_folder
from layerwise.core.progress import GO_ON, announce, announcements, progress_bar
from layerwise.core.recipe import Readout
from layerwise.engines.opening import default_threads
from layerwise.engines.shards import torch_threads
from layerwise.inputs.opening import labelled
from layerwise.inputs.source import Source
from layerwise.models.info import ModelInfo
from layerwise.models.layers import LayerChoice, choose_layers
from layerwise.models.opening import input_kind_of_model, model_info_and_dtype, open_network, resolve_max_length
from layerwise.models.spec import ModelLike, call_record
from layerwise.runs.claims import claim, require_usable
from layerwise.runs.leases import sole_writer, while_held
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.verbs.probe.labelled import read_labelled
from layerwise.verbs.probe.options import PROBES, ProbeOptions, StoredFeatures
from layerwise.verbs.probe.run import ProbePlan, run_probes


def probe(
    model: ModelLike,
    data: str | Path | Source,
    test: str | Path | Source | None = None,
    *,
    label: Choices,
    probes: Choices = "linear,knn,attention,weighted_sum",
    out: str | Path | None = None,
    layers: LayerChoice = "all",
    tokens: TokenChoice = "all",
    pooling: PoolingChoice = "mean",
    max_length: int | None = None,
    test_share: float = 0.2,
    epochs: int = 40,
    seed: int = 0,
    batch_tokens: int = 4096,
    precision: Precision = "float16",
    features: StoredFeatures = "keep",
    threads: int | None = None,
    progress: bool = False,
) -> LayerTable:
    """Trains classifiers on every layer: how well can a label be read from it?

    Every example goes through the model once, whatever the number of layers, labels and probes.

    Args:
        model: a hub id, a folder, a ModelSpec, a transformers model, a SentenceTransformer, or a pair (module,
            tokenizer or processor).
        data: examples to train on: a .jsonl, .csv or .parquet file with a column `text`, `labelled(...)` with other
            options, or a Source with labels, of any modality.
        test: examples to test on, in the same forms; None tests on a share of `data`. Test examples whose content is
            also in the training data are left out, with a warning.
        label: the column with the class of each example, or several with commas or in a list.
        probes: "linear" (logistic regression), "knn" (nearest neighbours), "attention" (a learned query over all
            positions), "weighted_sum" (one classifier on a learned weighted sum of all layers); several with commas.
        out: run folder for the table and for what was read of each layer; the same call resumes it, and a call with
            other labels or probes adds to it. None keeps nothing on disk.
        layers: which layers: "all", a number, a depth such as "50%", "last", or several of these.
        tokens: which positions count: "all", "no_first", "no_special", "no_sinks" or "with_padding".
        pooling: "mean", "last", "first" or "max", for linear and knn.
        max_length: longest input in tokens; None is the model's usual length.
        test_share: share of `data` to test on if there is no `test`.
        epochs: most epochs of the attention probe. It stops earlier when held-out training examples gain nothing.
        seed: seed of the split, of held-out training examples, and of the probes' weights and batches.
        batch_tokens: tokens per batch, padding included.
        precision: number type of the positions that are stored on disk for the attention probe.
        features: "keep" what was read of each layer in `out`, or "evict" (delete) it at the end.
        threads: threads to use; None for as many as torch uses.
        progress: show a progress bar.

    Returns:
        One row per label, probe and layer: the metric is such as `topic_linear_accuracy`, the value the accuracy on the
        test examples in points from 0 to 100, with its 95 % interval. The last layer is also read after the final norm.
        The weighted sum has one such row, and rows `topic_weighted_sum_weight` with the weight of each layer. `run`
        has the settings that were chosen and, under `minus_last`, the paired difference of each layer from the last.

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
    options = ProbeOptions(
        test=test,
        label=label,
        probes=probes,
        out=out,
        layers=layers,
        tokens=tokens,
        pooling=pooling,
        max_length=max_length,
        test_share=test_share,
        epochs=epochs,
        seed=seed,
        batch_tokens=batch_tokens,
        precision=precision,
        features=features,
        threads=threads,
        progress=progress,
    )
    if out is not None:
        if "://" in str(out):
            raise InputError("probe memory-maps what it reads of each layer, so --out must be a folder, not a URL")
        require_usable(open_folder(out), "probe")
    with announcements(progress), torch_threads(threads or default_threads("local")):
        tested = None if test is None else open_labelled(test, label, model)
        return probed(model, open_labelled(data, label, model), tested, options)


def open_labelled(data: str | Path | Source, label: Choices, model: ModelLike) -> Source:
    return data if isinstance(data, Source) else labelled(data, label, kind=input_kind_of_model(model))


def probed(model: ModelLike, train: Source, test: Source | None, options: ProbeOptions) -> LayerTable:
    """Reads the labels, checks what was asked for, loads the model, and runs the probes."""
    columns = split_choices("label", options.label)
    found = read_labelled(train, test, columns, test_share=options.test_share, seed=options.seed)
    info, _ = model_info_and_dtype(model)
    probes = require_choices("probes", options.probes, PROBES)
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
    )
    network = open_network(model)
    record: dict[str, Any] = call_record("probe", options, model=model, data=train.options)
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


def probe_readouts(info: ModelInfo, options: ProbeOptions) -> tuple[Readout, ...]:
    """Every chosen layer as it is, and the last one also after the final norm, which is the model's usual output."""
    readouts = [
        Readout(layer, "raw", options.tokens, options.pooling) for layer in choose_layers(options.layers, info.depth)
    ]
    if info.has_norm and readouts[-1].layer == info.depth:
        readouts.append(replace(readouts[-1], norm="normed"))
    return tuple(readouts)
