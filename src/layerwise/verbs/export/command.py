"""`layerwise export`: save a layer as a model for sentence-transformers."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, add_model, model_spec
from layerwise.core.columns import fill_words
from layerwise.core.errors import InputError
from layerwise.inputs.options import TextOptions
from layerwise.verbs.export.options import ExportOptions

DOOR, LINE = "choose", "a layer as a model for sentence-transformers or ONNX, checked"
HELP = "write a layer as a model that plain SentenceTransformer(path) loads, and check its vectors"

MAIN = (
    "layer recipe probe label pooling template transform fit normalize dims format servable dtype device out json"
).split()


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--layer",
        help="layer number, depth such as 50%%, last (the model as shipped), or RUN:auto (the choice saved by pick)",
    )
    group.add_argument(
        "--probe", metavar="RUN", help="folder of a probe run: its best layer by held-out examples, as a classifier"
    )
    group.add_argument("--recipe", help="recipe file, recipe.safetensors from pick, or an exported folder")
    parser.add_argument("--label", help="which label of the probe run, if it has several")
    parser.add_argument(
        "--prefer", choices=["quality", "fast"], default="quality",
        help="fast: the lowest layer of the probe run that is at most one standard error behind the best",
    )  # fmt: skip
    add_options(parser, ExportOptions)
    add_options(
        parser,
        TextOptions,
        only=["column"],
        helps={"column": "column with the text in the files above"},
    )
    add_json(parser, "the whole certificate, layerwise.json,")


def run(args: Namespace) -> int:
    if not (args.layer or args.recipe or args.probe):
        raise InputError("say what to export: --layer N, --recipe FILE or --probe RUN")
    if not args.probe and (args.label or args.prefer != "quality"):
        raise InputError("--label and --prefer are for --probe: leave them out, or add --probe RUN")
    from layerwise.inputs.modalities import open_source
    from layerwise.inputs.text import texts
    from layerwise.maps.fitted import load_recipe
    from layerwise.models.opening import input_kind_of_model
    from layerwise.verbs.export.api import export
    from layerwise.verbs.export.chosen import ChosenRecipe
    from layerwise.verbs.probe.heads import Classifier

    options = option_values(args, ExportOptions)
    if images := input_kind_of_model(spec := model_spec(args)) == "image":
        if args.texts != "demo":
            options["texts"] = open_source(args.texts, "image", column=args.column)
    else:
        options["texts"] = texts(args.texts, column=args.column)
    if args.fit and not images and not (Path(args.fit).is_dir() or "://" in args.fit):  # else the folder of a scan
        options["fit"] = texts(args.fit, column=args.column)
    layer: Any = load_recipe(args.recipe) if args.recipe else args.layer
    if args.probe:
        layer = Classifier.load(args.probe, args.label, args.prefer)
    if args.layer and args.layer.endswith(":auto"):
        layer = ChosenRecipe.load(args.layer.removesuffix(":auto"))
    export(spec, layer, **options, progress=True)
    print_certificate(args.out, as_json=args.json)
    return 0


def print_certificate(out: str, *, as_json: bool) -> None:
    """What was exported and how it compares with the original, in about five lines, or the whole record."""
    from layerwise.runs.exported import RECORD_FILE
    from layerwise.verbs.export.summary import summary_lines

    record = json.loads((Path(out) / RECORD_FILE).read_text(encoding="utf-8"))
    if as_json:
        print(json.dumps(record, indent=1))
        return
    for line in summary_lines(record, out):
        print(line if line.startswith(" ") else fill_words(line, indent="  "))  # a command is not wrapped
