"""Audio samples from the bytes of a file or an array: decoded, checked, mixed down to mono and resampled."""

import io
import math
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from layerwise.core.errors import InputError, MissingExtra
from layerwise.inputs.source import Clip, Payload

Samples = npt.NDArray[np.float32]

RATES = (1_000, 1_000_000)  # samples per second; anything else is a damaged header
MAX_CHANNELS = 64
BLOCK = 1 << 18  # samples that are read at once: a header may claim more than there are
MARGIN_SECONDS = 1  # read beyond the end of a truncated clip, so that resampling sees what follows
ZERO_CROSSINGS = 64  # of the filter on each side
STOPBAND_DB = 90.0


def load_samples(payload: Payload, rate: int, limit: int, where: str) -> tuple[Samples, bool]:
    """At most `limit` mono samples at this rate, and whether the clip has more.

    Args:
        payload: the bytes of an audio file, or a Clip.
        rate: samples per second that the model takes.
        limit: the most samples that it takes.
        where: the example, for error messages.

    Raises:
        InputError: it is not audio, is empty, or contains NaN or infinity.
        MissingExtra: soundfile is not installed.
    """
    if isinstance(payload, Clip):
        samples, own_rate = array_samples(payload, where), payload.rate
    elif isinstance(payload, bytes):
        samples, own_rate = file_samples(payload, rate, limit, where)
    else:
        kind = "a text" if isinstance(payload, str) else f"a {type(payload).__name__}"
        raise InputError(f"{where} is {kind}, but this model takes audio; choose the column with the audio (--column)")
    if not len(samples):
        raise InputError(f"{where} contains no samples; remove it from the data")
    if not np.isfinite(samples).all():
        raise InputError(f"{where} contains NaN or infinity; remove it from the data")
    resampled = resample(samples, own_rate, rate)
    return resampled[:limit], len(resampled) > limit


def array_samples(clip: Clip, where: str) -> Samples:
    """The samples of an array; integers are divided by their largest value."""
    samples, kind = clip.samples, clip.samples.dtype.kind
    require_header(clip.rate, samples.shape[1] if samples.ndim == 2 else 1, where)
    if kind not in "fi" or samples.ndim not in (1, 2):
        raise InputError(
            f"{where} is an array of shape {samples.shape} and dtype {samples.dtype}; pass floats or signed integers, "
            "(samples,) or (samples, channels)"
        )
    scale = 1.0 if kind == "f" else float(np.iinfo(samples.dtype).max) + 1.0
    return mono(samples / scale)


def file_samples(content: bytes, rate: int, limit: int, where: str) -> tuple[Samples, int]:
    """The decoded samples of a file and their rate: all, or a little more than the model takes."""
    if find_spec("soundfile") is None:
        raise MissingExtra("reading audio files needs soundfile: pip install 'layerwise[audio]'")
    import soundfile

    if not content:
        raise InputError(f"{where} is an empty file; remove it from the data")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            require_header(file.samplerate, file.channels, where)
            wanted = math.ceil(limit * file.samplerate / rate) + MARGIN_SECONDS * file.samplerate
            blocks: list[Samples] = []
            while wanted > 0 and len(block := file.read(min(BLOCK, wanted), dtype="float32", always_2d=True)):
                blocks.append(mono(block))
                wanted -= len(block)
            return (np.concatenate(blocks) if blocks else np.zeros(0, np.float32)), int(file.samplerate)
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        raise InputError(f"{where} is not an audio file that can be read ({error}); use wav or flac") from None


def require_header(rate: int, channels: int, where: str) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise InputError(f"{where} has {rate:,} samples per second; {RATES[0]:,} to {RATES[1]:,} can be read")
    if not 1 <= channels <= MAX_CHANNELS:
        raise InputError(f"{where} has {channels} channels; 1 to {MAX_CHANNELS} can be read")


def mono(samples: npt.NDArray[Any]) -> Samples:
    """The mean over channels."""
    return np.asarray(samples if samples.ndim == 1 else samples.mean(axis=1), dtype=np.float32)


def resample(samples: Samples, rate: int, new_rate: int) -> Samples:
    """The samples at another rate: a polyphase filter without aliasing.

    The filter passes frequencies up to 91 % of half the lower rate, and stops those above half of it by 90 dB. The
    result has ceil(N * new_rate / rate) samples.
    """
    if rate == new_rate:
        return samples
    from scipy.signal import resample_poly

    common = math.gcd(rate, new_rate)
    up, down = new_rate // common, rate // common
    resampled = resample_poly(samples, up, down, window=low_pass(max(up, down)))
    return np.asarray(resampled, dtype=np.float32)


@lru_cache(maxsize=64)
def low_pass(factor: int) -> npt.NDArray[np.float64]:
    """A Kaiser filter that stops everything above 1/factor of half the rate."""
    from scipy.signal import firwin, kaiser_beta

    half = ZERO_CROSSINGS * factor
    transition = (STOPBAND_DB - 7.95) / (2.285 * 2 * half * math.pi)  # Kaiser's formula, as a share of half the rate
    taps: npt.NDArray[np.float64] = firwin(
        2 * half + 1, 1 / factor - transition / 2, window=("kaiser", kaiser_beta(STOPBAND_DB))
    )
    return taps
