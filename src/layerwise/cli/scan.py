"""`layerwise scan`: every metric of every layer of a model, on your texts, in one pass."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_data, add_engine, add_model, add_reading, engine_options, model_spec, open_data
from layerwise.core.display import redacted

OPTIONS = (
    "metrics", "layers", "rows", "tokens", "readout", "pooling", "max_length", "batch_tokens", "shard_size", "seed",
    "view_strength", "state",
)
HELP = "every metric of every layer, on your texts, in one pass"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_data(parser)
    add_reading(parser, several=", or several with commas", pooling="mean")
    add_engine(parser)
    parser.add_argument("--out", help="run folder or url (s3://...): the table, and what a later call resumes from")
    parser.add_argument("--metrics", default="fast", help="fast (no views), all, or names from `layerwise metrics`")
    parser.add_argument("--rows", default="raw", help="raw, unit, centered, centered_unit, or several with commas")
    parser.add_argument("--shard-size", type=int, default=1024, help="texts in a shard, the unit of resuming")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--view-strength", type=float, default=0.3, help="share of words and letters that views change")
    parser.add_argument("--state", default="auto", help="sums: exact, float32, sketch:512, or auto (at most 8 GB)")
    parser.add_argument("--keep-prompts", default="auto", choices=["auto", "all", "none"], help="prompts' own numbers")
    parser.add_argument("--dry-run", action="store_true", help="say what it would take, and load nothing")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.scan import plan, scan

    model, data = model_spec(args), open_data(args)
    options = {name: getattr(args, name) for name in OPTIONS}
    if args.dry_run:
        forecast = plan(model, data, **options)
        print("\n".join(forecast.lines()))
        forecast.require_fit()
        return 0
    options |= engine_options(args)
    table = scan(model, data, out=args.out, keep_prompts=args.keep_prompts, progress=True, **options)
    print(table.to_json() if args.json else table)
    facts = table.run["data"]
    if facts["cut"]:
        print(f"{facts['cut']} of {facts['prompts']} texts were cut at --max-length", file=sys.stderr)
    if facts["blank_rows"]:
        print(f"{facts['blank_rows']} blank rows of the data were passed over", file=sys.stderr)
    if facts["missing"]:
        print(f"{len(facts['missing'])} texts could not be computed and are left out", file=sys.stderr)
    if args.out:
        print(f"saved in {redacted(args.out)}", file=sys.stderr)
    return 0
