"""Are mistakes noticed by the tests of the package in which they are made? Plants one fault at a time in a copy.

    python scripts/planted_faults.py [NAME ...]

Each fault is a small change of one line. The tests that somebody would run who changes that package must fail. Faults
in what is written to disk, and in hostile input, are planted by `python -m tests.abuse --faults`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Fault:
    """A change of one line, and the tests that must notice it."""

    file: str
    right: str
    wrong: str
    tests: str


FAULTS = {
    "an existing file is overwritten": Fault(
        "core/outputs.py", "if not os.path.lexists(absolute):", "if absolute:", "tests/core"
    ),
    "two models with the same name count as one": Fault(
        "runs/identity.py",
        "return bool(self.fingerprint) and self.fingerprint == other.fingerprint\n\n    def to_record(self)",
        "return bool(self.name) and self.name == other.name\n\n    def to_record(self)",
        "tests/runs",
    ),
    "curvature is divided by the number of tokens": Fault(
        "metrics/curvature.py", "/ is_valid.sum(dim=-1)", "/ mask.sum(dim=-1)", "tests/metrics"
    ),
    "layers are one too low": Fault(
        "models/taps.py", "structure.shares_blocks else number,", "structure.shares_blocks else number - 1,",
        "tests/models",
    ),
    "ids depend on the place of a text": Fault(
        "inputs/source.py", 'return content.hex() + (f"-{repeats}" if repeats else "")',
        'return content.hex() + f"-{occurrences.used}"', "tests/inputs",
    ),
    "a map does not subtract the mean": Fault(
        "maps/linear.py", "LinearMap(weight, -(weight @ mean))", "LinearMap(weight, 0 * (weight @ mean))", "tests/maps"
    ),
    "half of a batch that ran out of memory is lost": Fault(
        "passes/tapped_pass.py", "waiting += [part[half:], part[:half]]", "waiting += [part[half:]]", "tests/passes"
    ),
    "stored shards are read backwards": Fault(
        "engines/merging.py", "deque(sorted(self.stored))", "deque(sorted(self.stored)[::-1])", "tests/engines"
    ),
    "a flag that is on by default cannot be turned off": Fault(
        "cli/flags.py", '"store_false" if spec.default else "store_true"', '"store_true"', "tests/cli tests/core"
    ),
    "tokens of merged shards are not counted": Fault(
        "verbs/scan/state.py", "self.tokens += other.tokens", "self.tokens = other.tokens", "tests/verbs/scan"
    ),
    "a gain within the margin is taken": Fault(
        "verbs/pick/decision.py", ".mean > margin:", ".mean > -margin:", "tests/verbs/pick"
    ),
    "an alert fires above its bound": Fault(
        "training/alerts.py", "score.value < below:", "score.value > below:", "tests/training"
    ),
}  # fmt: skip


def is_noticed(fault: Fault, folder: Path) -> bool:
    """True if the tests fail with the fault in a copy of the package."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, dirs_exist_ok=True)
    path = copy / "layerwise" / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.right) >= 1, f"{fault.file} has no {fault.right!r}"
    path.write_text(text.replace(fault.right, fault.wrong, 1), encoding="utf-8")
    words = ["-q", "-x", "-m", "not long and not real", "-p", "no:cacheprovider", *fault.tests.split()]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout[-2000:]
    return done.returncode == 1


def main(names: list[str]) -> int:
    missed = 0
    for name in names or FAULTS:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            noticed = is_noticed(FAULTS[name], Path(folder))
        missed += not noticed
        print(f"{'noticed' if noticed else 'MISSED':8} {time.monotonic() - start:4.0f} s  {name}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
