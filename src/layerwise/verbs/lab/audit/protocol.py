"""A protocol: models, tasks and recipes that are fixed before test tasks are scored, and what counts as success.

The file is JSON. `development` and `test` each list models and tasks. `recipes` gives the recipes of each model by
label; the test tasks are scored only with recipes that the file contains. A record in the output folder holds hashes of
the file, the recipes and the data, so that a second choice after looking at the test scores is refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.files import DiskFolder, safe_name
from layerwise.core.formats import parse_record
from layerwise.core.options import unknown_name_problems
from layerwise.core.recipe import Recipe
from layerwise.runs.records import FROZEN, NewerVersionError
from layerwise.verbs.lab.audit.options import StageName

SCHEMA_VERSION = 1
MAX_BYTES = 1_000_000
MAX_POINTS = 100.0
RecipeWord = Literal["last", "static"]
RECIPE_WORDS: tuple[str, ...] = get_args(RecipeWord)
STAGES: tuple[str, ...] = get_args(StageName)
BASELINES: Mapping[str, RecipeWord] = {"last": "last", "static": "static"}  # gains are reported over these
STATIC_RECIPE = Recipe(0, pooling="mean", transform="whiten")
NOT_HELD_OUT = "a second choice after looking is not held out; start a new protocol with new tasks"

Check = tuple[str, Callable[[Any], bool]]  # what a field must be, in words, and whether a value is


def is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def is_prose(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def is_points(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -MAX_POINTS <= value <= MAX_POINTS


TEXT: Check = ("text", lambda value: isinstance(value, str))
PROSE: Check = ("text or a list of texts", is_prose)
NAMES: Check = ("a list of at least one name", is_names)
OBJECT: Check = ("an object", lambda value: isinstance(value, dict))
LIST: Check = ("a list of at least one object", lambda value: isinstance(value, list) and bool(value))
POINTS: Check = ("a number of points from -100 to 100", is_points)
VERSION: Check = ("a whole number from 1", lambda value: type(value) is int and value >= 1)

REQUIRED: Mapping[str, Check] = {
    "schema_version": VERSION, "name": TEXT, "development": OBJECT, "test": OBJECT, "success": LIST,
}  # fmt: skip
# For readers only: layerwise does not interpret them.
EXPLANATIONS = ("written", "known_before", "siblings", "tasks_made_by", "fit", "mean", "ideas", "few_labels")
OPTIONAL: Mapping[str, Check] = {"recipes": OBJECT} | dict.fromkeys(EXPLANATIONS, PROSE)
STAGE_FIELDS: Mapping[str, Check] = {"models": NAMES, "tasks": NAMES}
CRITERION_FIELDS: Mapping[str, Check] = {"model": TEXT, "recipe": TEXT, "over": TEXT, "at_least": POINTS}


@dataclass(frozen=True)
class Stage:
    """The models and tasks of one stage."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Criterion:
    """What counts as success: a recipe of a model scores at least that many points more than another."""

    model: str
    recipe: str
    over: str
    at_least: float


@dataclass(frozen=True)
class Protocol:
    """A protocol file that was read and checked."""

    name: str
    stages: Mapping[str, Stage]
    success: tuple[Criterion, ...]
    recipes: Mapping[str, Mapping[str, Recipe | RecipeWord]]  # by model and label
    recipe_hashes: Mapping[str, Mapping[str, str]]
    sha256: str
    file: str

    def stage_recipes(self, stage: StageName) -> dict[str, Mapping[str, Recipe | RecipeWord]]:
        """The recipes of each model of a stage, by label.

        In development, a model without recipes has `last` and `static`. The test stage needs recipes in the file, with
        every label that a criterion of success names.
        """
        models = self.stages[stage].models
        if stage == "development":
            return {model: self.recipes.get(model, BASELINES) for model in models}
        if missing := [model for model in models if not self.recipes.get(model)]:
            raise InputError(
                f"{self.file} has no recipes for {', '.join(missing)}: the test tasks are scored only with recipes "
                "that were chosen before. Write them into the field recipes ({MODEL: {LABEL: RECIPE}})"
            )
        for criterion in self.success:
            labels = self.recipes[criterion.model]
            if unknown := [label for label in (criterion.recipe, criterion.over) if label not in labels]:
                raise InputError(
                    f"{self.file}: success compares {criterion.recipe} with {criterion.over} of {criterion.model}, "
                    f"but recipes has no {unknown[0]!r} for it, only {', '.join(labels)}"
                )
        return {model: self.recipes[model] for model in models}


def read_protocol(path: str | Path) -> Protocol:
    """Reads and checks a protocol file; raises InputError that names what is wrong."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the protocol {path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES:,} bytes, so it is no protocol; pass another file")
    try:
        record = parse_record(data, str(path))
        json.loads(data, object_pairs_hook=require_unique_fields)
    except (RunError, DuplicateFieldError) as error:
        problem = str(error) if isinstance(error, DuplicateFieldError) else "it is not a JSON object"
        raise InputError(f"{path} cannot be used as a protocol: {problem}") from None
    return parse_protocol(record, str(path), hashlib.sha256(data).hexdigest())


class DuplicateFieldError(ValueError):
    """A JSON object has the same field twice; only one of the two would count."""


def require_unique_fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DuplicateFieldError(f"the field {twice!r} occurs twice in the same object; remove one")
    return fields


def parse_protocol(record: Mapping[str, Any], where: str, sha256: str) -> Protocol:
    """Checks the content of a protocol file."""
    version = record.get("schema_version")
    if type(version) is int and version > SCHEMA_VERSION:
        raise NewerVersionError(
            f"{where} was written for a newer layerwise (schema_version {version}; this version reads up to "
            f"{SCHEMA_VERSION}); update layerwise"
        )
    require_fields(record, REQUIRED, OPTIONAL, where)
    safe_name(record["name"], f"{where}: the name")
    stages = {name: parse_stage(record[name], f"{where}: {name}") for name in STAGES}
    if shared := sorted({*stages["development"].tasks} & {*stages["test"].tasks}):
        raise InputError(
            f"{where}: {', '.join(shared)} is a task of development and of test, so it is not held out; remove "
            "it from one"
        )
    entries = record.get("recipes", {})
    known = dict.fromkeys(model for stage in stages.values() for model in stage.models)
    recipes, hashes = {}, {}
    for model, labels in entries.items():
        place = f"{where}: recipes: {model}"
        if model not in known:
            raise InputError(f"{place} is no model of development or test; there are {', '.join(known)}")
        if not isinstance(labels, dict) or not labels:
            raise InputError(f"{place} must be an object with a recipe per label, such as {{'chosen': {{'layer': 3}}}}")
        recipes[model] = {label: parse_recipe(entry, label, f"{place}: {label}") for label, entry in labels.items()}
        hashes[model] = {label: record_hash(entry) for label, entry in labels.items()}
    success = tuple(
        parse_criterion(entry, stages["test"], f"{where}: success[{number}]")
        for number, entry in enumerate(record["success"])
    )
    return Protocol(record["name"], stages, success, recipes, hashes, sha256, where)


def require_fields(record: Any, required: Mapping[str, Check], optional: Mapping[str, Check], where: str) -> None:
    """Raises one InputError that names every unknown, missing and mistyped field of an object."""
    if not isinstance(record, dict):
        raise InputError(f"{where} must be an object with {', '.join(required)}, not {shown(record)}")
    fields = {**required, **optional}
    problems = unknown_name_problems(record, tuple(fields), "it")
    problems += [f"the field {name!r} is missing" for name in required if name not in record]
    problems += [
        f"{name} must be {words}, not {shown(record[name])}"
        for name, (words, is_valid) in fields.items()
        if name in record and not is_valid(record[name])
    ]
    if problems:
        raise InputError(f"{where}: {'; '.join(problems)}")


def shown(value: Any) -> str:
    """A value in a message: short ones as they are, others by their type."""
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


def parse_stage(record: Any, where: str) -> Stage:
    require_fields(record, STAGE_FIELDS, {"note": PROSE}, where)
    for kind in STAGE_FIELDS:
        names = record[kind]
        for name in names:
            safe_name(name, f"{where}: {kind}:")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{where}: {twice!r} is listed twice in {kind}; remove one")
    return Stage(tuple(record["models"]), tuple(record["tasks"]))


def parse_criterion(record: Any, test: Stage, where: str) -> Criterion:
    require_fields(record, CRITERION_FIELDS, {}, where)
    if record["model"] not in test.models:
        raise InputError(f"{where}: {record['model']!r} is no model of test; there are {', '.join(test.models)}")
    if record["recipe"] == record["over"]:
        raise InputError(f"{where} compares the recipe {record['recipe']!r} with itself; name two labels")
    return Criterion(record["model"], record["recipe"], record["over"], float(record["at_least"]))


def parse_recipe(entry: Any, label: str, where: str) -> Recipe | RecipeWord:
    """A recipe as JSON, or one of the words `last` and `static`."""
    safe_name(label, f"{where}: the label")
    if entry in RECIPE_WORDS:
        word: RecipeWord = entry
        return word
    if not isinstance(entry, dict):
        words = " or ".join(map(repr, RECIPE_WORDS))
        raise InputError(f"{where} must be a recipe ({{'layer': 3, ...}}) or {words}, not {shown(entry)}")
    try:
        return Recipe.from_record(entry, where)
    except LayerwiseError as error:
        problem = str(error).removeprefix(f"{where} is damaged: ").removeprefix(f"{where}: ")
        raise InputError(f"{where}: {problem}") from None


def record_hash(entry: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its fields."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def frozen_record(protocol: Protocol, revisions: Mapping[str, str], fit: Mapping[str, Any]) -> dict[str, Any]:
    """What must stay the same once a test task is scored: `revisions` are those of the tasks' data."""
    recipes = {model: dict(protocol.recipe_hashes[model]) for model in protocol.stages["test"].models}
    return {"protocol": protocol.sha256, "recipes": recipes, "tasks": dict(revisions), "fit": dict(fit)}


def freeze(folder: DiskFolder, record: Mapping[str, Any]) -> None:
    """Writes the record before the first test score; later, raises RunError if anything in it has changed."""
    is_scored = any(True for _ in folder.path.glob("test/*/*/scores/*/*.json"))
    if folder.read(FROZEN.file) is None and is_scored:
        raise RunError(
            f"{folder.path / 'test'} has scores, but {FROZEN.file}, which records the recipes they belong to, is "
            "missing; restore it"
        )
    if folder.create(FROZEN.file, FROZEN.dump(record)):
        return
    where = str(folder.path / FROZEN.file)
    found = FROZEN.parse(folder.read(FROZEN.file) or b"", where)
    if missing := [name for name in record if name not in found]:
        raise RunError(f"{where} is damaged (no {', '.join(missing)}); restore it")
    if problem := difference_from(found, record):
        start_again = "" if is_scored else f". No test task has been scored yet: to start again, delete {where}"
        raise RunError(problem + start_again)


def difference_from(found: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What differs between the record of the first call and this call, in words; "" if nothing does."""
    if recipes := changed_recipes(found["recipes"], record["recipes"]):
        return f"the test tasks were scored with other recipes ({', '.join(recipes)}): {NOT_HELD_OUT}"
    if found["protocol"] != record["protocol"]:
        return f"the test tasks were scored with another protocol file, or it was edited since: {NOT_HELD_OUT}"
    if tasks := [
        task for task in {**found["tasks"], **record["tasks"]} if found["tasks"].get(task) != record["tasks"].get(task)
    ]:
        return f"the data of {', '.join(tasks)} are not those that were scored; pass the data root of the first call"
    if found["fit"] != record["fit"]:
        return "the maps of the test recipes were fitted on other texts; pass the texts of the first call (--fit)"
    return ""


def changed_recipes(found: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Models and labels whose recipes differ, such as `gte-small: chosen`."""
    changed = []
    for model in {**found, **current}:
        one, other = ({} if not isinstance(r.get(model), dict) else r[model] for r in (found, current))
        changed += [f"{model}: {label}" for label in {**one, **other} if one.get(label) != other.get(label)]
    return changed
