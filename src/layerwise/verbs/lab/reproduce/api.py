"""reproduce: make one figure or table of the paper."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.files import open_folder
from layerwise.core.options import takes
from layerwise.core.outputs import require_path
from layerwise.core.progress import announce, announcements
from layerwise.runs.ownership import claim, require_usable
from layerwise.runs.records import REPRODUCTION, environment
from layerwise.verbs.lab.reproduce.experiment import Experiment, load_experiment
from layerwise.verbs.lab.reproduce.inputs import Inputs
from layerwise.verbs.lab.reproduce.options import ReproduceOptions, Scale
from layerwise.verbs.lab.reproduce.steps import Workplace, run_step


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of the paper that was made.

    Args:
        experiment: its name, such as fig2.
        scale: small, released or paper.
        title: what it shows.
        says: what the paper says about it, in our words.
        note: how it differs from the paper's figure at this scale; "" if it does not.
        folder: where its runs, tables and pictures are.
        files: the tables and pictures.
        seconds: how long it took.
    """

    experiment: str
    scale: Scale
    title: str
    says: str
    note: str
    folder: Path
    files: tuple[Path, ...]
    seconds: float


@takes(ReproduceOptions)
def reproduce(options: ReproduceOptions) -> Reproduction:
    """Makes one figure or table of the paper.

    `layerwise lab reproduce --list` lists all of them with their cost at each scale, or why one cannot be made.

    Returns:
        A Reproduction: the files that were written, and what the paper says about them.

    Raises:
        InputError: there is no such experiment, it cannot be made at this scale, or a model or file is missing.
        RunError: `out` holds something else.

    Example:
        >>> made = layerwise.lab.reproduce("fig7", out=folder / "paper")
        >>> [file.name for file in made.files]
        ['fig7.csv', 'fig7.png']
    """
    inputs = Inputs.open(options.scale, options.models, options.data)
    chosen = load_experiment(options.experiment)
    needed = in_order(chosen, options.scale)
    require_possible(needed, inputs)
    root = open_folder(require_path(options.out))
    require_usable(root, "reproduce")
    claim(root, "reproduce")
    start, files = time.monotonic(), list[Path]()
    with announcements(options.progress):
        for one in needed:
            place = Workplace(one, Path(options.out) / options.scale, inputs, options.threads, options.progress)
            if one is chosen or not was_made(place):
                files = make(place)
    return Reproduction(
        experiment=chosen.name,
        scale=options.scale,
        title=chosen.title,
        says=chosen.says,
        note=chosen.scales[options.scale].note,
        folder=Path(options.out) / options.scale / chosen.name,
        files=tuple(files),
        seconds=round(time.monotonic() - start, 1),
    )


def make(place: Workplace) -> list[Path]:
    """Runs the steps of one experiment, and records what it made."""
    start = time.monotonic()
    place.folder.mkdir(parents=True, exist_ok=True)
    files = [path for step in place.variant.steps for path in run_step(place, step)]
    seconds = round(time.monotonic() - start, 1)
    record = made_from(place) | {"files": [path.name for path in files], "seconds": seconds}
    open_folder(place.folder).write(REPRODUCTION.file, REPRODUCTION.dump(record | {"environment": environment()}))
    announce(f"{place.experiment.name}: done in {seconds} seconds")
    return files


def made_from(place: Workplace) -> dict[str, Any]:
    """What an experiment is made from: its steps, and the folders that they read."""
    inputs = place.inputs
    return {
        "experiment": place.experiment.name,
        "scale": inputs.scale,
        "steps": place.variant.fingerprint,
        "models": [str(folder) for folder in inputs.models],
        "data": str(inputs.data or ""),
    }


def was_made(place: Workplace) -> bool:
    """True if the experiment was finished here, from the same steps and folders."""
    data = open_folder(place.folder).read(REPRODUCTION.file)
    if data is None:
        return False
    return made_from(place).items() <= REPRODUCTION.parse(data, f"{place.folder}/{REPRODUCTION.file}").items()


def in_order(experiment: Experiment, scale: Scale) -> list[Experiment]:
    """The experiments whose runs this one uses, each after those that it needs, and then itself."""
    found: dict[str, Experiment] = {}
    for name in experiment.scales[scale].needed_experiments:
        found |= {one.name: one for one in in_order(load_experiment(name), scale)}
    return [*found.values(), experiment]


def require_possible(experiments: list[Experiment], inputs: Inputs) -> None:
    """Raises if an experiment cannot be made at this scale, or lacks a model or file, before anything is computed."""
    problems = []
    for one in experiments:
        variant = one.scales[inputs.scale]
        problems += [variant.cannot] if variant.cannot else inputs.missing(variant)
    if problems:
        name, reasons = experiments[-1].name, "; ".join(dict.fromkeys(problems))
        raise InputError(f"{name} cannot be made at the scale {inputs.scale}: {reasons}")
