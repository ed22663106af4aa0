"""Text that is shown or recorded: without the secrets of a url, and without control characters."""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
# Behind ://, up to an @: everything before the first slash, or everything with a colon in it (a key may hold slashes).
USER_INFO = re.compile(r"(?<=://)(?:[^/\s@?#'\"]*|[^\s@?#'\"/:]*:[^\s@?#'\"]*)@")
SECRET_OPTION = re.compile(
    r"([?&][^=&\s]*(?:key|secret|token|passw|pwd|credential|signature|sig|auth)[^=&\s]*=)[^&\s#'\"]+", re.IGNORECASE
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def redacted(text: str) -> str:
    """The text with user names, passwords, keys and tokens of its urls replaced by ***."""
    if "://" not in text:
        return text
    return SECRET_OPTION.sub(rf"\g<1>{HIDDEN}", USER_INFO.sub(f"{HIDDEN}@", text))


def redacted_record(record: Any) -> Any:
    """A record (mappings, lists, plain values) with the secrets of every text in it replaced."""
    if isinstance(record, str):
        return redacted(record)
    if isinstance(record, Mapping):
        return {redacted_record(name): redacted_record(value) for name, value in record.items()}
    return [redacted_record(value) for value in record] if isinstance(record, list | tuple) else record


def printable(text: str) -> str:
    """The text with control characters written out, so that a terminal shows them instead of obeying them.

    New lines and tabs stay. The escapes are those of JSON: JSON that is made printable says the same.
    """
    return CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
