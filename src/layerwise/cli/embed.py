"""`layerwise embed`: the vectors of any layer, as Parquet."""

import io
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_model, add_overwrite, model_spec, open_data
from layerwise.options.embed import EmbedOptions
from layerwise.options.texts import TextOptions

HELP = "vectors of any layer, one per text, as Parquet"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, TextOptions)
    add_options(parser, EmbedOptions, defaults={"layers": "all"})  # a file can be read column by column
    parser.add_argument("--out", required=True, help="Parquet file to write: id, text, layer_K")
    add_overwrite(parser)


def run(args: Namespace) -> int:
    from layerwise.api.embed import embed
    from layerwise.core.files import write_atomically
    from layerwise.core.outputs import require_new_file

    require_new_file(args.out, overwrite=args.overwrite)
    vectors = embed(model_spec(args), open_data(args), **chosen(args, EmbedOptions), progress=True)
    buffer = io.BytesIO()
    vectors.to_parquet(buffer, index=False)
    write_atomically(Path(args.out), buffer.getvalue())
    if blank := vectors.attrs["blank_rows"]:
        print(f"{blank} blank rows of the data have no vector: theirs are null", file=sys.stderr)
    print(f"{len(vectors) - blank} texts x {len(vectors.columns) - 2} layers in {args.out}", file=sys.stderr)
    return 0
