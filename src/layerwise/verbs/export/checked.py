"""The inputs on which an exported model is checked: texts of all lengths, or images of several shapes."""

from collections.abc import Sequence
from typing import Any

from layerwise.core.quiet import quiet_libraries
from layerwise.inputs.images import made_up_images
from layerwise.inputs.modalities import kind_of
from layerwise.inputs.text import demo_texts
from layerwise.passes.batches import network_processor
from layerwise.verbs.export.backends.backend import ExportJob

CHECKED = 26  # texts or images; of texts, the last but one is very short and the last one long
LONGEST_TEXT = 2048  # tokens: longer inputs than this are not made only to be truncated
DOUBLINGS = 8  # of a text, to make it that long; a tokenizer may give any text the same few tokens


def checked_inputs(job: ExportJob) -> tuple[Sequence[Any], bool]:
    """What to encode, and whether the last input is longer than max_length. Images are read whole."""
    if kind_of(job.network.preprocessor) == "image":
        return made_up_images(CHECKED), False
    long_text, truncated = text_to_truncate(job)
    return [*demo_texts()[: CHECKED - 2], "Short.", long_text], truncated


def text_to_truncate(job: ExportJob) -> tuple[str, bool]:
    """A text that is longer than max_length, and True; False if that would take too long to encode."""
    length = min(job.max_length, LONGEST_TEXT)
    processor = network_processor(job.network, job.recipe.template)
    text = " ".join(demo_texts()[:40])
    with quiet_libraries():  # transformers warns about inputs that are longer than the model allows
        for _ in range(DOUBLINGS):
            if processor.size(text) <= length:
                text = f"{text} {text}"
        return text, processor.size(text) > job.max_length
