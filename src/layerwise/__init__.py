"""layerwise: look inside pretrained networks layer by layer.

Names are loaded when they are first used, so that `import layerwise` costs next to nothing and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "CATALOG": "layerwise.metrics.catalog",
    "Cluster": "layerwise.options.engine",
    "Estimate": "layerwise.metrics.base",
    "FittedRecipe": "layerwise.maps.fitted",
    "LayerTable": "layerwise.runs.table",
    "LayerwiseError": "layerwise.core.errors",
    "Metric": "layerwise.metrics.base",
    "ModelSpec": "layerwise.options.model",
    "Recipe": "layerwise.core.recipe",
    "Rule": "layerwise.selection.rules",
    "audit": "layerwise.api.audit",
    "campaign": "layerwise.campaigns",
    "compare": "layerwise.api.compare",
    "correlate": "layerwise.api.correlate",
    "difference": "layerwise.sweep.paired",
    "doctor": "layerwise.api.doctor",
    "embed": "layerwise.api.embed",
    "embedder": "layerwise.api.embedder",
    "evaluate": "layerwise.api.evaluate",
    "export": "layerwise.api.export",
    "functional": "layerwise.functional",
    "pick": "layerwise.api.pick",
    "plan": "layerwise.api.scan",
    "plot": "layerwise.api.plot",
    "report": "layerwise.api.report",
    "scan": "layerwise.api.scan",
    "stress": "layerwise.api.stress",
    "texts": "layerwise.api.texts",
    "tradeoff": "layerwise.api.tradeoff",
}

__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from layerwise import functional as functional
    from layerwise.api.audit import audit as audit
    from layerwise.api.compare import compare as compare
    from layerwise.api.correlate import correlate as correlate
    from layerwise.api.doctor import doctor as doctor
    from layerwise.api.embed import embed as embed
    from layerwise.api.embedder import embedder as embedder
    from layerwise.api.evaluate import evaluate as evaluate
    from layerwise.api.export import export as export
    from layerwise.api.pick import pick as pick
    from layerwise.api.plot import plot as plot
    from layerwise.api.report import report as report
    from layerwise.api.scan import plan as plan
    from layerwise.api.scan import scan as scan
    from layerwise.api.stress import stress as stress
    from layerwise.api.texts import texts as texts
    from layerwise.api.tradeoff import tradeoff as tradeoff
    from layerwise.campaigns import campaign as campaign
    from layerwise.core.errors import LayerwiseError as LayerwiseError
    from layerwise.core.recipe import Recipe as Recipe
    from layerwise.maps.fitted import FittedRecipe as FittedRecipe
    from layerwise.metrics.base import Estimate as Estimate
    from layerwise.metrics.base import Metric as Metric
    from layerwise.metrics.catalog import CATALOG as CATALOG
    from layerwise.options.engine import Cluster as Cluster
    from layerwise.options.model import ModelSpec as ModelSpec
    from layerwise.runs.table import LayerTable as LayerTable
    from layerwise.selection.rules import Rule as Rule
    from layerwise.sweep.paired import difference as difference


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerwise' has no attribute {name!r}; it offers {', '.join(__all__)}")
    module = import_module(_HOMES[name])
    value = module if _HOMES[name] == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
