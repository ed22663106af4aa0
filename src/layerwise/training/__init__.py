"""Training: watch the layers of a model while it trains, and steer them.

The names are listed in `__init__.pyi` and loaded on first use: each needs a package of its own (transformers,
Lightning, torchmetrics).
"""

from layerwise.core.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return __all__
