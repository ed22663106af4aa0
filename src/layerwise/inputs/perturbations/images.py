"""Views of an image: seeded copies as in SimCLR, cropped, mirrored, with other colours, grey, or blurred.

A view has the size of its image. `strength` sets all amounts except for mirroring; 1 is SimCLR's own setting.

SimCLR: Chen, Kornblith, Norouzi and Hinton, "A Simple Framework for Contrastive Learning of Visual Representations",
2020, appendix A.
"""

import math
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

LEAST_AREA = 0.08  # share of the image that a crop keeps at least, at strength 1
ASPECT = 4 / 3  # the most that a crop stretches, at strength 1
JITTER = 0.8  # brightness, contrast and saturation change by this share, at strength 1
HUE = 0.2  # share of the colour circle
JITTER_PROBABILITY = 0.8
GREY_PROBABILITY = 0.2  # at strength 1
BLUR_PROBABILITY = 0.5
BLUR = (0.1, 2.0)  # standard deviation in pixels of an image of BLUR_SIZE pixels, at strength 1
BLUR_SIZE = 224
CROP_ATTEMPTS = 10


def perturb_image(image: "Image", random: Random, strength: float) -> "Image":
    """Crops, mirrors, changes the colours, makes grey, then blurs."""
    for step in (crop, mirror, change_colours, make_grey, blur):
        image = step(image, random, strength)
    return image


def crop(image: "Image", random: Random, strength: float) -> "Image":
    """A part of the image, resized to the size of the whole."""
    from PIL import Image as Images

    return image.resize(image.size, Images.Resampling.BICUBIC, box=crop_box(image.size, random, strength))


def crop_box(size: tuple[int, int], random: Random, strength: float) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a crop inside the image: its area and how far it will be stretched are drawn."""
    width, height = size
    for _ in range(CROP_ATTEMPTS):
        share = random.uniform(1 - (1 - LEAST_AREA) * strength, 1)
        aspect = math.exp(random.uniform(-1, 1) * strength * math.log(ASPECT))  # relative to that of the image
        w, h = round(width * math.sqrt(share * aspect)), round(height * math.sqrt(share / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


def mirror(image: "Image", random: Random, strength: float) -> "Image":
    """Left and right exchanged, for half of all views."""
    from PIL import ImageOps

    return ImageOps.mirror(image) if random.random() < 0.5 else image


def change_colours(image: "Image", random: Random, strength: float) -> "Image":
    """Another brightness, contrast, saturation and hue, in random order, for most views."""
    from PIL import ImageEnhance

    if random.random() >= JITTER_PROBABILITY:
        return image
    steps = ["brightness", "contrast", "saturation", "hue"]
    random.shuffle(steps)
    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "saturation": ImageEnhance.Color,
    }
    for step in steps:
        if step == "hue":
            image = shift_hue(image, HUE * strength * random.uniform(-1, 1))
        else:
            image = enhancers[step](image).enhance(1 + JITTER * strength * random.uniform(-1, 1))
    return image


def shift_hue(image: "Image", share: float) -> "Image":
    """All hues turned by a share of the colour circle."""
    from PIL import Image as Images

    offset = round(share * 256)
    hue, saturation, value = image.convert("HSV").split()
    turned = hue.point([(level + offset) % 256 for level in range(256)])
    return Images.merge("HSV", (turned, saturation, value)).convert("RGB")


def make_grey(image: "Image", random: Random, strength: float) -> "Image":
    """Without colour, for a few views."""
    return image.convert("L").convert("RGB") if random.random() < GREY_PROBABILITY * strength else image


def blur(image: "Image", random: Random, strength: float) -> "Image":
    """A Gaussian blur, for half of all views; its width grows with the image."""
    from PIL import ImageFilter

    if random.random() >= BLUR_PROBABILITY:
        return image
    radius = random.uniform(*BLUR) * strength * max(image.size) / BLUR_SIZE
    return image.filter(ImageFilter.GaussianBlur(radius))
