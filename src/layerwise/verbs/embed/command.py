"""`layerwise embed`: write the vectors of any layer to Parquet."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_model, model_spec, open_data, say
from layerwise.core.options import option_specs
from layerwise.inputs.options import TextOptions
from layerwise.verbs.embed.options import EmbedOptions

DOOR, LINE = "choose", "vectors of any layer, one per text, as Parquet"
HELP = "write the vectors of any layer, one per text, to a Parquet file"
MAIN = "data limit column layers norm tokens pooling max_length dtype device out overwrite".split()


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser, sources=["states", "stream"])
    add_options(parser, TextOptions)
    # A file can be read column by column, so the default is all layers.
    add_options(parser, EmbedOptions, exclude=["out"], defaults={"layers": "all"})
    out = next(one for one in option_specs(EmbedOptions) if one.name == "out")
    parser.add_argument("--out", required=True, help=out.option.help)


def run(args: Namespace) -> int:
    from layerwise.core.outputs import require_new_file
    from layerwise.runs.summary import counted
    from layerwise.verbs.embed.api import embed

    require_new_file(args.out, overwrite=args.overwrite)  # before the data are opened
    data = open_data(args)
    vectors = embed(model_spec(args), data, **option_values(args, EmbedOptions), progress=True)
    if blank := vectors.attrs["blank_rows"]:
        say(f"no vectors (null) for {counted(blank, 'blank row')}")
    layers = len([name for name in vectors.columns if name not in ("id", "text")])
    say(f"wrote {counted(len(vectors) - blank, data.unit)} x {counted(layers, 'layer')} to {args.out}")
    return 0
