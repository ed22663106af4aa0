"""The lab: functions for people who study layers, the same as `layerwise lab` on the command line.

The names are listed in `lab.pyi` and loaded on first use.
"""

from layerwise.core.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return __all__
