"""Writes a software bill of materials in CycloneDX JSON: layerwise, and what it requires as installed here.

    python scripts/sbom.py OUT.cdx.json
    python scripts/sbom.py OUT.cdx.json --extra export --extra onnx

It follows the requirements in the metadata of installed packages, so other packages of the environment do not appear.
"""

import argparse
import json
import uuid
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def required_by(name: str, extras: set[str]) -> list[Requirement]:
    """The requirements of an installed package that apply on this machine, with the extras that were asked for."""
    found = [Requirement(line) for line in distribution(name).requires or []]
    environments = [{"extra": extra} for extra in ("", *sorted(extras))]
    return [r for r in found if r.marker is None or any(r.marker.evaluate(e) for e in environments)]


def closure(name: str, extras: set[str]) -> dict[str, set[str]]:
    """Every package that is needed, with the packages that it needs itself."""
    needs: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(name), frozenset(extras))]
    while waiting:
        package, wanted = waiting.pop()
        if (package, wanted) in seen:
            continue
        seen.add((package, wanted))
        direct = needs.setdefault(package, set())
        for requirement in required_by(package, set(wanted)):
            other = canonicalize_name(requirement.name)
            waiting.append((other, frozenset(requirement.extras)))
            if other != package:
                direct.add(other)
    return needs


def licence_of(package: Distribution) -> list[dict[str, Any]]:
    """What a package declares: an SPDX expression, else its classifiers, else the first line of its licence field."""
    if expression := package.metadata.get("License-Expression"):
        return [{"expression": expression}]
    lines = [line.rpartition(" :: ")[2] for line in package.metadata.get_all("Classifier", []) if "License ::" in line]
    text = (package.metadata.get("License") or "").strip().partition("\n")[0]
    return [{"license": {"name": name}} for name in lines or [text] if name]


def component(name: str) -> dict[str, Any]:
    """One package, as CycloneDX describes it."""
    package = distribution(name)
    address = f"pkg:pypi/{name}@{quote(package.version)}"
    entry = {"type": "library", "bom-ref": address, "name": name, "version": package.version, "purl": address}
    return entry | {"licenses": licences} if (licences := licence_of(package)) else entry


def bill(extras: set[str]) -> dict[str, Any]:
    """The whole document; the same environment gives the same serial number."""
    needs = closure("layerwise", extras)
    parts = {name: component(name) for name in sorted(needs)}
    references = {name: part["bom-ref"] for name, part in parts.items()}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([*references.values(), *sorted(extras)]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": parts.pop("layerwise")},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[other] for other in others)}
            for name, others in sorted(needs.items())
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--extra", action="append", default=[], help="an extra of layerwise to include; repeatable")
    words = parser.parse_args()
    found = bill(set(words.extra))
    words.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {words.out}: layerwise and {len(found['components'])} packages that it requires")


if __name__ == "__main__":
    main()
