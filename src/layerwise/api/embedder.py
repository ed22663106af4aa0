"""embedder: from a language model to an embedding model without labels: pick a recipe, then export it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.api.export import export
from layerwise.api.pick import pick
from layerwise.core.checks import Choices, ExportMode
from layerwise.core.progress import announcements
from layerwise.exporter.folder import require_new_folder
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.models.opening import open_network
from layerwise.options.model import ModelLike
from layerwise.selection.pick import Pick


def embedder(
    model: ModelLike,
    data: DataLike,
    out: str | Path,
    *,
    column: str = "text",
    labels: str | Path | pd.DataFrame | None = None,
    templates: Choices | None = None,
    static: bool = True,
    dims: int | None = None,
    max_length: int | None = None,
    mode: ExportMode = "portable",
    progress: bool = False,
) -> Any:
    """Makes an embedding model of a language model: picks a recipe on your unlabelled texts and exports it.

    The same as `pick(model, data)` and then `export(model, picked, out, texts=data)`, with the model loaded once.

    Args:
        model: a hub id, a folder, a ModelSpec, a transformers model or SentenceTransformer, or (module, tokenizer).
        data: texts of your own kind, without labels, in any form that `layerwise.texts` takes. Up to 1000 of them
            choose the recipe and fit its map; up to 500 compare the export with the original model.
        out: the folder to write; it must not exist.
        column: the column of a table that holds the text.
        labels: a few labelled texts that help to choose: a table or file with text,label or text1,text2,score.
        templates: templates to try, as in `pick`; "none" for none.
        static: put whitened token embeddings beside the layer, where the recipe has a map and no template; doubles the
            width.
        dims: how many dimensions the vectors have, as in `pick`; 0 for all.
        max_length: longest input in tokens; by default 512 or the model's usual length.
        mode: "portable" or "compact", as in `export`.
        progress: print a line on standard error before each slow step.

    Returns:
        The exported model, loaded on the CPU: a SentenceTransformer.

    Raises:
        InputError: `out` exists, or pick recommends keeping the last layer, so that there is nothing to export.
        ExportError: this model cannot be exported that way; nothing is written.

    Example:
        >>> from layerwise.core.errors import InputError
        >>> try:
        ...     small = layerwise.embedder(model, texts, folder / "small", max_length=32)
        ... except InputError as error:  # a random model may well have no better layer than the last
        ...     assert "keeping the last layer" in str(error)
    """
    return pick_and_export(
        model, data, out, column=column, labels=labels, templates=templates, static=static, dims=dims,
        max_length=max_length, mode=mode, progress=progress,
    )  # fmt: skip


def pick_and_export(
    model: ModelLike,
    data: DataLike,
    out: str | Path,
    *,
    column: str,
    labels: str | Path | pd.DataFrame | None,
    templates: Choices | None,
    static: bool,
    dims: int | None,
    max_length: int | None,
    mode: ExportMode,
    progress: bool,
    on_pick: Callable[[Pick], None] = lambda picked: None,
) -> Any:
    """What `embedder` does; `on_pick` gets the answer of pick before it is exported."""
    source = open_source(data, column=column)
    require_new_folder(out)
    with announcements(progress):
        network = open_network(model)
    picked = pick(
        network, source, labels=labels, templates=templates, static=static, dims=dims, max_length=max_length,
        progress=progress,
    )  # fmt: skip
    on_pick(picked)
    return export(network, picked, out, mode=mode, texts=source, progress=progress)
