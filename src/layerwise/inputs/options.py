"""How to open texts, audio, images and labelled examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from layerwise.core.checks import Choices, require_count, split_choices
from layerwise.core.errors import InputError
from layerwise.core.options import THE_TEXTS, Option, require_valid
from layerwise.core.preprocessors import InputKind

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerwise.inputs.source import ClipLike, DataLike, ImageLike, Source
else:
    ClipLike = DataFrame = DataLike = ImageLike = Source = Any  # importing them loads numpy and pandas

TextFilter = Literal["wikitext"]
Data = Annotated[
    DataLike,
    Option(
        "a list of texts, a .txt, .jsonl, .csv or .parquet file, a hub data set, `texts(...)` with options, or demo: "
        "200 bundled texts; for an audio or image model what `audio(...)` or `images(...)` takes or returns",
        library_only=True,
        is_recorded=False,
    ),
]
KINDS = "texts of a known kind"
Queries = Annotated[
    DataLike | None,
    Option("queries: a file like that of the other texts", group=KINDS, metavar="FILE", is_text_source=True),
]
Documents = Annotated[
    DataLike | None, Option("documents, in the same way", group=KINDS, metavar="FILE", is_text_source=True)
]
PairsLike: TypeAlias = str | Path | DataFrame | Sequence[tuple[str, str]]
MediaPairsLike: TypeAlias = (
    str | Path | DataFrame | Sequence[tuple[ClipLike, ClipLike]] | Sequence[tuple[ImageLike, ImageLike]]
)
Pairs = Annotated[
    PairsLike | None,
    Option(
        "queries with a document that answers them: a .csv, .jsonl or .parquet table with the columns query and "
        "document; half of the pairs, at most 200 (of more than 2,000 pairs a tenth), are held out to test search",
        group=KINDS,
        metavar="FILE",
        is_text_source=True,
    ),
]
require_nonnegative = partial(require_count, minimum=0)


def require_label(name: str, value: Any) -> None:
    """One or several names of columns."""
    if not all(split_choices(name, value)):
        raise InputError(f"{name} must name one or several columns, not {value!r}")


@dataclass(frozen=True)
class DataOptions:
    """A table, folder or list of inputs of any kind, and which of them to use."""

    data: Annotated[
        DataLike,
        Option(
            "a .txt, .jsonl, .csv or .parquet file, - for standard input, a hub data set, or demo: 200 bundled texts; "
            "for an audio or image model a folder of files, or a table or data set with a column audio or image; in "
            "Python also a list",
            group=THE_TEXTS,
            is_text_source=True,
        ),
    ]
    _: KW_ONLY
    id_column: Annotated[
        str | None, Option("column with the id of each input; default: a hash of its content", group=THE_TEXTS)
    ] = None
    split: Annotated[str, Option("split of a hub data set", group=THE_TEXTS)] = "train"
    config: Annotated[str | None, Option("configuration of a hub data set", group=THE_TEXTS)] = None
    limit: Annotated[int | None, Option("use only the first N inputs", require_count, THE_TEXTS, metavar="N")] = None
    sample: Annotated[
        int | None,
        Option("use a random sample of N inputs, chosen by hashed ids", require_count, THE_TEXTS, metavar="N"),
    ] = None

    def __post_init__(self) -> None:
        require_valid(self)


@dataclass(frozen=True, kw_only=True)
class TextOptions(DataOptions):
    """The options of `texts`, and of all commands that read texts."""

    column: Annotated[str, Option("column with the text", group=THE_TEXTS)] = "text"
    only: Annotated[
        TextFilter | None, Option("wikitext: drop headings and blank lines, as in the paper", group=THE_TEXTS)
    ] = None
    min_tokens: Annotated[
        int, Option("drop texts with fewer tokens; the paper uses 30", require_nonnegative, THE_TEXTS)
    ] = 0
    tokenizer: Annotated[
        Callable[..., Mapping[str, Any]] | None,
        Option("tokenizer that counts tokens for min_tokens", library_only=True, is_recorded=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AudioOptions(DataOptions):
    """The options of `audio`."""

    column: Annotated[str, Option("column with the audio: bytes of files, paths, or what `datasets` stores")] = "audio"


@dataclass(frozen=True, kw_only=True)
class ImageOptions(DataOptions):
    """The options of `images`."""

    column: Annotated[str, Option("column with images: bytes of files, paths, or what `datasets` stores")] = "image"


@dataclass(frozen=True)
class LabelledOptions:
    """The options of `labelled`."""

    data: Annotated[
        str | Path | Source,
        Option(
            "a .jsonl, .csv or .parquet file or a hub data set with examples and labels, or a .conll file with labels "
            "of words; or a Source of any kind that was opened from such a table"
        ),
    ]
    label: Annotated[Choices, Option("column with the labels; separate several with commas", require_label)]
    _: KW_ONLY
    kind: Annotated[InputKind, Option("what the examples are; not needed with a Source")] = "text"
    column: Annotated[
        str, Option("column with the text; for audio and images audio or image, unless another one is named")
    ] = "text"
    id_column: Annotated[str | None, Option("column with the id of each example")] = None
    split: Annotated[str, Option("split of a hub data set")] = "train"
    config: Annotated[str | None, Option("configuration of a hub data set")] = None
    limit: Annotated[int | None, Option("use only the first N examples", require_count)] = None
    sample: Annotated[int | None, Option("use a random sample of N examples, by hashed ids", require_count)] = None

    def __post_init__(self) -> None:
        require_valid(self)
