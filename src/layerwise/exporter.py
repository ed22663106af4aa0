"""Export: a recipe as a folder that plain `SentenceTransformer(path)` loads, with proof that the numbers are the same.

The folder is built beside its place, loaded again, and compared with the vectors that scan measures. Only when they
agree is it moved into place; otherwise nothing is left behind.
"""

import copy
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.accumulators.second_moment import SecondMoment
from layerwise.errors import InputError, LayerwiseError, MissingExtra
from layerwise.files import write_json
from layerwise.inputs.source import Example
from layerwise.inputs.text import demo_texts
from layerwise.models.network import Network
from layerwise.models.truncate import cut_blocks
from layerwise.ops.transforms import LinearMap, fit_map
from layerwise.passes.vectors import Readout, pooled_vectors
from layerwise.recipe import Recipe

LARGEST_DIFFERENCE = 1e-6  # relative to the largest entry: the float noise of a re-ordered sum
LATE_STATES = ("mamba", "mamba2", "falcon_mamba")  # their hidden_states begin after block 1 and end with the norm


class ExportError(LayerwiseError):
    """The exported model would not give the vectors that were measured."""


@dataclass(frozen=True)
class Route:
    """How a layer comes out of a cut model: the blocks to keep, and the output to take."""

    keep: int
    output: str | tuple[str, int]
    untied: bool = False  # needs config.tie_last_hidden_states = False


def choose_route(network: Network, recipe: Recipe, mode: str) -> Route:
    """portable keeps one block more than needed and works with any version; compact keeps none too many."""
    depth, k = network.depth, recipe.layer
    late = getattr(network.module.config, "model_type", "") in LATE_STATES
    if mode not in ("portable", "compact"):
        raise InputError(f"mode {mode!r} is not one of portable, compact")
    if recipe.readout == "normed":
        if network.anatomy.final_norm is None or k == 0:
            raise InputError("a normed readout needs a final norm and a layer above 0; use readout raw")
        return Route(k, "last_hidden_state")
    if k == depth or (mode == "compact" and k > 0):
        if network.anatomy.final_norm is None:
            return Route(k, "last_hidden_state")
        return Route(k, ("hidden_states", -2 if late else -1), untied=not late)
    if k == 0 and late:
        raise ExportError("this family's hidden_states lack the embeddings: layer 0 cannot be exported, layer 1 can")
    return Route(max(k + 1, 1), ("hidden_states", k - 1 if late else k))


def fit_transform(network: Network, recipe: Recipe, texts: Sequence[str], max_length: int) -> LinearMap:
    """The recipe's linear map, fitted without labels on these texts."""
    kept = SecondMoment(network.width)
    if recipe.transform != "none":
        kept.update(recipe_rows(network, recipe, texts, max_length))
    return fit_map(recipe.transform, *kept.summed())


def recipe_rows(network: Network, recipe: Recipe, texts: Sequence[str], max_length: int) -> Tensor:
    """Pooled rows of the recipe's layer, before any map, by the pass that scan uses."""
    at = Readout(recipe.layer, recipe.readout, recipe.tokens, recipe.pooling)  # type: ignore[arg-type]
    examples = [Example(str(i), recipe.prompt + text) for i, text in enumerate(texts)]
    return pooled_vectors(network, examples, [at], max_length=max_length)[at]


def export_recipe(
    network: Network, recipe: Recipe, out: Path, *, max_length: int, mode: str = "portable", fit: Sequence[str] = (),
    why: str = "",
) -> Any:
    """Writes the recipe to `out` and returns it as a loaded SentenceTransformer; a failure leaves nothing behind."""
    if find_spec("sentence_transformers") is None:
        raise MissingExtra("export needs sentence-transformers: pip install 'layerwise[export]'")
    if recipe.tokens != "all":
        raise InputError(f"tokens {recipe.tokens!r} cannot be expressed in plain sentence-transformers yet; use all")
    if out.exists():
        raise InputError(f"{out} exists already; choose another folder, or delete it first")
    route = choose_route(network, recipe, mode)
    linear = fit_transform(network, recipe, fit, max_length)
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        save_folder(network, recipe, route, linear, beside, max_length)
        proof = certify(network, recipe, linear, beside, max_length)
        record = {"recipe": asdict(recipe), "mode": mode, "route": asdict(route), "chosen_by": why} | proof
        write_json(beside / "layerwise.json", record)
        (beside / "README.md").write_text(card(network, recipe, route, record), encoding="utf-8")
        os.replace(beside, out)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return load_exported(out)


def save_folder(
    network: Network, recipe: Recipe, route: Route, linear: LinearMap, folder: Path, max_length: int
) -> None:
    """The modules of a SentenceTransformer: the cut model, pooling, the linear map, normalisation."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    with tempfile.TemporaryDirectory(dir=folder.parent) as cut_folder:
        cut = cut_blocks(network.module, route.keep)
        if route.untied:
            cut.config.tie_last_hidden_states = False
        cut.save_pretrained(cut_folder)
        tokenizer = copy.deepcopy(network.tokenizer)
        tokenizer.chat_template = None  # sentence-transformers would wrap every text in it
        tokenizer.save_pretrained(cut_folder)
        reading: dict[str, Any] = {}
        if not isinstance(route.output, str):
            method = {"method": "forward", "method_output_name": list(route.output)}
            reading = {"modality_config": {"text": method}, "module_output_name": "token_embeddings"}
        modules: list[Any] = [Transformer(cut_folder, max_seq_length=max_length, **reading)]
    modules.append(Pooling(network.width, {"first": "cls", "last": "lasttoken"}.get(recipe.pooling, recipe.pooling)))
    if recipe.transform != "none":
        wide, narrow = linear.weight.shape
        dense = Dense(narrow, wide, bias=True, activation_function=torch.nn.Identity())
        with torch.no_grad():
            dense.linear.weight.copy_(linear.weight)
            dense.linear.bias.copy_(linear.bias)
        modules.append(dense)
    if recipe.normalize:
        modules.append(Normalize())
    prompts: dict[str, Any] = {}
    if recipe.prompt:
        prompts = {"prompts": {"default": recipe.prompt}, "default_prompt_name": "default"}
    SentenceTransformer(modules=modules, device="cpu", **prompts).save(str(folder), create_model_card=False)


def load_exported(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def certify(network: Network, recipe: Recipe, linear: LinearMap, folder: Path, max_length: int) -> dict[str, Any]:
    """Vectors of the folder against those that scan measures: padded, alone, short, long; size and speed beside it."""
    texts = [*demo_texts()[:24], "Short.", " ".join(demo_texts()[:40])]
    expected = linear(recipe_rows(network, recipe, texts, max_length))
    if recipe.normalize:
        expected = torch.nn.functional.normalize(expected, dim=-1)
    model = load_exported(folder)
    together = model.encode(texts, batch_size=8, convert_to_tensor=True, show_progress_bar=False).cpu()
    alone = torch.stack([model.encode(t, convert_to_tensor=True, show_progress_bar=False).cpu() for t in texts[-4:]])
    gap = max(float((together - expected).abs().max()), float((alone - expected[-4:]).abs().max()))
    largest = float(expected.abs().max())
    if not gap <= LARGEST_DIFFERENCE * largest * network_noise(network):
        raise ExportError(
            f"the exported model differs from layer {recipe.layer} ({recipe.readout}) by {gap:.2e} (largest entry "
            f"{largest:.2e}), so it was not kept; this family cannot be exported that way. Try another mode or layer"
        )
    before, after = (sum(p.numel() for p in m.parameters()) for m in (network.module, model))
    return {
        "max_difference": gap,
        "mean_difference": float((together - expected).abs().mean()),
        "largest_entry": largest,
        "texts": len(texts),
        "parameters": {"before": before, "after": after},
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "relative_latency": latency(network, model, texts[:8], max_length),
        "base_model": {"name": network.name, "revision": network.revision, "fingerprint": network.fingerprint()},
        "versions": {name: version(name) for name in ("layerwise", "torch", "transformers", "sentence-transformers")},
    }


def network_noise(network: Network) -> float:
    """In half precision sums differ by far more than in float32."""
    return 1.0 if network.dtype in (torch.float32, torch.float64) else 1e5


def latency(network: Network, model: Any, texts: Sequence[str], max_length: int, repeats: int = 3) -> float:
    """Time of the exported model over that of the whole model on the same texts: median of interleaved ratios."""
    last = Readout(network.depth)
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    ratios = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        pooled_vectors(network, examples, [last], max_length=max_length)
        middle = time.perf_counter()
        model.encode(list(texts), batch_size=len(texts), show_progress_bar=False)
        ratios.append((time.perf_counter() - middle) / (middle - start))
    return round(statistics.median(ratios[1:]), 3)


def card(network: Network, recipe: Recipe, route: Route, record: dict[str, Any]) -> str:
    """The model card: what this is, how to use it, and the proof."""
    needs = "transformers 5"
    if route.untied:
        needs = "transformers >= 5.18; an older one silently applies the final norm and gives other vectors"
    base = network.name if "/" in network.name and not network.name.startswith(("/", ".")) else ""
    head = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    head += [f"base_model: {base}"] if base else []
    told = ", ".join(f"{name} {word}" for name, word in asdict(recipe).items() if word not in ("", None, False))
    return "\n".join([
        *head, "tags: [sentence-transformers, layerwise]", "---", "",
        f"# Layer {recipe.layer} of {Path(network.name).name}", "",
        f"Made by layerwise: {told}. {route.keep} of {network.depth} blocks are kept.", "",
        "```python", "from sentence_transformers import SentenceTransformer", "",
        'SentenceTransformer("PATH").encode(["a text"])', "```", "",
        f"- Largest difference from the measured vectors, on {record['texts']} texts: {record['max_difference']:.1e}",
        f"- Parameters: {record['parameters']['after']:,} of {record['parameters']['before']:,}",
        f"- Time of a forward pass against the whole model: {record['relative_latency']}",
        f"- Needs sentence-transformers >= 5.4 and {needs}.", "",
    ])
