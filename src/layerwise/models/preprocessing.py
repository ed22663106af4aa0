"""What makes a model's inputs, as it is read with them.

Tokenizers pad on the right, and lowercase where the model is set so; feature extractors of audio count frames, and
image processors count patches.
"""

import copy
from importlib.util import find_spec
from typing import Any

import numpy as np

from layerwise.core.errors import MissingExtra, ModelError
from layerwise.core.preprocessors import AudioPreprocessor, ImagePreprocessor
from layerwise.models.families.catalog import FAMILIES, family_of


def with_right_padding(tokenizer: Any) -> Any:
    """A copy of the tokenizer that pads on the right; the original is unchanged."""
    tokenizer = copy.deepcopy(tokenizer)
    if tokenizer.pad_token is None:  # padding is masked, so any token works
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.padding_side = "right"  # left padding is wrong with absolute positions
    return tokenizer


def lowercasing(tokenizer: Any) -> Any:
    """The tokenizer, changed to lowercase texts first, as sentence-transformers changes it for `do_lower_case`."""
    from tokenizers import normalizers

    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        raise ModelError("its settings have do_lower_case, which layerwise cannot follow with a tokenizer in Python")
    parts = normalizer_parts(backend.normalizer)
    if not any(lowercases(part) for part in parts):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *parts])
    return tokenizer


def normalizer_parts(normalizer: Any) -> list[Any]:
    """The normalizers that a sequence of them consists of, in order; none for None."""
    from tokenizers import normalizers

    if normalizer is None:
        return []
    is_sequence = isinstance(normalizer, normalizers.Sequence)  # which mypy takes for one without items
    return [part for item in normalizer for part in normalizer_parts(item)] if is_sequence else [normalizer]


def lowercases(normalizer: Any) -> bool:
    from tokenizers import normalizers

    return isinstance(normalizer, normalizers.Lowercase) or bool(getattr(normalizer, "lowercase", False))


SHAPES = ((48, 64, 3), (64, 48, 3))  # a wide and a tall image, to see whether inputs have one size


def is_image_processor(preprocessor: object) -> bool:
    """True for an image processor of transformers."""
    return callable(preprocessor) and hasattr(preprocessor, "image_mean") and hasattr(preprocessor, "to_dict")


def image_preprocessor(processor: Any, model_class: Any, config: Any, name: str) -> ImagePreprocessor:
    """Pairs an image processor with the patches of its model; raises if the family's patches are not known."""
    if (image_patches := family_of(config).image_patches) is None:
        known = ", ".join(sorted(t for family in FAMILIES if family.image_patches for t in family.types))
        raise ModelError(
            f"{name!r} takes images, but layerwise does not know which positions of a {model_class.__name__} are "
            f"patches; it knows {known}. Pass a pair (module, processor) instead: see docs/architecture.md"
        )
    patches, input_name = image_patches(config), model_class.main_input_name
    made = ImagePreprocessor(processor, patches, (0, 0), input_name)
    sizes = {made.pixels([np.zeros(shape, np.uint8)]).shape[-2:] for shape in SHAPES}
    if len(sizes) > 1:
        found = " and ".join(f"{height} x {width}" for height, width in sorted(sizes))
        raise ModelError(
            f"the image processor of {name!r} makes inputs of different sizes ({found} pixels); set height and width "
            "of size, or do_center_crop, in its preprocessor_config.json"
        )
    return ImagePreprocessor(processor, patches, sizes.pop(), input_name)


def require_pillow(name: str) -> None:
    """Raises if the image processor of a model cannot be loaded."""
    if find_spec("PIL") is None:
        raise MissingExtra(f"{name!r} takes images, which needs Pillow: pip install 'layerwise[vision]'")


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
