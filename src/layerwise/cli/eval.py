"""`layerwise eval`: every layer on MTEB, or on labelled data of your own, with one forward pass a text."""

import os
import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_engine, add_model, add_reading, engine_options, model_spec

HELP = "score every layer on MTEB tasks, or your own, with one forward pass a text"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_reading(parser, several=", or several with commas")
    parser.add_argument("--tasks", required=True, help="paper32, mteb names, types such as STS, or all of a data root")
    parser.add_argument("--data-root", help="local data prepared by `layerwise data` (offline)")
    parser.add_argument("--out", help="folder for scores, mteb's own results, and vectors; a later call goes on there")
    parser.add_argument(
        "--recipe", nargs="+", default=[],
        help="score these recipes (files, or recipe.safetensors of pick) instead of bare layers",
    )
    parser.add_argument("--fit", help="texts to fit the recipes' maps on; `task`: each task's own, without labels")
    parser.add_argument("--vectors", default="keep", choices=["keep", "evict"], help="evict: delete them task by task")
    parser.add_argument("--precision", default="float32", choices=["float32", "float16"], help="of stored vectors")
    add_engine(
        parser,
        "local: scoring processes (default: one a core; 0: none); ray: processes that hold the model",
        may_miss=False,
    )
    parser.add_argument("--dry-run", action="store_true", help="say which tasks, texts and disk, and load nothing")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.evaluate import evaluate, plan_evaluation
    from layerwise.core.errors import InputError
    from layerwise.maps.fitted import load_recipe

    model = model_spec(args)
    chosen = {name: getattr(args, name) for name in ("layers", "readout", "tokens", "pooling", "data_root")}
    if args.dry_run:
        print("\n".join(plan_evaluation(model, args.tasks, precision=args.precision, **chosen)))
        return 0
    if args.out is None:
        raise InputError("eval needs --out DIR, where scores are kept as they come")
    names = ("max_length", "batch_tokens", "vectors", "precision")
    options = {name: getattr(args, name) for name in names} | engine_options(args, local_workers=True)
    if args.engine == "local":
        options["workers"] = os.cpu_count() or 1 if args.workers is None else args.workers
    options |= {"recipes": [load_recipe(path) for path in args.recipe], "fit": args.fit}
    table = evaluate(model, args.tasks, out=args.out, progress=True, **chosen, **options)
    print(table.to_json() if args.json else table)
    print(f"{table.run['forwarded_texts']} texts went through the model; saved in {args.out}", file=sys.stderr)
    return 0
