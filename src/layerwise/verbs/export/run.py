"""Export: a fitted recipe as a folder of some format, kept only if its vectors are those that were measured.

The folder is written to a temporary place, loaded again, and compared with the vectors that scan measures. It is moved
into place only if they agree; otherwise nothing is left behind.
"""

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from layerwise.core.errors import ExportError, InputError
from layerwise.core.files import delete_abandoned, write_checked_json
from layerwise.core.hub import offline
from layerwise.core.outputs import require_path, require_writable, scratch_folder
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import kind_of
from layerwise.maps.fitted import FittedRecipe
from layerwise.models.elsewhere.vllm import VARIABLE
from layerwise.models.network import Network
from layerwise.models.readouts import last_recipe
from layerwise.models.servable import is_servable
from layerwise.runs.exported import RECORD_FILE, SCHEMA_VERSION
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.agreement import ComparedTexts
from layerwise.verbs.export.backends.backend import Backend, ExportJob
from layerwise.verbs.export.certificate import certify, expected_vectors
from layerwise.verbs.export.model_card import model_card
from layerwise.verbs.export.serving import serving_rows, with_vllm_run
from layerwise.verbs.export.vllm import check_in_vllm
from layerwise.verbs.probe.heads import Classifier

CARD_FILE = "README.md"
MODEL_CONFIG = "config.json"


def require_new_folder(out: str | Path) -> None:
    """Raises before anything is computed unless a new folder can be created there. Leaves nothing behind."""
    delete_abandoned(require_path(out).absolute())  # an export that was killed at its very end has left its folder
    if os.path.lexists(out):
        raise InputError(f"{out} already exists; choose another folder, or delete it first")
    require_writable(Path(out).absolute().parent)


def apply_umask(folder: Path) -> None:
    """Applies the user's umask: temporary files are readable only by their owner."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


@contextmanager
def temporary_folder(out: Path) -> Iterator[Path]:
    """A temporary folder next to `out`; moved into place on success, deleted on failure."""
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(scratch_folder(out.name, out.parent))
        except OSError as error:
            raise InputError(f"cannot write to {out.parent} ({error.strerror}); choose another folder") from None
        try:
            model_folder = temporary / "model"
            model_folder.mkdir()
            yield model_folder
            apply_umask(model_folder)
            move_into_place(model_folder, out)
        except BaseException as error:
            if os.strerror(errno.ENOSPC) not in str(error):  # safetensors has its own error class for this
                raise
            problem = f"the disk of {out.parent} is full; nothing was saved; choose another folder"
            raise InputError(problem) from None


def move_into_place(model_folder: Path, out: Path) -> None:
    try:
        os.replace(model_folder, out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        problem = "was created by another process in the meantime, so this export was deleted"
        raise InputError(f"{out} {problem}; choose another folder") from None


def write_labels(folder: Path, classes: Sequence[str]) -> None:
    """Writes the names of the logits where transformers keeps them."""
    path = folder / MODEL_CONFIG
    if not path.is_file():
        raise ExportError("this format has no place for the names of classes; use sentence_transformers or onnx")
    config = json.loads(path.read_text(encoding="utf-8"))
    names = {"id2label": dict(enumerate(classes)), "label2id": {name: number for number, name in enumerate(classes)}}
    path.write_text(json.dumps(config | names, indent=2), encoding="utf-8")


def classifier_record(classifier: Classifier) -> dict[str, Any]:
    """What was exported, and the evidence for it, as `classifier` in layerwise.json."""
    return {"label": classifier.label, "classes": list(classifier.classes), **classifier.facts}


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
    classifier: Classifier | None = None,
) -> Any:
    """Saves, verifies, writes the model card and moves the folder into place; returns the model, loaded on the CPU.

    `compared` holds the texts to compare with the original model on. For a network with fewer blocks than the model
    that it was made from, `original` is that model and `shrunk` says how it was made; `static` does so for a model
    without blocks. `coordinates` says why its vectors cannot be compared with the original's number by number. With a
    `classifier`, what the folder gives are its logits.
    """
    length, kind = fitted.recipe.max_length or network.default_length, kind_of(network.preprocessor)
    linear = fitted.combined_map if classifier is None else classifier.linear
    job = ExportJob(network, fitted.recipe, linear, length, mode, original, coordinates, classifier is not None)
    with offline(), temporary_folder(out) as folder:  # sentence-transformers would look the model up on the hub
        saved = backend.save(job, folder)
        if classifier is not None:
            write_labels(folder, classifier.classes)
        record = {
            "schema_version": SCHEMA_VERSION,
            "backend": backend.name,
            "recipe": asdict(fitted.recipe),
            "model": asdict(original.identity() if original else fitted.model),
            "fitted_on": asdict(fitted.fitted_on) if fitted.fitted_on else None,
            "whole_model": original is None and classifier is None and is_whole_model(network, fitted.recipe),
            "shrunk": dict(shrunk) if shrunk else None,
            "static": dict(static) if static else None,
            "classifier": classifier_record(classifier) if classifier else None,
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
        if record["servable"] and backend.name == "sentence_transformers" and VARIABLE in os.environ:
            record["serving"] = with_vllm_run(record["serving"], check_in_vllm(folder, expected_vectors(job), length))
        write_checked_json(folder / RECORD_FILE, record)
        (folder / CARD_FILE).write_text(model_card(job, saved, record, scores), encoding="utf-8")
    return backend.load(out, torch.device("cpu")).model
