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
    description = "\n".join(line for part in parts for line in describe(part, set()))
    return hashlib.blake2b(description.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def describe(value: Any, seen: set[int]) -> Iterator[str]:
    """Text that changes when the computation changes; each function is described once."""
    if isinstance(value, FunctionType):
        if id(value) not in seen:
            seen.add(id(value))
            yield from describe_function(value, seen)
    elif isinstance(value, CodeType):
        yield f"{value.co_code.hex()} {value.co_names} {value.co_varnames} {value.co_freevars}"
        yield from describe_each(value.co_consts, seen)
    elif isinstance(value, partial):
        yield from describe_each([value.func, *value.args, value.keywords], seen)
    elif isinstance(value, MethodType):
        yield from describe_each([value.__func__, value.__self__], seen)
    elif isinstance(value, Mapping):
        yield from describe_each([part for item in value.items() for part in item], seen)
    elif isinstance(value, frozenset | set):  # their order differs between processes
        yield from sorted(line for part in value for line in describe(part, seen))
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} of {len(value)}"
        yield from describe_each(value, seen)
        yield "end"
    elif isinstance(value, torch.Tensor):
        raw_bytes = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield f"{value.dtype} {tuple(value.shape)} {hashlib.blake2b(raw_bytes).hexdigest()}"
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, torch.nn.Module):
        yield f"{type(value).__qualname__} {value}"
        yield from describe(dict(value.state_dict()), seen)
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__
        yield from describe_each([getattr(value, f.name) for f in fields(value)], seen)
    elif isinstance(value, str | bytes | int | float | complex | bool | None | type(...)):
        yield repr(value)
    else:  # a class, a C function or a foreign object: identified by name
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        if isinstance(call := vars(type(value)).get("__call__"), FunctionType):
            yield from describe_each([call, vars(value) if hasattr(value, "__dict__") else ()], seen)


def describe_function(function: Callable[..., Any], seen: set[int]) -> Iterator[str]:
    code: CodeType = function.__code__
    yield from describe(code, seen)
    closure_values = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [function.__defaults__, function.__kwdefaults__]
    global_values = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    local_globals = [value for value in global_values if not isinstance(value, ModuleType | type | BuiltinFunctionType)
            and not (isinstance(value, FunctionType) and value.__module__ != function.__module__)]  # fmt: skip
    yield from describe_each([closure_values, defaults, local_globals], seen)


def describe_each(parts: Any, seen: set[int]) -> Iterator[str]:
    for part in parts:
        yield from describe(part, seen)
