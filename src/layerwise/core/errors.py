"""The error classes.

    LayerwiseError
    ├── InputError        (also ValueError)    a problem with an argument, an option or the data
    │   └── NotFiniteError                     NaN or infinity instead of finite numbers
    ├── MergeError        (also ValueError)    two states that were made with different plans
    ├── ModelError                             a model that cannot be loaded, or read layer by layer
    ├── MissingExtra      (also ImportError)   an optional dependency that is not installed
    ├── TooLarge          (also MemoryError)   a plan or a batch that does not fit into memory
    ├── ExportError                            an exported model would not reproduce the measured vectors
    ├── StoreError        (also OSError)       an object store that does not answer
    └── RunError                               a run folder that is missing, damaged, or belongs to another run

There is a class only if a caller could act on it. Every message says what happened, with the actual values, what was
expected, and what to do next. A message never contains a password or key from a URL.
"""

from layerwise.core.display import redact


class LayerwiseError(Exception):
    """Base class of all errors that layerwise raises deliberately."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(redact(part) if isinstance(part, str) else part for part in args))


class InputError(LayerwiseError, ValueError):
    """An argument, an option or the data cannot be used as given."""


class NotFiniteError(InputError):
    """NaN or infinity was found where a finite number was expected."""


class MergeError(LayerwiseError, ValueError):
    """Two states were made with different plans and cannot be merged."""


class ModelError(LayerwiseError):
    """A model cannot be loaded, or its layers cannot be identified."""


class MissingExtra(LayerwiseError, ImportError):
    """An optional dependency is needed and not installed."""


class TooLarge(LayerwiseError, MemoryError):
    """A plan or a single batch does not fit into memory."""


class ExportError(LayerwiseError):
    """The exported model would not reproduce the measured vectors."""


class StoreError(LayerwiseError, OSError):
    """An object store does not answer, or answers with errors; the same call may succeed later."""


class RunError(LayerwiseError):
    """A run folder is missing, damaged, or belongs to another run."""
