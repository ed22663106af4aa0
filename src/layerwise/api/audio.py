"""audio: open clips with options."""

from collections.abc import Iterable
from pathlib import Path

from layerwise.inputs.audio import open_audio
from layerwise.inputs.source import ClipLike, Source


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
