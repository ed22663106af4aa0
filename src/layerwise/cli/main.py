"""`layerwise VERB ...`: runs a verb and turns errors into one line and an exit code.

Exit codes: 0 success, 1 a check failed (doctor), 2 error, 130 interrupted,
143 terminated.
"""

import io
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from threading import current_thread, main_thread
from types import ModuleType
from typing import Any

from layerwise.cli.flags import require_options
from layerwise.cli.parser import build_parser, first_screen, parse
from layerwise.cli.shared import print_error, short_warnings
from layerwise.core.display import printable, redact
from layerwise.core.errors import LayerwiseError
from layerwise.core.hub import asked_once
from layerwise.core.progress import announcements
from layerwise.core.quiet import VERBOSE_VARIABLE, quiet_libraries
from layerwise.models.location import located

STDOUT, STDERR = 1, 2  # file descriptors


class Terminated(KeyboardInterrupt):
    """SIGTERM: another process asked this one to end."""


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """Makes SIGTERM act like Ctrl-C: workers are stopped and partial files are removed."""

    def stop(number: int, frame: Any) -> None:
        raise Terminated

    install_handler = current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if install_handler:  # an existing handler is not replaced
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if install_handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def verbose_libraries(verbose: bool) -> Iterator[None]:
    """Inside, with `verbose`, the libraries below print as usual. Processes that are started inherit it."""
    before = os.environ.get(VERBOSE_VARIABLE)
    if verbose:
        os.environ[VERBOSE_VARIABLE] = "1"
    try:
        yield
    finally:
        if verbose and before is None:
            del os.environ[VERBOSE_VARIABLE]
        elif before is not None:
            os.environ[VERBOSE_VARIABLE] = before


class SafeOutput(io.TextIOBase):
    """Standard output with control characters escaped and URL secrets redacted."""

    def __init__(self, out: Any) -> None:
        self.out = out

    def write(self, text: str) -> int:
        self.out.write(printable(redact(text)))
        return len(text)

    def flush(self) -> None:
        self.out.flush()

    def fileno(self) -> int:
        return int(self.out.fileno())


@contextmanager
def output_of_our_own() -> Iterator[Any]:
    """Yields standard output for what layerwise prints; inside, all else that is written there goes to standard error.

    Libraries in other languages write past sys.stdout, and would end up in the middle of a table or of JSON. Where
    sys.stdout is not the standard output of the process, as in tests and notebooks, it is left as it is.
    """
    real = sys.stdout
    if not isinstance(real, io.TextIOWrapper) or real is not sys.__stdout__ or sys.stderr is None:  # None after `2>&-`
        yield real
        return
    real.flush()
    copy = os.fdopen(os.dup(STDOUT), "wb")
    # "replace": a terminal without Unicode still gets its table
    ours = io.TextIOWrapper(copy, real.encoding, errors="replace", line_buffering=real.line_buffering)
    os.dup2(STDERR, STDOUT)
    try:
        yield ours
    finally:
        os.dup2(ours.fileno(), STDOUT)
        ours.close()


def system_error(error: Exception) -> str:
    """What the operating system said about a file: its name is too long, the disk fails, no permission; else ""."""
    if not isinstance(error, OSError) or not error.strerror or not error.filename:
        return ""
    return f"{str(error.filename)[:200]}: {error.strerror}"


def require_model(args: Namespace) -> None:
    """Raises for a model that does not exist, before the verb imports torch, which takes seconds."""
    if hasattr(args, "trust_remote_code") and args.model is not None:  # the verb loads a model by its name
        with located(args.model, args.revision):
            pass


def run_verb(verbs: Mapping[str, ModuleType], argv: Sequence[str]) -> int:
    """Runs one of the verbs, as these words say, and returns the exit code."""
    args = parse(build_parser(verbs), argv)
    if args.verb is None:
        print(first_screen(verbs))
        return 0
    try:
        with (
            output_of_our_own() as out,
            handle_sigterm(),
            verbose_libraries(args.verbose),
            quiet_libraries(),
            short_warnings(),
            asked_once(),
            announcements(True),
            redirect_stdout(SafeOutput(out)),
        ):
            require_options(args)
            require_model(args)
            return int(args.run(args))
    except LayerwiseError as error:
        if args.debug:
            raise
        print_error(str(error))
        return 2
    except KeyboardInterrupt as interrupt:
        print_error("; ".join(["interrupted", *getattr(interrupt, "__notes__", [])[-1:]]))
        return 143 if isinstance(interrupt, Terminated) else 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # last resort
        if args.debug:
            raise
        print_error(
            system_error(error) or f"unexpected {type(error).__name__}: {error}. Run with --debug for the traceback"
        )
        return 2
