"""The parser of the command line: verbs, short usage lines, options in groups, and errors that name what is near."""

import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
    _ArgumentGroup,
)
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import ModuleType
from typing import Any, NoReturn

from layerwise.cli.shared import print_error
from layerwise.core.checks import suggestion
from layerwise.core.options import SHARED_GROUPS

# What people come for, in the order of the first screen, the README and the site. Each command names its door.
DOORS = {
    "look": "look at every layer",
    "choose": "choose a layer and use it",
    "cheaper": "make an embedding model cheaper",
    "many": "many models",
    "lab": "study layers",
}
ABOUT = "layerwise looks inside pretrained models, layer by layer."
START = {
    "an embedding model": "layerwise shrink MODEL --data texts.txt --out small",
    "a language model": "layerwise pick MODEL --export embedder",
}
HELP_LINE = "`layerwise VERB --help` shows the main options of a verb, `--help-all` all."
GROUPS = {"lab": "for people who study layers"}


def first_screen(commands: Mapping[str, ModuleType]) -> str:
    """Every verb behind its door, with one line each, and where to start: 80 columns and 24 lines."""
    lines = {verb: (command.DOOR, command.LINE) for verb, command in commands.items() if " " not in verb}
    for group in GROUPS:
        lines[group] = group, ", ".join(verb.split()[1] for verb in commands if verb.startswith(f"{group} "))
    screen = [ABOUT]
    for door, title in DOORS.items():
        screen += [f"{title}:", *(f"  {verb:10}{line}" for verb, (its_door, line) in lines.items() if its_door == door)]
    start = [f"  {what:20}{command}" for what, command in START.items()]
    return "\n".join([*screen, "start with (MODEL is a hub id or a folder):", *start, HELP_LINE])


OWN_VERB = "own_verb"  # the second word of `lab audit`
GENERAL = "in general"
DEBUG_HELP = "show the whole traceback of an error"
VERBOSE_HELP = "show the bars, reports and warnings of other libraries"


class Parser(ArgumentParser):
    """argparse, with errors in layerwise's own words."""

    def error(self, message: str) -> NoReturn:
        """One line that says what is wrong and where to look, and exit code 2."""
        print_error(message if message.endswith("?") else f"{message}. See `{self.prog} --help`")
        self.exit(2)

    def _get_values(self, action: Action, arg_strings: list[str]) -> Any:
        """In Python 3.11 and 3.12, `--option=--` has an empty list as its value."""
        if action.option_strings and arg_strings == ["--"]:
            raise ArgumentError(action, "expected a value, not '--'")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: Action, value: Any) -> None:
        """A word that is not one of an option's, or no verb, is answered with the nearest that is."""
        if action.choices is None or value in action.choices:
            return
        known = [str(word) for word in action.choices]
        near = suggestion(value, known)
        if action.dest in ("verb", OWN_VERB):
            raise NearVerb(f"no verb {value!r}{near}" if near else f"no verb {value!r}; there are {', '.join(known)}")
        raise ArgumentError(action, f"{value!r} is not one of {', '.join(known)}{near}")


class VerbParser(Parser):
    """The parser of one verb, whose help shows its main options; --help-all shows all of them in groups."""

    main: Sequence[str] = ()  # in the order of the help; () if the verb has so few options that all are shown

    def format_help(self) -> str:
        return self.format_whole_help() if not self.main else self.format_main_help()

    def format_whole_help(self) -> str:
        """The help with all options."""
        return super().format_help()

    def format_main_help(self) -> str:
        """The help with the main options, under one heading."""
        flags = {action.dest: action for action in self._actions if action.option_strings}
        shown = _ArgumentGroup(self, "main options")
        shown._group_actions = [flags[name] for name in self.main]
        groups, kept = self._action_groups, ("positional arguments", GENERAL)
        given, general = [group for group in groups if group.title in kept]
        self._action_groups = [given, shown, general]
        try:
            return super().format_help()
        finally:
            self._action_groups = groups


class HelpAll(Action):
    """`--help-all`: prints the help with all options."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        assert isinstance(parser, VerbParser)
        parser._print_message(parser.format_whole_help(), sys.stdout)
        parser.exit()


class NearVerb(ArgumentError):
    """A mistyped verb; printed without the name of argparse's argument."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message)


class TopParser(Parser):
    """The parser of `layerwise` itself, whose help is the first screen."""

    screen = ""

    def format_help(self) -> str:
        return self.screen + "\n"


def build_parser(commands: Mapping[str, ModuleType]) -> Parser:
    """The parser of all verbs, from the command of each."""
    parser = TopParser(prog="layerwise", usage="layerwise VERB [options]")
    parser.screen = first_screen(commands)
    parser.add_argument("--version", action="version", version=f"layerwise {version('layerwise')}")
    parser.add_argument("--debug", action="store_true", help=DEBUG_HELP)
    parser.add_argument("--verbose", action="store_true", help=VERBOSE_HELP)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", prog="layerwise", parser_class=VerbParser)
    groups: dict[str, Any] = {}
    for words, command in commands.items():
        group, _, name = words.rpartition(" ")
        if group and group not in groups:
            groups[group] = add_group(verbs, group, commands)
        add_verb(groups[group] if group else verbs, name, words, command)
    return parser


def add_group(verbs: Any, group: str, commands: Mapping[str, ModuleType]) -> Any:
    """Adds a word that is followed by one of several verbs, such as `lab`; returns where they are added."""
    own = {words.removeprefix(f"{group} "): c.HELP for words, c in commands.items() if words.startswith(f"{group} ")}
    lines = "\n".join(f"  {name:11}{text}" for name, text in own.items())
    added = verbs.add_parser(
        group,
        usage=f"layerwise {group} VERB [options]",
        description=f"{GROUPS[group]}:\n{lines}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    added.set_defaults(run=lambda args: print(added.format_help()) or 0)
    return added.add_subparsers(
        dest=OWN_VERB, metavar="VERB", prog=f"layerwise {group}", parser_class=VerbParser, help=SUPPRESS
    )


def add_verb(verbs: Any, name: str, words: str, command: ModuleType) -> None:
    """Adds the parser of one verb."""
    example = getattr(command, "EXAMPLE", "")
    added = verbs.add_parser(
        name,
        description=command.HELP,
        add_help=False,
        formatter_class=RawDescriptionHelpFormatter,
        epilog=f"example:\n  {example}" if example else None,
    )
    command.add_arguments(added)
    added._action_groups.sort(key=lambda group: place_of_group(group.title))
    added.usage = short_usage(words, added)
    general = added.add_argument_group(GENERAL)
    general.add_argument("-h", "--help", action="help", help="show this help and exit")
    added.main = getattr(command, "MAIN", ())
    if added.main:
        count = len([action for action in added._actions if action.option_strings])
        general.add_argument("--help-all", action=HelpAll, nargs=0, help=f"show all {count + 3} options and exit")
    general.add_argument("--debug", action="store_true", default=SUPPRESS, help=DEBUG_HELP)  # or before the verb
    general.add_argument("--verbose", action="store_true", default=SUPPRESS, help=VERBOSE_HELP)
    added.set_defaults(run=command.run)


def place_of_group(title: str | None) -> int:
    """A verb's own groups of options come first, then those that verbs share."""
    return SHARED_GROUPS.index(title) if title in SHARED_GROUPS else -1


def short_usage(verb: str, parser: ArgumentParser) -> str:
    """`layerwise scan MODEL [options]`: what must be given, and no list of forty options."""
    given, flags = [], []
    for action in parser._actions:
        if not action.option_strings:
            action.metavar = str(action.metavar or action.dest).upper()
            # A model is needed, but for the list of metrics.
            forms = {"+": "{0} [{0} ...]", "*": "{0} [{0} ...]", "?": "{0}" if action.dest == "model" else "[{0}]"}
            given.append(forms.get(str(action.nargs), "{0}").format(action.metavar))
        elif action.required:
            flags.append(f"{action.option_strings[0]} {action.metavar or action.dest.upper()}")
    return " ".join(["layerwise", verb, *given, *flags, "[options]"])


def parse(parser: Parser, argv: Sequence[str]) -> Namespace:
    """The arguments; an option that the verb does not have ends with the nearest that it has."""
    args, unknown = parser.parse_known_args(argv)
    if getattr(args, OWN_VERB, None):
        args.verb = f"{args.verb} {getattr(args, OWN_VERB)}"
    if unknown:
        known = options_of(parser, args.verb)
        wrong = [word for word in unknown if word.startswith("-")] or unknown
        near = suggestion(wrong[0].partition("=")[0], known)
        what = "option" if wrong[0].startswith("-") else "further argument"
        named, word = f"layerwise {args.verb or ''}".strip(), wrong[0]
        word = word if word.strip() and word.isprintable() else repr(word)
        print_error(f"{named} takes no {what} {word}{near}" + ("" if near else f". See `{named} --help`"))
        parser.exit(2)
    return args


def options_of(parser: ArgumentParser, verb: str | None) -> list[str]:
    """The long options of a verb, or of `layerwise` itself."""
    actions = parser_of(parser, verb or "")._actions
    return [flag for action in actions for flag in action.option_strings if flag.startswith("--")]


def parser_of(parser: ArgumentParser, verb: str) -> ArgumentParser:
    """The parser of a verb, which may have two words; that of `layerwise` itself if it has none."""
    for word in verb.split():
        (choices,) = [action.choices for action in parser._actions if action.dest in ("verb", OWN_VERB)]
        parser = dict(choices or {})[word]
    return parser
