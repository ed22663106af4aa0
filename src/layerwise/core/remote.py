"""Folders of an object store, such as s3://bucket/run."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from layerwise.core.display import redact_value
from layerwise.core.errors import InputError, LayerwiseError, StoreError

T = TypeVar("T")
# Object stores fail now and then. Delays between attempts, in seconds.
RETRY_DELAYS = (0.5, 2.0, 8.0)


@dataclass(frozen=True)
class RemoteFolder:
    """A folder in an object store, such as s3://bucket/run. An object appears once its upload is complete.

    `url` is a pyarrow URL; for a server other than Amazon's, add its endpoint as an option:
    s3://bucket/run?scheme=http&endpoint_override=host:port.
    """

    url: str

    def __str__(self) -> str:
        return redact_value(self.url)

    def __repr__(self) -> str:
        return f"RemoteFolder({redact_value(self.url)!r})"

    def _open(self) -> tuple[Any, str]:
        import pyarrow as pa
        from pyarrow.fs import FileSystem

        try:
            filesystem, path = FileSystem.from_uri(self.url)
        except (pa.ArrowException, ValueError, OSError) as error:
            # the original message contains the URL
            raise InputError(f"cannot use {self.url!r} as a folder: {error}") from None
        return filesystem, path.rstrip("/")

    def _retried(self, attempt: Callable[[], T]) -> T:
        try:
            return with_retries(attempt, str(self))
        except LayerwiseError:
            raise
        except ValueError as error:
            raise InputError(f"cannot use {self.url!r} as a folder: {error}") from None

    def read(self, name: str) -> bytes | None:
        def attempt() -> bytes | None:
            filesystem, path = self._open()
            try:
                with filesystem.open_input_stream(f"{path}/{name}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        return self._retried(attempt)

    def write(self, name: str, data: bytes) -> None:
        def attempt() -> None:
            filesystem, path = self._open()
            with filesystem.open_output_stream(f"{path}/{name}") as file:
                file.write(data)

        self._retried(attempt)

    def create(self, name: str, data: bytes) -> bool:
        """Creates a file. pyarrow has no conditional write, so two processes that start together may both get True."""
        if self.read(name) is not None:
            return False
        self.write(name, data)
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._retried(partial(self._delete, name))

    def _delete(self, name: str) -> None:
        filesystem, path = self._open()
        try:
            filesystem.delete_file(f"{path}/{name}")
        except FileNotFoundError:
            pass

    def names(self, subfolder: str = "") -> list[str]:
        return [name for name, is_file in self._list(subfolder) if is_file]

    def entries(self) -> list[str]:
        return [name for name, _ in self._list("")]

    def _list(self, subfolder: str) -> list[tuple[str, bool]]:
        def attempt() -> list[tuple[str, bool]]:
            from pyarrow.fs import FileSelector, FileType

            filesystem, path = self._open()
            selector = FileSelector(f"{path}/{subfolder}".rstrip("/"), allow_not_found=True)
            return sorted((info.base_name, info.type == FileType.File) for info in filesystem.get_file_info(selector))

        return self._retried(attempt)

    def clear(self, subfolder: str, pattern: re.Pattern[str]) -> None:
        self.delete(f"{subfolder}/{name}" for name in self.names(subfolder) if pattern.fullmatch(name))


def with_retries(attempt: Callable[[], T], where: str = "the object store") -> T:
    """Calls `attempt`, and retries a few times on errors of the store, of whatever class; then raises StoreError."""
    for delay in RETRY_DELAYS:
        try:
            return attempt()
        except ValueError:  # an address that no try makes right
            raise
        except Exception:
            time.sleep(delay)
    try:
        return attempt()
    except ValueError:
        raise
    except Exception as error:
        raise StoreError(f"{where} failed on every try ({error}); repeat the command later") from error
