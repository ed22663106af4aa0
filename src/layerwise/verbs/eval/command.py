"""`layerwise eval`: score every layer on MTEB or your own labelled data, with one forward pass per text."""

import os
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, add_model, engine_from_args, model_spec, next_steps, say
from layerwise.core.errors import InputError
from layerwise.engines.options import Cluster
from layerwise.verbs.eval.options import EvaluateOptions

DOOR, LINE = "choose", "score every layer on MTEB tasks, or on labelled data of your own"
HELP = "score every layer on MTEB tasks, or your own, with one forward pass per text"
EXAMPLE = "layerwise eval gpt2 --tasks STSBenchmark,Banking77Classification --out scores"
MAIN = "tasks data_root layers pooling template recipe fit dtype device engine out dry_run json".split()


def add_arguments(parser: ArgumentParser) -> None:
    # --out is not needed for a dry run; by default there is one scoring process per core.
    add_options(parser, EvaluateOptions, defaults={"out": None, "workers": None})
    add_model(parser, sources=["stream"])
    add_options(parser, Cluster, exclude=["workers"])
    parser.add_argument(
        "--recipe", nargs="+", default=[],
        help="score these recipes (recipe files, or recipe.safetensors from pick) instead of plain layers",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true", help="list tasks, texts and disk space without loading anything"
    )
    add_json(parser)


def run(args: Namespace) -> int:
    engine = engine_from_args(args, local_workers=True)
    if args.out is None and not args.dry_run:
        raise InputError("eval needs --out DIR for its scores")
    from layerwise.maps.fitted import load_recipe
    from layerwise.runs.summary import counted
    from layerwise.verbs.eval.api import eval, plan_evaluation

    model, options = model_spec(args), option_values(args, EvaluateOptions)
    options["engine"] = engine
    if args.engine == "ray":
        options["workers"] = 0  # the cluster has its own workers
    elif args.workers is None:
        options["workers"] = os.cpu_count() or 1
    if args.dry_run:
        print("\n".join(plan_evaluation(EvaluateOptions(model, **options | {"out": args.out or ""}))))
        return 0
    table = eval(model, **options, recipes=[load_recipe(path) for path in args.recipe], progress=True)
    print(table.to_json() if args.json else table)
    say(f"{counted(table.run['forwarded_texts'], 'text')} went through the model")
    say(f"saved in {args.out}")
    next_steps(["layerwise", "lab", "tradeoff", args.out], ["layerwise", "report", args.out, "--html", "report.html"])
    return 0
