"""layerwise: look inside pretrained networks layer by layer.

Names are loaded when they are first used, so that `import layerwise` costs next to nothing and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "CATALOG": "layerwise.metrics.catalog",
    "Cluster": "layerwise.engines.ray",
    "Estimate": "layerwise.metrics.base",
    "LayerTable": "layerwise.results",
    "LayerwiseError": "layerwise.errors",
    "Metric": "layerwise.metrics.base",
    "ModelSpec": "layerwise.models.load",
    "Recipe": "layerwise.recipe",
    "audit": "layerwise.api",
    "campaign": "layerwise.campaigns",
    "compare": "layerwise.api",
    "correlate": "layerwise.api",
    "difference": "layerwise.sweep.paired",
    "doctor": "layerwise.api",
    "embed": "layerwise.api",
    "evaluate": "layerwise.api",
    "export": "layerwise.api",
    "functional": "layerwise.functional",
    "pick": "layerwise.api",
    "plan": "layerwise.api",
    "plot": "layerwise.api",
    "report": "layerwise.api",
    "scan": "layerwise.api",
    "stress": "layerwise.api",
    "texts": "layerwise.api",
    "tradeoff": "layerwise.api",
}

__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from layerwise import functional as functional
    from layerwise.api import audit as audit
    from layerwise.api import compare as compare
    from layerwise.api import correlate as correlate
    from layerwise.api import doctor as doctor
    from layerwise.api import embed as embed
    from layerwise.api import evaluate as evaluate
    from layerwise.api import export as export
    from layerwise.api import pick as pick
    from layerwise.api import plan as plan
    from layerwise.api import plot as plot
    from layerwise.api import report as report
    from layerwise.api import scan as scan
    from layerwise.api import stress as stress
    from layerwise.api import texts as texts
    from layerwise.api import tradeoff as tradeoff
    from layerwise.campaigns import campaign as campaign
    from layerwise.engines.ray import Cluster as Cluster
    from layerwise.errors import LayerwiseError as LayerwiseError
    from layerwise.metrics.base import Estimate as Estimate
    from layerwise.metrics.base import Metric as Metric
    from layerwise.metrics.catalog import CATALOG as CATALOG
    from layerwise.models.load import ModelSpec as ModelSpec
    from layerwise.recipe import Recipe as Recipe
    from layerwise.results import LayerTable as LayerTable
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
