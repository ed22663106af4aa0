"""Which float type a computation runs in, and the check that its input is finite."""

import torch
from torch import Tensor

from layerwise.core.errors import InputError, NotFiniteError


def at_least_float32(x: Tensor) -> Tensor:
    """Converts to at least float32: a Gram matrix in bfloat16 changes entropies by up to 40 %."""
    if not x.is_floating_point():
        raise InputError(f"expected a tensor of floats, got {x.dtype}; convert it with .float() first")
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def to_float64(x: Tensor) -> Tensor:
    """Converts to float64, on the CPU if the device has no float64 (Apple's MPS)."""
    if x.device.type == "mps":
        x = x.cpu()
    return x.double()


def zero_masked_rows(rows: Tensor, mask: Tensor) -> Tensor:
    """Sets rows that do not count to zero. Not by multiplication, since padding may contain NaN. No copy if all rows
    count.

    rows (..., N, D), mask (..., N) -> (..., N, D).
    """
    return rows if bool(mask.all()) else torch.where(mask[..., None], rows, 0.0)


def not_finite_advice(dtype: torch.dtype) -> str:
    """What to do about NaN or infinity in the states of a model."""
    if dtype in (torch.float16, torch.bfloat16):
        return "run again with --dtype float32" + (" or bfloat16" if dtype == torch.float16 else "")
    return "a wider number type will not help: check the weights of the model, and this input"


def require_finite(norms: Tensor, subject: str) -> None:
    """Raises NotFiniteError if a norm is NaN or infinite. Checking norms is cheaper than checking every entry."""
    if not bool(torch.isfinite(norms).all()):
        count = int((~torch.isfinite(norms)).sum())
        raise NotFiniteError(
            f"{subject} contain NaN or infinity in {count} of {norms.numel()} rows ({norms.dtype}); "
            "a model that overflows in float16 usually works in bfloat16 or float32"
        )
