"""What audio and images share: opening files, folders, tables, hub data sets and lists as a Source."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.core.errors import InputError
from layerwise.core.hub import read_offline
from layerwise.core.option_records import options_record
from layerwise.inputs.options import AudioOptions, ImageOptions, TextOptions
from layerwise.inputs.source import HasContent, Payload, Source
from layerwise.inputs.tables import READERS, missing_file_message, read_records, require_text_file
from layerwise.inputs.text import cells_in, dataset_records, require_dataset
from layerwise.runs.summary import counted

Row = tuple[str | None, Payload | None]  # (id or None, input or None)


@dataclass(frozen=True)
class Medium:
    """What differs between kinds of media files."""

    noun: str  # what a model takes: audio, images
    unit: str  # what one input is called in messages
    plural: str  # what several are called
    suffixes: tuple[str, ...]
    options: type[AudioOptions] | type[ImageOptions]
    help: str  # what to pass
    payload: Callable[[Any], Payload | None]  # an input from bytes, an array or another object; None if it is none
    payload_help: str  # what a cell or an item of a list may be
    array_problem: str  # why an array alone is none
    feature: str  # the name of its class in `datasets`

    def open(self, options: AudioOptions | ImageOptions) -> Source:
        """Opens inputs as a Source; `limit` keeps the first ones, `sample` a random sample by hashed ids.

        Files are read when the source is iterated. A file of a folder has its path in the folder as its id.
        """
        data = options.data
        source = self.open_whole(data, options.column, options.id_column, options.split, options.config)
        source = source if options.limit is None else source.first(options.limit)
        source = source if options.sample is None else source.sample(options.sample)
        return replace(source, options=options_record(options) if isinstance(data, str | Path) else {})

    def open_with(
        self, data: Any, *, only: None = None, min_tokens: int = 0, tokenizer: Any = None, **options: Any
    ) -> Source:
        """Opens inputs with the options that texts have; raises for those that apply to texts only."""
        if only is not None or min_tokens:
            raise InputError(f"--only and --min-tokens filter texts, but this model takes {self.noun}")
        if options.get("column") == TextOptions.column:  # nobody reads media from a column of texts
            del options["column"]
        return self.open(self.options(data, **options))

    def open_whole(self, data: Any, column: str, id_column: str | None, split: str, config: str | None) -> Source:
        """Opens a list, a folder, a file, or else a hub data set."""
        if not isinstance(data, str | Path):
            return self.open_list(data)
        name, path = str(data), Path(data)
        if path.is_dir():
            files = self.files(path)
            rows = lambda: ((str(file.relative_to(path)), file.read_bytes()) for file in files)  # noqa: E731
            return Source(name, rows, unit=self.unit)
        if path.is_file() and path.suffix.lower() in self.suffixes:
            return Source(name, lambda: [(path.name, path.read_bytes())], unit=self.unit)
        if path.is_file():
            require_text_file(path, (*READERS, *self.suffixes))
            columns = [column] + ([id_column] if id_column else [])
            return Source(
                name,
                lambda: self.rows_in(read_records(path, columns), column, id_column, name, path.parent),
                unit=self.unit,
            )
        if name == "demo" or name == "-":
            raise InputError(f"{name!r} holds texts, but this model takes {self.noun}; {self.help}")
        if path.suffix in (*READERS, *self.suffixes) or name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise InputError(missing_file_message(name, self.help))
        hub = require_dataset(name)

        def rows_of_dataset() -> Iterator[Row]:
            records = self.undecoded(dataset_records(name, config, split), column)
            return self.rows_in(records, column, id_column, name, None)

        read = rows_of_dataset if hub.reached else partial(read_offline, rows_of_dataset)
        return Source(f"{name}:{split}", read, remote=True, unit=self.unit)

    def undecoded(self, records: Any, column: str) -> Any:
        """The records of a data set with the bytes of the files instead of decoded inputs."""
        import datasets

        feature = getattr(datasets, self.feature)
        is_decoded = isinstance((getattr(records, "features", None) or {}).get(column), feature)
        return records.cast_column(column, feature(decode=False)) if is_decoded else records

    def files(self, folder: Path) -> list[Path]:
        """The files of this kind in a folder and in its subfolders, by path; raises if there are none."""
        if files := self.files_in(folder):
            return files
        if tables := sorted(file.name for file in folder.iterdir() if file.suffix in READERS):
            raise InputError(f"{str(folder)!r} is a folder of tables. Pass one of them, such as {folder / tables[0]}")
        raise InputError(f"{str(folder)!r} contains no {self.noun} file ({', '.join(self.suffixes)}); {self.help}")

    def files_in(self, folder: Path) -> list[Path]:
        """The same, or none."""
        return sorted(f for f in folder.rglob("*") if f.suffix.lower() in self.suffixes and f.is_file())

    def rows_in(
        self,
        records: Iterable[dict[str, Any]],
        column: str,
        id_column: str | None,
        where: str,
        folder: Path | None,
    ) -> Iterator[Row]:
        """Extracts ids and inputs from records; the input is None if the cell is null."""
        for given_id, cell, place in cells_in(records, column, id_column, where):
            yield given_id, None if cell is None else self.payload_of(cell, f"{place}: column {column!r}", folder)

    def open_list(self, data: Any) -> Source:
        """Inputs from any iterable of files, bytes, arrays, or what else this kind knows."""
        if isinstance(data, np.ndarray | bytes | Mapping) or not isinstance(data, Iterable):
            raise InputError(f"cannot read {self.plural} from a {type(data).__name__}; {self.help}")
        items = list(data)
        if not items:
            raise InputError(f"the list of {self.plural} is empty")
        payloads = [self.payload_of(item, f"item {index} of the list", Path()) for index, item in enumerate(items)]
        name = f"a list of {counted(len(payloads), self.unit)}"
        return Source(name, lambda: ((None, payload) for payload in payloads), unit=self.unit)

    def payload_of(self, item: Any, where: str, folder: Path | None) -> Payload:
        """The input in a cell or in an item of a list; a path is relative to the folder."""
        if isinstance(item, Mapping):  # as in `datasets`
            item = next((found for found in self.in_mapping(item) if found is not None), None)
        if isinstance(item, bytes | HasContent):
            return item
        if isinstance(item, str | Path) and folder is not None:
            path = folder / item
            if not path.is_file():
                raise InputError(f"{where}: there is no file {str(path)!r}")
            return path.read_bytes()
        if (payload := self.payload(item)) is not None:
            return payload
        kind = self.array_problem if isinstance(item, np.ndarray | list) else f"a {type(item).__name__}"
        raise InputError(f"{where} is {kind}, not {self.noun}; use {self.payload_help}")

    def in_mapping(self, item: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a mapping may hold instead of the input: bytes, an array, or a path."""
        return item.get("bytes"), self.payload(item), item.get("path")
