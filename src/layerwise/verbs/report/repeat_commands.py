"""Where numbers come from: the facts of a run as text, and the commands that make everything on a page again."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from layerwise.core.display import command_line, operand
from layerwise.core.option_records import flag_arguments
from layerwise.inputs.options import TextOptions
from layerwise.models.spec import ModelSpec
from layerwise.runs.folder import Run
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.runs.tasks import task_sizes
from layerwise.verbs import options_of_verb, words_of_verb
from layerwise.verbs.pick.options import pick_words

REPEATED = ("scan", "stress", "eval", "probe")  # verbs whose record says how to call them again
Facts = list[tuple[str, str]]
NO_PLACE = "RUN"  # stands for the folder of a table that was passed from Python


def facts(table: LayerTable) -> Facts:
    """Model, texts, settings and versions, as names with values; only what the run recorded."""
    first = first_run(table)
    model, data, environment = (first.get(name, {}) for name in ("model", "data", "environment"))
    size = " x ".join(str(model[k]) for k in ("depth", "width") if k in model)
    entries = {
        "model": model.get("name") or next((s.model for s in table.scores), ""),
        "revision": model.get("revision", ""),
        "hash of the model's files": model.get("fingerprint", ""),
        "family": model.get("family", ""),
        "layers x width": size,
        "dtype and device": " on ".join(str(model[k]) for k in ("dtype", "device") if k in model),
        "data": data.get("name", ""),
        "examples": format_counts(first) if data else "",
        "hash of the data": data.get("fingerprint", ""),
        "tasks": ", ".join(f"{name} ({size})" for name, size in task_sizes(first).items()),
        "settings": "; ".join(f"{k} {format_list(v)}" for k, v in first.get("plan", {}).items() if k != "layers"),
        "versions": ", ".join(f"{k} {v}" for k, v in environment.items() if k not in ("command", "machine")),
        "machine": environment.get("machine", ""),
        "finished": first.get("finished", ""),
        "seconds": f"{first['seconds']:g}" if "seconds" in first else "",
    }
    return [(name, str(value)) for name, value in entries.items() if value]


def first_run(table: LayerTable) -> Mapping[str, Any]:
    """The run record; for a joined table, such as a stress test, that of its first run."""
    runs = table.run.get("runs") or [table.run]
    return dict(runs[0])


def format_counts(run: Mapping[str, Any]) -> str:
    """How many examples and positions a run read, and how many examples it cut at which length."""
    data = run.get("data", {})
    unit = data.get("unit", "text")
    parts = [counted(data["prompts"], unit)] if "prompts" in data else []
    if "tokens" in data:
        parts.append(f"{data['tokens']:,} {'tokens' if unit == 'text' else 'positions'}")
    if "cut" in data:
        longest = run.get("plan", {}).get("max_length") or run.get("max_length")
        at = f" at {longest:,}{' tokens' if unit == 'text' else ''}" if longest else " at the maximum length"
        parts.append(f"{data['cut']:,} cut{at}")
    if data.get("missing"):
        parts.append(f"{len(data['missing']):,} left out because they could not be computed")
    return ", ".join(parts)


def format_list(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def commands(runs: Sequence[Run], page_words: Sequence[str] = ()) -> list[str]:
    """The commands that make these runs, what lies beside them, and the page again, in an order that works.

    `page_words` are the words of the command for the page itself.
    """
    places = [run.name or NO_PLACE for run in runs]
    lines = [command(run.table, place) for run, place in zip(runs, places, strict=True)]
    lines += [pick_command(run.pick, place) for run, place in zip(runs, places, strict=True) if run.pick]
    for run, place in zip(runs, places, strict=True):
        if run.tradeoff:
            lines.append(command_line(tradeoff_words(run.tradeoff.get("options", {}), place)))
    this_page = ["layerwise", "report", *map(operand, dict.fromkeys(places)), "--html", "report.html"]
    return list(dict.fromkeys([*lines, command_line(page_words or this_page)]))


def command(table: LayerTable, out: str) -> str:
    """The command that reproduces the run: as typed, or reconstructed from the record."""
    first = first_run(table)
    if arguments := typed_words(first.get("environment", {}).get("command")):
        return command_line(arguments)
    record = first.get("options", {})
    if record.get("campaign"):
        return command_line(["layerwise", "campaign", operand(str(record["campaign"]))])
    if record.get("verb") not in REPEATED:
        record = record_from_plan(first)
    arguments = command_arguments(record, model=str(first.get("model", {}).get("name", "MODEL")))
    return command_line([*arguments, "--out", operand(out)])


def typed_words(typed: Any) -> list[str]:
    """The words of a recorded command. Anything but one call of layerwise is left out: a reader may paste it."""
    try:
        words = shlex.split(typed) if isinstance(typed, str) else []
    except ValueError:  # an open quote
        return []
    return words if words[:1] == ["layerwise"] else []


def pick_command(pick: Mapping[str, Any], folder: str) -> str:
    """The command that makes a saved pick again, with a comment where it lacks an option of the library."""
    record = pick.get("options", {})
    fit = record.get("fit")
    extra = flag_arguments(TextOptions, fit, exclude=["data", "column"]) if isinstance(fit, Mapping) else []
    comment = [*"called from Python with texts opened with".split(), *extra] if extra else []
    return command_line(pick_words(record, folder), comment)


def record_from_plan(first: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a scan that no verb made, such as one during training, as far as its plan shows them."""
    model = {name: value for name, value in first.get("model", {}).items() if name in ("name", "dtype")}
    return {**first.get("plan", {}), "verb": "scan", "model": model, "data": first.get("data", {}).get("options")}


def command_arguments(record: Mapping[str, Any], *, model: str) -> list[str]:
    """The command line that repeats the call; `model` is used if the record has no model name."""
    model_record, data_record = (record.get(name) or {} for name in ("model", "data"))
    verb = str(record["verb"])
    arguments = [
        "layerwise",
        *words_of_verb(verb),
        operand(str(model_record.get("name", model))),
        *flag_arguments(ModelSpec, model_record, exclude=["name"]),
    ]
    if "data" in record:
        arguments += flag_arguments(TextOptions, data_record or {"data": "TEXTS.txt"})
    if recipes := record.get("recipes"):
        arguments += ["--recipe", *(f"RECIPE{number}.json" for number, _ in enumerate(recipes, start=1))]
    return arguments + flag_arguments(options_of_verb(verb), record, exclude=["out"])


def tradeoff_words(record: Mapping[str, Any], folder: str) -> list[str]:
    """The words of the command that makes the trade-off in this folder again."""
    flags = flag_arguments(options_of_verb("tradeoff"), record)
    return ["layerwise", *words_of_verb("tradeoff"), operand(folder), *flags]
