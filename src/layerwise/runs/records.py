"""Records: what run.json says of a run, and the machine and versions behind it."""

import platform
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any

from layerwise.core.display import redacted
from layerwise.core.formats import require_shape

NUMBER = (int, float)
RUN_SHAPE: dict[str, Any] = {  # of run.json, as far as verbs rely on it
    "kind": str,
    "model": {
        "name": str, "revision": str, "fingerprint": str, "family": str, "dtype": str, "device": str,
        "depth": int, "width": int,
    },
    "data": {"name": str, "fingerprint": str, "prompts": int, "tokens": int, "cut": int, "missing": list},
    "plan": {"max_length": int, "metrics": list, "stress": {"kind": str, "level": NUMBER}},
    "options": {"verb": str, "model": (dict, NoneType), "data": (dict, NoneType)},
    "environment": dict,
    "tasks": dict,
    "failed": dict,
    "max_length": (int, NoneType),
    "seconds": NUMBER,
}


def require_run(run: Mapping[str, Any], where: str) -> None:
    """Raises RunError where run.json holds something else than a run's record, or the records of joined runs."""
    require_shape(run, RUN_SHAPE, where)
    require_shape(run, {"runs": [dict]}, where)
    for number, part in enumerate(run.get("runs", [])):
        require_shape(part, RUN_SHAPE, f"{where}: runs[{number}]")


def environment() -> dict[str, str]:
    """Versions and machine, for the record of a run; the command, where the command line made it."""
    names = ("layerwise", "torch", "transformers", "numpy")
    found = {name: version(name) for name in names}
    script = Path(sys.argv[0])
    if (script.parent.name if script.stem == "__main__" else script.stem) == "layerwise":  # also python -m layerwise
        found["command"] = shlex.join(["layerwise", *map(redacted, sys.argv[1:])])
    return {**found, "python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
