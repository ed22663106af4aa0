"""The preprocessor of a model that takes images: its image processor, and how it counts patches."""

from importlib.util import find_spec
from typing import Any

import numpy as np

from layerwise.core.errors import MissingExtra, ModelError
from layerwise.core.preprocessors import ImagePreprocessor
from layerwise.models.families.catalog import FAMILIES, family_of

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
