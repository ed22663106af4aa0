"""Every public name: for editors, type checkers, and the module itself, which loads it on first use."""

from layerwise.training.callback import LayerwiseCallback as LayerwiseCallback
from layerwise.training.layer_loss import LayerLoss as LayerLoss
from layerwise.training.lightning_callback import LightningCallback as LightningCallback
from layerwise.training.losses import entropy_loss as entropy_loss
from layerwise.training.losses import variance_covariance_loss as variance_covariance_loss
from layerwise.training.options import Alert as Alert
from layerwise.training.torchmetric import as_torchmetric as as_torchmetric
