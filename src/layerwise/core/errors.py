"""What went wrong, and the mend.

    LayerwiseError
    ├── InputError        (also ValueError)    an argument, an option or the data: the caller can change it
    │   └── NotFiniteError                     NaN or infinity where numbers were expected
    ├── MergeError        (also ValueError)    two states that do not belong to the same plan
    ├── ModelError                             a model that cannot be loaded, or read layer by layer
    ├── MissingExtra      (also ImportError)   an optional dependency that is not installed
    ├── TooLarge          (also MemoryError)   a plan or a batch that does not fit into memory
    ├── ExportError                            an exported model would not give the vectors that were measured
    └── RunError                               a run folder that is missing, damaged, or another run's

A class exists only where a caller could act on it. Every message says what happened with the actual
values, what was expected, and what to do next. A message never holds the password or key of a url.
"""

from layerwise.core.display import redacted


class LayerwiseError(Exception):
    """Base of every error that layerwise raises on purpose."""

    def __init__(self, *given: object) -> None:
        super().__init__(*(redacted(part) if isinstance(part, str) else part for part in given))


class InputError(LayerwiseError, ValueError):
    """An argument, an option or the data is not usable as it stands."""


class NotFiniteError(InputError):
    """NaN or infinity stands where a number was expected."""


class MergeError(LayerwiseError, ValueError):
    """Two states were made under different plans and must not be added up."""


class ModelError(LayerwiseError):
    """A model cannot be loaded, or its layers cannot be told apart."""


class MissingExtra(LayerwiseError, ImportError):
    """An optional dependency is needed and not installed."""


class TooLarge(LayerwiseError, MemoryError):
    """A plan or a single batch does not fit into memory."""


class ExportError(LayerwiseError):
    """The exported model would not give the vectors that were measured."""


class RunError(LayerwiseError):
    """A run folder is missing, damaged, or belongs to another run."""
