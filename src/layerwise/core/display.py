"""Make text safe to show or record: no URL secrets, no control characters."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "***"
# Between :// and @: everything before the first slash, or anything that contains a colon (a key may contain slashes).
# A URL that was taken for a path has one slash only.
USER_INFO = re.compile(r"(?<=:/)(/?)(?:[^/\s@?#'\"]*|[^\s@?#'\"/:]*:[^\s@?#'\"]*)@")
SECRET_PARAMETER = re.compile(
    r"([?&][^=&\s]*(?:key|secret|token|passw|pwd|credential|signature|sig|auth)[^=&\s]*=)[^&\s#'\"]+", re.IGNORECASE
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def redact(text: str) -> str:
    """Replaces user names, passwords, keys and tokens in URLs with ***."""
    if ":/" not in text:
        return text
    return SECRET_PARAMETER.sub(rf"\g<1>{REDACTED}", USER_INFO.sub(rf"\g<1>{REDACTED}@", text))


def redact_record(record: Any) -> Any:
    """Redacts every string in a record (mappings, lists, plain values)."""
    if isinstance(record, str):
        return redact(record)
    if isinstance(record, Mapping):
        return {redact_record(name): redact_record(value) for name, value in record.items()}
    return [redact_record(value) for value in record] if isinstance(record, list | tuple) else record


def printable(text: str) -> str:
    """Escapes control characters, so that a terminal shows them instead of acting on them.

    Newlines and tabs stay. The escapes are those of JSON, so printable JSON keeps its meaning.
    """
    return CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
