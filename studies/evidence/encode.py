"""Vectors of every layer for the texts of the protocol's tasks, in pieces, so that a call that was stopped can go on.

    python studies/evidence/encode.py MODEL SHARED_DATA WIKITEXT_TRAIN VECTORS [--inputs plain prompteol echo]

VECTORS/MODEL/INPUT-POOLING-N.npy holds (layers, texts, width) of the N-th piece, in the order of texts.json. A text is
read up to 128 tokens, before the template.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

import layerwise
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.models.load import build_network
from layerwise.models.network import Network
from layerwise.models.opening import open_network
from layerwise.passes.vectors import pooled_vectors
from layerwise.verbs.pick.probes import proxy_probes

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
from development import EchoProcessor, fitting_texts, texts_of  # noqa: E402
from prepare import TEST, tables  # noqa: E402

INPUTS = ("plain", "prompteol", "echo")
HALVES = {  # the layer is chosen on the tasks of one half and judged on those of the other
    "A": ("STSHeadlines", "TREC6Classification", "AGNewsClustering", "TrecQARetrieval"),
    "B": ("STSTweets", "HateOffensiveClassification", "TwentyNewsgroupsClustering", "TwitterURLCorpus"),
}
TASKS = tuple(task for half in HALVES.values() for task in half)
CAP, TRAIN_PER_CLASS, QUERIES, FIT = 150, 16, 40, 500
MOST_TOKENS, PIECE = 128, 128


def task_tables(data: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The test table and the training table of a task, with the protocol's caps."""
    folder, kind = TEST[name]
    test, train, _ = tables(data, name, folder, kind)
    if kind == "Clustering":
        test = test.assign(
            sentences=[texts[:CAP] for texts in test.sentences], labels=[labels[:CAP] for labels in test.labels]
        )
    test = test[: QUERIES if kind == "Retrieval" else CAP]
    return test, None if train is None else train.groupby("label", sort=True).head(TRAIN_PER_CLASS)


def encode(network: Network, name: str, texts: list[str], folder: Path) -> None:
    """Writes the pieces of one input that are not there yet."""
    layers = [(layer, "raw") for layer in range(network.depth + 1)] + [(network.depth, "normed")] * network.has_norm
    poolings = ("mean",) if name == "echo" else ("mean", "last")
    readouts = {pooling: [Readout(layer, norm, "all", pooling) for layer, norm in layers] for pooling in poolings}
    if name == "echo":
        network = build_network(network.module, EchoProcessor(network.tokenizer), network.name)
        readouts["mean"] = [replace(readout, tokens="no_special") for readout in readouts["mean"]]
    began = time.monotonic()
    for number, start in enumerate(range(0, len(texts), PIECE)):
        paths = {pooling: folder / f"{name}-{pooling}-{number}.npy" for pooling in poolings}
        if all(path.exists() for path in paths.values()):
            continue
        piece = [Example(str(place), text) for place, text in enumerate(texts[start : start + PIECE])]
        rows = pooled_vectors(
            network, piece, [readout for several in readouts.values() for readout in several],
            max_length=MOST_TOKENS + 20 * (name == "prompteol"), template=name if name == "prompteol" else "",
        )  # fmt: skip
        for pooling, of_layers in readouts.items():
            part = paths[pooling].with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, np.stack([rows[readout].numpy() for readout in of_layers]))
            part.replace(paths[pooling])
        print(f"{name} {start + len(piece)} of {len(texts)} texts, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "data", "wikitext", "vectors"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--inputs", choices=INPUTS, nargs="+", default=list(INPUTS))
    args = parser.parse_args()
    folder = args.vectors / args.model.name
    folder.mkdir(parents=True, exist_ok=True)
    fit = fitting_texts(args.wikitext)[:FIT]
    bundled = [text for probe in proxy_probes() for text in probe.texts]
    of_tables = (table for name in TASKS for table in task_tables(args.data, name))
    different = dict.fromkeys([*texts_of(of_tables), *fit, *bundled])
    texts = sorted(different, key=lambda text: (len(text), text))  # a piece has texts of about one length
    known = {"model": args.model.name, "texts": texts, "fit": fit}
    record = folder / "texts.json"
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) != known:
        raise SystemExit(f"{folder} has vectors of other texts; take another folder")
    record.write_text(json.dumps(known), encoding="utf-8")
    network = open_network(layerwise.ModelSpec(str(args.model), dtype="float32"))
    about = {"fingerprint": network.fingerprint(), "depth": network.depth, "normed": bool(network.has_norm)}
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")
    for name in args.inputs:
        encode(network, name, texts, folder)


if __name__ == "__main__":
    main()
