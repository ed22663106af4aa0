"""Options that several verbs share: which model, which texts, how they are read."""

import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from layerwise.core.display import printable, redacted


def add_model(parser: ArgumentParser) -> None:
    parser.add_argument("model", help="hub id or folder with config.json and model.safetensors")
    group = parser.add_argument_group("model")
    group.add_argument("--revision", help="branch, tag or commit on the hub")
    group.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "float64"])
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps; default: what the machine has")
    group.add_argument("--device-map", help="auto: spread a large model over devices (needs accelerate)")
    group.add_argument("--adapter", help="folder of a PEFT adapter to merge in (needs peft)")
    group.add_argument("--part", help="which stack to read where a model has two, such as encoder")
    group.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")


def model_spec(args: Namespace) -> Any:
    from layerwise.models.load import ModelSpec

    return ModelSpec(
        name=args.model,
        revision=args.revision,
        dtype=args.dtype,
        device=args.device,
        device_map=args.device_map,
        trust_remote_code=args.trust_remote_code,
        adapter=args.adapter,
        part=args.part,
    )


def add_data(parser: ArgumentParser, default: str | None = "demo") -> None:
    group = parser.add_argument_group("texts")
    group.add_argument(
        "--data", default=default, required=default is None,
        help="a .txt, .jsonl, .csv or .parquet file, - for standard input, a hub data set, or demo (200 bundled texts)",
    )
    group.add_argument("--column", default="text", help="column that holds the text (default: text)")
    group.add_argument("--id-column", help="column that names each text; default: a hash of the text")
    group.add_argument("--split", default="train", help="split of a hub data set (default: train)")
    group.add_argument("--config", help="configuration of a hub data set")
    group.add_argument("--only", choices=["wikitext"], help="wikitext: drop headings and blanks, as the paper does")
    group.add_argument("--min-tokens", type=int, default=0, help="drop texts shorter than this (the paper: 30)")
    group.add_argument("--limit", type=int, help="the first N texts")
    group.add_argument("--sample", type=int, help="a fair sample of N texts, by hashed ids")


def open_data(args: Namespace) -> Any:
    from layerwise.inputs.text import open_texts
    from layerwise.models.load import load_tokenizer

    return open_texts(
        args.data,
        column=args.column,
        id_column=args.id_column,
        split=args.split,
        config=args.config,
        only=args.only,
        min_tokens=args.min_tokens,
        tokenizer=load_tokenizer(model_spec(args)) if args.min_tokens else None,
        limit=args.limit,
        sample=args.sample,
    )


ROLE_OF_WORKERS = "ray: how many processes hold the model (default: as many as fit)"


def add_engine(parser: ArgumentParser, workers: str = ROLE_OF_WORKERS, *, may_miss: bool = True) -> None:
    """Where the work is done. `workers` says what they are; `may_miss`: texts that fail may be left out."""
    group = parser.add_argument_group("engine")
    group.add_argument("--engine", default="local", choices=["local", "ray"], help="ray: many processes or nodes")
    group.add_argument("--address", help="ray: the cluster, auto or host:port; default: one that is started here")
    group.add_argument("--workers", type=int, help=workers)
    group.add_argument("--cpus-per-worker", type=float, default=1, help="ray: CPUs, and threads, of each (default: 1)")
    group.add_argument("--gpus-per-worker", type=float, default=0, help="ray: GPUs of each, 0.5 for two workers on one")
    group.add_argument("--threads", type=int, help="threads of a process; part of the plan, as sums depend on them")
    if may_miss:
        group.add_argument("--allow-missing", type=int, default=0, metavar="K", help="leave out up to K that fail")


def engine_options(args: Namespace, local_workers: bool = False) -> dict[str, Any]:
    """What the verb was asked for; only some have workers without Ray."""
    from layerwise.core.errors import InputError
    from layerwise.engines.ray import Cluster

    chosen: dict[str, Any] = {name: getattr(args, name) for name in ("threads", "allow_missing") if name in args}
    if args.engine == "ray":
        cluster = Cluster(args.address, args.workers, args.cpus_per_worker, args.gpus_per_worker)
        return chosen | {"engine": cluster}
    if args.address or args.gpus_per_worker or (args.workers and not local_workers):
        raise InputError("--address, --workers and --gpus-per-worker belong to --engine ray")
    return chosen


def add_reading(parser: ArgumentParser, several: str = "", pooling: str = "as the model itself pools") -> None:
    """How layers are read; `several` is added to the help where more than one word is taken."""
    group = parser.add_argument_group("reading")
    what = "all, 0,6,12, 25%%,50%%, or last: the model as shipped (default: all)"
    group.add_argument("--layers", default="all", help=what)
    group.add_argument("--readout", default="raw", help=f"raw, normed{several}; the last layer is read both ways")
    group.add_argument("--tokens", default="all", help=f"all, no_first, no_special, no_sinks{several}")
    group.add_argument("--pooling", help=f"mean, last, first, max{several}; default: {pooling}")
    group.add_argument("--max-length", type=int, help="longest input in tokens; default 512 or the model's limit")
    group.add_argument("--batch-tokens", type=int, default=4096, help="tokens in a batch, padding included")


def add_overwrite(parser: ArgumentParser, unless: str = "") -> None:
    parser.add_argument("--overwrite", action="store_true", help=f"replace an existing file{unless}")


@contextmanager
def told_warnings() -> Iterator[None]:
    """Warnings as one line each on standard error, without the place in the code."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in told:
        print(printable(redacted(f"layerwise: {warning.message}")), file=sys.stderr)


def add_no_static(parser: ArgumentParser) -> None:
    told = "leave whitened token embeddings out of the recipe: half the width, and some points less on most tasks"
    parser.add_argument("--no-static", dest="static", action="store_false", help=told)
