"""The preprocessor of a model that takes audio: its feature extractor, and how it counts frames."""

import copy
from typing import Any

from layerwise.core.errors import ModelError
from layerwise.core.preprocessors import AudioPreprocessor
from layerwise.models.families.catalog import FAMILIES, family_of


def is_feature_extractor(preprocessor: object) -> bool:
    """True for a feature extractor of transformers that takes audio."""
    return callable(preprocessor) and hasattr(preprocessor, "sampling_rate") and hasattr(preprocessor, "to_dict")


def audio_preprocessor(extractor: Any, model_class: Any, config: Any, name: str) -> AudioPreprocessor:
    """Pairs a feature extractor with the frames of its model; raises if the family's frames are not known."""
    if (audio_frames := family_of(config).audio_frames) is None:
        known = ", ".join(sorted(t for family in FAMILIES if family.audio_frames for t in family.types))
        raise ModelError(
            f"{name!r} takes audio, but layerwise does not know which frames of a {model_class.__name__} cover real "
            f"audio; it knows {known}. Pass a pair (module, processor) instead: see docs/architecture.md"
        )
    extractor = copy.copy(extractor)
    if getattr(extractor, "dither", 0.0):
        extractor.dither = 0.0  # random noise, different on every call
    return AudioPreprocessor(extractor, audio_frames(config, extractor), model_class.main_input_name)
