"""The default family: blocks and final norm are found by shape and common names."""

from layerwise.models.families.family import Family

# It declares no points inside a block: even with common submodule names, the residual sums may differ.
DEFAULT = Family()
