"""Export: a fitted recipe as a folder of some format, kept only if its vectors are those that were measured.

The folder is written to a temporary place, loaded again, and compared with the vectors that scan measures. It is moved
into place only if they agree; otherwise nothing is left behind.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from layerwise.core.files import write_checked_json
from layerwise.core.hub import offline
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import kind_of
from layerwise.maps.fitted import FittedRecipe
from layerwise.models.network import Network
from layerwise.models.readouts import last_recipe
from layerwise.models.servable import is_servable
from layerwise.runs.exported import RECORD_FILE, SCHEMA_VERSION
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.agreement import ComparedTexts
from layerwise.verbs.export.backends.backend import Backend, ExportJob
from layerwise.verbs.export.card import model_card
from layerwise.verbs.export.certificate import certify
from layerwise.verbs.export.folder import temporary_folder
from layerwise.verbs.export.serving import serving_rows

CARD_FILE = "README.md"


def is_whole_model(network: Network, recipe: Recipe) -> bool:
    """True for a copy of the model as shipped; false for anything that gives other vectors."""
    last = last_recipe(network)
    return (recipe.readout, recipe.transform, recipe.template) == (last.readout, "none", last.template)


def export_fitted(
    network: Network,
    fitted: FittedRecipe,
    out: Path,
    *,
    backend: Backend,
    compared: ComparedTexts,
    mode: str = "portable",
    why: str = "",
    scores: LayerTable | None = None,
    original: Network | None = None,
    shrunk: Mapping[str, Any] | None = None,
    static: Mapping[str, Any] | None = None,
    coordinates: str = "",
) -> Any:
    """Saves, verifies, writes the model card and moves the folder into place; returns the model, loaded on the CPU.

    `compared` holds the texts to compare with the original model on. For a network with fewer blocks than the model
    that it was made from, `original` is that model and `shrunk` says how it was made; `static` does so for a model
    without blocks. `coordinates` says why its vectors cannot be compared with the original's number by number.
    """
    length, kind = fitted.recipe.max_length or network.default_length, kind_of(network.preprocessor)
    job = ExportJob(network, fitted.recipe, fitted.combined_map, length, mode, original, coordinates)
    with offline(), temporary_folder(out) as folder:  # sentence-transformers would look the model up on the hub
        saved = backend.save(job, folder)
        record = {
            "schema_version": SCHEMA_VERSION,
            "backend": backend.name,
            "recipe": asdict(fitted.recipe),
            "model": asdict(original.identity() if original else fitted.model),
            "fitted_on": asdict(fitted.fitted_on) if fitted.fitted_on else None,
            "whole_model": original is None and is_whole_model(network, fitted.recipe),
            "shrunk": dict(shrunk) if shrunk else None,
            "static": dict(static) if static else None,
            "mode": mode,
            "input_kind": kind,
            "servable": kind == "text" and is_servable(network, fitted.recipe) and saved.blocks == fitted.recipe.layer,
            "chosen_by": why,
            "serving": serving_rows(backend.name, job, exact_blocks=saved.blocks == fitted.recipe.layer),
            "blocks": {"before": job.whole.depth, "after": saved.blocks or None},
            "scores": {row.metric: row.value for row in scores} if scores else {},
            **saved.record,
            **certify(job, backend, folder, saved, compared),
        }
        write_checked_json(folder / RECORD_FILE, record)
        (folder / CARD_FILE).write_text(model_card(job, saved, record, scores), encoding="utf-8")
    return backend.load(out, torch.device("cpu")).model
