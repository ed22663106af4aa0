"""The model card: what this is, how to use it, the proof, and the metadata that the hub reads."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerwise.core.recipe import Recipe
from layerwise.exporter.routes import Route
from layerwise.models.network import Network
from layerwise.runs.table import LayerTable


def card(network: Network, recipe: Recipe, route: Route, record: dict[str, Any], scores: LayerTable | None) -> str:
    """README.md of the folder."""
    needs = "transformers >= 5.18; an older one silently applies the final norm and gives other vectors"
    usual = asdict(Recipe(recipe.layer))
    told = [f"{name} {word}" for name, word in asdict(recipe).items() if word != usual[name] or name == "layer"]
    chosen = f"How it was chosen: {record['chosen_by']}." if record["chosen_by"] else ""
    differs = f"{record['max_difference']:.1e} (largest entry {record['largest_entry']:.1e})"
    return "\n".join([
        metadata(network, recipe, scores), "",
        f"# Layer {recipe.layer} of {Path(network.name).name}", "",
        f"Made by layerwise: {', '.join(map(printable, told))}. {route.keep} of {network.depth} blocks are kept.",
        chosen, "",
        "```python", "from sentence_transformers import SentenceTransformer", "",
        'SentenceTransformer("PATH").encode(["a text"])', "```", "",
        f"- Largest difference from the measured vectors, on {record['texts']} texts: {differs}",
        f"- Parameters: {record['parameters']['after']:,} of {record['parameters']['before']:,}",
        f"- Time of a forward pass against the whole model: {record['relative_latency']}",
        f"- Needs sentence-transformers >= 5.4 and {needs if route.untied else 'transformers 5'}.",
        "- `transformers.AutoModel.from_pretrained(PATH)` loads the cut model alone, without pooling and map.", "",
    ])  # fmt: skip


def printable(text: str) -> str:
    return text.encode("unicode_escape").decode() if not text.isprintable() else text


def metadata(network: Network, recipe: Recipe, scores: LayerTable | None) -> str:
    """The YAML head: base model, its licence, and the scores of this very readout as a model index."""
    from huggingface_hub import EvalResult, ModelCardData

    wanted = asdict(recipe.at) | {name: getattr(recipe, name) for name in ("transform", "normalize", "prompt")}
    results = [
        EvalResult(
            task_type="sentence-similarity",
            task_name=row.data,
            dataset_type=f"mteb/{row.metric}",
            dataset_name=row.metric,
            metric_type=row.data.rpartition(": ")[2],
            metric_value=round(row.value, 4),
        )
        for row in (scores.where(**wanted) if scores else ())
    ]
    name = network.name
    told: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "layerwise"],
        "base_model": name if "/" in name and not name.startswith(("/", ".")) else None,
        "license": licence_of(name, network.revision),
    }
    if results:
        told |= {"model_name": f"{Path(name).name}-layer-{recipe.layer}", "eval_results": results}
    return f"---\n{ModelCardData(**told).to_yaml()}\n---"


def licence_of(name: str, revision: str) -> str | None:
    """The licence that the base model's own card states; None where it states none or cannot be read."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.repocard import metadata_load

    try:
        path = Path(name) / "README.md"
        if not Path(name).is_dir():
            path = Path(hf_hub_download(name, "README.md", revision=revision))
        found = (metadata_load(path) or {}).get("license")
        return found if isinstance(found, str) else None
    except (OSError, ValueError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError):
        return None
