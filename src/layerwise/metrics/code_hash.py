"""A hash of what a function computes, so that a changed metric with the same name is detected.

It covers everything that the user's code uses: compiled code, nested functions, constants, defaults, closures, and the
functions, classes, objects and values of the user's modules that they name. Code of installed libraries counts by its
version. What cannot be seen, such as the state of an object that is written in C, is named, so that nobody relies on
the hash. It is the same in every process of one Python version, including cluster workers.
"""

import dis
import hashlib
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from importlib.metadata import packages_distributions, version
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch

UNKNOWN = "unknown"  # how the identity of code begins that layerwise cannot see all of
# Values whose repr says everything about them; a class of the user may extend the first ones.
BASIC = (str, bytes, bytearray, bool, int, float, complex)
PLAIN = (
    *BASIC, range, type(None), type(...), type(NotImplemented), date, time, timedelta, Decimal, torch.dtype,
    torch.device, torch.layout, np.ufunc, GenericAlias, UnionType,
)  # fmt: skip
CONTAINERS = (dict, MappingProxyType, list, tuple, set, frozenset)
HIDING = ("eval", "exec", "globals", "__import__", "open")  # what they give depends on more than code
PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def code_hash(*parts: Any) -> str:
    """A short hash of functions and values. What cannot be seen counts by its type only."""
    return describe(*parts).hash


def code_identity(*parts: Any) -> str:
    """The hash; or `unknown` with the reason, if something cannot be seen: then it may be other code the next time."""
    description = describe(*parts)
    return f"{UNKNOWN}: it uses {description.unseen[0]}" if description.unseen else description.hash


def describe(*parts: Any) -> "Description":
    description = Description()
    try:
        description.add_each(parts)
    except RecursionError:
        return Description(["too deep"], ["values that are nested too deeply"])
    return description


@dataclass
class Description:
    """Lines that change when the computation changes. Each object is described once, so that circles end."""

    lines: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    seen: dict[int, tuple[int, Any]] = field(default_factory=dict)  # by id: its number, and the object, to keep the id

    @property
    def hash(self) -> str:
        text = "\n".join(self.lines)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()

    def add_each(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def add(self, value: Any) -> None:
        """Adds any value."""
        if type(value) in PLAIN or isinstance(value, PurePath | np.dtype):
            self.lines.append(f"{type(value).__qualname__} {value!r}")
        elif id(value) in self.seen:
            self.lines.append(f"again {self.seen[id(value)][0]}")
        else:
            self.seen[id(value)] = len(self.seen), value
            self.add_new(value)

    def add_new(self, value: Any) -> None:
        """Adds a value that was not added before, by what it is made of."""
        if isinstance(value, FunctionType):
            self.add_function(value)
        elif isinstance(value, CodeType):
            self.add_code(value)
        elif isinstance(value, type):
            self.add_class(value)
        elif isinstance(value, ModuleType):
            self.add_module(value, vars(value))
        elif isinstance(value, BuiltinFunctionType | MethodDescriptorType | WrapperDescriptorType):
            self.add_builtin(value)
        elif isinstance(value, torch.Tensor | np.ndarray | np.generic):
            self.add_array(value)
        elif isinstance(value, logging.Logger):
            self.lines.append(f"logger {value.name}")
        elif (parts := parts_of(value)) is not None:
            self.lines.append(type(value).__name__)
            self.add_each(parts)
        else:
            self.add_object(value)

    def add_object(self, value: Any) -> None:
        """A container by its items, and any other object by its class and attributes."""
        if isinstance(value, dict | MappingProxyType):
            self.add_items([part for item in value.items() for part in item])
        elif isinstance(value, list | tuple):
            self.add_items(value)
        elif isinstance(value, set | frozenset):  # their order differs between processes
            parts = [describe(part) for part in value]
            self.lines += [f"set of {len(value)}", *sorted(part.hash for part in parts)]
            self.unseen += [reason for part in parts for reason in part.unseen]
        elif (base := next((base for base in BASIC if isinstance(value, base)), None)) is not None:
            self.lines.append(base.__repr__(value))
        elif not all(is_python_class(cls) for cls in type(value).__mro__[:-1]):
            self.unseen.append(f"an object of {name_of(type(value))}, whose content cannot be compared")
        if type(value) not in CONTAINERS:
            self.add(type(value))
            for name, attribute in sorted(attributes_of(value), key=lambda item: item[0]):
                self.add_each([name, attribute])

    def add_items(self, items: Iterable[Any]) -> None:
        items = list(items)
        self.lines.append(f"{len(items)} items")
        self.add_each(items)

    def add_array(self, value: Any) -> None:
        """An array or tensor by its type, shape and bytes."""
        self.lines.append(f"{name_of(type(value))} {value.dtype} {tuple(value.shape)}")
        is_usual = type(value) in (torch.Tensor, torch.nn.Parameter, np.ndarray) or isinstance(value, np.generic)
        if not is_usual or (isinstance(value, torch.Tensor) and (value.layout != torch.strided or value.is_meta)):
            self.unseen.append(f"an object of {name_of(type(value))}, whose content cannot be compared")
        elif isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            self.lines.append(hashlib.blake2b(data).hexdigest())
        elif value.dtype.hasobject:
            self.add_each(value.reshape(-1).tolist())
        else:
            self.lines.append(hashlib.blake2b(value.tobytes()).hexdigest())

    def add_builtin(self, value: Any) -> None:
        """A function that is written in C, by its name and what it is bound to."""
        owner = getattr(value, "__objclass__", getattr(value, "__self__", None))
        self.lines.append(f"builtin {value.__qualname__}")
        if isinstance(owner, type | ModuleType):
            self.lines.append(library_of(owner.__module__ if isinstance(owner, type) else owner.__name__) or "")
        elif owner is not None:
            self.add(owner)

    def add_class(self, cls: type) -> None:
        """A class of a library by its name and version; one of the user by its bases, attributes and methods."""
        library = library_of(cls.__module__)
        self.lines.append(f"class {name_of(cls)} {library}")
        if library is None:
            self.add_each(cls.__bases__)
            for name, value in sorted(vars(cls).items()):
                if isinstance(value, FunctionType) or not (is_for_the_interpreter(name) or is_slot(value)):
                    self.add_each([name, value])

    def add_module(self, module: ModuleType, names: Iterable[str]) -> None:
        """A library by its version; a module of the user by those of its values that have one of these names."""
        library = library_of(module.__name__)
        self.lines.append(f"module {module.__name__} {library}")
        for name in [] if library is not None else sorted(set(names) & vars(module).keys()):
            value = vars(module)[name]
            if is_for_the_interpreter(name):
                continue
            if isinstance(value, ModuleType) and id(value) not in self.seen:
                self.seen[id(value)] = len(self.seen), value
                self.add_module(value, names)
            else:
                self.add_each([name, value])

    def add_function(self, function: FunctionType) -> None:
        """A function that can be found by its name in a library counts by that; any other one by all that it uses."""
        library = library_of(function.__module__)
        if library is not None and is_found_by_name(function):
            self.lines.append(f"function {function.__module__}.{function.__qualname__} {library}")
            return
        self.add_each(cell_value(cell) for cell in function.__closure__ or ())
        self.add_each([function.__defaults__, function.__kwdefaults__])
        self.add_code(function.__code__)
        if library is not None:  # made by the library for the user, who may have given it functions
            self.lines.append(f"function {function.__module__}.{function.__qualname__} {library}")
            return
        self.add_each([name, value] for name, value in sorted(vars(function).items()))
        self.add_names(function)

    def add_code(self, code: CodeType) -> None:
        """Compiled code and its constants, among them the code of nested functions."""
        self.lines.append(f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}")
        self.add_each(code.co_consts)

    def add_names(self, function: FunctionType) -> None:
        """The values of all names that a function and the functions in it use of their module."""
        uses = dict.fromkeys(uses_in(function.__code__))
        attributes = [name for kind, name in uses if kind == "attribute"]
        for kind, name in uses:
            if kind == "attribute":
                continue
            self.lines.append(f"{kind} {name}")
            if kind == "module":
                self.add_imported(name, str(function.__globals__.get("__package__") or ""), attributes)
            elif name in function.__globals__:
                value = function.__globals__[name]
                if kind == "attribute of" and isinstance(value, ModuleType):
                    self.add_module(value, attributes)
                else:
                    self.add(value)
            elif name in HIDING:
                self.unseen.append(f"{name}(), which may give something else the next time")

    def add_imported(self, name: str, package: str, attributes: Iterable[str]) -> None:
        """A module that a function imports when it is called, if it is loaded already."""
        found = [sys.modules[full] for full in (name, f"{package}.{name}".rstrip(".")) if full in sys.modules]
        if not found and library_of(name) is None:
            self.unseen.append(f"the module {name!r}, which is not loaded yet")
        for module in found:
            self.add_module(module, attributes)


def uses_in(code: CodeType) -> Iterator[tuple[str, str]]:
    """What code and the code nested in it use: globals, globals of which only attributes are used, attributes, and
    modules that it imports."""
    instructions = list(dis.get_instructions(code))
    for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
        name = str(instruction.argval)
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                is_owner = following is not None and following.opname in ("LOAD_ATTR", "LOAD_METHOD")
                yield ("attribute of" if is_owner else "global"), name
            case "LOAD_ATTR" | "LOAD_METHOD" | "IMPORT_FROM":
                yield "attribute", name
            case "IMPORT_NAME":
                yield "module", name
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from uses_in(constant)


def parts_of(value: Any) -> list[Any] | None:
    """What a wrapper of another function, a pattern or a slice is made of; None for anything else."""
    match value:
        case MethodType():
            return [value.__func__, value.__self__]
        case staticmethod() | classmethod():
            return [value.__func__]
        case property():
            return [value.fget, value.fset]
        case cached_property():
            return [value.func]
        case partial():
            return [value.func, value.args, value.keywords]
        case re.Pattern():
            return [value.pattern, int(value.flags)]
        case slice():
            return [value.start, value.stop, value.step]
    is_cache = type(value).__module__ == "functools" and hasattr(value, "__wrapped__")
    return [value.__wrapped__] if is_cache else None


def cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return "empty"


def is_found_by_name(function: FunctionType) -> bool:
    """True if its module has this very function under its name, so that its version says what it computes."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object by name, also those in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            private = name.startswith("__") and not name.endswith("__")
            full = f"_{cls.__name__.lstrip('_')}{name}" if private else name
            if full != "__dict__" and hasattr(value, full):
                found[full] = getattr(value, full)
    return [*found.items()]


def is_python_class(cls: type) -> bool:
    """True if all that its objects hold is in their attributes: it is not written in C, nor are its bases."""
    own = "__slots__" in vars(cls) or "__dict__" in vars(cls)
    return own or any(is_python_class(base) for base in cls.__bases__ if base is not object)


def is_for_the_interpreter(name: str) -> bool:
    return name == "_abc_impl" or (name.startswith("__") and name.endswith("__"))


def is_slot(value: Any) -> bool:
    return type(value).__name__ in ("member_descriptor", "getset_descriptor")


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@lru_cache(maxsize=1)
def distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


@lru_cache(maxsize=4096)
def library_of(module: str | None) -> str | None:
    """The name and version of the library that a module belongs to; None for a module of the user.

    Modules of libraries are those of Python, of layerwise, and those in a folder of installed packages with a version.
    """
    top = str(module).partition(".")[0]
    if top in sys.stdlib_module_names:
        return f"python {sys.version_info[:3]}"
    if top == "layerwise":
        return f"layerwise {version('layerwise')}"
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is not None and not {*PACKAGE_FOLDERS} & {*Path(file).parts}:
        return None
    names = distributions().get(top)
    return f"{names[0]} {version(names[0])}" if names else None
