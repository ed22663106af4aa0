"""What the package says about its repository: addresses, and a README whose links also work on PyPI.

The build calls it (see pyproject.toml). The repository's address is read from LAYERWISE_REPOSITORY, which
.ci/repository sets. Without it, the package has no addresses, and its README is unchanged.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


class RepositoryMetadata(MetadataHookInterface):
    """Fills in the dynamic fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get("LAYERWISE_REPOSITORY", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_full_links(text, address)}
        metadata["urls"] = addresses(address)


def addresses(address: str) -> dict[str, str]:
    """The links that PyPI shows beside the package."""
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/blob/HEAD/docs/quickstart.md",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Source": address,
    }


def with_full_links(text: str, address: str) -> str:
    """A page whose relative links lead to files and pictures of the repository."""
    if not address:
        return text
    return LINK.sub(lambda m: f"{m[1]}{m[2]}({address}/{'raw' if m[1] else 'blob'}/HEAD/{m[3]})", text)
