"""Options are fields of a frozen dataclass; the annotation holds the help text and the check.

    Layers = Annotated[str | int, Option("which layers", group="what to measure")]

    @dataclass(frozen=True)
    class PeekOptions:
        model: Model
        _: KW_ONLY
        layers: Layers = "all"

        def __post_init__(self) -> None:
            require_valid(self)

    @takes(PeekOptions)
    def peek(options: PeekOptions) -> LayerTable:
        \"""Looks at the layers of a model.\"""

An option stands nowhere else: the signature and docstring of `peek(model, layers="last")` follow from the dataclass,
and so do the flags of the command, the keys of a campaign file and the record of the call. Unlike a dataclasses.field,
an annotation can be shared by several verbs, while name and default stay visible in each.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, wraps
from inspect import Parameter, Signature, cleandoc
from textwrap import fill
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from layerwise.core.checks import require_choice, suggestion
from layerwise.core.errors import InputError

WHAT_TO_MEASURE, THE_MODEL, THE_TEXTS, HOW_IT_RUNS = "what to measure", "the model", "the texts", "how it runs"
SHARED_GROUPS = (WHAT_TO_MEASURE, THE_MODEL, THE_TEXTS, HOW_IT_RUNS)  # headings in --help, in this order
SECTION = re.compile(r"^(Returns|Raises|Example):$", re.MULTILINE)  # of a docstring
Check = Callable[[str, Any], object]  # the option's name and value; raises InputError
Given = ParamSpec("Given")
GivenOne = ParamSpec("GivenOne")
Options = TypeVar("Options")
Owner = TypeVar("Owner")
Result = TypeVar("Result")
OfOne = TypeVar("OfOne", covariant=True)
OfSeveral = TypeVar("OfSeveral", covariant=True)


@dataclass(frozen=True)
class Option:
    """The properties of an option besides its name, type and default."""

    help: str  # for a flag that is on by default: what turning it off does
    check: Check | None = None  # not needed for a Literal
    group: str = ""  # its heading in --help
    metavar: str | None = None
    library_only: bool = False  # takes a Python object, so it has no flag and cannot be used in a campaign file
    is_recorded: bool = True  # stored in the run record; False for a progress bar
    is_repeated: bool = False  # takes several values; the flag is repeated, since a value may contain a comma
    is_text_source: bool = False  # the record stores the source of the texts, never their content


@dataclass(frozen=True)
class OptionSpec:
    """One option of a verb, as declared in its dataclass."""

    name: str
    type: Any
    default: Any  # dataclasses.MISSING if the option is required
    option: Option

    @property
    def flag(self) -> str:
        """`--max-length` for max_length; `--no-static` for a flag that is on by default."""
        return f"--{'no-' if self.default is True else ''}{self.name.replace('_', '-')}"

    @property
    def types(self) -> tuple[Any, ...]:
        """The members of a union, or the type itself, without None."""
        members = get_args(self.type) if get_origin(self.type) in (Union, UnionType) else (self.type,)
        return tuple(member for member in members if member is not NoneType)

    @property
    def choices(self) -> tuple[str, ...]:
        """The choices of a Literal; () if it is not one."""
        return tuple(choice for member in self.types if get_origin(member) is Literal for choice in get_args(member))

    def check(self, value: Any) -> None:
        """Raises InputError if the value is not valid."""
        if value is None and (self.default is None or NoneType in get_args(self.type)):
            return
        if self.option.check is not None:
            self.option.check(self.name, value)
        elif self.choices:
            require_choice(self.name, value, self.choices)


@cache
def option_specs(options: type) -> tuple[OptionSpec, ...]:
    """The options of a dataclass, in order; positional ones first, also where a base class has others."""
    hints = get_type_hints(options, include_extras=True)
    specs = []
    for field in sorted(fields(options), key=lambda field: bool(field.kw_only)):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], Option):
            raise TypeError(f"{options.__name__}.{field.name} needs Annotated[..., Option(help)]")
        specs.append(OptionSpec(field.name, hint.__origin__, field.default, hint.__metadata__[0]))
    return tuple(specs)


def changed_options(options: object, exclude: Sequence[str] = ()) -> list[str]:
    """The names of the options whose value is not their default. A table or another object is never a default."""
    options_type: type = type(options)
    values = {spec.name: (getattr(options, spec.name), spec.default) for spec in option_specs(options_type)}
    plain = (str, int, float, bool)
    return [
        name
        for name, (value, default) in values.items()
        if name not in exclude and value is not default and not (isinstance(value, plain) and value == default)
    ]


def flag_names(options: type) -> tuple[str, ...]:
    """The names of options that can be used as a flag or in a campaign file."""
    return tuple(spec.name for spec in option_specs(options) if not spec.option.library_only)


def problems_in(options: type, values: Mapping[str, Any]) -> list[str]:
    """The problems with these option values, one sentence each; unknown names are ignored."""
    problems = []
    for spec in option_specs(options):
        try:
            if spec.name in values:
                spec.check(values[spec.name])
        except InputError as error:
            problems.append(str(error))
    return problems


def unknown_name_problems(values: Mapping[str, Any], names: tuple[str, ...], subject: str) -> list[str]:
    """One sentence per unknown name, with the closest known name."""
    hint = f"; choose from {', '.join(names)}"
    return [f"{subject} has no {name!r}{suggestion(name, names) or hint}" for name in values if name not in names]


def require_values(options: type, /, **values: Any) -> None:
    """Raises one InputError that lists every problem with these values."""
    if problems := problems_in(options, values):
        raise InputError("; ".join(problems))


def require_valid(instance: object) -> None:
    """For `__post_init__`: raises one InputError that lists every problem with these options."""
    options: type = type(instance)
    require_values(options, **{spec.name: getattr(instance, spec.name) for spec in option_specs(options)})


def takes(options: Callable[Given, Options]) -> Callable[[Callable[[Options], Result]], Callable[Given, Result]]:
    """Makes a function of an options object callable with the options themselves."""
    assert isinstance(options, type)

    def decorate(function: Callable[[Options], Result]) -> Callable[Given, Result]:
        result = get_type_hints(function)["return"]

        @wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            return function(made_of(options, function.__name__, args, kwargs))

        call.__signature__ = signature_of(options, result)  # type: ignore[attr-defined]
        call.__annotations__ = {spec.name: spec.type for spec in option_specs(options)} | {"return": result}
        call.__doc__ = with_arguments(function.__doc__, options)
        return call

    return decorate


class TakesOneOrSeveral(Protocol[GivenOne, OfOne, Given, OfSeveral]):
    """The type of a function that returns one thing for one object, and another for a list of them."""

    @overload
    def __call__(self, *args: GivenOne.args, **kwargs: GivenOne.kwargs) -> OfOne: ...
    @overload
    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> OfSeveral: ...


def takes_one_or_several(
    one: Callable[GivenOne, Any], of_one: type[OfOne], options: Callable[Given, Options], of_several: type[OfSeveral]
) -> Callable[[Callable[[Options], OfOne | OfSeveral]], TakesOneOrSeveral[GivenOne, OfOne, Given, OfSeveral]]:
    """`takes(options)`, for type checkers as two functions: what `one` takes gives `of_one`, the rest `of_several`.

    `one` has the same options as `options`, of which one has a narrower type.
    """
    decorate: Any = takes(options)
    return decorate  # type: ignore[no-any-return]


def init_takes(
    options: Callable[Given, Options],
) -> Callable[[Callable[[Owner, Options], None]], Callable[Concatenate[Owner, Given], None]]:
    """The same for `__init__`. The docstring of the class stays as it is: see `with_arguments`."""
    assert isinstance(options, type)

    def decorate(init: Callable[[Owner, Options], None]) -> Callable[Concatenate[Owner, Given], None]:
        @wraps(init)
        def call(self: Owner, /, *args: Given.args, **kwargs: Given.kwargs) -> None:
            init(self, made_of(options, type(self).__name__, args, kwargs))

        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        parameters = signature_of(options, None).parameters.values()
        call.__signature__ = Signature([own, *parameters])  # type: ignore[attr-defined]
        call.__annotations__ = {spec.name: spec.type for spec in option_specs(options)}
        return call

    return decorate


def made_of(options: type, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The options of a call; raises TypeError in the name of what was called, not of the dataclass."""
    try:
        signature_of(options, None).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    return options(*args, **kwargs)


def signature_of(options: type, result: Any) -> Signature:
    """The signature of a function that takes the options."""
    keyword_only = {field.name for field in fields(options) if field.kw_only}
    parameters = [
        Parameter(
            spec.name,
            Parameter.KEYWORD_ONLY if spec.name in keyword_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if spec.default is MISSING else spec.default,
            annotation=spec.type,
        )
        for spec in option_specs(options)
    ]
    return Signature(parameters, return_annotation=result)


def with_arguments(docstring: str | None, options: type) -> str:
    """The docstring with a section that describes every option, before what it returns."""
    text = cleandoc(docstring or "")
    lines = [fill(described(spec), 116, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False,
                  break_on_hyphens=False) for spec in option_specs(options)]  # fmt: skip
    section = "\n".join(["Args:", *lines, "", ""])
    place = found.start() if (found := SECTION.search(text)) else len(text)
    return f"{text[:place]}{section}{text[place:]}"


def described(spec: OptionSpec) -> str:
    """An option in a docstring; its help names flags, which are parameters there."""
    words = re.sub(r"--([a-z][a-z0-9-]*)", lambda flag: f"`{flag[1].replace('-', '_')}`", spec.option.help)
    return f"{spec.name}: {'if False, ' if spec.default is True else ''}{words}."
