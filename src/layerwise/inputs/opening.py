"""What users call to open data with options: texts, audio, images, and examples with labels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.core.checks import Choices, require_count, split_choices
from layerwise.core.preprocessors import InputKind
from layerwise.inputs.audio import open_audio
from layerwise.inputs.images import open_images
from layerwise.inputs.labels import with_label_columns
from layerwise.inputs.modalities import open_source
from layerwise.inputs.options import TextFilter, require_label
from layerwise.inputs.source import ClipLike, ImageLike, Source
from layerwise.inputs.text import open_texts


def texts(
    data: str | Path | Iterable[str],
    *,
    column: str = "text",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    only: TextFilter | None = None,
    min_tokens: int = 0,
    tokenizer: Callable[..., Mapping[str, Any]] | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens texts with options, for every function that takes data. They are filtered first and then cut.

    Args:
        data: a list of texts, a .txt, .jsonl, .csv or .parquet file, `-` for standard input, a hub data set, or `demo`.
        column: the column with the text.
        id_column: the column with the id of each text; default: a hash of the text.
        split: the split of a hub data set.
        config: the configuration of a hub data set.
        only: "wikitext" drops headings and blanks, as the paper does; None keeps everything.
        min_tokens: drop texts that `tokenizer` makes shorter than this; 0 keeps all.
        tokenizer: a transformers tokenizer that counts the tokens; needed with `min_tokens`.
        limit: keep the first texts, this many; None keeps all.
        sample: keep a random sample of this many, chosen by hashed ids; None keeps all.

    Returns:
        A Source that can be iterated again and again; each example has an `id` and a `text`.

    Raises:
        InputError: a file or column does not exist, or an option cannot be used.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> source = layerwise.texts(texts, limit=3)
        >>> [example.text for example in source] == texts[:3]
        True
    """
    return open_texts(
        data,
        column=column,
        id_column=id_column,
        split=split,
        config=config,
        only=only,
        min_tokens=min_tokens,
        tokenizer=tokenizer,
        limit=limit,
        sample=sample,
    )


def audio(
    data: str | Path | Iterable[ClipLike],
    *,
    column: str = "audio",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens audio clips with options, for `scan`, `plan` and `embed` of a model that takes audio.

    Args:
        data: a folder of audio files, one file (.wav, .flac), a .parquet, .csv or .jsonl file with a column of audio, a
            hub data set, or a list of files, bytes of files, or pairs (samples, rate).
        column: the column with the audio: bytes of files, paths, or what `datasets` stores.
        id_column: the column with the id of each clip; default: a hash of its bytes. In a folder, the path of a file
            is its id.
        split: the split of a hub data set.
        config: the configuration of a hub data set.
        limit: keep the first clips, this many; None keeps all.
        sample: keep a random sample of this many, chosen by hashed ids; None keeps all.

    Returns:
        A Source that can be iterated again and again. Clips are decoded when they are used.

    Raises:
        InputError: a file or column does not exist, or an option cannot be used.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> import numpy as np
        >>> tone = np.sin(np.arange(8000) / 5)
        >>> [example.payload.rate for example in layerwise.audio([(tone, 16000), (tone / 2, 16000)])]
        [16000, 16000]
    """
    return open_audio(data, column=column, id_column=id_column, split=split, config=config, limit=limit, sample=sample)


def images(
    data: str | Path | Iterable[ImageLike],
    *,
    column: str = "image",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens images with options, for `scan`, `plan`, `probe` and `embed` of a model that takes images.

    Args:
        data: a folder of images, one file (.jpg, .png), a .parquet, .csv or .jsonl file with a column of images, a hub
            data set, or a list of files, bytes of files, arrays (height, width, 3) of uint8, or Pillow images.
        column: the column with the images: bytes of files, paths, or what `datasets` stores.
        id_column: the column with the id of each image; default: a hash of its bytes. In a folder, the path of a file
            is its id.
        split: the split of a hub data set.
        config: the configuration of a hub data set.
        limit: keep the first images, this many; None keeps all.
        sample: keep a random sample of this many, chosen by hashed ids; None keeps all.

    Returns:
        A Source that can be iterated again and again. Images are decoded when they are used.

    Raises:
        InputError: a file or column does not exist, or an option cannot be used.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> import numpy as np
        >>> black, white = np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 255, np.uint8)
        >>> [example.payload.shape for example in layerwise.images([black, white])]
        [(32, 32, 3), (32, 32, 3)]
    """
    return open_images(data, column=column, id_column=id_column, split=split, config=config, limit=limit, sample=sample)


def labelled(
    data: str | Path | Source,
    label: Choices,
    *,
    kind: InputKind = "text",
    column: str = "text",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens examples together with their labels, for `probe`.

    Args:
        data: a .jsonl, .csv or .parquet file or a hub data set with examples and labels; or a Source of any modality
            that was opened from such a table, whose labels are then read from the same table.
        label: the column with the labels, or several with commas or in a list.
        kind: what the examples are: "text", "audio" or "image". Not needed with a Source.
        column: the column with the text; for audio and images, `audio` or `image` unless another one is named.
        id_column: the column with the id of each example; default: a hash of its content.
        split: the split of a hub data set.
        config: the configuration of a hub data set.
        limit: keep the first examples, this many; None keeps all.
        sample: keep a random sample of this many, chosen by hashed ids; None keeps all.

    Returns:
        A Source whose examples have `labels`. For examples in memory use `Source.with_labels` instead.

    Raises:
        InputError: a file or column does not exist, or a label is missing.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> import pandas as pd
        >>> pd.DataFrame({"text": texts[:3], "topic": ["a", "b", "a"]}).to_csv(folder / "topics.csv", index=False)
        >>> source = layerwise.labelled(folder / "topics.csv", "topic")
        >>> [example.labels["topic"] for example in source]
        ['a', 'b', 'a']
    """
    require_label("label", label)
    source = data
    if not isinstance(source, Source):
        source = open_source(source, kind, column=column, id_column=id_column, split=split, config=config)
    source = with_label_columns(source, split_choices("label", label))
    options = dict(source.options)
    if limit is not None:
        source, options["limit"] = source.first(require_count("limit", limit)), limit
    if sample is not None:
        source, options["sample"] = source.sample(require_count("sample", sample)), sample
    return replace(source, options=options)
