"""The certificate: the folder's vectors against those that scan measures, and what it costs beside the whole model."""

import copy
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.core.recipe import Recipe
from layerwise.exporter.routes import ExportError
from layerwise.exporter.timing import relative_times
from layerwise.inputs.source import Example
from layerwise.inputs.text import demo_texts
from layerwise.maps.linear import LinearMap
from layerwise.models.network import Network, evaluating
from layerwise.passes.vectors import pooled_vectors

LARGEST_DIFFERENCE = 1e-6  # relative to the largest entry: the float noise of a re-ordered sum
HALF_PRECISION_NOISE = 1e5  # how much coarser sums are in bfloat16 and float16


def certify(network: Network, recipe: Recipe, linear: LinearMap, folder: Path, max_length: int) -> dict[str, Any]:
    """Proof that the folder gives the recipe's vectors: padded, alone, short, long; raises ExportError if it does not.

    Rows in the raw units of a layer with attention sinks may be thousands of times larger than what is left after
    a map, so the noise that is allowed is relative to the largest entry that went into the vectors.
    """
    texts = [*demo_texts()[:24], "Short.", " ".join(demo_texts()[:40])]
    parts = rows_of_parts(network, recipe, texts, max_length)
    expected = linear(torch.cat(parts, dim=1))
    if recipe.normalize:
        expected = torch.nn.functional.normalize(expected, dim=-1)
    model = load_exported(folder)
    together = model.encode(texts, batch_size=8, convert_to_tensor=True, show_progress_bar=False).cpu()
    alone = torch.stack([model.encode(t, convert_to_tensor=True, show_progress_bar=False).cpu() for t in texts[-4:]])
    gap = max(float((together - expected).abs().max()), float((alone - expected[-4:]).abs().max()))
    largest = float(expected.abs().max())
    noise = 1.0 if network.dtype in (torch.float32, torch.float64) else HALF_PRECISION_NOISE
    gain = amplification(linear, parts, expected) if recipe.transform != "none" else 1.0
    # Vectors of one length are as large as that length: their entries grow smaller as the width grows.
    size = max(largest, float(expected.norm(dim=1).max())) if is_normalized(expected) else largest
    allowed = LARGEST_DIFFERENCE * size * noise * gain
    if not gap <= allowed:
        raise ExportError(
            f"the exported model differs from layer {recipe.layer} ({recipe.readout}) by {gap:.2e} (largest entry "
            f"{largest:.2e}), so it was not kept; this family cannot be exported that way. Try another mode or layer"
        )
    original = difference_from_original(network, recipe, texts, together, max_length)
    if original is not None and not original <= 10 * allowed:
        raise ExportError(
            f"the exported model differs from {network.name} as sentence-transformers loads it by {original:.2e} "
            f"(largest entry {largest:.2e}), so it was not kept; please report this model"
        )
    before, after = (sum(p.numel() for p in m.parameters()) for m in (network.module, model))
    return {
        "max_difference": gap,
        "mean_difference": float((together - expected).abs().mean()),
        "largest_entry": largest,
        "difference_from_original": original,
        "texts": len(texts),
        "parameters": {"before": before, "after": after},
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "relative_latency": relative_latency(network, model, texts[:16], max_length),
        "base_model": {"name": network.name, "revision": network.revision, "fingerprint": network.fingerprint()},
        "versions": {name: version(name) for name in ("layerwise", "torch", "transformers", "sentence-transformers")},
    }


def is_normalized(rows: Tensor) -> bool:
    lengths = rows.double().norm(dim=1)
    return bool((lengths - 1).abs().max() < 1e-3)


def difference_from_original(
    network: Network, recipe: Recipe, texts: Sequence[str], found: Tensor, max_length: int
) -> float | None:
    """Largest difference from the model that the user gave, as sentence-transformers runs it.

    Our own vectors cannot vouch for our reading of somebody else's files. None for any other recipe than the model as
    shipped, which the original does not give.
    """
    if not recipe.shipped or recipe.transform != "none" or recipe.normalize or network.head is None:
        return None
    own = network.head.encode([recipe.prompt + text for text in texts], max_length)
    return float((found - own).abs().max())


def amplification(linear: LinearMap, parts: Sequence[Tensor], expected: Tensor) -> float:
    """How much relative noise of the rows can grow in a map that takes most of their length away.

    Each part meets its own columns of the map alone: the large rows of a deep layer must not excuse what happens to
    small token embeddings that are mapped with large weights.
    """
    columns = torch.split(linear.weight, [rows.shape[1] for rows in parts], dim=1)
    before = max(float(w.norm(2)) * float(rows.abs().max()) for w, rows in zip(columns, parts, strict=True))
    return max(1.0, before / float(expected.abs().max()))


def rows_of_parts(network: Network, recipe: Recipe, texts: Sequence[str], max_length: int) -> list[Tensor]:
    """Pooled rows of each of the recipe's parts, by the pass that scan uses."""
    examples = [Example(str(i), recipe.prompt + text) for i, text in enumerate(texts)]
    read = [at for at, _ in recipe.parts]
    found = pooled_vectors(network, examples, read, max_length=max_length)
    return [found[at] for at in read]


def load_exported(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def timed_batch(network: Network, texts: Sequence[str], max_length: int) -> dict[str, Tensor]:
    """The texts as one padded batch on the model's device."""
    batch = network.tokenizer(
        list(texts), padding=True, truncation=True, max_length=max_length, return_tensors="pt",
        return_token_type_ids=False,
    )  # fmt: skip
    return {name: tensor.to(network.device) for name, tensor in batch.items()}


def relative_latency(network: Network, model: Any, texts: Sequence[str], max_length: int) -> float:
    """Time of the exported model's forward pass over the whole model's, on the same batch."""
    batch = timed_batch(network, texts, max_length)

    def run(module: torch.nn.Module) -> None:
        with torch.inference_mode():
            module(**batch)

    modules = {"whole": network.module, "cut": copy.deepcopy(model[0].model).to(network.device)}
    with evaluating(network.module):
        return relative_times({name: partial(run, m) for name, m in modules.items()}, "whole")["cut"]
