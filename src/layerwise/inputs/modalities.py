"""Modalities: opens data as a source, and finds the processor for a model's preprocessor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import InputKind, is_audio, is_tokenizer
from layerwise.inputs.audio import COLUMN, open_audio
from layerwise.inputs.audio_processor import AudioProcessor
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Source
from layerwise.inputs.text import open_texts
from layerwise.inputs.text_processor import TextProcessor
from layerwise.options.texts import TextOptions


@dataclass(frozen=True)
class Modality:
    """How to recognise the preprocessor of a modality, the processor to use, and how its data are opened."""

    matches: Callable[[object], bool]
    processor: Callable[[Any, str], Processor[Any]]
    open: Callable[..., Source]


def open_audio_with(
    data: Any, *, only: None = None, min_tokens: int = 0, tokenizer: Any = None, **options: Any
) -> Source:
    """Opens clips with the options that texts have; raises for those that apply to texts only."""
    if only is not None or min_tokens:
        raise InputError("--only and --min-tokens filter texts, but this model takes audio")
    if options.get("column", TextOptions.column) == TextOptions.column:  # nobody reads audio from a column of texts
        options["column"] = COLUMN
    return open_audio(data, **options)


MODALITIES: Mapping[InputKind, Modality] = {
    "text": Modality(is_tokenizer, TextProcessor, open_texts),
    "audio": Modality(is_audio, AudioProcessor, open_audio_with),
}


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
    """Opens data as what the model takes, texts or audio; returns a Source unchanged."""
    return data if isinstance(data, Source) else MODALITIES[kind].open(data, **options)
