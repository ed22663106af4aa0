"""Clips from audio files, a folder of them, a table, a hub data set, or a list of files and arrays."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.core.errors import InputError
from layerwise.core.hub import offline
from layerwise.inputs.source import Clip, Payload, Source
from layerwise.inputs.tables import READERS, missing_file_message, read_records, require_text_file
from layerwise.inputs.text import cells_in, dataset_records, require_dataset
from layerwise.options.record import options_record
from layerwise.options.texts import TextOptions

Row = tuple[str | None, Payload | None]  # (id or None, clip or None)
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif")
COLUMN = "audio"  # of a table, unless another one is chosen
UNIT = "audio clip"
AUDIO_HELP = (
    "pass a folder of audio files, one file (.wav, .flac), a .parquet, .csv or .jsonl file with a column of audio, a "
    "hub data set, or a list of files, bytes or pairs (samples, rate)"
)


def open_audio(
    data: Any,
    *,
    column: str = COLUMN,
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens clips as a Source; `limit` keeps the first ones, `sample` a random sample by hashed ids.

    Files are read when the source is iterated. A file of a folder has its path in the folder as its id.
    """
    options = TextOptions(
        data=data, column=column, id_column=id_column, split=split, config=config, limit=limit, sample=sample
    )
    source = unlimited(data, column, id_column, split, config)
    if limit is not None:
        source = source.first(limit)
    source = source if sample is None else source.sample(sample)
    return replace(source, options=options_record(options) if isinstance(data, str | Path) else {})


def unlimited(data: Any, column: str, id_column: str | None, split: str, config: str | None) -> Source:
    """Opens a list, a folder, a file, or else a hub data set."""
    if not isinstance(data, str | Path):
        return source_from_list(data)
    name, path = str(data), Path(data)
    if path.is_dir():
        files = audio_files(path)
        rows = lambda: ((str(file.relative_to(path)), file.read_bytes()) for file in files)  # noqa: E731
        return Source(name, rows, unit=UNIT)
    if path.is_file() and path.suffix.lower() in AUDIO_SUFFIXES:
        return Source(name, lambda: [(path.name, path.read_bytes())], unit=UNIT)
    if path.is_file():
        require_text_file(path, (*READERS, *AUDIO_SUFFIXES))
        columns = [column] + ([id_column] if id_column else [])
        return Source(
            name, lambda: clips_in(read_records(path, columns), column, id_column, name, path.parent), unit=UNIT
        )
    if name == "demo" or name == "-":
        raise InputError(f"{name!r} holds texts, but this model takes audio; {AUDIO_HELP}")
    if path.suffix in (*READERS, *AUDIO_SUFFIXES) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(missing_file_message(name, AUDIO_HELP))
    hub = require_dataset(name)

    def rows_of_dataset() -> Iterator[Row]:
        with nullcontext() if hub.reached else offline():
            return clips_in(undecoded(dataset_records(name, config, split), column), column, id_column, name, None)

    return Source(f"{name}:{split}", rows_of_dataset, remote=True, unit=UNIT)


def audio_files(folder: Path) -> list[Path]:
    """The audio files of a folder and of its subfolders, by path."""
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in AUDIO_SUFFIXES and f.is_file())
    if files:
        return files
    if tables := sorted(file.name for file in folder.iterdir() if file.suffix in READERS):
        raise InputError(f"{str(folder)!r} is a folder of tables. Pass one of them, such as {folder / tables[0]}")
    raise InputError(f"{str(folder)!r} contains no audio file ({', '.join(AUDIO_SUFFIXES)}); {AUDIO_HELP}")


def undecoded(records: Any, column: str) -> Any:
    """The records with the bytes of the files instead of decoded samples."""
    from datasets import Audio

    is_audio = isinstance((getattr(records, "features", None) or {}).get(column), Audio)
    return records.cast_column(column, Audio(decode=False)) if is_audio else records


def clips_in(
    records: Iterable[dict[str, Any]], column: str, id_column: str | None, where: str, folder: Path | None
) -> Iterator[Row]:
    """Extracts ids and clips from records; the clip is None if the cell is null."""
    for given_id, cell, place in cells_in(records, column, id_column, where):
        yield given_id, None if cell is None else payload_of(cell, f"{place}: column {column!r}", folder)


def source_from_list(data: Any) -> Source:
    """Clips from any iterable of files, bytes, or pairs (samples, rate)."""
    if isinstance(data, np.ndarray | bytes | Mapping) or not isinstance(data, Iterable):
        raise InputError(f"cannot read clips from a {type(data).__name__}; {AUDIO_HELP}")
    items = list(data)
    if not items:
        raise InputError("the list of clips is empty")
    clips = [payload_of(item, f"item {index} of the list", Path()) for index, item in enumerate(items)]
    return Source(f"a list of {len(clips)} clips", lambda: ((None, clip) for clip in clips), unit=UNIT)


def payload_of(item: Any, where: str, folder: Path | None) -> Payload:
    """The clip in a cell or in an item of a list.

    Bytes of a file; a path, relative to the folder; a pair (samples, rate); or a mapping as in `datasets`: bytes and
    path, or array and sampling_rate.
    """
    if isinstance(item, Mapping):
        if item.get("bytes") is not None:
            item = item["bytes"]
        elif item.get("array") is not None:
            item = (item["array"], item.get("sampling_rate"))
        else:
            item = item.get("path")
    if isinstance(item, bytes | Clip):
        return item
    if isinstance(item, str | Path) and folder is not None:
        path = folder / item
        if not path.is_file():
            raise InputError(f"{where}: there is no file {str(path)!r}")
        return path.read_bytes()
    if isinstance(item, tuple) and len(item) == 2 and hasattr(item[1], "__index__"):
        samples, rate = item
        return Clip(np.asarray(samples), int(rate))
    kind = "an array without a rate" if isinstance(item, np.ndarray | list) else f"a {type(item).__name__}"
    raise InputError(f"{where} is {kind}, not audio; use bytes of a file, a path, or a pair (samples, rate)")
