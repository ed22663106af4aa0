"""`layerwise pick`: which layer or recipe to use, how sure that is, and what it saves."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_no_static

HELP = "which layer or recipe to use, how sure that is; it may say: keep the last"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="folder of a scan or eval run, or a model")
    parser.add_argument("--data", help="texts of your own kind, without labels: the model runs over up to 1000 of them")
    parser.add_argument("--column", default="text", help="column of --data that holds the text")
    parser.add_argument("--labels", help="a few labels: .csv, .jsonl or .parquet with text,label or text1,text2,score")
    parser.add_argument("--rule", help="a rule over the run's table: depth:80%%, min:dime, max:infonce@20%%-90%% ...")
    parser.add_argument("--layer-only", action="store_true", help="choose a layer as it is, without a linear map")
    add_no_static(parser)
    parser.add_argument("--model", help="the model to run, where the run's own name no longer leads to it")
    parser.add_argument("--max-length", type=int, help="longest input in tokens; default 512 or the model's limit")
    parser.add_argument(
        "--save", help="folder for pick.json and recipe.safetensors, which `export --layer FOLDER:auto` takes"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.pick import pick
    from layerwise.api.texts import texts
    from layerwise.selection.pick import require_place

    if args.save is not None:
        require_place(args.save)  # noticed now, not after the model has run
    data = texts(args.data, column=args.column) if args.data else None
    if (args.data or args.labels) and not args.rule:
        print("the model runs once over up to 1,000 texts of yours and 288 bundled sentences", file=sys.stderr)
    names = ("labels", "rule", "layer_only", "static", "model", "max_length")
    found = pick(args.run_folder, data, **{name: getattr(args, name) for name in names})
    if args.save is not None:
        found.save(args.save)
    print(found.to_json() if args.json else found)
    return 0
