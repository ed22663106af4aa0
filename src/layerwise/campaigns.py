"""Campaigns: scans of models x revisions x data x settings from one file, resumable, into one table."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.formats import read_yaml, record_bytes
from layerwise.core.hashes import file_hash
from layerwise.core.progress import GO_ON
from layerwise.engines.opening import default_threads, open_engine, to_cluster
from layerwise.engines.ray_cluster import connected, worker_count
from layerwise.engines.shards import torch_threads
from layerwise.inputs.modalities import MEDIA, open_source
from layerwise.inputs.text import SUFFIXES
from layerwise.models.fingerprint import hash_lines, weight_files_hash
from layerwise.models.opening import source_options
from layerwise.models.shipped import read_shipped
from layerwise.options.campaign import CampaignOptions
from layerwise.options.engine import Cluster, EngineChoice
from layerwise.options.field import flag_names, problems_in, unknown_name_problems
from layerwise.options.model import ModelSpec
from layerwise.options.record import call_record
from layerwise.options.scan import SETTINGS, ScanOptions
from layerwise.options.texts import TextOptions
from layerwise.runs.claims import claim
from layerwise.runs.records import CELL
from layerwise.runs.table import RUN_FILE, LayerTable
from layerwise.sweep.prepare import forecast_scan, prepare
from layerwise.sweep.run import run_scan

MAX_NAME_BYTES = 200  # bytes; file systems allow 255
MODEL_BUILD_LOCK = Lock()  # building a model with transformers changes the default dtype of the whole process


@dataclass(frozen=True)
class Cell:
    """One scan of a campaign: a model, data and settings."""

    model: ModelSpec
    data_name: str
    data: Mapping[str, Any]
    settings_name: str
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A unique name for each scan of a campaign, used as its folder."""
        defaults = ModelSpec("")
        model = f"{self.model.name.strip('/')}@{self.model.revision or 'main'}"
        for part in ("dtype", "adapter", "part"):
            if (value := getattr(self.model, part)) != getattr(defaults, part):
                model += f"+{str(value).strip('/')}"
        return f"{model.replace('/', '--')}/{self.data_name}/{self.settings_name}"

    def record(self) -> dict[str, Any]:
        return {"model": asdict(self.model), "data": dict(self.data), "settings": dict(self.settings)}


@dataclass(frozen=True)
class Campaign:
    """A campaign file that was read and checked: every model and revision, on all data, with all settings.

    Args:
        out: folder or url for the results.
        cells: one scan each: a model, its data and its settings.
        engine: "local", "ray", or a Cluster.
        allow_missing: how many texts of a scan may fail and be left out.
        file: where it was read from.
    """

    out: str
    cells: tuple[Cell, ...]
    engine: EngineChoice | Cluster = "local"
    allow_missing: int = 0
    file: str = ""  # where it was read from

    @classmethod
    def load(cls, path: str | Path) -> "Campaign":
        """Loads a YAML file; reports all problems at once.

        Args:
            path: the file.
        """
        return replace(cls.parse(read_yaml(Path(path)), str(path)), file=str(path))

    @classmethod
    def parse(cls, content: object, where: str) -> "Campaign":
        """Checks the content of a campaign file.

        Args:
            content: what YAML made of the file.
            where: the file, for error messages.
        """
        if not isinstance(content, dict):
            raise InputError(f"{where} must have the keys out, models, data and settings")
        parser = CampaignParser(where)
        parser.check_options(content, flag_names(CampaignOptions), "the campaign", CampaignOptions)
        models = [m for entry in parser.parse_list(content, "models") for m in parser.parse_models(entry)]
        texts = content.get("data", {"demo": {"data": "demo"}})
        data = parser.parse_named(texts, "data", flag_names(TextOptions), TextOptions)
        settings = parser.parse_named(content.get("settings", {"default": {}}), "settings", SETTINGS, ScanOptions)
        engine = parser.parse_engine(content.get("engine", "local"))
        if not isinstance(content.get("out"), str) or not content["out"].strip():
            parser.problems.append("out: name a folder or url for the results")
        cells = tuple(Cell(m, d, data[d], s, settings[s]) for m in models for d in data for s in settings)
        for name, count in Counter(cell.name for cell in cells).items():
            if not name.isprintable() or max(map(len, name.encode().split(b"/"))) > MAX_NAME_BYTES:
                parser.problems.append(f"{name[:80]!r} cannot be used as a folder name")
            if count > 1:
                parser.problems.append(f"{name} is listed {count} times")
        parser.raise_problems()
        return cls(content["out"], cells, engine, content.get("allow_missing", 0))


@dataclass
class CampaignParser:
    """Parses a campaign file and collects all problems."""

    where: str
    problems: list[str] = field(default_factory=list)

    def check_options(self, values: Mapping[str, Any], names: tuple[str, ...], subject: str, options: type) -> bool:
        """True if all names are known and the options accept all values."""
        problems = unknown_name_problems(values, names, subject)
        problems += [f"{subject}: {problem}" for problem in problems_in(options, values)]
        self.problems += problems
        return not problems

    def parse_list(self, content: Mapping[str, Any], name: str) -> list[Any]:
        entries = content.get(name)
        if not isinstance(entries, list) or not entries:
            self.problems.append(f"{name}: give a non-empty list")
            return []
        return entries

    def parse_models(self, entry: Any) -> Iterator[ModelSpec]:
        """A name, or a name with options and `revisions`."""
        entry = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            self.problems.append(f"a model must be a name, or a mapping with name: and options, not {entry!r}")
            return
        names = flag_names(ModelSpec)
        if not self.check_options(entry, (*names, "revisions"), f"model {entry['name']}", ModelSpec):
            return
        options = {name: value for name, value in entry.items() if name in names}
        revisions = entry.get("revisions", [entry.get("revision")])
        if not isinstance(revisions, list):
            self.problems.append(f"model {entry['name']}: revisions must be a list")
            return
        for revision in revisions:
            yield ModelSpec(**options | {"revision": None if revision is None else str(revision)})

    def parse_named(
        self, groups: Any, subject: str, names: tuple[str, ...], options: type
    ) -> dict[str, dict[str, Any]]:
        """Parses named groups of options."""
        if not isinstance(groups, dict) or not groups or not all(isinstance(v, dict) for v in groups.values()):
            self.problems.append(f"{subject}: give a mapping from names to options, such as wiki: {{{names[0]}: ...}}")
            return {}
        for name, values in groups.items():
            if not str(name).replace("-", "").replace("_", "").isalnum():
                self.problems.append(f"{subject} {name!r}: use only letters, digits, - and _ in names")
            self.check_options(values, names, f"{subject} {name}", options)
            if subject == "data" and "data" not in values:
                self.problems.append(f"data {name}: add the file or data set, such as data: texts.parquet")
        return {str(name): values for name, values in groups.items()}

    def parse_engine(self, value: Any) -> EngineChoice | Cluster:
        if isinstance(value, dict) and not self.check_options(value, flag_names(Cluster), "engine", Cluster):
            return "local"
        try:
            return Cluster(**value) if isinstance(value, dict) else to_cluster(value) if value != "local" else "local"
        except (InputError, TypeError) as error:
            self.problems.append(f"engine: {error}")
            return "local"

    def raise_problems(self) -> None:
        if self.problems:
            raise InputError(f"{self.where}: " + "; ".join(self.problems))


@dataclass(frozen=True)
class Event:
    """Progress of one scan of a campaign.

    Attributes:
        cell: which scan.
        status: waiting, running, done or failed.
        prompts: texts that were read since the last event.
        tokens: tokens that were read since the last event.
        why: the reason, if it failed.
    """

    cell: Cell
    status: str
    prompts: int = 0
    tokens: int = 0
    why: str = ""


OnEvent = Callable[[Event], None]


def campaign(file: "str | Path | Campaign", on_event: OnEvent = lambda event: None) -> LayerTable:
    """Runs the scans of a campaign that are not done yet, and joins all of them into one table in its folder.

    Each model is loaded once for all its data and settings. On Ray, several models run at the same time and share the
    workers evenly. A scan that fails does not stop the others; failures are reported at the end.

    Args:
        file: A YAML file with the keys out, models, data, settings, engine and allow_missing (docs/scale.md), or a
            loaded Campaign.
        on_event: Called with an Event when a scan waits, runs, is done or fails. By default nothing is called.

    Returns:
        The rows of all finished scans. The same table is saved in the campaign's folder.

    Raises:
        InputError: The file cannot be used; the message lists every problem.
        RunError: Some scans failed, or a folder holds a scan with other settings.

    Example:
        >>> plan = {"out": str(folder / "out"), "models": [model], "settings": {"one": {"metrics": "curvature"}}}
        >>> _ = (folder / "plan.yaml").write_text(str(plan))
        >>> len(layerwise.campaign(folder / "plan.yaml")) > 0
        True
    """
    plan = file if isinstance(file, Campaign) else Campaign.load(file)
    claim(open_folder(plan.out), "campaign")
    pending: dict[ModelSpec, list[Cell]] = {}
    for cell in plan.cells:
        status = "done" if is_done(plan, cell) else "waiting"
        on_event(Event(cell, status))
        if status == "waiting":
            pending.setdefault(cell.model, []).append(cell)
    try:
        failed = run_locally(plan, pending, on_event) if plan.engine == "local" else run_on_ray(plan, pending, on_event)
    except KeyboardInterrupt as stopped:
        if done := sum(is_done(plan, cell) for cell in plan.cells):
            stopped.add_note(f"{done} of {len(plan.cells)} scans are done; {GO_ON}")
        raise
    tables = [LayerTable.load(cell_folder(plan, cell)) for cell in plan.cells if is_done(plan, cell)]
    table = LayerTable.join(tables)
    table.save(plan.out)
    if failed:
        reasons = "; ".join(dict.fromkeys(f"{model.name}: {why}" for model, why in failed))
        message = f"{len(failed)} of {len(plan.cells)} scans failed; the others are in the table. {reasons}"
        raise RunError(f"{message}. Run the same command again to retry")
    return table


Failures = list[tuple[ModelSpec, str]]  # one per scan, with the reason


def run_locally(plan: Campaign, pending: Mapping[ModelSpec, Sequence[Cell]], on_event: OnEvent) -> Failures:
    return [failure for cells in pending.values() for failure in run_model(plan, "local", cells, on_event)]


def run_on_ray(plan: Campaign, pending: Mapping[ModelSpec, Sequence[Cell]], on_event: OnEvent) -> Failures:
    """Runs several models at once, each with a share of the workers."""
    cluster = to_cluster(plan.engine)
    # Threads are set once for this process: the models below share it, and each would restore what it found.
    with connected(cluster), torch_threads(default_threads(cluster)):
        workers = worker_count(cluster)
        parallel_models = max(1, min(len(pending), workers))
        cluster_share = replace(cluster, workers=workers // parallel_models)
        with ThreadPoolExecutor(parallel_models) as pool:
            jobs = [pool.submit(run_model, plan, cluster_share, cells, on_event) for cells in pending.values()]
            try:
                return [failure for job in jobs for failure in job.result()]
            except BaseException:  # an interrupt: models that have not started do not start
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def run_model(plan: Campaign, engine: EngineChoice | Cluster, cells: Sequence[Cell], on_event: OnEvent) -> Failures:
    """Runs the scans of one model one by one; failures are returned, not raised."""
    failed: Failures = []

    def record_failure(cell: Cell, error: Exception) -> None:
        why = str(error) if isinstance(error, LayerwiseError) else f"{type(error).__name__}: {error}"
        failed.append((cell.model, why))
        on_event(Event(cell, "failed", why=why))

    try:
        with open_engine(engine, cells[0].model, plan.out) as running_engine:
            for cell in cells:
                try:
                    run_cell(plan, cell, running_engine, on_event)
                    on_event(Event(cell, "done"))
                except Exception as error:  # of any kind: the other scans do not depend on it
                    record_failure(cell, error)
    except Exception as error:  # the model cannot be loaded
        for cell in cells:
            record_failure(cell, error)
    return failed


def run_cell(plan: Campaign, cell: Cell, engine: Any, on_event: OnEvent) -> None:
    folder = cell_folder(plan, cell)
    options = ScanOptions(**cell.settings, out=str(folder), engine=plan.engine, allow_missing=plan.allow_missing)
    with MODEL_BUILD_LOCK:
        source = open_source(**source_options(cell.model, **cell.data))
        scan_plan, source, info = prepare(cell.model, source, options, threads=default_threads(plan.engine))
    forecast_scan(cell.model, scan_plan, source, info, loaded=True).require_fit()
    claim(folder, "scan")
    hashes = {"data_hash": data_file_hash(cell), "model_hash": model_files_hash(cell)}
    folder.write(CELL.file, CELL.dump(cell.record() | hashes))
    on_event(Event(cell, "running"))
    run_scan(
        engine,
        scan_plan,
        source,
        out=folder,
        allow_missing=plan.allow_missing,
        options=call_record("scan", options, model=cell.model, data=source.options) | {"campaign": plan.file},
        on_batch=lambda prompts, tokens: on_event(Event(cell, "running", prompts, tokens)),
    )


def cell_folder(plan: Campaign, cell: Cell) -> Folder:
    return open_folder(plan.out, cell.name)


def is_done(plan: Campaign, cell: Cell) -> bool:
    """True if the cell has a table; raises where the folder holds another scan, or its data file has changed."""
    folder = cell_folder(plan, cell)
    data = folder.read(CELL.file)
    if data is None:
        return False
    record = CELL.parse(data, f"{folder}/{CELL.file}")
    recorded_hash = record.pop("data_hash", None)  # not recorded by earlier versions
    recorded_model = record.pop("model_hash", None)
    if record != json.loads(record_bytes(cell.record())):
        raise RunError(
            f"{folder} contains a scan with other settings; rename the data or the settings in the campaign file"
        )
    if recorded_hash is not None and recorded_hash != data_file_hash(cell):
        problem = f"{cell.data['data']} has changed since {folder} was scanned"
        raise RunError(f"{problem}; rename the changed data in the campaign file, or delete that folder")
    if recorded_model is not None and recorded_model != model_files_hash(cell):
        problem = f"the files of {cell.model.name} have changed since {folder} was scanned"
        raise RunError(f"{problem}; move the changed model to another path, or delete that folder")
    return folder.read(RUN_FILE) is not None


def model_files_hash(cell: Cell) -> str:
    """A hash of the files of a model in a local folder; "" for a model of the hub, which its revision identifies."""
    folder = Path(cell.model.name)
    if not folder.is_dir():
        return ""
    json_files = [path for path in sorted(folder.glob("*.json")) if path.is_file()]
    weights = weight_files_hash(cell.model.name, None, read_shipped(cell.model.name), cell.model.adapter) or ""
    return hash_lines([weights, *(f"{path.name} {file_hash(path)}" for path in json_files)])


def data_file_hash(cell: Cell) -> str:
    """A hash of a cell's data file, or of all media files in its folder; "" where the data are not on this machine."""
    path = Path(str(cell.data["data"]))
    if path.is_dir():
        return hash_lines([f"{file.relative_to(path)} {file_hash(file)}" for file in media_files(path)])
    suffixes = {*SUFFIXES, *(suffix for medium in MEDIA for suffix in medium.suffixes)}
    if path.suffix.lower() not in suffixes or not path.is_file():
        return ""
    return file_hash(path)


def media_files(folder: Path) -> list[Path]:
    """All audio and image files of a folder."""
    return sorted(file for medium in MEDIA for file in medium.files_in(folder))
