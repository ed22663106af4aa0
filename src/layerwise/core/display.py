"""Make text safe to show, record or copy: no URL secrets, no control characters, commands that a shell reads whole."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

REDACTED = "***"
# A URL in a sentence ends at a space, or at the quote that it began with; a quote inside is escaped in JSON and repr.
SCHEME = r"[A-Za-z][\w+.-]*:/"
URL = re.compile(
    rf"""(?<='){SCHEME}(?:\\.|[^'\\\n])*(?='(?:[\s,;:.)\]}}]|$))|(?<="){SCHEME}(?:\\.|[^"\\\n])*(?="(?:[\s,;:.)\]}}]|$))"""
    rf"""|{SCHEME}\S*[^\s'"`)\]}},.;:]"""
)
# Up to the last @ if there is a colon (a password may contain anything), else up to the last @ before the first slash.
# A URL that was taken for a path has one slash only.
USER_INFO = re.compile(r"(?<=:/)(/?)(?:[^/:\s]*:.*@|[^/\s]*@)")
# Everything behind it is left out: nobody can say where a secret with & or # in it ends.
SECRET_PARAMETER = re.compile(
    r"([?&;#][^=&;?#\s]*(?:key|secret|token|pass|pwd|cred|sig|auth|session|sas|jwt|bearer)[^=&;?#\s]*=)"
    r"(?!\*{3}(?:\s|$)).+",
    re.IGNORECASE,
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def redact(text: str) -> str:
    """Replaces user names, passwords, keys and tokens in the URLs of a sentence with ***."""
    return URL.sub(lambda match: redact_url(match.group()), text) if ":/" in text else text


def redact_url(url: str) -> str:
    """The same for a URL, which may contain spaces and quotes."""
    return SECRET_PARAMETER.sub(rf"\g<1>{REDACTED}", USER_INFO.sub(rf"\g<1>{REDACTED}@", url))


def redact_value(value: str) -> str:
    """The same for a path, an option or another value that may be a URL as a whole."""
    return redact_url(value) if re.match(rf"(?:--[\w-]+=)?{SCHEME}", value) else redact(value)


def redact_record(record: Any) -> Any:
    """Redacts every string in a record (mappings, lists, plain values)."""
    if isinstance(record, str):
        return redact_value(record)
    if isinstance(record, Mapping):
        return {redact_record(name): redact_record(value) for name, value in record.items()}
    return [redact_record(value) for value in record] if isinstance(record, list | tuple) else record


def printable(text: str) -> str:
    """Escapes control characters, so that a terminal shows them instead of acting on them.

    Newlines and tabs stay. The escapes are those of JSON, so printable JSON keeps its meaning.
    """
    return CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def command_line(words: Sequence[str], comment: Sequence[str] = ()) -> str:
    """One line that a shell reads as exactly these words, with the words of a comment behind them.

    Every command that people may copy is made here: names come from files of strangers.
    """
    line = " ".join(map(quoted_word, words))
    return f"{line}  # {' '.join(map(quoted_word, comment))}" if comment else line


COMMAND_WORD = r"""(?:[\w@%+=:,./-]+|'[^']*'(?:"'"'[^']*')*|\$'[^']*')"""


def is_command_line(text: str) -> bool:
    """True if a text is what `command_line` returns for some words, without a comment."""
    return re.fullmatch(f"{COMMAND_WORD}(?: {COMMAND_WORD})*", text, re.ASCII) is not None and text.isprintable()


def quoted_word(word: str) -> str:
    """The word in quotes if it needs them. Line breaks and invisible characters are written as bytes: $'a\\x0ab'."""
    if word.isprintable():
        return shlex.quote(word)
    # A shell that does not know $'...' reads it as a word in quotes: no quote is inside.
    return "$'" + "".join(c if re.fullmatch(r"[\w@%+=:,./-]", c, re.ASCII) else escaped_bytes(c) for c in word) + "'"


def escaped_bytes(character: str) -> str:
    """The bytes of a character, as in $'...'; a name on disk may hold bytes that are not UTF-8."""
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))


def operand(word: str) -> str:
    """A name or folder as an argument without a flag: a leading dash would make it an option."""
    return f"./{word}" if word.startswith("-") else word
