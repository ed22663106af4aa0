"""Experiments: the figures and tables of the paper, one YAML file each, read and checked.

A file names what the experiment shows, what the paper says about it, and for each scale either the steps that make it
or the reason why it cannot be made. A step is one call of a verb, with a name by which later steps use its result:

    - scan: metrics                     # the verb, and the name of the step
      models: [smollm2-135m]            # one run per model
      data: {data: wikitext2/test.parquet}
      options: {metrics: curvature}     # of the verb
    - plot: curves                      # writes curves.png
      panels: [{of: metrics, figure: depth, metric: curvature}]
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from layerwise.core.checks import suggestion
from layerwise.core.errors import InputError
from layerwise.core.formats import read_yaml
from layerwise.core.options import option_specs, problems_in, unknown_name_problems
from layerwise.inputs.options import TextOptions
from layerwise.inputs.source import hash_id
from layerwise.models.spec import ModelSpec
from layerwise.verbs.eval.options import EvaluateOptions
from layerwise.verbs.lab.data.options import DataOptions
from layerwise.verbs.lab.reproduce.options import Scale
from layerwise.verbs.lab.stress.options import StressOptions
from layerwise.verbs.probe.options import ProbeOptions
from layerwise.verbs.report.options import PlotOptions
from layerwise.verbs.scan.options import ScanOptions

SCALES: tuple[Scale, ...] = get_args(Scale)
FOLDER = Path(__file__).parent / "experiments"
# What a step of each verb has besides its name. Verbs that are not layerwise's own are in verbs/lab/reproduce/steps.py.
KEYS: Mapping[str, tuple[str, ...]] = {
    "scan": ("models", "data", "options"),
    "stress": ("models", "data", "options"),
    "probe": ("models", "data", "test", "options"),
    "data": ("tasks", "options"),
    "eval": ("models", "tasks", "data_root", "options"),
    "released": ("kind", "models", "where"),
    "corpora": ("table", "label", "classes", "texts"),
    "bidirectional": ("models",),
    "tune": ("models", "data", "objective", "steps", "batch_size", "tokens", "learning_rate"),
    "mean": ("of",),
    "correlate": ("of", "across_norms"),
    "audit": ("of", "rules", "across_norms"),
    "spectra": ("exponents", "orders", "size"),
    "tasks": ("names",),
    "findings": (),
    "plot": ("panels",),
}
OPTIONS: Mapping[str, type] = {
    "scan": ScanOptions, "stress": StressOptions, "probe": ProbeOptions, "eval": EvaluateOptions, "data": DataOptions,
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One call of a verb: its name, and everything else that the file says about it."""

    verb: str
    name: str
    settings: Mapping[str, Any]

    @property
    def references(self) -> list[str]:
        """The steps whose results it uses: NAME or NAME/RUN, or EXPERIMENT.NAME for one of another experiment."""
        panels = self.settings.get("panels", [])
        named = [self.settings.get("of", []), self.settings.get("data_root", [])]
        named += [panel.get("of", []) for panel in panels]
        data = self.settings.get("data", {})
        named += [data.get("of", [])] if isinstance(data, Mapping) else []
        models = self.settings.get("models", [])
        named += [entry.get("of", []) for entry in models if isinstance(entry, Mapping)]
        return list(flat(named))


def flat(names: Any) -> Iterator[str]:
    """All names in lists of lists."""
    for entry in [names] if isinstance(names, str) else names:
        yield from [entry] if isinstance(entry, str) else flat(entry)


@dataclass(frozen=True)
class Variant:
    """An experiment at one scale: its cost and its steps, or the reason why it cannot be made."""

    cost: str = ""
    steps: tuple[Step, ...] = ()
    cannot: str = ""
    note: str = ""  # how it differs from the paper

    @property
    def fingerprint(self) -> str:
        """A hash of its steps: what was made of the same steps need not be made again."""
        steps = [[step.verb, step.name, step.settings] for step in self.steps]
        return f"{hash_id(json.dumps(steps, sort_keys=True)):x}"

    @property
    def needed_experiments(self) -> list[str]:
        """Other experiments whose runs its steps use."""
        names = [name.partition(".")[0] for step in self.steps for name in step.references if is_elsewhere(name)]
        return list(dict.fromkeys(names))


def is_elsewhere(reference: str) -> bool:
    """True for the step of another experiment: EXPERIMENT.NAME, or EXPERIMENT.NAME/RUN. A run may have a dot in it."""
    return "." in reference.partition("/")[0]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper: what it shows, what the paper says, and how it is made at each scale."""

    name: str
    title: str
    says: str
    scales: Mapping[str, Variant]


def experiment_names() -> list[str]:
    """The names of all experiments: tables and figures by number, then the others."""
    names = [path.stem for path in FOLDER.glob("*.yaml")]
    return sorted(names, key=lambda name: (name.strip("0123456789") not in ("fig", "table"), sort_key(name)))


def sort_key(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


@cache
def load_experiment(name: str) -> Experiment:
    """Reads and checks the file of an experiment; raises InputError with the nearest name if there is none."""
    if name not in (known := experiment_names()):
        near = suggestion(name, known)
        raise InputError(f"no experiment {name!r}{near}" if near else f"no experiment {name!r}; see `reproduce --list`")
    return parse_experiment(name, read_yaml(FOLDER / f"{name}.yaml"))


def parse_experiment(name: str, content: Any) -> Experiment:
    """Checks the content of a file; raises one InputError that lists all problems."""
    problems = [f"no {key}" for key in ("title", "says", "scales") if not content.get(key)]
    scales = content.get("scales", {})
    problems += unknown_name_problems(content, ("title", "says", "scales"), "the file")
    problems += [f"no scale {scale}" for scale in SCALES if scale not in scales]
    variants = {}
    for scale, entry in scales.items():
        problems += unknown_name_problems(entry, ("cost", "steps", "cannot", "note"), f"scale {scale}")
        steps = tuple(parse_step(step) for step in entry.get("steps", []))
        variants[scale] = Variant(entry.get("cost", ""), steps, entry.get("cannot", ""), entry.get("note", ""))
        problems += [f"{scale}: {problem}" for problem in variant_problems(variants[scale])]
    if problems:
        raise InputError(f"{name}.yaml: {'; '.join(problems)}")
    return Experiment(name, content["title"], " ".join(content["says"].split()), variants)


def parse_step(entry: Mapping[str, Any]) -> Step:
    verb, name = next(iter(entry.items()))
    return Step(str(verb), str(name), dict(list(entry.items())[1:]))


def variant_problems(variant: Variant) -> Iterator[str]:
    """Everything that is wrong with an experiment at one scale, one sentence each."""
    if bool(variant.cannot) == bool(variant.steps):
        yield "needs either steps or the reason why it cannot be made (cannot)"
    if variant.steps and not variant.cost:
        yield "needs a cost"
    seen: list[str] = []
    for step in variant.steps:
        yield from step_problems(step)
        for name in step.references:
            if not is_elsewhere(name) and name.partition("/")[0] not in seen:
                yield f"step {step.name} uses {name}, which no earlier step makes"
        if step.name in seen:
            yield f"two steps are called {step.name}"
        seen.append(step.name)


def step_problems(step: Step) -> Iterator[str]:
    if step.verb not in KEYS:
        yield f"no verb {step.verb!r}{suggestion(step.verb, KEYS)}"
        return
    subject = f"step {step.name}"
    yield from unknown_name_problems(step.settings, KEYS[step.verb], subject)
    checked: list[tuple[type, Mapping[str, Any]]] = []
    if step.verb in OPTIONS:
        checked.append((OPTIONS[step.verb], step.settings.get("options", {})))
    checked += [(TextOptions, without(step.settings[key], "of")) for key in ("data", "test") if key in step.settings]
    panels = [without(without(panel, "of"), "title") for panel in step.settings.get("panels", [])]
    checked += [(PlotOptions, panel) for panel in panels]
    checked += [
        (ModelSpec, without(entry, "of")) for entry in step.settings.get("models", []) if isinstance(entry, Mapping)
    ]
    if step.verb == "data":
        checked += [(DataOptions, task) for task in step.settings["tasks"].values()]
    for options, values in checked:
        names = tuple(spec.name for spec in option_specs(options))
        yield from unknown_name_problems(values, names, subject)
        yield from (f"{subject}: {problem}" for problem in problems_in(options, values))


def without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}
