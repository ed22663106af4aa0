"""How fast the cut model is in each runtime: `python latency.py MODELS OUT [MODEL ...]`, with OMP_NUM_THREADS=1.

MODELS and OUT as in differences.py, which is run first. Each round encodes the same 32 texts (demo texts, one to three
sentences) with every program in turn, one thread each, in batches of 8; the first round is not counted. A ratio is that
of two programs in the same round, so what slows the machine slows both. `wall` is time on the clock, `cpu` the CPU time
of this process. Intervals are 95 %, by drawing rounds again. latency.csv is written anew for each model.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from differences import CASES, MAX_LENGTH, saved

import layerwise
from layerwise.inputs.text import demo_texts
from layerwise.models.families.gguf_layouts import gguf_problem
from layerwise.models.opening import open_network
from layerwise.verbs.export.backends.backend import ExportJob
from layerwise.verbs.export.backends.catalog import find_backend
from layerwise.verbs.export.backends.gguf.backend import Q8_FILE, load_gguf
from layerwise.verbs.export.backends.onnx import GRAPH_FILE, INT8_FILE, load_graph
from layerwise.verbs.export.backends.sentence_transformers.backend import LoadedModel

TABLE = Path(__file__).parent / "latency.csv"
MODELS = ("all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2", "smollm2-135m")
WHOLE = ("whole", "sentence-transformers", "float32")
ROUNDS, TEXTS, DRAWS = 15, 32, 2000


def programs(name: str, models: Path, out: Path) -> dict[tuple[str, str, str], tuple[object, float]]:
    """An encoder and its size in megabytes, by model (whole or cut), runtime and precision."""
    from sentence_transformers import SentenceTransformer

    layer, options = CASES[name][0]
    network, cpu = open_network(str(models / name)), torch.device("cpu")
    job = ExportJob(network, layerwise.Recipe(layer, max_length=MAX_LENGTH, **options), None, MAX_LENGTH, "compact")
    paths = {
        kind: saved(job, out / f"{name}-none" / kind, kind) for kind in ("sentence_transformers", "onnx", "openvino")
    }
    whole = SentenceTransformer(str(models / name), device="cpu")
    whole.max_seq_length = MAX_LENGTH
    if whole.tokenizer.pad_token is None:
        whole.tokenizer.pad_token = whole.tokenizer.eos_token
    plain = find_backend("sentence_transformers").load(paths["sentence_transformers"], cpu)
    found = {
        WHOLE: (LoadedModel(whole), models / name / "model.safetensors"),
        ("cut", *WHOLE[1:]): (plain, paths["sentence_transformers"] / "model.safetensors"),
    }
    for precision, file in (("float32", GRAPH_FILE), ("int8", INT8_FILE)):
        found["cut", "ONNX Runtime", precision] = load_graph(paths["onnx"], file), paths["onnx"] / file
    vino = find_backend("openvino").load(paths["openvino"], cpu)
    found["cut", "OpenVINO", "float32"] = vino, paths["openvino"] / "openvino/openvino_model.bin"
    if not gguf_problem(network.module.config):
        path = saved(job, out / f"{name}-none" / "gguf", "gguf")
        found["cut", "llama.cpp", "q8_0"] = load_gguf(path, Q8_FILE), path / Q8_FILE
    return {key: (encoder, path.stat().st_size / 1e6) for key, (encoder, path) in found.items()}


def interval(ratios: np.ndarray) -> np.ndarray:
    """The median, and the interval of the median by drawing rounds again."""
    drawn = np.random.default_rng(0).integers(0, len(ratios), (DRAWS, len(ratios)))
    return np.array([np.median(ratios), *np.percentile(np.median(ratios[drawn], axis=1), [2.5, 97.5])])


def measured(name: str, models: Path, out: Path) -> list[dict[str, object]]:
    found, texts = programs(name, models, out), demo_texts()[:TEXTS]
    times: dict[tuple[str, str, str], list[tuple[float, float]]] = {key: [] for key in found}
    for turn in range(ROUNDS + 1):
        for key, (encoder, _) in found.items():
            wall, cpu = time.perf_counter(), time.process_time()
            encoder.encode(texts)
            if turn:
                times[key].append((time.perf_counter() - wall, time.process_time() - cpu))
    before, rows = np.array(times[WHOLE]), []
    for (which, runtime, precision), (_, size) in found.items():
        ratios = before / np.array(times[which, runtime, precision])  # times as fast as the whole model
        row = {"model": name, "layer": CASES[name][0][0], "which": which, "runtime": runtime, "precision": precision}
        row |= {"rounds": ROUNDS, "texts": TEXTS, "megabytes": round(size, 1), "size": round(size / found[WHOLE][1], 3)}
        row["seconds"] = round(float(np.median(np.array(times[which, runtime, precision])[:, 1])), 3)
        for i, clock in enumerate(("wall", "cpu")):
            words = (clock, f"{clock}_low", f"{clock}_high")
            row |= dict(zip(words, interval(ratios[:, i]).round(2).tolist(), strict=True))
        rows.append(row)
    return rows


def main(models: Path, out: Path, names: list[str]) -> None:
    for name in names or MODELS:
        rows = pd.DataFrame(measured(name, models, out))
        kept = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=rows.columns)
        pd.concat([part for part in (kept[kept.model != name], rows) if len(part)]).to_csv(TABLE, index=False)
        print(rows.to_string(), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
