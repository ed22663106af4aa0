"""Modalities: opens data as a source, and finds the processor for a model's preprocessor."""

from collections.abc import Callable, Sequence
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import is_tokenizer
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Source
from layerwise.inputs.text import open_texts
from layerwise.inputs.text_processor import TextProcessor

# One row per modality: how to recognise its preprocessor, and the processor to use.
PROCESSORS: Sequence[tuple[Callable[[object], bool], Callable[[Any, str], Processor[Any]]]] = (
    (is_tokenizer, TextProcessor),
)


def processor_for(preprocessor: object, template: str = "") -> Processor[Any]:
    """The processor for a model's preprocessor; a custom processor is returned unchanged."""
    for is_match, processor in PROCESSORS:
        if is_match(preprocessor):
            return processor(preprocessor, template)
    if isinstance(preprocessor, Processor):
        if template:
            raise InputError(f"a template is for texts; {type(preprocessor).__name__} makes the inputs of this model")
        return preprocessor
    raise InputError(
        f"cannot make inputs with a {type(preprocessor).__name__}; pass a pair (module, tokenizer), or (module, "
        "processor) with your own processor, which needs stress_kinds, prepare, collate, masks and size "
        "(docs/architecture.md)"
    )


def open_source(data: Any) -> Source:
    """Opens a list of texts, a file, a hub data set or `demo` as texts; returns a Source unchanged."""
    return data if isinstance(data, Source) else open_texts(data)
