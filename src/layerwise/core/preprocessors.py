"""The preprocessor of a model: a tokenizer, an audio or image front end, or something else."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from layerwise.core.errors import InputError

InputKind = Literal["text", "audio", "image"]
NO_LIMIT = 1_000_000  # positions, if neither preprocessor nor config set a limit
DEFAULT_MAX_LENGTH = 512  # of a scan, so that metrics compare equal lengths


def is_tokenizer(preprocessor: object) -> bool:
    """True for anything that turns texts into token ids."""
    return callable(preprocessor) and hasattr(preprocessor, "get_vocab")


def require_tokenizer(preprocessor: object, step: str) -> None:
    """Raises if a text-only step is used with a model that does not read text."""
    if not is_tokenizer(preprocessor):
        kind = type(preprocessor).__name__
        raise InputError(f"{step} works on texts only, but this model has no tokenizer; its inputs come from a {kind}")


@dataclass(frozen=True)
class Frames:
    """How an audio model turns samples into positions.

    A model with a `window` takes that many frames whatever the clip, which is padded or truncated. Other models take
    the frames that their convolutions make. A frame is a step in time; it may hold several positions (frequencies).
    """

    strides: tuple[int, ...]  # of the convolutions, hop of a spectrogram included
    kernels: tuple[int, ...] = ()  # of the convolutions; not needed with a window
    window: int = 0
    reach: int = 0  # samples that the last frame of a window reads beyond its step
    rows: int = 1  # positions per frame
    special: int = 0  # positions before the frames, such as a class token
    pads_exactly: bool = True  # a padded clip has the same hidden states as the clip alone

    @property
    def step(self) -> int:
        """Samples from one frame to the next."""
        return math.prod(self.strides)

    def count(self, samples: int) -> int:
        """The frames that cover real audio.

        In a window, a frame counts if the audio reaches into its step: a frame that is partly real is real. A
        convolution makes a frame only where the audio fills its kernel.
        """
        if self.window:
            return min(self.window, -(-samples // self.step))
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            samples = (samples - kernel) // stride + 1 if samples >= kernel else 0
        return samples

    def least_samples(self, frames: int) -> int:
        """The fewest samples that have this many frames."""
        if self.window:
            return (frames - 1) * self.step + 1
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides), strict=True):
            frames = (frames - 1) * stride + kernel
        return frames

    def most_samples(self, frames: int) -> int:
        """The most samples that have this many frames; all that the model reads for a whole window."""
        return self.least_samples(frames + 1) - 1 + (self.reach if self.window and frames >= self.window else 0)

    def positions(self, samples: int) -> int:
        """The positions that the model computes for a clip."""
        return self.special + self.rows * (self.window or self.count(samples))


@dataclass(frozen=True)
class AudioPreprocessor:
    """A feature extractor of transformers, with how its model turns samples into positions."""

    extractor: Any
    frames: Frames
    input_name: str  # the argument of the model that takes the features

    @property
    def rate(self) -> int:
        """Samples per second that the model takes."""
        return int(self.extractor.sampling_rate)

    @property
    def model_max_length(self) -> int:
        """The longest clip in frames."""
        return self.frames.window or NO_LIMIT

    def identity(self) -> str:
        """A string that changes whenever the inputs would change."""
        settings: Mapping[str, Any] = self.extractor.to_dict()
        content = [type(self.extractor).__name__, settings, asdict(self.frames), self.input_name]
        return json.dumps(content, sort_keys=True, default=str)


def is_audio(preprocessor: object) -> bool:
    """True for the preprocessor of a model that takes audio."""
    return isinstance(preprocessor, AudioPreprocessor)


@dataclass(frozen=True)
class Patches:
    """How an image model turns pixels into positions."""

    size: int  # pixels of a patch, in each direction
    special: int = 0  # positions before the patches: class tokens and registers
    order_input: str = ""  # the argument that orders the patches of a model that would shuffle them


@dataclass(frozen=True)
class ImagePreprocessor:
    """An image processor of transformers, with how its model turns pixels into positions."""

    processor: Any
    patches: Patches
    input_size: tuple[int, int]  # height and width of every input in pixels
    input_name: str  # the argument of the model that takes the pixels

    @property
    def positions(self) -> int:
        """The positions that enter the first block."""
        height, width = (size // self.patches.size for size in self.input_size)
        return self.patches.special + height * width

    @property
    def model_max_length(self) -> int:
        """The length that is recorded: images are never cut, so it has no effect beyond that."""
        return min(self.positions, DEFAULT_MAX_LENGTH)

    def pixels(self, images: list[Any]) -> Any:
        """The model's input, (B, 3, height, width) in float32, from arrays (height, width, 3) of uint8."""
        made = self.processor(images=images, return_tensors="np", input_data_format="channels_last")
        return made[self.input_name]

    def identity(self) -> str:
        """A string that changes whenever the inputs would change."""
        content = [type(self.processor).__name__, self.processor.to_dict(), asdict(self.patches), self.input_name]
        return json.dumps(content, sort_keys=True, default=str)


def is_image(preprocessor: object) -> bool:
    """True for the preprocessor of a model that takes images."""
    return isinstance(preprocessor, ImagePreprocessor)
