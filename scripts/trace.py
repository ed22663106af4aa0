"""How many of our files a verb runs through, and how many frames lie between its public function and its work.

    python scripts/trace.py

Runs `scan` and `pick` on a tiny random model. A file counts if one of its functions is called; a frame counts if it is
one of ours. The work begins where a consumer of hidden states gets a layer: `on_layer`.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from conftest import save_tiny  # noqa: E402

import layerwise  # noqa: E402

ROOT = Path(layerwise.__file__).parent
CONSUMER = "on_layer"


def trace(run: Callable[[], object]) -> tuple[set[str], list[str]]:
    """Our files that were called, and the longest chain of our frames from the public function to the work."""
    files: set[str] = set()
    longest: list[str] = []

    def on_event(frame: FrameType, event: str, arg: object) -> None:
        if event != "call" or not (name := relative(frame)) or frame.f_code.co_name == "<module>":
            return
        files.add(name)
        if frame.f_code.co_name == CONSUMER:
            chain = chain_of(frame)
            if len(chain) > len(longest):
                longest[:] = chain

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files, longest


def relative(frame: FrameType) -> str:
    """The path of a frame's file below the package; "" for files of others."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""


def chain_of(frame: FrameType | None) -> list[str]:
    """Our frames from the outermost to this one."""
    chain: list[str] = []
    while frame is not None:
        if name := relative(frame):
            chain.append(f"{name}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return chain[::-1]


def main() -> None:
    texts = [" ".join(f"w{(i * 7 + j) % 89}" for j in range(12)) for i in range(40)]
    with tempfile.TemporaryDirectory() as scratch:
        model = save_tiny(Path(scratch) / "model", "llama")
        runs = {
            "scan": lambda: layerwise.scan(model, texts, out=Path(scratch) / "run"),
            "pick": lambda: layerwise.pick(model, texts),
        }
        for verb, run in runs.items():
            files, chain = trace(run)
            print(f"{verb}: {len(files)} files, {len(chain)} frames")
            print(*(f"  {step}" for step in chain), sep="\n")


if __name__ == "__main__":
    main()
