"""The house: what is public, who may import whom, and that importing layerwise costs nothing."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import layerwise
from layerwise.verbs import VERBS, commands

SRC = Path(layerwise.__file__).parent

# Imports run downhill. Rooms on one floor do not import one another.
FLOORS = [
    {"core"},
    {"runs", "metrics"},
    {"models", "inputs", "maps"},
    {"passes", "engines", "functional"},
    {"cli"},
    {"verbs"},
    {"training", "lab", "__main__"},
]
# A verb imports only verbs before it.
ORDER = ["scan", "eval", "doctor", "embed", "probe", "export", "shrink", "pick", "report", "compare", "campaign"]
ORDER += [f"lab.{name}" for name in ("data", "views", "stress", "correlate", "tradeoff", "audit", "reproduce")]
MOST_ARROWS = 30  # between verbs
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module):
    return module.split(".")[1] if "." in module else "__init__"


def imports():
    """Every (file, importing room, imported room) inside the package, from the syntax trees."""
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        if parts == ("__init__",):
            continue  # the public face hands on names from everywhere, without loading them
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name and name.split(".")[0] == "layerwise":
                    yield path.relative_to(SRC), parts[0], room_of(name)


def test_imports_run_downhill():
    wrong = [
        f"{path}: {here} imports {there}"
        for path, here, there in imports()
        if here != there and not (there in FLOOR and here in FLOOR and FLOOR[there] < FLOOR[here])
    ]
    assert not wrong, "\n".join(wrong)


def verb_of(parts):
    """The verb whose folder a module is in; "" for the list of verbs."""
    return ".".join(parts[1 : 3 if parts[1:2] == ("lab",) else 2]) if parts[0] == "verbs" else ""


def arrows_between_verbs():
    """Every (file, importing verb, imported verb), from the syntax trees."""
    for path in sorted((SRC / "verbs").rglob("*.py")):
        here = verb_of(path.relative_to(SRC).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            there = verb_of(tuple(module.split(".")[1:])) if module.startswith("layerwise.verbs.") else ""
            if there and there != here:
                yield path.relative_to(SRC), here, there


def test_a_verb_imports_only_verbs_before_it():
    arrows = [*arrows_between_verbs()]
    wrong = [
        f"{path}: {here} imports {there}" for path, here, there in arrows if ORDER.index(there) > ORDER.index(here)
    ]
    assert not wrong, "\n".join(wrong)
    assert len({(here, there) for _, here, there in arrows}) <= MOST_ARROWS
    assert sorted(ORDER) == sorted(VERBS), "a verb is one folder, and one line in the list of verbs"


def test_commands_to_copy_are_made_in_one_place():
    """A name inside a command must be quoted, and `command_line` quotes it: no command is put together from text."""
    verbs = "|".join(commands())
    for path in SRC.rglob("*.py"):
        text, place = path.read_text(), str(path.relative_to(SRC))
        # records.py writes the typed command, and repeat_commands.py splits it again
        assert "shlex" not in text or place in (
            "core/display.py",
            "runs/records.py",
            "verbs/report/repeat_commands.py",
        ), place
        for node in ast.walk(ast.parse(text)):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for before, after in zip(parts, parts[1:], strict=False):
                if isinstance(before, ast.Constant) and isinstance(after, ast.FormattedValue):
                    assert not re.search(rf"\blayerwise ({verbs}) [^`;:]*$", before.value), f"{place}:{node.lineno}"


def test_no_relative_and_no_star_imports():
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                assert all(alias.name != "*" for alias in node.names), f"{path}: import *"


def test_every_room_stands_on_a_floor():
    rooms = {path.stem for path in SRC.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert rooms - {"__init__", "__pycache__"} == set(FLOOR)


def test_every_file_opens_with_a_caption():
    for path in SRC.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_no_file_is_longer_than_600_lines():  # most are far shorter: a habit, not a limit
    lengths = {str(path.relative_to(SRC)): len(path.read_text().splitlines()) for path in SRC.rglob("*.py")}
    assert max(lengths.values()) <= 600, max(lengths, key=lengths.get)


def test_there_are_at_most_seven_floors():
    assert len(FLOORS) <= 7


def test_the_public_face():
    objects = [
        "Backend",
        "CATALOG",
        "Campaign",
        "ChosenRecipe",
        "Clip",
        "Cluster",
        "Comparison",
        "DataLike",
        "DataRef",
        "Difference",
    ]
    objects += ["Estimate", "Example", "ExportError", "Finding", "FittedOn", "FittedRecipe", "Forecast"]
    objects += ["Gain", "InputError", "LayerBatch", "LayerScore", "LayerTable", "LayerwiseError", "LinearMap"]
    objects += ["LocalTask", "MergeError", "Metric", "MissingExtra", "ModelError", "ModelLike", "ModelObject"]
    objects += ["ModelRef", "ModelSpec", "NotFiniteError", "Pick", "PickedLayer"]
    objects += [
        "RankedModel",
        "RankedModels",
        "Reading",
        "Readout",
        "Recipe",
        "Rule",
        "Run",
        "RunError",
        "Source",
        "StoreError",
    ]
    objects += ["TooLarge", "Vllm", "__version__"]
    verbs = ["audio", "campaign", "compare", "difference", "doctor"]
    verbs += ["embed", "eval", "export", "functional", "images", "lab", "labelled"]
    verbs += ["mean_over_prompts", "mean_score", "pick", "plan", "plot", "pooled_rows", "probe", "report"]
    verbs += ["scan", "shrink"]
    verbs += ["spectrum_score", "texts", "training"]
    assert layerwise.__all__ == objects + verbs
    for name in layerwise.__all__:
        assert getattr(layerwise, name) is not None
    with pytest.raises(AttributeError, match="functional"):
        layerwise.nothing  # noqa: B018


def test_the_functional_face():
    from layerwise import functional

    for name in functional.__all__:
        assert callable(getattr(functional, name)) and getattr(functional, name).__doc__


IMPORT = """
import sys, time
start = time.perf_counter()
import layerwise
took = time.perf_counter() - start
heavy = {"torch", "numpy", "transformers", "pandas", "ray"} & set(sys.modules)
print(took, sorted(heavy))
"""


def test_importing_layerwise_loads_no_torch_and_is_quick():
    runs = [subprocess.check_output([sys.executable, "-c", IMPORT], text=True) for _ in range(3)]
    assert all(run.split(" ", 1)[1].strip() == "[]" for run in runs)
    assert min(float(run.split()[0]) for run in runs) < 0.3
