"""Images from files, a folder of them, a table, a hub data set, or a list; and how they are decoded."""

import io
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.options import takes
from layerwise.inputs.media import Medium
from layerwise.inputs.options import ImageOptions
from layerwise.inputs.source import Payload, Source

if TYPE_CHECKING:
    from PIL.Image import Image

# Other modes have more than 8 bits per channel: converting them to RGB would clip their values.
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")


def pixels_of(item: Any) -> Payload | None:
    """The pixels of an array or of a Pillow image; a mapping of `datasets` holds bytes or a path instead."""
    if isinstance(item, np.ndarray):
        return item
    if not isinstance(item, Mapping) and hasattr(item, "convert") and hasattr(item, "mode"):
        return np.asarray(as_rgb(item, "an image"))
    return None


IMAGES = Medium(
    noun="images",
    unit="image",
    plural="images",
    suffixes=(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"),
    options=ImageOptions,
    help=(
        "pass a folder of images, one file (.jpg, .png), a .parquet, .csv or .jsonl file with a column of images, a "
        "hub data set, or a list of files, bytes, arrays or Pillow images"
    ),
    payload=pixels_of,
    payload_help="bytes of a file, a path, an array (height, width, 3) of uint8, or a Pillow image",
    array_problem="a list",
    feature="Image",
)


@takes(ImageOptions)
def images(options: ImageOptions) -> Source:
    """Opens images with options, for `scan`, `plan`, `probe` and `embed` of a model that takes images.

    In a folder, the path of a file is its id.

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
    return IMAGES.open(options)


def made_up_images(count: int) -> list[Any]:
    """Arrays (height, width, 3) of uint8 in several shapes, always the same: noise on slopes of colour."""
    numbers, made = np.random.default_rng(0), []
    for number in range(count):
        height, width = 24 + 8 * (number % 5), 24 + 8 * (number % 7)
        slope = np.linspace(0, 200, height)[:, None, None] * np.linspace(0, 1, width)[:, None]
        colour = numbers.integers(0, 56, size=3)
        made.append((slope + colour + numbers.integers(0, 56, size=(height, width, 3))).clip(0, 255).astype(np.uint8))
    return made


def require_pillow() -> None:
    """Raises if images cannot be decoded."""
    if find_spec("PIL") is None:
        raise MissingExtra("reading images needs Pillow: pip install 'layerwise[vision]'")


def load_image(payload: Payload, where: str) -> "Image":
    """The image in RGB, upright if the file says how it was taken.

    Args:
        payload: the bytes of an image file, or an array (height, width), (height, width, 3) or (height, width, 4).
        where: the example, for error messages.

    Raises:
        InputError: it is not an image that can be read.
        MissingExtra: Pillow is not installed.
    """
    require_pillow()
    from PIL import Image, ImageOps

    if isinstance(payload, np.ndarray):
        return Image.fromarray(require_pixels(payload, where)).convert("RGB")
    image = open_image(payload, where)
    try:
        # The file says in its EXIF data how the camera was held; transformers turns images the same way.
        return as_rgb(ImageOps.exif_transpose(image), where)
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise InputError(f"{where} is not an image that can be read ({error}); remove it from the data") from None


def open_image(payload: Payload, where: str) -> "Image":
    """The image of a file, of which only the header has been read."""
    require_pillow()
    from PIL import Image, UnidentifiedImageError

    if not isinstance(payload, bytes):
        kind = "a text" if isinstance(payload, str) else f"a {type(payload).__name__}"
        raise InputError(f"{where} is {kind}, but this model takes images; choose their column (--column)")
    if not payload:
        raise InputError(f"{where} is an empty file; remove it from the data")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(payload))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{where} is too large ({error}); make it smaller, or remove it from the data") from None
    except UnidentifiedImageError:
        raise InputError(f"{where} is not an image in a format that Pillow reads; remove it from the data") from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise InputError(f"{where} is not an image that can be read ({error}); remove it from the data") from None


def as_rgb(image: "Image", where: str) -> "Image":
    """The image in RGB; transparency is dropped."""
    if image.mode not in MODES:
        raise InputError(
            f"{where} has Pillow's mode {image.mode}, more than 8 bits per channel; convert it to 8 bits first"
        )
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def require_pixels(pixels: Any, where: str) -> Any:
    """The array if it holds an image; raises otherwise."""
    shape_is_right = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not shape_is_right or 0 in pixels.shape:
        raise InputError(
            f"{where} is an array of shape {pixels.shape} and dtype {pixels.dtype}; pass uint8 from 0 to 255, "
            "(height, width) or (height, width, 3)"
        )
    return pixels


def require_readable(payload: Payload, where: str) -> None:
    """Raises for what is no image, as far as its header tells."""
    if isinstance(payload, np.ndarray):
        require_pixels(payload, where)
    else:
        open_image(payload, where)
