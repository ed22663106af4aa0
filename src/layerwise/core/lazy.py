"""Public names that are loaded on first use, so that importing layerwise is fast and loads no torch."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from sys import modules
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` and the names of a module whose stub, FILEi, imports each of them from where it is."""
    homes = {
        name.name: node.module
        for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
        home = import_module(homes[name])
        is_module = homes[name] == package  # `from layerwise import lab`
        value = import_module(f"{package}.{name}") if is_module else getattr(home, name)
        setattr(modules[package], name, value)
        return value

    return load, sorted(homes)
