"""Colours of pages and figures: colour-blind-safe, on white and black, and distinct in greyscale."""

from collections.abc import Sequence
from typing import Any

# The Okabe-Ito hues, darkened for white and lightened for dark backgrounds, so that thin lines are visible.
LINES = ("#0072B2", "#D55E00", "#00845F", "#B0467F", "#8A6D00", "#3F3D99", "#3D97CC", "#6B6B6B")
LINES_ON_DARK = ("#56B4E9", "#FF8A4C", "#2CC79A", "#E58BBB", "#E0B84A", "#A5A3F0", "#9BD8FF", "#B8B8B8")

# From low to high, perceptually even; high values contrast with the background.
RAMP = ("#EDF3F2", "#B4D8CE", "#62AFAE", "#2A7796", "#1C4674", "#152447")
RAMP_ON_DARK = ("#1B2530", "#1E4A60", "#23767F", "#54A68F", "#A5D3A0", "#F3F6CF")

# From low to high around a neutral middle.
DIVERGING = ("#0B5FA5", "#7FB2D9", "#F1F1EE", "#EBA273", "#C04A05")
DIVERGING_ON_DARK = ("#6CB8F5", "#2F6FA3", "#262B31", "#A85A2A", "#FF9A57")


def colours() -> dict[str, Any]:
    """All colours, for the page's script."""
    return {
        "light": {"lines": LINES, "ramp": RAMP, "diverging": DIVERGING},
        "dark": {"lines": LINES_ON_DARK, "ramp": RAMP_ON_DARK, "diverging": DIVERGING_ON_DARK},
    }


def ramp_colour(ramp: Sequence[str], fraction: float) -> str:
    """The colour at a position from 0 to 1 on a ramp, interpolated between neighbours."""
    position = min(max(fraction, 0.0), 1.0) * (len(ramp) - 1)
    left = min(int(position), len(ramp) - 2)
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in ramp[left : left + 2]]
    mixed = [round(a + (b - a) * (position - left)) for a, b in zip(*ends, strict=True)]
    return "#{:02X}{:02X}{:02X}".format(*mixed)
