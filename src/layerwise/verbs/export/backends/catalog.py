"""The backends by name. A new format needs one file and one row here; an object can also be passed to `export`."""

from layerwise.core.checks import suggestion
from layerwise.core.errors import InputError
from layerwise.verbs.export.backends.backend import Backend
from layerwise.verbs.export.backends.gguf.backend import GgufBackend
from layerwise.verbs.export.backends.onnx import OnnxBackend
from layerwise.verbs.export.backends.openvino import OpenVinoBackend
from layerwise.verbs.export.backends.sentence_transformers.backend import SentenceTransformersBackend

BACKENDS: tuple[Backend, ...] = (SentenceTransformersBackend(), OnnxBackend(), OpenVinoBackend(), GgufBackend())


def find_backend(chosen: str | Backend) -> Backend:
    """The backend of that name; a Backend object is returned unchanged."""
    if not isinstance(chosen, str):
        return chosen
    by_name = {backend.name: backend for backend in BACKENDS}
    if chosen not in by_name:
        raise InputError(f"format {chosen!r} is not one of {', '.join(by_name)}{suggestion(chosen, by_name)}")
    return by_name[chosen]
