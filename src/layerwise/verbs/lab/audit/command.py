"""`layerwise lab audit`: rules for choosing a layer, tested on known scores; and the recipes of a protocol."""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from layerwise.cli.flags import add_options, argument_group, option_values
from layerwise.cli.shared import add_json, say
from layerwise.core.errors import InputError
from layerwise.core.options import option_specs
from layerwise.inputs.options import TextOptions
from layerwise.models.spec import ModelSpec
from layerwise.verbs.lab.audit.options import GROUP, AuditOptions, ProtocolOptions

if TYPE_CHECKING:
    import pandas as pd

HELP = "test rules for choosing a layer on known scores, or the recipes of a protocol on its tasks"
EXAMPLE = "layerwise lab audit scores.parquet --rules last,depth:80%"
MAIN = "rules metrics protocol stage data_root models fit dtype device out json".split()
NOTES = (
    "gain: points over the last layer; recovered: share of the gap to the best layer,",
    "interval by drawing tasks; below last: share of pairs; worst: largest loss.",
    "The best of many rules looks good by luck. --json prints all columns.",
)
NEEDED = ("stage", "data_root", "models", "out")  # by --protocol
FIT_OPTIONS = ("column", "split", "config", "limit", "sample")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scores", nargs="?", help="table (.parquet, .csv) with family, model, task, layer, score")
    add_options(parser, AuditOptions)
    argument_group(parser, GROUP).add_argument(
        "--protocol", metavar="FILE", help="protocol file: score its recipes on the tasks of one stage"
    )
    add_options(parser, ProtocolOptions, defaults=dict.fromkeys((*NEEDED, "workers")))
    add_options(parser, ModelSpec, only=["dtype", "device"])
    add_options(parser, TextOptions, only=FIT_OPTIONS, helps={"column": "column of --fit with the text"})
    add_json(parser)


def run(args: Namespace) -> int:
    if (args.scores is None) == (args.protocol is None):
        raise InputError("audit needs either a table of scores or --protocol FILE")
    if args.protocol is not None:
        return run_protocol(args)
    from layerwise.inputs.tables import read_table
    from layerwise.verbs.lab.audit.api import audit

    require_not_given(args, ProtocolOptions, "--protocol FILE")
    tables = [read_table(path) if path else None for path in (args.scores, args.metrics)]
    frame = audit(*tables, rules=args.rules)
    print(frame.to_json(orient="records") if args.json else as_text(frame))
    return 0


def run_protocol(args: Namespace) -> int:
    from layerwise.inputs.text import texts
    from layerwise.verbs.lab.audit.api import audit_protocol, chosen_models, model_folders
    from layerwise.verbs.lab.audit.protocol import read_protocol

    require_not_given(args, AuditOptions, "a table of scores")
    if missing := [f"--{name.replace('_', '-')}" for name in NEEDED if getattr(args, name) is None]:
        raise InputError(f"audit --protocol also needs {', '.join(missing)}")
    names = chosen_models(read_protocol(args.protocol), args.stage, args.only)
    folders = model_folders(args.models, names)
    loading: dict[str, Any] = {"dtype": args.dtype, "device": args.device}
    options = option_values(args, ProtocolOptions) | {
        "models": {name: ModelSpec(str(folder), **loading) for name, folder in folders.items()},
        "fit": texts(args.fit, **{name: getattr(args, name) for name in FIT_OPTIONS}) if args.fit else None,
        "workers": (os.cpu_count() or 1) if args.workers is None else args.workers,
    }
    result = audit_protocol(args.protocol, **options, progress=True)
    print(result.to_json() if args.json else result)
    say(f"saved in {args.out}")
    return 0


def require_not_given(args: Namespace, options: type, needed: str) -> None:
    """Raises if an option of the other form of audit was given, since it would have no effect."""
    for spec in option_specs(options):
        is_default = getattr(args, spec.name, None) in (None, spec.default)
        if not (spec.option.library_only or is_default):
            raise InputError(f"{spec.flag} needs {needed}")


def as_text(frame: "pd.DataFrame") -> str:
    """The columns that matter most, within 80 columns for rules with short names."""
    rows = [["rule", "family", "pairs", "gain", "recovered (95 %)", "below last", "worst"]]
    for row in frame.itertuples(index=False):
        drawn = row.low_tasks == row.low_tasks  # a single task has no interval
        interval = f" ({100 * row.low_tasks:.0f} to {100 * row.high_tasks:.0f})" if drawn else ""
        share = "-" if row.recovered != row.recovered else f"{100 * row.recovered:.0f} %{interval}"
        gain, below = f"{row.chosen - row.last:+.1f}", f"{100 * row.below_last:.0f} %"
        rows.append([row.rule, row.family, str(row.pairs), gain, share, below, f"{row.worst_loss:.1f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([*lines, *NOTES])
