"""Clips from audio files, a folder of them, a table, a hub data set, or a list of files and arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from layerwise.core.options import takes
from layerwise.inputs.media import Medium
from layerwise.inputs.options import AudioOptions
from layerwise.inputs.source import Clip, Payload, Source


def clip_of(item: Any) -> Payload | None:
    """A clip from a pair (samples, rate), or from a mapping with array and sampling_rate, as in `datasets`."""
    if isinstance(item, Mapping):
        item = None if item.get("array") is None else (item["array"], item.get("sampling_rate"))
    if isinstance(item, tuple) and len(item) == 2 and hasattr(item[1], "__index__"):
        samples, rate = item
        return Clip(np.asarray(samples), int(rate))
    return None


AUDIO = Medium(
    noun="audio",
    unit="audio clip",
    plural="clips",
    suffixes=(".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif"),
    options=AudioOptions,
    help=(
        "pass a folder of audio files, one file (.wav, .flac), a .parquet, .csv or .jsonl file with a column of audio, "
        "a hub data set, or a list of files, bytes or pairs (samples, rate)"
    ),
    payload=clip_of,
    payload_help="bytes of a file, a path, or a pair (samples, rate)",
    array_problem="an array without a rate",
    feature="Audio",
)


@takes(AudioOptions)
def audio(options: AudioOptions) -> Source:
    """Opens audio clips with options, for `scan`, `plan` and `embed` of a model that takes audio.

    In a folder, the path of a file is its id.

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
    return AUDIO.open(options)
