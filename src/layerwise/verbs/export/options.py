"""export: save a layer or recipe as a standalone model."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from layerwise.core.checks import ExportMode, TokenChoice, require_count, require_transform
from layerwise.core.options import WHAT_TO_MEASURE, Option, require_valid
from layerwise.core.recipe import Recipe
from layerwise.engines.options import Progress
from layerwise.models.spec import MaxLength, Model, SingleNorm, SinglePoolingOrDefault, SingleTemplate
from layerwise.runs.folder import RunLike

if TYPE_CHECKING:
    from layerwise.inputs.source import DataLike
    from layerwise.maps.fitted import FittedRecipe
    from layerwise.verbs.export.backends.backend import Backend
    from layerwise.verbs.export.chosen import ChosenRecipe
    from layerwise.verbs.probe.heads import Classifier
else:
    Backend = ChosenRecipe = Classifier = DataLike = FittedRecipe = Any  # importing them loads torch

Mode = Annotated[
    ExportMode,
    Option("portable: one block more than needed, any version loads it; compact: none more, needs transformers 5.18"),
]


@dataclass(frozen=True)
class ExportOptions:
    """The options of `export`."""

    model: Model
    layer: Annotated[
        int | str | Recipe | ChosenRecipe | FittedRecipe | Classifier,
        Option(
            "a number, a depth such as 50%, or last (the model as shipped); also a Recipe, a FittedRecipe, or the "
            "answer of pick, which say themselves how the layer is read; or a Classifier of a probe run",
            library_only=True,
        ),
    ]
    out: Annotated[str | Path, Option("folder to write; must not exist")]
    _: KW_ONLY
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
        DataLike | None,
        Option("what to fit the linear map on: a file of texts, demo, or a scan folder", is_text_source=True),
    ] = None
    normalize: Annotated[bool, Option("scale vectors to length 1")] = False
    template: SingleTemplate = None
    mode: Mode = "portable"
    format: Annotated[
        str | Backend,
        Option("sentence_transformers, or a format that another program reads: see docs/serve.md", metavar="FORMAT"),
    ] = "sentence_transformers"
    servable: Annotated[
        bool, Option("refuse a recipe that plain embedding servers cannot compute, and keep exactly the layer's blocks")
    ] = False
    max_length: MaxLength = None
    why: Annotated[str, Option("why this layer was chosen; shown in the model card")] = ""
    scores: Annotated[
        RunLike | None, Option("folder of an eval run; its scores for this recipe go into the model card")
    ] = None
    texts: Annotated[
        DataLike,
        Option("what to compare with the original model on, up to 500 texts or images", is_text_source=True),
    ] = "demo"
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)
