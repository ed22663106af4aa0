"""Every lower bound in pyproject.toml is the version that is installed here: no bound that nothing was run with."""

import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

NEWER = {"torch"}  # CI runs one build of it; docs/dependencies.md says how its bound was found

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
lines = project["dependencies"] + sum(project["optional-dependencies"].values(), [])
wrong = []
for requirement in map(Requirement, lines):
    installed = Version(version(requirement.name))
    for bound in requirement.specifier:
        if requirement.name not in NEWER and Version(bound.version) != installed:
            wrong.append(f"{requirement.name}{bound}, but the lowest version that can be installed is {installed}")
if wrong:
    sys.exit("Raise these bounds in pyproject.toml:\n" + "\n".join(wrong))
print(f"{len(lines)} requirements, each in the lowest version that pyproject.toml allows, except {', '.join(NEWER)}")
