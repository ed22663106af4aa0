"""images: open images with options."""

from collections.abc import Iterable
from pathlib import Path

from layerwise.inputs.images import open_images
from layerwise.inputs.source import ImageLike, Source


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
