"""Does vLLM give the vectors of our exports?

    LAYERWISE_VLLM=/path/to/python python in_vllm.py MODELS WORK [--only NAME ...]

MODELS is the folder of shared/models/prepare_models.py; exports are made in WORK. Each is embedded in float32 by
sentence-transformers, by vLLM's Python interface and by its HTTP server: 24 sentences, a very short text and one that
is cut. vllm.csv gets one row per export; two of them are wrong on purpose.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from sentence_transformers import SentenceTransformer

import layerwise
from layerwise.inputs.text import demo_texts
from layerwise.verbs.export.certificate import ExpectedVectors
from layerwise.verbs.export.vllm import WAYS, check_in_vllm

TABLE = Path(__file__).parent / "vllm.csv"
TEXTS = [*demo_texts()[:24], "Short.", " ".join(demo_texts()[:40])]
LENGTH = 128
SERVABLE = {"servable": True, "max_length": LENGTH}
NORMED = {**SERVABLE, "norm": "normed"}


def exported(model: str, layer: int, **options: object) -> Callable[[Path, Path], None]:
    def make(models: Path, out: Path) -> None:
        fit = {"fit": demo_texts()} if "transform" in options else {}
        layerwise.export(str(models / model), layer, out, **options, **fit)

    return make


def shrunk(method: str, **options: object) -> Callable[[Path, Path], None]:
    def make(models: Path, out: Path) -> None:
        layerwise.shrink(str(models / "all-minilm-l6-v2"), demo_texts(), out, method=method, **options)

    return make


def with_prompts(models: Path, out: Path) -> None:
    """An export that puts a prompt before queries, another one before documents, and none before other texts."""
    exported("all-minilm-l6-v2", 6, **SERVABLE)(models, out)
    path = out / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["prompts"] = {"query": "query: ", "document": "passage: "}
    path.write_text(json.dumps(config), encoding="utf-8")


def without_map(models: Path, out: Path) -> None:
    """An export whose map is no longer in its list of modules."""
    exported("smollm2-135m", 15, transform="remove_top:3", **NORMED)(models, out)
    path = out / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps([one for one in modules if not one["type"].endswith("Dense")]), encoding="utf-8")


EXPORTS: dict[str, Callable[[Path, Path], None]] = {
    "MiniLM, layer 3": exported("all-minilm-l6-v2", 3, **SERVABLE),
    "gte-small, layer 8": exported("gte-small", 8, **SERVABLE),
    "mpnet, layer 9": exported("all-mpnet-base-v2", 9, **SERVABLE),
    "SmolLM2, layer 15": exported("smollm2-135m", 15, **NORMED),
    "SmolLM2, layer 15, a map": exported("smollm2-135m", 15, transform="remove_top:3", **NORMED),
    "SmolLM2, layer 15, a template": exported("smollm2-135m", 15, template="prompteol", pooling="last", **NORMED),
    "Gemma 3, layer 9": exported("gemma3-270m", 9, **NORMED),
    "MiniLM, shrunk to half": shrunk("linear", blocks=3),
    "MiniLM, static": shrunk("static"),
    "MiniLM with prompts": with_prompts,
    "wrong: SmolLM2, layer 15 without the norm": exported("smollm2-135m", 15, max_length=LENGTH),
    "wrong: SmolLM2, layer 15, its map left out": without_map,
}


def vectors_and_length(name: str, models: Path, work: Path, out: Path) -> tuple[torch.Tensor, int]:
    """What sentence-transformers gives for this export, and the length at which it cuts."""
    source = out
    if name.endswith("left out"):  # the vectors of the export as it was made
        source = work / "with its map"
        if not source.exists():
            EXPORTS["SmolLM2, layer 15, a map"](models, source)
    model = SentenceTransformer(str(source), device="cpu")
    length = model.max_seq_length or LENGTH
    return torch.tensor(model.encode(TEXTS, show_progress_bar=False)), LENGTH if length == math.inf else int(length)


def row_of(name: str, models: Path, work: Path) -> dict[str, object]:
    out = work / name.replace(" ", "-").replace(",", "").replace(":", "")
    if not out.exists():
        EXPORTS[name](models, out)
    vectors, length = vectors_and_length(name, models, work, out)
    begun = time.monotonic()
    check = check_in_vllm(out, ExpectedVectors(TEXTS, vectors, 0.0, truncated=True), length)
    row: dict[str, object] = {"export": name, "version": check.version, "exact": check.is_exact}
    for way in WAYS:
        row[way] = f"{check.differences[way]:.1e}" if way in check.differences else ""
    error = "; ".join(dict.fromkeys(check.errors.values())).replace(str(out.absolute()), out.name)
    return row | {"error": error, "seconds": round(time.monotonic() - begun)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(EXPORTS), default=list(EXPORTS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for name in args.only:
        row = row_of(name, args.models, args.work)
        rows = pd.DataFrame([row])
        if TABLE.is_file():
            found = pd.read_csv(TABLE, dtype={way: str for way in WAYS})
            rows = pd.concat([found[found.export != name], rows])
        rows.to_csv(TABLE, index=False)
        print(row, flush=True)


if __name__ == "__main__":
    main()
