"""The Hugging Face hub: one short request before a download, so that a wrong name or no network is reported at once.

huggingface_hub retries for about 25 seconds per file that it cannot download. layerwise asks once, for one file.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar

RowT = TypeVar("RowT")
RepoType = Literal["model", "dataset"]
SECONDS_TO_CONNECT = 3.0  # HF_HUB_ETAG_TIMEOUT sets another limit
# A file that nearly every repository has; one without it still answers that the repository exists.
PROBED_FILE: dict[RepoType, str] = {"model": "config.json", "dataset": "README.md"}
CACHED_FILES = ("config.json", "modules.json")


@dataclass(frozen=True)
class Answer:
    """The answer of the hub: no problem if the repository can be read, otherwise the reason and what to type."""

    problem: str = ""
    reached: bool = True  # False without a network, or if HF_HUB_OFFLINE is set


_answers: ContextVar[dict[tuple[str, str | None, RepoType], Answer] | None] = ContextVar("answers", default=None)


@contextmanager
def asked_once() -> Iterator[None]:
    """Inside, the hub is asked only once for each repository: a command checks its model's name at several steps."""
    before = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(before)


def ask_hub(name: str, revision: str | None = None, kind: RepoType = "model") -> Answer:
    """Asks the hub once, without retries, whether a repository can be read.

    Args:
        name: id of the repository, such as `org/name`.
        revision: branch, tag or commit; None is the main branch.
        kind: `model` or `dataset`.

    Returns:
        An Answer. A busy server is not a problem: the download itself retries.
    """
    answers, key = _answers.get(), (name, revision, kind)
    if answers is None:
        return request_answer(*key)
    if key not in answers:
        answers[key] = request_answer(*key)
    return answers[key]


def request_answer(name: str, revision: str | None, kind: RepoType) -> Answer:
    """What the hub answers now."""
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url

    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name}"
    try:
        url = hf_hub_url(name, PROBED_FILE[kind], repo_type=kind, revision=revision or "main")
    except errors.HFValidationError:
        return Answer("it is not a hub id either: a hub id is NAME or OWNER/NAME")
    if constants.is_offline_mode():
        return Answer("HF_HUB_OFFLINE is set. Unset it to download the repository", reached=False)
    seconds = float(os.environ.get("HF_HUB_ETAG_TIMEOUT", SECONDS_TO_CONNECT))
    try:
        get_hf_file_metadata(url, timeout=seconds)
    except errors.GatedRepoError:
        return Answer(f"it needs access: open {page}, accept its terms, then type: hf auth login")
    except errors.RepositoryNotFoundError:
        return Answer(f"{page} does not exist, or is private. For a private one, type: hf auth login")
    except errors.RevisionNotFoundError:
        return Answer(f"it has no revision {revision!r}. Its branches are listed at {page}")
    except errors.HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            return Answer(f"the hub refuses access to {page}. Type: hf auth login")
    except Exception as error:  # the HTTP library's own, whose classes differ between versions of huggingface_hub
        if is_connection_error(error):
            return Answer(f"{constants.ENDPOINT} cannot be reached ({error}). Check your network", reached=False)
    return Answer()


def is_connection_error(error: Exception) -> bool:
    """True if no connection could be made; a slow server was reached."""
    return isinstance(error, ConnectionError) or type(error).__name__.startswith(("Connect", "Proxy", "NetworkError"))


def in_cache(name: str, revision: str | None = None) -> bool:
    """True if the model was downloaded to this machine before."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        found = (try_to_load_from_cache(name, file, revision=revision or "main") for file in CACHED_FILES)
        return any(isinstance(path, str) for path in found)
    except errors.HFValidationError:
        return False


def cached_models() -> list[str]:
    """The ids of all models in the hub's cache on this machine."""
    from huggingface_hub import constants

    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return sorted(folder.name.removeprefix("models--").replace("--", "/") for folder in folders)


def near_path(name: str) -> str:
    """A file or folder in the same place with a similar name; "" if there is none."""
    path = Path(name).expanduser()
    try:
        beside = [found.name for found in path.parent.iterdir()]
    except OSError:
        return ""
    if path.name in beside:  # only the ~ had to be expanded
        return str(path)
    near = get_close_matches(path.name, beside, 1)
    return str(path.parent / near[0]) if near else ""


@contextmanager
def offline() -> Iterator[None]:
    """Makes huggingface_hub read only its cache: each failing request would be retried for half a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def read_offline(rows: Callable[[], Iterable[RowT]]) -> Iterator[RowT]:
    """The rows, each read while `offline`: what happens between two of them, or in another reader, is not affected."""
    with offline():
        iterator = iter(rows())
    while True:
        try:
            with offline():
                row = next(iterator)
        except StopIteration:
            return
        yield row


def repository_files(name: str, revision: str | None = None) -> set[str]:
    """The names of all files in a model's repository; empty if they cannot be listed."""
    from huggingface_hub import constants, list_repo_files

    if constants.is_offline_mode():
        return set()
    try:
        return set(list_repo_files(name, revision=revision))
    except Exception:  # only used to explain another error, which must not be hidden by this one
        return set()
