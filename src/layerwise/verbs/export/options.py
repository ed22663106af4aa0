"""export: save a layer or recipe as a standalone model."""

from dataclasses import dataclass
from typing import Annotated, Any

from layerwise.core.checks import ExportMode, TokenChoice, require_count, require_transform
from layerwise.core.options import WHAT_TO_MEASURE, Option, require_valid
from layerwise.engines.options import Progress
from layerwise.models.spec import MaxLength, SingleNorm, SinglePoolingOrDefault, SingleTemplate

Mode = Annotated[
    ExportMode,
    Option("portable: one block more than needed, any version loads it; compact: none more, needs transformers 5.18"),
]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`."""

    norm: SingleNorm = "raw"
    tokens: Annotated[
        TokenChoice,
        Option("which tokens are pooled; no_first needs a tokenizer that adds a start token", group=WHAT_TO_MEASURE),
    ] = "all"
    pooling: SinglePoolingOrDefault = None
    transform: Annotated[
        str,
        Option(
            "linear map: none, center, zscore, remove_top:3, whiten; +mean adds the mean, +static token embeddings",
            lambda name, word: require_transform(word),
        ),
    ] = "none"
    dims: Annotated[
        int | None, Option("keep this many principal directions of the result; needs a map", require_count, metavar="N")
    ] = None
    fit: Annotated[
        Any, Option("what to fit the linear map on: a file of texts, demo, or a scan folder", is_text_source=True)
    ] = None
    normalize: Annotated[bool, Option("scale vectors to length 1")] = False
    template: SingleTemplate = None
    mode: Mode = "portable"
    format: Annotated[
        Any,
        Option("sentence_transformers, or a format that another program reads: see docs/serve.md", metavar="FORMAT"),
    ] = "sentence_transformers"
    servable: Annotated[
        bool, Option("refuse a recipe that plain embedding servers cannot compute, and keep exactly the layer's blocks")
    ] = False
    max_length: MaxLength = None
    why: Annotated[str, Option("why this layer was chosen; shown in the model card")] = ""
    scores: Annotated[Any, Option("folder of an eval run; its scores for this recipe go into the model card")] = None
    texts: Annotated[
        Any,
        Option("what to compare with the original model on, up to 500 texts or images", is_text_source=True),
    ] = "demo"
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)
