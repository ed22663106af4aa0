"""For the site: docstrings as its reader of source code does not see them.

The section `Example:` is shown as code; the reader knows only the plural. A verb's parameters are declared in its
options (`@takes`), so they and their descriptions are read from the function itself.
"""

import re
from importlib import import_module
from inspect import Parameter, formatannotation, signature
from typing import Any

import griffe

KINDS = {
    Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
}


class Docstrings(griffe.Extension):
    """Completes docstrings before they are read."""

    def on_object(self, *, obj: griffe.Object, **others: Any) -> None:
        if obj.docstring is None:
            return
        if isinstance(obj, griffe.Function) and any(str(d.value).startswith("takes(") for d in obj.decorators):
            function = getattr(import_module(obj.module.path), obj.name)
            obj.docstring.value = function.__doc__
            obj.parameters = griffe.Parameters(*map(as_read, signature(function).parameters.values()))
        obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)


def as_read(parameter: Parameter) -> griffe.Parameter:
    """A parameter as if it stood in the source code, with types by their last name."""
    return griffe.Parameter(
        parameter.name,
        annotation=re.sub(r"\b[a-z_]+\.", "", formatannotation(parameter.annotation)),
        kind=KINDS[parameter.kind],
        default=None if parameter.default is Parameter.empty else repr(parameter.default),
    )
