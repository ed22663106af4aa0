"""Docstrings: every public name explains itself, every parameter is described, every example runs."""

import ast
import dataclasses
import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import pytest
import torchmetrics

import layerwise
from layerwise.verbs import commands

PUBLIC = {name: getattr(layerwise, name) for name in layerwise.__all__}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
LAB = {f"lab.{name}": getattr(layerwise.lab, name) for name in layerwise.lab.__all__}
LAB_CLASSES = {name: value for name, value in LAB.items() if inspect.isclass(value)}
LAB = {name: value for name, value in LAB.items() if name not in LAB_CLASSES}
TRAINING = {f"training.{name}": getattr(layerwise.training, name) for name in layerwise.training.__all__}
TRAINING_CLASSES = {name: value for name, value in TRAINING.items() if inspect.isclass(value)}
FUNCTIONAL = {f"functional.{name}": getattr(layerwise.functional, name) for name in layerwise.functional.__all__}
FUNCTIONAL |= {name: value for name, value in TRAINING.items() if name not in TRAINING_CLASSES}
# What the library offers and the command line does not: it does the same in other words.
ONLY_IN_PYTHON = {
    "difference",
    "plan",
    "plot",
    "texts",
}  # compare, scan --dry-run, report --figure, --data and its options
ONLY_IN_PYTHON |= {"audio", "images"}  # --data and its options
ONLY_IN_PYTHON |= {"labelled"}  # probe --data with its options
# Parameters that take any value, each with its reason.
ANY_VALUE = {
    ("LayerTable.where", "columns"): "the value of a column, of the column's type",
    ("plot", "ax"): "matplotlib's Axes, which is optional",
    ("plot", "return"): "matplotlib's Axes",
    ("export", "return"): "the backend's own model: a SentenceTransformer by default",
    ("shrink", "return"): "the same",
}


def methods() -> Iterator[tuple[str, Any]]:
    """The public methods and class methods that exported classes define themselves, by their full name."""
    for owner, value in CLASSES.items():
        if getattr(value, "_is_protocol", False):  # an interface: those who implement it read its file
            continue
        fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        for name, member in vars(value).items():
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            if inspect.isfunction(member) and not name.startswith("_") and name not in fields:
                yield f"{owner}.{name}", member


def properties() -> Iterator[tuple[str, property]]:
    for owner, value in CLASSES.items():
        for name, member in vars(value).items():
            if isinstance(member, property) and not name.startswith("_"):
                yield f"{owner}.{name}", member


CALLABLES = FUNCTIONS | LAB | dict(methods()) | FUNCTIONAL


def hints_of(function: Any) -> dict[str, Any]:
    """The types of its parameters and result; pandas and torchmetrics are imported late, so their names are texts."""
    return get_type_hints(function, localns={"pd": pd, "torchmetrics": torchmetrics})


def sections(text: str) -> dict[str, str]:
    """The parts of a docstring by their headings (Args, Returns, Raises, Example); the rest is under ""."""
    parts = re.split(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples):$", inspect.cleandoc(text), flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described(section: str) -> list[str]:
    """The names that a section describes, in order; each begins a line of the least indentation."""
    found = re.findall(r"^    (\*{0,2}\w+): +\S", section, flags=re.M)
    return [name.lstrip("*") for name in found]


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize("name", sorted({*PUBLIC} - {"__version__", "CATALOG"}))
def test_every_public_name_has_a_docstring_of_its_own(name):
    value = PUBLIC[name]
    text = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    assert text, f"{name} has no docstring"
    if dataclasses.is_dataclass(value):
        assert not text.startswith(f"{value.__name__}("), f"{name}: the docstring is the one that dataclass makes"


@pytest.mark.parametrize("name", sorted({*CALLABLES}))
def test_every_parameter_is_described_in_order(name):
    parts, wanted = sections(inspect.getdoc(CALLABLES[name]) or ""), parameters(CALLABLES[name])
    assert parts[""].strip(), f"{name} has no summary"
    assert described(parts.get("Args", "")) == wanted, f"Args of {name}"
    hints = hints_of(CALLABLES[name])
    if hints.get("return", type(None)) is not type(None) and name in {*FUNCTIONS, *LAB, *FUNCTIONAL}:
        assert parts.get("Returns", "").strip(), f"{name} does not say what it returns"


@pytest.mark.parametrize("name", sorted(name for name, value in CLASSES.items() if dataclasses.is_dataclass(value)))
def test_every_field_is_described_in_order(name):
    parts = sections(CLASSES[name].__doc__)
    wanted = [field.name for field in dataclasses.fields(CLASSES[name]) if not field.name.startswith("_")]
    assert described(parts.get("Args", parts.get("Attributes", ""))) == wanted, name


@pytest.mark.parametrize("name", sorted(TRAINING_CLASSES))
def test_every_class_of_training_describes_what_it_takes(name):
    owner = TRAINING_CLASSES[name]
    assert described(sections(owner.__doc__).get("Args", "")) == parameters(owner), name
    for member, value in vars(owner).items():
        if not member.startswith(("_", "on_")) and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize("name", sorted(name for name, _ in properties()))
def test_every_property_says_what_it_is(name):
    assert inspect.getdoc(dict(properties())[name]), name


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *LAB, *FUNCTIONAL}))
def test_every_public_function_shows_an_example(name):
    assert ">>>" in sections(inspect.getdoc(CALLABLES[name]) or "").get("Example", ""), f"{name} has no Example"


def test_no_public_parameter_is_of_any_type():
    loose = {
        (name, parameter)
        for name, function in CALLABLES.items()
        if not hasattr(function, "__signature__")  # its types are in its options: see below
        for parameter, hint in hints_of(function).items()
        if hint is Any or (Any in get_args(hint) and not hasattr(hint, "__origin__"))
    }
    assert loose == set(ANY_VALUE) & loose, sorted(loose - set(ANY_VALUE))


def test_no_option_is_of_any_type():
    """Read from the files: at run time, a name whose import would load torch stands for Any."""
    loose = set()
    for path in Path(layerwise.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Annotated":
                declared = node.slice.elts[0]
                if any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(declared)):
                    loose.add((path.parent.name, ast.unparse(declared)))
    assert loose == {
        ("report", "Any"),  # matplotlib's Axes
        ("campaign", "Any"), ("campaign", "Sequence[Any]"), ("campaign", "Mapping[str, Any] | None"),  # parts of YAML
        ("inputs", "Callable[..., Mapping[str, Any]] | None"),  # a tokenizer
        ("training", "DataLike | Sequence[Mapping[str, Any]]"),  # tokenized batches
        ("training", "Callable[[Any], ModelObject | tuple[ModelObject, object]]"),  # of a LightningModule
    }  # fmt: skip


def test_no_public_function_takes_options_that_nobody_can_see():
    for name, function in CALLABLES.items():
        kinds = {p.name: p.kind for p in inspect.signature(function).parameters.values()}
        hidden = [p for p, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
        assert not hidden or name == "LayerTable.where", f"{name} takes **{hidden[0]}"  # `where` takes columns


def own_classes(hint: Any) -> Iterator[type]:
    """The classes of layerwise that a type hint mentions."""
    for part in get_args(hint):
        yield from own_classes(part)
    if inspect.isclass(hint) and hint.__module__.startswith("layerwise."):
        yield hint


def test_everything_that_a_public_function_takes_or_returns_can_be_imported_by_name():
    exported = {*CLASSES.values(), *LAB_CLASSES.values()}
    hidden = {
        f"{name}: {found.__qualname__}"
        for name, function in CALLABLES.items()
        for parameter, hint in hints_of(function).items()
        if name in FUNCTIONS or parameter == "return"
        for found in own_classes(hint)
        if found not in exported and not getattr(found, "_is_protocol", False)
    }
    assert not hidden


def test_every_error_can_be_caught_by_name():
    from layerwise.core import errors

    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.LayerwiseError):
            assert PUBLIC.get(name) is value, name


def test_the_library_and_the_command_line_have_the_same_verbs():
    verbs = {verb for verb in commands() if not verb.startswith("lab ")}
    assert verbs <= set(PUBLIC)
    assert set(FUNCTIONS) - verbs - ONLY_IN_PYTHON == set(HELPERS)
    in_lab = {verb.removeprefix("lab ") for verb in commands()} - verbs
    assert {name.removeprefix("lab.") for name in LAB} == in_lab | {"audit_protocol"}  # audit --protocol


# What a metric of one's own is made of.
HELPERS = ("mean_score", "mean_over_prompts", "spectrum_score", "pooled_rows")


@pytest.fixture(scope="session")
def example_names(tmp_path_factory, reading_llama, tiny_bert):
    """What every example may use: tiny models with random weights, a few texts, and the path of a new folder."""
    words = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(5 + i % 11)) for i in range(40)]
    numbers = iter(range(1000))
    base = tmp_path_factory.mktemp("examples")

    def names() -> dict[str, Any]:
        folder = base / str(next(numbers))
        folder.mkdir()
        return {"layerwise": layerwise, "model": reading_llama, "encoder": tiny_bert, "texts": words, "folder": folder}

    return names


DOCUMENTED = CALLABLES | CLASSES | LAB_CLASSES | TRAINING_CLASSES
EXAMPLES = {name: value for name, value in DOCUMENTED.items() if ">>>" in (inspect.getdoc(value) or "")}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.filterwarnings("ignore")  # of mteb and sentence-transformers
def test_every_example_runs_and_prints_what_it_says(name, example_names):
    text = inspect.getdoc(EXAMPLES[name])
    example = doctest.DocTestParser().get_doctest(text, example_names(), name, None, None)
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=printed.append)
    assert runner.failures == 0, "".join(printed)
