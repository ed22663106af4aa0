"""Flags derived from the options of a verb: `max_length` becomes `--max-length`, with its type, default and help
text."""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Collection, Mapping
from dataclasses import MISSING
from typing import Any

from layerwise.options.field import Declared, declared


def add_options(
    parser: ArgumentParser,
    options: type,
    *,
    only: Collection[str] | None = None,
    but: Collection[str] = (),
    common: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
    helps: Mapping[str, str] | None = None,
) -> None:
    """Adds a flag for each option, in its argument group.

    `only` and `but` choose among them. Those in `common` are listed first, under no heading. `defaults` and `helps`
    say where the command line differs from the library.
    """
    for spec in declared(options):
        if spec.option.library_only or spec.name in but or (only is not None and spec.name not in only):
            continue
        default = (defaults or {}).get(spec.name, spec.default)
        text = (helps or {}).get(spec.name, spec.option.help)
        group = "" if spec.name in common else spec.option.group
        heading(parser, group).add_argument(
            spec.flag, dest=spec.name, help=help_text(text, default), **how_to_parse(spec, default)
        )


def heading(parser: ArgumentParser, title: str) -> ArgumentParser | _ArgumentGroup:
    """The group with that title, created if needed; the parser itself if the title is empty."""
    if not title:
        return parser
    existing = [group for group in parser._action_groups if group.title == title]
    return existing[0] if existing else parser.add_argument_group(title)


def how_to_parse(one: Declared, default: Any) -> dict[str, Any]:
    """The argparse keyword arguments of an option: action, choices, type and default."""
    if bool in one.types:
        return {"action": "store_false" if one.default else "store_true"}
    arguments: dict[str, Any] = {"default": default} if default is not MISSING else {"required": True}
    if one.option.metavar:
        arguments["metavar"] = one.option.metavar
    if one.words:
        return arguments | {"choices": one.words}
    number = next((kind for kind in (int, float) if one.types == (kind,)), None)
    return arguments | ({"type": number} if number else {})


def help_text(text: str, default: Any) -> str:
    """The help text with the default appended, unless it already mentions it or there is none."""
    show_default = default not in (None, "", MISSING) and not isinstance(default, bool) and "default" not in text
    return (f"{text} (default: {default})" if show_default else text).replace("%", "%%")


def chosen(args: Namespace, options: type, but: Collection[str] = ()) -> dict[str, Any]:
    """The values given on the command line for the options of a verb, as keyword arguments."""
    names = [spec.name for spec in declared(options) if not spec.option.library_only and spec.name not in but]
    return {name: getattr(args, name) for name in names if name in args}
