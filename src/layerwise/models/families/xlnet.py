"""XLNet: its blocks pass hidden states in another order of axes, so it cannot be read."""

from layerwise.models.families.family import Family

XLNET = Family(types=("xlnet",), refused="its blocks pass hidden states as (tokens, batch, width)")
