"""The certificate: vectors of an exported model against those that scan measures, the original's, and what it costs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.errors import ExportError
from layerwise.core.progress import announce
from layerwise.core.quiet import quiet_libraries
from layerwise.core.templates import parse_template
from layerwise.inputs.images import made_up_images
from layerwise.inputs.modalities import kind_of
from layerwise.inputs.text import demo_texts
from layerwise.inputs.timed_texts import TIMED_TEXTS, room_for_text, timed_texts
from layerwise.maps.linear import LinearMap
from layerwise.models.modes import evaluation_mode
from layerwise.models.modules import as_sentence_transformer
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe
from layerwise.passes.batches import network_processor
from layerwise.passes.timing import clock_of, measured, relative_times
from layerwise.passes.vectors import part_rows
from layerwise.verbs.export.agreement import ComparedTexts, agreement, mean_cosine
from layerwise.verbs.export.backends.backend import Backend, Encoder, ExportJob, SavedExport, Variant

CHECKED = 26  # texts or images; of texts, the last but one is very short and the last one long
LONGEST_TEXT = 2048  # tokens: longer inputs than this are not made only to be truncated
DOUBLINGS = 8  # of a text, to make it that long; a tokenizer may give any text the same few tokens


def checked_inputs(job: ExportJob) -> tuple[Sequence[Any], bool]:
    """What to encode, and whether the last input is longer than max_length. Images are read whole."""
    if kind_of(job.network.preprocessor) == "image":
        return made_up_images(CHECKED), False
    long_text, truncated = text_to_truncate(job)
    return [*demo_texts()[: CHECKED - 2], "Short.", long_text], truncated


def text_to_truncate(job: ExportJob) -> tuple[str, bool]:
    """A text that is longer than max_length, and True; False if that would take too long to encode."""
    length = min(job.max_length, LONGEST_TEXT)
    processor = network_processor(job.network, job.recipe.template)
    text = " ".join(demo_texts()[:40])
    with quiet_libraries():  # transformers warns about inputs that are longer than the model allows
        for _ in range(DOUBLINGS):
            if processor.size(text) <= length:
                text = f"{text} {text}"
        return text, processor.size(text) > job.max_length


RELATIVE_TOLERANCE = 1e-6  # relative to the largest entry: rounding noise of sums in another order
HALF_PRECISION_NOISE = 1e5  # factor for bfloat16 and float16
# factor between different device types, relative to two runs on one device; not measured on a GPU
OTHER_DEVICE_NOISE = 100.0
UNBATCHED_TEXTS = 4  # number of texts that are also encoded one by one, without padding
TIMED_IMAGES = 16
CPU = torch.device("cpu")
InputsByLength = Mapping[int | None, Sequence[Any]]  # what is timed, by its number of tokens; None for images


@dataclass(frozen=True)
class ExpectedVectors:
    """The vectors that the exported model must reproduce, and the tolerance."""

    texts: Sequence[Any]  # or images
    vectors: Tensor  # (N, E)
    tolerance: float
    truncated: bool  # whether the last text is longer than max_length

    @property
    def largest(self) -> float:
        return float(self.vectors.abs().max())


def certify(
    job: ExportJob,
    backend: Backend,
    folder: Path,
    saved: SavedExport,
    compared: ComparedTexts,
) -> dict[str, Any]:
    """Checks that the folder gives the recipe's vectors: padded, alone, short, truncated; raises ExportError if not.

    It is loaded on the device of the measured model and on the CPU, and must give them on both. The record also holds
    how much the vectors agree with the original's on the texts of `compared` (None for logits), what the smaller files
    of the folder give, and the versions of the packages.
    """
    network, expected = job.network, expected_vectors(job, saved.tolerance)
    noun = f"{kind_of(network.preprocessor)}s"
    announce(f"checking the vectors of {len(expected.texts)} {noun}, and timing short and long ones")
    to_time = inputs_to_time(job, compared)
    differences: dict[str, float] = {}
    for device in devices_to_test(network):  # the original model's device first, the CPU last
        encoder = backend.load(folder, device)
        vectors = encoder.encode(expected.texts)
        difference = require_close(job, encoder, vectors, expected, device, saved.min_cosine)
        if not differences:
            times = encoding_times(job, encoder, to_time)
        differences[str(device)] = difference
    original_difference = None if saved.min_cosine else require_same_as_original(job, expected, vectors)
    if compared.texts and not job.logits:
        announce(f"comparing with {Path(job.whole.name).name} on {len(compared.texts)} {noun} ({compared.source})")
    return {
        "max_difference": max(differences.values()),
        "mean_difference": float((vectors - expected.vectors).abs().mean()),
        "differences": differences,
        "largest_entry": expected.largest,
        "min_cosine": lowest_cosine(vectors, expected.vectors),
        "required_cosine": saved.min_cosine,
        "variants": {name: variant_record(job, folder, v, expected, to_time) for name, v in saved.variants.items()},
        "difference_from_original": original_difference,
        "texts": len(expected.texts),
        "truncated_text": expected.truncated,
        "agreement": None if job.logits else asdict(agreement(job, encoder, compared)),
        "parameters": {"before": sum(p.numel() for p in job.whole.module.parameters()), "after": encoder.parameters},
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "encoding_times": times,
        "versions": {name: version(name) for name in ("layerwise", "torch", *saved.packages)},
    }


def variant_record(
    job: ExportJob, folder: Path, variant: Variant, expected: ExpectedVectors, to_time: InputsByLength
) -> dict[str, Any]:
    """How the vectors of a smaller file differ from the measured ones, and what it costs."""
    encoder = variant.load()
    vectors = encoder.encode(expected.texts)
    if vectors.shape != expected.vectors.shape or not torch.isfinite(vectors).all():
        raise ExportError(f"{variant.file} gives vectors of shape {tuple(vectors.shape)}, or not finite ones")
    return {
        "file": variant.file,
        "bytes": (folder / variant.file).stat().st_size,
        "min_cosine": lowest_cosine(vectors, expected.vectors),
        "mean_cosine": mean_cosine(vectors, expected.vectors),
        "encoding_times": encoding_times(job, encoder, to_time),
    }


def lowest_cosine(found: Tensor, expected: Tensor) -> float:
    """The lowest cosine between the two vectors of a text; both (N, E)."""
    return float(torch.nn.functional.cosine_similarity(found.double(), expected.double(), dim=1).min())


def devices_to_test(network: Network) -> tuple[torch.device, ...]:
    """The devices to test on: that of the original model, then the CPU."""
    return (CPU,) if network.device.type == CPU.type else (network.device, CPU)


def expected_vectors(job: ExportJob, relative_tolerance: float | None = None) -> ExpectedVectors:
    """The recipe's vectors, from the same pass as scan, and the tolerance.

    Unscaled rows of a layer with attention sinks may be thousands of times larger than what is left after a map, so
    the noise that is allowed is relative to the largest entry that went into the vectors.
    """
    texts, truncated = checked_inputs(job)
    with head_amplification(job.network) as head_gain:
        parts = part_rows(job.network, job.recipe, texts, job.max_length)
    rows, linear = torch.cat(parts, dim=1), job.linear
    expected = rows if linear is None else linear(rows)
    if job.recipe.normalize:
        expected = torch.nn.functional.normalize(expected, dim=-1)
    largest = float(expected.abs().max())
    noise = 1.0 if job.network.dtype in (torch.float32, torch.float64) else HALF_PRECISION_NOISE
    gain = head_gain() if linear is None else amplification(linear, parts, expected)
    # For normalised vectors, use the norm: their entries shrink as the width grows.
    size = max(largest, float(expected.norm(dim=1).max())) if is_normalized(expected) else largest
    allowed = RELATIVE_TOLERANCE if relative_tolerance is None else relative_tolerance
    return ExpectedVectors(texts, expected, allowed * size * noise * gain, truncated)


def require_close(
    job: ExportJob,
    encoder: Encoder,
    found: Tensor,
    expected: ExpectedVectors,
    device: torch.device,
    min_cosine: float | None = None,
) -> float:
    """The largest difference from the measured vectors, batched and one by one; raises ExportError if it is too large.

    With `min_cosine`, it raises if a cosine is lower instead.
    """
    if found.shape != expected.vectors.shape:
        raise ExportError(
            f"the exported model returns vectors of shape {tuple(found.shape)} on {device}, not "
            f"{tuple(expected.vectors.shape)}, so it was deleted"
        )
    alone = torch.cat([encoder.encode([text]) for text in expected.texts[-UNBATCHED_TEXTS:]])
    in_batches = float((found - expected.vectors).abs().max())
    difference = max(in_batches, float((alone - expected.vectors[-UNBATCHED_TEXTS:]).abs().max()))
    other_kind = device.type != job.network.device.type
    if min_cosine is not None:
        lowest = min(lowest_cosine(found, expected.vectors), lowest_cosine(alone, expected.vectors[-UNBATCHED_TEXTS:]))
        if not lowest >= min_cosine:
            raise ExportError(
                f"the exported model differs from layer {job.recipe.layer} ({job.recipe.norm}): lowest cosine "
                f"{lowest:.5f}, below {min_cosine}, so it was not kept"
            )
    elif not difference <= expected.tolerance * (OTHER_DEVICE_NOISE if other_kind else 1.0):
        raise ExportError(
            f"the exported model differs from layer {job.recipe.layer} ({job.recipe.norm}) by {difference:.2e} "
            f"(largest entry {expected.largest:.2e}) on {device}, so it was not kept; this family cannot be exported "
            "that way. Try another --mode or --layer"
        )
    return difference


def is_normalized(rows: Tensor) -> bool:
    lengths = rows.double().norm(dim=1)
    return bool((lengths - 1).abs().max() < 1e-3)


def require_same_as_original(job: ExportJob, expected: ExpectedVectors, found: Tensor) -> float | None:
    """Largest difference from the user's own model as sentence-transformers runs it; raises if it is too large.

    Our own vectors cannot show that we read somebody else's files rightly. None for any other recipe than the model as
    shipped: only that one can be compared number by number.
    """
    network, recipe = job.network, job.recipe
    if not recipe.shipped or recipe.transform != "none" or recipe.normalize or network.head is None:
        return None
    if parse_template(recipe.template).after:  # the original reads no such template
        return None
    own = network.head.encode(expected.texts, job.max_length, recipe.template)
    difference = float((found - own).abs().max())
    noise = 1.0 if network.device.type == CPU.type else OTHER_DEVICE_NOISE  # the original runs on the CPU
    if not difference <= 10 * noise * expected.tolerance:
        raise ExportError(
            f"the exported model differs from {network.name} as sentence-transformers loads it by {difference:.2e} "
            f"(largest entry {expected.largest:.2e}), so it was deleted; please report this model"
        )
    return difference


def amplification(linear: LinearMap, parts: Sequence[Tensor], expected: Tensor) -> float:
    """How much a map can amplify the relative noise of the rows, if it removes most of their norm.

    Each part is multiplied by its own columns of the map only: the large rows of a deep layer must not hide an error
    in small token embeddings that are mapped with large weights.
    """
    columns = torch.split(linear.weight, [rows.shape[1] for rows in parts], dim=1)
    largest = float(expected.abs().max())
    return max(1.0, *(gain_of(w, float(rows.abs().max()), largest) for w, rows in zip(columns, parts, strict=True)))


def gain_of(weight: Tensor, before: float, after: float) -> float:
    """How much relative noise can grow in this map, from the largest entry before it to the largest one after it."""
    return float(weight.detach().norm(2)) * before / after


@contextmanager
def head_amplification(network: Network) -> Iterator[Callable[[], float]]:
    """The same for the linear maps that an embedding model has after its pooling; asked for after they were used."""
    largest: dict[nn.Linear, tuple[float, float]] = {}  # of what went in, and of what came out

    def note(linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(linear, nn.Linear)
        before, after = largest.get(linear, (0.0, 0.0))
        largest[linear] = max(before, float(inputs[0].abs().max())), max(after, float(output.abs().max()))

    modules = network.head.modules if network.head else ()
    linears = [linear for module in modules for linear in module.modules() if isinstance(linear, nn.Linear)]
    handles = [linear.register_forward_hook(note) for linear in linears]
    try:
        yield lambda: max([1.0, *(gain_of(m.weight, before, after) for m, (before, after) in largest.items() if after)])
    finally:
        for handle in handles:
            handle.remove()


def inputs_to_time(job: ExportJob, compared: ComparedTexts) -> InputsByLength:
    """Short, medium and long texts made of those that are compared, or some images."""
    if kind_of(job.network.preprocessor) != "text":
        return {None: checked_inputs(job)[0][:TIMED_IMAGES]}
    tokenizer, limit = job.whole.tokenizer, min(job.max_length, job.whole.max_length)
    room = room_for_text(tokenizer, job.recipe.template, limit)
    made = timed_texts(tokenizer, compared.texts or demo_texts(), room)
    return {tokens: texts for tokens, texts in made.items()}  # noqa: C416  other types of keys


def encoding_times(job: ExportJob, encoder: Encoder, inputs: InputsByLength) -> list[dict[str, Any]]:
    """The time to encode with the exported model, as it is used, over that of the whole model, for each length."""
    clock, found = clock_of(job.whole.device), []
    with evaluation_mode(job.whole.module):
        encode_with_whole = whole_encoder(job)
        for tokens, batch in inputs.items():
            measures = [
                measured("whole", partial(encode_with_whole, batch), clock),
                measured("exported", partial(encoder.encode, batch, TIMED_TEXTS), clock),
            ]
            found.append(relative_times(measures, "whole")["exported"].to_record(tokens))
    return found


def whole_encoder(job: ExportJob) -> Callable[[Sequence[Any]], object]:
    """Encodes with the model as it was used before: as shipped, or with mean pooling."""
    network = job.whole
    length = min(job.max_length, network.max_length)  # a static model reads texts of any length
    if kind_of(network.preprocessor) != "text" or find_spec("sentence_transformers") is None:
        return partial(part_rows, network, baseline_recipe(network), max_length=length)
    model = as_sentence_transformer(network, length)
    return partial(model.encode, batch_size=TIMED_TEXTS, show_progress_bar=False, device=str(model.device))
