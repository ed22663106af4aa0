"""pick: recommend a layer or recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import Choices, require_count
from layerwise.core.display import operand, redact_record
from layerwise.core.errors import InputError
from layerwise.core.option_records import flag_arguments, options_record, text_source_record
from layerwise.core.options import Option, require_valid
from layerwise.core.templates import INPUT, split_templates
from layerwise.engines.options import Progress
from layerwise.inputs.options import MediaPairsLike, PairsLike, TextOptions
from layerwise.models.spec import MaxLength, ModelLike, ModelSpec, Seed
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.verbs.pick.rules import Rule

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerwise.inputs.source import DataLike
else:
    DataFrame = DataLike = Any  # importing them takes long

Prefer = Literal["quality", "fast"]
Language = Literal["en", "de", "fr"]  # of the bundled sentences


def templates_to_try(templates: Choices) -> tuple[str, ...]:
    """The templates that were given; none for the word none."""
    if templates in ("none", ["none"], ("none",)):
        return ()
    found = split_templates(templates)
    if "" in found:
        raise InputError(f"templates: an empty one, or {INPUT} alone, adds nothing; pass none to try no template")
    return found


@dataclass(frozen=True)
class PickOptions:
    """The options of `pick`."""

    run: Annotated[
        ModelLike | Run | LayerTable | Sequence[ModelLike],
        Option(
            "a model (hub id, folder, ModelSpec or object), or a run of scan or eval (folder or table); several models "
            "in a list are ranked",
            library_only=True,
            is_recorded=False,
        ),
    ]
    fit: Annotated[
        DataLike | None,
        Option(
            "texts of many kinds to fit linear maps on, up to 1,000; default: about 800 bundled ones. Texts of one "
            "kind make worse maps: what they differ in is removed. For an audio or image model clips or images; "
            "default: no maps",
            is_text_source=True,
        ),
    ] = None
    _: KW_ONLY
    labels: Annotated[
        str | Path | DataFrame | None,
        Option(
            "a few labels of your own task as one more probe: .csv, .jsonl or .parquet with columns text,label or "
            "text1,text2,score; 16 rows at least"
        ),
    ] = None
    pairs: Annotated[
        PairsLike | MediaPairsLike | None,
        Option(
            "pairs of your texts that belong together, instead of the bundled sentences, for any language or field: "
            ".csv, .jsonl or .parquet with columns query,document; 16 rows at least, 1,024 are used at most. For an "
            "audio or image model the cells are paths of clips or images",
            metavar="FILE",
        ),
    ] = None
    language: Annotated[Language, Option("language of the bundled sentences: en, de or fr; for others pass pairs")] = (
        "en"
    )
    rule: Annotated[
        str | Rule | None,
        Option("a rule that reads the table of a run, and no model: depth:80%, min:dime, max:infonce@20%-90% ..."),
    ] = None
    prefer: Annotated[
        Prefer, Option("quality: the best score; fast: the lowest layer that scores the same within noise")
    ] = "quality"
    templates: Annotated[
        Choices | None,
        Option(
            "templates to try with the last token: names or texts with {text}, repeat the flag for several; none: no "
            "template; default: prompteol for a causal language model that ships no pooling",
            lambda name, value: templates_to_try(value),
            is_repeated=True,
        ),
    ] = None
    layer_only: Annotated[
        bool, Option("choose a layer without a linear map, and without a template unless one is given")
    ] = False
    static: Annotated[
        bool,
        Option("leave out the whitened token embeddings, which double the width of a map without a template"),
    ] = True
    servable: Annotated[
        bool, Option("choose among recipes that plain embedding servers can compute, and report what that costs")
    ] = False
    dims: Annotated[
        int | None,
        Option(
            "dimensions of the vectors, for a smaller index: so many principal directions are kept; default: all",
            require_count,
            metavar="N",
        ),
    ] = None
    compare_static: Annotated[
        bool,
        Option("also score the static model that shrink makes of it, which runs no block; takes a minute more"),
    ] = False
    early_stop: Annotated[
        bool,
        Option("several models: show all pairs also to those that lose clearly on a quarter", is_recorded=False),
    ] = True
    model: Annotated[ModelLike | None, Option("the model to run, if the run's model was moved or renamed")] = None
    max_length: MaxLength = None
    seed: Seed = 0
    export: Annotated[
        str | Path | None,
        Option(
            "also write the answer to this new folder, as export does, unless the last layer should be kept",
            metavar="OUT",
            is_recorded=False,
        ),
    ] = None
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)
        if self.pairs is not None and self.language != "en":
            raise InputError("pairs replace the bundled sentences, so language is not used: leave out one of them")
        if self.layer_only and self.dims is not None:
            raise InputError("layer_only tries no linear map, and dims needs one: leave out one of them")


@dataclass(frozen=True)
class OneModelOptions(PickOptions):
    """The same with one model or run, for which `pick` returns a Pick."""

    run: Annotated[ModelLike | Run | LayerTable, Option("one model or run", library_only=True, is_recorded=False)]


def pick_record(options: PickOptions) -> dict[str, Any]:
    """The record of a call of pick: its options, and the run or model that it was called on; None for an object."""
    run = options.run
    place = run.name if isinstance(run, ModelSpec) else str(run) if isinstance(run, str | Path) else None
    own = {name: redact_record(text_source_record(getattr(options, name))) for name in ("labels", "pairs")}
    return {"verb": "pick", "run": redact_record(place), **options_record(options), **own}  # no table in memory


def pick_words(record: Mapping[str, Any], folder: str) -> list[str]:
    """The words of the command that makes the pick in this folder again."""
    fit = record.get("fit")
    column = flag_arguments(TextOptions, fit, only=["column"]) if isinstance(fit, Mapping) else []
    words = ["layerwise", "pick", operand(str(record.get("run") or folder))]
    return [*words, *flag_arguments(PickOptions, record), *column, "--save", operand(folder)]
