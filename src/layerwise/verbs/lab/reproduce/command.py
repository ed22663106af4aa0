"""`layerwise lab reproduce`: make the figures and tables of the paper, each by its name."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import next_steps, print_error, say
from layerwise.core.columns import fill_words
from layerwise.core.errors import InputError, LayerwiseError
from layerwise.verbs.lab.reproduce.options import ReproduceOptions

if TYPE_CHECKING:
    from layerwise.verbs.lab.reproduce.inputs import Inputs

HELP = "make figures and tables of the paper: small, from published results, or at the paper's scale"
EXAMPLE = "layerwise lab reproduce fig7 --out paper"
WIDTH = 80


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("experiments", nargs="*", metavar="NAME", help="such as fig2 or table2, or all; see --list")
    parser.add_argument(
        "--list", action="store_true", help="list the experiments, their cost, and which cannot be made"
    )
    add_options(parser, ReproduceOptions, defaults={"out": None, "models": None})


def run(args: Namespace) -> int:
    from layerwise.verbs.lab.reproduce.api import reproduce
    from layerwise.verbs.lab.reproduce.experiment import experiment_names
    from layerwise.verbs.lab.reproduce.inputs import Inputs

    options = option_values(args, ReproduceOptions) | {"models": args.models or ()}
    if args.list:
        print("\n".join(listing(Inputs.open(args.scale, options["models"], options["data"]))))
        return 0
    if not args.experiments or not args.out:
        raise InputError("name an experiment and a folder, such as: layerwise lab reproduce fig7 --out paper")
    every = args.experiments == ["all"]
    failed = []
    for name in possible(args.scale) if every else args.experiments:
        try:
            made = reproduce(name, **options, progress=True)
        except LayerwiseError as error:
            if not every:
                raise
            print_error(str(error))
            failed.append(name)
            continue
        print(f"{made.experiment}, {made.scale}: {made.title}")
        print(fill_words(f"the paper: {made.says}", WIDTH))
        if made.note:
            print(fill_words(f"here: {made.note}", WIDTH))
        print("\n".join(f"  {file}" for file in made.files))
    if failed:
        say(f"{len(failed)} of {len(experiment_names())} experiments failed: {', '.join(failed)}")
        return 1
    next_steps(["layerwise", "lab", "reproduce", "--list"])
    return 0


def possible(scale: str) -> list[str]:
    from layerwise.verbs.lab.reproduce.experiment import experiment_names, load_experiment

    return [name for name in experiment_names() if not load_experiment(name).scales[scale].cannot]


def listing(inputs: "Inputs") -> Iterator[str]:
    """All experiments with their cost at each scale; then why some cannot be made, and what is missing here."""
    from layerwise.verbs.lab.reproduce.experiment import SCALES, experiment_names, load_experiment

    yield f"{'name':14}{'small':8}{'released':10}{'paper':9}what it shows"
    found = [load_experiment(name) for name in experiment_names()]
    for one in found:
        costs = [one.scales[scale].cost or "-" for scale in SCALES]
        yield f"{one.name:14}{costs[0]:8}{costs[1]:10}{costs[2]:9}{one.title}"
    yield "time on two CPU cores (small, released); rough estimate for one GPU (paper)"
    yield "cannot be made:"
    for one in found:
        for scale in SCALES:
            if reason := one.scales[scale].cannot:
                yield fill_words(f"  {one.name}, {scale}: {reason}", WIDTH, "    ")
    if inputs.models or inputs.data:
        yield f"what the scale {inputs.scale} needs and your folders do not have:"
        lines = [f"  {one.name}: {line}" for one in found for line in inputs.missing(one.scales[inputs.scale])]
        yield from (fill_words(line, WIDTH, "    ") for line in lines or ["  nothing"])
