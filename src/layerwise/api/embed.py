"""embed: the vectors of any layer."""

from dataclasses import replace
from typing import Any

import pandas as pd

from layerwise.api.reading import ways_to_read
from layerwise.core.checks import NormWord, PoolingWord, TokenChoice
from layerwise.core.progress import progress_bar
from layerwise.inputs.modalities import open_source
from layerwise.models.layers import LayerChoice, choose_layers
from layerwise.models.opening import longest, open_network
from layerwise.models.readouts import expand_layers, last_recipe, split_last
from layerwise.options.embed import EmbedOptions
from layerwise.passes.vectors import pooled_vectors, require_finite_vectors


def embed(
    model: Any,
    data: Any,
    *,
    layers: LayerChoice = "last",
    norm: NormWord = "raw",
    tokens: TokenChoice = "all",
    pooling: PoolingWord | None = None,
    max_length: int | None = None,
    batch_tokens: int = 4096,
    progress: bool = False,
) -> pd.DataFrame:
    """One vector per example for each chosen layer: columns id, text (of texts), and layer_K or last with the vectors.

    `last` is the model as shipped: what `SentenceTransformer(model).encode` gives, with its own pooling, map,
    normalisation and prompt. A layer number is that layer, pooled as the model pools unless `pooling` says otherwise.
    There is one row for each row of the data: one without a text has null vectors, and `attrs["blank_rows"]` counts
    them.
    """
    EmbedOptions(
        layers=layers,
        norm=norm,
        tokens=tokens,
        pooling=pooling,
        max_length=max_length,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    rows = list(open_source(data).every_row())
    examples = [example for _, example in rows if example is not None]
    network = open_network(model)
    chosen = expand_layers(network, layers, ways_to_read(norm, tokens, pooling))
    numbers, with_last = split_last(layers)
    named = {f"layer_{k}": chosen[i] for i, k in enumerate(choose_layers(numbers, network.depth) if numbers else ())}
    named |= {"last": last_recipe(network)} if with_last else {}
    prompt = chosen[0].prompt  # the model's own, the same for all
    behind = [replace(example, payload=prompt + example.text) for example in examples] if prompt else examples
    with progress_bar(progress) as on_batch:
        vectors = pooled_vectors(
            network,
            behind,
            [recipe.readout for recipe in chosen],
            batch_tokens=batch_tokens,
            max_length=longest(max_length, network),
            on_batch=lambda done: on_batch(done, 0),
        )
    require_finite_vectors(vectors, examples, network.dtype)
    columns: dict[str, Any] = {"id": [e.id if e else given for given, e in rows]}
    if all(isinstance(e.payload, str) for e in examples):
        columns["text"] = [e and e.payload for _, e in rows]
    for name, recipe in named.items():
        each = iter(vectors[recipe.readout].float().numpy())
        columns[name] = [next(each) if example else None for _, example in rows]
    frame = pd.DataFrame(columns)
    frame.attrs["blank_rows"] = len(rows) - len(examples)
    return frame
