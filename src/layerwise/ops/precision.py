"""Which float type a computation runs in, and the check that its input is finite."""

import torch
from torch import Tensor

from layerwise.errors import InputError, NotFiniteError


def widen(x: Tensor) -> Tensor:
    """The same numbers in at least float32: a Gram matrix summed in bfloat16 can be half wrong."""
    if not x.is_floating_point():
        raise InputError(f"expected a tensor of floats, got {x.dtype}; convert it with .float() first")
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def double(x: Tensor) -> Tensor:
    """The same numbers in float64, moved to the CPU where the device has no float64 (Apple's MPS)."""
    if x.device.type == "mps":
        x = x.cpu()
    return x.double()


def require_finite(x: Tensor, what: str, mask: Tensor | None = None) -> None:
    """Raises NotFiniteError if a counted entry is NaN or infinite; `mask` covers all but the last axis of x."""
    finite = torch.isfinite(x).all(dim=-1)
    if mask is not None:
        finite = finite | ~mask
    if not bool(finite.all()):
        bad = int((~finite).sum())
        raise NotFiniteError(
            f"{what} hold NaN or infinity in {bad} of {finite.numel()} rows ({x.dtype}); "
            "a model that overflows in float16 usually works in bfloat16 or float32"
        )
