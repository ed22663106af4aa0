"""Quiet: without the bars, reports and advice that other libraries print while they work for layerwise.

`--verbose`, or LAYERWISE_VERBOSE=1 in the environment, shows all of it. Errors are shown always.
"""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

VERBOSE_VARIABLE = "LAYERWISE_VERBOSE"
LOGGERS = (
    "transformers", "huggingface_hub", "datasets", "sentence_transformers", "mteb", "peft", "accelerate",
    "torchao", "torch.utils._pytree",  # transformers imports torchao where it is installed
)  # fmt: skip

_lock = RLock()
_entered = 0  # how many blocks are open, in all threads together
_undo: dict[str, Callable[[], None]] = {}  # what the last one to leave must set back


def is_verbose() -> bool:
    return os.environ.get(VERBOSE_VARIABLE, "") not in ("", "0")


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Inside, other libraries print errors only, and no Python warning is shown; afterwards all is as it was before.

    It may be entered again inside, and by several threads: the last one to leave restores everything. A library is
    made quiet only once it is imported, so it is entered again wherever one is used.
    """
    if is_verbose():
        yield
        return
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _entered
    with _lock:
        _entered += 1
        if "warnings" not in _undo:  # first, so that they are restored last
            caught = warnings.catch_warnings()
            caught.__enter__()
            _undo["warnings"] = lambda: caught.__exit__(None, None, None)
            warnings.simplefilter("ignore")
        for name in LOGGERS:
            _quiet_logger(logging.getLogger(name))
        if (found := sys.modules.get("huggingface_hub")) is not None:
            _quiet_bars("huggingface_hub", found.utils)
        if (found := sys.modules.get("transformers")) is not None:
            _quiet_transformers_bars(found.utils.logging)
        if (found := sys.modules.get("datasets")) is not None:
            _quiet_bars("datasets", found)


def _leave() -> None:
    global _entered
    with _lock:
        _entered -= 1
        if not _entered:
            while _undo:
                _undo.popitem()[1]()


def _quiet_logger(logger: logging.Logger) -> None:
    if logger.level == logging.ERROR:
        return
    before = logger.level  # an import inside may have set it since we did
    logger.setLevel(logging.ERROR)
    _undo[f"logger {logger.name}"] = lambda: logger.setLevel(before)


def _quiet_bars(name: str, library: Any) -> None:
    if f"bars {name}" in _undo or library.are_progress_bars_disabled():
        return
    library.disable_progress_bars()
    _undo[f"bars {name}"] = library.enable_progress_bars


def _quiet_transformers_bars(library: Any) -> None:
    """transformers has a switch of its own; it also turns that of huggingface_hub, which is set back after it."""
    if "bars transformers" in _undo or not library.is_progress_bar_enabled():
        return
    hub = library.hf_hub_utils
    hub_was_disabled = hub.are_progress_bars_disabled()
    library.disable_progress_bar()

    def undo() -> None:
        library.enable_progress_bar()
        if hub_was_disabled:
            hub.disable_progress_bars()

    _undo["bars transformers"] = undo
