"""Checks exported folders in a second environment that has sentence-transformers but not layerwise.

    python scripts/plain_check.py MODEL LAYER [export options]

Exports the layer here, makes a fresh virtual environment with torch and sentence-transformers, encodes the same texts
there with plain SentenceTransformer(folder), and compares with what layerwise measures. PLAIN_VENV keeps the
environment for the next time.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import layerwise
from layerwise.__main__ import main as layerwise_main
from layerwise.inputs.text import demo_texts

ENCODE = """
import importlib.util, json, sys
assert importlib.util.find_spec("layerwise") is None, "layerwise must not be installed here"
from sentence_transformers import SentenceTransformer
texts = json.load(open(sys.argv[2]))
rows = SentenceTransformer(sys.argv[1], device="cpu").encode(texts, batch_size=7, show_progress_bar=False)
json.dump(rows.tolist(), open(sys.argv[3], "w"))
"""


def plain_python(folder: Path) -> Path:
    """The interpreter of an environment with sentence-transformers only."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for wanted in (f"torch=={torch.__version__.split('+')[0]}", "sentence-transformers"):
            subprocess.run([str(python), "-m", "pip", "install", "-q", wanted], check=True)
    return python


def main(model: str, layer: str, *options: str) -> int:
    texts = demo_texts()[:50]
    with tempfile.TemporaryDirectory() as scratch:
        folder, given, found = (Path(scratch) / name for name in ("model", "texts.json", "rows.json"))
        if code := layerwise_main(["export", model, "--layer", layer, "--out", str(folder), *options]):
            return code
        recipe = layerwise.Recipe.load(folder)
        given.write_text(json.dumps(texts))
        python = plain_python(Path(os.environ.get("PLAIN_VENV", Path(scratch) / "venv")))
        clean = {name: word for name, word in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([str(python), "-c", ENCODE, str(folder), str(given), str(found)], check=True, env=clean)
        rows = np.array(json.loads(found.read_text()))
        here = SentenceTransformer(str(folder), device="cpu").encode(texts, batch_size=7, show_progress_bar=False)
    gap = float(np.abs(rows - here).max())
    if recipe.transform == "none" and not recipe.normalize:
        frame = layerwise.embed(
            model,
            [recipe.prompt + text for text in texts],
            layers=str(recipe.layer),
            norm=recipe.norm,
            tokens=recipe.tokens,
            pooling=recipe.pooling,
            max_length=recipe.max_length,
        )
        gap = max(gap, float(np.abs(rows - np.stack(frame[f"layer_{recipe.layer}"])).max()))
    print(f"largest difference in the second environment: {gap:.2e}, largest entry {np.abs(rows).max():.2e}")
    return int(gap > 1e-6 * np.abs(rows).max())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
