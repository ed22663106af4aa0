"""Training: watch the layers of a model while it trains, and steer them.

Names are loaded on first use: each needs a package of its own (transformers, Lightning, torchmetrics).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "Alert": "layerwise.training.options",
    "LayerLoss": "layerwise.training.layer_loss",
    "LayerwiseCallback": "layerwise.training.callback",
    "LightningCallback": "layerwise.training.lightning_callback",
    "as_torchmetric": "layerwise.training.torchmetric",
    "entropy_loss": "layerwise.training.losses",
    "variance_covariance_loss": "layerwise.training.losses",
}

__all__ = sorted(_MODULES)

if TYPE_CHECKING:  # the same names again, for editors and type checkers
    from layerwise.training.callback import LayerwiseCallback as LayerwiseCallback
    from layerwise.training.layer_loss import LayerLoss as LayerLoss
    from layerwise.training.lightning_callback import LightningCallback as LightningCallback
    from layerwise.training.losses import entropy_loss as entropy_loss
    from layerwise.training.losses import variance_covariance_loss as variance_covariance_loss
    from layerwise.training.options import Alert as Alert
    from layerwise.training.torchmetric import as_torchmetric as as_torchmetric


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'layerwise.training' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
