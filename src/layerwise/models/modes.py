"""Contexts in which a model is read: without dropout, and with values of its config set."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switches off training mode (dropout) inside the context, and restores it for every submodule afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def config_values(module: nn.Module, values: Mapping[str, object]) -> Iterator[None]:
    """Sets values of a model's config inside the context."""
    config: Any = module.config
    usual = {name: getattr(config, name) for name in values}
    for name, value in values.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in usual.items():
            setattr(config, name, value)
