"""export: save a layer or recipe as a standalone model."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal

from layerwise.core.checks import ExportMode, TokenChoice, require_count, require_transform
from layerwise.core.errors import InputError
from layerwise.core.options import WHAT_TO_MEASURE, Option, require_valid
from layerwise.engines.options import Progress
from layerwise.inputs.options import Documents, Pairs, Queries
from layerwise.models.options import MaxLength, SingleNorm, SinglePoolingOrDefault, SingleTemplate

STATIC = "a model without a transformer (--static)"
# The options that a static model has; of the others, only the default is accepted.
STATIC_OPTIONS = (
    "static", "weights", "words", "int8", "queries", "documents", "pairs", "transform", "dims", "fit", "normalize",
    "why", "texts", "progress",
)  # fmt: skip
TokenWeights = Literal["sif", "idf", "zipf", "none"]
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
    static: Annotated[
        bool,
        Option("write one vector per token and no transformer; with --fit FILE they are fitted to the model's vectors"),
    ] = False
    weights: Annotated[
        TokenWeights,
        Option(
            "how much a token counts: by its place in the vocabulary (zipf), by its frequency in the texts (sif, idf), "
            "or all the same (none)",
            group=STATIC,
        ),
    ] = "zipf"
    words: Annotated[
        int,
        Option(
            "add so many frequent words of the texts to the vocabulary",
            partial(require_count, minimum=0),
            STATIC,
            metavar="N",
        ),
    ] = 0
    int8: Annotated[bool, Option("write 8-bit vectors, a quarter of the size", group=STATIC)] = False
    queries: Queries = None
    documents: Documents = None
    pairs: Pairs = None
    why: Annotated[str, Option("why this layer was chosen; shown in the model card")] = ""
    scores: Annotated[Any, Option("folder of an eval run; its scores for this recipe go into the model card")] = None
    texts: Annotated[
        Any,
        Option("what to compare with the original model on, up to 500 texts or images", is_text_source=True),
    ] = "demo"
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)
        of_a_kind = [given for given in (self.queries, self.documents, self.pairs) if given is not None]
        if not self.static and (self.weights != "zipf" or self.words or self.int8 or of_a_kind):
            raise InputError(
                "weights, words, int8, queries, documents and pairs are for a model without a transformer; add "
                "--static (static=True)"
            )
        if self.static:
            self.require_static()

    def require_static(self) -> None:
        """Raises for options that have no effect on a static model, or that it cannot have."""
        others = [f for f in fields(self) if f.name not in STATIC_OPTIONS and getattr(self, f.name) != f.default]
        if others:
            flags = ", ".join(f"--{field.name.replace('_', '-')}" for field in others)
            raise InputError(f"a static model has no {flags}: leave out {flags}")
        if self.transform != "none" and "+" in self.transform:
            raise InputError(f"a static model has one vector per token: leave out + in --transform {self.transform}")
