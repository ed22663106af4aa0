"""`layerwise embed`: the vectors of any layer, as Parquet."""

import io
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from layerwise.cli.options import add_data, add_model, add_overwrite, add_reading, model_spec, open_data

HELP = "vectors of any layer, one a text, as Parquet"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_data(parser, default=None)
    add_reading(parser)
    parser.add_argument("--out", required=True, help="Parquet file to write: id, text, layer_K")
    add_overwrite(parser)


def run(args: Namespace) -> int:
    from layerwise.api.embed import embed
    from layerwise.core.files import write_atomically
    from layerwise.core.outputs import require_new_file

    require_new_file(args.out, overwrite=args.overwrite)
    names = ("layers", "readout", "tokens", "pooling", "max_length", "batch_tokens")
    options = {name: getattr(args, name) for name in names}
    vectors = embed(model_spec(args), open_data(args), progress=True, **options)
    buffer = io.BytesIO()
    vectors.to_parquet(buffer, index=False)
    write_atomically(Path(args.out), buffer.getvalue())
    if blank := vectors.attrs["blank_rows"]:
        print(f"{blank} blank rows of the data have no vector: theirs are null", file=sys.stderr)
    print(f"{len(vectors) - blank} texts x {len(vectors.columns) - 2} layers in {args.out}", file=sys.stderr)
    return 0
