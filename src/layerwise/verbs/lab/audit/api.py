"""audit: rules for choosing a layer, tested on known scores; and the recipes of a protocol, scored on its tasks."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.checks import split_choices, suggestion
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder, write_atomically
from layerwise.core.options import takes
from layerwise.core.outputs import require_path
from layerwise.core.progress import announce, announcements
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.maps.fitted import texts_fingerprint
from layerwise.models.opening import model_info_and_dtype, resolve_max_length
from layerwise.models.readouts import baseline_recipe
from layerwise.models.spec import ModelLike
from layerwise.runs.ownership import claim, require_usable
from layerwise.verbs.eval.api import eval as evaluate
from layerwise.verbs.eval.data_root import LocalTask, read_root
from layerwise.verbs.eval.tasks import MAIN_SCORES
from layerwise.verbs.lab.audit.held_out import require_held_out
from layerwise.verbs.lab.audit.options import AuditOptions, ProtocolOptions, StageName
from layerwise.verbs.lab.audit.protocol import (
    STATIC_RECIPE,
    Protocol,
    RecipeWord,
    freeze,
    frozen_record,
    read_protocol,
)
from layerwise.verbs.lab.audit.protocol_result import ProtocolResult, protocol_result
from layerwise.verbs.lab.audit.regret import audit as audit_rules
from layerwise.verbs.pick.cases import cases_from_frames
from layerwise.verbs.pick.rules import parse_rule


@takes(AuditOptions)
def audit(options: AuditOptions) -> pd.DataFrame:
    """Tests rules for choosing a layer on known scores.

    Returns:
        One row per rule and family, and one per rule for all families: the mean score of the chosen, last and best
        layer, the share of the gap between last and best that was recovered with 95 % intervals (by drawing tasks and
        by drawing models again), and how often and how much it fell below the last layer.

    Raises:
        InputError: if a column, a number or a metric is missing, or a word names no rule.

    Example:
        >>> import pandas as pd
        >>> rows = [("f", "m", "t", layer, score) for layer, score in enumerate([1.0, 3.0, 2.0])]
        >>> scores = pd.DataFrame(rows, columns=["family", "model", "task", "layer", "score"])
        >>> layerwise.lab.audit(scores, rules="last,depth:50%").recovered.tolist()
        [0.0, 1.0]
    """
    rule_list = split_choices("rules", options.rules) if isinstance(options.rules, str) else options.rules
    return audit_rules(cases_from_frames(options.scores, options.metrics), [parse_rule(rule) for rule in rule_list])


@takes(ProtocolOptions)
def audit_protocol(options: ProtocolOptions) -> ProtocolResult:
    """Scores the recipes of a protocol file on the tasks of one stage, and says which criteria of success are met.

    Development tasks may be scored as often as you like. Test tasks are scored once: the first call records the
    protocol, its recipes, the texts for fitting and the data in `out`, and a later call with others is refused. The
    same call resumes. On the command line this is `layerwise lab audit --protocol FILE`.

    Returns:
        Scores, means by type, gains with 95 % intervals, and criteria of success. Printing it shows them as text. The
        same is saved in `out` as `audit-STAGE.csv` (scores) and `audit-STAGE.json`.

    Raises:
        InputError: the protocol, a task, a model or a recipe cannot be used, or labelled examples are also scored.
        RunError: test tasks were scored before with another protocol, other recipes or data; or a task failed.

    Example:
        >>> import json, pandas as pd
        >>> for stage, part in (("development", texts[:20]), ("test", texts[20:])):
        ...     pairs = pd.DataFrame({"sentence1": part[:10], "sentence2": part[10:], "score": range(10)})
        ...     task = layerwise.lab.data(folder / stage, f"{stage}-pairs", type="STS", test=pairs)
        >>> chosen = {"last": "last", "chosen": {"layer": 1}}
        >>> stages = {s: {"models": ["tiny"], "tasks": [f"{s}-pairs"]} for s in ("development", "test")}
        >>> success = [{"model": "tiny", "recipe": "chosen", "over": "last", "at_least": -100}]
        >>> record = {"schema_version": 1, "name": "mine", **stages, "success": success, "recipes": {"tiny": chosen}}
        >>> _ = (folder / "protocol.json").write_text(json.dumps(record))
        >>> result = layerwise.lab.audit_protocol(
        ...     folder / "protocol.json", stage="test", data_root=folder, models={"tiny": model}, out=folder / "audit"
        ... )
        >>> result.success.met.tolist()
        [True]
    """
    plan = read_protocol(options.protocol)
    names = chosen_models(plan, options.stage, options.only)
    entries = plan.stage_recipes(options.stage)
    tasks = stage_tasks(plan, options.stage, Path(options.data_root))
    require_held_out(tasks.values(), Path(options.data_root))
    texts = fitting_texts(options.fit, [entry for labels in entries.values() for entry in labels.values()])
    models = options.models
    found = given_models(models, names) if isinstance(models, Mapping) else model_folders(models, names)
    recipes = {name: usable_recipes(name, found[name], entries[name], plan.file) for name in names}
    if "://" in str(options.out):
        raise InputError("audit memory-maps its vectors, so --out must be a folder on disk, not a URL")
    folder = DiskFolder(require_path(options.out).absolute())
    for name in names:
        require_usable(DiskFolder(folder.path / options.stage / name), "eval")
    claim(folder, "audit")
    if options.stage == "test":
        fitted_on = {"texts": len(texts), "fingerprint": texts_fingerprint(texts)} if texts else {}
        freeze(folder, frozen_record(plan, {name: task.revision for name, task in tasks.items()}, fitted_on))
    frames = []
    for number, name in enumerate(names, start=1):
        with announcements(options.progress):
            announce(f"{name} (model {number} of {len(names)})")
        distinct = list(dict.fromkeys(recipes[name].values()))  # two labels may stand for the same recipe
        table = evaluate(
            found[name],
            list(tasks),
            data_root=Path(options.data_root) / options.stage,
            out=folder.path / options.stage / name,
            recipes=distinct,
            fit=list(texts) or None,
            workers=options.workers,
            threads=options.threads,
            progress=options.progress,
        )
        values = {(row.metric, recipe): row.value for row, recipe in zip(table, distinct * len(tasks), strict=True)}
        frames.append(score_frame(name, recipes[name], tasks, values))
    result = protocol_result(plan, options.stage, pd.concat(frames, ignore_index=True))
    file = f"audit-{options.stage}-{options.only}" if options.only else f"audit-{options.stage}"
    write_atomically(folder.path / f"{file}.csv", result.scores.to_csv(index=False).encode())
    write_atomically(folder.path / f"{file}.json", f"{result.to_json()}\n".encode())
    return result


def chosen_models(protocol: Protocol, stage: StageName, only: str | None) -> tuple[str, ...]:
    names = protocol.stages[stage].models
    if only is not None and only not in names:
        hint = suggestion(only, names) or f"; there are {', '.join(names)}"
        raise InputError(f"{only!r} is no model of the {stage} stage of {protocol.file}{hint}")
    return names if only is None else (only,)


def stage_tasks(protocol: Protocol, stage: StageName, data_root: Path) -> dict[str, LocalTask]:
    """The tasks of a stage, in the order of the protocol; raises if the data root lacks one."""
    root, names = data_root / stage, protocol.stages[stage].tasks
    if reserved := [name for name in names if name in (*MAIN_SCORES, "all", "paper32")]:
        raise InputError(f"{protocol.file}: {reserved[0]!r} stands for several tasks in eval; rename the task")
    if not root.is_dir():
        raise InputError(f"{data_root} has no folder {stage} with the tasks of {protocol.file}; pass another data root")
    found = read_root(root)
    if missing := [name for name in names if name not in found]:
        raise InputError(
            f"{root} has no task {', '.join(missing)}; the {stage} stage of {protocol.file} needs all of its tasks"
        )
    return {name: found[name] for name in names}


def fitting_texts(fit: DataLike | None, entries: Iterable[Recipe | RecipeWord]) -> tuple[str, ...]:
    """The texts to fit maps on; the same for all models of a stage, so all their recipes decide if texts are needed."""
    recipes = [STATIC_RECIPE if entry == "static" else entry for entry in entries]
    maps = {recipe.transform for recipe in recipes if isinstance(recipe, Recipe)} - {"none"}
    if not maps:
        return ()
    if fit is None:
        raise InputError(f"the recipes have linear maps ({', '.join(sorted(maps))}): pass texts to fit them on (--fit)")
    if not (texts := tuple(example.text for example in open_source(fit))):
        raise InputError("there are no texts to fit linear maps on; pass others (--fit)")
    return texts


def model_folders(folder: str | Path, names: Sequence[str]) -> dict[str, ModelLike]:
    """The folder of each model; raises if one is missing."""
    paths = {name: Path(folder) / name for name in names}
    if missing := [name for name, path in paths.items() if not path.is_dir()]:
        raise InputError(f"{folder} has no folder {', '.join(missing)}; put the models there, or link them (ln -s)")
    return {name: str(path) for name, path in paths.items()}


def given_models(models: Mapping[str, ModelLike], names: Sequence[str]) -> dict[str, ModelLike]:
    if missing := [name for name in names if name not in models]:
        raise InputError(f"models has no {', '.join(missing)}; it contains {', '.join(models)}")
    return {name: models[name] for name in names}


def usable_recipes(name: str, model: Any, entries: Mapping[str, Recipe | RecipeWord], where: str) -> dict[str, Recipe]:
    """The recipes by label; raises for one that this model does not support, before anything is scored."""
    info, _ = model_info_and_dtype(model)
    words = {"last": baseline_recipe(info), "static": STATIC_RECIPE}
    recipes = {label: words[entry] if isinstance(entry, str) else entry for label, entry in entries.items()}
    for label, recipe in recipes.items():
        place = f"{where}: recipes: {name}: {label}"
        if recipe.layer > info.depth:
            raise InputError(f"{place}: layer {recipe.layer} does not exist; the model has layers 0 to {info.depth}")
        if recipe.shipped and info.shipped is None:
            raise InputError(f"{place}: the model ships no pooling of its own; name norm and pooling")
        try:
            resolve_max_length(recipe.max_length, info)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
    return recipes


def score_frame(
    model: str, recipes: Mapping[str, Recipe], tasks: Mapping[str, LocalTask], values: Mapping[Any, float]
) -> pd.DataFrame:
    """One row per recipe and task; raises for a score that is not a number."""
    rows = [
        (model, label, task.name, task.type, values[task.name, recipe])
        for label, recipe in recipes.items()
        for task in tasks.values()
    ]
    for _, label, task, _, score in rows:
        if score != score:
            raise RunError(f"the recipe {label} of {model} has no score on {task}: its vectors are not finite numbers")
    return pd.DataFrame(rows, columns=["model", "recipe", "task", "type", "score"])
