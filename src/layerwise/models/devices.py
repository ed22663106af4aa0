"""Devices: which one a model is loaded on, and whether this machine has it."""

import torch

from layerwise.core.errors import InputError


def pick_device(device: str) -> torch.device:
    """`auto` is the machine's accelerator, or the CPU if there is none."""
    if device == "auto":
        return torch.device(next((one.type for one in accelerators()), "cpu"))
    try:
        return torch.device(device)
    except RuntimeError:
        raise InputError(f"torch knows no device {device!r}; use cpu, cuda, cuda:1, mps or auto") from None


def require_device(device: torch.device) -> torch.device:
    """Raises for a device that is not there; the workers of a cluster may have one that this machine lacks."""
    if not has_device(device):
        names = ", ".join(["cpu", *map(str, accelerators())])
        raise InputError(f"cannot use device {str(device)!r}: this machine has {names}, as far as torch can use it")
    return device


def has_device(device: torch.device) -> bool:
    """True if this machine has the device, and this build of torch can use it."""
    found = (one.type == device.type and device.index in (None, one.index) for one in accelerators())
    return device.type == "cpu" or any(found)


def accelerators() -> list[torch.device]:
    """The accelerators that this machine has and this build of torch can use, such as cuda:0 and cuda:1."""
    kind = torch.accelerator.current_accelerator()
    if kind is None or not torch.accelerator.is_available():
        return []
    return [torch.device(kind.type, index) for index in range(torch.accelerator.device_count())]
