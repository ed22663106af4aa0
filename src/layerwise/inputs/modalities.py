"""Modalities: which source data are read as, and which processor goes with what a model was loaded with."""

from collections.abc import Callable, Sequence
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import is_tokenizer
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Source
from layerwise.inputs.text import open_texts
from layerwise.inputs.text_processor import TextProcessor

# How a preprocessor is recognised, and what makes a processor of it: one row per modality.
PROCESSORS: Sequence[tuple[Callable[[object], bool], Callable[[Any], Processor[Any]]]] = (
    (is_tokenizer, TextProcessor),
)


def processor_for(preprocessor: object) -> Processor[Any]:
    """The processor around what a model was loaded with; one that a user wrote is taken as it is."""
    for recognised, processor in PROCESSORS:
        if recognised(preprocessor):
            return processor(preprocessor)
    if isinstance(preprocessor, Processor):
        return preprocessor
    raise InputError(
        f"a {type(preprocessor).__name__} makes no inputs; pass a pair (module, tokenizer), or (module, processor) "
        "with a processor of your own: it has stresses, prepare, collate, masks and size (docs/architecture.md)"
    )


def open_source(data: Any) -> Source:
    """A Source as it is; a list of texts, a file, a hub data set or `demo` as texts."""
    return data if isinstance(data, Source) else open_texts(data)
