"""What an option is: a field of a frozen dataclass whose annotation carries its help text and its check.

    Layers = Annotated[str | int, Option("which layers", group="what to measure")]

    @dataclass(frozen=True, kw_only=True)
    class PeekOptions:
        layers: Layers = "all"

        def __post_init__(self) -> None:
            require_valid(self)

An annotation can be shared by several verbs, which a dataclasses.field cannot; name and default stay visible in each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from layerwise.core.checks import require_word, suggestion
from layerwise.core.errors import InputError

Check = Callable[[str, Any], object]  # the option's name and value; raises InputError


@dataclass(frozen=True)
class Option:
    """What an option says beyond its name, type and default."""

    help: str  # of a switch that is on unless it is switched off: what switching it off does
    check: Check | None = None  # a Literal is checked without one
    group: str = ""  # the heading under which --help lists it
    metavar: str | None = None
    library_only: bool = False  # takes an object, so it has no flag and no place in a campaign file
    recorded: bool = True  # part of the record of a run; a progress bar is not
    names_texts: bool = False  # texts are recorded by where they come from, never by what they say


@dataclass(frozen=True)
class Declared:
    """One option of a verb, as its dataclass declares it."""

    name: str
    type: Any
    default: Any  # dataclasses.MISSING where the option is required
    option: Option

    @property
    def flag(self) -> str:
        """`--max-length` for max_length; `--no-static` for an option that is on unless it is switched off."""
        return f"--{'no-' if self.default is True else ''}{self.name.replace('_', '-')}"

    @property
    def types(self) -> tuple[Any, ...]:
        """The members of a union, or the one type; without None."""
        members = get_args(self.type) if get_origin(self.type) in (Union, UnionType) else (self.type,)
        return tuple(member for member in members if member is not NoneType)

    @property
    def words(self) -> tuple[str, ...]:
        """The closed set of words that a Literal allows; () where there is none."""
        return tuple(choice for member in self.types if get_origin(member) is Literal for choice in get_args(member))

    def require(self, value: Any) -> None:
        """Raises InputError where the value cannot be used."""
        if value is None and (self.default is None or NoneType in get_args(self.type)):
            return
        if self.option.check is not None:
            self.option.check(self.name, value)
        elif self.words:
            require_word(self.name, value, self.words)


@cache
def declared(options: type) -> tuple[Declared, ...]:
    """The options that a dataclass declares, in its order."""
    hints = get_type_hints(options, include_extras=True)
    specs = []
    for field in fields(options):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], Option):
            raise TypeError(f"{options.__name__}.{field.name} needs Annotated[..., Option(help)]")
        specs.append(Declared(field.name, hint.__origin__, field.default, hint.__metadata__[0]))
    return tuple(specs)


def flag_names(options: type) -> tuple[str, ...]:
    """The options that can be written down: as a flag, or in a campaign file."""
    return tuple(spec.name for spec in declared(options) if not spec.option.library_only)


def problems_in(options: type, given: Mapping[str, Any]) -> list[str]:
    """What is wrong with these values of a verb's options, one sentence each; other names are passed over."""
    problems = []
    for spec in declared(options):
        try:
            if spec.name in given:
                spec.require(given[spec.name])
        except InputError as error:
            problems.append(str(error))
    return problems


def unknown_names(given: Mapping[str, Any], names: tuple[str, ...], what: str) -> list[str]:
    """A sentence for each name that is not one of `names`, with the nearest that is."""
    hint = f"; it knows {', '.join(names)}"
    return [f"{what} has no {name!r}{suggestion(name, names) or hint}" for name in given if name not in names]


def require_values(options: type, /, **given: Any) -> None:
    """Raises one InputError that says everything that is wrong with these values."""
    if problems := problems_in(options, given):
        raise InputError("; ".join(problems))


def require_valid(made: object) -> None:
    """For `__post_init__`: raises one InputError that says everything that is wrong with these options."""
    options: type = type(made)
    require_values(options, **{spec.name: getattr(made, spec.name) for spec in declared(options)})
