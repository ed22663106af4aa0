"""How far the vectors of each runtime are from those that scan measures: `python differences.py MODELS OUT`.

MODELS is a folder of models, OUT a folder for exports; names of cases may follow. One row per model and runtime is
appended to differences.csv beside this file; a row that is there is not computed again. Two runtimes live in other
environments and are left out unless these variables are set: NODE_MODULES (a folder in which `npm install
--ignore-scripts @huggingface/transformers` was run) and FASTEMBED_PYTHON (a Python with fastembed). WIKITEXT is the
training part of WikiText-2 as Parquet, for the case of a shrunk model.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import layerwise
from layerwise.inputs.text import demo_texts
from layerwise.models.families.gguf_layouts import gguf_problem
from layerwise.models.opening import open_network
from layerwise.models.readouts import last_recipe
from layerwise.passes.vectors import part_rows
from layerwise.verbs.export.backends.backend import ExportJob
from layerwise.verbs.export.backends.catalog import find_backend
from layerwise.verbs.export.backends.gguf.backend import HALF_FILE, Q8_FILE, load_gguf
from layerwise.verbs.export.backends.onnx import GRAPH_FILE, INT8_FILE, load_graph
from layerwise.verbs.export.fitting import fit_recipe

TABLE = Path(__file__).parent / "differences.csv"
COLUMNS = ["model", "layer", "transform", "runtime", "precision", "texts", "padded", "alone", "uncut_texts",
           "uncut", "largest_entry", "min_cosine", "mean_cosine", "megabytes"]  # fmt: skip
MAX_LENGTH = 128  # tokens
CASES = {  # model: layer, options
    "all-minilm-l6-v2": [(3, {})],
    "gte-small": [(8, {})],
    "all-mpnet-base-v2": [(9, {})],
    "smollm2-135m": [(15, {"norm": "normed"}), (15, {"norm": "normed", "transform": "remove_top:3"})],
    "gemma3-270m": [(9, {"norm": "normed"})],
    "all-minilm-l6-v2 shrunk": [(3, {})],  # three of six blocks and a linear map, as shipped
}
WITHOUT_ALONE = {"smollm2-135m", "gemma3-270m"}  # in llama.cpp, which is slow with them and never pads
JAVASCRIPT = """
import { AutoModel, AutoTokenizer, env } from '@huggingface/transformers';
import fs from 'fs';
env.allowRemoteModels = false; env.localModelPath = process.argv[2] + '/';
const texts = JSON.parse(fs.readFileSync(process.argv[4]));
const tokenizer = await AutoTokenizer.from_pretrained(process.argv[3]);
const model = await AutoModel.from_pretrained(process.argv[3], { dtype: 'fp32' });
const encode = async (batch) => {
  const inputs = await tokenizer(batch, { padding: true, truncation: true });
  return (await model(inputs)).sentence_embedding.tolist();
};
const padded = [], alone = [];
for (let i = 0; i < texts.length; i += 8) padded.push(...await encode(texts.slice(i, i + 8)));
for (const text of texts) alone.push(...await encode([text]));
fs.writeFileSync(process.argv[5], JSON.stringify([padded, alone]));
"""
FASTEMBED = """
import json, sys
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
folder, source, target, width = sys.argv[1:5]
TextEmbedding.add_custom_model(model="local/model", pooling=PoolingType.DISABLED, normalization=False,
    sources=ModelSource(hf="local/model"), dim=int(width), model_file="onnx/model.onnx")
model = TextEmbedding("local/model", specific_model_path=folder, threads=1)
texts = json.load(open(source))
padded = [v.tolist() for v in model.embed(texts, batch_size=8)]
alone = [v.tolist() for v in model.embed(texts, batch_size=1)]
json.dump([padded, alone], open(target, "w"))
"""


def texts_of_all_lengths(count: int = 100) -> list[str]:
    """Texts of 1 to 198 words, each from another place."""
    words = " ".join(demo_texts()).split()
    return [" ".join(words[17 * i : 17 * i + 1 + 2 * i]) for i in range(count)]


def in_node(folder: Path, texts: list[str]) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory(dir=os.environ["NODE_MODULES"]) as scratch:
        (Path(scratch) / "run.mjs").write_text(JAVASCRIPT)
        return in_process(["node", f"{scratch}/run.mjs", str(folder.parent), folder.name], texts, [])


def in_fastembed(folder: Path, texts: list[str], width: int) -> list[np.ndarray]:
    return in_process([os.environ["FASTEMBED_PYTHON"], "-c", FASTEMBED, str(folder)], texts, [str(width)])


def in_process(command: list[str], texts: list[str], more: list[str]) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "texts.json", Path(scratch) / "vectors.json"
        source.write_text(json.dumps(texts))
        subprocess.run([*command, str(source), str(target), *more], check=True)
        return [np.array(rows) for rows in json.loads(target.read_text())]


def in_backend(load, texts: list[str]) -> list[np.ndarray]:
    encoder = load()
    return [encoder.encode(texts).numpy(), torch.cat([encoder.encode([text]) for text in texts]).numpy()]


def in_llama_cpp(folder: Path, file: str, texts: list[str], alone: bool) -> list[np.ndarray]:
    encoder = load_gguf(folder, file)
    rows = encoder.encode(texts).numpy()
    return [rows, torch.cat([encoder.encode([t]) for t in texts]).numpy()] if alone else [rows]


def saved(job: ExportJob, folder: Path, backend: str) -> Path:
    """What `export --format` writes, without its checks: this script makes them."""
    if not folder.exists():
        scratch = folder.with_name(f"{folder.name}.unfinished")
        scratch.mkdir(parents=True)
        find_backend(backend).save(job, scratch)
        scratch.rename(folder)
    return folder


def runtimes(job: ExportJob, folder: Path, width: int, name: str):
    """Name, precision, a function to the size in bytes, and one from texts to vectors, padded and alone."""
    cpu = torch.device("cpu")
    plain, vino = find_backend("sentence_transformers"), find_backend("openvino")

    def path(backend: str) -> Path:
        return saved(job, folder / backend, backend)

    yield (
        "sentence-transformers",
        "float32",
        "sentence_transformers",
        "model.safetensors",
        lambda t: in_backend(lambda: plain.load(path("sentence_transformers"), cpu), t),
    )
    for precision, file in (("float32", GRAPH_FILE), ("int8", INT8_FILE)):
        yield (
            "ONNX Runtime",
            precision,
            "onnx",
            file,
            lambda t, file=file: in_backend(lambda: load_graph(path("onnx"), file), t),
        )
    yield (
        "OpenVINO",
        "float32",
        "openvino",
        "openvino/openvino_model.bin",
        lambda t: in_backend(lambda: vino.load(path("openvino"), cpu), t),
    )
    if not job.recipe.shipped and not gguf_problem(job.network.module.config):
        for precision, file in (("float16", HALF_FILE), ("q8_0", Q8_FILE)):
            yield (
                "llama.cpp",
                precision,
                "gguf",
                file,
                lambda t, file=file: in_llama_cpp(path("gguf"), file, t, name not in WITHOUT_ALONE),
            )
    if "NODE_MODULES" in os.environ:
        yield "transformers.js", "float32", "onnx", GRAPH_FILE, lambda t: in_node(path("onnx"), t)
    if "FASTEMBED_PYTHON" in os.environ:
        yield "fastembed", "float32", "onnx", GRAPH_FILE, lambda t: in_fastembed(path("onnx"), t, width)


def shrunk_folder(models: Path, out: Path) -> Path:
    """all-MiniLM-L6-v2 with three of its blocks and a linear map, made by `shrink` from texts in WIKITEXT."""
    folder = out / "shrunk"
    if not folder.exists():
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

        first = Transformer(str(models / "all-minilm-l6-v2"), max_seq_length=256)
        modules = [first, Pooling(first.get_embedding_dimension(), "mean"), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(str(out / "whole"), create_model_card=False)
        texts = layerwise.texts(os.environ["WIKITEXT"], only="wikitext", sample=1000)
        layerwise.shrink(
            str(out / "whole"), texts, folder, method="linear", blocks=3, choose="prefix", work=out / "work"
        )
    return folder


def main(models: Path, out: Path, names: list[str]) -> None:
    if not TABLE.exists():
        TABLE.write_text(",".join(COLUMNS) + "\n")
    texts = texts_of_all_lengths()
    for name in names or CASES:
        for layer, options in CASES[name]:
            transform = options.get("transform", "none")
            with TABLE.open() as file:
                done = {(r["model"], r["transform"], r["runtime"], r["precision"]) for r in csv.DictReader(file)}
            shrunk = name.endswith("shrunk")
            network = open_network(str(shrunk_folder(models, out) if shrunk else models / name))
            recipe = layerwise.Recipe(layer, max_length=MAX_LENGTH, **options)
            if shrunk:
                recipe = replace(last_recipe(network), max_length=MAX_LENGTH)
            fit = None if transform == "none" else demo_texts()
            fitted = fit_recipe(network, recipe, fit, lambda recipe: None)
            job = ExportJob(network, recipe, fitted.combined_map, MAX_LENGTH, "compact")
            rows = torch.cat(part_rows(network, recipe, texts, MAX_LENGTH), dim=1)
            wanted = (rows if fitted.combined_map is None else fitted.combined_map(rows)).numpy()
            fits = np.array([len(network.tokenizer(text)["input_ids"]) <= MAX_LENGTH for text in texts])
            folder = out / f"{name.replace(' ', '-')}-{transform.replace(':', '')}"
            for runtime, precision, backend, file, encode in runtimes(job, folder, wanted.shape[1], name):
                if (name, transform, runtime, precision) in done:
                    continue
                both = encode(texts)
                padded = both[0]
                uncut = max(np.abs(found - wanted)[fits].max() for found in both)
                cosine = (padded * wanted).sum(1) / np.linalg.norm(padded, axis=1) / np.linalg.norm(wanted, axis=1)
                row = [name, layer, transform, runtime, precision, len(texts)]
                row += [*(f"{np.abs(found - wanted).max():.2e}" for found in both), ""][:2]
                row += [int(fits.sum()), f"{uncut:.2e}", f"{np.abs(wanted).max():.4g}"]
                row += [f"{cosine.min():.6f}", f"{cosine.mean():.6f}"]
                row += [f"{(folder / backend / file).stat().st_size / 1e6:.1f}"]
                with TABLE.open("a") as table:
                    csv.writer(table, lineterminator="\n").writerow(row)
                print(*row, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
