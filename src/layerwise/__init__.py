"""layerwise: look inside pretrained networks layer by layer.

Names are loaded on first use, so that `import layerwise` is fast and does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "Backend": "layerwise.exporter.backends.backend",
    "CATALOG": "layerwise.metrics.catalog",
    "Campaign": "layerwise.campaigns",
    "Clip": "layerwise.inputs.source",
    "Cluster": "layerwise.options.engine",
    "Comparison": "layerwise.sweep.comparison",
    "DataLike": "layerwise.inputs.source",
    "DataRef": "layerwise.runs.identity",
    "Difference": "layerwise.sweep.paired",
    "Estimate": "layerwise.metrics.base",
    "Example": "layerwise.inputs.source",
    "ExportError": "layerwise.core.errors",
    "Finding": "layerwise.models.doctor",
    "FittedOn": "layerwise.maps.fitted",
    "FittedRecipe": "layerwise.maps.fitted",
    "Forecast": "layerwise.sweep.forecast",
    "Gain": "layerwise.selection.decision",
    "InputError": "layerwise.core.errors",
    "LayerBatch": "layerwise.metrics.readings",
    "LayerScore": "layerwise.runs.scores",
    "LayerTable": "layerwise.runs.table",
    "LayerwiseError": "layerwise.core.errors",
    "LinearMap": "layerwise.maps.linear",
    "LocalTask": "layerwise.downstream.data_root",
    "MergeError": "layerwise.core.errors",
    "Metric": "layerwise.metrics.base",
    "MissingExtra": "layerwise.core.errors",
    "ModelError": "layerwise.core.errors",
    "ModelLike": "layerwise.options.model",
    "ModelObject": "layerwise.options.model",
    "ModelRef": "layerwise.runs.identity",
    "ModelSpec": "layerwise.options.model",
    "NotFiniteError": "layerwise.core.errors",
    "Pick": "layerwise.selection.pick",
    "PickedLayer": "layerwise.selection.picked_layers",
    "ProtocolResult": "layerwise.selection.protocol_result",
    "Reading": "layerwise.metrics.readings",
    "Readout": "layerwise.core.recipe",
    "Recipe": "layerwise.core.recipe",
    "Reproduction": "layerwise.api.reproduce",
    "Rule": "layerwise.selection.rules",
    "Run": "layerwise.runs.folder",
    "RunError": "layerwise.core.errors",
    "Source": "layerwise.inputs.source",
    "StoreError": "layerwise.core.errors",
    "TooLarge": "layerwise.core.errors",
    "audio": "layerwise.api.audio",
    "audit": "layerwise.api.audit",
    "audit_protocol": "layerwise.api.audit",
    "campaign": "layerwise.campaigns",
    "compare": "layerwise.api.compare",
    "correlate": "layerwise.api.correlate",
    "data": "layerwise.api.data",
    "difference": "layerwise.sweep.paired",
    "doctor": "layerwise.api.doctor",
    "embed": "layerwise.api.embed",
    "embedder": "layerwise.api.embedder",
    "eval": "layerwise.api.evaluate",
    "evaluate": "layerwise.api.evaluate",
    "export": "layerwise.api.export",
    "functional": "layerwise.functional",
    "images": "layerwise.api.images",
    "labelled": "layerwise.api.labelled",
    "mean_score": "layerwise.metrics.scores",
    "mean_over_prompts": "layerwise.metrics.readings",
    "spectrum_score": "layerwise.metrics.scores",
    "pick": "layerwise.api.pick",
    "plan": "layerwise.api.scan",
    "plot": "layerwise.api.plot",
    "pooled_rows": "layerwise.metrics.readings",
    "probe": "layerwise.api.probe",
    "report": "layerwise.api.report",
    "reproduce": "layerwise.api.reproduce",
    "scan": "layerwise.api.scan",
    "shrink": "layerwise.api.shrink",
    "stress": "layerwise.api.stress",
    "texts": "layerwise.api.texts",
    "tradeoff": "layerwise.api.tradeoff",
    "training": "layerwise.training",
    "views": "layerwise.api.views",
}

_OTHER_NAMES = {"eval": "evaluate"}  # the verb of the command line; `evaluate` hides no built-in function

__all__ = sorted([*_MODULES, "__version__"])

if TYPE_CHECKING:  # the same names again, for editors and type checkers
    from layerwise import functional as functional
    from layerwise import training as training
    from layerwise.api.audio import audio as audio
    from layerwise.api.audit import audit as audit
    from layerwise.api.audit import audit_protocol as audit_protocol
    from layerwise.api.compare import compare as compare
    from layerwise.api.correlate import correlate as correlate
    from layerwise.api.data import data as data
    from layerwise.api.doctor import doctor as doctor
    from layerwise.api.embed import embed as embed
    from layerwise.api.embedder import embedder as embedder
    from layerwise.api.evaluate import evaluate as eval  # noqa: F401
    from layerwise.api.evaluate import evaluate as evaluate
    from layerwise.api.export import export as export
    from layerwise.api.images import images as images
    from layerwise.api.labelled import labelled as labelled
    from layerwise.api.pick import pick as pick
    from layerwise.api.plot import plot as plot
    from layerwise.api.probe import probe as probe
    from layerwise.api.report import report as report
    from layerwise.api.reproduce import Reproduction as Reproduction
    from layerwise.api.reproduce import reproduce as reproduce
    from layerwise.api.scan import plan as plan
    from layerwise.api.scan import scan as scan
    from layerwise.api.shrink import shrink as shrink
    from layerwise.api.stress import stress as stress
    from layerwise.api.texts import texts as texts
    from layerwise.api.tradeoff import tradeoff as tradeoff
    from layerwise.api.views import views as views
    from layerwise.campaigns import Campaign as Campaign
    from layerwise.campaigns import campaign as campaign
    from layerwise.core.errors import ExportError as ExportError
    from layerwise.core.errors import InputError as InputError
    from layerwise.core.errors import LayerwiseError as LayerwiseError
    from layerwise.core.errors import MergeError as MergeError
    from layerwise.core.errors import MissingExtra as MissingExtra
    from layerwise.core.errors import ModelError as ModelError
    from layerwise.core.errors import NotFiniteError as NotFiniteError
    from layerwise.core.errors import RunError as RunError
    from layerwise.core.errors import StoreError as StoreError
    from layerwise.core.errors import TooLarge as TooLarge
    from layerwise.core.recipe import Readout as Readout
    from layerwise.core.recipe import Recipe as Recipe
    from layerwise.downstream.data_root import LocalTask as LocalTask
    from layerwise.exporter.backends.backend import Backend as Backend
    from layerwise.inputs.source import Clip as Clip
    from layerwise.inputs.source import DataLike as DataLike
    from layerwise.inputs.source import Example as Example
    from layerwise.inputs.source import Source as Source
    from layerwise.maps.fitted import FittedOn as FittedOn
    from layerwise.maps.fitted import FittedRecipe as FittedRecipe
    from layerwise.maps.linear import LinearMap as LinearMap
    from layerwise.metrics.base import Estimate as Estimate
    from layerwise.metrics.base import Metric as Metric
    from layerwise.metrics.catalog import CATALOG as CATALOG
    from layerwise.metrics.readings import LayerBatch as LayerBatch
    from layerwise.metrics.readings import Reading as Reading
    from layerwise.metrics.readings import mean_over_prompts as mean_over_prompts
    from layerwise.metrics.readings import pooled_rows as pooled_rows
    from layerwise.metrics.scores import mean_score as mean_score
    from layerwise.metrics.scores import spectrum_score as spectrum_score
    from layerwise.models.doctor import Finding as Finding
    from layerwise.options.engine import Cluster as Cluster
    from layerwise.options.model import ModelLike as ModelLike
    from layerwise.options.model import ModelObject as ModelObject
    from layerwise.options.model import ModelSpec as ModelSpec
    from layerwise.runs.folder import Run as Run
    from layerwise.runs.identity import DataRef as DataRef
    from layerwise.runs.identity import ModelRef as ModelRef
    from layerwise.runs.scores import LayerScore as LayerScore
    from layerwise.runs.table import LayerTable as LayerTable
    from layerwise.selection.decision import Gain as Gain
    from layerwise.selection.pick import Pick as Pick
    from layerwise.selection.picked_layers import PickedLayer as PickedLayer
    from layerwise.selection.protocol_result import ProtocolResult as ProtocolResult
    from layerwise.selection.rules import Rule as Rule
    from layerwise.sweep.comparison import Comparison as Comparison
    from layerwise.sweep.forecast import Forecast as Forecast
    from layerwise.sweep.paired import Difference as Difference
    from layerwise.sweep.paired import difference as difference

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":  # that of the installed package
        return import_module("importlib.metadata").version(__name__)
    if name not in _MODULES:
        raise AttributeError(f"module 'layerwise' has no attribute {name!r}; public names are {', '.join(__all__)}")
    module = import_module(_MODULES[name])
    value = module if _MODULES[name] == f"{__name__}.{name}" else getattr(module, _OTHER_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
