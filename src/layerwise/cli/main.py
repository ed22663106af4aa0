"""`layerwise VERB ...`: finds the verb, runs it, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 something is wrong (doctor), 2 the call or its data cannot be used, 130 interrupted,
143 terminated.
"""

import io
import os
import signal
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from threading import current_thread, main_thread
from typing import Any

from layerwise.cli import (
    audit,
    campaign,
    compare,
    correlate,
    data,
    doctor,
    embed,
    embedder,
    eval,
    export,
    metrics,
    pick,
    plot,
    report,
    scan,
    stress,
    tradeoff,
    views,
)
from layerwise.core.display import printable, redacted
from layerwise.core.errors import LayerwiseError
from layerwise.models.location import located

VERBS = (
    scan, campaign, eval, pick, export, embedder, report, compare, plot, correlate, tradeoff, audit, stress, embed,
    data, views, metrics, doctor,
)  # fmt: skip


class Terminated(KeyboardInterrupt):
    """SIGTERM: someone else asked us to end."""


@contextmanager
def termination_unwinds() -> Iterator[None]:
    """Inside, SIGTERM ends us as Ctrl-C does: workers are stopped, and nothing half written stays behind."""

    def stop(number: int, frame: Any) -> None:
        raise Terminated

    ours = current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:  # in an application with a handler of its own, that one stays
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="layerwise", description="Look inside pretrained networks layer by layer.")
    parser.add_argument("--version", action="version", version=f"layerwise {version('layerwise')}")
    debug_help = "show the whole traceback of an error"
    parser.add_argument("--debug", action="store_true", help=debug_help)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        name = verb.__name__.rpartition(".")[2]
        added = verbs.add_parser(name, help=verb.HELP, description=verb.HELP)
        verb.add_arguments(added)
        added.add_argument("--debug", action="store_true", default=SUPPRESS, help=debug_help)  # or after the verb
        added.set_defaults(run=verb.run)
    return parser


class Printable(io.TextIOBase):
    """Standard output for results: names from a stranger's run cannot steer the terminal, urls show no secret."""

    def __init__(self, out: Any) -> None:
        self.out = out

    def write(self, text: str) -> int:
        self.out.write(printable(redacted(text)))
        return len(text)

    def flush(self) -> None:
        self.out.flush()

    def fileno(self) -> int:
        return int(self.out.fileno())


def complain(message: str) -> None:
    print(printable(redacted(f"layerwise: {message}")), file=sys.stderr)


def require_model(args: Namespace) -> None:
    """Raises for a model that does not exist, before the verb imports torch, which takes seconds."""
    if hasattr(args, "trust_remote_code"):  # the verb loads a model by its name
        with located(args.model, args.revision):
            pass


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without small bars still gets its table
    try:
        with termination_unwinds(), redirect_stdout(Printable(sys.stdout)):
            require_model(args)
            return int(args.run(args))
    except LayerwiseError as error:
        if args.debug:
            raise
        complain(str(error))
        return 2
    except KeyboardInterrupt as stopped:
        print("layerwise: interrupted; run the same command again to go on", file=sys.stderr)
        return 143 if isinstance(stopped, Terminated) else 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # the last line: nobody above could do better
        if args.debug:
            raise
        complain(f"unexpected {type(error).__name__}: {error}. Run with --debug to see where")
        return 2
