"""embed: vectors of chosen layers."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from layerwise.core.files import write_atomically
from layerwise.core.options import takes
from layerwise.core.outputs import require_new_file
from layerwise.core.progress import progress_bar
from layerwise.core.recipe import Readout, Recipe
from layerwise.inputs.modalities import kind_of, open_source
from layerwise.inputs.source import Example
from layerwise.models.layers import choose_layers
from layerwise.models.opening import model_info_and_dtype, open_network, resolve_max_length
from layerwise.models.readouts import expand_layers, last_recipe, readout_choices, separate_last
from layerwise.passes.vectors import pooled_vectors, require_finite_vectors
from layerwise.verbs.embed.options import EmbedOptions


@takes(EmbedOptions)
def embed(options: EmbedOptions) -> pd.DataFrame:
    """The vectors of layers: one per text and layer.

    `last` is the model as shipped: what `SentenceTransformer(model).encode` gives, with its own pooling, map,
    normalisation and prompt. Only a chat template is never applied, and sentence-transformers would wrap the texts of a
    plain language model in it. A layer number is that layer, pooled as the model pools unless `pooling` says otherwise.

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
    if options.out is not None:
        require_new_file(options.out, overwrite=options.overwrite)
    # What was asked for is checked before weights are loaded.
    info, _ = model_info_and_dtype(options.model, static=True)
    chosen = expand_layers(info, options.layers, readout_choices(options.norm, options.tokens, options.pooling))
    layer_numbers, with_last = separate_last(options.layers) if info.depth else (None, True)  # 0: a static model
    by_column = {
        f"layer_{k}": chosen[i] for i, k in enumerate(choose_layers(layer_numbers, info.depth) if layer_numbers else ())
    }
    by_column |= {"last": last_recipe(info)} if with_last else {}
    max_length = resolve_max_length(options.max_length, info)
    source = open_source(options.data, kind_of(info.preprocessor))
    rows = list(source.all_rows())
    examples = [example for _, example in rows if example is not None]
    network = open_network(options.model, static=True, states_only=True)
    with progress_bar(options.progress, len(examples), f"{source.unit}s") as on_batch:
        vectors = pooled_vectors(
            network,
            examples,
            [recipe.readout for recipe in chosen],
            template=chosen[0].template,  # the model's own prompt, the same for all
            batch_tokens=options.batch_tokens,
            max_length=max_length,
            on_batch=lambda done: on_batch(done, 0),
        )
    require_finite_vectors(vectors, examples, network.dtype)
    frame = frame_of(rows, vectors, by_column)
    if options.out is not None:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        write_atomically(Path(options.out), buffer.getvalue())
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
