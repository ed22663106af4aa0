"""Where a model is: a folder, the hub's cache or the hub. Anything else raises an error that says what to type.

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
    """Makes sure that a model can be loaded inside the context; without a network, from the hub's cache.

    Args:
        name: a folder or a hub id.
        revision: branch, tag or commit on the hub; None is the main branch.

    Raises:
        ModelError: it is neither the folder of a model nor a model in the hub's cache or on the hub.
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
    """Raises for an empty name, a file, a folder without a model, and a path that does not exist."""
    path = Path(name)
    if not name.strip():
        raise ModelError(f"the model name is empty; {MODEL_HELP}")
    if path.is_file():
        raise ModelError(problem_of_file(path))
    if path.is_dir():
        if problem := problem_of_folder(name, {found.name for found in path.iterdir()}):
            raise ModelError(problem)
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        near = near_path(name)
        raise ModelError(f"cannot load {name!r}: there is no such folder; " + (did_you_mean(near) or MODEL_HELP))


def missing_message(name: str, answer: Answer) -> str:
    """Explains why a possible hub id cannot be loaded: first the closest folder, then the answer of the hub."""
    if near := near_path(name):
        return (
            f"cannot load {name!r}: there is no folder {name} here; {did_you_mean(near)}\nAs a hub id: {answer.problem}"
        )
    if answer.reached:
        return f"cannot load {name!r}: there is no such folder, and {answer.problem}"
    near_id = get_close_matches(name, cached_models(), 1)
    cache = f"it is not in the hub's cache ({did_you_mean(near_id[0])})" if near_id else "it is not in the hub's cache"
    return (
        f"cannot load {name!r}: there is no such folder, {cache}, and {answer.problem}, or pass the folder of a model"
    )


def did_you_mean(near: str) -> str:
    return f"did you mean {near}?" if near else ""
