"""What several verbs share on the command line: the model, the texts, the engine, and how warnings are printed."""

import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from layerwise.cli.flags import add_options, chosen
from layerwise.core.display import printable, redacted
from layerwise.core.errors import InputError
from layerwise.options.engine import Cluster
from layerwise.options.field import declared
from layerwise.options.model import ModelSpec
from layerwise.options.texts import TextOptions


def add_model(parser: ArgumentParser) -> None:
    """The model as a positional argument, and how it is loaded."""
    name = next(one for one in declared(ModelSpec) if one.name == "name")
    parser.add_argument("model", help=name.option.help)
    add_options(parser, ModelSpec, but=["name"])


def model_spec(args: Namespace) -> ModelSpec:
    return ModelSpec(args.model, **chosen(args, ModelSpec, but=["name"]))


def open_data(args: Namespace) -> Any:
    """The texts that were asked for; the model's tokenizer counts their tokens."""
    from layerwise.api.texts import texts
    from layerwise.models.load import load_tokenizer

    tokenizer = load_tokenizer(model_spec(args)) if args.min_tokens else None
    return texts(**chosen(args, TextOptions), tokenizer=tokenizer)


def engine_of(args: Namespace, *, local_workers: bool = False) -> str | Cluster:
    """The engine that was asked for; `local_workers`: workers are of use without Ray as well."""
    if args.engine == "ray":
        return Cluster(**chosen(args, Cluster))
    if args.address or args.gpus_per_worker or (args.workers and not local_workers):
        raise InputError("--address, --workers and --gpus-per-worker belong to --engine ray")
    return str(args.engine)


def add_json(parser: ArgumentParser, what: str = "the table") -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON")


def add_overwrite(parser: ArgumentParser) -> None:
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")


@contextmanager
def short_warnings() -> Iterator[None]:
    """Warnings as one line each on standard error, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print(printable(redacted(f"layerwise: {warning.message}")), file=sys.stderr)
