"""`layerwise data`: labelled tables of your own, prepared so that every layer can be scored on them."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.options.data import DataOptions

HELP = "prepare labelled tables for eval: classification, clustering, pairs, STS, reranking, retrieval"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("root", help="data root to write into, for `layerwise eval --data-root`")
    parser.add_argument("name", help="name of the task: mteb's, for official scoring on local files, or your own")
    add_options(parser, DataOptions)


def run(args: Namespace) -> int:
    from layerwise.core.outputs import named
    from layerwise.downstream.data_root import write_task
    from layerwise.inputs.tables import read_table

    asked = DataOptions(**chosen(args, DataOptions))
    test, train = read_table(asked.test), read_table(asked.train) if asked.train else None
    task = write_task(named(args.root), args.name, asked.type, test, train, subset=asked.subset, cap=asked.cap)
    print(f"{task.name}: {task.type}, {task.size} examples in {task.folder}", file=sys.stderr)
    return 0
