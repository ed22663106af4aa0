"""Shared by several verbs on the command line: model, texts, engine, and how warnings are printed."""

import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from layerwise.cli.flags import add_options, option_values
from layerwise.core.columns import fill_words
from layerwise.core.display import command_line, is_command_line, printable, redact
from layerwise.core.errors import InputError
from layerwise.core.options import option_specs
from layerwise.core.quiet import is_verbose
from layerwise.engines.options import Cluster, Vllm
from layerwise.inputs.options import TextOptions
from layerwise.models.spec import ModelSpec

if TYPE_CHECKING:
    from layerwise.runs.table import LayerTable

PACKAGE = Path(__file__).resolve().parent.parent


def add_model(parser: ArgumentParser, nargs: str | None = None, sources: Collection[str] = ()) -> None:
    """Adds the model as a positional argument, and its loading options.

    `sources`: which of the options it takes that say where hidden states come from.
    """
    name = next(spec for spec in option_specs(ModelSpec) if spec.name == "name")
    parser.add_argument("model", help=name.option.help, nargs=nargs)
    add_options(parser, ModelSpec, exclude=["name", *({"states", "stream"} - {*sources})])


def require_model_name(args: Namespace) -> None:
    """Raises where a command that can do without a model needs one."""
    if args.model is None:
        raise InputError(f"the following arguments are required: MODEL. See `layerwise {args.verb} --help`")


def model_spec(args: Namespace) -> ModelSpec:
    return ModelSpec(args.model, **option_values(args, ModelSpec, exclude=["name"]))


def open_data(args: Namespace) -> Any:
    """Opens the requested texts or clips, as the model takes."""
    from layerwise.inputs.modalities import open_source
    from layerwise.models.opening import source_options

    return open_source(**source_options(model_spec(args), **option_values(args, TextOptions)))


def open_kinds(args: Namespace) -> dict[str, Any]:
    """The queries and documents of a command, opened with its --column."""
    from layerwise.inputs.text import texts

    given = {name: getattr(args, name) for name in ("queries", "documents")}
    return {name: texts(file, column=args.column) for name, file in given.items() if file is not None}


def engine_from_args(args: Namespace, *, local_workers: bool = False) -> str | Cluster | Vllm:
    """The requested engine; with `local_workers`, --workers is also allowed without Ray."""
    chosen: str | Cluster | Vllm = args.engine
    for kind, name, why in (
        (Cluster, "ray", "there are no workers"),
        (Vllm, "vllm", "vLLM is not started"),
    ):
        specs = [spec for spec in option_specs(kind) if hasattr(args, spec.name)]
        if args.engine == name:
            chosen = kind(**{spec.name: getattr(args, spec.name) for spec in specs})
            continue
        given = [
            spec.flag
            for spec in specs
            if getattr(args, spec.name) != spec.default and not (local_workers and spec.name == "workers")
        ]
        if given:
            threads = " (--threads sets the threads of this process)" if name == "ray" else ""
            raise InputError(
                f"without --engine {name} {why}, so {' and '.join(given)} would have no effect; add --engine {name}, "
                f"or leave {'it' if len(given) == 1 else 'them'} out{threads}"
            )
    return chosen


def add_json(parser: ArgumentParser, subject: str = "the table") -> None:
    parser.add_argument("--json", action="store_true", help=f"print {subject} as JSON")


def close_scan(table: "LayerTable", out: str | None) -> None:
    """Says on standard error what happened to the texts of a scan, and where it is saved."""
    from layerwise.runs.summary import counted

    for facts in scanned_data(table)[:1]:
        if facts["cut"]:
            say(f"{facts['cut']:,} of {counted(facts['prompts'], facts.get('unit', 'text'))} were cut at --max-length")
        if facts["blank_rows"]:
            say(f"skipped {counted(facts['blank_rows'], 'blank row')} of the data")
        if facts["missing"]:
            say(f"left out {counted(len(facts['missing']), facts.get('unit', 'text'))} that could not be computed")
    say(f"saved in {out}" if out else "nothing was saved; pass --out RUN to save the run in a folder")


def scanned_data(table: "LayerTable") -> list[dict[str, Any]]:
    """What the records of a table say about the data of each scan."""
    return [run["data"] for run in table.run.get("runs") or [table.run] if "data" in run]


def next_steps(*commands: Sequence[str]) -> None:
    """Says on standard error what to type next."""
    for place, words in enumerate(commands):
        say(("      " if place else "next: ") + command_line(words))


def say(message: str) -> None:
    """One line on standard error."""
    print(printable(redact(message)), file=sys.stderr)


PYTHON = ("from ", "import ", "for ")  # how lines of Python begin that a message asks to run: never wrapped


def print_error(message: str) -> None:
    """What went wrong, or might, on standard error: wrapped at words in a terminal, one line in a log."""
    message = f"layerwise: {message}"
    say(wrapped(message, get_terminal_size().columns) if sys.stderr.isatty() else message)


def wrapped(message: str, width: int) -> str:
    """The message within a width; a command at its end has a line of its own, so that it can be copied whole."""
    text, colon, command = message.rpartition(": layerwise ")
    if colon and is_command_line(f"layerwise {command}"):
        return f"{wrapped(text + ':', width)}\n  layerwise {command}"
    return "\n".join(line if line.startswith(PYTHON) else fill_words(line, width) for line in message.splitlines())


@contextmanager
def short_warnings() -> Iterator[None]:
    """Inside, a warning of layerwise is one line on standard error, without the place in the code.

    Warnings that point to other libraries are shown only with --verbose.
    """

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if PACKAGE in Path(filename).parents:
            print_error(str(message))
        elif is_verbose():
            print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
