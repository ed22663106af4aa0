"""`layerwise data`: labelled tables of your own, prepared so that every layer can be scored on them."""

import sys
from argparse import ArgumentParser, Namespace

TYPES = ("Classification", "Clustering", "PairClassification", "STS", "Reranking", "Retrieval")
HELP = "prepare labelled tables for eval: classification, clustering, pairs, STS, reranking, retrieval"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("root", help="data root to write into, for `layerwise eval --data-root`")
    parser.add_argument("name", help="name of the task: mteb's, for official scoring on local files, or your own")
    parser.add_argument("--type", required=True, choices=TYPES)
    parser.add_argument("--test", required=True, help="table to score on: .parquet, .csv or .jsonl")
    parser.add_argument("--train", help="table to fit the classifier on (Classification)")
    parser.add_argument("--subset", default="default", help="mteb's subset, such as en (default: default)")
    parser.add_argument("--cap", type=int, help="keep at most so many test examples, by hashed id")


def run(args: Namespace) -> int:
    from layerwise.core.outputs import named
    from layerwise.downstream.data_root import write_task
    from layerwise.inputs.tables import read_table

    test, train = read_table(args.test), read_table(args.train) if args.train else None
    task = write_task(named(args.root), args.name, args.type, test, train, subset=args.subset, cap=args.cap)
    print(f"{task.name}: {task.type}, {task.size} examples in {task.folder}", file=sys.stderr)
    return 0
