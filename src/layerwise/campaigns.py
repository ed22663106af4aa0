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
from layerwise.core.formats import record_bytes
from layerwise.core.hashes import file_hash
from layerwise.core.progress import GO_ON
from layerwise.engines.opening import as_cluster, open_engine, threads_of
from layerwise.engines.ray_cluster import joined, workers_of
from layerwise.engines.shards import threads
from layerwise.inputs.text import SUFFIXES, open_texts
from layerwise.models.fingerprint import hash_of, weights_in_files
from layerwise.models.load import load_tokenizer
from layerwise.models.shipped import read_shipped
from layerwise.options.campaign import CampaignOptions
from layerwise.options.engine import Cluster, EngineWord
from layerwise.options.field import flag_names, problems_in, unknown_names
from layerwise.options.model import ModelSpec
from layerwise.options.record import asked
from layerwise.options.scan import SETTINGS, ScanOptions
from layerwise.options.texts import TextOptions
from layerwise.runs.claims import claim
from layerwise.runs.records import CELL
from layerwise.runs.table import RUN_FILE, LayerTable
from layerwise.sweep.prepare import forecast_of, prepare
from layerwise.sweep.run import run_scan

LONGEST_NAME = 200  # bytes; file systems allow 255
YAML_BYTES_AT_MOST = 256_000  # enough for thousands of models
YAML_LEVELS_AT_MOST = 20
OUTLINING = Lock()  # building a model with transformers changes the default dtype of the whole process


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
        usual = ModelSpec("")
        model = f"{self.model.name.strip('/')}@{self.model.revision or 'main'}"
        for part in ("dtype", "adapter", "part"):
            if (word := getattr(self.model, part)) != getattr(usual, part):
                model += f"+{str(word).strip('/')}"
        return f"{model.replace('/', '--')}/{self.data_name}/{self.settings_name}"

    def record(self) -> dict[str, Any]:
        return {"model": asdict(self.model), "data": dict(self.data), "settings": dict(self.settings)}


@dataclass(frozen=True)
class Campaign:
    """A campaign file that was read and checked: every model and revision, on all data, with all settings."""

    out: str
    cells: tuple[Cell, ...]
    engine: EngineWord | Cluster = "local"
    allow_missing: int = 0
    file: str = ""  # where it was read from

    @classmethod
    def load(cls, path: str | Path) -> "Campaign":
        """Loads a YAML file; reports all problems at once."""
        return replace(cls.parse(read_yaml(Path(path)), str(path)), file=str(path))

    @classmethod
    def parse(cls, content: Any, where: str) -> "Campaign":
        if not isinstance(content, dict):
            raise InputError(f"{where} must have the keys out, models, data and settings")
        checked = Checked(where)
        checked.known(content, flag_names(CampaignOptions), "the campaign", CampaignOptions)
        models = [m for given in checked.items(content, "models") for m in checked.models(given)]
        texts = content.get("data", {"demo": {"data": "demo"}})
        data = checked.named(texts, "data", flag_names(TextOptions), TextOptions)
        settings = checked.named(content.get("settings", {"default": {}}), "settings", SETTINGS, ScanOptions)
        engine = checked.engine(content.get("engine", "local"))
        if not isinstance(content.get("out"), str) or not content["out"].strip():
            checked.problems.append("out: name a folder or url for the results")
        cells = tuple(Cell(m, d, data[d], s, settings[s]) for m in models for d in data for s in settings)
        for name, times in Counter(cell.name for cell in cells).items():
            if not name.isprintable() or max(map(len, name.encode().split(b"/"))) > LONGEST_NAME:
                checked.problems.append(f"{name[:80]!r} cannot be used as a folder name")
            if times > 1:
                checked.problems.append(f"{name} is listed {times} times")
        checked.finish()
        return cls(content["out"], cells, engine, content.get("allow_missing", 0))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file. Aliases are refused: a few lines of them can fill any memory."""
    import yaml

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > YAML_LEVELS_AT_MOST:
                raise InputError(f"{path} is nested too deeply for a campaign file")
            if self.check_event(yaml.AliasEvent):
                alias = self.peek_event()
                raise InputError(
                    f"{path}, line {alias.start_mark.line + 1}: aliases such as *{alias.anchor} are not allowed in a "
                    "campaign; write the value out"
                )
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    try:
        if path.stat().st_size > YAML_BYTES_AT_MOST:
            raise InputError(f"{path} is larger than {YAML_BYTES_AT_MOST:,} bytes; split the campaign into several")
        return yaml.load(path.read_text(encoding="utf-8"), PlainLoader)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason})") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from None


@dataclass
class Checked:
    """Parses a campaign file and collects all problems."""

    where: str
    problems: list[str] = field(default_factory=list)

    def known(self, given: Mapping[str, Any], names: tuple[str, ...], what: str, options: type) -> bool:
        """True if all names are known and the options accept all values."""
        found = unknown_names(given, names, what)
        found += [f"{what}: {problem}" for problem in problems_in(options, given)]
        self.problems += found
        return not found

    def items(self, content: Mapping[str, Any], name: str) -> list[Any]:
        found = content.get(name)
        if not isinstance(found, list) or not found:
            self.problems.append(f"{name}: give a non-empty list")
            return []
        return found

    def models(self, given: Any) -> Iterator[ModelSpec]:
        """A name, or a name with options and `revisions`."""
        given = {"name": given} if isinstance(given, str) else given
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            self.problems.append(f"a model must be a name, or a mapping with name: and options, not {given!r}")
            return
        names = flag_names(ModelSpec)
        if not self.known(given, (*names, "revisions"), f"model {given['name']}", ModelSpec):
            return
        options = {name: value for name, value in given.items() if name in names}
        revisions = given.get("revisions", [given.get("revision")])
        if not isinstance(revisions, list):
            self.problems.append(f"model {given['name']}: revisions must be a list")
            return
        for revision in revisions:
            yield ModelSpec(**options | {"revision": None if revision is None else str(revision)})

    def named(self, given: Any, what: str, names: tuple[str, ...], options: type) -> dict[str, dict[str, Any]]:
        """Parses named groups of options."""
        if not isinstance(given, dict) or not given or not all(isinstance(v, dict) for v in given.values()):
            self.problems.append(f"{what}: give a mapping from names to options, such as wiki: {{{names[0]}: ...}}")
            return {}
        for name, values in given.items():
            if not str(name).replace("-", "").replace("_", "").isalnum():
                self.problems.append(f"{what} {name!r}: use only letters, digits, - and _ in names")
            self.known(values, names, f"{what} {name}", options)
            if what == "data" and "data" not in values:
                self.problems.append(f"data {name}: add the file or data set, such as data: texts.parquet")
        return {str(name): values for name, values in given.items()}

    def engine(self, given: Any) -> EngineWord | Cluster:
        if isinstance(given, dict) and not self.known(given, flag_names(Cluster), "engine", Cluster):
            return "local"
        try:
            return Cluster(**given) if isinstance(given, dict) else as_cluster(given) if given != "local" else "local"
        except (InputError, TypeError) as error:
            self.problems.append(f"engine: {error}")
            return "local"

    def finish(self) -> None:
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
    waiting: dict[ModelSpec, list[Cell]] = {}
    for cell in plan.cells:
        status = "done" if is_done(plan, cell) else "waiting"
        on_event(Event(cell, status))
        if status == "waiting":
            waiting.setdefault(cell.model, []).append(cell)
    try:
        failed = run_here(plan, waiting, on_event) if plan.engine == "local" else run_on_ray(plan, waiting, on_event)
    except KeyboardInterrupt as stopped:
        if done := sum(is_done(plan, cell) for cell in plan.cells):
            stopped.add_note(f"{done} of {len(plan.cells)} scans are done; {GO_ON}")
        raise
    tables = [LayerTable.load(folder_of(plan, cell)) for cell in plan.cells if is_done(plan, cell)]
    table = LayerTable.join(tables)
    table.save(plan.out)
    if failed:
        reasons = "; ".join(dict.fromkeys(f"{model.name}: {why}" for model, why in failed))
        message = f"{len(failed)} of {len(plan.cells)} scans failed; the others are in the table. {reasons}"
        raise RunError(f"{message}. Run the same command again to retry")
    return table


Failures = list[tuple[ModelSpec, str]]  # one per scan, with the reason


def run_here(plan: Campaign, waiting: Mapping[ModelSpec, Sequence[Cell]], on_event: OnEvent) -> Failures:
    return [failure for cells in waiting.values() for failure in run_model(plan, "local", cells, on_event)]


def run_on_ray(plan: Campaign, waiting: Mapping[ModelSpec, Sequence[Cell]], on_event: OnEvent) -> Failures:
    """Runs several models at once, each with a share of the workers."""
    cluster = as_cluster(plan.engine)
    # Threads are set once for this process: the models below share it, and each would restore what it found.
    with joined(cluster), threads(threads_of(cluster)):
        workers = workers_of(cluster)
        at_once = max(1, min(len(waiting), workers))
        share = replace(cluster, workers=workers // at_once)
        with ThreadPoolExecutor(at_once) as pool:
            jobs = [pool.submit(run_model, plan, share, cells, on_event) for cells in waiting.values()]
            try:
                return [failure for job in jobs for failure in job.result()]
            except BaseException:  # an interrupt: models that have not started do not start
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def run_model(plan: Campaign, engine: EngineWord | Cluster, cells: Sequence[Cell], on_event: OnEvent) -> Failures:
    """Runs the scans of one model one by one; failures are returned, not raised."""
    failed: Failures = []

    def fail(cell: Cell, error: Exception) -> None:
        why = str(error) if isinstance(error, LayerwiseError) else f"{type(error).__name__}: {error}"
        failed.append((cell.model, why))
        on_event(Event(cell, "failed", why=why))

    try:
        with open_engine(engine, cells[0].model, plan.out) as opened:
            for cell in cells:
                try:
                    run_cell(plan, cell, opened, on_event)
                    on_event(Event(cell, "done"))
                except Exception as error:  # of any kind: the other scans do not depend on it
                    fail(cell, error)
    except Exception as error:  # the model cannot be loaded
        for cell in cells:
            fail(cell, error)
    return failed


def run_cell(plan: Campaign, cell: Cell, opened: Any, on_event: OnEvent) -> None:
    folder = folder_of(plan, cell)
    tokenizer = load_tokenizer(cell.model) if cell.data.get("min_tokens") else None
    source = open_texts(**cell.data, tokenizer=tokenizer)
    options = ScanOptions(**cell.settings, out=str(folder), engine=plan.engine, allow_missing=plan.allow_missing)
    with OUTLINING:
        scan_plan, source, outline = prepare(cell.model, source, options, threads=threads_of(plan.engine))
    forecast_of(cell.model, scan_plan, source, outline, loaded=True).require_fit()
    claim(folder, "scan")
    hashes = {"data_hash": hash_of_data(cell), "model_hash": hash_of_model(cell)}
    folder.write(CELL.file, CELL.dump(cell.record() | hashes))
    on_event(Event(cell, "running"))
    run_scan(
        opened,
        scan_plan,
        source,
        out=folder,
        allow_missing=plan.allow_missing,
        options=asked("scan", options, model=cell.model, data=source.options) | {"campaign": plan.file},
        on_batch=lambda prompts, tokens: on_event(Event(cell, "running", prompts, tokens)),
    )


def folder_of(plan: Campaign, cell: Cell) -> Folder:
    return open_folder(plan.out, cell.name)


def is_done(plan: Campaign, cell: Cell) -> bool:
    """True if the cell has a table; raises where the folder holds another scan, or its data file has changed."""
    folder = folder_of(plan, cell)
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
    if recorded_hash is not None and recorded_hash != hash_of_data(cell):
        changed = f"{cell.data['data']} has changed since {folder} was scanned"
        raise RunError(f"{changed}; rename the changed data in the campaign file, or delete that folder")
    if recorded_model is not None and recorded_model != hash_of_model(cell):
        changed = f"the files of {cell.model.name} have changed since {folder} was scanned"
        raise RunError(f"{changed}; move the changed model to another path, or delete that folder")
    return folder.read(RUN_FILE) is not None


def hash_of_model(cell: Cell) -> str:
    """A hash of the files of a model in a local folder; "" for a model of the hub, which its revision identifies."""
    folder = Path(cell.model.name)
    if not folder.is_dir():
        return ""
    small = [path for path in sorted(folder.glob("*.json")) if path.is_file()]
    weights = weights_in_files(cell.model.name, None, read_shipped(cell.model.name), cell.model.adapter) or ""
    return hash_of([weights, *(f"{path.name} {file_hash(path)}" for path in small)])


def hash_of_data(cell: Cell) -> str:
    """A hash of the bytes of a cell's data file; "" where the texts are not in a local file."""
    path = Path(str(cell.data["data"]))
    if path.suffix not in SUFFIXES or not path.is_file():
        return ""
    return file_hash(path)
