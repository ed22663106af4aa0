"""Where an experiment finds its models and data: in the user's folders, or on the hub."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError
from layerwise.models.spec import ModelSpec
from layerwise.verbs.lab.reproduce.experiment import Step, Variant
from layerwise.verbs.lab.reproduce.options import Folders, Scale

RELEASED = "released"  # the folder, in the data, with the authors' published results


@dataclass(frozen=True)
class Inputs:
    """Turns the names in an experiment's file into models and files. At the scale `paper`, they are hub names."""

    scale: Scale
    models: tuple[Path, ...] = ()
    data: Path | None = None

    @classmethod
    def open(cls, scale: Scale, models: Folders = (), data: str | Path | None = None) -> "Inputs":
        folders = [models] if isinstance(models, str | Path) else list(models or ())
        named = [*folders, *([] if data is None else [data])]
        if wrong := [str(folder) for folder in named if not Path(folder).is_dir()]:
            raise InputError(f"{wrong[0]!r} is not a folder; --models and --data name folders")
        return cls(scale, tuple(map(Path, folders)), None if data is None else Path(data))

    def model(self, entry: str | Mapping[str, Any]) -> ModelSpec:
        """A model by its name, or by a mapping with its name and how it is loaded."""
        options = {"name": entry} if isinstance(entry, str) else dict(entry)
        if self.scale != "paper":
            options["name"] = str(self.model_folder(options["name"]) or options["name"])
        return ModelSpec(**options)

    def model_folder(self, name: str) -> Path | None:
        return next((folder / name for folder in self.models if (folder / name / "config.json").is_file()), None)

    def file(self, name: str) -> str:
        """A file of the data by its name; at the scale `paper`, a data set on the hub."""
        return name if self.scale == "paper" or self.data is None else str(self.data / name)

    def missing(self, variant: Variant) -> list[str]:
        """What the experiment needs and the folders do not have, one line each."""
        if self.scale == "paper":
            return []
        lines = []
        models = [name for step in variant.steps for name in model_names(step) if self.model_folder(name) is None]
        files = [
            name
            for step in variant.steps
            for name in data_files(step)
            if self.data is None or not (self.data / name).exists()
        ]
        for option, names in (("--models", models), ("--data", files)):
            if names:
                lines.append(f"not found in {option}: {', '.join(dict.fromkeys(names))}")
        return lines


def model_names(step: Step) -> Iterator[str]:
    """The models of a step that a user must have; not those that an earlier step makes."""
    entries = step.settings.get("models", []) if step.verb != "released" else []
    for entry in entries:
        if isinstance(entry, str) or "of" not in entry:
            yield entry if isinstance(entry, str) else entry["name"]


def data_files(step: Step) -> Iterator[str]:
    """The files of the data that a step reads."""
    for key in ("data", "test"):
        if "of" not in (source := step.settings.get(key, {"of": ""})):
            yield source["data"]
    if step.verb == "data":
        yield from (task[key] for task in step.settings["tasks"].values() for key in ("test", "train") if key in task)
    if step.verb == "corpora":
        yield step.settings["table"]
    if step.verb == "released":
        yield f"{RELEASED}/{PUBLISHED[step.settings['kind']]}"
    if step.verb == "findings":
        yield from FINDINGS


# The tables of published results, by what they hold (docs/reproduce.md describes their columns).
PUBLISHED = {
    "scores": "mteb_scores.parquet",
    "metrics": "metrics.parquet",
    "image_probes": "vision.parquet",
    "image_metrics": "vision.parquet",
}
FINDINGS = ("scores.csv", "metrics.csv")  # of studies/evidence, or of models of your own
