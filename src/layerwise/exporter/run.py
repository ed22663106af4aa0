"""Export: a recipe as a folder that plain `SentenceTransformer(path)` loads, with proof that the numbers are the same.

The folder is built beside its place, loaded again, and compared with the vectors that scan measures. Only when they
agree is it moved into place; otherwise nothing is left behind.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.accumulators.second_moment import moments_of_rows
from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.files import write_json
from layerwise.core.outputs import is_gone, named, owner, require_writable
from layerwise.core.recipe import Recipe
from layerwise.exporter.card import card
from layerwise.exporter.certificate import certify, load_exported, rows_of_parts
from layerwise.exporter.left_out import choose_left_out
from layerwise.exporter.modules import save_modules
from layerwise.exporter.routes import choose_route, require_loadable, require_static
from layerwise.maps.linear import LinearMap, fit_maps, no_map
from layerwise.models.network import Network
from layerwise.runs.table import LayerTable

OWNER_FILE = "layerwise-export.json"  # in a folder under construction: which process makes it


def fit_on_texts(network: Network, recipe: Recipe, texts: Sequence[str], max_length: int) -> LinearMap:
    """The recipe's linear map, fitted without labels on these texts."""
    if recipe.transform == "none":
        return no_map(width_of(network, recipe))
    rows = rows_of_parts(network, recipe, texts, max_length)
    return fit_maps([(word, moments_of_rows(r)) for (_, word), r in zip(recipe.parts, rows, strict=True)])


def width_of(network: Network, recipe: Recipe) -> int:
    """The width of the recipe's vectors before its map; a model's own map may change it."""
    if not recipe.shipped:
        return network.width
    (row,) = rows_of_parts(network, recipe, ["A text."], network.usual_length)
    return row.shape[1]


def require_new(out: str | Path) -> None:
    """Raises unless a new folder can be made there; before anything is computed, and leaving no trace."""
    if os.path.lexists(named(out)):
        raise InputError(f"{out} exists already; choose another folder, or delete it first")
    require_writable(Path(out).absolute().parent)


def export_recipe(
    network: Network, recipe: Recipe, linear: LinearMap, out: Path, *, max_length: int, mode: str = "portable",
    why: str = "", scores: LayerTable | None = None,
) -> Any:
    """Writes the recipe to `out` and returns it as a loaded SentenceTransformer; a failure leaves nothing behind."""
    if find_spec("sentence_transformers") is None:
        raise MissingExtra("export needs sentence-transformers: pip install 'layerwise[export]'")
    require_new(out)
    require_loadable(network)
    left_out = choose_left_out(network.tokenizer, recipe)
    if recipe.static:
        require_static(network, recipe.pooling, prompt_left_out=left_out.prompt)
    route = choose_route(network, recipe.layer, recipe.readout, mode)
    with folder_beside(out) as beside:
        save_modules(network, recipe, route, left_out, linear, beside, max_length)
        proof = certify(network, recipe, linear, beside, max_length)
        record = {"recipe": asdict(recipe), "mode": mode, "route": asdict(route), "chosen_by": why} | proof
        write_json(beside / "layerwise.json", record)
        (beside / "README.md").write_text(card(network, recipe, route, record, scores), encoding="utf-8")
    return load_exported(out)


def open_up(folder: Path) -> None:
    """Gives files and folders the usual rights: temporary ones are readable by their owner alone."""
    usual = os.umask(0)
    os.umask(usual)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~usual)


@contextmanager
def folder_beside(out: Path) -> Iterator[Path]:
    """A new folder beside `out` that takes its place when all went well, and is deleted when not."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        delete_left_behind(out)
        beside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise InputError(f"cannot write to {out.parent} ({error.strerror}); choose another folder") from None
    try:
        write_json(beside / OWNER_FILE, owner())
        made = beside / "model"
        made.mkdir()
        yield made
        open_up(made)
        move(made, out)
    except BaseException as error:
        if os.strerror(errno.ENOSPC) in str(error):  # safetensors reports it under an error class of its own
            raise InputError(f"the disk of {out.parent} is full; nothing was left there, choose another") from None
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def move(made: Path, out: Path) -> None:
    try:
        os.replace(made, out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        problem = "was made by another process meanwhile, so this export was not kept"
        raise InputError(f"{out} {problem}; choose another folder") from None


def delete_left_behind(out: Path) -> None:
    """Deletes what a killed export to this name left beside it: marked as ours, by a process that has ended."""
    for path in list(out.parent.iterdir()):
        if path.name.startswith(f".{out.name}.") and (path / OWNER_FILE).is_file():
            try:
                ended = is_gone(json.loads((path / OWNER_FILE).read_bytes()))
            except ValueError:
                continue
            if ended:
                shutil.rmtree(path, ignore_errors=True)
