"""The options of a call as JSON for the run record, and as flags of the command line that repeats it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from layerwise.core.display import redact_record
from layerwise.core.options import OptionSpec, option_specs

IN_MEMORY = "in_memory"  # marks an object without a file or name; only its type is recorded


def options_record(options: object) -> dict[str, Any]:
    """The options as JSON, with URL secrets redacted."""
    record = {}
    options_type: type = type(options)
    for spec in option_specs(options_type):
        if spec.option.is_recorded:
            value = getattr(options, spec.name)
            record[spec.name] = text_source_record(value) if spec.option.is_text_source else to_json_value(value)
    redacted: dict[str, Any] = redact_record(record)
    return redacted


def to_json_value(value: Any) -> Any:
    """A value as JSON. An object is recorded by its name, or by its type if it has none."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): to_json_value(item) for name, item in value.items()}
    if isinstance(name := getattr(value, "name", None), str):  # a metric
        return name
    if is_dataclass(value) and not isinstance(value, type):
        return to_json_value(asdict(value))
    if getattr(value, "shape", None) == ():  # a numpy number
        return value.item()
    return [to_json_value(item) for item in value] if isinstance(value, Iterable) else {IN_MEMORY: type(value).__name__}


def text_source_record(value: Any) -> Any:
    """The source of texts: a file or name, or the options of an opened source."""
    if value is None or isinstance(value, str | Path):
        return None if value is None else str(value)
    return to_json_value(getattr(value, "options", {})) or {IN_MEMORY: type(value).__name__}


def flag_arguments(
    options: type, values: Mapping[str, Any], exclude: Sequence[str] = (), only: Sequence[str] | None = None
) -> list[str]:
    """The flags of those options whose value is not their default; `exclude` and `only` choose among them."""
    arguments = []
    for spec in option_specs(options):
        value = values.get(spec.name)
        if value is None or spec.name in exclude or (only is not None and spec.name not in only):
            continue
        if spec.option.library_only or format_value(value) == format_value(spec.default):
            continue
        arguments += flag_argument(spec, value)
    return arguments


def flag_argument(spec: OptionSpec, value: Any) -> list[str]:
    """One option as typed on the command line."""
    if isinstance(spec.default, bool):
        return [spec.flag]
    group = next((kind for kind in spec.types if isinstance(kind, type) and is_dataclass(kind)), None)
    if isinstance(value, Mapping) and group is not None:  # the Ray cluster of an engine, whose options are flags too
        return [spec.flag, "ray", *flag_arguments(group, value)]
    if isinstance(value, Mapping):
        value = value.get("data", spec.name.upper())
    values = value if spec.option.is_repeated and isinstance(value, list | tuple) else [value]
    texts = [format_value(item) for item in values]
    return [word for t in texts for word in ([f"{spec.flag}={t}"] if t.startswith("-") else [spec.flag, t])]


def format_value(value: Any) -> str:
    """A value as typed on the command line; several are separated by commas."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
