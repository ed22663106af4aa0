"""Families that cannot be read: XLNet has another order of axes, XLM no list of blocks."""

from layerwise.models.families.family import Family

XLNET = Family(types=("xlnet",), refused="its blocks pass hidden states as (tokens, batch, width)")
XLM = Family(types=("xlm", "flaubert"), refused="the parts of its blocks lie in separate lists")
