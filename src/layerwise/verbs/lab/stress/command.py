"""`layerwise lab stress`: scan increasingly distorted prompts."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, add_model, close_scan, engine_from_args, model_spec, next_steps, open_data
from layerwise.engines.options import Cluster, Vllm
from layerwise.inputs.options import TextOptions
from layerwise.verbs.lab.stress.options import StressOptions

HELP = "scan repeated, random, short and long prompts"
EXAMPLE = "layerwise lab stress gpt2 --kind repeat_one --levels 0,0.5,1 --out stress"
MAIN = "kind levels data limit metrics layers dtype device engine out json".split()


def add_arguments(parser: ArgumentParser) -> None:
    add_options(parser, StressOptions)
    add_options(parser, TextOptions, defaults={"data": "demo"})
    add_json(parser)
    add_model(parser, sources=["stream"])
    add_options(parser, Cluster)
    add_options(parser, Vllm)


def run(args: Namespace) -> int:
    options = option_values(args, StressOptions) | {"engine": engine_from_args(args)}
    from layerwise.verbs.lab.stress.api import stress

    table = stress(model_spec(args), open_data(args), **options, progress=True)
    print(table.to_json() if args.json else table)
    close_scan(table, args.out)
    if args.out:
        next_steps(["layerwise", "report", args.out, "--html", "report.html"])
    return 0
