"""Flags derived from the options of a verb: `max_length` becomes `--max-length`, with its type, default and help
text."""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Collection, Mapping
from dataclasses import MISSING
from typing import Any

from layerwise.core.options import OptionSpec, flag_names, option_specs, require_values


def add_options(
    parser: ArgumentParser,
    options: type,
    *,
    only: Collection[str] | None = None,
    exclude: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
    helps: Mapping[str, str] | None = None,
) -> None:
    """Adds a flag for each option, in its argument group.

    `only` and `exclude` choose among them. `defaults` and `helps` say where the command line differs from the library.
    """
    specs = [
        spec
        for spec in option_specs(options)
        if not (spec.option.library_only or spec.name in exclude or (only is not None and spec.name not in only))
    ]
    added = (options, tuple(spec.name for spec in specs))
    parser.set_defaults(added_options=(*(parser.get_default("added_options") or ()), added))
    for spec in specs:
        default = (defaults or {}).get(spec.name, spec.default)
        text = (helps or {}).get(spec.name, spec.option.help)
        argument_group(parser, spec.option.group).add_argument(
            spec.flag, dest=spec.name, help=help_text(text, default), **argparse_arguments(spec, default)
        )


def argument_group(parser: ArgumentParser, title: str) -> ArgumentParser | _ArgumentGroup:
    """The group with that title, created if needed; the parser itself if the title is empty."""
    if not title:
        return parser
    existing = [group for group in parser._action_groups if group.title == title]
    return existing[0] if existing else parser.add_argument_group(title)


def argparse_arguments(spec: OptionSpec, default: Any) -> dict[str, Any]:
    """The argparse keyword arguments of an option: action, choices, type and default."""
    if bool in spec.types:
        return {"action": "store_false" if spec.default else "store_true"}
    arguments: dict[str, Any] = {"default": default} if default is not MISSING else {"required": True}
    if spec.option.metavar:
        arguments["metavar"] = spec.option.metavar
    if spec.option.is_repeated:
        return arguments | {"action": "append"}
    if spec.choices:
        return arguments | {"choices": spec.choices}
    number = next((kind for kind in (int, float) if spec.types == (kind,)), None)
    return arguments | ({"type": number} if number else {})


def help_text(text: str, default: Any) -> str:
    """The help text with the default appended, unless it already mentions it or there is none."""
    show_default = default not in (None, "", MISSING) and not isinstance(default, bool) and "default" not in text
    return (f"{text} (default: {default})" if show_default else text).replace("%", "%%")


def require_options(args: Namespace) -> None:
    """Raises for options of the verb that cannot be used; it needs no torch, whose import takes seconds."""
    for options, names in getattr(args, "added_options", ()):
        given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
        required = {spec.name for spec in option_specs(options) if spec.default is MISSING}
        not_yet_opened = dict.fromkeys(required - set(flag_names(options)))  # the model and the data
        if set(names) == set(flag_names(options)) and required <= {*given, *not_yet_opened}:
            options(**given, **not_yet_opened)  # also checks which options go together
        else:
            require_values(options, **given)


def option_values(args: Namespace, options: type, exclude: Collection[str] = ()) -> dict[str, Any]:
    """The values given on the command line for the options of a verb, as keyword arguments."""
    names = [spec.name for spec in option_specs(options) if not spec.option.library_only and spec.name not in exclude]
    return {name: getattr(args, name) for name in names if name in args}
