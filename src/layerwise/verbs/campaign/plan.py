"""A campaign file, read and checked: models x revisions x data x settings, one cell per scan."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.files import Folder, open_folder
from layerwise.core.formats import read_yaml
from layerwise.core.options import flag_names, problems_in, unknown_name_problems
from layerwise.engines.opening import to_cluster
from layerwise.engines.options import Cluster, EngineChoice
from layerwise.inputs.options import TextOptions
from layerwise.models.spec import ModelSpec
from layerwise.verbs.campaign.options import CampaignOptions
from layerwise.verbs.scan.options import SETTINGS, ScanOptions

MAX_NAME_BYTES = 200  # bytes; file systems allow 255


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

    def folder(self, cell: Cell) -> Folder:
        """The run folder of one scan.

        Args:
            cell: which scan.
        """
        return open_folder(self.out, cell.name)

    @classmethod
    def load(cls, path: str | Path) -> "Campaign":
        """Loads a YAML file; reports all problems at once.

        Args:
            path: the file.
        """
        if not str(path):
            raise InputError("no campaign file was given: its name is empty")
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
