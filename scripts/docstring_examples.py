"""For the site: the section `Example:` of a docstring is shown as code. Its reader knows only the plural."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section before docstrings are read."""

    def on_object(self, *, obj: Any, **others: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
