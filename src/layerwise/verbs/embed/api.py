"""embed: vectors of chosen layers."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from layerwise.core.checks import NormChoice, PoolingChoice, TokenChoice
from layerwise.core.files import write_atomically
from layerwise.core.outputs import require_new_file
from layerwise.core.progress import progress_bar
from layerwise.core.recipe import Readout, Recipe
from layerwise.inputs.modalities import kind_of, open_source
from layerwise.inputs.source import DataLike, Example
from layerwise.models.layers import LayerChoice, choose_layers
from layerwise.models.opening import model_info_and_dtype, open_network, resolve_max_length
from layerwise.models.readouts import expand_layers, last_recipe, readout_choices, separate_last
from layerwise.models.spec import ModelLike
from layerwise.passes.vectors import pooled_vectors, require_finite_vectors
from layerwise.verbs.embed.options import EmbedOptions


def embed(
    model: ModelLike,
    data: DataLike,
    *,
    layers: LayerChoice = "last",
    norm: NormChoice = "raw",
    tokens: TokenChoice = "all",
    pooling: PoolingChoice | None = None,
    max_length: int | None = None,
    batch_tokens: int = 4096,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> pd.DataFrame:
    """The vectors of layers: one per text and layer.

    `last` is the model as shipped: what `SentenceTransformer(model).encode` gives, with its own pooling, map,
    normalisation and prompt. Only a chat template is never applied, and sentence-transformers would wrap the texts of a
    plain language model in it. A layer number is that layer, pooled as the model pools unless `pooling` says otherwise.

    Args:
        model: a hub id, a folder, a ModelSpec, a transformers model or SentenceTransformer, or (module, tokenizer).
        data: texts in any form that `layerwise.texts` takes, clips or images in any form that `layerwise.audio` or
            `layerwise.images` takes, or a Source.
        layers: "last", "all", a number, a depth such as "50%", or several of these with commas or in a list.
        norm: "raw", or "normed": layers behind the model's final norm. Does not apply to `last`.
        tokens: which tokens are pooled: "all", "no_first", "no_special", "no_sinks" or "with_padding". Does not apply
            to `last`.
        pooling: "mean", "last", "first" or "max"; by default the model's own, or mean. Does not apply to `last`.
        max_length: longest input in tokens; by default the model's usual length.
        batch_tokens: how many tokens go through the model at once.
        out: also write the table to this Parquet file.
        overwrite: replace `out` where it exists.
        progress: show a progress bar.

    Returns:
        A table with the columns id, text (if the data are texts), and layer_K or last, which hold the vectors. There
        is one row for each row of the data: a row without a text has null vectors, and `attrs["blank_rows"]` counts
        such rows.

    Raises:
        InputError: an option or the data cannot be used, or `out` exists.
        NotFiniteError: a vector holds NaN or infinity.

    Example:
        >>> vectors = layerwise.embed(model, texts, layers="1,last")
        >>> list(vectors.columns), len(vectors)
        (['id', 'text', 'layer_1', 'last'], 40)
    """
    EmbedOptions(
        layers=layers,
        norm=norm,
        tokens=tokens,
        pooling=pooling,
        max_length=max_length,
        batch_tokens=batch_tokens,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    if out is not None:
        require_new_file(out, overwrite=overwrite)
    info, _ = model_info_and_dtype(model, static=True)  # what was asked for is checked before weights are loaded
    chosen = expand_layers(info, layers, readout_choices(norm, tokens, pooling))
    layer_numbers, with_last = separate_last(layers) if info.depth else (None, True)  # 0: a static model
    by_column = {
        f"layer_{k}": chosen[i] for i, k in enumerate(choose_layers(layer_numbers, info.depth) if layer_numbers else ())
    }
    by_column |= {"last": last_recipe(info)} if with_last else {}
    max_length = resolve_max_length(max_length, info)
    source = open_source(data, kind_of(info.preprocessor))
    rows = list(source.all_rows())
    examples = [example for _, example in rows if example is not None]
    network = open_network(model, static=True)
    with progress_bar(progress, len(examples), f"{source.unit}s") as on_batch:
        vectors = pooled_vectors(
            network,
            examples,
            [recipe.readout for recipe in chosen],
            template=chosen[0].template,  # the model's own prompt, the same for all
            batch_tokens=batch_tokens,
            max_length=max_length,
            on_batch=lambda done: on_batch(done, 0),
        )
    require_finite_vectors(vectors, examples, network.dtype)
    frame = frame_of(rows, vectors, by_column)
    if out is not None:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        write_atomically(Path(out), buffer.getvalue())
    return frame


def frame_of(
    rows: Sequence[tuple[str | None, Example | None]], vectors: Mapping[Readout, Tensor], named: Mapping[str, Recipe]
) -> pd.DataFrame:
    """One line for each row of the data; those without an example have null vectors."""
    columns: dict[str, Any] = {"id": [example.id if example else given for given, example in rows]}
    if all(isinstance(example.payload, str) for _, example in rows if example):
        columns["text"] = [example and example.payload for _, example in rows]
    for name, recipe in named.items():
        each = iter(vectors[recipe.readout].float().numpy())
        columns[name] = [next(each) if example else None for _, example in rows]
    frame = pd.DataFrame(columns)
    frame.attrs["blank_rows"] = sum(example is None for _, example in rows)
    return frame
