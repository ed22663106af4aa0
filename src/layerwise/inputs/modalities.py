"""Modalities: opens data as a source, and finds the processor for a model's preprocessor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import InputKind, is_audio, is_image, is_tokenizer
from layerwise.core.recipe import Recipe
from layerwise.inputs.audio import AUDIO
from layerwise.inputs.audio_processor import AudioProcessor
from layerwise.inputs.image_processor import ImageProcessor
from layerwise.inputs.images import IMAGES
from layerwise.inputs.media import Medium
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import DataLike, Source
from layerwise.inputs.text import texts
from layerwise.inputs.text_processor import TextProcessor


@dataclass(frozen=True)
class Modality:
    """How to recognise the preprocessor of a modality, the processor to use, and how its data are opened."""

    matches: Callable[[object], bool]
    processor: Callable[[Any, str], Processor[Any]]
    open: Callable[..., Source]


MODALITIES: Mapping[InputKind, Modality] = {
    "text": Modality(is_tokenizer, TextProcessor, texts),
    "audio": Modality(is_audio, AudioProcessor, AUDIO.open_with),
    "image": Modality(is_image, ImageProcessor, IMAGES.open_with),
}
MEDIA: Mapping[InputKind, Medium] = {"audio": AUDIO, "image": IMAGES}  # whose data may be folders of files


def kind_of(preprocessor: object) -> InputKind:
    """What a preprocessor takes; "text" for a processor passed by the user, which comes with its own source."""
    return next((kind for kind, modality in MODALITIES.items() if modality.matches(preprocessor)), "text")


def processor_for(preprocessor: object, template: str = "") -> Processor[Any]:
    """The processor for a model's preprocessor; a custom processor is returned unchanged."""
    for modality in MODALITIES.values():
        if modality.matches(preprocessor):
            return modality.processor(preprocessor, template)
    if isinstance(preprocessor, Processor):
        if template:
            raise InputError(f"a template is for texts; {type(preprocessor).__name__} makes the inputs of this model")
        return preprocessor
    raise InputError(
        f"cannot make inputs with a {type(preprocessor).__name__}; pass a pair (module, tokenizer), or (module, "
        "processor) with your own processor, which needs stress_kinds, prepare, collate, masks and size "
        "(docs/architecture.md)"
    )


def open_source(data: Any, kind: InputKind = "text", **options: Any) -> Source:
    """Opens data as what the model takes, texts, audio or images; returns a Source unchanged."""
    return data if isinstance(data, Source) else MODALITIES[kind].open(data, **options)


def texts_to_fit(fit: DataLike | None, recipes: Sequence[Recipe]) -> tuple[str, ...] | Literal["task"]:
    """The texts of `fit`, or "task"; raises if a recipe has a map but `fit` is None."""
    if fit is None and (transforms := [r.transform for r in recipes if r.transform != "none"]):
        raise InputError(f"transform {transforms[0]} must be fitted on texts of your own kind: pass fit= (--fit FILE)")
    if isinstance(fit, str) and fit == "task":
        return "task"
    return () if fit is None else tuple(example.text for example in open_source(fit))
