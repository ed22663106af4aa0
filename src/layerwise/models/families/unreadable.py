"""Unsupported families: XLNet uses another axis order, XLM has no list of blocks."""

from layerwise.models.families.family import Family

XLNET = Family(types=("xlnet",), unsupported_reason="its blocks pass hidden states as (tokens, batch, width)")
XLM = Family(types=("xlm", "flaubert"), unsupported_reason="the submodules of its blocks are in separate lists")
