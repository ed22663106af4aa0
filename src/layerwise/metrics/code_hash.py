"""A hash of what a function computes, so that a changed metric with the same name is detected.

The hash covers compiled code, constants, defaults, closure values, and the module-level values and functions it uses.
It is the same in every process of one Python version, including cluster workers.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch


def code_hash(*parts: Any) -> str:
    """A short hash of functions and plain values."""
    words = "\n".join(word for part in parts for word in describe(part, set()))
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def describe(what: Any, seen: set[int]) -> Iterator[str]:
    """Text that changes when the computation changes; each function is described once."""
    if isinstance(what, FunctionType):
        if id(what) not in seen:
            seen.add(id(what))
            yield from describe_function(what, seen)
    elif isinstance(what, CodeType):
        yield f"{what.co_code.hex()} {what.co_names} {what.co_varnames} {what.co_freevars}"
        yield from describe_each(what.co_consts, seen)
    elif isinstance(what, partial):
        yield from describe_each([what.func, *what.args, what.keywords], seen)
    elif isinstance(what, MethodType):
        yield from describe_each([what.__func__, what.__self__], seen)
    elif isinstance(what, Mapping):
        yield from describe_each([part for item in what.items() for part in item], seen)
    elif isinstance(what, frozenset | set):  # their order differs between processes
        yield from sorted(word for part in what for word in describe(part, seen))
    elif isinstance(what, tuple | list):
        yield f"{type(what).__name__} of {len(what)}"
        yield from describe_each(what, seen)
        yield "end"
    elif isinstance(what, torch.Tensor):
        numbers = what.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield f"{what.dtype} {tuple(what.shape)} {hashlib.blake2b(numbers).hexdigest()}"
    elif isinstance(what, np.ndarray):
        yield f"{what.dtype} {what.shape} {hashlib.blake2b(np.ascontiguousarray(what).tobytes()).hexdigest()}"
    elif isinstance(what, torch.nn.Module):
        yield f"{type(what).__qualname__} {what}"
        yield from describe(dict(what.state_dict()), seen)
    elif is_dataclass(what) and not isinstance(what, type):
        yield type(what).__qualname__
        yield from describe_each([getattr(what, f.name) for f in fields(what)], seen)
    elif isinstance(what, str | bytes | int | float | complex | bool | None | type(...)):
        yield repr(what)
    else:  # a class, a C function or a foreign object: identified by name
        yield f"{getattr(what, '__module__', '')}.{getattr(what, '__qualname__', type(what).__qualname__)}"
        if isinstance(call := vars(type(what)).get("__call__"), FunctionType):
            yield from describe_each([call, vars(what) if hasattr(what, "__dict__") else ()], seen)


def describe_function(function: Callable[..., Any], seen: set[int]) -> Iterator[str]:
    code: CodeType = function.__code__
    yield from describe(code, seen)
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [function.__defaults__, function.__kwdefaults__]
    named = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    near = [found for found in named if not isinstance(found, ModuleType | type | BuiltinFunctionType)
            and not (isinstance(found, FunctionType) and found.__module__ != function.__module__)]  # fmt: skip
    yield from describe_each([held, defaults, near], seen)


def describe_each(parts: Any, seen: set[int]) -> Iterator[str]:
    for part in parts:
        yield from describe(part, seen)
