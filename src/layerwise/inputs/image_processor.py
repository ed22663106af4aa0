"""The image processor: decodes images, makes views, and turns them into the pixels that the model takes."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import ImagePreprocessor
from layerwise.inputs.images import load_image, require_readable
from layerwise.inputs.perturbations.changes import NO_VIEWS, ViewPlan, with_views
from layerwise.inputs.perturbations.images import perturb_image
from layerwise.inputs.processor import Masks, Prepared, make_prepared
from layerwise.inputs.source import Example, Payload

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class ImageView:
    """An image and its views, which are made when the batch is built: decoded, a shard may not fit into memory."""

    example: Example
    plan: ViewPlan


@dataclass(frozen=True)
class ImageProcessor:
    """An image processor of transformers as a Processor. All images have the same number of positions."""

    preprocessor: ImagePreprocessor
    template: str = ""

    def __post_init__(self) -> None:
        if self.template:
            raise InputError("a template is for texts, but this model takes images")

    @property
    def stress_kinds(self) -> Collection[str]:
        return ()

    def prepare(
        self, examples: Sequence[Example], max_length: int, view_plan: ViewPlan = NO_VIEWS
    ) -> list[Prepared[ImageView]]:
        if max_length < self.preprocessor.model_max_length:
            raise InputError(
                f"max_length {max_length} would cut images, which are read whole: this model reads "
                f"{self.preprocessor.positions} positions of each; leave max_length (--max-length) out"
            )
        for example in examples:
            require_readable(example.payload, f"example {example.id}")
        sizes = [self.preprocessor.positions] * (1 + view_plan.views)
        return [make_prepared(example, (ImageView(example, view_plan),), sizes) for example in examples]

    def collate(self, group: Sequence[Prepared[ImageView]]) -> Mapping[str, Tensor]:
        images: list[Image] = []
        for prepared in group:
            (view,) = prepared.views
            image = load_image(view.example.payload, f"example {view.example.id}")
            images += with_views(image, perturb_image, view.plan, view.example.id)
        pixels = self.preprocessor.pixels([np.asarray(image) for image in images])
        inputs = {self.preprocessor.input_name: torch.from_numpy(pixels)}
        if name := self.preprocessor.patches.order_input:  # the given order instead of a random one
            count = self.preprocessor.positions - self.preprocessor.patches.special
            inputs[name] = torch.arange(count, dtype=torch.float32).expand(len(images), -1)
        return inputs

    def masks(self, group: Sequence[Prepared[ImageView]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        device = inputs[self.preprocessor.input_name].device
        shape = len(group), len(group[0].sizes), positions
        special = torch.arange(positions, device=device) < self.preprocessor.patches.special
        return Masks(torch.ones(shape, dtype=torch.bool, device=device), special.expand(shape))

    def size(self, payload: Payload) -> float:
        try:
            require_readable(payload, "an example")
        except InputError:
            return math.inf
        return self.preprocessor.positions
