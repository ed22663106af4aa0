"""`layerwise lab data`: prepare your own labelled tables for eval."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import next_steps, say
from layerwise.verbs.lab.data.options import DataOptions

EXAMPLE = "layerwise lab data tasks Mine --type STS --test pairs.csv"
HELP = "prepare labelled tables for eval: classification, clustering, pairs, STS, reranking, retrieval"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("root", help="data root to write to, for `layerwise eval --data-root`")
    parser.add_argument("name", help="task name: an mteb name (to score local files as mteb does), or your own")
    add_options(parser, DataOptions)


def run(args: Namespace) -> int:
    from layerwise.verbs.lab.data.api import data

    task = data(args.root, args.name, **option_values(args, DataOptions))
    say(f"{task.name}: {task.type}, {task.size} examples, saved in {task.folder}")
    next_steps(["layerwise", "eval", "MODEL", "--tasks", task.name, "--data-root", args.root, "--out", "scores"])
    return 0
