"""The steps of an experiment of the paper: each calls a verb, and leaves runs, a table or a picture in a folder."""

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from layerwise.core.errors import InputError
from layerwise.core.files import write_atomically
from layerwise.core.progress import announce
from layerwise.engines.shards import torch_threads
from layerwise.inputs.labels import labelled
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import Source
from layerwise.inputs.tables import read_table
from layerwise.models.opening import input_kind_of_model, source_options
from layerwise.models.spec import ModelSpec
from layerwise.runs.table import LayerTable
from layerwise.verbs.eval.api import eval as evaluate
from layerwise.verbs.eval.tasks import choose_tasks
from layerwise.verbs.lab.audit.api import audit
from layerwise.verbs.lab.correlate.api import correlate
from layerwise.verbs.lab.data.api import data as prepare_task
from layerwise.verbs.lab.reproduce.corpora import corpora
from layerwise.verbs.lab.reproduce.experiment import Experiment, Step, Variant, load_experiment, without
from layerwise.verbs.lab.reproduce.findings import draw, judge, read_tables
from layerwise.verbs.lab.reproduce.inputs import FINDINGS, RELEASED, Inputs
from layerwise.verbs.lab.reproduce.means import mean_over_tasks
from layerwise.verbs.lab.reproduce.released import released_tables
from layerwise.verbs.lab.reproduce.spectra import power_law_entropies
from layerwise.verbs.lab.reproduce.tuning import Tuning, tune_once
from layerwise.verbs.lab.stress.api import stress
from layerwise.verbs.pick.cases import metric_curves
from layerwise.verbs.probe.api import probe
from layerwise.verbs.report.figures import FIGURES, draw_orders, panel_axes, save
from layerwise.verbs.report.plot import plot
from layerwise.verbs.scan.api import scan

TALL = 5.0  # inches: a panel with one line of colours per task
MODEL_FILES_CHANGED = "config.json"


@dataclass(frozen=True)
class Workplace:
    """Where the steps of one experiment read and write."""

    experiment: Experiment
    out: Path  # of all experiments at this scale
    inputs: Inputs
    threads: int | None = None
    progress: bool = False

    @property
    def folder(self) -> Path:
        return self.out / self.experiment.name

    @property
    def variant(self) -> Variant:
        return self.experiment.scales[self.inputs.scale]

    def find(self, reference: str) -> tuple[Path, Step]:
        """The folder or file stem of a step of this or another experiment, and the step."""
        name, dot, step_name = reference.partition("/")[0].rpartition(".")
        experiment = load_experiment(name) if dot else self.experiment
        step = next((s for s in experiment.scales[self.inputs.scale].steps if s.name == step_name), None)
        if step is None:
            raise InputError(f"{self.experiment.name} uses {reference}, but {experiment.name} has no such step")
        return self.out / experiment.name / step.name, step

    def runs(self, references: str | list[str]) -> list[Path]:
        """The run folders of steps, in the order of their models; after a slash, only those of one name."""
        folders = []
        for reference in [references] if isinstance(references, str) else references:
            place, step = self.find(reference)
            only = reference.partition("/")[2]
            names = [name for name in self.run_names(step) if only in ("", name)]
            if not names:
                raise InputError(f"{self.experiment.name} uses {reference}, but that step makes no such run")
            folders += [place / name for name in names]
        return folders

    def run_names(self, step: Step) -> list[str]:
        """The names of the runs that a step makes."""
        if step.verb == "released":
            return [run_name(name) for name in step.settings["models"]]
        if step.verb == "mean":
            return [folder.name for folder in self.runs(step.settings["of"])]
        models = [run_name(entry) for entry in step.settings["models"]]
        return [f"{model}{suffix}" for model in models for suffix in self.corpus_files(step)]

    def corpus_files(self, step: Step) -> dict[str, Path | None]:
        """What the name of a run ends with, and its file, if a step reads the corpora of an earlier one."""
        source = step.settings.get("data", {})
        if "of" not in source:
            return {"": None}
        place, made = self.find(source["of"])
        return {f"-{count}": place / f"{count}.parquet" for count in made.settings["classes"]}

    def model(self, entry: Any) -> ModelSpec:
        """A model of the user, or one that an earlier step made."""
        if isinstance(entry, Mapping) and "of" in entry:
            place, _ = self.find(entry["of"])
            return ModelSpec(**{**without(entry, "of"), "name": str(place / run_name(entry))})
        return self.inputs.model(entry)

    def source(self, spec: ModelSpec, settings: Mapping[str, Any], file: Path | None) -> Source:
        """The examples of a step, opened as its model takes them."""
        options = without(settings, "of") | {"data": file or self.inputs.file(settings["data"])}
        return open_source(**source_options(spec, **options))


def run_name(entry: Any) -> str:
    """The folder name of a model's run: its name, revision and part."""
    if isinstance(entry, str):
        return entry.replace("/", "--")
    extras = [str(entry[key]) for key in ("revision", "part") if entry.get(key)]
    made = "-" + entry["of"].rpartition(".")[2] if "of" in entry else ""
    return "@".join([entry["name"].replace("/", "--") + made, *extras])


def made_model(place: Workplace, step: Step, entry: str) -> Path:
    """The folder of a model that a step makes of another; its name, the label in figures, says what was done."""
    return place.folder / step.name / run_name({"of": step.name, "name": entry})


def run_step(place: Workplace, step: Step) -> list[Path]:
    """Runs one step; returns the tables and pictures that it wrote for people. Finished runs are read, not repeated."""
    return STEPS[step.verb](place, step)


def run_models(place: Workplace, step: Step) -> list[Path]:
    """One run per model and corpus."""
    options = dict(step.settings.get("options", {})) | {"threads": place.threads, "progress": place.progress}
    for entry in step.settings["models"]:
        spec = place.model(entry)
        for suffix, file in place.corpus_files(step).items():
            name = f"{run_name(entry)}{suffix}"
            announce(f"{place.experiment.name}: {step.verb} {name}")
            RUN_VERBS[step.verb](place, step, spec, file, {**options, "out": place.folder / step.name / name})
    return []


def run_scan_or_stress(
    place: Workplace, step: Step, spec: ModelSpec, file: Path | None, options: dict[str, Any]
) -> None:
    source = place.source(spec, step.settings["data"], file)
    (scan if step.verb == "scan" else stress)(spec, source, **options)


def run_probe(place: Workplace, step: Step, spec: ModelSpec, file: Path | None, options: dict[str, Any]) -> None:
    def opened(settings: Mapping[str, Any], path: Path | None) -> Source:
        chosen = without(settings, "data")
        where = path or place.inputs.file(settings["data"])
        return labelled(where, options["label"], kind=input_kind_of_model(spec), **without(chosen, "of"))

    test = step.settings.get("test")
    probe(spec, opened(step.settings["data"], file), None if test is None else opened(test, None), **options)


def run_eval(place: Workplace, step: Step, spec: ModelSpec, file: Path | None, options: dict[str, Any]) -> None:
    root = step.settings.get("data_root")
    evaluate(spec, step.settings["tasks"], data_root=None if root is None else place.find(root)[0], **options)


RUN_VERBS: Mapping[str, Callable[..., None]] = {
    "scan": run_scan_or_stress, "stress": run_scan_or_stress, "probe": run_probe, "eval": run_eval,
}  # fmt: skip


def prepare_tasks(place: Workplace, step: Step) -> list[Path]:
    """A data root for `eval`, from labelled tables; tasks that are there already are left as they are."""
    root = place.folder / step.name
    for name, task in step.settings["tasks"].items():
        if not (root / name).exists():
            files = {key: place.inputs.file(task[key]) for key in ("test", "train") if key in task}
            prepare_task(root, name, **{**step.settings.get("options", {}), **task, **files})
    return []


def write_released(place: Workplace, step: Step) -> list[Path]:
    """One run folder per model with the authors' published numbers."""
    folder = Path(place.inputs.file(RELEASED))
    settings = step.settings
    for name, table in released_tables(folder, settings["kind"], settings["models"], settings.get("where", {})).items():
        save_table(table, place.folder / step.name / run_name(name))
    return []


def write_means(place: Workplace, step: Step) -> list[Path]:
    for folder in place.runs(step.settings["of"]):
        save_table(mean_over_tasks(LayerTable.load(folder)), place.folder / step.name / folder.name)
    return []


def save_table(table: LayerTable, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table.save(folder)


def write_corpora(place: Workplace, step: Step) -> list[Path]:
    settings = step.settings
    frame = read_table(place.inputs.file(settings["table"]))
    for count, corpus in corpora(frame, settings["label"], settings["classes"], settings["texts"]):
        buffer = io.BytesIO()
        corpus.to_parquet(buffer, index=False)
        path = place.folder / step.name / f"{count}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    return []


def write_bidirectional(place: Workplace, step: Step) -> list[Path]:
    """The model with attention in both directions, without training: the same files, and one changed line of config."""
    for entry in step.settings["models"]:
        source = Path(place.inputs.model(entry).name)
        target = made_model(place, step, entry)
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(source.iterdir()):
            if file.name != MODEL_FILES_CHANGED and not os.path.lexists(target / file.name):
                (target / file.name).symlink_to(file.resolve())
        config = json.loads((source / MODEL_FILES_CHANGED).read_text(encoding="utf-8")) | {"is_causal": False}
        write_atomically(target / MODEL_FILES_CHANGED, json.dumps(config, indent=1).encode())
    return []


def write_tuned(place: Workplace, step: Step) -> list[Path]:
    """The models after a short training, and a table of what it did to the loss."""
    settings = without(without(step.settings, "models"), "data")
    rows = []
    with torch_threads(place.threads or torch.get_num_threads()):
        for entry in step.settings["models"]:
            spec = place.inputs.model(entry)
            texts = [example.text for example in place.source(spec, step.settings["data"], None)]
            announce(f"{place.experiment.name}: tune {run_name(entry)}, {settings['steps']:,} steps")
            made = tune_once(spec, texts, Tuning(**settings), made_model(place, step, entry))
            rows.append({"model": run_name(entry), **settings, **asdict(made)})
    return [write_csv(pd.DataFrame(rows), place.folder / f"{step.name}.csv")]


def write_correlations(place: Workplace, step: Step) -> list[Path]:
    """The correlations of a scan's metrics with an eval's scores; of a task's own metrics, where the scan has them."""
    scans, evaluations = (place.runs(reference) for reference in step.settings["of"])
    frames = []
    for scan_folder, eval_folder in zip(scans, evaluations, strict=True):
        metrics, scores = LayerTable.load(scan_folder), LayerTable.load(eval_folder)
        scores = before_norm(scores) if step.settings.get("across_norms") else scores
        own = sorted({row.metric for row in scores} & {row.data for row in metrics})
        pairs = [(metrics.where(data=task), scores.where(metric=task)) for task in own] or [(metrics, scores)]
        frames += [correlate(*pair).assign(model=scan_folder.name) for pair in pairs]
    return [write_csv(pd.concat(frames), place.folder / f"{step.name}.csv")]


def before_norm(table: LayerTable) -> LayerTable:
    """The scores under the name of hidden states before the final norm, to pair them with metrics as the paper does."""
    return LayerTable(tuple(replace(row, norm="raw") for row in table), table.run)


def write_audit(place: Workplace, step: Step) -> list[Path]:
    """How much of the gap between last and best layer rules recover, for each model."""
    evaluations, scans = (
        [LayerTable.load(folder) for folder in place.runs(reference)] for reference in step.settings["of"]
    )
    if step.settings.get("across_norms"):
        evaluations = [before_norm(table) for table in evaluations]
    scores, metrics = [], []
    for evaluation, measured in zip(evaluations, scans, strict=True):
        model = next(iter(evaluation)).model.rpartition("/")[2]
        tasks = {row.metric for row in evaluation}
        own = sorted(tasks & {row.data for row in measured})
        parts = {task: measured.where(data=task) for task in own} or {"": measured}
        scores += [(model, model, *row) for row in curve_rows(evaluation) if not own or row[0] in own]
        metrics += [(model, task, *row) for task, part in parts.items() for row in curve_rows(part)]
    frame = audit(
        pd.DataFrame(scores, columns=["family", "model", "task", "layer", "score"]),
        pd.DataFrame(metrics, columns=["model", "task", "metric", "layer", "value"]),
        rules=step.settings["rules"],
    )
    return [write_csv(frame, place.folder / f"{step.name}.csv")]


def curve_rows(table: LayerTable) -> list[tuple[str, int, float]]:
    """Name, layer and value of each curve of a table; the last layer after the final norm."""
    return [(name, k, value) for name, curve in metric_curves(table).items() for k, value in enumerate(curve)]


def write_spectra(place: Workplace, step: Step) -> list[Path]:
    frame = power_law_entropies(**step.settings)
    path = place.folder / f"{step.name}.png"
    save(draw_orders(frame), path)
    return [write_csv(frame, path.with_suffix(".csv")), path]


def write_tasks(place: Workplace, step: Step) -> list[Path]:
    rows = [(task.name, task.type) for task in choose_tasks(step.settings["names"])]
    return [write_csv(pd.DataFrame(rows, columns=["task", "type"]), place.folder / f"{step.name}.csv")]


def write_findings(place: Workplace, step: Step) -> list[Path]:
    """What the tables of several models say about each claim, and a picture."""
    scores, metrics = read_tables(*map(place.inputs.file, FINDINGS))
    tables = judge(scores, metrics)
    for row in tables["claims"].itertuples():
        announce(f"  {row.claim}. {row.text}: {row.verdict}")
    picture = place.folder / f"{step.name}.png"
    save(draw(scores), picture)
    return [*(write_csv(table, place.folder / f"{name}.csv") for name, table in tables.items()), picture]


def draw_panels(place: Workplace, step: Step) -> list[Path]:
    """One picture with a panel for each entry."""
    panels = step.settings["panels"]
    heights = [TALL for panel in panels if panel.get("figure") == "correlation"]
    axes = panel_axes(len(panels), heights)
    for ax, panel in zip(axes, panels, strict=True):
        options, reference = without(without(panel, "of"), "title"), panel["of"]
        if options.get("figure") == "correlation":
            file, _ = place.find(reference)
            frame = pd.read_csv(file.with_suffix(".csv"))
            model = reference.partition("/")[2]
            frame = frame[frame.model == model] if model else frame
            FIGURES["correlation"](frame, ax=ax, **without(options, "figure"))
        else:
            plot(place.runs(reference), ax=ax, **options)
        if "title" in panel:
            ax.set_xlabel(f"{panel['title']}: {ax.get_xlabel()}".removesuffix(": "))
    path = place.folder / f"{step.name}.png"
    save(axes[0], path)
    return [path]


def write_csv(frame: pd.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, frame.to_csv(index=False).encode())
    return path


STEPS: Mapping[str, Callable[[Workplace, Step], list[Path]]] = {
    **dict.fromkeys(RUN_VERBS, run_models),
    "data": prepare_tasks,
    "released": write_released,
    "corpora": write_corpora,
    "bidirectional": write_bidirectional,
    "tune": write_tuned,
    "mean": write_means,
    "correlate": write_correlations,
    "audit": write_audit,
    "spectra": write_spectra,
    "tasks": write_tasks,
    "findings": write_findings,
    "plot": draw_panels,
}
