"""Vectors of every layer for the texts of the protocol's tasks, in pieces, so that a call that was stopped can go on.

    python studies/evidence/encode.py MODEL SHARED_DATA WIKITEXT_TRAIN VECTORS [--inputs plain prompteol echo]
        [--dtype bfloat16] [--part decoder] [--round-bits 4]

VECTORS/NAME/INPUT-POOLING-N.npy holds (layers, texts, width) of the N-th piece, in the order of texts.json. A text is
read up to 128 tokens, before the template. NAME is that of the model's folder with everything that changes its numbers,
such as smollm2-135m-4bit-bfloat16; model.json says the same in fields, and which recipes `pick` would compare.
metrics.csv in that folder has the metrics of a scan of the 500 sentences that maps are fitted on.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

import layerwise
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.models.load import build_network
from layerwise.models.network import Network
from layerwise.models.opening import open_network
from layerwise.models.readouts import baseline_recipe
from layerwise.passes.vectors import pooled_vectors
from layerwise.verbs.pick.candidates import layer_candidates, template_candidates
from layerwise.verbs.pick.probes import proxy_probes
from layerwise.verbs.pick.run import default_rulebook, usable_templates

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
GROUP = 32  # weights that share a scale, along the input
METRICS = "fast,infonce,dime"  # without lidar, which reads each text 17 times


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


def round_weights(network: Network, bits: int) -> None:
    """Rounds the weight matrices of the blocks. Each group of 32 weights of a row, along the input, gets 2 ** bits
    values at equal distances from its least to its largest weight; both ends are kept. Nothing is calibrated."""
    for module in network.structure.blocks.modules():
        if isinstance(module, nn.Linear):
            groups = module.weight.data.float().unflatten(1, (-1, GROUP))
            low = groups.amin(dim=-1, keepdim=True)
            step = (groups.amax(dim=-1, keepdim=True) - low).clamp(min=1e-12) / (2**bits - 1)
            module.weight.data.copy_((low + ((groups - low) / step).round() * step).flatten(1))


def first_norm_ratio(tokens: Tensor, mask: Tensor) -> Tensor:
    """The norm of the first token, divided by the mean norm of the others: (B, T, D), (B, T) -> (B,)."""
    norms = tokens.float().norm(dim=-1)
    others = mask.clone()
    others[:, 0] = 0
    return norms[:, 0] / ((norms * others).sum(dim=1) / others.sum(dim=1))


def measure(network: Network, texts: list[str], folder: Path) -> None:
    """Writes the metrics of every layer, each a mean over the texts or a number of all of them."""
    own = layerwise.Metric(
        name="first_norm_ratio", perspective="scale", larger_means="a longer first token", cite="the protocol",
        reading=layerwise.mean_over_prompts("first_norm_ratio", first_norm_ratio), score=layerwise.mean_score(),
    )  # fmt: skip
    table = layerwise.scan(
        network, texts, metrics=[*METRICS.split(","), own], tokens="all,no_first", max_length=MOST_TOKENS, progress=True
    )
    frame = table.to_pandas()
    frame = frame[(frame.norm == "raw") & ((frame.tokens == "all") | (frame.metric == "prompt_entropy"))]
    frame[["metric", "tokens", "layer", "value"]].to_csv(folder / "metrics.csv", index=False)


def about(network: Network, args: argparse.Namespace) -> dict[str, Any]:
    """What a score needs to know: the model, how it was read, and the recipes that `pick` compares."""
    book, found = default_rulebook(), []
    if network.shipped is None:
        templates = usable_templates(network, book.templates, MOST_TOKENS)
        found = layer_candidates(network, transforms=book.transforms)
        found += template_candidates(network, templates, book.template_transforms)
    return {
        "model": args.model.name + f"-{args.part}" * bool(args.part) + f"-{args.round_bits}bit" * bool(args.round_bits),
        "dtype": args.dtype, "fingerprint": network.fingerprint(), "depth": network.depth,
        "normed": bool(network.has_norm), "static": book.static and network.family.first_hidden_state == 0,
        "last": baseline_recipe(network).to_json(), "candidates": [recipe.to_json() for recipe in found],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "data", "wikitext", "vectors"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--inputs", choices=INPUTS, nargs="+", default=list(INPUTS))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--part", choices=("encoder", "decoder"), help="of a translation model; default: its encoder")
    parser.add_argument(
        "--round-bits", type=int, choices=(4, 2), help="round the weights of the blocks to 16 or 4 values"
    )
    args = parser.parse_args()
    network = open_network(layerwise.ModelSpec(str(args.model), dtype=args.dtype, part=args.part))
    if args.round_bits:
        round_weights(network, args.round_bits)
    record = about(network, args)
    folder = args.vectors / (record["model"] + f"-{args.dtype}" * (args.dtype != "float32"))
    folder.mkdir(parents=True, exist_ok=True)
    fit = fitting_texts(args.wikitext)[:FIT]
    bundled = [text for probe in proxy_probes() for text in probe.texts]
    of_tables = (table for name in TASKS for table in task_tables(args.data, name))
    different = dict.fromkeys([*texts_of(of_tables), *fit, *bundled])
    texts = sorted(different, key=lambda text: (len(text), text))  # a piece has texts of about one length
    for name, known in {"texts.json": {"texts": texts, "fit": fit}, "model.json": record}.items():
        path = folder / name
        if path.exists() and json.loads(path.read_text(encoding="utf-8")) != known:
            raise SystemExit(f"{path} says that these are vectors of other texts or another model; take another folder")
        path.write_text(json.dumps(known), encoding="utf-8")
    if not (folder / "metrics.csv").exists():
        measure(network, fit, folder)
    for name in args.inputs:
        encode(network, name, texts, folder)


if __name__ == "__main__":
    main()
