"""The backends by name. A new format needs one file and one row here; an object can also be passed to `export`."""

from layerwise.core.checks import suggestion
from layerwise.core.errors import InputError
from layerwise.exporter.backends.backend import Backend
from layerwise.exporter.backends.sentence_transformers.backend import SentenceTransformersBackend

BACKENDS: tuple[Backend, ...] = (SentenceTransformersBackend(),)


def find_backend(given: str | Backend) -> Backend:
    """The backend of that name; a Backend object is returned unchanged."""
    if not isinstance(given, str):
        return given
    known = {backend.name: backend for backend in BACKENDS}
    if given not in known:
        raise InputError(f"backend {given!r} is not one of {', '.join(known)}{suggestion(given, known)}")
    return known[given]
