"""The model card: what this is, how to use it, the proof, and the metadata that the hub reads."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerwise.core.recipe import Recipe
from layerwise.exporter.backends.backend import Job, Saved
from layerwise.models.network import Network
from layerwise.runs.table import LayerTable
from layerwise.runs.tasks import task_records


def card(job: Job, saved: Saved, record: dict[str, Any], scores: LayerTable | None) -> str:
    """README.md of the folder."""
    network, recipe = job.network, job.recipe
    usual = asdict(Recipe(recipe.layer))
    words = [f"{name} {word}" for name, word in asdict(recipe).items() if word != usual[name] or name == "layer"]
    kept = f" {saved.blocks} of {network.depth} blocks are kept." if saved.blocks else ""
    chosen = f"How it was chosen: {record['chosen_by']}." if record["chosen_by"] else ""
    differs = f"{record['max_difference']:.1e} (largest entry {record['largest_entry']:.1e})"
    return "\n".join([
        metadata(network, recipe, saved, scores), "",
        f"# Layer {recipe.layer} of {Path(network.name).name}", "",
        f"Made by layerwise: {', '.join(map(printable, words))}.{kept}",
        chosen, "",
        "```python", saved.loading, "```", "",
        f"- Largest difference from the measured vectors, on {record['texts']} texts: {differs}",
        f"- Parameters: {record['parameters']['after']:,} of {record['parameters']['before']:,}",
        f"- Time to encode texts against the whole model: {record['relative_latency']}",
        *([f"- The map was fitted on {fitted_words(record['fitted_on'])}."] if record["fitted_on"] else []),
        *([f"- Needs {saved.needs}."] if saved.needs else []),
        *(f"- {note}" for note in saved.notes), "",
    ])  # fmt: skip


def fitted_words(fitted_on: dict[str, Any]) -> str:
    """What a map was fitted on, in words; names may come from files, so they stay on one line."""
    return f"{fitted_on['count']:,} texts ({printable(fitted_on['name'])}, fingerprint {fitted_on['fingerprint']})"


def printable(text: str) -> str:
    return text.encode("unicode_escape").decode() if not text.isprintable() else text


def metadata(network: Network, recipe: Recipe, saved: Saved, scores: LayerTable | None) -> str:
    """The YAML head: base model, its licence, and the scores of this very readout as a model index."""
    from huggingface_hub import EvalResult, ModelCardData

    wanted = asdict(recipe.readout) | {name: getattr(recipe, name) for name in ("transform", "normalize", "prompt")}
    tasks = task_records(scores.run) if scores else {}
    results = []
    for row in scores.where(**wanted) if scores else ():
        task = tasks.get(row.metric)  # runs of earlier versions do not say what kind of task it was
        results.append(
            EvalResult(
                task_type="sentence-similarity",
                task_name=task.type if task else row.metric,
                dataset_type=f"mteb/{row.metric}",
                dataset_name=row.metric,
                metric_type=task.score if task else "main_score",
                metric_value=round(row.value, 4),
            )
        )
    name = network.name
    content: dict[str, Any] = {
        "library_name": saved.library,
        "pipeline_tag": "sentence-similarity",
        "tags": [*([saved.library] if saved.library else []), "layerwise"],
        "base_model": name if "/" in name and not name.startswith(("/", ".")) else None,
        "license": licence_of(name, network.revision),
    }
    if results:
        content |= {"model_name": f"{Path(name).name}-layer-{recipe.layer}", "eval_results": results}
    return f"---\n{ModelCardData(**content).to_yaml()}\n---"


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
