"""`layerwise embedder`: turn any language model into an embedding model without labels: pick, then export."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options
from layerwise.cli.shared import add_model, model_spec, say
from layerwise.inputs.options import TextOptions
from layerwise.verbs.export.command import print_certificate
from layerwise.verbs.export.options import ExportOptions
from layerwise.verbs.pick.options import PickOptions

HELP = "turn a language model into an embedding model without labels: pick a recipe and export it"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, PickOptions, only=["fit", "labels", "templates", "static", "dims", "max_length"])
    add_options(parser, ExportOptions, only=["mode", "texts"])
    add_options(parser, TextOptions, only=["column"], helps={"column": "column of --fit and --texts with the text"})
    parser.add_argument("--out", required=True, help="folder to write; must not exist")


def run(args: Namespace) -> int:
    from layerwise.verbs.embedder.api import pick_and_export

    pick_and_export(
        model_spec(args), args.out, fit=args.fit, texts=args.texts, column=args.column, labels=args.labels,
        templates=args.templates, static=args.static, dims=args.dims, max_length=args.max_length, mode=args.mode,
        progress=True,
        on_pick=lambda picked: print(picked.describe()),
    )  # fmt: skip
    print_certificate(args.out, as_json=False)
    say(f"saved in {args.out}; load it with SentenceTransformer({args.out!r})")
    return 0
