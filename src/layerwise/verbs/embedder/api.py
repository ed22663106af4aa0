"""embedder: from a language model to an embedding model without labels: pick a recipe, then export it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.checks import Choices, ExportMode
from layerwise.core.progress import announcements
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.models.opening import open_network
from layerwise.models.spec import ModelLike
from layerwise.verbs.export.api import export
from layerwise.verbs.export.folder import require_new_folder
from layerwise.verbs.pick.api import pick
from layerwise.verbs.pick.result import Pick


def embedder(
    model: ModelLike,
    out: str | Path,
    *,
    fit: DataLike | None = None,
    texts: DataLike = "demo",
    column: str = "text",
    labels: str | Path | pd.DataFrame | None = None,
    templates: Choices | None = None,
    static: bool = True,
    dims: int | None = None,
    max_length: int | None = None,
    mode: ExportMode = "portable",
    progress: bool = False,
) -> Any:
    """Makes an embedding model of a language model without labels: picks a recipe and exports it.

    The same as `pick(model)` and then `export(model, picked, out)`, with the model loaded once.

    Args:
        model: a hub id, a folder, a ModelSpec, a transformers model or SentenceTransformer, or (module, tokenizer).
        out: the folder to write; it must not exist.
        fit: texts of many kinds to fit linear maps on, as in `pick`; by default bundled ones.
        texts: texts to compare the export with the original model on, as in `export`.
        column: the column of tables that holds the text.
        labels: a few labelled texts that help to choose: a table or file with text,label or text1,text2,score.
        templates: templates to try, as in `pick`; "none" for none.
        static: put whitened token embeddings beside the layer, where the recipe has a map and no template; doubles the
            width.
        dims: how many dimensions the vectors have, as in `pick`; by default all.
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
        ...     small = layerwise.embedder(model, folder / "small", max_length=32)
        ... except InputError as error:  # a random model may well have no better layer than the last
        ...     assert "keeping the last layer" in str(error)
    """
    return pick_and_export(
        model, out, fit=fit, texts=texts, column=column, labels=labels, templates=templates, static=static, dims=dims,
        max_length=max_length, mode=mode, progress=progress,
    )  # fmt: skip


def pick_and_export(
    model: ModelLike,
    out: str | Path,
    *,
    fit: DataLike | None,
    texts: DataLike,
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
    to_compare = open_source(texts, column=column)
    to_fit = None if fit is None else open_source(fit, column=column)
    require_new_folder(out)
    with announcements(progress):
        network = open_network(model)
    picked = pick(
        network, to_fit, labels=labels, templates=templates, static=static, dims=dims, max_length=max_length,
        progress=progress,
    )  # fmt: skip
    on_pick(picked)
    return export(network, picked, out, mode=mode, texts=to_compare, progress=progress)
