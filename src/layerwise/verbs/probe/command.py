"""`layerwise probe`: train classifiers on every layer, with one forward pass per example."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, add_model, model_spec, next_steps, say
from layerwise.inputs.options import TextOptions
from layerwise.runs.summary import counted
from layerwise.verbs.probe.options import ProbeOptions

if TYPE_CHECKING:
    from layerwise.runs.table import LayerTable

DOOR, LINE = "choose", "train classifiers on every layer: where can a label be read?"
HELP = "train classifiers on every layer: how well can a label be read from it?"
EXAMPLE = "layerwise probe gpt2 --data train.csv --test test.csv --label topic --out probes"
MAIN = "data test label probes layers pooling limit dtype device out json".split()
OPENED = ("column", "id_column", "config", "split", "limit", "sample")


def add_arguments(parser: ArgumentParser) -> None:
    data = (
        "a .csv, .jsonl or .parquet file, or a hub data set, with texts, audio or images, and labels; or a .conll file "
        "with a word and its labels per line"
    )
    add_options(parser, TextOptions, only=["data"], helps={"data": data})
    add_options(parser, ProbeOptions)
    add_json(parser)
    add_options(parser, TextOptions, only=OPENED)
    parser.add_argument("--test-split", help="split of a hub data set to test on; default: test, if --test is given")
    add_model(parser)


def run(args: Namespace) -> int:
    from layerwise.inputs.labels import labelled
    from layerwise.models.load import input_kind_of
    from layerwise.verbs.probe.api import probe

    opened = {name: getattr(args, name) for name in OPENED} | {"kind": input_kind_of(model_spec(args))}
    options = option_values(args, ProbeOptions)
    data = labelled(args.data, args.label, **opened)
    test: Any = None
    if args.test or args.test_split:
        test = labelled(args.test or args.data, args.label, **opened | {"split": args.test_split or "test"})
    table = probe(model_spec(args), data, **options | {"test": test}, progress=True)
    print(table.to_json() if args.json else table)
    for line in closing_lines(table):
        say(line)
    say(f"saved in {args.out}" if args.out else "nothing was saved; pass --out RUN to save the run in a folder")
    if args.out:
        next_steps(["layerwise", "report", args.out, "--html", "report.html"])
    return 0


def closing_lines(table: "LayerTable") -> list[str]:
    """What the labels are, and how far the best layer of each probe is above the last."""
    lines = []
    if words := table.run.get("words"):
        cut, without = (sum(words[role][name] for role in ("train", "test")) for name in ("truncated", "without_token"))
        lines.append(
            f"left out: {counted(cut, 'word')} by truncation, {counted(without, 'word')} without a token of its own"
        )
    for column, facts in table.run["labels"].items():
        unit = "words" if "most_frequent_of_word" in facts else "examples"
        sizes = f"{facts['classes']} classes, {facts['train']:,} {unit} to train and {facts['test']:,} to test on"
        lines.append(f"{column}: {sizes}; the most frequent class alone scores {facts['most_frequent']:.1f}")
        if "most_frequent_of_word" in facts:
            lines.append(f"{column}: the most frequent class of each word scores {facts['most_frequent_of_word']:.1f}")
    points = {(row.metric, row.layer, row.norm): row.value for row in table}
    lasts = {row.metric: row for row in sorted(table, key=lambda row: (row.layer, row.norm == "normed"))}
    for metric in dict.fromkeys(one["metric"] for one in table.run["probes"]):
        compared = [one for one in table.run["probes"] if one["metric"] == metric and "minus_last" in one]
        if not compared:
            continue
        best = max(compared, key=lambda one: points[metric, one["layer"], one["norm"]])
        gap = best["minus_last"]
        if gap["points"] > 0:
            interval = f"[{gap['ci_low']:+.1f}, {gap['ci_high']:+.1f}]"
            score, last = points[metric, best["layer"], best["norm"]], lasts[metric]
            end = "the last" + (" after the final norm" if last.norm == "normed" else "")
            found = f"layer {best['layer']} scores {score:.1f}, {gap['points']:+.1f} {interval} points above {end}"
            lines.append(f"{metric}: {found}, {last.value:.1f}")
        else:
            lines.append(f"{metric}: no layer is above the last")
    return lines
