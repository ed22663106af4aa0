"""The ordinary family: blocks and final norm are found by shape and by the usual names; no model is listed."""

from layerwise.models.families.family import Family

# It declares no points inside a block. A block whose parts have the usual names need not add up in the usual way.
DEFAULT = Family()
