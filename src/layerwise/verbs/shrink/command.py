"""`layerwise shrink`: an embedding model with fewer blocks, in the vector space of the original."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, add_model, model_spec, open_data, open_kinds
from layerwise.inputs.options import TextOptions
from layerwise.verbs.export.command import print_certificate
from layerwise.verbs.shrink.options import ShrinkOptions

DOOR, LINE = "cheaper", "fewer blocks, or none, in the same vector space"
HELP = "make an embedding model smaller: fewer blocks whose vectors imitate those of the whole model; no labels needed"
EXAMPLE = "layerwise shrink MODEL --data texts.txt --blocks 6 --method distill --minutes 10 --out small"
MAIN = "data queries documents pairs limit method student blocks minutes steps device out json".split()


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, ShrinkOptions)
    add_options(parser, TextOptions, defaults={"data": None})
    add_json(parser, "the whole certificate, layerwise.json,")


def run(args: Namespace) -> int:
    from layerwise.verbs.shrink.api import shrink
    from layerwise.verbs.shrink.ways import CheaperWays

    options = option_values(args, ShrinkOptions) | open_kinds(args)
    data = open_data(args) if args.data is not None else None
    found = shrink(model_spec(args), data, **options, progress=True)
    if isinstance(found, CheaperWays):
        print(found.to_json() if args.json else found)
    else:
        print_certificate(args.out, as_json=args.json)
    return 0
