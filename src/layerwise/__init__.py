"""layerwise: look inside pretrained networks layer by layer.

Names are loaded on first use, so that `import layerwise` is fast and does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "Backend": "layerwise.verbs.export.backends.backend",
    "CATALOG": "layerwise.metrics.catalog",
    "Campaign": "layerwise.verbs.campaign.plan",
    "ChosenRecipe": "layerwise.verbs.export.chosen",
    "Clip": "layerwise.inputs.source",
    "Cluster": "layerwise.engines.options",
    "Comparison": "layerwise.verbs.compare.comparison",
    "DataLike": "layerwise.inputs.source",
    "DataRef": "layerwise.runs.identity",
    "Difference": "layerwise.verbs.compare.paired",
    "Estimate": "layerwise.metrics.base",
    "Example": "layerwise.inputs.source",
    "ExportError": "layerwise.core.errors",
    "Finding": "layerwise.models.doctor",
    "FittedOn": "layerwise.maps.fitted",
    "FittedRecipe": "layerwise.maps.fitted",
    "Forecast": "layerwise.verbs.scan.forecast",
    "Gain": "layerwise.verbs.pick.decision",
    "InputError": "layerwise.core.errors",
    "LayerBatch": "layerwise.metrics.readings",
    "LayerScore": "layerwise.runs.scores",
    "LayerTable": "layerwise.runs.table",
    "LayerwiseError": "layerwise.core.errors",
    "LinearMap": "layerwise.maps.linear",
    "LocalTask": "layerwise.verbs.eval.data_root",
    "MergeError": "layerwise.core.errors",
    "Metric": "layerwise.metrics.base",
    "MissingExtra": "layerwise.core.errors",
    "ModelError": "layerwise.core.errors",
    "ModelLike": "layerwise.models.spec",
    "ModelObject": "layerwise.models.spec",
    "ModelRef": "layerwise.runs.identity",
    "ModelSpec": "layerwise.models.spec",
    "NotFiniteError": "layerwise.core.errors",
    "Pick": "layerwise.verbs.pick.result",
    "PickedLayer": "layerwise.verbs.pick.picked_layers",
    "Reading": "layerwise.metrics.readings",
    "Readout": "layerwise.core.recipe",
    "Recipe": "layerwise.core.recipe",
    "Rule": "layerwise.verbs.pick.rules",
    "Run": "layerwise.runs.folder",
    "RunError": "layerwise.core.errors",
    "Source": "layerwise.inputs.source",
    "StoreError": "layerwise.core.errors",
    "TooLarge": "layerwise.core.errors",
    "audio": "layerwise.inputs.opening",
    "campaign": "layerwise.verbs.campaign.api",
    "compare": "layerwise.verbs.compare.api",
    "difference": "layerwise.verbs.compare.paired",
    "doctor": "layerwise.verbs.doctor.api",
    "embed": "layerwise.verbs.embed.api",
    "eval": "layerwise.verbs.eval.api",
    "export": "layerwise.verbs.export.api",
    "functional": "layerwise.functional",
    "images": "layerwise.inputs.opening",
    "lab": "layerwise.lab",
    "labelled": "layerwise.inputs.opening",
    "mean_score": "layerwise.metrics.scores",
    "mean_over_prompts": "layerwise.metrics.readings",
    "spectrum_score": "layerwise.metrics.scores",
    "pick": "layerwise.verbs.pick.api",
    "plan": "layerwise.verbs.scan.api",
    "plot": "layerwise.verbs.report.plot",
    "pooled_rows": "layerwise.metrics.readings",
    "probe": "layerwise.verbs.probe.api",
    "report": "layerwise.verbs.report.api",
    "scan": "layerwise.verbs.scan.api",
    "shrink": "layerwise.verbs.shrink.api",
    "texts": "layerwise.inputs.opening",
    "training": "layerwise.training",
}

__all__ = sorted([*_MODULES, "__version__"])

if TYPE_CHECKING:  # the same names again, for editors and type checkers
    from layerwise import functional as functional
    from layerwise import lab as lab
    from layerwise import training as training
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
    from layerwise.engines.options import Cluster as Cluster
    from layerwise.inputs.opening import audio as audio
    from layerwise.inputs.opening import images as images
    from layerwise.inputs.opening import labelled as labelled
    from layerwise.inputs.opening import texts as texts
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
    from layerwise.models.spec import ModelLike as ModelLike
    from layerwise.models.spec import ModelObject as ModelObject
    from layerwise.models.spec import ModelSpec as ModelSpec
    from layerwise.runs.folder import Run as Run
    from layerwise.runs.identity import DataRef as DataRef
    from layerwise.runs.identity import ModelRef as ModelRef
    from layerwise.runs.scores import LayerScore as LayerScore
    from layerwise.runs.table import LayerTable as LayerTable
    from layerwise.verbs.campaign.api import campaign as campaign
    from layerwise.verbs.campaign.plan import Campaign as Campaign
    from layerwise.verbs.compare.api import compare as compare
    from layerwise.verbs.compare.comparison import Comparison as Comparison
    from layerwise.verbs.compare.paired import Difference as Difference
    from layerwise.verbs.compare.paired import difference as difference
    from layerwise.verbs.doctor.api import doctor as doctor
    from layerwise.verbs.embed.api import embed as embed
    from layerwise.verbs.eval.api import eval as eval
    from layerwise.verbs.eval.data_root import LocalTask as LocalTask
    from layerwise.verbs.export.api import export as export
    from layerwise.verbs.export.backends.backend import Backend as Backend
    from layerwise.verbs.export.chosen import ChosenRecipe as ChosenRecipe
    from layerwise.verbs.pick.api import pick as pick
    from layerwise.verbs.pick.decision import Gain as Gain
    from layerwise.verbs.pick.picked_layers import PickedLayer as PickedLayer
    from layerwise.verbs.pick.result import Pick as Pick
    from layerwise.verbs.pick.rules import Rule as Rule
    from layerwise.verbs.probe.api import probe as probe
    from layerwise.verbs.report.api import report as report
    from layerwise.verbs.report.plot import plot as plot
    from layerwise.verbs.scan.api import plan as plan
    from layerwise.verbs.scan.api import scan as scan
    from layerwise.verbs.scan.forecast import Forecast as Forecast
    from layerwise.verbs.shrink.api import shrink as shrink

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":  # that of the installed package
        return import_module("importlib.metadata").version(__name__)
    if name not in _MODULES:
        raise AttributeError(f"module 'layerwise' has no attribute {name!r}; public names are {', '.join(__all__)}")
    module = import_module(_MODULES[name])
    value = module if _MODULES[name] == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
