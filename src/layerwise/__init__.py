"""layerwise: look inside pretrained networks layer by layer.

The public names are listed in `__init__.pyi` and loaded on first use, so that `import layerwise` is fast and does not
load torch.
"""

from importlib import import_module
from typing import Any

from layerwise.core.lazy import lazy_names

_load, _names = lazy_names(__name__, __file__)
__all__ = sorted([*_names, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":  # that of the installed package
        return import_module("importlib.metadata").version(__name__)
    return _load(name)


def __dir__() -> list[str]:
    return __all__
