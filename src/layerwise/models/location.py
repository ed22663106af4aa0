"""Where a model is: a folder, the hub's cache or the hub. Anything else is refused, with what to type instead.

Only names of files and one short request to the hub decide this: no torch, no weights, no retries.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from layerwise.core.errors import ModelError
from layerwise.core.hub import Answer, ask_hub, cached_models, in_cache, near_path, offline
from layerwise.models.explain import MODEL_HELP, problem_of_file, problem_of_folder


@contextmanager
def located(name: str, revision: str | None = None) -> Iterator[None]:
    """Inside, this model can be loaded; without a network, a model in the hub's cache is read from there.

    Args:
        name: a folder or a hub id.
        revision: branch, tag or commit on the hub; None is the main branch.

    Raises:
        ModelError: it is neither a model's folder nor a model that the hub's cache or the hub has.
    """
    require_path(name)
    if Path(name).is_dir() or not (answer := ask_hub(name, revision)).problem:
        yield
    elif in_cache(name, revision):
        with offline():
            yield
    else:
        raise ModelError(missing_message(name, answer))


def require_path(name: str) -> None:
    """Raises for an empty name, a file, a folder that holds no model, and a path that leads nowhere."""
    path = Path(name)
    if not name.strip():
        raise ModelError(f"no model is named; pass {MODEL_HELP}")
    if path.is_file():
        raise ModelError(problem_of_file(path))
    if path.is_dir():
        if problem := problem_of_folder(name, {found.name for found in path.iterdir()}):
            raise ModelError(problem)
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        near = near_path(name)
        raise ModelError(f"cannot load {name!r}: no folder of this name; " + (did_you_mean(near) or MODEL_HELP))


def missing_message(name: str, answer: Answer) -> str:
    """Why a name that may be a hub id cannot be loaded: the nearest folder first, then what the hub said."""
    if near := near_path(name):
        return f"cannot load {name!r}: no folder {name} here; {did_you_mean(near)}\nAs a hub id: {answer.problem}"
    if answer.reached:
        return f"cannot load {name!r}: no folder here has this name, and {answer.problem}"
    near_id = get_close_matches(name, cached_models(), 1)
    cache = f"it is not in the hub's cache ({did_you_mean(near_id[0])})" if near_id else "it is not in the hub's cache"
    return (
        f"cannot load {name!r}: no folder here has this name, {cache}, and {answer.problem}, or pass a folder that "
        "holds the model"
    )


def did_you_mean(near: str) -> str:
    return f"did you mean {near}?" if near else ""
