"""Views of a clip: seeded copies at another speed, shifted in time, louder or softer, with noise.

A view has as many samples as its clip, so that all views of an example have the same frames. `strength` sets all four
amounts; at 0.3, the default, the speed changes by at most 6 %, the shift is at most 6 % of the clip, the gain is
at most 6 dB, and the noise is 10.5 dB below the clip.
"""

import math
from random import Random

import numpy as np

from layerwise.inputs.decoding import Samples, resample

MAX_SPEED = 0.2  # share by which the speed changes at strength 1
MAX_SHIFT = 0.2  # share of the clip
MAX_GAIN_DB = 20.0
SPEED_STEPS = 1000  # speeds are multiples of 1/1000: resampling needs a ratio of whole numbers


def perturb_audio(samples: Samples, random: Random, strength: float) -> Samples:
    """Changes the speed, shifts, changes the gain, then adds noise."""
    for step in (change_speed, shift, change_gain, add_noise):
        samples = step(samples, random, strength)
    return samples


def change_speed(samples: Samples, random: Random, strength: float) -> Samples:
    """Faster or slower by up to `MAX_SPEED * strength`, pitch included; cut, or filled with silence, at the end."""
    speed = 1 + MAX_SPEED * strength * random.uniform(-1, 1)
    changed = resample(samples, round(SPEED_STEPS * speed), SPEED_STEPS)
    result = np.zeros_like(samples)
    result[: len(changed)] = changed[: len(samples)]
    return result


def shift(samples: Samples, random: Random, strength: float) -> Samples:
    """Later or earlier by up to `MAX_SHIFT * strength` of the clip; silence fills the gap."""
    distance = round(MAX_SHIFT * strength * random.uniform(-1, 1) * len(samples))
    result = np.zeros_like(samples)
    if distance >= 0:
        result[distance:] = samples[: len(samples) - distance]
    else:
        result[:distance] = samples[-distance:]
    return result


def change_gain(samples: Samples, random: Random, strength: float) -> Samples:
    """Louder or softer by up to `MAX_GAIN_DB * strength`; never clipped."""
    decibels = MAX_GAIN_DB * strength * random.uniform(-1, 1)
    return (samples * np.float32(10 ** (decibels / 20))).astype(np.float32)


def add_noise(samples: Samples, random: Random, strength: float) -> Samples:
    """White noise at a signal-to-noise ratio of -20 log10(strength) dB, relative to this clip."""
    return noise_at(samples, random, -20 * math.log10(strength))


def noise_at(samples: Samples, random: Random, snr_db: float) -> Samples:
    """The samples with white noise at this signal-to-noise ratio; silence stays silent."""
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    generator = np.random.default_rng(random.getrandbits(64))
    noise = generator.standard_normal(len(samples)) * math.sqrt(power / 10 ** (snr_db / 10))
    return (samples + noise).astype(np.float32)
