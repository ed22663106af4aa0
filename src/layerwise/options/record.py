"""The options of a call: as JSON for the run record, and as the command line that repeats it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from layerwise.core.display import operand, redact_record
from layerwise.options.engine import Cluster
from layerwise.options.evaluate import EvaluateOptions
from layerwise.options.field import OptionSpec, option_specs
from layerwise.options.model import ModelSpec
from layerwise.options.pick import PickOptions
from layerwise.options.probe import ProbeOptions
from layerwise.options.scan import ScanOptions
from layerwise.options.stress import StressOptions
from layerwise.options.texts import TextOptions
from layerwise.options.tradeoff import TradeoffOptions

IN_MEMORY = "in_memory"  # marks an object without a file or name; only its type is recorded
OPTIONS_BY_VERB: Mapping[str, type] = {
    "scan": ScanOptions, "stress": StressOptions, "eval": EvaluateOptions, "probe": ProbeOptions,
}  # fmt: skip


def call_record(verb: str, options: object, *, model: Any, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record of a call: the verb, its options, and how the model and texts were opened.

    Objects that were passed directly become None (model, data) or are marked as in memory (options).
    """
    spec = ModelSpec(str(model)) if isinstance(model, str | Path) else model
    model_record = options_record(spec) if isinstance(spec, ModelSpec) else None
    data_record: dict[str, Any] = {} if data is None else {"data": redact_record(data) or None}
    return {"verb": verb, "model": model_record, **data_record, **options_record(options)}


def pick_record(options: PickOptions, *, run: Any) -> dict[str, Any]:
    """The record of a call of pick: its options, and what it was called on.

    `run` is the place of a run or the name of a model; it is recorded as None if it was passed as an object.
    """
    place = run.name if isinstance(run, ModelSpec) else str(run) if isinstance(run, str | Path) else None
    labels = {"labels": redact_record(text_source_record(options.labels))}  # a table in memory is not written out
    return {"verb": "pick", "run": redact_record(place), **options_record(options), **labels}


def tradeoff_record(options: TradeoffOptions) -> dict[str, Any]:
    """The record of a call of tradeoff: its options."""
    return {"verb": "tradeoff", **options_record(options)}


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


def command_arguments(record: Mapping[str, Any], *, model: str) -> list[str]:
    """The command line that repeats the call; `model` is used if the record has no model name."""
    model_record, data_record = (record.get(name) or {} for name in ("model", "data"))
    verb = str(record["verb"])
    arguments = [
        "layerwise",
        verb,
        operand(str(model_record.get("name", model))),
        *flag_arguments(ModelSpec, model_record, exclude=["name"]),
    ]
    if "data" in record:
        arguments += flag_arguments(TextOptions, data_record or {"data": "TEXTS.txt"})
    if recipes := record.get("recipes"):
        arguments += ["--recipe", *(f"RECIPE{number}.json" for number, _ in enumerate(recipes, start=1))]
    return arguments + flag_arguments(OPTIONS_BY_VERB[verb], record, exclude=["out"])


def pick_words(record: Mapping[str, Any], folder: str) -> list[str]:
    """The words of the command that makes the pick in this folder again."""
    fit = fit_of_pick(record)
    column = flag_arguments(TextOptions, fit, only=["column"]) if isinstance(fit, Mapping) else []
    words = ["layerwise", "pick", operand(str(record.get("run") or folder))]
    return [*words, *flag_arguments(PickOptions, {**record, "fit": fit}), *column, "--save", operand(folder)]


def fit_of_pick(record: Mapping[str, Any]) -> Any:
    """The texts that maps were fitted on, or how they were opened. Earlier versions called them data."""
    return record.get("fit", record.get("data"))


def tradeoff_words(record: Mapping[str, Any], folder: str) -> list[str]:
    """The words of the command that makes the trade-off in this folder again."""
    return ["layerwise", "tradeoff", operand(folder), *flag_arguments(TradeoffOptions, record)]


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
    if isinstance(value, Mapping) and Cluster in spec.types:
        return [spec.flag, "ray", *flag_arguments(Cluster, value)]
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
