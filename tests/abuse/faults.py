"""Ten planted faults, one per oracle: the campaign must notice each. `python -m tests.abuse --faults` runs them.

A fault replaces a function of layerwise in the parent process, from which the children of a case are forked. The
sources stay as they are. Each is a mistake that somebody could make.
"""

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from abuse import arguments, concurrency, forked, inputs, oracles
from abuse.desk import DATA, FAST, Case, Workshop

SCAN = ["scan", "model", *DATA, *FAST, "--out", "new"]
URL = oracles.URL.replace("s3:", "nothing:")  # of a store that does not exist, so that the refusal is quick
KEPT: list[Any] = []


def beside(verb: str, extra: Callable[[], Any], *, after: bool = True) -> Any:
    """A patch that does something more when a verb is run."""
    from layerwise.verbs import commands

    module = commands()[verb]
    usual = module.run

    def run(args: Any) -> int:
        code: int = usual(args) if after else 0
        extra()
        return code if after else usual(args)

    return patch.object(module, "run", run)


def longer_vectors() -> Any:
    from layerwise.verbs.embed import api as embed

    usual = embed.pooled_vectors
    return patch.object(embed, "pooled_vectors", lambda *a, **k: {r: v * 1.001 for r, v in usual(*a, **k).items()})


def vague_errors() -> Any:
    from layerwise.cli import main

    usual = main.print_error
    return patch.object(main, "print_error", lambda message: usual("something went wrong"))


def left_copies() -> Any:
    from layerwise.core import files

    usual = files.write_atomically

    def write(path: Path, data: bytes) -> None:
        usual(path, data)
        path.with_name(f".{path.name}.{files.HOST_ID}-1-00aa11bb.layerwise").write_bytes(data)

    return patch.object(files, "write_atomically", write)


def lasting_hooks() -> Any:
    """As if the last hook was left out when hooks are removed."""
    from layerwise.models import network

    usual = network.tapped

    @contextmanager
    def tapped(structure: Any, *args: Any, **options: Any) -> Iterator[Any]:
        structure.blocks[0].register_forward_hook(lambda *given: None)
        with usual(structure, *args, **options) as opened:
            yield opened

    return patch.object(network, "tapped", tapped)


@contextmanager
def shown_secrets() -> Iterator[None]:
    from layerwise.cli import shared
    from layerwise.core import errors

    with patch.object(errors, "redact", lambda text: text), patch.object(shared, "redact", lambda text: text):
        yield


def a_raw_error() -> None:
    raise KeyError("layer")


def a_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def odd_texts(workshop: Workshop) -> Case:
    return next(case for case in (inputs.case(workshop, random.Random(n)) for n in range(9)) if "," not in case.what)


def line(words: list[str]) -> Callable[[Workshop], Case]:
    return lambda workshop: arguments.attempt(workshop, words)


# The oracle, the fault, the case, and a part of what must be said.
FAULTS: list[tuple[str, Callable[[], Any], Callable[[Workshop], Case], str]] = [
    ("equal results", longer_vectors, odd_texts, "another vector than the reference"),
    ("causes", vague_errors, line(["scan", "model", "--limit=0"]), "names no cause"),
    ("raw errors", lambda: beside("lab views", a_raw_error), line(["lab", "views", "a text"]), "raw error"),
    ("tree", lambda: beside("scan", lambda: Path("mine/notes.txt").write_text("x")), line(SCAN), "outside the output"),
    ("processes", lambda: beside("scan", lambda: subprocess.Popen(["sleep", "60"])), line(SCAN), "process left"),
    ("temporary files", left_copies, line(SCAN), "temporary file left"),
    ("hooks", lasting_hooks, lambda w: concurrency.threads(w, random.Random(1)), "hook left"),
    ("threads", lambda: beside("scan", a_thread), line(SCAN), "thread left"),
    ("open files", lambda: beside("scan", lambda: KEPT.append(open("texts.txt"))), line(SCAN), "file left open"),  # noqa: SIM115
    ("secrets", shown_secrets, line(["report", URL, "--html=new.html"]), "secret in"),
]  # fmt: skip


def run_faults(workshop: Workshop) -> int:
    """Runs each case without and with its fault; returns how many faults were not noticed, or accused the innocent."""
    missed = 0
    for oracle, fault, case, expected in FAULTS:
        innocent = case(workshop).problems
        with (
            fault(),
            patch.object(forked, "the_parser", forked.the_parser.__wrapped__),
        ):  # one that knows what was patched
            found = case(workshop).problems
        noticed = any(expected in problem for problem in found) and not innocent
        missed += not noticed
        print(
            f"{'noticed' if noticed else 'MISSED'}: {oracle}: {(innocent or found or ['nothing'])[0][:110]}", flush=True
        )
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} planted faults noticed")
    return missed
