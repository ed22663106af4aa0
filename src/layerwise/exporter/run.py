"""Export: a fitted recipe as a folder of some format, with proof that the numbers are the same.

The folder is saved beside its place, loaded again, and compared with the vectors that scan measures. Only when they
agree is it moved into place; otherwise nothing is left behind.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from layerwise.core.files import write_json
from layerwise.exporter.backends.backend import Backend, Job
from layerwise.exporter.card import card
from layerwise.exporter.certificate import certify
from layerwise.exporter.folder import folder_beside
from layerwise.maps.fitted import FittedRecipe
from layerwise.models.network import Network
from layerwise.runs.table import LayerTable

RECORD_FILE, CARD_FILE = "layerwise.json", "README.md"
SCHEMA_VERSION = 1  # of layerwise.json


def export_fitted(
    network: Network,
    fitted: FittedRecipe,
    out: Path,
    *,
    backend: Backend,
    mode: str = "portable",
    why: str = "",
    scores: LayerTable | None = None,
) -> Any:
    """Saves, certifies, writes the model card, moves into place; returns the model loaded on the CPU."""
    length = fitted.recipe.max_length or network.usual_length
    job = Job(network, fitted.recipe, fitted.linear, length, mode)
    with folder_beside(out) as beside:
        saved = backend.save(job, beside)
        record = {
            "schema_version": SCHEMA_VERSION,
            "backend": backend.name,
            "recipe": asdict(fitted.recipe),
            "model": asdict(fitted.model),
            "fitted_on": asdict(fitted.fitted_on) if fitted.fitted_on else None,
            "mode": mode,
            "chosen_by": why,
            **saved.record,
            **certify(job, backend, beside, saved.packages),
        }
        write_json(beside / RECORD_FILE, record)
        (beside / CARD_FILE).write_text(card(job, saved, record, scores), encoding="utf-8")
    return backend.load(out, torch.device("cpu")).model
